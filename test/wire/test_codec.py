"""Messages survive the way through bytes; bytes that are no message raise one error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.errors import IllegalArgumentError, KafkaProtocolError, UnsupportedFieldError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.codec import decode, encode, encode_chunks
from kafka.wire.message import Message
from test import strategies
from test.support import seeds

EVERY = strategies.message_classes()
IDS = [f"{cls.__name__}-{version}" for cls, version in EVERY]


@pytest.mark.parametrize(("cls", "version"), EVERY, ids=IDS)
def test_a_message_is_read_back_as_it_was_and_a_cut_or_damaged_one_is_a_protocol_error(
    cls: type[Message], version: int
) -> None:
    rng = seeds.rng(f"{cls.__name__} {version}")

    @settings(max_examples=5)
    @given(strategies.messages(cls, version))
    def check(message: Message) -> None:
        data = encode(message, version)
        assert decode(cls, data, version) == message
        assert decode(cls, memoryview(data), version) == message
        assert encode(message, version) == data, "a second encoding gives the same bytes"
        for end in {rng.randrange(len(data) + 1) for _ in range(4)} - {len(data)}:
            with pytest.raises(KafkaProtocolError) as raised:
                decode(cls, data[:end], version)
            assert raised.value.offset is not None
        for _ in range(4):
            damaged = bytearray(data + b"\0")
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            with contextlib.suppress(KafkaProtocolError):
                decode(cls, bytes(damaged[:-1]), version)

    check()


@given(st.sampled_from(EVERY), st.binary(max_size=200))
@settings(max_examples=400)
def test_any_bytes_decode_or_raise_the_protocol_error(chosen: tuple[type[Message], int], data: bytes) -> None:
    cls, version = chosen
    try:
        message = decode(cls, data, version)
    except KafkaProtocolError:
        return
    assert isinstance(message, cls)


def test_an_array_that_claims_more_elements_than_there_are_bytes_allocates_nothing() -> None:
    with pytest.raises(KafkaProtocolError, match="more elements"):
        decode(MetadataRequest, b"\x7f\xff\xff\xff", 0)


def test_unknown_tagged_fields_survive_a_round_trip() -> None:
    message = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    message.unknown_tags = {0: b"zero", 300: b"three hundred"}  # type: ignore[misc]
    again = decode(ApiVersionsRequest, encode(message, 3), 3)
    assert again.unknown_tags == {0: b"zero", 300: b"three hundred"}
    assert encode(again, 3) == encode(message, 3)


def test_a_tagged_field_at_its_default_is_not_written() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    assert encode(response, 3) == b"\x00\x00" + b"\x01" + b"\x00\x00\x00\x00" + b"\x00"
    response.zk_migration_ready = True
    assert decode(ApiVersionsResponse, encode(response, 3), 3).zk_migration_ready is True


def test_a_field_that_the_version_lacks_is_refused_unless_it_may_be_left_out() -> None:
    request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(UnsupportedFieldError, match="version 3 has no allow_auto_topic_creation"):
        encode(request, 3)
    partition = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=7, log_append_time_ms=99)
    topic = ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])
    old = decode(ProduceResponse, encode(ProduceResponse(responses=[topic]), 1), 1)
    assert old.responses[0].partition_responses[0].log_append_time_ms == -1


def test_null_where_none_may_be_is_refused_both_ways() -> None:
    with pytest.raises(IllegalArgumentError):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(KafkaProtocolError, match="null where topics"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_values_that_do_not_fit_are_refused_with_the_messages_name() -> None:
    with pytest.raises(IllegalArgumentError, match="ProduceRequest version 9"):
        encode(ProduceRequest(acks=70_000, timeout_ms=1, topic_data=[]), 9)
    with pytest.raises(IllegalArgumentError, match="longer than 32767"):
        encode(ApiVersionsRequest(client_software_name="x" * 40_000), 3)
    with pytest.raises(IllegalArgumentError):
        encode(ApiVersionsRequest(client_software_name="\ud800"), 3)


def test_a_version_that_the_class_lacks_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="versions 1 to 2, not 3"):
        encode(ShareFetchRequest(member_id="m", share_session_epoch=0, max_wait_ms=0, min_bytes=0, topics=[],
                                 forgotten_topics_data=[], max_records=1, batch_size=1), 3)  # fmt: skip


def test_trailing_bytes_are_an_error_that_says_where() -> None:
    data = encode(ApiVersionsRequest(), 0)
    with pytest.raises(KafkaProtocolError, match="1 bytes after the end") as raised:
        decode(ApiVersionsRequest, data + b"!", 0)
    assert raised.value.offset == len(data)


def test_records_travel_without_a_copy() -> None:
    batch = bytes(100_000)
    data = ProduceRequest.PartitionProduceData(index=0, records=[batch[:10], batch])
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    chunks = encode_chunks(ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic]), 9)
    assert any(chunk is batch for chunk in chunks)
    again = decode(ProduceRequest, b"".join(chunks), 9)
    records = again.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.nbytes == 100_010


def test_the_constructor_wants_what_has_no_default() -> None:
    with pytest.raises(TypeError, match="acks"):
        ProduceRequest(timeout_ms=1, topic_data=[])  # type: ignore[call-arg]


def test_a_structure_that_was_left_out_is_each_messages_own() -> None:
    answer = ProduceResponse.PartitionProduceResponse(index=0, error_code=0, base_offset=5)
    topics = [ProduceResponse.TopicProduceResponse(partition_responses=[answer, answer])]
    data = encode(ProduceResponse(responses=topics), 13)
    one, other = decode(ProduceResponse, data, 13).responses[0].partition_responses
    assert one.current_leader == other.current_leader == ProduceResponse.LeaderIdAndEpoch()
    one.current_leader.leader_id = 7
    assert other.current_leader.leader_id == -1

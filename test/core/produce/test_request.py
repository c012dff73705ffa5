"""Produce requests: their topics, and their batches in the version that a node speaks."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kafka.core.produce.batch import EncodedProduceRequest, TopicQueues, produce_request
from kafka.errors import UnsupportedCompressionTypeError, UnsupportedForMessageFormatError, UnsupportedVersionError
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.records import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    RecordBatchBuilder,
    decode_raw,
    iter_batches,
)
from kafka.records.message_set import decode_produced
from kafka.wire.types import ZERO_UUID
from test.core.produce.support import TOPIC_ID, Rig


@pytest.mark.parametrize(
    ("ids", "max_version"),
    [
        ({"t": TOPIC_ID, "u": UUID(int=8)}, None),
        ({"t": TOPIC_ID, "u": ZERO_UUID}, 12),
        ({"t": ZERO_UUID, "u": TOPIC_ID}, 12),
    ],
)
def test_topics_without_an_id_are_named_which_produce_can_up_to_v12(
    ids: dict[str, UUID], max_version: int | None
) -> None:
    """KIP-516: Produce v13 has ids in the place of names."""
    rig = Rig(2)
    other = rig.accumulator.topics["u"] = TopicQueues("u")
    rig.accumulator.set_partitions(other, 1, [0])
    batches = [rig.put(b"x", 0)[0], rig.accumulator.append(other, None, 1, None, b"y", None)[0], rig.put(b"z", 1)[0]]
    request, found = produce_request(batches, 1, 30_000, ids.__getitem__)
    assert found == max_version
    assert (request.acks, request.timeout_ms) == (1, 30_000)
    assert [
        (topic.name, topic.topic_id, [data.index for data in topic.partition_data]) for topic in request.topic_data
    ] == [("t", ids["t"], [0, 1]), ("u", ids["u"], [0])]
    assert [data.records for topic in request.topic_data for data in topic.partition_data] == [
        batches[0].encoded(), batches[2].encoded(), batches[1].encoded(),
    ]  # fmt: skip


def test_a_large_batch_is_not_copied_into_one_piece() -> None:
    rig = Rig(batch_bytes=200_000)
    for _ in range(20):
        batch, _ = rig.put(random.Random(1).randbytes(9_000))
    request, _ = produce_request([batch], -1, 30_000, lambda _: TOPIC_ID)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, list)
    assert b"".join(records) == batch.encoded()


# -- one request in the version that its node speaks -------------------------------------------------------------------


RECORDS = [(1000, b"k", b"one"), (1001, None, b"two"), (999, b"", None)]


def batch(codec: int = NONE, *, headers: bool = False) -> bytes:
    builder = RecordBatchBuilder(100_000, codec)
    for timestamp, key, value in RECORDS:
        builder.append(timestamp, key, value, [("h", b"1")] if headers else None)
    return builder.build(7, 0, 0)


def request(*batches: bytes, acks: int = -1, transactional_id: str | None = None) -> ProduceRequest:
    """The batches to the partitions 0, 1 and so on of the topic ``t``."""
    data = [ProduceRequest.PartitionProduceData(index=at, records=records) for at, records in enumerate(batches)]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=5, topic_data=[topic], transactional_id=transactional_id)


def sent(built: ProduceRequest) -> dict[int, bytes]:
    return {data.index: bytes(data.records or b"") for topic in built.topic_data for data in topic.partition_data}


@pytest.mark.parametrize("version", [3, 6, 7, 13])
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_brokers_since_0_11_get_the_request_as_it_was_made(version: int, codec: int) -> None:
    made = request(batch(codec))
    assert EncodedProduceRequest(made, codec).build(version) is made


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
def test_older_ones_get_a_message_set_with_the_same_records_and_codec(version: int, magic: int, codec: int) -> None:
    built = EncodedProduceRequest(request(batch(codec)), codec).build(version)
    assert (built.acks, built.timeout_ms) == (-1, 5)
    data = sent(built)[0]
    outer = list(iter_batches(data))
    assert {header.magic for header in outer} == {magic}
    assert {header.codec for header in outer} == {codec}
    assert len(outer) == (1 if codec else 3)
    records, _, has_append_time = decode_produced(data, 10_000)
    assert not has_append_time
    kept = RECORDS if magic else [(-1, key, value) for _, key, value in RECORDS]
    assert [record[1:4] for record in records] == kept


@pytest.mark.parametrize(("version", "inner"), [(1, [0, 1, 2]), (2, [0, 1, 2])])
def test_offsets_inside_a_wrapper_are_counted_from_0_and_the_wrapper_has_the_last(
    version: int, inner: list[int]
) -> None:
    data = sent(EncodedProduceRequest(request(batch(GZIP)), GZIP).build(version))[0]
    (header,) = iter_batches(data)
    assert header.base_offset == 2
    assert [record[0] for record in decode_raw(data, header)] == inner


def test_the_level_is_that_of_the_producer() -> None:
    value = bytes(range(256)) * 40
    builder = RecordBatchBuilder(100_000, GZIP, 1)
    builder.append(1, None, value)
    made = request(builder.build())
    fast, best = (len(sent(EncodedProduceRequest(made, GZIP, level).build(1))[0]) for level in (1, 9))
    assert best < fast


@pytest.mark.parametrize("version", [0, 2, 3, 6])
def test_zstd_is_refused_below_version_7(version: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=r"v7: Kafka 2\.1"):
        EncodedProduceRequest(request(batch(ZSTD)), ZSTD).build(version)
    assert EncodedProduceRequest(request(batch(ZSTD)), ZSTD).build(7)


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1)])
def test_records_with_headers_are_refused_when_no_other_batch_is_left(version: int, magic: int) -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match=rf"headers.* message sets v{magic}:.*0\.11"):
        EncodedProduceRequest(request(batch(headers=True)), NONE).build(version)


def test_a_transaction_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"0\.11"):
        EncodedProduceRequest(request(batch(), transactional_id="me"), NONE).build(2)


def answer_to(built: ProduceRequest) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    ProduceResponse.PartitionProduceResponse(index=data.index, error_code=0, base_offset=50)
                    for data in topic.partition_data
                ],
            )
            for topic in built.topic_data
        ]
    )


def results_by_partition(response: ProduceResponse | None) -> dict[int, tuple[int, int]]:
    assert response is not None
    return {
        partition.index: (partition.error_code, partition.base_offset)
        for topic in response.responses
        for partition in topic.partition_responses
    }


def test_a_batch_that_cannot_be_carried_does_not_keep_the_others_back_and_is_in_the_answer() -> None:
    carried = EncodedProduceRequest(request(batch(), batch(headers=True), batch()), NONE)
    built = carried.build(1)
    assert set(sent(built)) == {0, 2}
    answer = carried.complete(answer_to(built))
    assert results_by_partition(answer) == {0: (0, 50), 1: (43, -1), 2: (0, 50)}
    assert answer is not None and "headers" in (answer.responses[-1].partition_responses[0].error_message or "")


def test_what_was_refused_is_reported_even_where_the_broker_answers_nothing() -> None:
    carried = EncodedProduceRequest(request(batch(), batch(headers=True), acks=0), NONE)
    carried.build(0)
    assert results_by_partition(carried.complete(None)) == {0: (0, -1), 1: (43, -1)}


def test_the_answer_is_left_alone_when_nothing_was_refused() -> None:
    carried = EncodedProduceRequest(request(batch()), NONE)
    answer = answer_to(carried.build(1))
    assert carried.complete(answer) is answer
    assert carried.complete(None) is None

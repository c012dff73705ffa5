"""Headers go with versions as the protocol says, and what cannot be read is named."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import KafkaProtocolError
from kafka.protocol import framing
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.produce import ProduceRequest
from kafka.protocol.registry import RequestHeader
from kafka.wire.codec import encode


def joined(chunks: list[bytes | bytearray | memoryview]) -> bytes:
    data = b"".join(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def test_a_large_chunk_is_handed_on_as_it_is_and_small_ones_are_joined() -> None:
    large = memoryview(bytes(framing.LARGE_BYTES))
    one = ProduceRequest.PartitionProduceData(index=0, records=large)
    other = ProduceRequest.PartitionProduceData(index=1, records=b"small")
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[one, other])
    request = ProduceRequest(acks=1, timeout_ms=1, topic_data=[topic])
    before, between, behind = framing.encode_request(request, 9, 7, "me")
    assert between is large
    assert framing.decode_request(joined([before, between, behind])) == (request, 9, 7, "me")
    assert len(framing.encode_request(MetadataRequest(topics=[]), 9, 7, "me")) == 1


@pytest.mark.parametrize(("version", "header"), [(8, 1), (9, 2)])
def test_a_flexible_request_has_the_flexible_header(version: int, header: int) -> None:
    assert framing.request_header_version(MetadataRequest, version) == header
    assert framing.response_header_version(MetadataResponse, version) == header - 1
    frame = joined(framing.encode_request(MetadataRequest(topics=[]), version, 7, "me"))
    received = framing.decode_request(frame)
    assert isinstance(received, framing.ReceivedRequest)
    assert received == (MetadataRequest(topics=[]), version, 7, "me")


def test_the_answer_of_api_versions_always_has_the_first_header() -> None:
    answer = ApiVersionsResponse(error_code=0, api_keys=[], finalized_features_epoch=3)
    frame = joined(framing.encode_response(answer, 3, 99))
    assert framing.read_correlation_id(frame) == 99
    assert framing.decode_response(ApiVersionsResponse, 3, frame) == answer


def test_an_answer_of_api_versions_that_says_unsupported_is_read_as_version_0() -> None:
    only = ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=2)
    answer = ApiVersionsResponse(error_code=35, api_keys=[only])
    frame = joined(framing.encode_response(answer, 0, 1))
    assert framing.decode_response(ApiVersionsResponse, 4, frame) == answer


@pytest.mark.parametrize(("key", "version"), [(18, 99), (4, 0), (999, 0), (-1, 0)])
def test_a_request_that_nobody_knows_still_has_its_header_read(key: int, version: int) -> None:
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=5, client_id=None)
    found = framing.decode_request(encode(header, 1) + b"anything")
    assert found == framing.UnknownRequest(key, version, 5, None)


def test_a_fault_names_the_api_and_its_version() -> None:
    frame = joined(framing.encode_request(ApiVersionsRequest(client_software_name="abc"), 3, 7, "me"))
    with pytest.raises(KafkaProtocolError, match="ApiVersions v3"):
        framing.decode_request(frame[:-1])


def test_bytes_behind_a_request_are_let_pass_as_by_apache_kafka() -> None:
    librdkafka = bytes.fromhex("0003000d00000003000772646b61666b610000000000010000")  # Metadata v13 for all topics
    found = framing.decode_request(librdkafka)
    assert isinstance(found, framing.ReceivedRequest)
    assert found.request.topics is None


@given(st.binary(max_size=80))
def test_no_frame_of_any_bytes_raises_anything_else(frame: bytes) -> None:
    with contextlib.suppress(KafkaProtocolError):
        framing.decode_request(frame)
    with contextlib.suppress(KafkaProtocolError):
        framing.read_correlation_id(frame)
        framing.decode_response(MetadataResponse, 12, frame)


@pytest.mark.parametrize("client_id", ["me", "\u00fc" * 300, "", None])
@pytest.mark.parametrize("version", [8, 9])
def test_each_request_has_its_own_correlation_id_behind_the_same_header(version: int, client_id: str | None) -> None:
    request = MetadataRequest(topics=[])
    for correlation_id in (0, 1, 2**31 - 1, 77):
        header = RequestHeader(
            request_api_key=3, request_api_version=version, correlation_id=correlation_id, client_id=client_id
        )
        expected = encode(header, framing.request_header_version(MetadataRequest, version)) + encode(request, version)
        assert joined(framing.encode_request(request, version, correlation_id, client_id)) == expected

"""What decoding takes: memory in proportion to the bytes for whatever a peer sends, and room for what clusters send."""

from __future__ import annotations

import contextlib
import gc
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from kafka.errors import KafkaProtocolError
from kafka.protocol.api_versions import ApiVersionsResponse
from kafka.protocol.fetch import FetchRequest, FetchResponse
from kafka.protocol.groups import DescribeGroupsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.offsets import OffsetCommitRequest
from kafka.protocol.quotas import DescribeClientQuotasResponse
from kafka.protocol.registry import FAMILIES, REGISTRY, RequestHeader
from kafka.wire import codec
from kafka.wire.codec import (
    BYTES_PER_BYTE,
    ELEMENT_BYTES,
    MAX_ELEMENTS,
    SPARE_BYTES,
    Cost,
    decode,
    decode_from,
    encode,
    uvarint,
)
from kafka.wire.message import FIXED, Field, Message, Struct, fields_of

MEBIBYTE = 1 << 20
DEAR = {"bool": True, "int8": -100, "int16": -1000, "int32": -(10**5), "int64": -(10**15), "uint16": 60_000,
        "float64": 1.5, "string": "", "bytes": b"", "records": b"", "uuid": UUID(int=5)}  # fmt: skip
"""Of the fewest bytes, and numbers that the interpreter has no object for already."""


def least(cls: type[Struct], version: int, flexible: bool) -> Any:
    """A structure of as few bytes as may be."""
    made = object.__new__(cls)
    made.unknown_tags = None  # type: ignore[misc]
    for each in fields_of(cls):
        is_there = each.spec.present(version) and not (flexible and each.spec.tagged(version))
        setattr(made, each.name, least_value(each, version, flexible) if is_there else each.implicit)
    return made


def least_value(each: Field, version: int, flexible: bool) -> Any:
    if each.type.array:
        return []
    if each.type.cls is not None:
        return None if each.spec.nullable(version) else least(each.type.cls, version, flexible)
    return DEAR[each.type.kind]


def arrays(cls: type[Struct], version: int, above: tuple[Field, ...] = ()) -> Iterator[tuple[Field, ...]]:
    """The arrays of a message, each behind the fields that it is in."""
    for each in fields_of(cls):
        if each.spec.present(version):
            if each.type.array:
                yield (*above, each)
            if each.type.cls is not None:
                yield from arrays(each.type.cls, version, (*above, each))


def with_many(cls: type[Message], version: int, path: tuple[Field, ...], count: int) -> bytes:
    """The bytes of a message that has ``count`` least elements in this array, and as little as may be of all else."""
    flexible = cls.flexible(version)
    inner = message = least(cls, version, flexible)
    for each in path:
        element = DEAR.get(each.type.kind) if each.type.cls is None else least(each.type.cls, version, flexible)
        setattr(inner, each.name, [element] * (count if each is path[-1] else 1) if each.type.array else element)
        inner = element
    return encode(message, version)


def most_memory(cls: type[Message], data: bytes, version: int) -> int:
    """Bytes that were taken at once while the message was decoded, or refused."""
    gc.disable()  # nothing here is a cycle, and each look for one visits all that was made
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with contextlib.suppress(KafkaProtocolError):
            decode_from(cls, data, 0, version)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_elements_of_no_message_take_more_memory_than_the_reader_counts(family: str) -> None:
    count = 100
    for key in FAMILIES[family]:
        for cls in (REGISTRY[key].request, REGISTRY[key].response):
            for version in range(cls.min_version, cls.max_version + 1):
                for path in arrays(cls, version):
                    data = with_many(cls, version, path, count)
                    decode(cls, data, version)  # the reader is compiled
                    wire, excess = Cost(cls, version).element(path[-1])
                    if path[-1].type.kind not in FIXED:
                        more = len(with_many(cls, version, path, count + 1)) - len(data)
                        assert more == wire, f"{cls.__name__} {version} {path[-1].name}: least bytes"
                    taken = most_memory(cls, data, version)
                    allowed = len(data) * BYTES_PER_BYTE + count * excess + 2048
                    assert taken <= allowed, f"{cls.__name__} {version} {path[-1].name}: {taken} of {allowed}"


def small_entries(count: int) -> bytes:
    """The dearest of all: an answer to DescribeClientQuotas with entries of three bytes."""
    return bytes(6) + b"\0" + uvarint(count + 1) + b"\x01\x01\0" * count + b"\0"


@pytest.fixture
def little_to_spare(monkeypatch: pytest.MonkeyPatch) -> int:
    """A 28th of the spare bytes, or tracing what is allocated would take a minute; how many."""
    spare = SPARE_BYTES // 28
    monkeypatch.setattr(codec, "SPARE_BYTES", spare)
    monkeypatch.setattr(codec, "_readers", {})
    return spare


def test_an_answer_of_small_elements_takes_30_times_its_bytes_and_64_mebibytes_at_most(little_to_spare: int) -> None:
    entries = fields_of(DescribeClientQuotasResponse)[3]
    most = little_to_spare // Cost(DescribeClientQuotasResponse, 1).element(entries)[1]
    data = small_entries(most)
    assert len(decode(DescribeClientQuotasResponse, data, 1).entries or ()) == most
    assert most_memory(DescribeClientQuotasResponse, data, 1) <= 30 * len(data) + 64 * MEBIBYTE // 28


def test_too_many_small_elements_are_refused_before_any_is_made() -> None:
    data = small_entries(4_000_000)
    with pytest.raises(KafkaProtocolError, match="so many small elements"):
        decode(DescribeClientQuotasResponse, data, 1)
    assert most_memory(DescribeClientQuotasResponse, data, 1) < MEBIBYTE


def test_unknown_tagged_fields_of_an_answer_count(little_to_spare: int) -> None:
    entry = struct.pack(">hhh", 1, 0, 1) + b"\x01\x05\0"  # an API's versions, and a tagged field without bytes
    data = bytes(2) + uvarint(20_001) + entry * 20_000 + bytes(5)
    with pytest.raises(KafkaProtocolError, match="so many small elements"):
        decode(ApiVersionsResponse, data, 3)
    assert most_memory(ApiVersionsResponse, data, 3) <= 30 * len(data) + 64 * MEBIBYTE // 28


def test_a_count_of_elements_that_the_bytes_have_no_room_for_is_refused_at_once() -> None:
    """Of elements of at least six bytes each, with one byte for each."""
    data = bytes(2) + struct.pack(">i", 3_000_000) + bytes(3_000_000)
    with pytest.raises(KafkaProtocolError, match="more elements in api_keys than bytes") as caught:
        decode(ApiVersionsResponse, data, 0)
    assert caught.value.offset == 6


@pytest.mark.parametrize("version", [0, 5, 13])
def test_metadata_of_200_000_partitions_is_read(version: int) -> None:
    """A large cluster's, one partition in each topic or many in one, three replicas each."""
    def topic(name: str, count: int) -> Any:
        partition = MetadataResponse.MetadataResponsePartition(
            error_code=0, partition_index=70_000, leader_id=1001, replica_nodes=[1001, 1002, 1003],
            isr_nodes=[1001, 1002, 1003],
        )  # fmt: skip
        return MetadataResponse.MetadataResponseTopic(error_code=0, name=name, partitions=[partition] * count)

    broker = MetadataResponse.MetadataResponseBroker(node_id=1001, host="broker", port=9092)
    topics = [topic("many", 100_000), *[topic("one", 1)] * 100_000]
    found = decode(MetadataResponse, encode(MetadataResponse(brokers=[broker], topics=topics), version), version)
    assert sum(len(each.partitions) for each in found.topics) == 200_000


@pytest.mark.parametrize("version", [4, 12, 17])
def test_a_fetch_answer_of_200_000_empty_partitions_is_read(version: int) -> None:
    partition = FetchResponse.PartitionData(
        partition_index=70_000, error_code=0, high_watermark=10**6, records=None, aborted_transactions=None
    )
    answer = FetchResponse.FetchableTopicResponse(topic="t" if version < 13 else "", partitions=[partition] * 200_000)
    found = decode(FetchResponse, encode(FetchResponse(responses=[answer]), version), version)
    assert len(found.responses[0].partitions) == 200_000


def test_requests_of_10_000_partitions_in_as_many_topics_are_read() -> None:
    names = [f"a-topic-of-a-name-of-usual-length-{number}" for number in range(10_000)]
    place = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(
        max_wait_ms=500, min_bytes=1, topics=[FetchRequest.FetchTopic(topic=n, partitions=[place]) for n in names]
    )
    assert len(decode(FetchRequest, encode(fetch, 12), 12).topics) == 10_000
    offset = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=7, committed_metadata="m" * 500
    )
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=n, partitions=[offset]) for n in names]
    )
    assert len(decode(OffsetCommitRequest, encode(commit, 8), 8).topics) == 10_000
    topics = [MetadataRequest.MetadataRequestTopic(name=n) for n in names]
    assert len(decode(MetadataRequest, encode(MetadataRequest(topics=topics), 12), 12).topics or ()) == 10_000


def test_a_request_has_so_many_elements_or_bytes_of_text_and_no_more() -> None:
    names = [""] * MAX_ELEMENTS
    assert len(decode(DescribeGroupsRequest, encode(DescribeGroupsRequest(groups=names), 0), 0).groups) == MAX_ELEMENTS
    most = MAX_ELEMENTS * ELEMENT_BYTES // (32_000 + ELEMENT_BYTES)
    for too_many in ([*names, ""], ["n" * 32_000] * (most + 1), ["n" * 500] * (MAX_ELEMENTS * 3 // 5)):
        with pytest.raises(KafkaProtocolError, match="32768 elements in one request"):
            decode(DescribeGroupsRequest, encode(DescribeGroupsRequest(groups=too_many), 0), 0)
    decode(DescribeGroupsRequest, encode(DescribeGroupsRequest(groups=["n" * 32_000] * most), 0), 0)


def test_a_uuid_counts_as_an_element_of_a_request() -> None:
    def ask_for(topics: int, version: int) -> bytes:
        def one(number: int) -> FetchRequest.FetchTopic:
            partition_request = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
            return FetchRequest.FetchTopic(topic_id=UUID(int=1 + number), partitions=[partition_request])

        return encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=list(map(one, range(topics)))), version)

    def ask(topics: int) -> bytes:
        rows = [FetchRequest.ForgottenTopic(topic_id=UUID(int=1 + number), partitions=[0]) for number in range(topics)]
        return encode(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], forgotten_topics_data=rows), 13)

    most = MAX_ELEMENTS // 3  # topic, id, partition
    assert most > 10_000
    assert len(decode(FetchRequest, ask(most), 13).forgotten_topics_data) == most
    with pytest.raises(KafkaProtocolError, match="32768 elements in one request"):
        decode(FetchRequest, ask(most + 1), 13)
    for version in (13, 18):  # from 17 on a partition has a UUID, which is hardly ever sent
        assert len(decode(FetchRequest, ask_for(most, version), version).topics) == most


def test_the_header_of_a_request_has_no_more_tagged_fields() -> None:
    tags = b"".join(uvarint(number) + b"\0" for number in range(MAX_ELEMENTS + 1))
    data = struct.pack(">hhih", 18, 3, 1, -1) + uvarint(MAX_ELEMENTS + 1) + tags
    with pytest.raises(KafkaProtocolError, match="32768 elements"):
        decode(RequestHeader, data, 2)


def test_a_text_of_wide_letters_in_a_request_takes_64_mebibytes_beyond_its_bytes_at_most() -> None:
    """One letter of four bytes makes each of the others one of four bytes in memory."""
    names = ["n" * 32_000 + "\U0001f600"] * (MAX_ELEMENTS * ELEMENT_BYTES // 33_000)
    data = encode(DescribeGroupsRequest(groups=names), 0)
    assert most_memory(DescribeGroupsRequest, data, 0) <= len(data) + 64 * MEBIBYTE

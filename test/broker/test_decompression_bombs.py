"""Batches that inflate a thousandfold, at the embedded broker's edge: what is too large is refused, what is not is read
in slices, and the broker goes on meanwhile."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kafka import KafkaProducer
from kafka.broker.log import cleaner
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.broker.time_slices import MAX_INFLATED_BYTES, SLICE_RECORDS
from kafka.protocol.api_versions import ApiVersionsRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.topics import DeleteTopicsRequest
from kafka.records import DEFAULT_MAX_DECOMPRESSED_BYTES, ZSTD, RecordBatchBuilder, iter_batches
from kafka.records.header import encode_varint
from kafka.testing import EmbeddedBroker
from test.broker.driver import HandBroker, batch, produce_request
from test.broker.raw_client import RawClient
from test.records import fuzz

T = TypeVar("T")
EMPTY_RECORD = b"\x0c\0\0\0\1\1\0"

MESSAGE_TOO_LARGE = 10
INVALID_TIMESTAMP = 32
CORRUPT_MESSAGE = 2


def produce(raw: RawClient, topic: str, records: bytes, version: int) -> int:
    """The error code."""
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )
    (answer,) = raw.ask(request, version).responses
    return answer.partition_responses[0].error_code


@pytest.fixture(scope="module")
def huge() -> bytes:
    return bytes(DEFAULT_MAX_DECOMPRESSED_BYTES + 1_000_000)


@pytest.fixture(scope="module")
def compacted() -> Iterator[EmbeddedBroker]:
    """Compacted topics are where a broker looks into records."""
    with EmbeddedBroker(in_process=True) as broker:
        broker.create_topic("compacted", cleanup_policy="compact")
        yield broker


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_for_a_compacted_topic_is_too_large(compacted: EmbeddedBroker, huge: bytes, codec: int) -> None:
    with RawClient(compacted.port) as raw:
        assert produce(raw, "compacted", fuzz.v2_around(codec, huge, 1), 12) == MESSAGE_TOO_LARGE
        builder = RecordBatchBuilder(1000, codec)
        builder.append(fuzz.T0, b"key", b"value")
        assert produce(raw, "compacted", builder.build(), 12) == 0


@pytest.fixture(scope="module", params=["0.9", "0.10"])
def old(request: pytest.FixtureRequest) -> Iterator[tuple[EmbeddedBroker, int]]:
    """A broker of message sets, and their magic."""
    with EmbeddedBroker(in_process=True, emulate=request.param) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            producer.partitions_for("t")  # makes it: there is no CreateTopics yet
        yield broker, {"0.9": 0, "0.10": 1}[request.param]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_in_a_wrapper_is_corrupt(old: tuple[EmbeddedBroker, int], huge: bytes, codec: int) -> None:
    broker, magic = old
    with RawClient(broker.port) as raw:
        assert produce(raw, "t", fuzz.wrapper(magic, codec, huge), magic + 1) == CORRUPT_MESSAGE
        assert produce(raw, "t", fuzz.message_set(random.Random(1), magic, codec), magic + 1) == 0


# -- many records in few bytes ---------------------------------------------------------------------------------------


RECORDS = 40_000
MEMORY_BYTES = 64_000_000


def many(timestamp: int, records: int = RECORDS, key: bytes | None = b"") -> bytes:
    """So many small records in a few kB."""
    builder = RecordBatchBuilder(1 << 30, ZSTD)
    for _ in range(records):
        builder.append(timestamp, key, None)
    return builder.build()


def turns_until_done(hand: HandBroker, reply: PendingResponse) -> int:
    """Tick until there is an answer. Another connection is answered in each turn meanwhile."""
    turns = 0
    other = ConnectionContext()
    while not reply.done:
        asked = hand.send(ApiVersionsRequest(), 4, other)
        assert asked.done
        hand.tick()
        turns += 1
        assert turns < 10_000
    return turns


def produced(hand: HandBroker, reply: PendingResponse) -> ProduceResponse.PartitionProduceResponse:
    """The answer for the one partition."""
    (partition,) = hand.answer(produce_request("t", b""), reply, 9).responses[0].partition_responses
    return partition


def peak_of(act: Callable[[], T]) -> tuple[T, int]:
    """What it gives, and how many bytes Python held meanwhile at most."""
    tracemalloc.start()
    try:
        found = act()
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("timestamp", "key", "code"), [(2 * 3600, b"", 32), (0, None, 87)], ids=["too far ahead", "without keys"]
)
def test_of_many_records_that_break_a_rule_a_hundred_are_reported_and_no_more_is_read(
    hand: HandBroker, timestamp: int, key: bytes | None, code: int
) -> None:
    hand.create_topic("t", cleanup_policy="compact")
    data = many(hand.epoch_ms + timestamp * 1000, key=key)

    def produce() -> int:
        reply = hand.send(produce_request("t", data), 9)
        turns = turns_until_done(hand, reply)
        partition = produced(hand, reply)
        assert (partition.error_code, len(partition.record_errors)) == (code, 100)
        return turns

    turns, peak = peak_of(produce)
    assert turns < 5
    assert peak < MEMORY_BYTES
    hand.create_topic("other")
    assert hand.produce("other", batch(b"v")).error_code == 0


def test_a_batch_of_many_good_records_is_looked_at_in_slices_and_taken(hand: HandBroker) -> None:
    hand.create_topic("t")
    data = many(hand.epoch_ms)
    reply, peak = peak_of(lambda: hand.send(produce_request("t", data), 9))
    assert not reply.done
    assert peak < 1_000_000, "nothing is inflated before it is its turn"
    turns, peak = peak_of(lambda: turns_until_done(hand, reply))
    assert turns > RECORDS // SLICE_RECORDS
    assert peak < MEMORY_BYTES
    partition = produced(hand, reply)
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert hand.produce("t", batch(b"v")).base_offset == RECORDS


def test_two_that_send_many_records_are_read_one_after_the_other(hand: HandBroker) -> None:
    hand.create_topic("t", partitions=2)
    data = many(hand.epoch_ms)
    replies = [hand.send(produce_request("t", data, at), 9, ConnectionContext()) for at in range(2)]

    def finish() -> None:
        for reply in replies:
            turns_until_done(hand, reply)

    _, peak = peak_of(finish)
    assert peak < MEMORY_BYTES // 2


def test_a_topic_that_is_deleted_while_a_batch_is_looked_at_does_not_get_it(hand: HandBroker) -> None:
    hand.create_topic("t")
    reply = hand.send(produce_request("t", many(hand.epoch_ms)), 9)
    other = ConnectionContext()
    hand.tick()
    deleted = hand.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3, other)
    assert deleted.done
    turns_until_done(hand, reply)
    partition = produced(hand, reply)
    assert partition.error_code == 3


def test_a_topic_that_is_deleted_meanwhile_gets_none_of_the_batches_behind_either(hand: HandBroker) -> None:
    hand.create_topic("t", partitions=2)
    request = produce_request("t", many(hand.epoch_ms))
    request.topic_data += produce_request("t", batch(b"v"), 1).topic_data
    reply = hand.send(request, 9)
    hand.tick()
    assert hand.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3, ConnectionContext()).done
    turns_until_done(hand, reply)
    assert isinstance(reply.response, ProduceResponse)
    (topic,) = reply.response.responses
    assert [partition.error_code for partition in topic.partition_responses] == [3, 3]


def test_records_that_are_refused_when_their_topic_is_gone_open_no_log(hand: HandBroker) -> None:
    hand.create_topic("t")
    reply = hand.send(produce_request("t", many(hand.epoch_ms + 36_000_000)), 9)
    assert hand.send(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3, ConnectionContext()).done
    opened = len(hand.broker.logs.all_open_logs())
    turns_until_done(hand, reply)
    partition = produced(hand, reply)
    assert (partition.error_code, partition.log_start_offset) == (INVALID_TIMESTAMP, -1)
    assert len(hand.broker.logs.all_open_logs()) == opened


def test_partitions_with_many_records_each_are_looked_at_a_few_at_a_time(hand: HandBroker) -> None:
    """Each batch is small and read at once, and twenty of them would take longer than one turn of the loop may."""
    hand.create_topic("t", partitions=20)
    data = many(hand.epoch_ms, SLICE_RECORDS)
    assert len(data) < 30_000
    request = produce_request("t", data)
    for number in range(1, 20):
        request.topic_data += produce_request("t", data, number).topic_data
    reply = hand.send(request, 9)
    assert not reply.done
    assert turns_until_done(hand, reply) >= 4
    assert isinstance(reply.response, ProduceResponse)
    (topic,) = reply.response.responses
    assert [partition.error_code for partition in topic.partition_responses] == [0] * 20


def test_a_producer_that_has_gone_leaves_no_work_behind(hand: HandBroker) -> None:
    hand.create_topic("t")
    connection = ConnectionContext()
    reply = hand.send(produce_request("t", many(hand.epoch_ms)), 9, connection)
    hand.tick()
    hand.broker.disconnected(connection, hand.now)
    deadline = hand.tick()
    assert deadline is None or deadline > hand.now
    assert not reply.done
    assert hand.produce("t", batch(b"v")).base_offset == 0


@pytest.mark.parametrize("records", [4_000_000, 2_300_000])
def test_records_that_all_have_one_offset_are_corrupt_or_too_many(hand: HandBroker, records: int) -> None:
    """7 bytes each, and 2.6 kB in all. More than the bound has room for are not even inflated."""
    hand.create_topic("t")
    data = fuzz.v2_around(ZSTD, EMPTY_RECORD * records, records)
    assert len(data) < 3_000
    reply, peak = peak_of(lambda: hand.send(produce_request("t", data), 9))
    turns, later_peak = peak_of(lambda: turns_until_done(hand, reply))
    assert turns < 5
    assert max(peak, later_peak) < MEMORY_BYTES
    partition = produced(hand, reply)
    assert partition.error_code == (MESSAGE_TOO_LARGE if records * 7 > MAX_INFLATED_BYTES else CORRUPT_MESSAGE)


@pytest.mark.parametrize("deltas", [(0, 0), (0, 0, 0), (1, 0), (0, 2)])
def test_offsets_that_do_not_ascend_by_one_are_corrupt(hand: HandBroker, deltas: tuple[int, ...]) -> None:
    hand.create_topic("t")
    body = b"".join(b"\x0c\0\0" + encode_varint(delta) + b"\1\1\0" for delta in deltas)
    assert hand.produce("t", fuzz.v2_around(0, body, len(deltas))).error_code == CORRUPT_MESSAGE


def test_a_header_that_claims_a_later_time_than_its_records_is_put_right(hand: HandBroker) -> None:
    """Searches by time read the batch that its header names, so a header that lies would cost a look at all of it."""
    hand.create_topic("t")
    data = bytearray(batch(b"v", timestamp=hand.epoch_ms))
    struct.pack_into(">q", data, 35, hand.epoch_ms + 1000)
    assert hand.produce("t", fuzz.refit(bytes(data))).error_code == 0
    (header,) = iter_batches(hand.broker.logs.log(hand.broker.topic("t"), 0).read(0, 1000))
    assert header.max_timestamp == hand.epoch_ms


def test_a_search_by_time_reads_a_batch_of_many_records_in_slices(hand: HandBroker) -> None:
    hand.create_topic("t")
    builder = RecordBatchBuilder(1 << 30, ZSTD)
    for at in range(RECORDS):
        builder.append(hand.epoch_ms + at // 1000, None, None)
    turns_until_done(hand, hand.send(produce_request("t", builder.build()), 9))
    for asked, expected in ((hand.epoch_ms + 30, 30_000), (-3, RECORDS - 1000)):
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.ListOffsetsTopic(
                    name="t",
                    partitions=[ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=asked)],
                )
            ],
        )

        def ask(request: ListOffsetsRequest = request) -> tuple[int, int]:
            reply = hand.send(request, 7)
            turns = turns_until_done(hand, reply)
            (answer,) = hand.answer(request, reply, 7).topics[0].partitions
            return turns, answer.offset

        (turns, offset), peak = peak_of(ask)
        assert offset == expected
        assert turns >= 30_000 // SLICE_RECORDS
        assert peak < MEMORY_BYTES


def test_compaction_reads_a_batch_of_many_records_in_slices(hand: HandBroker) -> None:
    hand.create_topic("t", cleanup_policy="compact", segment_bytes="1048576")
    partition = hand.broker.logs.log(hand.broker.topic("t"), 0)
    for _ in range(2):  # all keys of the first are superseded
        builder = RecordBatchBuilder(1 << 30, ZSTD)
        for at in range(50_000):
            builder.append(hand.epoch_ms, b"%d" % at, b"v")
        turns_until_done(hand, hand.send(produce_request("t", builder.build()), 9))
        partition.roll(hand.epoch_ms)
    plan = cleaner.plan_cleaning(partition, hand.epoch_ms)
    assert plan is not None
    made = cleaner.CleaningPass(partition, plan, hand.epoch_ms, map_bytes=32 << 20, sync=False)
    steps = 0
    for _ in made.run():
        steps += 1
    assert steps >= 4 * (50_000 // cleaner.SLICE_RECORDS)
    kept = [header for header in iter_batches(partition.read(0, 1 << 30)) if header.records_count]
    assert [(header.base_offset, header.records_count) for header in kept] == [(50_000, 50_000)]

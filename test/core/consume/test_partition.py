from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kafka.core.consume.partition import (
    CompletedFetch,
    ConsumerRecord,
    PartitionPosition,
    PositionChanges,
    ReaderOptions,
    has_error_location,
    set_error_location,
)
from kafka.errors import CorruptRecordError, MessageSizeTooLargeError
from kafka.protocol.fetch import FetchResponse
from kafka.records import (
    ABORT,
    CODECS,
    COMMIT,
    ZSTD,
    ControlMarker,
    Headers,
    RecordBatchBuilder,
    control_batch,
    encode_message_set,
)
from kafka.records.header import encode_varint
from kafka.structs import TopicPartition
from test.core.consume.rig import A
from test.records import fuzz

PARTITION = TopicPartition("t", 0)


def batch(
    base_offset: int, *values: bytes, producer_id: int = -1, transactional: bool = False, leader_epoch: int = 4
) -> bytes:
    builder = RecordBatchBuilder(1_000_000)
    for value in values:
        builder.append(1000, None, value)
    sequence = 0 if producer_id >= 0 else -1
    return builder.build(
        producer_id, sequence, sequence, base_offset=base_offset, transactional=transactional, leader_epoch=leader_epoch
    )


def marker(offset: int, producer_id: int, kind: int) -> bytes:
    return control_batch(ControlMarker(kind, 0), 1000, producer_id, 0, offset, 4)


def aborted(producer_id: int, first_offset: int) -> FetchResponse.AbortedTransaction:
    return FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)


def read_all(fetched: CompletedFetch, options: ReaderOptions | None = None, limit: int = 1000) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    while not fetched.is_exhausted:
        found += fetched.read(limit, options or ReaderOptions())
    return found


def offsets_and_values(records: list[ConsumerRecord]) -> list[tuple[int, Any]]:
    return [(record.offset, record.value) for record in records]


@pytest.mark.parametrize(
    ("limits", "sizes"),
    [
        ([1] * 6, [1, 1, 1, 1, 1, 0]),
        ([2] * 4, [2, 2, 1, 0]),
        ([3] * 3, [3, 2, 0]),
        ([100] * 2, [5, 0]),
        ([1, 100, 100], [1, 4, 0]),
        ([2, 3, 1], [2, 3, 0]),
    ],
)
def test_records_come_in_order_in_portions_of_any_size(limits: list[int], sizes: list[int]) -> None:
    fetched = CompletedFetch(PARTITION, 10, batch(10, b"a", b"b", b"c") + batch(13, b"d", b"e"))
    assert fetched.next_offset == 15
    portions = [fetched.read(limit, ReaderOptions()) for limit in limits]
    assert [len(portion) for portion in portions] == sizes
    records = [record for portion in portions for record in portion]
    assert offsets_and_values(records) == [(10, b"a"), (11, b"b"), (12, b"c"), (13, b"d"), (14, b"e")]
    assert (fetched.position, fetched.is_exhausted) == (15, True)


@pytest.mark.parametrize("limit", [2, 3])
def test_a_batch_is_left_with_its_last_record_though_compaction_took_what_came_behind(limit: int) -> None:
    data = bytearray(batch(0, b"a", b"b"))
    data[26] = 4  # the last offset is 4
    fetched = CompletedFetch(PARTITION, 0, bytes(data))
    assert len(fetched.read(limit, ReaderOptions(check_crcs=False))) == 2
    assert (fetched.position, fetched.is_exhausted) == (5, True)


def test_the_leader_epoch_is_that_of_the_batch_that_was_read_from_last() -> None:
    assert CompletedFetch(PARTITION, 0, b"").leader_epoch == -1
    fetched = CompletedFetch(PARTITION, 0, batch(0, b"a", b"b", leader_epoch=5) + batch(2, b"c", b"d", leader_epoch=6))
    epochs = [fetched.leader_epoch]
    while not fetched.is_exhausted:
        fetched.read(1, ReaderOptions())
        epochs.append(fetched.leader_epoch)
    assert epochs == [-1, 5, 5, 6, 6]


def test_a_record_has_the_fields_that_people_know() -> None:
    builder = RecordBatchBuilder(1000)
    builder.append(77, b"key", None, [("h", b"xy"), ("n", None)])
    (record,) = read_all(CompletedFetch(PARTITION, 5, builder.build(base_offset=5, leader_epoch=4)))
    assert record == ConsumerRecord("t", 0, 4, 5, 77, 0, b"key", None, [("h", b"xy"), ("n", None)], None, 3, -1, 4)


def test_what_lies_before_the_offset_asked_for_is_left_out() -> None:
    fetched = CompletedFetch(PARTITION, 12, batch(10, b"a", b"b", b"c", b"d"))
    assert offsets_and_values(read_all(fetched)) == [(12, b"c"), (13, b"d")]


def test_a_cut_batch_at_the_end_is_fetched_again() -> None:
    data = batch(0, b"a", b"b") + batch(2, b"c")
    for cut in range(len(batch(0, b"a", b"b")), len(data)):
        fetched = CompletedFetch(PARTITION, 0, data[:cut])
        assert fetched.next_offset == 2
        assert offsets_and_values(read_all(fetched)) == [(0, b"a"), (1, b"b")]


def test_a_first_batch_that_is_cut_is_an_error_that_names_the_setting() -> None:
    fetched = CompletedFetch(PARTITION, 0, batch(0, b"a")[:-1])
    with pytest.raises(MessageSizeTooLargeError, match="max_partition_fetch_bytes"):
        fetched.read(10, ReaderOptions())


def test_a_damaged_batch_is_met_after_the_good_ones_and_the_position_stands_before_it() -> None:
    good, bad = batch(0, b"a", b"b"), bytearray(batch(2, b"c"))
    bad[-2] ^= 1
    fetched = CompletedFetch(PARTITION, 0, good + bytes(bad) + batch(3, b"d"))
    assert offsets_and_values(fetched.read(10, ReaderOptions())) == [(0, b"a"), (1, b"b")]
    assert fetched.position == 2
    for _ in range(2):
        with pytest.raises(CorruptRecordError, match="t-0"):
            fetched.read(10, ReaderOptions())
    assert fetched.position == 2


def test_the_crc_check_can_be_switched_off() -> None:
    bad = bytearray(batch(0, b"c"))
    bad[-2] ^= 1
    (record,) = read_all(CompletedFetch(PARTITION, 0, bytes(bad)), ReaderOptions(check_crcs=False))
    assert record.value == bytes([ord("c") ^ 1])


def test_markers_are_never_handed_out_and_count_as_read() -> None:
    fetched = CompletedFetch(PARTITION, 0, batch(0, b"a", producer_id=7, transactional=True) + marker(1, 7, COMMIT))
    assert offsets_and_values(read_all(fetched)) == [(0, b"a")]
    assert fetched.position == 2


def test_read_committed_leaves_out_the_aborted_transaction_and_nothing_else() -> None:
    data = b"".join(
        (
            batch(0, b"a7", producer_id=7, transactional=True),
            batch(1, b"b8", producer_id=8, transactional=True),
            batch(2, b"plain"),
            batch(3, b"c7", producer_id=7, transactional=True),
            marker(4, 7, ABORT),
            batch(5, b"d7", producer_id=7, transactional=True),
            marker(6, 8, COMMIT),
            marker(7, 7, COMMIT),
        )
    )
    committed = read_all(CompletedFetch(PARTITION, 0, data, [aborted(7, 0)]), ReaderOptions(read_committed=True))
    assert [record.value for record in committed] == [b"b8", b"plain", b"d7"]
    everything = read_all(CompletedFetch(PARTITION, 0, data, [aborted(7, 0)]))
    assert [record.value for record in everything] == [b"a7", b"b8", b"plain", b"c7", b"d7"]


@pytest.mark.parametrize("read_committed", [False, True])
@pytest.mark.parametrize("before", range(6))
def test_skipping_comes_to_the_same_as_reading_on(before: int, read_committed: bool) -> None:
    """Also over the beginnings and ends of transactions, and within a batch that is being read."""
    data = b"".join(
        (
            batch(0, b"a", b"b", b"c", producer_id=7, transactional=True),
            batch(3, b"d", b"e", producer_id=8, transactional=True),
            batch(5, *b"f g h i j k l m".split()),
            marker(13, 7, ABORT),
            batch(14, b"n", b"o", producer_id=7, transactional=True),
            marker(16, 8, COMMIT),
            marker(17, 7, COMMIT),
            batch(18, b"p"),
        )
    )
    options = ReaderOptions(read_committed=read_committed)

    def fetch() -> CompletedFetch:
        return CompletedFetch(PARTITION, 0, data, [aborted(7, 0)])

    everything = offsets_and_values(read_all(fetch(), options))
    assert len(everything) == (13 if read_committed else 16)
    for offset in range(20):
        fetched = fetch()
        found = offsets_and_values(fetched.read(before, options)) if before else []
        if offset < fetched.position:
            continue
        fetched.skip_to(offset)
        assert fetched.position == offset
        found += offsets_and_values(read_all(fetched, options))
        assert found == everything[:before] + [each for each in everything[before:] if each[0] >= offset]
        assert (fetched.position, fetched.is_exhausted) == (19, True)


def test_a_position_skips_as_far_as_what_is_buffered_goes() -> None:
    changes = PositionChanges()
    position = PartitionPosition(PARTITION, changes)
    assert position.skip_to(7) is None
    position.seek(0)
    assert position.skip_to(7) == 0
    for first in (0, 3, 6):
        position.buffer(CompletedFetch(PARTITION, first, batch(first, b"a", b"b", b"c")))
    generation = position.generation
    assert position.skip_to(0) == 0
    assert position.skip_to(4) == position.position == 4
    assert position.skip_to(2) == 4, "never back"
    fetched = position.buffered[0]
    assert [record.offset for record in fetched.read(10, ReaderOptions())] == [4, 5]
    position.read_from(fetched)
    assert (len(position.buffered), changes.buffered_bytes) == (1, position.buffered[0].size_bytes)
    assert position.skip_to(100) == position.fetch_offset == 9
    assert (len(position.buffered), changes.buffered_bytes, position.generation) == (0, 0, generation)


def test_skipping_ends_where_batches_do_not_ascend() -> None:
    position = PartitionPosition(PARTITION, PositionChanges())
    position.seek(0)
    position.buffer(CompletedFetch(PARTITION, 0, batch(9, b"a", b"b", b"c") + batch(1, b"d", b"e", b"f")))
    assert position.skip_to(8) == position.position


def test_a_fault_is_not_skipped() -> None:
    position = PartitionPosition(PARTITION, PositionChanges())
    position.seek(0)
    position.buffer(CompletedFetch(PARTITION, 0, batch(0, b"a", b"b") + b"\x00" * 16 + b"\xff" * 50))
    assert position.buffered[0].error is not None
    assert position.skip_to(1) == 0
    position.drop_buffer()
    assert position.skip_to(1) == 0


def test_two_aborted_transactions_of_one_producer_are_both_left_out() -> None:
    data = b"".join(
        (
            batch(0, b"x", producer_id=7, transactional=True),
            marker(1, 7, ABORT),
            batch(2, b"good", producer_id=7, transactional=True),
            marker(3, 7, COMMIT),
            batch(4, b"y", producer_id=7, transactional=True),
            marker(5, 7, ABORT),
        )
    )
    fetched = CompletedFetch(PARTITION, 0, data, [aborted(7, 4), aborted(7, 0)])
    assert [r.value for r in read_all(fetched, ReaderOptions(read_committed=True))] == [b"good"]
    assert fetched.position == 6


def test_deserialisers_see_topic_headers_and_bytes() -> None:
    options = ReaderOptions(
        key=lambda topic, headers, data: (topic, data), value=lambda topic, headers, data: data.decode() + "!"
    )
    (record,) = read_all(CompletedFetch(PARTITION, 0, batch(0, b"a")), options)
    assert (record.key, record.value) == (("t", None), "a!")
    assert (record.serialized_key_size, record.serialized_value_size) == (-1, 1)
    for alone, expected in (
        (ReaderOptions(key=options.key), (("t", None), b"a")),
        (ReaderOptions(value=options.value), (None, "a!")),
    ):
        (record,) = read_all(CompletedFetch(PARTITION, 0, batch(0, b"a")), alone)
        assert (record.key, record.value) == expected


def test_a_deserialisers_error_leaves_the_position_before_its_batch() -> None:
    def fails(topic: str, headers: Any, data: bytes) -> Any:
        raise ValueError(data)

    fetched = CompletedFetch(PARTITION, 0, batch(0, b"a"))
    with pytest.raises(ValueError, match="a"):
        fetched.read(10, ReaderOptions(value=fails))
    assert fetched.position == 0


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_bomb_is_an_error_that_names_partition_and_bound_and_takes_little_memory(codec: int) -> None:
    bomb = fuzz.v2_around(codec, bytes(40_000_000), 1)
    fetched = CompletedFetch(PARTITION, 0, batch(0, b"good") + rebased(bomb, 1))
    options = ReaderOptions(max_batch_bytes=1_000_000)
    assert [record.value for record in fetched.read(10, options)] == [b"good"]
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match=r"t-0: .* above the bound of \d{6,7} bytes"):
            fetched.read(10, options)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert fetched.position == 1  # and seek() leads past it


def bomb(records: int, base: int = 0) -> bytes:
    """So many records of a few bytes, in a few kB."""
    body = bytearray()
    for delta in range(records):
        record = b"\0\0" + encode_varint(delta) + b"\1\1\0"
        body += encode_varint(len(record)) + record
    return rebased(fuzz.v2_around(ZSTD, bytes(body), records), base)


def test_of_a_batch_of_many_records_no_more_are_made_than_are_asked_for() -> None:
    data = bomb(200_000)
    assert len(data) < 300_000
    fetched = CompletedFetch(PARTITION, 0, data)
    tracemalloc.start()
    try:
        for first in (0, 10, 20):
            found = fetched.read(10, ReaderOptions())
            assert [record.offset for record in found] == list(range(first, first + 10))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * fetched.inflated_bytes + 100_000
    assert (fetched.position, fetched.is_exhausted) == (30, False)


@pytest.mark.parametrize("per_batch", [1, 40])
def test_after_many_headers_no_more_records_are_read_at_once(per_batch: int) -> None:
    headers: Headers = [("", b"")] * 16_000  # 32 kB
    builder = RecordBatchBuilder(1 << 21)
    for number in range(per_batch):
        builder.append(1000, None, b"%d" % number, headers)
    data = b"".join(builder.build(base_offset=base) for base in range(0, 40, per_batch))
    fetched = CompletedFetch(PARTITION, 0, data)
    portions = []
    while not fetched.is_exhausted:
        portions.append([record.offset for record in fetched.read(500, ReaderOptions())])
    assert [offset for portion in portions for offset in portion] == list(range(40))
    assert [len(portion) for portion in portions] == [9, 9, 9, 9, 4], "9 of them have more than 256 KiB of headers"


@pytest.mark.parametrize("magic", [0, 1])
def test_of_a_wrapper_of_many_messages_no_more_are_made_than_are_asked_for(magic: int) -> None:
    count = 20_000
    data = encode_message_set([(at, 1000, None, b"", []) for at in range(count)], magic, 1)
    fetched = CompletedFetch(PARTITION, 0, data)
    tracemalloc.start()
    try:
        found = fetched.read(10, ReaderOptions())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * fetched.inflated_bytes + 100_000
    assert fetched.inflated_bytes == count * (26, 34)[magic]
    while not fetched.is_exhausted:
        found += fetched.read(3000, ReaderOptions())
    assert [record.offset for record in found] == list(range(count))


@pytest.mark.parametrize("last", [-(2**62), -1, 0, 4, 20])
@pytest.mark.parametrize("limit", [1, 100])
def test_messages_before_a_last_one_whose_offset_goes_back_get_no_offset_beyond_the_wrappers(
    last: int, limit: int
) -> None:
    """The last message says where the others of a wrapper v1 lie."""
    first, second = (encode_message_set([(at, 1000, None, b"v", [])], 1) for at in (25, 26))
    inner = first + last.to_bytes(8, "big", signed=True) + second[8:]
    fetched = CompletedFetch(PARTITION, 0, fuzz.wrapper(1, 1, inner))
    with pytest.raises(CorruptRecordError, match="t-0: "):
        fetched.read(limit, ReaderOptions())


def test_messages_after_one_with_the_greatest_offset_are_passed_over() -> None:
    """No broker has it. The position then is a number that no offset can be."""
    last, other = (encode_message_set([(at, 1000, None, b"v", [])], 1) for at in (2**63 - 1, 10))
    fetched = CompletedFetch(PARTITION, 0, last + last + other)
    assert [record.offset for record in fetched.read(10, ReaderOptions())] == [2**63 - 1]
    assert fetched.position == 2**63


def test_a_batch_that_was_let_go_of_is_read_on_where_it_was_left() -> None:
    fetched = CompletedFetch(PARTITION, 0, bomb(100) + batch(100, b"after"))
    found = fetched.read(30, ReaderOptions())
    fetched.close()
    assert fetched.inflated_bytes == 0
    found += fetched.read(100, ReaderOptions())
    assert [record.offset for record in found] == list(range(101))
    assert fetched.is_exhausted


def test_what_all_partitions_hold_inflated_is_bounded() -> None:
    """The one that was read from the longest ago lets go first; all of them come to their ends."""
    size = CompletedFetch(PARTITION, 0, bomb(5000))
    size.read(1, ReaderOptions())
    changes = PositionChanges(3 * size.inflated_bytes)
    held: list[tuple[PartitionPosition, CompletedFetch]] = []
    for number in range(6):
        position = PartitionPosition(TopicPartition("t", number), changes)
        position.seek(0)
        fetched = CompletedFetch(position.partition, 0, bomb(5000))
        position.buffer(fetched)
        held.append((position, fetched))
    for position, fetched in held:
        fetched.read(10, ReaderOptions())
        position.read_from(fetched)
    assert [bool(fetched.inflated_bytes) for _, fetched in held] == [False] * 3 + [True] * 3
    held[5][0].drop_buffer()
    held[0][1].read(10, ReaderOptions())
    held[0][0].read_from(held[0][1])
    assert [bool(fetched.inflated_bytes) for _, fetched in held[:5]] == [True, False, False, True, True]
    for position, fetched in held[:5]:
        while not fetched.is_exhausted:
            fetched.read(1000, ReaderOptions())
            position.read_from(fetched)
        assert position.position == 5000


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_records_before_a_corrupt_one_are_handed_out_and_then_it_is_met(limit: int) -> None:
    """Both of them have the offset 1: none is handed out twice."""
    body = b"".join(b"\x0e\0\0" + encode_varint(delta) + b"\1\2v\0" for delta in (0, 1, 1))
    fetched = CompletedFetch(PARTITION, 0, fuzz.v2_around(0, body, 3))
    found: list[ConsumerRecord] = []
    with pytest.raises(CorruptRecordError, match="t-0: a record's offset 1 after 1"):
        while True:
            found += fetched.read(limit, ReaderOptions())
    assert [record.offset for record in found] == [0, 1]
    assert fetched.position == 2


def rebased(data: bytes, offset: int) -> bytes:
    """The batch at another offset, which its CRC does not cover."""
    return offset.to_bytes(8, "big") + data[8:]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_in_a_message_set_is_the_same_error(magic: int, codec: int) -> None:
    fetched = CompletedFetch(PARTITION, 0, fuzz.wrapper(magic, codec, bytes(40_000_000)))
    with pytest.raises(CorruptRecordError, match=r"t-0: .* above the bound of \d{6,7} bytes"):
        fetched.read(10, ReaderOptions(max_batch_bytes=1_000_000))


@pytest.mark.parametrize(("magic", "kind", "time"), [(0, -1, -1), (1, 0, 1000)])
def test_records_of_message_sets_say_what_kind_of_time_they_have(magic: int, kind: int, time: int) -> None:
    data = encode_message_set([(7, 1000, b"k", b"v", []), (8, 1000, None, b"w", [])], magic, 1)
    first, second = read_all(CompletedFetch(PARTITION, 7, data))
    assert first == ConsumerRecord("t", 0, -1, 7, time, kind, b"k", b"v", [], None, 1, 1, -1)
    assert (second.offset, second.timestamp, second.timestamp_type) == (8, time, kind)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_what_a_deserialiser_refuses_comes_after_what_is_good_and_can_be_passed_by(limit: int) -> None:
    def digits(_topic: str, _headers: Any, data: bytes | None) -> Any:
        return int(data or b"")

    options = ReaderOptions(value=digits)
    data = batch(0, b"1", b"2", b"x", b"4") + batch(4, b"5")
    fetched = CompletedFetch(PARTITION, 0, data)
    found: list[ConsumerRecord] = []
    while fetched.position < 2:
        found += fetched.read(limit, options)
    assert offsets_and_values(found) == [(0, 1), (1, 2)]
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal") as raised:
            fetched.read(limit, options)
        if hasattr(raised.value, "add_note"):  # since Python 3.11; the record is named
            assert f"{PARTITION.topic}-{PARTITION.partition} at offset 2" in raised.value.__notes__[0]
    assert fetched.position == 2  # the offset of the bad one: a seek behind it goes on
    assert not fetched.is_exhausted
    assert offsets_and_values(read_all(CompletedFetch(PARTITION, 3, data), options, limit)) == [(3, 4), (4, 5)]


def test_a_deserialiser_gets_the_headers_and_sizes_are_those_of_the_bytes() -> None:
    builder = RecordBatchBuilder(1000)
    builder.append(77, b"key", b"12", [("h", b"x")])
    builder.append(77, None, b"345", None)
    builder.append(77, b"k", None, None)
    seen: list[Any] = []

    def number(topic: str, headers: Any, data: bytes | None) -> Any:
        seen.append((topic, headers, data))
        return None if data is None else len(data)

    records = read_all(CompletedFetch(PARTITION, 0, builder.build()), ReaderOptions(key=number, value=number))
    assert [(r.key, r.value, r.serialized_key_size, r.serialized_value_size) for r in records] == [
        (3, 2, 3, 2),
        (None, 3, -1, 3),
        (1, None, 1, -1),
    ]
    assert seen[:4] == [("t", [("h", b"x")], b"key"), ("t", [("h", b"x")], b"12"), ("t", [], None), ("t", [], b"345")]


def test_headers_that_are_malformed_are_found_though_nobody_looks_at_them() -> None:
    builder = RecordBatchBuilder(1000)
    builder.append(77, None, b"v", [("h", b"xy")])
    bad = bytearray(builder.build())
    bad[-3] = 0x7F  # the length of the header's value
    with pytest.raises(CorruptRecordError, match="header's value"):
        read_all(CompletedFetch(PARTITION, 0, bytes(bad)), ReaderOptions(check_crcs=False))


# -- where an error occurred -------------------------------------------------------------------------------------------


class Narrow(Exception):
    """An error of a user's that takes no attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


def test_an_error_says_where_it_was_once_that_is_known() -> None:
    error = ValueError("x")
    assert not has_error_location(error)
    set_error_location(error, A, 7)
    assert has_error_location(error)
    assert (error.topic_partition, error.offset) == (A, 7)  # type: ignore[attr-defined]


def test_an_error_that_takes_no_attributes_stays_as_it_is() -> None:
    error = Narrow("x")
    set_error_location(error, A, 7)
    assert not has_error_location(error)

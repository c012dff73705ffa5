"""Of what the broker sends, only what was acquired is ours, and acquired offsets without a record are gaps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.share.records import (
    AcquiredRange,
    AcquiredReader,
    AcquiredSlice,
    SharedBatch,
    ShareRecord,
    consecutive_runs,
    mark_acknowledged,
    without_lost,
)
from kafka.errors import CorruptRecordError
from kafka.protocol.constants import AcknowledgeType
from kafka.records import (
    CODECS,
    COMMIT,
    GZIP,
    NONE,
    ControlMarker,
    RecordBatchBuilder,
    control_batch,
    encode_message_set,
)
from kafka.records.header import encode_varint
from test.records import fuzz


def batch(base: int, count: int, compression: int = NONE) -> bytes:
    builder = RecordBatchBuilder(1 << 20, compression)
    for i in range(count):
        builder.append(1_000 + i, None, b"%d" % (base + i), None)
    return builder.build(base_offset=base, leader_epoch=4)


def read_acquired(
    topic: str, partition: int, data: bytes, ranges: list[AcquiredRange], *args: Any, **options: Any
) -> tuple[list[ShareRecord], list[tuple[int, int]]]:
    """All of it."""
    reader = AcquiredReader(topic, partition, data, ranges, *args, **options)
    records, gaps = reader.read(AcquiredSlice())
    assert reader.is_over and not reader.left
    return records, gaps


def read(data: bytes, *ranges: tuple[int, int, int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    records, gaps = read_acquired("t", 0, data, [AcquiredRange(*each) for each in ranges], 30.0, None)
    assert all(record.value == b"%d" % record.offset for record in records)
    return [(record.offset, record.delivery_count) for record in records], gaps


def test_records_outside_the_acquired_ranges_are_left_out() -> None:
    data = batch(10, 5) + batch(15, 5)
    assert read(data, (12, 12, 1), (14, 16, 3)) == ([(12, 1), (14, 3), (15, 3), (16, 3)], [])


def test_the_marker_of_a_transaction_is_a_gap() -> None:
    marker = control_batch(ControlMarker(COMMIT, 0), 5, 7, 0, 12, 0)
    assert read(batch(10, 2) + marker + batch(13, 1), (10, 13, 1)) == ([(10, 1), (11, 1), (13, 1)], [(12, 12)])


def test_offsets_that_compaction_took_are_gaps_wherever_they_are() -> None:
    assert read(batch(10, 1) + batch(13, 1), (8, 15, 2)) == ([(10, 2), (13, 2)], [(8, 9), (11, 12), (14, 15)])
    assert read(b"", (4, 9, 1)) == ([], [(4, 9)])


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_every_acquired_offset_is_a_record_or_in_a_gap_and_no_other_is(present: set[int], acquired: set[int]) -> None:
    data = b"".join(batch(offset, 1) for offset in sorted(present))
    found, gaps = read(data, *[(offset, offset, 1) for offset in sorted(acquired)])
    assert {offset for offset, _ in found} == present & acquired
    assert [offset for first, last in gaps for offset in range(first, last + 1)] == sorted(acquired - present)


def test_damaged_batches_raise() -> None:
    damaged = bytearray(batch(0, 3))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        read(bytes(damaged), (0, 2, 1))


def test_offsets_that_were_acquired_twice_are_refused() -> None:
    """Each batch would be held against all ranges: 1 MB of both took seconds."""
    for ranges in ([(0, 2, 1), (2, 4, 1)], [(0, 9, 1), (3, 4, 1)], [(3, 3, 1), (3, 3, 2)]):
        with pytest.raises(CorruptRecordError, match="t-0: offset . was acquired twice"):
            read(batch(0, 10), *ranges)
    assert read(batch(0, 10), (3, 3, 1), (0, 2, 2)) == ([(0, 2), (1, 2), (2, 2), (3, 1)], [])


def test_ranges_that_end_before_they_begin_are_refused() -> None:
    for reversed_range in ((10, 5, 1), (10, 9, 1)):
        with pytest.raises(CorruptRecordError, match="t-0: offsets 10 to . were acquired"):
            read(batch(0, 20), (2, 3, 1), reversed_range)


def test_batches_with_an_offset_in_common_are_corrupt() -> None:
    for second in (batch(0, 3), batch(2, 1)):
        with pytest.raises(CorruptRecordError, match="t-0: .* does not come after offset 2"):
            read(batch(0, 3) + second, (0, 5, 1))


@pytest.mark.parametrize("deltas", [(0, 0), (0, 0, 0), (1, 0), (0, 1, 1)])
def test_records_with_one_offset_are_corrupt_and_none_is_delivered_twice(deltas: tuple[int, ...]) -> None:
    body = b"".join(b"\x0c\0\0" + encode_varint(delta) + b"\1\1\0" for delta in deltas)
    with pytest.raises(CorruptRecordError, match="a record's offset"):
        read_acquired("t", 0, fuzz.v2_around(0, body, len(deltas)), [AcquiredRange(0, 5, 1)], 30.0, None)


def test_a_large_batch_that_comes_with_many_answers_is_read_on_where_it_was_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[bytes] = []
    decompress = CODECS[GZIP].decompress

    def counted(data: bytes, max_bytes: int) -> bytes:
        opened.append(data)
        return decompress(data, max_bytes)

    monkeypatch.setitem(CODECS, GZIP, CODECS[GZIP]._replace(decompress=counted))
    builder = RecordBatchBuilder(1 << 20, GZIP)
    for at in range(1000):
        builder.append(1_000, None, b"%d" % at)
    data = builder.build()
    open_batch = SharedBatch()
    found = []
    for first in range(0, 1000, 100):
        ranges = [AcquiredRange(first, first + 99, 1)]
        records, gaps = read_acquired("t", 0, data, ranges, 30.0, None, open_batch=open_batch)
        assert gaps == []
        found += records
    assert len(opened) == 1
    again, _ = read_acquired("t", 0, data, [AcquiredRange(5, 6, 2)], 30.0, None, open_batch=open_batch)
    assert len(opened) == 2
    assert [record.offset for record in found] == list(range(1000))
    assert [record.offset for record in again] == [5, 6]


def test_records_behind_the_last_acquired_one_are_not_read() -> None:
    data = bytearray(batch(0, 100))
    data[-2] ^= 0x7F  # in the last record
    records, _ = read_acquired("t", 0, bytes(data), [AcquiredRange(3, 5, 1)], 30.0, None, check_crcs=False)
    assert [record.offset for record in records] == [3, 4, 5]


def test_a_batch_is_read_as_few_records_at_a_time_as_are_requested() -> None:
    data = batch(10, 3) + batch(15, 4) + batch(30, 1)
    reader = AcquiredReader("t", 0, data, [AcquiredRange(8, 16, 1), AcquiredRange(18, 40, 2)], 30.0, None)
    found = []
    while not reader.is_over:
        records, gaps = reader.read(AcquiredSlice(2))
        found.append(([record.offset for record in records], gaps, reader.left))
    assert found == [
        ([10, 11], [(8, 9)], [(12, 16), (18, 40)]),
        ([12, 15], [(13, 14)], [(16, 16), (18, 40)]),
        ([16], [], [(18, 40)]),  # 17 was looked at, and is not ours
        ([18, 30], [(19, 29)], [(31, 40)]),
        ([], [(31, 40)], []),
    ]


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(1, 9))
def test_in_slices_the_same_is_found_as_at_once(
    present: set[int], splits: set[int], acquired: set[int], size: int
) -> None:
    """Batches with gaps in them, as compaction leaves them, cut at ``splits``; ranges of one offset and of several."""
    data, part = b"", []
    for offset in sorted(present):
        if part and offset in splits:
            data += compacted(part)
            part = []
        part.append(offset)
    data += compacted(part) if part else b""
    ranges: list[AcquiredRange] = []
    for offset in sorted(acquired):
        if ranges and ranges[-1].last == offset - 1 and offset not in splits:
            ranges[-1] = ranges[-1]._replace(last=offset)
        else:
            ranges.append(AcquiredRange(offset, offset, 1))
    reader = AcquiredReader("t", 0, data, ranges, 30.0, None)
    found: set[int] = set()
    gaps: set[int] = set()
    while not reader.is_over:
        records, missing = reader.read(AcquiredSlice(size))
        assert len(records) <= size
        assert found.isdisjoint(record.offset for record in records)
        found.update(record.offset for record in records)
        gaps.update(offset for first, last in missing for offset in range(first, last + 1))
        left = {offset for first, last in reader.left for offset in range(first, last + 1)}
        assert left == acquired - found - gaps
    assert (found, gaps) == (present & acquired, acquired - present)


def compacted(offsets: list[int]) -> bytes:
    """One batch with records at these offsets alone."""
    body = b""
    for offset in offsets:
        value = b"%d" % offset
        record = b"\0\0" + encode_varint(offset - offsets[0]) + b"\1" + encode_varint(len(value)) + value + b"\0"
        body += encode_varint(len(record)) + record
    return fuzz.v2_around(0, body, len(offsets), base_offset=offsets[0], last_delta=offsets[-1] - offsets[0])


def test_what_large_batches_inflate_to_is_counted() -> None:
    builder = RecordBatchBuilder(8 << 20, GZIP)
    builder.append(1_000, None, bytes(5 << 20))
    data = b"".join(builder.build(base_offset=base) for base in range(4))
    reader = AcquiredReader("t", 0, data, [AcquiredRange(0, 3, 1)], 30.0, None)
    assert [record.offset for record in reader.read(AcquiredSlice())[0]] == [0, 1], (
        "after 8 MiB no other batch is opened"
    )
    assert reader.left == [(2, 3)]
    assert [record.offset for record in reader.read(AcquiredSlice())[0]] == [2, 3]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_lies_before_the_acquired_records_is_passed_over_in_slices_as_well(is_compacted: bool) -> None:
    """Two thousand records before them, and a slice of 20 passes over 320."""
    data = compacted(list(range(0, 4000, 2))) if is_compacted else batch(0, 4000)
    reader = AcquiredReader("t", 0, data, [AcquiredRange(3900, 3903, 1)], 30.0, None)
    slices = []
    while not reader.is_over:
        records, gaps = reader.read(AcquiredSlice(20))
        slices.append(([record.offset for record in records], gaps))
    empty = 2000 // 320 if is_compacted else 3900 // 320
    assert slices[:empty] == [([], [])] * empty
    found = [offset for offsets, _ in slices for offset in offsets]
    assert found == ([3900, 3902] if is_compacted else [3900, 3901, 3902, 3903])
    assert [each for _, gaps in slices for each in gaps] == ([(3901, 3901), (3903, 3903)] if is_compacted else [])
    assert len(slices) <= empty + 3


def test_so_many_batches_are_opened_in_one_slice() -> None:
    data = b"".join(batch(base, 1) for base in range(1500))
    reader = AcquiredReader("t", 0, data, [AcquiredRange(0, 1499, 1)], 30.0, None)
    assert [len(reader.read(AcquiredSlice())[0]) for _ in range(2)] == [1024, 476]


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_read_in_slices_as_well(magic: int) -> None:
    """Segments that are older than the cluster's format may still hold them."""
    messages = [(at, 1_000, None, b"%d" % at, []) for at in range(5, 12)]
    data = batch(0, 5) + encode_message_set(messages[:3], magic) + encode_message_set(messages[3:], magic, GZIP)
    reader = AcquiredReader("t", 0, data, [AcquiredRange(0, 12, 1)], 30.0, None)
    found, gaps = [], []
    while not reader.is_over:
        records, missing = reader.read(AcquiredSlice(4))
        found += [record.offset for record in records]
        gaps += missing
    assert (found, gaps) == (list(range(12)), [(12, 12)])


def test_headers_are_counted_without_being_made() -> None:
    builder = RecordBatchBuilder(1 << 20)
    for count in (0, 1, 300):
        builder.append(1_000, None, b"", [("x", b"1")] * count)
    records, _ = read_acquired("t", 0, builder.build(), [AcquiredRange(0, 2, 1)], 30.0, None)
    for _ in range(2):  # before the headers are made, and after
        assert [record.headers_count for record in records] == [0, 1, 300]
        assert [len(record.headers) for record in records] == [0, 1, 300]


def test_a_record_has_the_serialized_sizes() -> None:
    (record,), _ = read_acquired("t", 0, batch(10, 1), [AcquiredRange(10, 10, 3)], 30.0, None)
    assert (record.serialized_key_size, record.serialized_value_size) == (-1, 2)
    assert (record.leader_epoch, record.timestamp, record.delivery_count, record.lock_deadline) == (4, 1000, 3, 30.0)
    assert (record.lost, record.is_settled, record.sizes) == (False, False, None)
    record.key, record.value = b"key", None
    assert (record.serialized_key_size, record.serialized_value_size) == (3, -1)
    record.replace("a key", ["a", "value"])
    assert (record.key, record.value) == ("a key", ["a", "value"])
    assert (record.serialized_key_size, record.serialized_value_size) == (3, -1)


def test_records_are_settled_once_and_distinguished_by_their_owner() -> None:
    first, second, third = (
        read_acquired("t", 0, batch(0, 1), [AcquiredRange(0, 0, 1)], 30.0, owner)[0][0] for owner in ("a", "a", "b")
    )
    assert consecutive_runs([]) == []
    assert consecutive_runs([first, second, third, first]) == [[first, second], [third], [first]]
    assert consecutive_runs([third, third]) == [[third, third]]
    second.lost = True
    assert without_lost([first, second, third]) == [first, third]
    assert mark_acknowledged([first, second]) == [first, second]
    assert mark_acknowledged([first, second, third]) == [third]


def test_damaged_values_raise_unless_nobody_wants_them_checked() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-2] ^= 1
    with pytest.raises(CorruptRecordError):
        read(bytes(damaged), (0, 0, 1))
    (record,), _ = read_acquired("t", 0, bytes(damaged), [AcquiredRange(0, 0, 1)], 30.0, None, check_crcs=False)
    assert record.value != b"0"


def test_the_ways_to_acknowledge_have_the_protocols_numbers() -> None:
    """KIP-932 and KIP-1222; ShareAcknowledgeRequest.json, "AcknowledgeTypes"."""
    assert {each.name: each.value for each in AcknowledgeType} == {
        "GAP": 0, "ACCEPT": 1, "RELEASE": 2, "REJECT": 3, "RENEW": 4,
    }  # fmt: skip

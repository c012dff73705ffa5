"""Of what the broker sends, only what was acquired is ours, and acquired offsets without a record are gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.share.records import (
    AcknowledgeType,
    AcquiredRange,
    OpenBatch,
    read_acquired,
    runs,
    settle,
    without_lost,
)
from kafka.errors import CorruptRecordError
from kafka.records import CODECS, COMMIT, GZIP, ControlMarker, RecordBatchBuilder, control_batch
from kafka.records.varint import encode_varint
from test.records import fuzz


def batch(base: int, count: int) -> bytes:
    builder = RecordBatchBuilder(1 << 20)
    for i in range(count):
        builder.append(1_000 + i, None, b"%d" % (base + i), None)
    return builder.build(base_offset=base, leader_epoch=4)


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
    open_batch = OpenBatch()
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


def test_headers_are_counted_without_being_made() -> None:
    builder = RecordBatchBuilder(1 << 20)
    for count in (0, 1, 300):
        builder.append(1_000, None, b"", [("x", b"1")] * count)
    records, _ = read_acquired("t", 0, builder.build(), [AcquiredRange(0, 2, 1)], 30.0, None)
    for _ in range(2):  # before the headers are made, and after
        assert [record.headers_count for record in records] == [0, 1, 300]
        assert [len(record.headers) for record in records] == [0, 1, 300]


def test_a_record_tells_the_sizes_of_the_bytes_it_came_as() -> None:
    (record,), _ = read_acquired("t", 0, batch(10, 1), [AcquiredRange(10, 10, 3)], 30.0, None)
    assert (record.serialized_key_size, record.serialized_value_size) == (-1, 2)
    assert (record.leader_epoch, record.timestamp, record.delivery_count, record.lock_deadline) == (4, 1000, 3, 30.0)
    assert (record.lost, record.is_settled, record.sizes) == (False, False, None)
    record.key, record.value = b"key", None
    assert (record.serialized_key_size, record.serialized_value_size) == (3, -1)
    record.replace("a key", ["a", "value"])
    assert (record.key, record.value) == ("a key", ["a", "value"])
    assert (record.serialized_key_size, record.serialized_value_size) == (3, -1)


def test_records_are_settled_once_and_told_apart_by_their_owner() -> None:
    first, second, third = (
        read_acquired("t", 0, batch(0, 1), [AcquiredRange(0, 0, 1)], 30.0, owner)[0][0] for owner in ("a", "a", "b")
    )
    assert runs([]) == []
    assert runs([first, second, third, first]) == [[first, second], [third], [first]]
    assert runs([third, third]) == [[third, third]]
    second.lost = True
    assert without_lost([first, second, third]) == [first, third]
    assert settle([first, second]) == [first, second]
    assert settle([first, second, third]) == [third]


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

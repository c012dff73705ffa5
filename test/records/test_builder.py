"""Batches as we write them: what reading gives back, exact sizes, limits, the bytes of other writers."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given

from kafka.errors import IllegalStateError, UnsupportedCodecError
from kafka.records import (
    CODECS,
    COMMIT,
    GZIP,
    HEADER_BYTES,
    LZ4,
    NO_ROOM,
    ControlMarker,
    RecordBatchBuilder,
    control_batch,
    decode_raw,
    iter_batches,
    max_record_bytes,
)
from kafka.records.header import TABLE_SIZE
from test.records.samples import GOLDEN_RECORDS, T0, RawInput, batch_of, builder_of, golden, record_lists


@pytest.mark.parametrize("compression", [0, *sorted(CODECS)])
@given(items=record_lists)
def test_reading_gives_back_what_was_appended(compression: int, items: list[RawInput]) -> None:
    data = batch_of(items, compression, base_offset=77)
    (header,) = iter_batches(data)
    assert header.codec == compression
    assert (header.base_offset, header.next_offset, header.records_count) == (77, 77 + len(items), len(items))
    assert header.max_timestamp == max(item[0] for item in items)
    assert decode_raw(data, header) == [(77 + index, *item) for index, item in enumerate(items)]


@given(record_lists)
def test_the_size_is_exact_at_every_moment(items: list[RawInput]) -> None:
    builder = RecordBatchBuilder(2**31)
    for item in items:
        before = builder.size_bytes
        added = builder.size_of(*item)
        assert builder.has_room(added)
        builder.append(*item)
        assert builder.size_bytes == before + added
        assert HEADER_BYTES + added <= max_record_bytes(*item[1:])
    assert builder.size_bytes == len(builder.build())


@given(record_lists)
def test_a_record_is_taken_exactly_when_it_fits_the_limit(items: list[RawInput]) -> None:
    whole = builder_of(items)
    exact = builder_of(items, limit_bytes=whole.size_bytes)
    assert exact.build() == whole.build()
    tight = builder_of(items[:-1], limit_bytes=whole.size_bytes - 1)
    room = tight.has_room(tight.size_of(*items[-1]))
    assert room is (len(items) == 1)
    assert (tight.append(*items[-1]) != NO_ROOM) is room


def test_a_first_record_is_taken_whatever_its_size() -> None:
    builder = RecordBatchBuilder(100)
    assert builder.has_room(1000)
    assert builder.append(T0, None, bytes(1000)) == 0
    assert builder.append(T0, None, b"") == NO_ROOM
    assert (builder.records_count, builder.size_bytes) == (1, len(builder.build()))


def test_a_record_that_ends_at_the_limit_is_taken_also_when_it_is_much_larger_than_those_before() -> None:
    """The second has 11 bytes beside its value: a length of three bytes, attributes, both deltas, the key's length, a
    length of three bytes, and the count of no headers."""
    for value_bytes, offset in ((10_000 - 61 - 7 - 11, 1), (10_001 - 61 - 7 - 11, NO_ROOM)):
        for key in (None, b""):
            builder = RecordBatchBuilder(10_000)
            assert builder.append(T0, None, b"") == 0
            added = builder.size_of(T0, key, bytes(value_bytes))
            assert added == value_bytes + 11
            assert builder.has_room(added) is (offset == 1)
            assert builder.append(T0, key, bytes(value_bytes)) == offset
            assert builder.size_bytes == (10_000 if offset == 1 else 68)


def test_an_empty_batch_says_minus_one_and_the_size_of_its_header() -> None:
    builder = RecordBatchBuilder(100)
    assert (builder.base_timestamp, builder.max_timestamp, builder.records_count) == (-1, -1, 0)
    assert builder.size_bytes == 61
    assert builder.append(5, None, b"") == 0
    assert builder.append(3, None, b"x" * 100) == -1
    assert (builder.base_timestamp, builder.max_timestamp, builder.records_count) == (5, 5, 1)


def test_a_batch_that_nobody_numbers_has_no_producer_and_no_leader_epoch() -> None:
    (header,) = iter_batches(builder_of([(T0, None, b"one", [])]).build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (-1, -1, -1, -1)
    assert (header.base_offset, header.is_transactional, header.is_control) == (0, False, False)


@pytest.mark.parametrize("compression", [0, GZIP])
@pytest.mark.parametrize("transactional", [False, True])
def test_pieces_are_the_batch(compression: int, transactional: bool) -> None:
    builder = builder_of([*GOLDEN_RECORDS, (T0, None, bytes(40_000), [])], compression)
    pieces = builder.build_pieces(7, 3, 9, transactional)
    assert b"".join(pieces) == builder.build(7, 3, 9, transactional=transactional)
    plain = builder.build_pieces(7, 3, 9)
    assert b"".join(plain) == builder.build(7, 3, 9)


@pytest.mark.parametrize(("size", "pieces"), [(32_768, 1), (32_769, 2)])
def test_a_batch_of_up_to_32_kib_is_one_piece(size: int, pieces: int) -> None:
    """Its one record has 11 bytes beside its value: two lengths of three bytes, and five of one byte."""
    builder = builder_of([(T0, None, bytes(size - 61 - 11), [])])
    assert builder.size_bytes == size
    assert len(builder.build_pieces(-1, -1, -1)) == pieces


def test_a_batch_whose_records_were_released_cannot_be_built_and_takes_no_more() -> None:
    builder = builder_of(GOLDEN_RECORDS)
    size = builder.size_bytes
    builder.release()
    assert builder.append(T0, None, b"") == NO_ROOM
    assert (builder.records_count, builder.size_bytes) == (5, size)
    with pytest.raises(IllegalStateError, match="released"):
        builder.build()


def test_a_batch_that_was_compacted_or_shrunk_has_the_same_bytes() -> None:
    builder = builder_of(GOLDEN_RECORDS[:3])
    builder.compact()
    builder.compact()
    assert builder.append(*GOLDEN_RECORDS[3]) == 3
    builder.shrink()
    assert builder.limit_bytes == builder.size_bytes
    assert builder.append(*GOLDEN_RECORDS[4]) == NO_ROOM
    builder.limit_bytes = 10_000
    assert builder.append(*GOLDEN_RECORDS[4]) == 4
    assert builder.build() == batch_of(GOLDEN_RECORDS)


def test_the_most_that_one_record_can_take_counts_the_longest_deltas() -> None:
    """61 bytes of header, and of the record: its length, attributes, ten bytes of timestamp and five of offset, a null
    key, a null value, no headers."""
    assert max_record_bytes(None, None) == 61 + 1 + 1 + 10 + 5 + 1 + 1 + 1
    assert max_record_bytes(b"k", b"vv", [("h", None)]) == 61 + 1 + 1 + 10 + 5 + 2 + 3 + 1 + 2 + 1


def test_a_refused_record_leaves_no_trace() -> None:
    builder = builder_of([(T0, None, b"one", [])], limit_bytes=100)
    assert builder.append(T0 + 5, None, bytes(100)) == NO_ROOM
    assert builder.append(T0 + 5, b"key", bytes(100), [("h", b"")]) == NO_ROOM
    assert builder.build() == batch_of([(T0, None, b"one", [])])


def test_a_built_batch_takes_nothing_more() -> None:
    builder = builder_of([(T0, None, b"one", [])])
    first = builder.build()
    assert builder.is_built
    assert not builder.has_room(1)
    assert builder.append(T0, None, b"two") == NO_ROOM
    assert builder.append(T0, b"key", b"two") == NO_ROOM
    assert builder.build() == first


def test_a_batch_keeps_its_records_when_the_producer_state_changes() -> None:
    builder = builder_of(GOLDEN_RECORDS, GZIP)
    builder.build(5, 0, 100)
    data = builder.build(5, 1, 0, transactional=True)
    (header,) = iter_batches(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 1, 0, True)
    assert [record[3] for record in decode_raw(data, header)] == [item[2] for item in GOLDEN_RECORDS]


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(IllegalStateError):
        RecordBatchBuilder(100).build()


def test_a_missing_codec_is_an_error_before_any_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match="lz4"):
        RecordBatchBuilder(100, LZ4)


@pytest.mark.parametrize("length", [0, 1, 63, 64, TABLE_SIZE - 7, TABLE_SIZE - 1, TABLE_SIZE, 8191, 8192, 1_100_000])
def test_values_on_both_sides_of_the_tables_end_survive(length: int) -> None:
    items: list[RawInput] = [(T0, None, bytes(length), []), (T0 + length, None, b"\1" * length, [])]
    data = batch_of(items)
    (header,) = iter_batches(data)
    assert [record[:4] for record in decode_raw(data, header)] == [(0, *items[0][:3]), (1, *items[1][:3])]


@pytest.mark.parametrize(
    "item",
    [
        (0, b"k" * TABLE_SIZE, b"v", []),
        (0, b"k", b"v" * TABLE_SIZE, []),
        (0, None, None, [("n" * TABLE_SIZE, b"w")]),
        (0, None, None, [("n", b"w" * TABLE_SIZE)]),
        (0, None, None, [("", None)] * TABLE_SIZE),
        (TABLE_SIZE, b"k", b"v", []),
        (TABLE_SIZE - 1, b"k", b"v", []),
        (TABLE_SIZE, None, b"v", []),
        *((0, b"k", b"v" * length, []) for length in range(TABLE_SIZE - 9, TABLE_SIZE - 5)),
    ],
    ids=lambda item: f"{item[0]} {len(item[1] or '')} {len(item[2] or '')} {len(item[3])}",
)
def test_records_of_any_kind_at_the_tables_end_survive(item: RawInput) -> None:
    items: list[RawInput] = [(T0, b"first", None, []), (T0 + item[0], *item[1:])]
    data = batch_of(items)
    (header,) = iter_batches(data)
    assert decode_raw(data, header) == [(0, *items[0]), (1, *items[1])]


def test_batches_of_more_keyed_records_than_the_tables_hold_survive() -> None:
    items: list[RawInput] = [(T0, b"k", None, [])] * (TABLE_SIZE + 2)
    data = batch_of(items)
    (header,) = iter_batches(data)
    assert [record[0] for record in decode_raw(data, header)] == list(range(TABLE_SIZE + 2))


def test_batches_of_more_records_than_the_tables_hold_survive() -> None:
    items: list[RawInput] = [(T0 + index, None, b"%d" % index, []) for index in range(3 * TABLE_SIZE)]
    data = batch_of(items)
    (header,) = iter_batches(data)
    assert [record[:4] for record in decode_raw(data, header)] == [(i, *item[:3]) for i, item in enumerate(items)]


class NoHeaders(list[tuple[str, bytes | None]]):
    """No headers, but a list that claims to have some, so that the general path is taken."""

    def __bool__(self) -> bool:
        return True


def test_the_fast_path_makes_the_bytes_of_the_general_one() -> None:
    values = [b"", b"a", bytes(63), bytes(5000), b"end"]
    fast = RecordBatchBuilder(2**31)
    general = RecordBatchBuilder(2**31)
    for index, value in enumerate(values):
        fast.append(T0 - index, None, value)
        general.append(T0 - index, None, value, NoHeaders())
    assert fast.build() == general.build()


def test_records_have_the_bytes_that_librdkafka_gives_them() -> None:
    assert builder_of(GOLDEN_RECORDS).build(leader_epoch=0) == golden("librdkafka-plain")


def test_records_have_the_bytes_that_a_java_broker_gives_them() -> None:
    assert builder_of(GOLDEN_RECORDS).build(leader_epoch=0) == golden("broker-plain")


def test_records_have_the_bytes_that_kafka_python_gives_them() -> None:
    assert builder_of(GOLDEN_RECORDS[:4]).build(leader_epoch=0) == golden("kafka-python-plain")


def test_transactional_batches_have_the_bytes_that_librdkafka_gives_them() -> None:
    data = golden("librdkafka-transactions")
    header = next(iter_batches(data))
    ours = builder_of(GOLDEN_RECORDS).build(
        header.producer_id, header.producer_epoch, 0, transactional=True, leader_epoch=0
    )
    assert ours == data[: header.end]


def test_markers_have_the_bytes_that_a_java_broker_gives_them() -> None:
    data = golden("librdkafka-transactions")
    _, header, *_ = iter_batches(data)
    ours = control_batch(
        ControlMarker(COMMIT, 0), header.max_timestamp, header.producer_id, header.producer_epoch, header.base_offset, 0
    )
    assert ours == data[header.start : header.end]

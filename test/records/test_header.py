"""Headers of batches and the walk through a buffer: whole, cut at every byte, changed at every byte."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError
from kafka.records import LOG_APPEND_TIME, BatchHeader, check_crc, iter_batches, parse_header
from kafka.records.builder import size_of_varint
from kafka.records.header import MAX_VARINT_BYTES, MAX_VARLONG_BYTES, TABLE_SIZE, ZIGZAG, decode_varint, encode_varint
from test.records.samples import GOLDEN_RECORDS, T0, batch_of, golden

BATCH = batch_of(GOLDEN_RECORDS, base_offset=10)
NEXT = batch_of(GOLDEN_RECORDS[:2], base_offset=15)


def offsets(data: bytes | bytearray | memoryview, *, check_crcs: bool = True) -> list[tuple[int, int]]:
    return [(header.base_offset, header.last_offset) for header in iter_batches(data, check_crcs=check_crcs)]


def patched(layout: str, at: int, value: int, batch: bytes = BATCH) -> bytes:
    data = bytearray(batch)
    struct.pack_into(layout, data, at, value)
    return bytes(data)


def test_every_field_of_a_real_header_is_read() -> None:
    _, _, header, _ = iter_batches(golden("librdkafka-transactions"))
    assert (header.start, header.end, header.length) == (514, 950, 436)
    assert (header.base_offset, header.last_offset_delta, header.last_offset, header.next_offset) == (6, 4, 10, 11)
    assert (header.leader_epoch, header.magic, header.records_count) == (0, 2, 5)
    assert (header.base_timestamp, header.max_timestamp, header.timestamp_type) == (T0, T0 + 10_000, 0)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (0, 0, 5, 9)
    assert (header.codec, header.compression) == (0, "none")
    assert header.is_transactional and header.has_producer_id and not header.is_control
    assert repr(header) == "<BatchHeader offsets 6-10 magic=2 records=5 codec=none bytes 514-950>"


def test_a_header_that_a_real_broker_stamped_says_so() -> None:
    (header,) = iter_batches(golden("broker-log-append-time"))
    assert header.timestamp_type == LOG_APPEND_TIME
    assert header.base_timestamp == T0
    assert header.max_timestamp > T0 + 10_000


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_are_found_one_after_another_in_any_buffer(kind: type) -> None:
    assert offsets(kind(BATCH + NEXT)) == [(10, 14), (15, 16)]


def test_a_partial_last_batch_ends_the_walk_at_every_length() -> None:
    data = BATCH + NEXT
    for end in range(len(data)):
        found = list(iter_batches(data[:end]))
        assert [header.end for header in found] == ([len(BATCH)] if end >= len(BATCH) else [])


def test_the_walk_can_begin_anywhere_and_stops_after_the_last_byte() -> None:
    data = b"before" + BATCH + NEXT
    assert [(h.start, h.end) for h in iter_batches(data, 6)] == [(6, 6 + len(BATCH)), (6 + len(BATCH), len(data))]
    assert list(iter_batches(data, len(data))) == []
    assert parse_header(b"") is None


def test_a_wrong_crc_is_corrupt_unless_nobody_asks() -> None:
    damaged = BATCH[:-1] + b"\x7f"
    assert offsets(damaged, check_crcs=False) == [(10, 14)]
    with pytest.raises(CorruptRecordError, match="offset 10"):
        offsets(damaged)


def test_good_batches_before_a_corrupt_one_are_handed_out_first() -> None:
    walk = iter_batches(BATCH + NEXT[:-1] + b"\x7f")
    assert next(walk).base_offset == 10
    with pytest.raises(CorruptRecordError, match="offset 15"):
        next(walk)


def test_any_changed_byte_is_corrupt_but_for_the_fields_that_the_crc_leaves_out() -> None:
    for at in range(len(BATCH)):
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(BATCH)
            damaged[at] ^= flip
            if at < 8 and damaged[0] < 0x80 or 12 <= at < 16:  # base_offset, leader_epoch
                assert len(offsets(damaged)) == 1
            else:
                try:
                    assert offsets(damaged) == [], f"byte {at}"  # a larger size: like a partial batch
                    assert 8 <= at < 12
                except CorruptRecordError:
                    pass


@pytest.mark.parametrize(
    ("layout", "at", "value"),
    [
        (">q", 0, -1), (">q", 0, 2**63 - 1), (">i", 8, -1), (">i", 8, 0), (">i", 8, 48), (">i", 8, -(2**31)),
        (">b", 16, 3), (">b", 16, -1), (">i", 23, -1), (">i", 23, 3), (">i", 57, -1), (">i", 57, 6),
    ],
)  # fmt: skip
def test_impossible_fields_are_corrupt_before_any_crc(layout: str, at: int, value: int) -> None:
    with pytest.raises(CorruptRecordError):
        parse_header(patched(layout, at, value))


def test_the_highest_offset_is_the_one_before_the_last_int64_so_that_one_can_follow() -> None:
    header = parse_header(patched(">q", 0, 2**63 - 6))  # and 4 more
    assert header is not None
    assert (header.last_offset, header.next_offset) == (2**63 - 2, 2**63 - 1)
    with pytest.raises(CorruptRecordError):
        parse_header(patched(">q", 0, 2**63 - 5))


@pytest.mark.parametrize(
    ("bits", "codec", "timestamp_type", "is_transactional", "is_control"),
    [
        (0x00, 0, 0, False, False), (0x01, 1, 0, False, False), (0x02, 2, 0, False, False), (0x04, 4, 0, False, False),
        (0x08, 0, 1, False, False), (0x10, 0, 0, True, False), (0x20, 0, 0, False, True), (0x40, 0, 0, False, False),
        (0x07, 7, 0, False, False), (0x3B, 3, 1, True, True), (-0x40, 0, 0, False, False),
    ],
)  # fmt: skip
def test_each_bit_of_the_attributes_has_its_meaning(
    bits: int, codec: int, timestamp_type: int, is_transactional: bool, is_control: bool
) -> None:
    """The protocol guide's "Record Batch"."""
    header = parse_header(patched(">h", 21, bits))
    assert header is not None
    assert (header.attributes, header.codec, header.timestamp_type) == (bits, codec, timestamp_type)
    assert (header.is_transactional, header.is_control) == (is_transactional, is_control)


def test_an_unknown_magic_is_corrupt_as_soon_as_it_is_there() -> None:
    assert parse_header(bytes(16)) is None
    with pytest.raises(CorruptRecordError, match="unknown magic 3"):
        parse_header(bytes(16) + b"\3")


def test_a_header_alone_is_a_whole_batch() -> None:
    header = parse_header(patched(">i", 57, 0, patched(">i", 8, 49)[:61]))
    assert header is not None
    assert (header.length, header.records_count) == (61, 0)


def test_zeros_are_corrupt_and_no_endless_walk() -> None:
    with pytest.raises(CorruptRecordError):
        list(iter_batches(bytes(1000)))


def test_a_batch_may_have_gaps_and_even_no_records_after_compaction() -> None:
    header = parse_header(patched(">i", 57, 0))
    assert header is not None
    assert (header.records_count, header.next_offset) == (0, 15)


@pytest.mark.parametrize(("magic", "size"), [(0, 26), (1, 34)])
def test_message_sets_are_reported_with_their_magic_and_place(magic: int, size: int) -> None:
    message = struct.pack(">qiIbb", 7, size - 12, 0xABCD, magic, 1).ljust(size, b"\xff")
    found = list(iter_batches(message + BATCH + message[:20]))
    assert [(h.magic, h.base_offset, h.start, h.end) for h in found] == [
        (magic, 7, 0, size),
        (2, 10, size, size + len(BATCH)),
    ]
    assert (found[0].crc, found[0].compression) == (0xABCD, "gzip")
    first = parse_header(patched(">q", 0, 0, message))
    assert first is not None
    assert (first.base_offset, first.next_offset) == (0, 1)
    assert (found[0].leader_epoch, found[0].last_offset_delta, found[0].records_count) == (-1, 0, 1)
    assert (found[0].base_timestamp, found[0].max_timestamp) == (-1, -1)
    assert (found[0].producer_id, found[0].producer_epoch, found[0].base_sequence) == (-1, -1, -1)
    with pytest.raises(CorruptRecordError):
        list(iter_batches(patched(">i", 8, size - 13, message)))
    with pytest.raises(CorruptRecordError):
        list(iter_batches(patched(">q", 0, -1, message)))


def test_sequence_numbers_wrap_to_zero() -> None:
    header = parse_header(patched(">i", 53, 2**31 - 2))
    assert header is not None
    assert header.last_sequence == 2
    first = parse_header(patched(">i", 53, 0))
    assert first is not None
    assert first.last_sequence == 4
    without = parse_header(BATCH)
    assert without is not None
    assert (without.last_sequence, without.has_producer_id) == (-1, False)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_headers_or_are_corrupt(data: bytes, check_crcs: bool) -> None:
    try:
        end = 0
        for header in iter_batches(data, check_crcs=check_crcs):
            assert header.start == end < header.end <= len(data)
            end = header.end
    except CorruptRecordError:
        pass


@given(st.integers(0, len(BATCH) - 1), st.integers(0, 255), st.integers(0, len(BATCH)))
def test_damaged_and_cut_batches_give_headers_or_are_corrupt(at: int, byte: int, end: int) -> None:
    damaged = bytearray(BATCH)
    damaged[at] = byte
    with contextlib.suppress(CorruptRecordError):
        assert len(list(iter_batches(damaged[:end]))) <= 1


def test_check_crc_takes_a_header_from_anywhere_in_the_buffer() -> None:
    header: BatchHeader
    _, header = iter_batches(BATCH + NEXT, check_crcs=False)
    check_crc(BATCH + NEXT, header)
    with pytest.raises(CorruptRecordError, match=f"byte {len(BATCH)}"):
        check_crc(BATCH + NEXT[:-1] + b"\x7f", header)


# -- varints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
        (8191, "fe7f"), (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_values_have_the_bytes_of_the_protocol_guide(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert size_of_varint(value) == len(encoded) // 2


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_decoding_takes_exactly_what_encoding_made(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert size_of_varint(value) == len(encoded)
    assert decode_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


def test_the_table_holds_what_the_function_gives() -> None:
    assert len(ZIGZAG) == TABLE_SIZE
    assert all(ZIGZAG[value] == encode_varint(value) for value in range(TABLE_SIZE))


@pytest.mark.parametrize("encoded", ["ffffffffff00", "ffffffff1f", "ffffffff7f"])
def test_a_varint_beyond_32_bits_is_corrupt(encoded: str) -> None:
    with pytest.raises(CorruptRecordError):
        decode_varint(bytes.fromhex(encoded), 0, MAX_VARINT_BYTES)


@pytest.mark.parametrize("encoded", ["ff" * 10 + "00", "ff" * 9 + "02", "80" * 100])
def test_a_varint_beyond_64_bits_is_corrupt(encoded: str) -> None:
    with pytest.raises(CorruptRecordError):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("most", "longest"), [(MAX_VARINT_BYTES, "80" * 4 + "00"), (MAX_VARLONG_BYTES, "80" * 9 + "00")]
)
def test_a_varint_has_five_bytes_at_most_and_a_long_one_ten_whatever_its_value(most: int, longest: str) -> None:
    """``ByteUtils.readVarint`` and ``readVarlong`` in Java."""
    assert decode_varint(bytes.fromhex(longest), 0, most) == (0, len(longest) // 2)
    with pytest.raises(CorruptRecordError, match=f"more than {len(longest) // 2} bytes"):
        decode_varint(bytes.fromhex("80" + longest), 0, most)


@pytest.mark.parametrize("encoded", ["", "80", "ffff"])
def test_a_cut_varint_is_an_index_error_for_the_caller_to_turn(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_varint(bytes.fromhex(encoded), 0)

"""Records of batches: real ones, malformed ones, and any bytes at all."""

from __future__ import annotations

import contextlib
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import GZIP, ZSTD, RawRecord, decode_raw, decode_records, iter_batches, parse_header
from kafka.records.header import ATTRIBUTES_AT, HEADER_BYTES
from kafka.records.message_set import decode_message
from kafka.records.varint import encode_varint
from test.records.samples import GOLDEN_RECORDS, T0, RawInput, batch_of, golden, record_lists


def read(data: Any, **options: int) -> list[RawRecord]:
    """All records without a look at the CRC: corruption reaches the reader."""
    return [r for header in iter_batches(data, check_crcs=False) for r in decode_raw(data, header, **options)]


def batch_with_body(body: bytes, count: int = 1, attributes: int = 0, base_timestamp: int = T0) -> bytes:
    batch = bytearray(batch_of([(base_timestamp, None, b"", [])])[:HEADER_BYTES]) + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes)
    struct.pack_into(">i", batch, 23, max(0, count - 1))
    struct.pack_into(">i", batch, 57, count)
    return bytes(batch)


def record_bytes(*pieces: bytes | int) -> bytes:
    body = b"".join(encode_varint(piece) if isinstance(piece, int) else piece for piece in pieces)
    return encode_varint(len(body)) + body


GOOD = record_bytes(b"\0", 0, 0, -1, 1, b"v", 0)


@pytest.mark.parametrize("name", ["librdkafka-plain", "librdkafka-gzip", "broker-gzip", "broker-plain"])
def test_records_of_a_real_log_are_read(name: str) -> None:
    data = golden(name)
    (header,) = iter_batches(data)
    assert decode_raw(data, header) == [(offset, *record) for offset, record in enumerate(GOLDEN_RECORDS)]


def test_records_of_a_broker_that_stamps_them_have_its_time() -> None:
    data = golden("broker-log-append-time")
    (header,) = iter_batches(data)
    found = decode_records(data, header)
    assert {(record.timestamp, record.timestamp_type) for record in found} == {(header.max_timestamp, 1)}
    assert [record.value for record in found] == [record[2] for record in GOLDEN_RECORDS]


def test_a_record_object_has_all_that_the_batch_says() -> None:
    data = batch_of(GOLDEN_RECORDS, base_offset=40)
    (header,) = iter_batches(data)
    record = decode_records(data, header)[4]
    assert (record.offset, record.timestamp, record.timestamp_type) == (44, T0 + 10_000, 0)
    assert (record.key, record.value) == (None, b"x" * 300)
    assert record.headers == [("a", b"1"), ("b", None), ("é", b"")]
    assert repr(decode_records(data, header)[0]) == f"<Record 40 at {T0} key=b'k0' value=b'v0' []>"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("compression", [0, GZIP])
def test_keys_and_values_are_bytes_of_their_own_from_any_buffer(kind: Any, compression: int) -> None:
    batch = batch_of(GOLDEN_RECORDS, compression)
    data = kind(b"before" + batch + batch)
    second = list(iter_batches(data, 6))[1]
    found = decode_raw(data, second)
    assert [record[1:] for record in found] == GOLDEN_RECORDS
    assert all(type(item) is bytes for record in found for item in record[2:4] if item is not None)


@given(record_lists, st.data())
def test_damaged_records_are_read_or_are_corrupt(items: list[RawInput], data: st.DataObject) -> None:
    batch = bytearray(batch_of(items, data.draw(st.sampled_from([0, GZIP]))))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordError):
        read(bytes(batch), max_decompressed_bytes=1_000_000)


@given(st.binary(max_size=100), st.integers(0, 5), st.sampled_from([0, GZIP, 8, 0x30]), st.integers(-1, 2**63 - 1))
def test_any_bytes_after_a_header_are_read_or_are_corrupt(body: bytes, count: int, bits: int, timestamp: int) -> None:
    batch = batch_with_body(body, count, bits, timestamp)
    try:
        for _, at, key, value, _ in read(batch):
            assert -(2**63) <= at < 2**63
            assert len(key or b"") + len(value or b"") <= len(body)
    except CorruptRecordError:
        pass


def test_records_cut_at_any_byte_are_corrupt() -> None:
    batch = batch_of(GOLDEN_RECORDS)
    for end in range(HEADER_BYTES, len(batch)):
        cut = bytearray(batch[:end])
        struct.pack_into(">i", cut, 8, end - 12)
        with pytest.raises(CorruptRecordError):
            read(bytes(cut))
        with pytest.raises(CorruptRecordError):
            read(bytes(cut) + batch)  # what follows in the buffer is not taken for the rest


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x01" + GOOD[1:], id="negative length"),
        pytest.param(b"\x81\x01" + GOOD[1:], id="negative length of two bytes"),
        pytest.param(b"\x80", id="cut length"),
        pytest.param(b"\xfe\xff\xff\xff\x0f" + GOOD[1:], id="length of 2 GiB"),
        pytest.param(b"\xff\xff\xff\xff\xff\x0f" + GOOD[1:], id="length that does not end"),
        pytest.param(GOOD + b"\0", id="a byte after the last record"),
        pytest.param(GOOD + GOOD, id="a record too many"),
        pytest.param(record_bytes(b"\0", 0, -1, -1, 1, b"v", 0), id="offset before the batch"),
        pytest.param(record_bytes(b"\0", 2**63 - 1, 0, -1, 1, b"v", 0), id="timestamp beyond 64 bits"),
        pytest.param(record_bytes(b"\0", 0, 0, -2, 1, b"v", 0), id="key length -2"),
        pytest.param(record_bytes(b"\0", 0, 0, -100, 1, b"v", 0), id="key length -100"),
        pytest.param(record_bytes(b"\0", 0, 0, 100, b"k", 1, b"v", 0), id="key beyond the record"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, -2, b"v", 0), id="value length -2"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, -100, b"v", 0), id="value length -100"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 2**31 - 1, b"v", 0), id="value of 2 GiB"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", -1), id="-1 headers"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 2**31 - 1), id="too many headers"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, -1, -1), id="null header name"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 9, b"n", -1), id="header name beyond the record"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"n", -2), id="header value length -2"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"n", 9, b"v"), id="header value beyond the record"),
        pytest.param(record_bytes(b"\0", 0, 0, -1, 1, b"v", 0, 0), id="a byte after the headers"),
    ],
)
def test_malformed_records_are_corrupt(body: bytes) -> None:
    assert len(read(batch_with_body(GOOD))) == 1
    with pytest.raises(CorruptRecordError):
        read(batch_with_body(body))
    with pytest.raises(CorruptRecordError):
        read(batch_with_body(body) + batch_with_body(GOOD))


def test_varints_longer_than_needed_are_read() -> None:
    batch = batch_with_body(record_bytes(b"\0", b"\x80\x00", b"\x80\x80\x00", b"\x81\x00", b"\x82\x80\x00", b"v", 0))
    assert read(batch) == [(0, T0, None, b"v", [])]


def test_a_base_timestamp_that_leaves_no_room_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError):
        read(batch_with_body(GOOD, base_timestamp=2**63 - 1))


def test_a_header_name_that_is_no_utf_8_does_not_hide_its_record() -> None:
    batch = batch_with_body(record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 2, b"\xffn", 1, b"w"))
    assert read(batch) == [(0, T0, None, b"v", [("\ufffdn", b"w")])]


def test_a_bomb_in_a_batch_is_corrupt_within_the_callers_bound() -> None:
    batch = batch_of([(T0, None, bytes(1_000_000), [])], GZIP)
    assert len(read(batch)) == 1
    with pytest.raises(CorruptRecordError, match="bound of 100000 bytes"):
        read(batch, max_decompressed_bytes=100_000)


def test_a_codec_that_is_not_available_is_not_taken_for_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match="zstd"):
        read(batch_with_body(GOOD, attributes=ZSTD))
    with pytest.raises(CorruptRecordError):
        read(batch_with_body(GOOD, attributes=5))


def test_message_sets_are_read_by_their_own_reader() -> None:
    message = golden("../message_sets/v1-kafka-python-gzip")
    header = parse_header(message)
    assert header is not None
    assert decode_raw(message, header) == decode_message(message, header, 10_000)


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    assert read(batch_with_body(b"", count=0)) == []

"""Records of batches: real ones, malformed ones, and any bytes at all."""

from __future__ import annotations

import contextlib
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.core.consume.partition import CompletedFetch, ConsumerRecordSink, ReaderOptions
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import GZIP, ZSTD, RawRecord, decode_raw, decode_records, iter_batches, parse_header
from kafka.records.header import ATTRIBUTES_AT, HEADER_BYTES, encode_varint
from kafka.records.message_set import decode_message, encode_message_set
from kafka.records.reader import RecordReader, first_header, headers_of
from kafka.structs import TopicPartition
from test.records.samples import GOLDEN_RECORDS, T0, RawInput, batch_of, golden, record_lists


def read(data: Any, **options: int) -> list[RawRecord]:
    """All records without a look at the CRC: corruption reaches the reader."""
    return [r for header in iter_batches(data, check_crcs=False) for r in decode_raw(data, header, **options)]


def batch_with_body(
    body: bytes,
    count: int = 1,
    attributes: int = 0,
    base_timestamp: int = T0,
    base_offset: int = 0,
    last_delta: int | None = None,
) -> bytes:
    batch = bytearray(batch_of([(base_timestamp, None, b"", [])])[:HEADER_BYTES]) + body
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, ATTRIBUTES_AT, attributes)
    struct.pack_into(">i", batch, 23, max(0, count - 1) if last_delta is None else last_delta)
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
    no_headers = record_bytes(b"\0", b"\x80\x80\x00", 0, b"\x80\x00", b"\x80\x00", b"\x80\x00")
    assert read(batch_with_body(no_headers)) == [(0, T0, b"", b"", [])]
    header = record_bytes(b"\0", 0, 0, b"\x81\x00", b"\x81\x80\x00", b"\x82\x00", b"\x80\x00", b"\x81\x00")
    assert read(batch_with_body(header)) == [(0, T0, None, None, [("", None)])]


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 127, 128, 8191, 8192, 8193, 8256, 16_384, 100_000])
def test_lengths_and_deltas_on_both_sides_of_one_and_of_two_bytes_are_read(n: int) -> None:
    data = bytes(n)
    body = record_bytes(b"\0", n, n, n, data, n, data, 2, n, data, n, data, 1, b"n", 0)
    assert read(batch_with_body(body, last_delta=n)) == [(n, T0 + n, data, data, [("\0" * n, data), ("n", b"")])]


@pytest.mark.parametrize("value_bytes", [57, 58, 59, 8184, 8185, 8186])
def test_a_record_of_64_or_8192_bytes_is_read(value_bytes: int) -> None:
    """The first lengths of two and of three bytes: 6 or 7 bytes are beside the value."""
    body = [record_bytes(b"\0", 0, at, -1, value_bytes, bytes(value_bytes), 0) for at in (0, 1)]
    expected = [(at, T0, None, bytes(value_bytes), []) for at in (0, 1)]
    assert read(batch_with_body(b"".join(body), 2)) == expected


@pytest.mark.parametrize("delta", [-1, -2, -63, -64, -65, -8191, -8192, -8193, -T0, -T0 - 1, -(2**62)])
def test_timestamps_before_that_of_the_batch_are_read(delta: int) -> None:
    assert read(batch_with_body(record_bytes(b"\0", delta, 0, -1, -1, 0))) == [(0, T0 + delta, None, None, [])]


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("base", "most_after", "most_before"),
    [(T0, MOST - T0, -(2**63)), (MOST - 8192, 8192, -(2**63)), (0, MOST, -(2**63)), (-1, MOST, -(2**63) + 1),
     (-2, MOST, -(2**63) + 2)],
)  # fmt: skip
def test_a_timestamp_may_be_any_int64_and_beyond_is_corrupt(base: int, most_after: int, most_before: int) -> None:
    def record(delta: int) -> bytes:
        return batch_with_body(record_bytes(b"\0", delta, 0, -1, -1, 0), base_timestamp=base)

    for delta in (most_after, most_before):
        assert read(record(delta)) == [(0, base + delta, None, None, [])]
    for delta in (most_after + 1, most_before - 1):
        if -(2**63) <= delta < 2**63:
            with pytest.raises(CorruptRecordError, match=f"{delta} ms after {base} ms"):
                read(record(delta))


def test_near_the_end_of_int64_there_is_room_for_a_delta_of_two_bytes_or_the_batch_is_corrupt() -> None:
    assert read(batch_with_body(GOOD, base_timestamp=MOST - 8192)) == [(0, MOST - 8192, None, b"v", [])]
    assert read(batch_with_body(GOOD, base_offset=MOST - 8192)) == [(MOST - 8192, T0, None, b"v", [])]
    last = record_bytes(b"\0", 0, 8191, -1, -1, 0)
    assert read(batch_with_body(last, base_offset=MOST - 8192, last_delta=8191)) == [(MOST - 1, T0, None, None, [])]
    beyond = record_bytes(b"\0", 0, 8193, -1, -1, 0)
    for batch, why in (
        (batch_with_body(GOOD, base_timestamp=MOST - 8191), "the base timestamp"),
        (batch_with_body(GOOD, base_offset=MOST - 8191), "no room for offsets"),
        (batch_with_body(beyond, base_offset=MOST - 8192), "lies 8193 after"),
    ):
        with pytest.raises(CorruptRecordError, match=why):
            read(batch)


@pytest.mark.parametrize("what", ["batch", "gzip batch", "v0", "v1"])
@pytest.mark.parametrize("first", [0, 10, 11, 13, 14, 15])
def test_records_before_the_first_requested_offset_are_passed_over(what: str, first: int) -> None:
    items: list[RawInput] = [(T0, None, b"%d" % index, [("h", b"x")] * (index % 2)) for index in range(5)]
    if "batch" in what:
        data = batch_of(items, GZIP if "gzip" in what else 0, base_offset=10)
    else:
        records: list[RawRecord] = [(10 + index, *item[:3], []) for index, item in enumerate(items)]
        data = encode_message_set(records, int(what[1]), GZIP)
    fetched = CompletedFetch(TopicPartition("t", 0), first, data)
    found = fetched.read(100, ReaderOptions())
    assert [(record.offset, record.value) for record in found] == [
        (offset, b"%d" % (offset - 10)) for offset in range(max(first, 10), 15)
    ]


def test_a_record_of_no_bytes_is_corrupt_also_before_the_first_requested_offset() -> None:
    """Java's consumer, too, reads the records that it passes over."""
    fetched = CompletedFetch(TopicPartition("t", 0), 3, batch_with_body(b"\0" + GOOD * 2, 2))
    with pytest.raises(CorruptRecordError, match="a record of 0 bytes"):
        fetched.read(100, ReaderOptions(check_crcs=False))


@pytest.mark.parametrize("headers", [b"\xff", b"\x02\x02x", b"\x02\x02x\x01\x00", b""])
def test_headers_that_were_not_checked_are_found_malformed_by_who_looks(headers: bytes) -> None:
    batch = batch_with_body(record_bytes(b"\0", 0, 0, -1, -1, headers or b"\1"))
    (header,) = iter_batches(batch, check_crcs=False)
    found = ConsumerRecordSink("t", 0, -1, 0)
    RecordReader(batch, header, checks_headers=False).read(found)
    with pytest.raises(CorruptRecordError):
        _ = found.found[0].headers
    with pytest.raises(CorruptRecordError):
        RecordReader(batch, header).read(found)


def test_a_record_that_ends_before_its_headers_is_corrupt_whether_these_are_checked_or_not() -> None:
    batch = batch_with_body(record_bytes(b"\0", 0, 0, -1, -1) + GOOD, 2)
    (header,) = iter_batches(batch, check_crcs=False)
    for checks_headers in (True, False):
        with pytest.raises(CorruptRecordError):
            RecordReader(batch, header, checks_headers=checks_headers).read(ConsumerRecordSink("t", 0, -1, 0))


def test_headers_that_were_read_before_are_given_back() -> None:
    headers = headers_of(b"\2\2n\2w")
    assert headers == [("n", b"w")]
    assert headers_of(headers) is headers
    assert headers_of(None) == []


def test_the_first_header_is_read_without_the_others() -> None:
    two = b"\4\2n\2w\2m\1"
    assert headers_of(two) == [("n", b"w"), ("m", None)]
    assert first_header(two) == first_header(headers_of(two)) == ("n", b"w")
    assert first_header(b"\4\2n\2w\xff") == ("n", b"w")
    assert first_header(None) is first_header(b"\0") is first_header([]) is None
    for end in range(5):
        with pytest.raises(CorruptRecordError):
            first_header(two[:end])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\x81\x01" + GOOD[1:], "a record of -65 bytes"),
        (b"\0" + GOOD[1:], "a record of 0 bytes"),
        (record_bytes(b"\0", 0, -99, -1, 1, b"v", 0), "lies 99 before its batch"),
        (record_bytes(b"\0", 0, -100, -1, 1, b"v", 0), "lies 100 before its batch"),
        (record_bytes(b"\0", 0, 0, -99, 1, b"v", 0), "a key of -99 bytes"),
        (record_bytes(b"\0", 0, 0, -1, -99, b"v", 0), "a value of -99 bytes"),
        (record_bytes(b"\0", 0, 0, -1, -100, b"v", 0), "a value of -100 bytes"),
        (b"\xfe\xff\xff\xff\x0f" + GOOD[1:], "a record of 2147483647 bytes at byte 66, where 7 are left"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, -1, -1), "a header's name of -1 bytes"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 9, b"n", -1), "a header's name of 9 bytes"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", 1, 1, b"n", 9, b"v"), "a header's value of 9 bytes"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", -1), "-1 record headers"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", 4, 0, 0, 0), "4 record headers"),
        (record_bytes(b"\0", 0, 0, 9, b"k", 1, b"v", 0), "a key of 9 bytes"),
        (record_bytes(b"\0", 0, 0, -1, 9, b"v", 0), "a value of 9 bytes"),
        (record_bytes(b"\0", 0, 0, -1, 1, b"v", 0, 0), "that should end"),
        (GOOD + b"\0\0", "2 bytes after the last of 1 records"),
    ],
)
def test_malformed_records_say_what_is_wrong(body: bytes, why: str) -> None:
    with pytest.raises(CorruptRecordError, match=why):
        read(batch_with_body(body))


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

"""From a batch v2 to its records.

    length          varint      bytes that follow
    attributes      i8          unused
    timestamp_delta varlong     ms after the batch's base_timestamp
    offset_delta    varint      after the batch's base_offset
    key_length      varint      -1: null
    key             bytes
    value_length    varint      -1: null
    value           bytes
    headers_count   varint
      key_length    varint      never null
      key           bytes       UTF-8
      value_length  varint      -1: null
      value         bytes

Two levels: :func:`decode_into` hands each record to a :class:`RecordSink`, for who builds objects of his own by the
million (the consumers); :func:`decode_raw` gives tuples (the embedded broker), :func:`decode_records` objects. Batches
are found, and their CRCs checked, in :mod:`kafka.records.header`. Message sets v0 and v1 have a module of their own
(:mod:`kafka.records.message_set`), which is called for them.

:func:`_decode_plain` is the hot loop of every consumer: varints of one and two bytes are read in place, because a call
per varint doubles the time, and headers are only passed over: their bytes are kept for who looks at them
(:func:`headers_of`). It reads bytes from the network: each length is checked, directly or by the position that
must come out at the record's end, and running over the end of the buffer is an ``IndexError`` that is caught once.
No slice may end before it begins: compiled, that is no empty one but a ``SystemError``. Its locals are ``i64``, which
are machine integers in a compiled build and ``int`` otherwise: nothing here may rely on them growing beyond 64 bits,
nor on wrapping round.

Source: the protocol guide's section "Record"; KIP-82 (headers).
"""

from __future__ import annotations

from typing import Final

from kafka._native import i64
from kafka.errors import CorruptRecordError
from kafka.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, codec_for
from kafka.records.header import CODEC_MASK, HEADER_BYTES, MAX_OFFSET, TIMESTAMP_TYPE_BIT, BatchHeader, Buffer
from kafka.records.message_set import decode_message
from kafka.records.varint import MAX_VARINT_BYTES, decode_varint

Headers = list[tuple[str, bytes | None]]
RawRecord = tuple[int, int, bytes | None, bytes | None, Headers]
"""``(offset, timestamp in ms, key, value, headers)``."""

_MAX_TIMESTAMP: Final = 2**63 - 1
_TWO_BYTES: Final = 2**13
"""Above every value of a two-byte varint. Only longer deltas are checked for sums that do not fit 64 bits."""


class RecordSink:
    """Who gets the records of a batch, one call for each."""

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        """The next record. ``headers`` are for :func:`headers_of`; None when there are none."""
        raise NotImplementedError


class _RawRecords(RecordSink):
    def __init__(self) -> None:
        self.found: list[RawRecord] = []

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        self.found.append((offset, timestamp, key, value, headers_of(headers)))


class Record:
    """One record: ``offset``, ``timestamp`` (ms since the epoch, -1: none), ``timestamp_type`` (0 by the producer, 1 by
    the broker), ``key``, ``value`` and ``headers`` as ``[(name, value)]``."""

    __slots__ = ("headers", "key", "offset", "timestamp", "timestamp_type", "value")

    def __init__(
        self,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"<Record {self.offset} at {self.timestamp} key={self.key!r} value={self.value!r} {self.headers}>"


def decode_records(
    data: Buffer, header: BatchHeader, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """The records of the batch, in their order. Errors: those of :func:`decode_raw`."""
    kind = header.timestamp_type
    return [
        Record(offset, timestamp, kind, key, value, headers)
        for offset, timestamp, key, value, headers in decode_raw(data, header, max_decompressed_bytes)
    ]


def decode_raw(
    data: Buffer, header: BatchHeader, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[RawRecord]:
    """The records of the batch that ``header`` found in ``data``, as tuples, in their order. Errors: those of
    :func:`decode_into`."""
    if header.magic != 2:
        return decode_message(data, header, max_decompressed_bytes)
    records = _RawRecords()
    decode_into(records, data, header, max_decompressed_bytes)
    return records.found


def decode_into(
    sink: RecordSink,
    data: Buffer,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    first_offset: int = 0,
) -> None:
    """Give ``sink`` the records of the batch that ``header`` found in ``data``, from ``first_offset`` on, in their
    order. It raises nothing itself.

    Keys and values are ``bytes`` of their own, whatever ``data`` is. A control batch gives its marker as one record.

    Raises :class:`~kafka.errors.CorruptRecordError` for records that are malformed, fewer or more than the header says,
    or would inflate above ``max_decompressed_bytes``, when those before the fault have been given;
    :class:`~kafka.errors.UnsupportedCodecError` for a codec that is not available.
    """
    if header.magic != 2:
        for offset, timestamp, key, value, _ in decode_message(data, header, max_decompressed_bytes):
            if offset >= first_offset:
                sink.add(offset, timestamp, key, value, None)
        return
    if header.base_timestamp > _MAX_TIMESTAMP - _TWO_BYTES:
        raise CorruptRecordError(f"the base timestamp {header.base_timestamp} in {header!r}")
    if header.base_offset > MAX_OFFSET - _TWO_BYTES:
        raise CorruptRecordError(f"no room for offsets in {header!r}")
    codec = header.attributes & CODEC_MASK
    start = header.start + HEADER_BYTES
    end = header.end
    if codec:
        body = codec_for(codec).decompress(bytes(data[start:end]), max_decompressed_bytes)
        start = 0
        end = len(body)
    elif isinstance(data, bytes):
        body = data
    else:
        body = bytes(data[start:end])
        start = 0
        end = len(body)
    has_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
    timestamp = header.max_timestamp if has_append_time else header.base_timestamp
    try:
        _decode_plain(
            sink, body, start, end, header.records_count, header.base_offset, timestamp, has_append_time, first_offset
        )
    except IndexError:
        raise CorruptRecordError(f"a record runs over the end of {header!r}") from None
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None


def _decode_plain(
    sink: RecordSink,
    data: bytes,
    pos: i64,
    end: i64,
    count: i64,
    base_offset: i64,
    base_timestamp: i64,
    is_append_time: bool,
    first_offset: i64,
) -> None:
    """``count`` records of ``data[pos:end]``, which is plain bytes and longer than ``end`` perhaps."""
    byte: i64
    second: i64
    length: i64
    offset: i64
    timestamp: i64
    headers: bytes | None
    key: bytes | None
    value: bytes | None
    number: i64 = 0
    while number < count:
        number += 1
        # length of the record; decode_varint for what is negative or has more than two bytes, here and below
        byte = data[pos]
        if byte < 0x80:
            pos += 1
            length = byte >> 1
            if byte & 1:
                raise CorruptRecordError(f"a record of negative length at byte {pos}")
        else:
            second = data[pos + 1]
            if second < 0x80 and not byte & 1:
                length = (byte & 0x7F) >> 1 | second << 6
                pos += 2
            else:
                length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        record_end: i64 = pos + length
        if record_end <= pos or record_end > end:
            raise CorruptRecordError(f"a record of {length} bytes at byte {pos}, where {end - pos} are left")

        pos += 1  # attributes

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            pos += 1
            timestamp = base_timestamp + (byte >> 1)
        else:
            second = data[pos + 1]
            if second < 0x80 and not byte & 1:
                timestamp = base_timestamp + ((byte & 0x7F) >> 1 | second << 6)
                pos += 2
            else:
                length, pos = decode_varint(data, pos)
                timestamp = _far_timestamp(base_timestamp, length, pos)
        if is_append_time:
            timestamp = base_timestamp

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            pos += 1
            offset = base_offset + (byte >> 1)
        else:
            second = data[pos + 1]
            if second < 0x80 and not byte & 1:
                offset = base_offset + ((byte & 0x7F) >> 1 | second << 6)
                pos += 2
            else:
                length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
                if length < 0:
                    raise CorruptRecordError(f"a record's offset lies {-length} before its batch, at byte {pos}")
                if length > MAX_OFFSET - base_offset:
                    raise CorruptRecordError(f"a record's offset lies {length} after {base_offset}, at byte {pos}")
                offset = base_offset + length

        if offset < first_offset:
            pos = record_end
            continue

        byte = data[pos]
        if byte == 1:
            pos += 1
            key = None
        else:
            if byte < 0x80:
                pos += 1
                length = (byte >> 1) ^ -(byte & 1)
            else:
                length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
            if length == -1:
                key = None
            elif 0 <= length <= record_end - pos:
                key = data[pos : pos + length]
                pos += length
            else:
                raise CorruptRecordError(f"a key of {length} bytes at byte {pos}")

        byte = data[pos]
        if byte < 0x80:
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
        else:
            second = data[pos + 1]
            if second < 0x80 and not byte & 1:
                length = (byte & 0x7F) >> 1 | second << 6
                pos += 2
            else:
                length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length == -1:
            value = None
        elif 0 <= length <= record_end - pos:
            value = data[pos : pos + length]
            pos += length
        else:
            raise CorruptRecordError(f"a value of {length} bytes at byte {pos}")

        if data[pos] == 0:
            pos += 1
            headers = None
        elif pos > record_end:
            raise CorruptRecordError(f"a record that should end at byte {record_end} ends at byte {pos}")
        else:
            headers = data[pos:record_end]
            pos += _walk_headers(headers, None)

        if pos != record_end:
            raise CorruptRecordError(f"a record that should end at byte {record_end} ends at byte {pos}")
        sink.add(offset, timestamp, key, value, headers)
    if pos != end:
        raise CorruptRecordError(f"{end - pos} bytes after the last of {count} records")


def _far_timestamp(base: i64, delta: i64, pos: i64) -> i64:
    """The sum of a timestamp and a delta of more than two bytes, which may not fit 64 bits."""
    if delta < -_MAX_TIMESTAMP - 1 - base if base < 0 else delta > _MAX_TIMESTAMP - base:
        raise CorruptRecordError(f"a record {delta} ms after {base} ms, before byte {pos}")
    return base + delta


def headers_of(given: bytes | Headers | None) -> Headers:
    """A record's headers from what a sink was given (bytes that are known to be well-formed, or None), or from what
    this made of it before.

    A name that is no UTF-8 is read with replacement characters, as Java's client does: no broker checks names, and an
    error would make the whole partition unreadable because of one odd producer.
    """
    if given is None:
        return []
    if not isinstance(given, bytes):
        return given
    headers: Headers = []
    _walk_headers(given, headers)
    return headers


def _walk_headers(data: bytes, found: Headers | None) -> i64:
    """Where the headers end that ``data`` begins with; they are added to ``found``."""
    byte: i64
    length: i64
    name_at: i64
    count: i64
    pos: i64
    number: i64 = 0
    end: i64 = len(data)
    count, pos = decode_varint(data, 0, MAX_VARINT_BYTES)
    if count < 0 or count > end - pos:
        raise CorruptRecordError(f"{count} record headers in {end} bytes")
    while number < count:
        number += 1
        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            pos += 1
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length < 0 or pos + length > end:
            raise CorruptRecordError(f"a header's name of {length} bytes, {end - pos} before its record's end")
        name_at = pos
        pos += length
        name_end = pos

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            pos += 1
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length < -1 or length > end - pos:
            raise CorruptRecordError(f"a header's value of {length} bytes, {end - pos} before its record's end")
        if found is not None:
            name = str(data[name_at:name_end], "utf-8", "replace")
            found.append((name, None if length < 0 else data[pos : pos + length]))
        if length > 0:
            pos += length
    return pos

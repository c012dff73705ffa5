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

Two levels: :func:`decode_raw` gives tuples, for who builds objects of his own (the consumer, the embedded broker);
:func:`decode_records` gives :class:`Record`. Batches are found, and their CRCs checked, in :mod:`kafka.records.header`.
Message sets v0 and v1 have a module of their own (:mod:`kafka.records.message_set`), which both call for them.

:func:`_decode_plain` is the hot loop of every consumer: varints of one and two bytes are read in place, because a call
per varint doubles the time. It reads bytes from the network: each length is checked, directly or by the position that
must come out at the record's end, and running over the end of the buffer is an ``IndexError`` that is caught once.

Source: the protocol guide's section "Record"; KIP-82 (headers).
"""

from __future__ import annotations

from typing import Final

from kafka.errors import CorruptRecordError
from kafka.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, codec_for
from kafka.records.header import CODEC_MASK, HEADER_BYTES, TIMESTAMP_TYPE_BIT, BatchHeader, Buffer
from kafka.records.message_set import decode_message
from kafka.records.varint import MAX_VARINT_BYTES, decode_varint

Headers = list[tuple[str, bytes | None]]
RawRecord = tuple[int, int, bytes | None, bytes | None, Headers]
"""``(offset, timestamp in ms, key, value, headers)``."""

_TIMESTAMP_RANGE: Final = 2**63
_TWO_BYTES: Final = 2**13
"""Above every value of a two-byte varint. Only longer deltas are checked for timestamps that do not fit 64 bits."""


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
    """The records of the batch that ``header`` found in ``data``, as tuples, in their order.

    Keys and values are ``bytes`` of their own, whatever ``data`` is. A control batch gives its marker as one record.

    Raises :class:`~kafka.errors.CorruptRecordError` for records that are malformed, fewer or more than the header says,
    or would inflate above ``max_decompressed_bytes``; :class:`~kafka.errors.UnsupportedCodecError` for a codec that is
    not available.
    """
    if header.magic != 2:
        return decode_message(data, header, max_decompressed_bytes)
    if header.base_timestamp >= _TIMESTAMP_RANGE - _TWO_BYTES:
        raise CorruptRecordError(f"the base timestamp {header.base_timestamp} in {header!r}")
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
    try:
        records = _decode_plain(body, start, end, header.records_count, header.base_offset, header.base_timestamp)
    except IndexError:
        raise CorruptRecordError(f"a record runs over the end of {header!r}") from None
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None
    if header.attributes & TIMESTAMP_TYPE_BIT:
        append_time = header.max_timestamp
        return [(offset, append_time, key, value, headers) for offset, _, key, value, headers in records]
    return records


def _decode_plain(
    data: bytes, pos: int, end: int, count: int, base_offset: int, base_timestamp: int
) -> list[RawRecord]:
    """``count`` records of ``data[pos:end]``, which is plain bytes and longer than ``end`` perhaps."""
    records: list[RawRecord] = []
    key: bytes | None
    value: bytes | None
    headers: Headers
    for _ in range(count):
        # length of the record; decode_varint for what is negative or has more than two bytes, here and below
        byte = data[pos]
        if byte < 0x80:
            pos += 1
            length = byte >> 1
            if byte & 1:
                raise CorruptRecordError(f"a record of negative length at byte {pos}")
        elif data[pos + 1] < 0x80 and not byte & 1:
            length = (byte & 0x7F) >> 1 | data[pos + 1] << 6
            pos += 2
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        record_end = pos + length
        if length < 0 or record_end > end:
            raise CorruptRecordError(f"a record of {length} bytes at byte {pos}, where {end - pos} are left")

        pos += 1  # attributes

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            pos += 1
            timestamp = base_timestamp + (byte >> 1)
        elif not byte & 1 and data[pos + 1] < 0x80:
            timestamp = base_timestamp + ((byte & 0x7F) >> 1 | data[pos + 1] << 6)
            pos += 2
        else:
            delta, pos = decode_varint(data, pos)
            timestamp = base_timestamp + delta
            if not -_TIMESTAMP_RANGE <= timestamp < _TIMESTAMP_RANGE:
                raise CorruptRecordError(f"a record's timestamp of {timestamp} ms before byte {pos}")

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            pos += 1
            offset = base_offset + (byte >> 1)
        elif not byte & 1 and data[pos + 1] < 0x80:
            offset = base_offset + ((byte & 0x7F) >> 1 | data[pos + 1] << 6)
            pos += 2
        else:
            delta, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
            if delta < 0:
                raise CorruptRecordError(f"a record's offset lies {-delta} before its batch, at byte {pos}")
            offset = base_offset + delta

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
            if length >= 0:
                key = data[pos : pos + length]
                pos += length
            elif length == -1:
                key = None
            else:
                raise CorruptRecordError(f"a key of {length} bytes at byte {pos}")

        byte = data[pos]
        if byte < 0x80:
            pos += 1
            length = (byte >> 1) ^ -(byte & 1)
        elif not byte & 1 and data[pos + 1] < 0x80:
            length = (byte & 0x7F) >> 1 | data[pos + 1] << 6
            pos += 2
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length >= 0:
            value = data[pos : pos + length]
            pos += length
        elif length == -1:
            value = None
        else:
            raise CorruptRecordError(f"a value of {length} bytes at byte {pos}")

        if data[pos] == 0:
            pos += 1
            headers = []
        else:
            headers, pos = _decode_headers(data, pos, record_end)

        if pos != record_end:
            raise CorruptRecordError(f"a record that should end at byte {record_end} ends at byte {pos}")
        records.append((offset, timestamp, key, value, headers))
    if pos != end:
        raise CorruptRecordError(f"{end - pos} bytes after the last of {count} records")
    return records


def _decode_headers(data: bytes, pos: int, end: int) -> tuple[Headers, int]:
    """A record's headers at ``pos``, and the position after them.

    A name that is no UTF-8 is read with replacement characters, as Java's client does: no broker checks names, and an
    error would make the whole partition unreadable because of one odd producer.
    """
    count, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
    if count < 0 or count > end - pos:
        raise CorruptRecordError(f"{count} record headers at byte {pos}")
    headers: Headers = []
    value: bytes | None
    for _ in range(count):
        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            pos += 1
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length < 0 or pos + length > end:
            raise CorruptRecordError(f"a header's name of {length} bytes at byte {pos}")
        name = str(data[pos : pos + length], "utf-8", "replace")
        pos += length

        byte = data[pos]
        if byte < 0x80 and not byte & 1:
            length = byte >> 1
            pos += 1
        else:
            length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
        if length >= 0:
            value = data[pos : pos + length]
            pos += length
        elif length == -1:
            value = None
        else:
            raise CorruptRecordError(f"a header's value of {length} bytes at byte {pos}")
        headers.append((name, value))
    return headers, pos

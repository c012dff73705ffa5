"""Decodes the records of a batch v2.

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

Two levels: :class:`RecordReader` passes records to a :class:`RecordSink`, a few at a time or all, for the consumers,
which build millions of objects of their own; :func:`decode_raw` returns tuples, :func:`decode_records` objects. Batches
are found, and their CRCs checked, in :mod:`kafka.records.header`. Message sets v0 and v1 are read by
:mod:`kafka.records.message_set`.

:meth:`RecordReader._read_plain` is the hot loop of every consumer: varints of one and two bytes are read in place,
because a call per varint doubles the time, and headers are only skipped: their bytes are kept for :func:`headers_of`.
It reads bytes from the network: each length is checked, directly or by the position that
must come out at the record's end, and running over the end of the buffer is an ``IndexError`` that is caught once.
No slice may end before it begins: compiled, that is a ``SystemError`` instead of an empty slice. Its locals are
``i64``, which are machine integers in a compiled build and ``int`` otherwise: nothing here may rely on them growing
beyond 64 bits, nor on wrapping round.

Source: the protocol guide's section "Record"; KIP-82 (headers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kafka._native import i64
from kafka.errors import CorruptRecordError
from kafka.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, InflationLimitError, codec_for
from kafka.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    MAX_OFFSET,
    MAX_VARINT_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    decode_varint,
)
from kafka.records.message_set import MessageReader, decode_message

Headers = list[tuple[str, bytes | None]]
RawRecord = tuple[int, int, bytes | None, bytes | None, Headers]
"""``(offset, timestamp in ms, key, value, headers)``."""

_MAX_TIMESTAMP: Final = 2**63 - 1
MIN_RECORD_BYTES: Final = 7
"""A record without key, value and headers: each of its fields takes a byte."""
_LEAST_LENGTH: Final = 2 * (MIN_RECORD_BYTES - 1)
"""As a varint: the least length, which does not count itself."""
MAX_HEADERS: Final = 16_384
"""The most of one record. Each takes at least two bytes, and about 150 in memory when it is decoded."""
_TWO_BYTES: Final = 2**13
"""Above every value of a two-byte varint. Only longer deltas are checked for sums that overflow 64 bits."""


class RecordSink:
    """Receives the records of a batch, one call for each."""

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        """The next record. ``headers`` are for :func:`headers_of`; None when there are none."""
        raise NotImplementedError


class _RawRecords(RecordSink):
    def __init__(self) -> None:
        self.records: list[RawRecord] = []

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        self.records.append((offset, timestamp, key, value, headers_of(headers)))


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
    """The records of the batch of ``header`` in ``data``, as tuples, in their order. Errors: those of
    :class:`RecordReader`."""
    if header.magic != 2:
        return decode_message(data, header, max_decompressed_bytes)
    sink = _RawRecords()
    RecordReader(data, header, max_decompressed_bytes).read(sink)
    return sink.records


def open_body(data: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> tuple[bytes, int, int]:
    """The decompressed records of a batch v2, with their start and end in the returned bytes. Errors: those of
    :class:`RecordReader`; more records than the bytes have room for are refused before anything is decompressed."""
    if header.base_timestamp > _MAX_TIMESTAMP - _TWO_BYTES:
        raise CorruptRecordError(f"the base timestamp {header.base_timestamp} in {header!r}")
    if header.base_offset > MAX_OFFSET - _TWO_BYTES:
        raise CorruptRecordError(f"no room for offsets in {header!r}")
    codec = header.attributes & CODEC_MASK
    start = header.start + HEADER_BYTES
    end = header.end
    room = max_decompressed_bytes if codec else end - start
    if header.records_count * MIN_RECORD_BYTES > room:
        error = InflationLimitError if codec else CorruptRecordError
        raise error(f"{room} bytes are the most for the records of {header!r}")
    if codec:
        body = codec_for(codec).decompress(bytes(data[start:end]), max_decompressed_bytes)
        return body, 0, len(body)
    if isinstance(data, bytes):
        return data, start, end
    return bytes(data[start:end]), 0, end - start


class RecordReader:
    """Reads the batch of ``header`` in ``data`` from ``first_offset`` on, a few records at a time: a batch of a few
    kB may hold millions.

    Keys and values are copies, as ``bytes``, whatever ``data`` is. A control batch has its marker as one record.
    Without ``checks_headers`` malformed headers raise only when they are decoded (:func:`headers_of`).

    The constructor and :meth:`read` raise :class:`~kafka.errors.CorruptRecordError` for records that are malformed,
    fewer or more than the header says, whose offsets do not ascend or go beyond the header's, or that would inflate
    above ``max_decompressed_bytes``, after the records before the error have been passed on. The constructor raises
    :class:`~kafka.errors.UnsupportedCodecError` for a codec that is not available.
    """

    def __init__(
        self,
        data: Buffer,
        header: BatchHeader,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        first_offset: int = 0,
        checks_headers: bool = True,
    ) -> None:
        """Opens the batch: decompresses a v2 batch, which is what takes time here, and leaves message sets v0 and v1
        to :class:`MessageReader`. Records with LogAppendTime all have the batch's greatest timestamp."""
        self._header = header
        self._checks_headers = checks_headers
        self._messages: Iterator[RawRecord] | None = None
        self._body = b""
        self._decompressed_bytes = 0
        self.header_bytes: int = 0
        """Bytes of the headers of the records that the last :meth:`read` passed on."""
        self._pos: i64 = 0
        self._end: i64 = 0
        self._number: i64 = 0
        """Records that lie before ``_pos``."""
        self._count: i64 = header.records_count
        self._first_offset: i64 = min(first_offset, MAX_OFFSET)
        """Offsets of a batch v2 are below 2**63 - 1, those of messages may equal it: the next offset is 2**63 then."""
        self._message_set_from = first_offset
        self._last_offset: i64 = header.base_offset - 1
        """Of the record before ``_pos``."""
        self._timestamp: i64 = header.base_timestamp
        self._is_append_time = header.attributes & TIMESTAMP_TYPE_BIT != 0
        if header.magic != 2:
            messages = MessageReader(data, header, max_decompressed_bytes)
            self._decompressed_bytes = messages.decompressed_bytes
            self._messages = iter(messages)
            self._last_offset = self._first_offset - 1
            return
        self._body, self._pos, self._end = open_body(data, header, max_decompressed_bytes)
        if self._body is not data:
            self._decompressed_bytes = self._end
        if self._is_append_time:
            self._timestamp = header.max_timestamp

    def skip_to(self, first_offset: int) -> bool:
        """Continue reading at ``first_offset``; False when that has been read already."""
        if self._messages is not None or first_offset <= self._last_offset:
            return False
        self._first_offset = first_offset
        return True

    @property
    def decompressed_bytes(self) -> int:
        """Size of the copied or decompressed records."""
        return self._decompressed_bytes

    @property
    def next_offset(self) -> int:
        """The offset after the last record that was read; before the first one the batch's base offset."""
        return min(self._last_offset, MAX_OFFSET - 1) + 1

    def read(
        self,
        sink: RecordSink,
        limit: int = MAX_OFFSET,
        max_header_bytes: int = MAX_OFFSET,
        max_skipped: int = MAX_OFFSET,
    ) -> bool:
        """Pass ``sink`` the next records, at most ``limit``, in their order; returns whether any are left. Stops after
        the record that brings :attr:`header_bytes` to ``max_header_bytes``, and after skipping ``max_skipped`` records
        that lie before the first offset. The sink must not raise."""
        self.header_bytes = 0
        try:
            if self._messages is not None:
                self._read_message_set(sink, limit)
            else:
                self._read_plain(sink, limit, max_header_bytes, max_skipped)
        except IndexError:
            raise CorruptRecordError(f"a record runs over the end of {self._header!r}") from None
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {self._header!r}") from None
        return self._number < self._count

    def _read_message_set(self, sink: RecordSink, limit: int) -> None:
        """Read a message set, whose ``_count`` is not known: it stays above ``_number`` until the end."""
        self._count = self._number + 1
        for offset, timestamp, key, value, _ in self._messages or ():
            if offset >= self._message_set_from:
                sink.add(offset, timestamp, key, value, None)
                self._last_offset = offset
                limit -= 1
                if limit <= 0:
                    return
        self._count = self._number

    def _read_plain(self, sink: RecordSink, limit: i64, max_header_bytes: i64, max_skipped: i64) -> None:
        """Read a batch v2 from ``_body``, which may be longer than ``_end``."""
        data = self._body
        pos = self._pos
        end = self._end
        count = self._count
        base_offset: i64 = self._header.base_offset
        base_timestamp = self._timestamp
        is_append_time = self._is_append_time
        checks_headers = self._checks_headers
        last_offset = self._last_offset
        most_offset: i64 = self._header.last_offset
        floor: i64 = self._first_offset - 1
        if floor < last_offset:
            floor = last_offset
        number = self._number
        header_bytes: i64 = 0
        skipped: i64 = 0
        byte: i64
        second: i64
        length: i64
        offset: i64
        timestamp: i64
        headers: bytes | None
        key: bytes | None
        value: bytes | None
        if count == most_offset - base_offset + 1:
            # Offsets ascend, so without gaps the number of a record is its offset's delta: records before the first
            # offset are skipped by their lengths.
            skip_end: i64 = min(self._first_offset - base_offset, count)
            if skip_end - number > max_skipped:
                skip_end = number + max_skipped
                limit = 0
            while number < skip_end:
                byte = data[pos]
                second = data[pos + 1]
                if byte < 0x80 and not byte & 1 and byte >= _LEAST_LENGTH:
                    pos += 1 + (byte >> 1)
                elif byte >= 0x80 and second < 0x80 and not byte & 1:
                    pos += 2 + ((byte & 0x7F) >> 1 | second << 6)
                else:
                    length, pos = decode_varint(data, pos, MAX_VARINT_BYTES)
                    if length < MIN_RECORD_BYTES - 1:
                        raise CorruptRecordError(f"a record of {length} bytes at byte {pos}")
                    pos += length
                last_offset = base_offset + number
                number += 1
            if pos > end:
                raise CorruptRecordError(f"record {number - 1} ends at byte {pos}, and all of them at byte {end}")
            if floor < last_offset:
                floor = last_offset
        stop = count if limit >= count - number else number + limit
        while number < stop:
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
                    timestamp = far_timestamp(base_timestamp, length, pos)
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

            if not floor < offset <= most_offset:
                if offset <= last_offset or offset > most_offset:
                    raise CorruptRecordError(
                        f"a record's offset {offset} after {last_offset}, at byte {pos}, where the last one is "
                        f"{most_offset}"
                    )
                last_offset = offset
                pos = record_end
                skipped += 1
                if skipped >= max_skipped:
                    stop = number
                elif stop < count:
                    stop += 1
                continue
            last_offset = floor = offset

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
            elif pos >= record_end:
                raise CorruptRecordError(f"a record that should end at byte {record_end} ends at byte {pos}")
            else:
                headers = data[pos:record_end]
                header_bytes += record_end - pos
                if header_bytes >= max_header_bytes:
                    stop = number
                pos = pos + walk_headers(headers, None) if checks_headers else record_end

            if pos != record_end:
                raise CorruptRecordError(f"a record that should end at byte {record_end} ends at byte {pos}")
            sink.add(offset, timestamp, key, value, headers)
        if number == count and pos != end:
            raise CorruptRecordError(f"{end - pos} bytes after the last of {count} records")
        self._pos = pos
        self._number = number
        self._last_offset = last_offset
        self.header_bytes = header_bytes


class FirstSince(RecordSink):
    """Looks for the first record of a batch, from ``first_offset`` on, whose timestamp is ``since`` (ms) or later.

    ``offset`` is -1 until it is found. Arguments and errors otherwise: those of :class:`RecordReader`.
    """

    def __init__(
        self, since: int, data: Buffer, header: BatchHeader, max_decompressed_bytes: int, first_offset: int
    ) -> None:
        self._reader = RecordReader(data, header, max_decompressed_bytes, first_offset)
        self._since = since
        self.offset = -1
        self.timestamp = -1

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        if self.offset < 0 and timestamp >= self._since:
            self.offset = offset
            self.timestamp = timestamp

    def read(self, limit: int) -> bool:
        """Look at the next records, at most ``limit``; whether there is any use in looking on."""
        return self._reader.read(self, limit) and self.offset < 0


def far_timestamp(base: i64, delta: i64, pos: i64) -> i64:
    """The sum of a timestamp and a delta of more than two bytes, which may not fit 64 bits."""
    if delta < -_MAX_TIMESTAMP - 1 - base if base < 0 else delta > _MAX_TIMESTAMP - base:
        raise CorruptRecordError(f"a record {delta} ms after {base} ms, before byte {pos}")
    return base + delta


def first_header(encoded: bytes | Headers | None) -> tuple[str, bytes | None] | None:
    """The first of a record's headers, without the others; None when there is none. Else as :func:`headers_of`."""
    if not isinstance(encoded, bytes):
        return encoded[0] if encoded else None
    headers: Headers = []
    try:
        walk_headers(encoded, headers, 1)
    except IndexError:
        raise CorruptRecordError("headers that run over the end of their record") from None
    return headers[0] if headers else None


def headers_of(encoded: bytes | Headers | None) -> Headers:
    """A record's headers, decoded from the bytes that a sink receives (or None), or a list that was decoded before.

    A name that is no UTF-8 is read with replacement characters, as Java's client does: no broker checks names, and an
    error would make the whole partition unreadable because of one odd producer. CorruptRecordError for headers that
    are malformed and were not checked before.
    """
    if encoded is None:
        return []
    if not isinstance(encoded, bytes):
        return encoded
    headers: Headers = []
    try:
        end = walk_headers(encoded, headers)
    except IndexError:
        raise CorruptRecordError("headers that run over the end of their record") from None
    if end != len(encoded):
        raise CorruptRecordError(f"{len(encoded) - end} bytes after the last header of a record")
    return headers


def count_headers(encoded: bytes | Headers | None) -> int:
    """How many headers :func:`headers_of` would make of that, without making them. Errors: as there."""
    if encoded is None:
        return 0
    if not isinstance(encoded, bytes):
        return len(encoded)
    try:
        byte: i64 = encoded[0]
        return byte >> 1 if byte < 0x80 and not byte & 1 else decode_varint(encoded, 0, MAX_VARINT_BYTES)[0]
    except IndexError:
        raise CorruptRecordError("headers that run over the end of their record") from None


def walk_headers(data: bytes, headers: Headers | None, most: i64 = MAX_HEADERS) -> i64:
    """The end of the first ``most`` headers at the start of ``data``; they are appended to ``headers`` unless that is
    None."""
    byte: i64
    length: i64
    name_at: i64
    count: i64
    pos: i64
    number: i64 = 0
    end: i64 = len(data)
    count, pos = decode_varint(data, 0, MAX_VARINT_BYTES)
    if count < 0 or count > end - pos or count > MAX_HEADERS:
        raise CorruptRecordError(f"{count} record headers in {end} bytes; {MAX_HEADERS} is the most")
    if count > most:
        count = most
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
        if headers is not None:
            name = str(data[name_at:name_end], "utf-8", "replace")
            headers.append((name, None if length < 0 else data[pos : pos + length]))
        if length > 0:
            pos += length
    return pos

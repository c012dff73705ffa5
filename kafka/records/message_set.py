"""Message sets v0 and v1, the format of brokers before 0.11: decoding and encoding.

     0  offset      i64
     8  size        i32     bytes that follow this field
    12  crc         u32     CRC-32 (zlib's, not CRC-32C) of everything from byte 16 on
    16  magic       i8      0 or 1
    17  attributes  i8      bits 0-2 codec; bit 3 timestamp type, in v1
    18  timestamp   i64     in v1 only: ms since the epoch; -1: none
        key_length  i32     -1: null
        key         bytes
        value_length  i32   -1: null
        value       bytes

A set is messages one after another, without a header of its own; a broker's response may end within one. A
*wrapper* is a message with a codec: its value is another set, compressed, of plain messages of the same magic. The
wrapper's offset is that of its last message. Inside, v0 has each message's own offset; v1 counts from anything (0,
where a producer wrote it), so that a broker need not compress again (KIP-31): the last one is the wrapper's. When the
wrapper of v1 has the broker's time (bit 3), all its messages have that time (KIP-32).

Messages of the outer level are found by :func:`kafka.records.header.iter_batches`, as batches are, and
:func:`kafka.records.reader.decode_raw` calls this module for their magics: readers of logs handle all formats alike.
Produced message sets are read by :func:`decode_produced`, since their offsets mean nothing.

:class:`MessageSetBuilder` has the interface of :class:`~kafka.records.builder.RecordBatchBuilder`, for an accumulator;
:func:`encode_message_set` writes records at their existing offsets, with gaps: a broker's down-conversion. No headers,
producer ids or transactions: the format has none.

Source: the protocol guide's section "Old Message Format"; KIP-31, KIP-32, KIP-57 (lz4).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafka.errors import CorruptRecordError, IllegalStateError, UnsupportedForMessageFormatError
from kafka.records.builder import NO_ROOM, HeaderItems
from kafka.records.compression import CODEC_NAMES, LZ4, NONE, ZSTD, InflationLimitError, codec_for
from kafka.records.header import (
    CODEC_MASK,
    CREATE_TIME,
    LOG_APPEND_TIME,
    MAGIC_AT,
    SIZE_AND_MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    parse_message,
)

if TYPE_CHECKING:
    from kafka.records.reader import RawRecord

CRC_FROM: Final = 16
TIMESTAMP_AT: Final = 18
BODY_AT: Final = (18, 26)
"""Where the key's length is, by magic."""

_TIMESTAMP: Final = struct.Struct(">q")
_OFFSET_AND_SIZE: Final = struct.Struct(">qi")
_LENGTH: Final = struct.Struct(">i")
_NO_TIMESTAMP: Final = -1
_MAX_OFFSET: Final = 2**63 - 1


def check_message_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise :class:`~kafka.errors.CorruptRecordError` unless the CRC of the outer message fits its bytes."""
    computed = zlib.crc32(memoryview(data)[header.start + CRC_FROM : header.end])
    if computed != header.crc:
        raise CorruptRecordError(
            f"the message v{header.magic} at offset {header.base_offset}, byte {header.start}, "
            f"has the CRC {computed:#010x} and claims {header.crc:#010x}"
        )


def decode_message(data: Buffer, header: BatchHeader, max_decompressed_bytes: int) -> list[RawRecord]:
    """The records of the outer message that ``header`` found in ``data``: one, or those that a wrapper holds. Errors:
    those of :class:`MessageReader`."""
    reader = MessageReader(data, header, max_decompressed_bytes)
    try:
        return list(reader)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None


class MessageReader:
    """The records of the outer message that ``header`` found in ``data``, one after another: one, or those that a
    wrapper holds. ``decompressed_bytes``: size of the decompressed wrapper.

    CRCs are checked, of the outer message and of the inner ones. The constructor and the iteration raise
    :class:`~kafka.errors.CorruptRecordError` for what is malformed, wrapped twice or inflates above
    ``max_decompressed_bytes``; the constructor :class:`~kafka.errors.UnsupportedCodecError` for a codec that is not
    available here. ``any_offset``: a producer sent the message, and offsets are returned unchanged.
    """

    def __init__(
        self, data: Buffer, header: BatchHeader, max_decompressed_bytes: int, *, any_offset: bool = False
    ) -> None:
        """Checks the outer message's CRC and inflates a wrapper, at most ``max_decompressed_bytes`` of it.
        CorruptRecordError for a wrapper without a value or without messages, InflationLimitError for one that is too
        large. The messages inside a wrapper of v1 have relative offsets (KIP-31): the last one is at the wrapper's
        offset."""
        self._header = header
        self._any_offset = any_offset
        check_message_crc(data, header)
        message = bytes(data[header.start : header.end])
        self._timestamp, self._key, self._value = _fields(message, 0, len(message), header.magic)
        codec = header.attributes & CODEC_MASK
        self._inflated: bytes | None = None
        self.decompressed_bytes = 0
        self._shift = 0
        self._is_relative = False
        """The last of the inner messages has the wrapper's offset, and the others precede it."""
        if not codec:
            return
        if self._value is None:
            raise CorruptRecordError(f"a compressed message without a value, {header!r}")
        try:
            self._inflated = _inflate(self._value, codec, header.magic, max_decompressed_bytes)
        except InflationLimitError as error:
            raise InflationLimitError(f"{error.args[0]} in {header!r}") from None
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None
        self._value = None
        self.decompressed_bytes = len(self._inflated)
        if not self.decompressed_bytes:
            raise CorruptRecordError(f"a compressed message without messages, {header!r}")
        if header.magic and not any_offset:
            self._is_relative = True
            self._shift = header.base_offset - _last_offset(self._inflated)

    def __iter__(self) -> Iterator[RawRecord]:
        header, shift = self._header, self._shift
        if self._inflated is None:
            yield header.base_offset, self._timestamp, self._key, self._value, []
            return
        is_append_time = header.magic and header.attributes & TIMESTAMP_TYPE_BIT and not self._any_offset
        for offset, timestamp, key, value, _ in _inner(self._inflated, header.magic, self._any_offset):
            if self._is_relative and not 0 <= offset + shift <= header.base_offset:
                raise CorruptRecordError(f"a message whose offset would be {offset + shift}")
            yield offset + shift, self._timestamp if is_append_time else timestamp, key, value, []


def decode_produced(data: Buffer, max_decompressed_bytes: int) -> tuple[list[RawRecord], int, bool]:
    """Decode a produced message set, which may mix plain messages and wrappers: the records with offsets counted
    from 0, the number of the first codec in use (0: none), and whether a message claims to have a broker's time.

    A partial message at the end is ignored. ``max_decompressed_bytes`` is for all wrappers together. Errors:
    those of :func:`decode_message`, but offsets may be anything."""
    produced: list[RawRecord] = []
    codec = 0
    has_append_time = False
    room = max_decompressed_bytes
    pos = 0
    while True:
        header = _header(data, pos, any_offset=True)
        if header is None:
            return produced, codec, has_append_time
        try:
            records = list(MessageReader(data, header, room, any_offset=True))
        except InflationLimitError:
            raise
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None
        if header.attributes & CODEC_MASK:
            codec = codec or header.attributes & CODEC_MASK
            for _, _, key, value, _ in records:
                room -= BODY_AT[1] + len(key or b"") + len(value or b"")  # at most its decompressed size
        if header.magic and header.attributes & TIMESTAMP_TYPE_BIT:
            has_append_time = True
        for _, timestamp, key, value, _ in records:
            produced.append((len(produced), timestamp, key, value, []))
        pos = header.end


def _header(data: Buffer, pos: int, any_offset: bool) -> BatchHeader | None:
    """The message at ``pos``; None when ``data`` ends before it does."""
    if len(data) - pos <= MAGIC_AT:
        return None
    size, magic = SIZE_AND_MAGIC.unpack_from(data, pos + 8)
    return parse_message(data, pos, size, magic, any_offset=any_offset)


def _inflate(value: bytes, codec: int, magic: int, max_bytes: int) -> bytes:
    if codec >= ZSTD:
        name = CODEC_NAMES.get(codec, str(codec))
        raise CorruptRecordError(f"codec {name}, which message sets never had,")
    if codec == LZ4 and magic == 0:
        value = with_correct_lz4_checksum(value)
    return codec_for(codec).decompress(value, max_bytes)


def _last_offset(data: bytes) -> int:
    """The offset of the last message of a wrapper's decompressed value, or of the last before a malformed one."""
    pos = offset = 0
    while pos + 12 <= len(data):
        offset, size = _OFFSET_AND_SIZE.unpack_from(data, pos)
        if size < 0:
            break
        pos += 12 + size
    return int(offset)


def _inner(data: bytes, magic: int, any_offset: bool) -> Iterator[RawRecord]:
    """The plain messages of a wrapper's decompressed value, with unchanged offsets."""
    pos = 0
    last = -1
    while pos < len(data):
        header = _header(data, pos, any_offset)
        if header is None:
            raise CorruptRecordError(f"an inner message that is cut at byte {pos}")
        if header.magic != magic or header.attributes & CODEC_MASK:
            raise CorruptRecordError(f"an inner message v{header.magic} with attributes {header.attributes:#x}")
        check_message_crc(data, header)
        if not any_offset and (header.base_offset <= last or header.base_offset == _MAX_OFFSET):
            raise CorruptRecordError(f"an inner message at offset {header.base_offset} after {last}")
        last = header.base_offset
        timestamp, key, value = _fields(data, pos, header.end, magic)
        yield last, timestamp, key, value, []
        pos = header.end


def _fields(data: bytes, start: int, end: int, magic: int) -> tuple[int, bytes | None, bytes | None]:
    """Timestamp, key and value of the message ``data[start:end]``, which is at least as long as an empty one."""
    timestamp = _NO_TIMESTAMP
    if magic:
        timestamp = int(_TIMESTAMP.unpack_from(data, start + TIMESTAMP_AT)[0])
    pos = start + BODY_AT[magic]
    key: bytes | None = None
    length = int(_LENGTH.unpack_from(data, pos)[0])
    pos += 4
    if length >= 0:
        if length > end - pos - 4:
            raise CorruptRecordError(f"a key of {length} bytes at byte {pos}, where {end - pos} are left")
        key = data[pos : pos + length]
        pos += length
    elif length != -1:
        raise CorruptRecordError(f"a key of {length} bytes at byte {pos}")
    value: bytes | None = None
    length = int(_LENGTH.unpack_from(data, pos)[0])
    pos += 4
    if length >= 0:
        value = data[pos : pos + length]
        pos += length
    elif length != -1:
        raise CorruptRecordError(f"a value of {length} bytes at byte {pos}")
    if pos != end:
        raise CorruptRecordError(f"a message that should end at byte {end} ends at byte {pos}")
    return timestamp, key, value


# -- lz4 frames in message sets v0 -------------------------------------------------------------------------------------
#
#     magic       u32 LE  184d2204
#     flags       u8      version 01, independent blocks, block checksums, content size, content checksum, 0, dictionary
#     block size  u8
#    [content size  u64 LE]   when the flags say so
#    [dictionary    u32 LE]   when the flags say so
#     checksum    u8      second byte of xxHash-32 of flags and all that follows them
#
# Clients and brokers before 0.10 computed the hash from the magic on. Message sets v0 have this broken checksum,
# whatever the writer's version; v1 and later have the correct one (KIP-57). Java's readers ignore the byte in v0;
# libraries for lz4 check it, so it is corrected before they read it.

_MAGIC: Final = b"\x04\x22\x4d\x18"
_FLAGS_AT: Final = 4
_LEAST_BYTES: Final = 7
_CONTENT_SIZE_BIT: Final = 0x08
_DICTIONARY_BIT: Final = 0x01

_PRIME_1: Final = 2654435761
_PRIME_2: Final = 2246822519
_PRIME_3: Final = 3266489917
_PRIME_4: Final = 668265263
_PRIME_5: Final = 374761393
_32_BITS: Final = 0xFFFFFFFF


def with_correct_lz4_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that the format requires. CorruptRecordError for anything but an lz4 frame."""
    at = _checksum_at(frame)
    return frame[:at] + _checksum(frame[_FLAGS_AT:at]) + frame[at + 1 :]


def with_broken_lz4_checksum(frame: bytes) -> bytes:
    """The frame with the checksum that brokers before 0.10 expect. CorruptRecordError for anything but an lz4 frame."""
    at = _checksum_at(frame)
    return frame[:at] + _checksum(frame[:at]) + frame[at + 1 :]


def _checksum_at(frame: bytes) -> int:
    if len(frame) < _LEAST_BYTES or not frame.startswith(_MAGIC):
        raise CorruptRecordError("lz4 data without the header of a frame")
    flags = frame[_FLAGS_AT]
    at = _FLAGS_AT + 2
    if flags & _CONTENT_SIZE_BIT:
        at += 8
    if flags & _DICTIONARY_BIT:
        at += 4
    if at >= len(frame):
        raise CorruptRecordError("lz4 data that ends in the header of its frame")
    return at


def _checksum(data: bytes) -> bytes:
    return bytes(((_xxh32(data) >> 8) & 0xFF,))


def _xxh32(data: bytes) -> int:
    """xxHash-32 with seed 0. The four lanes are for 16 bytes and more, which only a broken header with both of the
    optional fields has."""
    size = len(data)
    pos = 0
    if size >= 16:
        lanes = [(_PRIME_1 + _PRIME_2) & _32_BITS, _PRIME_2, 0, -_PRIME_1 & _32_BITS]
        while pos + 16 <= size:
            for lane in range(4):
                lanes[lane] = _rotate((lanes[lane] + _word(data, pos) * _PRIME_2) & _32_BITS, 13) * _PRIME_1 & _32_BITS
                pos += 4
        result = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    else:
        result = _PRIME_5
    result = (result + size) & _32_BITS
    while pos + 4 <= size:
        result = (result + _word(data, pos) * _PRIME_3) & _32_BITS
        result = _rotate(result, 17) * _PRIME_4 & _32_BITS
        pos += 4
    while pos < size:
        result = _rotate((result + data[pos] * _PRIME_5) & _32_BITS, 11) * _PRIME_1 & _32_BITS
        pos += 1
    result = (result ^ result >> 15) * _PRIME_2 & _32_BITS
    result = (result ^ result >> 13) * _PRIME_3 & _32_BITS
    return result ^ result >> 16


def _word(data: bytes, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 4], "little")


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> (32 - count)) & _32_BITS


# -- building ---------------------------------------------------------------------------------------------------------

OVERHEAD_BYTES: Final = (26, 34)
"""Bytes of a message without its key and its value, by magic."""

_HEAD: Final = struct.Struct(">qiI")
_BODY: Final = (struct.Struct(">bb"), struct.Struct(">bbq"))
_CRC_AND_BACK: Final = 4
_NULL: Final = b"\xff\xff\xff\xff"


class MessageSetBuilder:
    """Collects records for one message set of ``magic`` 0 or 1.

    ``limit_bytes`` bounds the set before compression; a first record is taken whatever its size. ``compression``: a
    codec's number, ``level`` its level or None for the codec's default. zstd and codecs that are not available raise
    :class:`~kafka.errors.UnsupportedCodecError` and :class:`~kafka.errors.UnsupportedForMessageFormatError` here.

    Read only: ``size_bytes``, ``records_count``, ``base_timestamp`` (that of the first record), ``max_timestamp``; -1
    for both while the set is empty.
    """

    __slots__ = (
        "_compression", "_is_built", "_level", "_records", "base_timestamp", "limit_bytes", "magic", "max_timestamp",
        "records_count", "size_bytes",
    )  # fmt: skip

    def __init__(self, limit_bytes: int, magic: int, compression: int = NONE, level: int | None = None) -> None:
        check_codec(compression)
        self.limit_bytes = limit_bytes
        self.magic = magic
        self.size_bytes = 0
        self.records_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._compression = compression
        self._level = level
        self._records: list[RawRecord] = []
        self._is_built = False

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: HeaderItems | None = None) -> int:
        """Add one record; ``timestamp`` in ms since the epoch, which v0 does not keep. Returns its offset within the
        set, counted from 0, or :data:`~kafka.records.builder.NO_ROOM` (-1): the set is unchanged then.

        Raises :class:`~kafka.errors.UnsupportedForMessageFormatError` for a record with headers."""
        if headers:
            raise UnsupportedForMessageFormatError(f"message sets v{self.magic} have no record headers (KIP-82)")
        count = self.records_count
        size = self.size_bytes + self.size_of(timestamp, key, value)
        if self._is_built or (count and size > self.limit_bytes):
            return NO_ROOM
        self._records.append((count, timestamp, key, value, []))
        self.size_bytes = size
        self.records_count = count + 1
        if not count:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return count

    def size_of(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: HeaderItems | None = None
    ) -> int:
        """How many bytes the record would add to this set, exactly."""
        return OVERHEAD_BYTES[self.magic] + (0 if key is None else len(key)) + (0 if value is None else len(value))

    def has_room(self, record_bytes: int) -> bool:
        """Whether :meth:`append` would accept a record of this size (from :meth:`size_of`)."""
        if self._is_built:
            return False
        return self.records_count == 0 or self.size_bytes + record_bytes <= self.limit_bytes

    @property
    def is_built(self) -> bool:
        return self._is_built

    def build(self) -> bytes:
        """The set's bytes, with offsets from 0 on. After the first call no record is accepted.

        Raises :class:`~kafka.errors.IllegalStateError` for a set without records."""
        if not self.records_count:
            raise IllegalStateError("a message set without records cannot be built")
        self._is_built = True
        return encode_message_set(self._records, self.magic, self._compression, level=self._level)


def encode_message_set(
    records: Sequence[RawRecord],
    magic: int,
    compression: int = NONE,
    *,
    timestamp_type: int = CREATE_TIME,
    level: int | None = None,
) -> bytes:
    """The records as a message set of ``magic`` 0 or 1, at the offsets that they have; their headers are dropped.

    With ``compression`` it is one wrapper, else plain messages one after another. ``timestamp_type`` (v1):
    :data:`~kafka.records.header.LOG_APPEND_TIME` marks the timestamps as the broker's; they are one and the same in
    all records then. Errors: those of :func:`check_codec`.
    """
    check_codec(compression)
    if not records:
        return b""
    time_bit = TIMESTAMP_TYPE_BIT if magic and timestamp_type == LOG_APPEND_TIME else 0
    if compression == NONE:
        return b"".join(
            [
                _message(magic, time_bit, offset, timestamp, key, value)
                for offset, timestamp, key, value, _ in records
            ]
        )
    base = records[0][0] if magic else 0
    newest = records[0][1]
    inner: list[bytes] = []
    for offset, timestamp, key, value, _ in records:
        if timestamp > newest:
            newest = timestamp
        inner.append(_message(magic, time_bit, offset - base, timestamp, key, value))
    body = codec_for(compression).compress(b"".join(inner), level)
    if compression == LZ4 and magic == 0:
        body = with_broken_lz4_checksum(body)
    return _message(magic, compression | time_bit, records[-1][0], newest, None, body)


def check_codec(compression: int) -> None:
    """Raise unless message sets may have the codec: :class:`~kafka.errors.UnsupportedForMessageFormatError` for zstd,
    which came with Kafka 2.1, :class:`~kafka.errors.UnsupportedCodecError` for one that is not available here."""
    if compression >= ZSTD:
        name = CODEC_NAMES.get(compression, str(compression))
        raise UnsupportedForMessageFormatError(f"message sets have no compression {name}")
    if compression != NONE:
        codec_for(compression)


def _message(
    magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    head = _BODY[1].pack(1, attributes, timestamp) if magic else _BODY[0].pack(0, attributes)
    body = b"".join(
        (
            head,
            _NULL if key is None else _LENGTH.pack(len(key)),
            key or b"",
            _NULL if value is None else _LENGTH.pack(len(value)),
            value or b"",
        )
    )
    return _HEAD.pack(offset, _CRC_AND_BACK + len(body), zlib.crc32(body)) + body

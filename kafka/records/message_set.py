"""Message sets v0 and v1, which brokers before 0.11 keep and speak: from their bytes to records.

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

A set is messages one behind another, without a head of its own; what a broker sends may end in the middle of one. A
*wrapper* is a message with a codec: its value is another set, compressed, of plain messages of the same magic. The
wrapper's offset is that of its last message. Inside, v0 has each message's own offset; v1 counts from anything (0,
where a producer wrote it), so that a broker need not compress anew (KIP-31): the last one is the wrapper's. When the
wrapper of v1 has the broker's time (bit 3), so do all its messages (KIP-32).

Messages of the outer level are found by :func:`kafka.records.header.iter_batches`, as batches are; and
:func:`kafka.records.reader.decode_raw` calls what is here for their magics, so readers of logs need no second way.
What producers send is read by :func:`decode_produced` instead, since their offsets mean nothing. Writing is in
:mod:`kafka.records.message_set_builder`.

Source: the protocol guide's section "Old Message Format"; KIP-31, KIP-32, KIP-57 (lz4).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafka.errors import CorruptRecordError
from kafka.records.compression import CODEC_NAMES, LZ4, ZSTD, InflationLimitError, codec_for
from kafka.records.header import (
    CODEC_MASK,
    MAGIC_AT,
    SIZE_AND_MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    parse_message,
)
from kafka.records.lz4_header import mend

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
    found = zlib.crc32(memoryview(data)[header.start + CRC_FROM : header.end])
    if found != header.crc:
        raise CorruptRecordError(
            f"the message v{header.magic} at offset {header.base_offset}, byte {header.start}, "
            f"has the CRC {found:#010x} and claims {header.crc:#010x}"
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
    wrapper holds. ``held_bytes``: what the wrapper has inflated to.

    CRCs are checked, of the outer message and of the inner ones. The constructor and the iteration raise
    :class:`~kafka.errors.CorruptRecordError` for what is malformed, wrapped twice or inflates above
    ``max_decompressed_bytes``; the constructor :class:`~kafka.errors.UnsupportedCodecError` for a codec that is not
    available here. ``any_offset``: a producer sent the message, and offsets are given as they stand there.
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
        self.held_bytes = 0
        self._shift = 0
        self._is_relative = False
        """The last of the messages inside has the wrapper's offset, and the others lie before it."""
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
        self.held_bytes = len(self._inflated)
        if not self.held_bytes:
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
    """What a producer sent, which may mix plain messages and wrappers: the records with offsets counted from 0, the
    number of the first codec in use (0: none), and whether a message claims to have a broker's time.

    A message that is cut at the end is passed over. ``max_decompressed_bytes`` is for all wrappers together. Errors:
    those of :func:`decode_message`, but offsets may be anything."""
    found: list[RawRecord] = []
    codec = 0
    has_append_time = False
    room = max_decompressed_bytes
    pos = 0
    while True:
        header = _header(data, pos, any_offset=True)
        if header is None:
            return found, codec, has_append_time
        try:
            records = list(MessageReader(data, header, room, any_offset=True))
        except InflationLimitError:
            raise
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]} in {header!r}") from None
        if header.attributes & CODEC_MASK:
            codec = codec or header.attributes & CODEC_MASK
            for _, _, key, value, _ in records:
                room -= BODY_AT[1] + len(key or b"") + len(value or b"")  # at most what it has inflated to
        if header.magic and header.attributes & TIMESTAMP_TYPE_BIT:
            has_append_time = True
        for _, timestamp, key, value, _ in records:
            found.append((len(found), timestamp, key, value, []))
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
        value = mend(value)
    return codec_for(codec).decompress(value, max_bytes)


def _last_offset(data: bytes) -> int:
    """The offset of the last message of a wrapper's inflated value; of the last before one that is malformed."""
    pos = offset = 0
    while pos + 12 <= len(data):
        offset, size = _OFFSET_AND_SIZE.unpack_from(data, pos)
        if size < 0:
            break
        pos += 12 + size
    return int(offset)


def _inner(data: bytes, magic: int, any_offset: bool) -> Iterator[RawRecord]:
    """The plain messages of a wrapper's inflated value, with offsets as they stand there."""
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
            raise CorruptRecordError(f"an inner message at offset {header.base_offset} behind {last}")
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



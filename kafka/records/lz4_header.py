"""The one fault of old Kafka with lz4: the checksum in the header of a frame.

    magic       u32 LE  184d2204
    flags       u8      version 01, independent blocks, block checksums, content size, content checksum, 0, dictionary
    block size  u8
   [content size  u64 LE]   when the flags say so
   [dictionary    u32 LE]   likewise
    checksum    u8      second byte of xxHash-32 of flags and all that follows them

Clients and brokers before 0.10 took the hash from the magic on. So it stays in message sets v0, whoever writes them,
while v1 and later have it right (KIP-57). Java's readers do not look at the byte in v0; libraries for lz4 do, and so
:func:`mend` puts the right one in before they see it.
"""

from __future__ import annotations

from typing import Final

from kafka.errors import CorruptRecordError

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


def mend(frame: bytes) -> bytes:
    """The frame with the checksum that the format asks for. CorruptRecordError for what is no lz4 frame."""
    at = _checksum_at(frame)
    return frame[:at] + _checksum(frame[_FLAGS_AT:at]) + frame[at + 1 :]


def spoil(frame: bytes) -> bytes:
    """The frame with the checksum that brokers before 0.10 expect. CorruptRecordError for what is no lz4 frame."""
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
    """xxHash-32 with seed 0. The four lanes are for 16 bytes and more, which only a spoilt header with both of the
    optional fields has."""
    size = len(data)
    pos = 0
    if size >= 16:
        lanes = [(_PRIME_1 + _PRIME_2) & _32_BITS, _PRIME_2, 0, -_PRIME_1 & _32_BITS]
        while pos + 16 <= size:
            for lane in range(4):
                lanes[lane] = _rotate((lanes[lane] + _word(data, pos) * _PRIME_2) & _32_BITS, 13) * _PRIME_1 & _32_BITS
                pos += 4
        found = _rotate(lanes[0], 1) + _rotate(lanes[1], 7) + _rotate(lanes[2], 12) + _rotate(lanes[3], 18)
    else:
        found = _PRIME_5
    found = (found + size) & _32_BITS
    while pos + 4 <= size:
        found = (found + _word(data, pos) * _PRIME_3) & _32_BITS
        found = _rotate(found, 17) * _PRIME_4 & _32_BITS
        pos += 4
    while pos < size:
        found = _rotate((found + data[pos] * _PRIME_5) & _32_BITS, 11) * _PRIME_1 & _32_BITS
        pos += 1
    found = (found ^ found >> 15) * _PRIME_2 & _32_BITS
    found = (found ^ found >> 13) * _PRIME_3 & _32_BITS
    return found ^ found >> 16


def _word(data: bytes, pos: int) -> int:
    return int.from_bytes(data[pos : pos + 4], "little")


def _rotate(word: int, count: int) -> int:
    return (word << count | word >> (32 - count)) & _32_BITS

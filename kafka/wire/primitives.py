"""Variable-length integers and the few things that compiled codecs call instead of writing them out.

An unsigned varint has seven bits a byte, the lowest first, and the top bit set on all but the last byte; at most five
bytes for 32 bits (protocol guide, "UNSIGNED_VARINT"; KIP-482). Record fields, which are signed varints, are read and
written in ``kafka/records``.
"""

from __future__ import annotations

from typing import Final, NoReturn

from kafka.errors import KafkaProtocolError

_TABLE_SIZE: Final = 2048


def _encode(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


_TABLE: Final = tuple(map(_encode, range(_TABLE_SIZE)))


def uvarint(n: int) -> bytes:
    """``n`` (0 to 2**32 - 1) as an unsigned varint."""
    return _TABLE[n] if n < _TABLE_SIZE else _encode(n)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at ``position``, and the position behind it; IndexError when the data ends in it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                corrupt("a varint above 32 bits", position)
            return value, position
        shift += 7
        if shift == 35:
            corrupt("a varint of more than five bytes", position)


def corrupt(text: str, position: int) -> NoReturn:
    """Raise the one protocol error for a fault at ``position``."""
    raise KafkaProtocolError(text, offset=position)

"""Zigzag variable-length integers of record batches v2: 7 bits a byte, the lowest first, the high bit says "more".

    value     0   -1    1   -2  ...  63   -64    64
    zigzag    0    1    2    3      126   127   128
    bytes    00   01   02   03       7e    7f  80 01

Small values come from a table, since nearly every varint of a batch is one: lengths, deltas of offsets and timestamps.
The unsigned varints of message headers are another kind (:mod:`kafka.wire.primitives`); so are their errors.

Source: the protocol guide's section "Record Batch" (its varints are Protocol Buffers' ``sint32`` and ``sint64``).
"""

from __future__ import annotations

from typing import Final

from kafka.errors import CorruptRecordError

TABLE_SIZE: Final = 4096
"""How many values, from 0 up, :data:`ZIGZAG` holds."""

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """``value`` (a signed integer of 32 or 64 bits) as a zigzag varint of 1 to 10 bytes."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


ZIGZAG: Final[list[bytes]] = [encode_varint(value) for value in range(TABLE_SIZE)]
"""``ZIGZAG[n]`` is :func:`encode_varint` of ``n``: 0.02 us instead of 0.4. Two of its bytes reach to 8191; the half of
that covers what batches hold and keeps the table at 0.2 MB."""


def size_of_varint(value: int) -> int:
    """How many bytes :func:`encode_varint` takes for ``value``."""
    rest = (value if value >= 0 else ~value) << 1
    return 1 if rest < 0x80 else (rest.bit_length() + 6) // 7


def decode_varint(data: bytes, pos: int, max_bytes: int = MAX_VARLONG_BYTES) -> tuple[int, int]:
    """Read one zigzag varint at ``pos``: ``(value, position after it)``.

    Raises :class:`~kafka.errors.CorruptRecordError` for one that goes on beyond ``max_bytes`` or does not fit into the
    integer of that size (32 bits for 5 bytes, 64 for 10), and :class:`IndexError` at the end of ``data``: callers in
    the hot path turn that into their own error once, not per value.
    """
    rest = 0
    shift = 0
    while True:
        byte = data[pos]
        pos += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * max_bytes:
            raise CorruptRecordError(f"a varint of more than {max_bytes} bytes at byte {pos - max_bytes}")
    if rest >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
        raise CorruptRecordError(f"a varint that ends at byte {pos} is too large")
    return (rest >> 1) ^ -(rest & 1), pos

"""MurmurHash 2, 32 bits, as Kafka's Java clients compute it: a record's key decides its partition in every client.

The seed and the mixing are Austin Appleby's reference algorithm in its little-endian form; Kafka's seed is 0x9747b28c.
The result is unsigned here; Java's is the same 32 bits as a signed integer, and clears the sign bit before the modulo.

Source: the Java client's ``Utils.murmur2`` and ``Utils.toPositive``.
"""

from __future__ import annotations

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The hash of ``data`` as an unsigned integer of 32 bits."""
    length = len(data)
    words = length >> 2
    state = (_SEED ^ length) & _MASK
    for word in struct.unpack_from(f"<{words}I", data):
        word = word * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        state = (state * _FACTOR & _MASK) ^ word
    rest = data[words << 2 :]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    state = (state ^ state >> 13) * _FACTOR & _MASK
    return state ^ state >> 15


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition, of 0 to ``partitions_count - 1``, that every Kafka client gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count

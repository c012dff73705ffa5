"""MurmurHash 2, 32 bits, as Kafka's Java clients compute it: a record's key decides its partition in every client.

The seed and the mixing are Austin Appleby's reference algorithm in its little-endian form; Kafka's seed is 0x9747b28c.
The result is unsigned here; Java's is the same 32 bits as a signed integer, and clears the sign bit before the modulo.

Source: the Java client's ``Utils.murmur2`` and ``Utils.toPositive``.
"""

from __future__ import annotations

import struct
from typing import Final

from kafka._compiled import IS_COMPILED

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_FACTOR_LOW: Final = 0xE995
_FACTOR_HIGH: Final = 0x5BD1
_MASK: Final = 0xFFFFFFFF


def product_in_halves(number: int) -> int:
    """A number of 32 bits times the factor, modulo 2**32: each product in it is of two numbers of 16 bits."""
    low = number & 0xFFFF
    high = (low * _FACTOR_HIGH + (number >> 16) * _FACTOR_LOW) & 0xFFFF
    return (low * _FACTOR_LOW + (high << 16)) & _MASK


def mixed_in_halves(word: int) -> int:
    """What four bytes of the key, little-endian, contribute."""
    word = product_in_halves(word)
    return product_in_halves(word ^ word >> 24)


def _times_factor(number: int) -> int:
    """The product, modulo 2**32.

    In halves when compiled: from 30 bits on mypyc leaves a product to Python, which looks for signals in it, and mypyc
    ends the process ("fatal: out of memory") when Ctrl-C is found there."""
    return product_in_halves(number) if IS_COMPILED else number * _FACTOR & _MASK


def murmur2(data: bytes) -> int:
    """The hash of ``data`` as an unsigned integer of 32 bits."""
    length = len(data)
    words = length >> 2
    state = (_SEED ^ length) & _MASK
    for word in struct.unpack_from(f"<{words}I", data):
        if IS_COMPILED:
            state = product_in_halves(state) ^ mixed_in_halves(word)
        else:  # the same, without calls
            word = word * _FACTOR & _MASK
            word = (word ^ word >> 24) * _FACTOR & _MASK
            state = (state * _FACTOR & _MASK) ^ word
    rest = data[words << 2 :]
    if rest:
        state = _times_factor(state ^ int.from_bytes(rest, "little"))
    state = _times_factor(state ^ state >> 13)
    return state ^ state >> 15


def partition_for_key(key: bytes, partitions_count: int) -> int:
    """The partition, of 0 to ``partitions_count - 1``, that every Kafka client gives a record with this key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions_count

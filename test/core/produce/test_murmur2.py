from __future__ import annotations

import pytest

from kafka.core.produce.partitioning import mixed_in_halves, murmur2, partition_for_key, product_in_halves


@pytest.mark.parametrize(
    ("key", "as_java_prints_it"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, as_java_prints_it: int) -> None:
    assert murmur2(key) == as_java_prints_it & 0xFFFFFFFF


def test_a_key_gets_the_partition_that_java_gives_it() -> None:
    assert partition_for_key(b"foobar", 10) == (-790332482 & 0x7FFFFFFF) % 10


@pytest.mark.parametrize("length", range(12))
def test_any_length_of_key_has_a_partition_in_range(length: int) -> None:
    assert 0 <= partition_for_key(bytes(range(length)), 7) < 7


@pytest.mark.parametrize("number", [0, 1, 0xFFFF, 0x10000, 0x12345678, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_products_in_halves_are_those_of_the_reference(number: int) -> None:
    """Austin Appleby's MurmurHash2: ``m = 0x5bd1e995``, ``r = 24``; ``k *= m; k ^= k >> r; k *= m``."""
    product = number * 0x5BD1E995 % 2**32
    assert product_in_halves(number) == product
    assert mixed_in_halves(number) == (product ^ product // 2**24) * 0x5BD1E995 % 2**32

from __future__ import annotations

import pytest

from kafka.core.produce.murmur2 import murmur2, partition_for_key


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

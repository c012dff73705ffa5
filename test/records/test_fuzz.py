"""The short form of ``fuzz.py``: ``KAFKA_TEST_FUZZ_INPUTS`` says how many inputs, ``KAFKA_TEST_SEED`` which."""

from __future__ import annotations

import os
import random

import pytest

from kafka.errors import CorruptRecordError
from kafka.records import CODECS, decode_raw, iter_batches, parse_header
from test.records import fuzz
from test.support import seeds

INPUTS = int(os.environ.get("KAFKA_TEST_FUZZ_INPUTS", "2000"))
SEED = seeds.seed("records")


@pytest.mark.timeout(60 + INPUTS // 100)
def test_any_bytes_are_read_or_are_an_error_of_ours() -> None:
    tally = fuzz.run(SEED, 0, INPUTS)
    for read in fuzz.READERS:
        met = {name for name in tally.outcomes if name.startswith(f"{read.__name__}: ")}
        assert f"{read.__name__}: read" in met  # otherwise it is only first checks that were tested
        assert f"{read.__name__}: CorruptRecordError" in met


def test_an_input_is_the_same_whatever_came_before_it() -> None:
    assert fuzz.Fuzzer(3).input(17) == fuzz.Fuzzer(3).input(17)
    assert fuzz.Fuzzer(3).input(17) != fuzz.Fuzzer(4).input(17)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 50])
def test_a_wrapper_within_a_wrapper_is_corrupt_however_deep(magic: int, codec: int, depth: int) -> None:
    inner = fuzz.message_set(random.Random(1), magic, 0)
    for _ in range(depth + 1):
        inner = fuzz.wrapper(magic, codec, inner)
    (header,) = iter_batches(inner)
    with pytest.raises(CorruptRecordError, match="inner message"):
        decode_raw(inner, header)


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_bomb_in_a_batch_is_an_error_that_says_the_bound(codec: int) -> None:
    bomb = fuzz.v2_around(codec, bytes(3 << 20), 1)
    header = parse_header(bomb)
    assert header is not None
    with pytest.raises(CorruptRecordError, match="above the bound of 1048576 bytes"):
        decode_raw(bomb, header, 1 << 20)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_in_a_wrapper_is_an_error_that_says_the_bound(magic: int, codec: int) -> None:
    bomb = fuzz.wrapper(magic, codec, bytes(3 << 20))
    (header,) = iter_batches(bomb)
    with pytest.raises(CorruptRecordError, match="above the bound of 1048576 bytes"):
        decode_raw(bomb, header, 1 << 20)

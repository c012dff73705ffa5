"""The seed of a test run: every random test draws from it, so each run tries other inputs and any run can be repeated.

pytest prints ``KAFKA_TEST_SEED=n`` at the top of a run, and again in the report of each test that fails. With that
variable set, a run draws the same numbers again. Hypothesis is seeded from the same number (``conftest.py``).

A test gets its own stream from :func:`rng` or its own seeds from :func:`seeds`: the values depend on the run's seed and
on the name given, not on which tests ran before in the same process.
"""

from __future__ import annotations

import os
import random
import zlib
from typing import Final

import pytest

VARIABLE: Final = "KAFKA_TEST_SEED"

_SEED_LIMIT: Final = 1 << 32


def run_seed() -> int:
    """The seed of this run. The first process that asks draws it; its child processes inherit it."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(random.SystemRandom().randrange(_SEED_LIMIT))
    return int(os.environ[VARIABLE])


def seed(name: str) -> int:
    """A number below 2**32 that belongs to ``name`` in this run."""
    return zlib.crc32(name.encode(), run_seed() % _SEED_LIMIT)


def seeds(name: str, count: int) -> range:
    """``count`` consecutive seeds that belong to ``name`` in this run."""
    first = seed(name)
    return range(first, first + count)


def rng(name: str) -> random.Random:
    """A random number generator that belongs to ``name`` in this run."""
    return random.Random(seed(name))


def each_seed(count: int) -> pytest.MarkDecorator:
    """Run a test with ``count`` seeds of this run as its parameter ``seed``. The test ids are those of every run."""
    return pytest.mark.parametrize("seed", [seed(str(n)) for n in range(count)], ids=[f"seed{n}" for n in range(count)])

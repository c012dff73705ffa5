"""Chance and time of the process, taken over by a seed.

What asks the system for chance (``uuid.uuid4``, ``random.Random()`` without a seed, ``os.urandom``) or for time gets it
from the world while :func:`hermetic` is in force, so that nobody has to hand it in. Code that is missed shows: the same
seed gives two different traces (``test_simulation.py`` compares them over two processes).
"""

from __future__ import annotations

import contextlib
import os
import random
import time
import uuid
from collections.abc import Callable, Iterator
from unittest import mock

_Random = random.Random


@contextlib.contextmanager
def hermetic(rng: random.Random, monotonic: Callable[[], float], wall: Callable[[], float]) -> Iterator[None]:
    """Until the end of the block, unseeded chance comes from ``rng`` and time from these."""

    class Seeded(_Random):
        """Without a seed, one from the world."""

        def __new__(cls, *arguments: object) -> Seeded:
            return super().__new__(cls)

        def __init__(self, *arguments: object) -> None:
            super().__init__(*(arguments or (rng.getrandbits(64),)))  # type: ignore[arg-type]

    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in (
            (uuid, "uuid4", lambda: uuid.UUID(int=rng.getrandbits(128), version=4)),
            (os, "urandom", rng.randbytes),
            (random, "Random", Seeded),
            (random, "SystemRandom", Seeded),
            (random, "choice", rng.choice),
            (random, "random", rng.random),
            (random, "uniform", rng.uniform),
            (time, "monotonic", monotonic),
            (time, "time", wall),
        ):
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield

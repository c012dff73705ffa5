"""How a worker runs jobs: the pools by name, and the loop that they share with the worker.

``asyncio``, ``fork`` and ``prefork`` come later, behind the same interface.
"""

from __future__ import annotations

from kafka.errors import IllegalArgumentError
from kafka.net.loop import Loop
from kafka.tasks.errors import did_you_mean
from kafka.tasks.pools.base import Finished, Pool, Run, Wake
from kafka.tasks.pools.inline import InlinePool
from kafka.tasks.pools.threads import ThreadPool

__all__ = [
    "LATER",
    "MOST_CONCURRENCY",
    "POOLS",
    "Finished",
    "InlinePool",
    "Pool",
    "Run",
    "ThreadPool",
    "Wake",
    "check_pool",
    "make_loop",
    "make_pool",
]

POOLS: dict[str, type[InlinePool] | type[ThreadPool]] = {"inline": InlinePool, "threads": ThreadPool}
"""Name on the command line -> pool."""

LATER = frozenset({"asyncio", "fork", "prefork"})
"""Pools of the design that this release does not have."""

MOST_CONCURRENCY = 1000
"""Slots of one worker; who wants more jobs at once wants more workers."""


def make_loop() -> Loop:
    """The select loop of a worker process: brokers' sockets, children's channels, signals and timers."""
    return Loop()


def make_pool(name: str, run: Run, concurrency: int, wake: Wake) -> Pool:
    """The pool of that name; :class:`IllegalArgumentError` for one that is unknown or not here yet."""
    check_pool(name)
    if not 1 <= concurrency <= MOST_CONCURRENCY:
        raise IllegalArgumentError(
            f"the concurrency of a pool is at least 1 and at most {MOST_CONCURRENCY}, not {concurrency}"
        )
    return POOLS[name](run, concurrency, wake)


def check_pool(name: str) -> str:
    """``name`` itself when there is such a pool; an error that names those that there are else."""
    if name in LATER:
        there = ", ".join(sorted(POOLS))
        raise IllegalArgumentError(f"the pool {name!r} is not in this release; available are {there}")
    if name not in POOLS:
        raise IllegalArgumentError(f"there is no pool {name!r}{did_you_mean(name, POOLS)}")
    return name

"""A process for each job: the strongest isolation there is, at the price of a fork for each.

It is the pool of kept children with a quota of one job, kept strictly: a child that has run its job ends, whatever
became of it, and nothing of it reaches the next one. Children are started before their job comes, one for each slot, so
a job waits for no fork while there is a free slot.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from kafka.net.loop import Loop
from kafka.tasks.pools.base import Wake
from kafka.tasks.pools.memory import OomCounter, Vitals, vitals
from kafka.tasks.pools.prefork import PreforkPool
from kafka.tasks.pools.processes import Launcher
from kafka.tasks.pools.settings import PoolSettings


class ForkPool(PreforkPool):
    """A pool whose children run one job each."""

    is_strict = True

    def __init__(
        self,
        settings: PoolSettings,
        wake: Wake,
        loop: Loop | None = None,
        launcher: Launcher | None = None,
        rng: Random | None = None,
        look: Callable[[int], Vitals | None] = vitals,
        oom: OomCounter | None = None,
    ) -> None:
        settings = replace(settings, max_jobs_per_child=1, prefetch=1)
        super().__init__(settings, wake, loop, launcher, rng, look, oom)

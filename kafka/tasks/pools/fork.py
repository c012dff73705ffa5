"""A process for each job: the strongest isolation there is, at the price of a fork for each.

It is the pool of kept children with a quota of one job, kept strictly: a child that has run its job ends, whatever
became of it, and nothing of it reaches the next one. Children are started before their job comes, one for each slot, so
a job waits for no fork while there is a free slot.
"""

from __future__ import annotations

from dataclasses import replace

from kafka.tasks.pools.prefork import PreforkPool
from kafka.tasks.pools.settings import PoolSettings


class ForkPool(PreforkPool):
    """A pool whose children run one job each."""

    is_strict = True

    @staticmethod
    def settings_for(given: PoolSettings) -> PoolSettings:
        return replace(given, max_jobs_per_child=1, prefetch=1)

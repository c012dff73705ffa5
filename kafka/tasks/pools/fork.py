"""A process for each job: the strongest isolation there is, at the price of a fork for each.

It is the pool of kept children with children that fork a process for each job
(:mod:`kafka.tasks.pools.child.process_per_job`). Where that cannot be (macOS, and children of ``spawn``, which share
nothing), a child has a quota of one job, kept strictly: when that has ended, whatever became of it, the child ends.
Such children are started before their job comes, one for each slot, so a job waits for no start while there is a free
slot.
"""

from __future__ import annotations

from dataclasses import replace

from kafka.tasks.pools import kernel
from kafka.tasks.pools.prefork import PreforkPool
from kafka.tasks.pools.settings import PoolSettings, check_start_method


class ForkPool(PreforkPool):
    """A pool whose processes run one job each."""

    is_strict = True

    @staticmethod
    def settings_for(given: PoolSettings) -> PoolSettings:
        # Only a subreaper can tell that nothing of the last job is left.
        if check_start_method(given.start_method) != "spawn" and kernel.adopt_orphans():
            return replace(given, max_jobs_per_child=None, process_per_job=True)
        return replace(given, max_jobs_per_child=1, prefetch=1)

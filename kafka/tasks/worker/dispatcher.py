"""Gives jobs to the pool and takes them back before they have begun; decides which job is next for a free slot:
handlers of killed jobs, then the buffers. Jobs that the pool has not begun can be taken back at any time and return to
their place: the worker does so when suspects arrive, when it renews locks (a long job may be in front of them) and when
it stops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from kafka.tasks.pools.base import Finished, Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import BUFFERED, FINISHED, RUNNING, Leases
from kafka.tasks.worker.lost_jobs import LostJobHandlers
from kafka.tasks.worker.source_buffers import SourceBuffers

EXPECT_SUSPECTS_S: Final = 0.25
"""After a suspect has waited here the pool is not filled ahead for this long, so that the next free slot is a
suspect's: more of them are to be expected."""


class Dispatcher:
    """Moves jobs between a worker's buffers and its pool."""

    __slots__ = ("_buffers", "_expected_until", "_leases", "_lost_jobs", "_now_ms", "_pool", "_submitted")

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        buffers: SourceBuffers,
        lost_jobs: LostJobHandlers,
        now_ms: Callable[[], int],
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._buffers = buffers
        self._lost_jobs = lost_jobs
        self._now_ms = now_ms
        self._expected_until = 0.0
        self._submitted: dict[Job, float] = {}  # the oldest first

    def add(self, job: Job) -> None:
        """Add a leased job that may run."""
        self._leases.set_stage(job.lease, BUFFERED)
        self._buffers[job.lease.source].add(job)

    def fill(self, now: float) -> list[Job]:
        """Start as many jobs as the pool takes. Returns jobs that have expired while they waited here: they leave the
        buffers, and do not start."""
        pool = self._pool
        expired: list[Job] = []

        def submit(job: Job) -> bool:
            expires_ms = job.envelope.expires_ms
            if expires_ms is not None and self._now_ms() >= expires_ms:
                expired.append(job)
                return False
            self._leases.set_stage(job.lease, RUNNING)
            self._submitted[job] = now
            pool.submit(job)
            return True

        if len(self._lost_jobs):
            self._lost_jobs.start(pool.free_slots, pool.submit)
        if self._buffers.has_waiting_suspects:
            self._expected_until = now + EXPECT_SUSPECTS_S
            if pool.busy > pool.concurrency:
                self.take_back()
        free = pool.free_slots
        if now < self._expected_until:
            free = min(free, pool.concurrency - pool.busy)
        self._buffers.start(free, submit)
        return expired

    def on_ended(self, ended: Sequence[Finished]) -> None:
        """The pool has returned these jobs."""
        forget = self._submitted.pop
        for job, _ in ended:
            forget(job, None)

    def submitted(self) -> Iterable[tuple[Job, float]]:
        """The jobs that the pool has, and since when, the oldest first."""
        return self._submitted.items()

    def oldest(self) -> list[float]:
        """Since when the jobs are in the pool that have been there longest, one for each slot at most."""
        return list(islice(self._submitted.values(), self._pool.concurrency))

    def take_back(self) -> None:
        """Take back the jobs that the pool has not begun, in order."""
        for job in reversed(self._pool.recall()):
            lease = job.lease
            if self._lost_jobs.requeue(job):
                continue
            self._submitted.pop(job, None)
            if lease.lost:
                self._leases.set_stage(lease, FINISHED)
            else:
                self._leases.set_stage(lease, BUFFERED)
                self._buffers[lease.source].jobs.appendleft(job)

    def take_unstarted(self) -> list[Job]:
        """Remove all jobs that have not begun, to give them back."""
        self.take_back()
        return self._buffers.take_all()

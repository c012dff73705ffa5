"""Gives jobs to the pool and takes them back before they have begun; decides which job is next for a free slot:
handlers of killed jobs, suspects, then the buffers. Jobs that the pool has not begun can be taken back at any time and
return to their place: the worker does so when suspects arrive, when it renews locks (a long job may be in front of
them) and when it stops.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import BUFFERED, FINISHED, RUNNING, WAITING, Leases
from kafka.tasks.worker.lost_jobs import LostJobHandlers
from kafka.tasks.worker.source_buffers import SourceBuffers
from kafka.tasks.worker.suspects import Suspects


class Dispatcher:
    """Moves jobs between a worker's buffers and its pool. ``on_started`` is called with the jobs that went to the
    pool, many at a time."""

    __slots__ = ("_leases", "_buffers", "_lost_jobs", "_on_started", "_pool", "_suspects")

    def __init__(
        self,
        pool: Pool,
        leases: Leases,
        buffers: SourceBuffers,
        suspects: Suspects,
        lost_jobs: LostJobHandlers,
        on_started: Callable[[list[Job]], None] | None,
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._buffers = buffers
        self._suspects = suspects
        self._lost_jobs = lost_jobs
        self._on_started = on_started

    def add(self, job: Job, now: float) -> None:
        """Add a leased job that may run."""
        if not job.lease.source.suspect:
            self._leases.set_stage(job.lease, BUFFERED)
            buffer = self._buffers[job.lease.source]
            buffer.jobs.append(job)
            buffer.refused_count = 0
            return
        self._leases.set_stage(job.lease, WAITING)
        if self._suspects.add(job, now):
            self.take_back()

    def fill(self, now: float) -> None:
        """Start as many jobs as the pool takes."""
        pool = self._pool
        started: list[Job] = []

        def submit(job: Job) -> None:
            self._leases.set_stage(job.lease, RUNNING)
            if self._on_started is not None:
                started.append(job)
            pool.submit(job)

        if len(self._lost_jobs):
            self._lost_jobs.start(pool.free_slots, pool.submit)
        if self._suspects.start(pool, self._leases.suspects, self._buffers.waits_for_moves(self._leases, now), submit):
            free = pool.free_slots
            if self._suspects.are_expected(now):
                free = min(free, pool.concurrency - pool.busy)
            self._buffers.start(free, submit)
        if started and self._on_started is not None:
            self._on_started(started)

    def take_back(self) -> None:
        """Take back the jobs that the pool has not begun, in order."""
        for job in reversed(self._pool.recall()):
            lease = job.lease
            if self._lost_jobs.requeue(job):
                continue
            if lease.lost:
                self._suspects.on_job_ended(job)
                self._leases.set_stage(lease, FINISHED)
            elif lease.source.suspect:
                self._leases.set_stage(lease, WAITING)
                self._suspects.requeue(job)
            else:
                self._leases.set_stage(lease, BUFFERED)
                self._buffers[lease.source].jobs.appendleft(job)

    def take_unstarted(self) -> list[Job]:
        """Remove all jobs that have not begun, to give them back."""
        self.take_back()
        return [*self._suspects.take_waiting(), *self._buffers.take_all()]

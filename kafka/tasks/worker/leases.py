"""The leases that a worker holds: which stage each is in, and what follows from that for all of them.

:class:`Leases` is the one writer of a lease's stage, claim, job and times, so the sums that the worker
decides by (unfinished jobs of a topic) are kept here and cannot drift from the leases. It decides nothing and calls
nothing back. A new stage is one more name in the row below, and an entry in ``_UNFINISHED`` and ``_UNSETTLED``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from kafka.tasks.delivery.base import Claim, ClaimKind, JobLease, JobSource
from kafka.tasks.pools.runner import Job

NEW, BUFFERED, RUNNING, FINISHING, FINISHED = range(5)
"""Stages of a lease. FINISHING: its records are written, and it is accepted then. FINISHED: accepted, or its claim is
lost and this worker has nothing of it.
"""

_UNFINISHED = (1, 1, 1, 0, 0)
"""By stage: 1 for a job that has not ended, or a record that the worker has not read yet. A running job whose lock is
lost counts until the pool returns it.
"""

_UNSETTLED = (0, 0, 0, 1, 0)
"""By stage: 1 for jobs that have ended and are not accepted yet, also when the lock is lost, because their records are
still being written.
"""


MAX_EXCUSED: Final = 1000
"""Maximum number of suspects whose lost locks are remembered."""


class Leases:
    """What is held. ``unsettled_count`` counts leases that have ended and are not accepted, ``unfinished_count`` jobs
    that are new, buffered or running, ``unfinished_of`` those of each source. ``held_bytes``: the payloads of all.

    The worker that gets a suspect next counts each earlier delivery without a settlement as a crash. A lock that is
    lost while the worker lives is not a crash, so the worker remembers it for when the record returns to it
    (``lease.excused``). Another worker cannot know and counts it.
    """

    __slots__ = ("_held", "_excused", "unsettled_count", "held_bytes", "unfinished_count", "unfinished_of")

    def __init__(self) -> None:
        self.unsettled_count = 0
        self.held_bytes = 0
        self.unfinished_count = 0
        self.unfinished_of: Counter[JobSource] = Counter()
        self._held: dict[JobLease, None] = {}
        self._excused: dict[tuple[str, int, int], set[int]] = {}  # topic, partition, offset: delivery counts

    def __len__(self) -> int:
        return len(self._held)

    def add(self, leases: Iterable[JobLease], now: float, lock_s: float) -> None:
        """Add new leases."""
        until = now + lock_s
        for lease in leases:
            lease.leased_at = now
            lease.locked_until = until
            self._held[lease] = None
            self.held_bytes += len(lease.value or b"")
            self.unfinished_count += 1
            self.unfinished_of[lease.source] += 1
            if lease.deliveries > 1 and lease.source.is_suspect:
                lost = self._excused.get((lease.source.topic, lease.partition, lease.offset), ())
                lease.excused = sum(count < lease.deliveries for count in lost)

    def set_job(self, lease: JobLease, job: Job) -> None:
        """The lease is of a job that may run."""
        lease.job = job

    def set_stage(self, lease: JobLease, stage: int) -> None:
        """Move the lease to another stage."""
        was, lease.stage = lease.stage, stage
        change = _UNFINISHED[stage] - _UNFINISHED[was]
        if change:
            self.unfinished_count += change
            self.unfinished_of[lease.source] += change
        self.unsettled_count += _UNSETTLED[stage] - _UNSETTLED[was]
        if stage == FINISHED:
            self._forget(lease)
            lease.job = None  # a job has its lease: left to the garbage collector, the two cost it a fifth of a worker

    def offer(self, leases: Iterable[JobLease]) -> None:
        """The schedule is asked to keep leases of these running jobs."""
        for lease in leases:
            lease.is_offered = True

    def hand_off(self, lease: JobLease, until: float) -> None:
        """The running job goes on by a lease of the schedule, which holds until then: its lock is not renewed any
        more."""
        lease.claim = Claim(ClaimKind.SCHEDULE)
        lease.locked_until = until

    def handed_off(self) -> list[JobLease]:
        """Leases of jobs that go on by a lease of the schedule."""
        return [lease for lease in self._held if lease.is_handed_off]

    def renewed(self, leases: Iterable[JobLease], until: float) -> None:
        """The claims of these hold until then."""
        for lease in leases:
            lease.locked_until = until

    def finish(self, leases: Iterable[JobLease]) -> None:
        """These are accepted, or their claims are lost."""
        for lease in leases:
            self.set_stage(lease, FINISHED)

    def mark_lost(self, lease: JobLease, is_excused: bool) -> bool:
        """Its lock is lost. False when it is finished or already known to be lost. ``is_excused``: the loss is not a
        crash of the job.
        """
        if lease.lost:
            return False
        if is_excused and lease.source.is_suspect and not lease.stays_in_place:
            self._excuse(lease)
        lease.lost = True
        if lease.stage == FINISHED:
            return False
        self._forget(lease)
        if lease.stage == RUNNING:
            lease.job.cancel()
        elif lease.stage != FINISHING:
            self.set_stage(lease, FINISHED)
        return True

    def mark_cancelled(self, lease: JobLease) -> None:
        """Its running job was cancelled."""
        lease.is_cancelled = True
        lease.job.cancel()

    def of_jobs(self, ids: Collection[str]) -> list[JobLease]:
        """Leases of these jobs that wait for the pool, or are with it."""
        return [
            lease for lease in self._held if lease.stage in (BUFFERED, RUNNING) and lease.job.envelope.id in ids
        ]

    def _forget(self, lease: JobLease) -> None:
        if lease in self._held:
            del self._held[lease]
            self.held_bytes -= len(lease.value or b"")

    def _excuse(self, lease: JobLease) -> None:
        where = (lease.source.topic, lease.partition, lease.offset)
        counts = self._excused.pop(where, set())
        counts.add(lease.deliveries)
        self._excused[where] = counts
        if len(self._excused) > MAX_EXCUSED:
            del self._excused[next(iter(self._excused))]

    def running(self) -> list[JobLease]:
        """Leases of jobs that are with the pool."""
        return [lease for lease in self._held if lease.stage == RUNNING]

    def count_by_queue(self) -> dict[str, int]:
        """Of each queue: how many jobs are with the pool or are being settled."""
        counts: dict[str, int] = {}
        for lease in self._held:
            is_running = lease.stage in (RUNNING, FINISHING)
            counts[lease.source.queue] = counts.get(lease.source.queue, 0) + is_running
        return counts

    def take_renewable(self, now: float, lock_s: float) -> list[JobLease]:
        """Those to renew, with new ends of their locks: all but buffered ones, which start soon or are given back."""
        leases = [lease for lease in self._held if lease.stage != BUFFERED and not lease.is_handed_off]
        for lease in leases:
            lease.locked_until = now + lock_s
        return leases

    def expired(self, now: float) -> list[JobLease]:
        """Leases whose locks have expired by this worker's clock. Those of owned partitions have none: the group's
        member knows when its session is over, and the group fences what is settled after that."""
        return [lease for lease in self._held if now >= lease.locked_until and not lease.stays_in_place]

"""The leases that a worker holds: which stage each is in, and what follows from that for all of them.

:class:`Leases` is the one writer of ``lease.stage``, so the sums that the worker decides by (unfinished jobs of a
topic, jobs on their way to the suspects) are kept here and cannot drift from the leases. It decides nothing and
calls nothing back. A new stage is one more name in the row below, and an entry in ``_UNFINISHED`` and ``_UNSETTLED``.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Final

from kafka.tasks.delivery.base import JobLease

NEW, BUFFERED, WAITING, RUNNING, SETTLING, MOVING, HELD, FINISHED = range(8)
"""Stages of a lease. WAITING: a suspect that has no slot yet. MOVING: settling, on its way to the suspects. HELD: kept
for a while before others may have it. FINISHED: settled, or its lock is lost and this worker has nothing of it.
"""

_UNFINISHED = (1, 1, 1, 1, 0, 0, 0, 0)
"""By stage: 1 for a job that has not ended, or a record that the worker has not read yet. A running job whose lock is
lost counts until the pool returns it.
"""

_UNSETTLED = (0, 0, 0, 0, 1, 1, 0, 0)
"""By stage: 1 for jobs that have ended and are not settled yet, also when the lock is lost, because their records are
still being written.
"""


MAX_EXCUSED: Final = 1000
"""Maximum number of suspects whose lost locks are remembered."""


class Leases:
    """What is held. ``moving`` counts leases in the stage MOVING, ``unsettled_count`` all that have ended and are not
    settled, ``unfinished_count`` jobs that are new, buffered, waiting or running, ``unfinished_suspects`` those among
    them that are suspects, ``suspects`` all leases of suspects. ``held_bytes``: their payloads.

    The worker that gets a suspect next counts each earlier delivery without a settlement as a crash. A lock that is
    lost while the worker lives is not a crash, so the worker remembers it for when the record returns to it
    (``lease.excused``). Another worker cannot know and counts it.
    """

    __slots__ = (
        "_held", "_holding", "_holds", "_excused", "unsettled_count", "held_bytes", "moving", "suspects",
        "unfinished_count", "unfinished_suspects",
    )  # fmt: skip

    def __init__(self) -> None:
        self.moving = 0
        self.unsettled_count = 0
        self.held_bytes = 0
        self.unfinished_count = 0
        self.unfinished_suspects = 0
        self.suspects = 0
        self._held: dict[JobLease, None] = {}
        self._holding: list[tuple[float, int, JobLease]] = []
        self._holds = itertools.count()  # holds that end at once end in their order
        self._excused: dict[tuple[str, int, int], set[int]] = {}  # topic, partition, offset: delivery counts

    def __len__(self) -> int:
        return len(self._held)

    def add(self, lease: JobLease, now: float, lock_s: float) -> None:
        """Add a new lease."""
        lease.leased_at = now
        lease.locked_until = now + lock_s
        self._held[lease] = None
        self.held_bytes += len(lease.value or b"")
        self.unfinished_count += 1
        if lease.source.suspect:
            self.suspects += 1
            self.unfinished_suspects += 1
            if lease.deliveries > 1:
                lost = self._excused.get((lease.source.topic, lease.partition, lease.offset), ())
                lease.excused = sum(count < lease.deliveries for count in lost)

    def set_stage(self, lease: JobLease, stage: int) -> None:
        """Move the lease to another stage."""
        was, lease.stage = lease.stage, stage
        change = _UNFINISHED[stage] - _UNFINISHED[was]
        if change:
            self.unfinished_count += change
            if lease.source.suspect:
                self.unfinished_suspects += change
        self.unsettled_count += _UNSETTLED[stage] - _UNSETTLED[was]
        if stage == MOVING or was == MOVING:
            self.moving += (stage == MOVING) - (was == MOVING)
        if stage == FINISHED:
            self._forget(lease)
            lease.job = None  # a job has its lease: left to the garbage collector, the two cost it a fifth of a worker

    def finish(self, lease: JobLease, is_settled: bool) -> None:
        """The lease is settled, or left to expire, which is not excused."""
        lease.lost = lease.lost or not is_settled
        self.set_stage(lease, FINISHED)

    def mark_lost(self, lease: JobLease, is_excused: bool) -> bool:
        """Its lock is lost. False when it is finished or already known to be lost. ``is_excused``: the loss is not a
        crash of the job.
        """
        if lease.lost:
            return False
        if is_excused and lease.source.suspect:
            self._excuse(lease)
        lease.lost = True
        if lease.stage == FINISHED:
            return False
        self._forget(lease)
        if lease.stage == RUNNING:
            lease.job.cancelled = True
        elif _UNFINISHED[lease.stage]:
            self.set_stage(lease, FINISHED)
        return True

    def _forget(self, lease: JobLease) -> None:
        if lease in self._held:
            del self._held[lease]
            self.held_bytes -= len(lease.value or b"")
            if lease.source.suspect:
                self.suspects -= 1

    def _excuse(self, lease: JobLease) -> None:
        where = (lease.source.topic, lease.partition, lease.offset)
        counts = self._excused.pop(where, set())
        counts.add(lease.deliveries)
        self._excused[where] = counts
        if len(self._excused) > MAX_EXCUSED:
            del self._excused[next(iter(self._excused))]

    @property
    def settling_count(self) -> int:
        """Leases of jobs that have ended, or end without a run."""
        return len(self._held) - self.unfinished_count

    def running(self) -> list[JobLease]:
        """Leases of jobs that are with the pool."""
        return [lease for lease in self._held if lease.stage == RUNNING]

    def take_renewable(self, now: float, lock_s: float) -> list[JobLease]:
        """Those to renew, with new ends of their locks: all but buffered ones, which start soon or are given back."""
        leases = [lease for lease in self._held if lease.stage != BUFFERED]
        for lease in leases:
            lease.locked_until = now + lock_s
        return leases

    def expired(self, now: float) -> list[JobLease]:
        """Leases whose locks have expired by this worker's clock."""
        return [lease for lease in self._held if now >= lease.locked_until]

    # -- leases that are kept for a while -----------------------------------------------------------------------------

    def hold(self, lease: JobLease, until: float) -> None:
        """Hold the lease until then."""
        self.set_stage(lease, HELD)
        heapq.heappush(self._holding, (until, next(self._holds), lease))

    def take_due(self, now: float) -> list[JobLease]:
        """Leases whose hold has ended."""
        due: list[JobLease] = []
        while self._holding and self._holding[0][0] <= now:
            due.append(heapq.heappop(self._holding)[2])
        return _not_lost(due)

    def take_held(self, only_suspects: bool = False) -> list[JobLease]:
        """All held leases."""
        held = [each for each in self._holding if not only_suspects or each[2].source.suspect]
        self._holding = [each for each in self._holding if only_suspects and not each[2].source.suspect]
        heapq.heapify(self._holding)
        return _not_lost(lease for _, _, lease in held)

    @property
    def due_at(self) -> float:
        """When the next hold ends."""
        return self._holding[0][0] if self._holding else float("inf")


def _not_lost(leases: Iterable[JobLease]) -> list[JobLease]:
    return [lease for lease in leases if not lease.lost]

"""Long jobs: handed over to the schedule, so that they keep no others of their partition from being delivered.

A share group has a window of records in flight, a span of offsets: one that stays in it for long stops its partition.
So a job that has run for longer than a lock lasts, or that many records behind it wait for, is written to the schedule
as a lease (LEASE), and its record is accepted when that is durable. From then on the schedule is what starts it again
if this worker dies: the lease is renewed while the job runs (RENEW), and ended when its last records are durable (END).
A job that is to run again replaces its lease by a PUT.

The worker says when (:meth:`LongJobs.look`, :meth:`LongJobs.renew`); what is done with the answer is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Final

from kafka.log_limit import LimitedLog
from kafka.tasks.delivery.base import Appended, JobDelivery, JobLease
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import RUNNING, Leases

log = logging.getLogger(__name__)

LONG_S: Final = 30.0
"""A job that has run for so long is handed over: as long as a lock lasts unless an operator has set another time."""
BLOCKING_S: Final = 1.0
BLOCKING_RECORDS: Final = 1000
"""One that has run for so long is, too, when so many records behind it have been delivered: half of the window that a
broker has unless it is told otherwise (group.share.partition.max.record.locks)."""
LEASE_S: Final = 60.0
"""How long a lease lasts: so long after the death of its worker the job starts again."""
RENEW_S: Final = 20.0
MARGIN_S: Final = 5.0
"""A lease that was not renewed counts as lost here so long before it expires in the schedule."""


class LongJobs:
    """Owns which jobs are being handed over. ``now_ms``: the broker's time. ``on_handed_over`` is called when jobs have
    been, and :attr:`renew_at` may be earlier than before."""

    def __init__(
        self,
        delivery: JobDelivery,
        leases: Leases,
        records: StateRecords,
        now_ms: Callable[[], int],
        on_handed_over: Callable[[], object],
    ) -> None:
        self.renew_at = inf
        self._delivery = delivery
        self._leases = leases
        self._records = records
        self._now_ms = now_ms
        self._on_handed_over = on_handed_over
        self._newest: dict[tuple[str, int], int] = {}  # topic and partition -> the last offset that was delivered
        self._pending: set[JobLease] = set()  # whose LEASE is being written
        self._not_ended: dict[JobLease, tuple[Job, float]] = {}  # whose END could not be written, and when it is void
        self._limited_log = LimitedLog(log)

    def on_leased(self, leases: Iterable[JobLease]) -> None:
        """Records have been delivered."""
        newest = self._newest
        for lease in leases:
            newest[lease.source.topic, lease.partition] = lease.offset

    def look(self, now: float, jobs: Iterable[tuple[Job, float]]) -> None:
        """Hand over those of ``jobs``, each with the time since which the pool has it, that are long."""
        if self._not_ended:
            not_ended, self._not_ended = self._not_ended, {}
            for lease, (job, until) in not_ended.items():
                if now < until and not (lease.lost or lease.is_handed_off or lease in self._pending):
                    self.end([job], until)
        handed = [
            job
            for job, at in jobs
            if job.lease.stage == RUNNING
            and not job.lease.stays_in_place
            and not job.lease.is_handed_off
            and not job.lease.lost
            and job.lease not in self._pending
            and (now - at >= LONG_S or (now - at >= BLOCKING_S and self._is_blocking(job.lease)))
        ]
        if not handed:
            return
        until_ms = self._now_ms() + int(LEASE_S * 1000)
        self._pending.update(job.lease for job in handed)
        self._leases.offer(job.lease for job in handed)
        records = [
            self._records.lease(job.envelope, job.crashes, job.lease.source.queue, until_ms) for job in handed
        ]
        self._delivery.publish(records, lambda answers: self._written(handed, answers, now + LEASE_S - MARGIN_S))

    def _is_blocking(self, lease: JobLease) -> bool:
        newest = self._newest.get((lease.source.topic, lease.partition), 0)
        return newest - lease.offset >= BLOCKING_RECORDS

    def _written(self, jobs: Sequence[Job], answers: Sequence[Appended | BaseException], until: float) -> None:
        accepted: list[JobLease] = []
        ended: list[Job] = []
        for job, answer in zip(jobs, answers, strict=True):
            lease = job.lease
            self._pending.discard(lease)
            if isinstance(answer, BaseException):
                ended.append(job)  # it may have been written, and only the answer was lost
                self._limited_log.warning(
                    type(answer).__name__,
                    "could not hand %s over to the schedule, its lock is renewed instead: %s",
                    job,
                    answer,
                )
            elif lease.lost or lease.stage != RUNNING:
                ended.append(job)
            else:
                accepted.append(lease)
                log.info("%s runs for long; it goes on as a lease of the schedule", job)
        if accepted:
            self._delivery.accept(accepted)
            for lease in accepted:
                self._leases.hand_off(lease, until)
            self.renew_at = min(self.renew_at, until - LEASE_S + MARGIN_S + RENEW_S)
            self._on_handed_over()
        self.end(ended, until)

    def renew(self, now: float) -> list[JobLease]:
        """Renew the leases of the jobs that go on; returns those that could not be renewed in time, and are lost."""
        leases = self._leases.handed_off()
        lost = [lease for lease in leases if lease.locked_until <= now]
        going_on = [lease for lease in leases if lease.locked_until > now]
        self.renew_at = min((now + RENEW_S, *(lease.locked_until for lease in going_on))) if going_on else inf
        if going_on:
            until_ms, until = self._now_ms() + int(LEASE_S * 1000), now + LEASE_S - MARGIN_S
            records = [self._records.lease_renewal(lease.job.envelope, until_ms) for lease in going_on]

            def on_written(answers: Sequence[Appended | BaseException]) -> None:
                self._leases.renewed(
                    (
                        lease
                        for lease, answer in zip(going_on, answers, strict=True)
                        if not isinstance(answer, BaseException)
                    ),
                    until,
                )

            self._delivery.publish(records, on_written)
        return lost

    def end(self, jobs: Sequence[Job], until: float = -inf) -> None:
        """The leases of these jobs are to be forgotten: the jobs have ended meanwhile, or their records are delivered
        again. What cannot be written is written again with each :meth:`look` before ``until``, unless the job was
        handed over again, or its lock is lost: then the schedule's lease may be another worker's."""
        if not jobs:
            return

        def on_written(answers: Sequence[Appended | BaseException]) -> None:
            for job, answer in zip(jobs, answers, strict=True):
                if isinstance(answer, BaseException):
                    self._not_ended[job.lease] = job, until

        self._delivery.publish([self._records.lease_end(job.envelope) for job in jobs], on_written)



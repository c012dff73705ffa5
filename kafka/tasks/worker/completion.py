"""How jobs leave a worker: refused, ended or given back; what each of these writes, and what it does to the lease.

A turn of the worker's loop says of any number of jobs how they leave, and :meth:`JobCompletion.flush` at its end hands
them to the delivery together, so results are batched by themselves when jobs are short. Decisions are those of
:class:`AdmissionPolicy` (:mod:`kafka.tasks.worker.admission`), to finish them is the delivery's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kafka.tasks.delivery.base import Ending, FinishCallback, JobDelivery, JobLease, OutgoingRecord
from kafka.tasks.delivery.records import result_too_large
from kafka.tasks.pools.runner import Job, error_info_of
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobExpired, NotStarted, Outcome
from kafka.tasks.worker.admission import AdmissionPolicy
from kafka.tasks.worker.leases import FINISHED, FINISHING, Leases

log = logging.getLogger(__name__)

COUNTS: Final = ("done", "refused", "given_back", "cancelled", "failed", "dead")
"""Jobs whose run here was their last, well or not; jobs refused, given back, and cancelled before they started or while
they ran; runs that failed, other attempts or not, or were lost; records put into a dead topic.
"""


class JobCompletion:
    """Owns the endings of one turn. ``on_finished`` is called with leases that are over."""

    __slots__ = ("_admission", "_delivery", "_endings", "_leases", "_now_ms", "_on_finished", "counts")

    def __init__(
        self,
        admission: AdmissionPolicy,
        delivery: JobDelivery,
        leases: Leases,
        now_ms: Callable[[], int],
        on_finished: FinishCallback,
    ) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self._admission = admission
        self._delivery = delivery
        self._leases = leases
        self._now_ms = now_ms
        self._on_finished = on_finished
        self._endings: list[Ending] = []

    def admit(self, lease: JobLease, now_ms: int) -> Job | None:
        """The job of a lease that has just come; None when it must not run, and leaves."""
        admitted = self._admission.admit(lease, now_ms)
        if isinstance(admitted, Job):
            self._leases.set_job(lease, admitted)
            return admitted
        self._refuse(admitted)
        return None

    def expire(self, job: Job) -> None:
        """The job has expired while it waited for its turn."""
        self._refuse(self._admission.end(job.lease, job.envelope, JobExpired(), job.crashes, self._now_ms()))

    def end(self, job: Job, outcome: Outcome, now_ms: int) -> None:
        """The job has ended. What one job left behind must not take the others of this turn with it."""
        if isinstance(outcome, AttemptFailed) or (isinstance(outcome, ChildLost) and outcome.counts):
            self.counts["failed"] += 1
        try:
            self._end(job, outcome, now_ms)
        except Exception as error:
            log.exception("could not encode the outcome of %s; the job fails", job)
            self._end(job, AttemptFailed(error_info_of(error), listed=False), now_ms)

    def give_back(self, job: Job) -> None:
        """A job that has not started goes back to its queue, with the mark of a clean return."""
        if job.lease.lost:
            self._leases.set_stage(job.lease, FINISHED)
            return
        if job.lease.is_cancelled:
            self.cancel(job)
            return
        self.counts["given_back"] += 1
        self._end(job, NotStarted(), self._now_ms())

    def cancel(self, job: Job) -> None:
        """The job was cancelled. Nothing is written: the schedule has written that it is REVOKED."""
        self._refuse(self._admission.end_cancelled(job.lease, job.envelope))

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        """How a job ends whose result, this record, its topic does not take: as one that has failed."""
        lease, envelope = ending.lease, ending.envelope
        assert envelope is not None  # what is no job has no result
        self.counts["failed"] += 1
        self.counts["dead"] += 1
        outcome = result_too_large(envelope, record)
        crashes = 0 if lease.job is None else lease.job.crashes
        return self._admission.end(lease, envelope, outcome, crashes, self._now_ms())

    def flush(self) -> None:
        """Finish what left in this turn."""
        endings, self._endings = self._endings, []
        if endings:
            self._delivery.finish(endings, self._on_finished)

    def _end(self, job: Job, outcome: Outcome, now_ms: int) -> None:
        ending = self._admission.end(job.lease, job.envelope, outcome, job.crashes, now_ms)
        self.counts["done"] += ending.is_last
        self._add(ending)

    def _refuse(self, ending: Ending) -> None:
        self.counts["cancelled" if ending.is_cancelled else "refused"] += 1
        self._add(ending)

    def _add(self, ending: Ending) -> None:
        self._leases.set_stage(ending.lease, FINISHING)
        self.counts["dead"] += ending.is_dead
        self._endings.append(ending)

"""How jobs leave a worker: refused, ended or given back; what each of these writes, and what it does to the lease.

A turn of the worker's loop says of any number of jobs how they leave, and :meth:`JobCompletion.flush` at its end hands
them to the settler together, so results are batched by themselves when jobs are short. Decisions are those of
:class:`AdmissionPolicy` (:mod:`kafka.tasks.worker.admission`), records and acknowledgements the settler's
(:mod:`kafka.tasks.delivery.settlement`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kafka.tasks.delivery.base import JobLease, OutgoingRecord
from kafka.tasks.delivery.records import result_too_large
from kafka.tasks.delivery.settlement import Settlement, Settler
from kafka.tasks.pools.runner import Job, error_info_of
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, NotStarted, Outcome
from kafka.tasks.worker.admission import AdmissionHold, AdmissionPolicy
from kafka.tasks.worker.leases import FINISHED, MOVING, SETTLING, Leases

log = logging.getLogger(__name__)

COUNTS: Final = ("done", "refused", "given_back", "failed", "dead")
"""Jobs whose run here was their last, well or not; jobs refused and given back; runs that failed, other attempts or
not, or were lost; records put into a dead topic.
"""


class JobCompletion:
    """Owns the endings of one turn. ``hold_until`` says when a lease that is held for some seconds is released."""

    __slots__ = ("_admission", "_settlements", "_hold_until", "_leases", "_now_ms", "_settler", "counts")

    def __init__(
        self,
        admission: AdmissionPolicy,
        settler: Settler,
        leases: Leases,
        now_ms: Callable[[], int],
        hold_until: Callable[[float], float],
    ) -> None:
        self.counts = dict.fromkeys(COUNTS, 0)
        self._admission = admission
        self._settler = settler
        self._leases = leases
        self._now_ms = now_ms
        self._hold_until = hold_until
        self._settlements: list[Settlement] = []

    def admit(self, lease: JobLease, now_ms: int) -> Job | None:
        """The job of a lease that has just come; None when it must not run, and leaves."""
        admitted = self._admission.admit(lease, now_ms)
        if isinstance(admitted, Job):
            lease.job = admitted
            return admitted
        self.counts["refused"] += 1
        self._conclude(lease, admitted)
        return None

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
        """A job that has not started goes back to its topic, with the mark of a clean return."""
        if job.lease.lost:
            self._leases.set_stage(job.lease, FINISHED)
            return
        self.counts["given_back"] += 1
        self._end(job, NotStarted(), self._now_ms())

    def end_hold(self, lease: JobLease, is_due: bool) -> bool:
        """The job of a task that is unknown here has been held, for long enough if ``is_due``. False: release it."""
        settlement = self._admission.end_hold(lease, is_due, self._now_ms())
        if settlement is not None:
            self._conclude(lease, settlement)
        return settlement is not None

    def result_too_large(self, settlement: Settlement, record: OutgoingRecord) -> Settlement:
        """How a job ends whose result, this record, its topic does not take: as one that has failed."""
        lease, envelope = settlement.lease, settlement.envelope
        assert envelope is not None  # what is no job has no result
        outcome = result_too_large(envelope, record)
        self.counts["failed"] += 1
        self.counts["dead"] += 1
        settlement_of_error = self._admission.end(lease, envelope, outcome, lease.job.crashes, self._now_ms())
        assert isinstance(settlement_of_error, Settlement)  # an error is never held
        return settlement_of_error

    def flush(self) -> None:
        """Settle what left in this turn."""
        settlements, self._settlements = self._settlements, []
        if settlements:
            self._settler.settle(settlements)

    def _end(self, job: Job, outcome: Outcome, now_ms: int) -> None:
        conclusion = self._admission.end(job.lease, job.envelope, outcome, job.crashes, now_ms)
        if isinstance(conclusion, Settlement):
            self.counts["done"] += conclusion.is_last
        self._conclude(job.lease, conclusion)

    def _conclude(self, lease: JobLease, conclusion: Settlement | AdmissionHold) -> None:
        if isinstance(conclusion, AdmissionHold):
            self._leases.hold(lease, self._hold_until(conclusion.seconds))
        else:
            self._leases.set_stage(lease, MOVING if conclusion.is_move else SETTLING)
            self.counts["dead"] += conclusion.is_dead
            self._settlements.append(conclusion)

"""Publish, then settle: the records of finished jobs go out together, and their leases end when all are durable.

It covers the steps from the end of a job to the acceptance of its lease. A group has the jobs of one turn of the
worker's loop, so results are batched when jobs are short. What can go wrong on the way:

* a result that its topic does not take (too large): the job has failed permanently instead, which is recorded as for
  any other, and the lease is accepted after that; another state record that is too large is written without its texts;
* a state record appended after the time that a look-up scans: a copy goes to the late topic first;
* a job that moves to the suspects counts as settled when the broker has *answered* its ACCEPT: a worker that starts it
  before that and dies of it leaves two records of it;
* the record of what is no job is too large for the dead topic: it is written without what it held;
* any other error (the producer has tried for its delivery timeout): the lease is left alone, its lock runs out and the
  job runs again. For a suspect that would be a crash, and a job that was delivered before the broker may drop: such a
  lease is kept, and what could not be written is written again at the next renewal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from kafka.log_limit import LimitedLog
from kafka.tasks.delivery.base import JobDelivery, JobLease, OutgoingRecord, Publisher
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.records import LATE_AFTER_MS
from kafka.tasks.rules.decide import LeaseVerdict

log = logging.getLogger(__name__)

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)


class Settlement:
    """One lease with the records that must be durable before it is accepted.

    ``envelope`` None: it was no job. ``is_shortened``: a record was too large and has been replaced already.
    ``is_move``: the job goes to the suspects, or back to them; ``is_dead``: to the dead topic. ``is_last``: nothing
    follows, it has ended for good.
    """

    __slots__ = ("envelope", "is_dead", "is_last", "is_move", "is_shortened", "lease", "records")

    def __init__(
        self,
        lease: JobLease,
        envelope: Envelope | None,
        records: list[OutgoingRecord],
        is_shortened: bool = False,
        is_move: bool = False,
        is_dead: bool = False,
        is_last: bool = False,
    ) -> None:
        self.lease = lease
        self.envelope = envelope
        self.records = records
        self.is_shortened = is_shortened
        self.is_move = is_move
        self.is_dead = is_dead
        self.is_last = is_last


class Settler:
    """Publishes and settles groups of settlements. ``on_settled(leases, well)`` is called when their part here is
    over; ``on_too_large`` says how a job ends instead whose result, this record, its topic does not take;
    ``on_refused``, that these leases are kept until :meth:`retry_refused`.
    """

    def __init__(
        self,
        delivery: JobDelivery,
        publisher: Publisher,
        state_records: StateRecords,
        on_settled: Callable[[list[JobLease], bool], None],
        on_too_large: Callable[[Settlement, OutgoingRecord], Settlement],
        on_refused: Callable[[list[JobLease]], None],
    ) -> None:
        self._delivery = delivery
        self._publisher = publisher
        self._state_records = state_records
        self._on_settled = on_settled
        self._on_too_large = on_too_large
        self._on_refused = on_refused
        self._refused: list[Settlement] = []
        self._limited_log = LimitedLog(log)

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Publish the records of these and accept their leases afterwards; those without records at once."""
        bare = [settlement.lease for settlement in settlements if not settlement.records]
        if bare:
            self._accept(bare)
        rest = [settlement for settlement in settlements if settlement.records]
        if rest:
            records = [record for settlement in rest for record in settlement.records]
            self._publisher.publish(records, lambda answers: self._published(rest, answers))

    def _log_write_error(self, lease: JobLease, text: str, error: BaseException) -> None:
        self._limited_log.write(logging.ERROR, (text, type(error), lease.source.topic), text, lease.origin, error)

    def retry_refused(self) -> None:
        """Publish the records that could not be written before."""
        self._limited_log.flush()
        refused, self._refused = self._refused, []
        lost = [settlement.lease for settlement in refused if settlement.lease.lost]
        if lost:
            self._on_settled(lost, False)
        self.settle([settlement for settlement in refused if not settlement.lease.lost])

    def _published(self, settlements: Sequence[Settlement], answers: Sequence[int | BaseException]) -> None:
        """The producer's answers (append times in ms, or errors) to the records of ``settlements``, in their order. A
        record that is too large is replaced by a shorter one, a state record that was appended too late for look-ups
        by id is copied to the late topic; these are published again. With another error the lease is kept for
        :meth:`retry_refused` or given up; all others are accepted."""
        durable: list[JobLease] = []
        moved: list[JobLease] = []
        again: list[Settlement] = []
        failed: list[JobLease] = []
        refused: list[JobLease] = []
        position = 0
        for settlement in settlements:
            more: list[OutgoingRecord] = []
            unwritten: list[OutgoingRecord] = []
            other: Settlement | None = None
            error: BaseException | None = None
            shortened = settlement.is_shortened
            for record in settlement.records:
                answer = answers[position]
                position += 1
                if isinstance(answer, BaseException):
                    if not _may_be_replaced(settlement, record, answer):
                        error = answer
                        unwritten.append(record)
                    elif settlement.envelope is None:
                        more.append(self._state_records.without_payload(record))
                        shortened = True
                    elif self._state_records.is_result(record):
                        other = self._on_too_large(settlement, record)
                        other.is_shortened = True
                    else:
                        more.append(self._state_records.without_traceback(record))
                        shortened = True
                elif settlement.envelope is not None and self._is_too_late(record, settlement.envelope, answer):
                    more.append(self._state_records.late_copy(record))
            if error is not None and _may_be_retried(settlement.lease, error):
                self._log_write_error(
                    settlement.lease,
                    "could not write the records of job %s, retrying at the next lock renewal: %s",
                    error,
                )
                refused.append(settlement.lease)
                self._refused.append(
                    Settlement(
                        settlement.lease,
                        settlement.envelope,
                        [*unwritten, *more],
                        shortened,
                        is_move=settlement.is_move,
                    )
                )
            elif error is not None:
                self._log_write_error(
                    settlement.lease,
                    "could not write the records of job %s, it is delivered again when its lock times out: %s",
                    error,
                )
                failed.append(settlement.lease)
            elif other is not None:
                again.append(other)
            elif more:
                again.append(Settlement(settlement.lease, settlement.envelope, more, shortened))
            elif settlement.is_move:
                moved.append(settlement.lease)
            else:
                durable.append(settlement.lease)
        if durable:
            self._accept(durable)
        if moved:
            self._accept_moved(moved)
        if failed:
            self._on_settled(failed, False)
        if refused:
            self._on_refused(refused)
        if again:
            self.settle(again)

    def _accept(self, leases: list[JobLease]) -> None:
        ours = [lease for lease in leases if not lease.lost]
        if ours:
            self._delivery.settle(ours, LeaseVerdict.ACCEPT)
        self._on_settled(leases, True)

    def _accept_moved(self, leases: list[JobLease]) -> None:
        ours = [lease for lease in leases if not lease.lost]
        if ours:
            self._delivery.settle(ours, LeaseVerdict.ACCEPT, lambda: self._moved(leases))
        else:
            self._moved(leases)

    def _moved(self, leases: list[JobLease]) -> None:
        self._on_settled(leases, True)
        for queue in {lease.source.queue for lease in leases}:
            self._delivery.fetch_suspects(queue)

    def _is_too_late(self, record: OutgoingRecord, envelope: Envelope, append_ms: int) -> bool:
        return self._state_records.is_state(record) and append_ms - time_of(envelope.id) > LATE_AFTER_MS


def _may_be_retried(lease: JobLease, error: BaseException) -> bool:
    """Whether it may be taken at another time, and the job should not be delivered once more. What never passes (no
    right to write there) would keep the lease for ever, and suspects that have to be alone from running.
    """
    is_counted = lease.source.suspect or lease.deliveries > 1
    return is_counted and not lease.lost and isinstance(error, KafkaError) and error.retriable


def _may_be_replaced(settlement: Settlement, record: OutgoingRecord, error: BaseException) -> bool:
    """Whether it is a state record, or one of what is no job, that was too large, and not the second one."""
    if settlement.is_shortened or (settlement.envelope is not None and record.key is None):
        return False
    return isinstance(error, _TOO_LARGE)

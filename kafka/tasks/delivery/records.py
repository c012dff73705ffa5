"""The records that carry a decision out: the job's next one, if it moves, and its state, if readers are to know.

Pure: decision and envelope in, :class:`OutgoingRecord` out. They are published before the lease is accepted, so that a
worker that dies in between leaves a job that runs again, never one that is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.tasks.delivery.base import JobLease, OutgoingRecord, RecordKind
from kafka.tasks.format.commands import (
    END,
    LEASE,
    RENEW,
    CommandRecord,
    encode_command,
    encode_put,
    partition_of_job,
)
from kafka.tasks.format.envelope import DEAD, MOST_HEADERS, DeadLetter, Envelope, Header, shortened_death
from kafka.tasks.format.records import error_value, is_late, reason_value, shortened, state_headers, with_due
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.rules.decide import JobDecision, MoveTarget
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    Outcome,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState

_SUCCESS: Header = ("state", JobState.SUCCESS.name.encode())


class StateRecords:
    """Makes records for one worker: ``host`` is its host's name, ``schedule_partitions`` the number of partitions of
    the schedule's topics."""

    __slots__ = ("_host", "_names", "_schedule_partitions")

    def __init__(self, names: TopicNames, host: str, schedule_partitions: int) -> None:
        self._names = names
        self._host = host
        self._schedule_partitions = schedule_partitions

    def for_decision(
        self, decision: JobDecision, outcome: Outcome, envelope: Envelope, lease: JobLease, now_ms: int
    ) -> list[OutgoingRecord]:
        """All records of a decision, in the order in which they are to be written. A job that stays where it is
        (:func:`staying`) has no next record."""
        records: list[OutgoingRecord] = []
        if decision.move is not MoveTarget.NOWHERE and not _stays(decision, lease):
            records.append(self._moved(decision, outcome, envelope, lease, now_ms))
        if decision.state is not None:
            value = _value(outcome, self._host, now_ms)
            content_type = envelope.content_type if value and isinstance(outcome, JobSucceeded) else None
            records.append(
                self.state(envelope, decision.state, lease.deliveries, value, now_ms, content_type, decision.due_ms)
            )
        return records

    def state(
        self,
        envelope: Envelope,
        state: JobState,
        delivery: int,
        value: bytes,
        now_ms: int,
        content_type: str | None = None,
        due_ms: int | None = None,
    ) -> OutgoingRecord:
        """A state record of a job; ``content_type`` of a result that is not JSON, ``due_ms`` of a job that waits in the
        schedule."""
        job_id = envelope.id
        topic = self._names.late if is_late(job_id, now_ms) else self._names.results
        headers = state_headers(state, envelope.attempt, delivery, content_type)
        if due_ms is not None:
            headers = with_due(headers, due_ms)
        return OutgoingRecord(RecordKind.STATE, topic, value, job_id.encode(), headers, envelope.results_partition)

    def lease(self, envelope: Envelope, crashes: int, queue: str, due_ms: int) -> OutgoingRecord:
        """The command that hands a running job over to the schedule, which starts it again at ``due_ms``. ``crashes``:
        those behind the job."""
        handed = envelope.moved(
            envelope.attempt,
            crashes,
            envelope.clean,
            envelope.unknown,
            envelope.unknown_since_ms,
            generation=envelope.generation + 1,
        )
        return self._command(envelope, encode_put(handed, queue, due_ms, LEASE))

    def lease_renewal(self, envelope: Envelope, due_ms: int) -> OutgoingRecord:
        """The command that a job's lease goes on until ``due_ms``."""
        generation = envelope.generation + 1
        return self._command(envelope, encode_command(RENEW, envelope.id, due_ms=due_ms, generation=generation))

    def lease_end(self, envelope: Envelope) -> OutgoingRecord:
        """The command that a job's lease is over."""
        return self._command(envelope, encode_command(END, envelope.id, generation=envelope.generation + 1))

    def _command(self, envelope: Envelope, record: CommandRecord) -> OutgoingRecord:
        partition = partition_of_job(envelope.id, self._schedule_partitions)
        return OutgoingRecord(
            RecordKind.COMMAND, self._names.commands, record.value, record.key, record.headers, partition
        )

    def no_job(
        self, lease: JobLease, outcome: InvalidRecord, now_ms: int, job_id: str | None = None
    ) -> list[OutgoingRecord]:
        """The dead record of something that is no job: key, value and headers as they were, unless there are more than
        a job has. ``job_id``: the id in it; who waits for that job gets the FAILURE.
        """
        death = DeadLetter(outcome.cause, "BadRecord", outcome.text, "", self._host, now_ms, lease.origin)
        kept_headers = _without_dead_headers(lease.headers) if len(lease.headers) <= MOST_HEADERS else []
        topic = self._names.dead(lease.source.queue)
        records = [OutgoingRecord(RecordKind.DEAD, topic, lease.value, lease.key, kept_headers + death.headers())]
        if job_id is not None:
            value, no_more = _value(outcome, self._host, now_ms), Envelope(job_id, "", b"")
            records.append(self.state(no_more, JobState.FAILURE, lease.deliveries, value, now_ms))
        return records

    def _moved(
        self, decision: JobDecision, outcome: Outcome, envelope: Envelope, lease: JobLease, now_ms: int
    ) -> OutgoingRecord:
        """The job's next record: in the dead topic with its cause, else as far as it has come by this decision, in a
        topic of its queue or as a command to the schedule. A worker that writes the command and dies before its lease
        is accepted leaves a job that another one may put there again: the generation says that it is the same one. That
        of a lease is used up once the schedule was asked for it, whether it has answered or not.
        """
        queue, names = lease.source.queue, self._names
        if decision.move is MoveTarget.DEAD:
            error_info = outcome_error(outcome)
            death = DeadLetter(
                decision.cause, error_info.type, error_info.text, error_info.traceback, self._host, now_ms, lease.origin
            )
            moved = envelope.moved(
                envelope.attempt, decision.crashes, envelope.clean, envelope.unknown, envelope.unknown_since_ms
            )
            headers = moved.headers() + death.headers()
            return OutgoingRecord(RecordKind.DEAD, names.dead(queue), envelope.value, envelope.key, headers)
        generation = envelope.generation + lease.is_offered + (decision.move is MoveTarget.SCHEDULE)
        moved = _as_decided(envelope, decision, generation)
        if decision.move is MoveTarget.SCHEDULE:
            assert decision.due_ms is not None  # see decide
            return self._command(envelope, encode_put(moved, queue, decision.due_ms))
        to_suspects = decision.move is MoveTarget.SUSPECT or (
            decision.move is MoveTarget.BACK and lease.source.is_suspect
        )
        topic = names.suspect(queue) if to_suspects else names.due(queue)
        return OutgoingRecord(RecordKind.JOB, topic, envelope.value, envelope.key, moved.headers())


def staying(decision: JobDecision, envelope: Envelope, lease: JobLease) -> Envelope | None:
    """The job as which its record is delivered again, when it stays where it is: one that is given back, where that
    needs no other record (the same one), and in an ordered queue each that has not ended for good. None: it does not
    stay."""
    if not _stays(decision, lease):
        return None
    return envelope if decision.move is MoveTarget.BACK else _as_decided(envelope, decision, envelope.generation)


def _stays(decision: JobDecision, lease: JobLease) -> bool:
    if decision.move is MoveTarget.BACK:
        return lease.stays_in_place
    return lease.source.is_ordered and decision.move not in (MoveTarget.NOWHERE, MoveTarget.DEAD)


def _as_decided(envelope: Envelope, decision: JobDecision, generation: int) -> Envelope:
    return envelope.moved(
        decision.attempt,
        decision.crashes,
        envelope.clean + decision.clean,
        decision.unknown,
        decision.unknown_since_ms,
        decision.due_ms,
        generation,
    )


def late_copy(record: OutgoingRecord, names: TopicNames) -> OutgoingRecord:
    """The same state record for the late topic: its append came after the time that a look-up scans."""
    return record._replace(topic=names.late)


def is_result(record: OutgoingRecord) -> bool:
    """Whether this record has a job's result in it."""
    return record.kind is RecordKind.STATE and _SUCCESS in (record.headers or ())


def without_traceback(record: OutgoingRecord) -> OutgoingRecord:
    """The same state record, of another state than SUCCESS, or dead record, without its traceback and most of its
    text."""
    if record.kind is RecordKind.STATE:
        return record._replace(value=shortened(record.value or b"{}"))
    return record._replace(headers=shortened_death(record.headers or ()))


def without_payload(record: OutgoingRecord) -> OutgoingRecord:
    """The dead record of what is no job, without its value and its own headers: it says where those are."""
    headers = [each for each in record.headers or () if each[0].startswith(DEAD)]
    return record._replace(value=None, key=None, headers=headers)


def result_too_large(envelope: Envelope, record: OutgoingRecord) -> AttemptFailed:
    """The outcome of a job whose result, this record, its topic does not take."""
    text = (
        f"the result of task {envelope.name} is {len(record.value or b'')} bytes, more than the topic {record.topic}"
        " accepts: store it elsewhere and return a reference, or raise that topic's max.message.bytes"
    )
    return AttemptFailed(ErrorInfo("PayloadTooLarge", text), listed=False)


def outcome_error(outcome: Outcome) -> ErrorInfo:
    """What went wrong, for the dead topic and the FAILURE record."""
    if isinstance(outcome, (AttemptFailed, WorkerCrashed)):
        return outcome.error_info
    if isinstance(outcome, ChildLost):
        return outcome.error_info()
    if isinstance(outcome, UnknownTask):
        text = f"no worker that received the job could run the task {outcome.name!r}: {outcome.reason}"
        return ErrorInfo("UnknownTask", text)
    if isinstance(outcome, JobRetried):
        return ErrorInfo("RetryAt", outcome.reason)
    if isinstance(outcome, InvalidRecord):
        return ErrorInfo("BadRecord", outcome.text)
    return ErrorInfo(type(outcome).__name__)


def _value(outcome: Outcome, host: str, now_ms: int) -> bytes:
    if isinstance(outcome, JobSucceeded):
        return outcome.value
    if isinstance(outcome, JobCancelled):
        return reason_value(outcome.reason, host)
    if isinstance(outcome, JobExpired):
        return reason_value("expired before it started", host)
    if isinstance(outcome, JobSnoozed):
        return b""
    return error_value(outcome_error(outcome), host, now_ms)


def _without_dead_headers(headers: Sequence[Header]) -> list[Header]:
    return [header for header in headers if not header[0].startswith(DEAD)]

"""Decides which leased records become jobs that run, and how a lease is settled after an outcome.

:class:`AdmissionPolicy` reads a leased record, asks :func:`kafka.tasks.rules.admit.admit`, and makes a :class:`Job`; it
asks :func:`kafka.tasks.rules.decide.decide` about an outcome and has the records made that carry the decision out. It
stores neither jobs nor leases.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Container, Mapping, Sequence
from typing import Any

from kafka.log_limit import LimitedLog
from kafka.tasks.delivery.base import Ending, JobLease, OutgoingRecord
from kafka.tasks.delivery.records import StateRecords, outcome_error, staying
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope, decode, readable_id, too_many_headers, truncated_repr
from kafka.tasks.format.job_id import partition_of
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.options import WorkerOptions, is_task_name, limits
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.admit import admit, crashes_of, unmet_needs
from kafka.tasks.rules.decide import JobDecision, JobHistory, JobPolicy, MoveTarget, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    InvalidRecord,
    JobSucceeded,
    Outcome,
    UnknownTask,
)
from kafka.tasks.states import JobState
from kafka.tasks.task import Task
from kafka.tasks.worker.observer import JobObserver
from kafka.tasks.worker.traceback_excerpt import TracebackExcerpt, truncate_line

log = logging.getLogger(__name__)


MAX_ERROR_CHARACTERS = 500
"""Characters of an error's first line in the log; all of it is in the dead topic and the result."""

FALLBACK_BACKOFF_S = 60
"""After a back-off function that raised."""


MAX_UNKNOWN_NAMES = 100
"""Maximum number of unknown task names that are logged."""

_UNKNOWN_REMEDY = "import the module that defines the task in the app's module, or deploy it to this worker"
_NESTED_REMEDY = (
    "it is defined inside a function: define it at the top level of a module that the app's module imports, or call "
    "that function there"
)


_NO_HISTORY = JobHistory()
"""Shared by successes, which need none: making one costs a microsecond."""


class AdmissionPolicy:
    """Applies the tables to the tasks of one worker. ``results_partitions``: ids that name others are no ids. ``rng``:
    for the jitter of back-offs. ``observers`` get the decisions about jobs that did not succeed. ``cancelled``: ids of
    jobs that are not to run.
    """

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        state_records: StateRecords,
        results_partitions: int,
        options: WorkerOptions,
        rng: random.Random,
        observers: Sequence[JobObserver] = (),
        cancelled: Container[str] = (),
    ) -> None:
        self._cancelled = cancelled
        self._tasks = tasks
        self._observers = observers
        self._state_records = state_records
        self._results_partitions = results_partitions
        self._options = options
        self._rng = rng
        self._limits: dict[Task[..., Any], tuple[float | None, float | None]] = {}
        self._policies: dict[tuple[str, bool], JobPolicy] = {}
        self._unknown: set[str] = set()  # names that were logged
        self._limited_log = LimitedLog(log)

    def admit(self, lease: JobLease, now_ms: int) -> Job | Ending:
        """A job that may run, or how the lease ends without a run."""
        try:
            if lease.headers_left_out:
                raise too_many_headers(lease.headers_left_out)
            envelope = decode(lease.value, lease.headers, lease.key)
            if envelope.results_partition >= self._results_partitions:
                raise BadRecord(
                    "bad-id", f"its id names results partition {envelope.results_partition}, which does not exist"
                )
            task = self._tasks.get(envelope.name)
            if envelope.name == ERROR_TASK or (task is None and not is_task_name(envelope.name)):
                raise BadRecord("bad-name", f"invalid task name {truncated_repr(envelope.name)}")
        except BadRecord as error:
            message = "record %s is not a valid job, moving it to the dead topic: %s"
            self._limited_log.warning((error.cause, lease.source.topic), message, lease.origin, error.text)
            job_id = readable_id(lease.headers)
            if job_id is not None and partition_of(job_id) >= self._results_partitions:
                job_id = None
            records = self._state_records.no_job(lease, InvalidRecord(error.cause, error.text), now_ms, job_id)
            return Ending(lease, None, records, is_dead=True)
        if envelope.id in self._cancelled:
            for observer in self._observers:
                observer.on_cancelled([(lease.source.queue, envelope)], False)
            return self.end_cancelled(lease, envelope)
        crashes, is_first = envelope.crashes, lease.deliveries == 1
        if not is_first:
            crashes = crashes_of(crashes, lease.deliveries, lease.source.is_suspect, lease.excused)
        lacks = None
        if task is None:
            lacks = f"none of its {len(self._tasks)} tasks has that name"
        elif envelope.needs or envelope.content_type is not None:
            lacks = unmet_needs(envelope, task.codec.accepted)
        is_timed = envelope.expires_ms is not None or envelope.due_ms is not None
        if lacks or crashes or is_timed or not is_first:
            policy, history = self._policy(envelope), _history(lease, envelope, crashes)
            suspect = lease.source.is_suspect
            outcome = admit(envelope.name, history, policy, lacks=lacks, suspect=suspect, now_ms=now_ms)
            if outcome is not None:
                return self.end(lease, envelope, outcome, crashes, now_ms)
        assert task is not None  # admit() has an outcome for a task that is not known
        if envelope.timeout is None and envelope.soft_timeout is None:
            limits = self._limits.get(task)
            if limits is None:
                limits = self._limits[task] = self._time_limits(task, None, None)
        else:
            limits = self._time_limits(task, envelope.soft_timeout, envelope.timeout)
        return Job(lease, envelope, task, *limits, crashes, self._options.track_started)

    def end_cancelled(self, lease: JobLease, envelope: Envelope) -> Ending:
        """How a lease ends whose job was cancelled: without a state, which is written already."""
        after = self._after(lease, envelope)
        return Ending(lease, envelope, [], is_last=True, after=after, is_cancelled=True)

    def end(self, lease: JobLease, envelope: Envelope, outcome: Outcome, crashes: int, now_ms: int) -> Ending:
        """How a lease ends after ``outcome``; ``crashes`` are those behind the job."""
        policy = self._policy(envelope)
        history = _NO_HISTORY if isinstance(outcome, JobSucceeded) else _history(lease, envelope, crashes)
        delay_ms = self._backoff_ms(envelope, policy) if isinstance(outcome, AttemptFailed) else 0
        decision = decide(outcome, history, policy, now_ms, delay_ms)
        if isinstance(outcome, UnknownTask):
            self._log_unknown_task(envelope, outcome, policy)
        records = self._state_records.for_decision(decision, outcome, envelope, lease, now_ms)
        move, stays = decision.move, staying(decision, envelope, lease)
        is_dead = move is MoveTarget.DEAD
        if is_dead:
            message = "%s %s failed permanently (%s) and moves to the dead topic %s; cause %s%s"
            name, cause = envelope.name, decision.cause
            error_info, topic = outcome_error(outcome), records[0].topic
            kind = (cause, name if name in self._tasks else "", error_info.type)
            traceback = TracebackExcerpt(error_info.traceback)
            self._limited_log.warning(
                kind, message, name, envelope.id, error_summary(outcome), topic, cause, traceback
            )
        elif isinstance(outcome, ChildLost) and decision.state is JobState.RETRY:
            self._log_crash(envelope, outcome, decision, policy)
        if not isinstance(outcome, JobSucceeded):
            for observer in self._observers:
                observer.on_decided(lease.source.queue, envelope, outcome, decision, policy, now_ms)
        is_last = is_dead or move is MoveTarget.NOWHERE
        is_move = stays is None and (
            move is MoveTarget.SUSPECT or (move is MoveTarget.BACK and lease.source.is_suspect)
        )
        after = () if move is MoveTarget.SCHEDULE else self._after(lease, envelope)  # a PUT replaces the lease
        return Ending(
            lease, envelope, records, is_move=is_move, is_dead=is_dead, is_last=is_last, after=after, stays=stays
        )

    def _after(self, lease: JobLease, envelope: Envelope) -> Sequence[OutgoingRecord]:
        """What is written when the other records of an ending are durable: the schedule keeps its lease until then."""
        return [self._state_records.lease_end(envelope)] if lease.is_handed_off else ()

    def _backoff_ms(self, envelope: Envelope, policy: JobPolicy) -> int:
        """The delay before the attempt that follows this one, by the task's policy; 0 when none may follow."""
        task = self._tasks.get(envelope.name)
        if task is None or task.retry is None or task.retry.backoff is None:
            return 0
        if policy.max_attempts is None or envelope.attempt >= policy.max_attempts:
            return 0
        try:
            return int(1000 * task.retry.wait_s(envelope.attempt, self._rng))
        except Exception:
            log.exception("the back-off of task %s failed, retrying after %d s", envelope.name, FALLBACK_BACKOFF_S)
            return 1000 * FALLBACK_BACKOFF_S

    def log_suppressed_counts(self) -> None:
        """Log how many lines were left out since the last one."""
        self._limited_log.flush()

    def _log_crash(self, envelope: Envelope, outcome: ChildLost, decision: JobDecision, policy: JobPolicy) -> None:
        name, message = envelope.name, "%s %s will be retried after crash %d of %d (%s)"
        kind = ("again", name, outcome_error(outcome).type)
        summary = error_summary(outcome)
        self._limited_log.warning(kind, message, name, envelope.id, decision.crashes, policy.crash_limit, summary)

    def _log_unknown_task(self, envelope: Envelope, outcome: UnknownTask, policy: JobPolicy) -> None:
        """Log each name once, since nothing else shows that its jobs wait for another worker."""
        name = envelope.name
        if name in self._unknown or len(self._unknown) >= MAX_UNKNOWN_NAMES:
            return
        self._unknown.add(name)
        log.warning(
            "cannot run task %r: %s; job %s waits for a worker that can, and fails after %g h if there is none; %s",
            name,
            outcome.reason,
            envelope.id,
            policy.unknown_ttl_ms / 3_600_000,
            _NESTED_REMEDY if "<locals>" in name else _UNKNOWN_REMEDY,
        )

    def _time_limits(
        self, task: Task[..., Any], soft: float | None, hard: float | None
    ) -> tuple[float | None, float | None]:
        own, filled, options = task.own_options, task.options, self._options
        return limits(
            (soft, hard),
            (own.soft_timeout, own.timeout),
            (options.soft_timeout_s, options.timeout_s),
            (filled.soft_timeout, filled.timeout),
        )

    def _policy(self, envelope: Envelope) -> JobPolicy:
        task = self._tasks.get(envelope.name)
        stored = envelope.store_result
        if stored is None:
            stored = task is None or task.store_result
        key = (envelope.name if task is not None else "", stored)
        policy = self._policies.get(key)
        if policy is None:
            attempts = task.retry.max_attempts if task is not None and task.retry is not None else None
            ttl_ms = int(1000 * self._options.unknown_ttl_s)
            policy = self._policies[key] = JobPolicy(attempts, self._options.crash_limit, stored, ttl_ms)
        return policy


def _history(lease: JobLease, envelope: Envelope, crashes: int) -> JobHistory:
    return JobHistory(
        envelope.attempt,
        crashes,
        lease.deliveries,
        envelope.expires_ms,
        envelope.unknown,
        envelope.unknown_since_ms,
        envelope.due_ms,
        lease.excused,
    )


def error_summary(outcome: Outcome) -> str:
    """Class and first line of an outcome's error, for a line of the log."""
    error_info = outcome_error(outcome)
    first, _, more = error_info.text.partition("\n")
    return f"{error_info.type}: {truncate_line(first, MAX_ERROR_CHARACTERS, bool(more))}"

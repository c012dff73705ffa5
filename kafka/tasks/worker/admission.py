"""Decides which leased records become jobs that run, and how a lease is settled after an outcome.

:class:`AdmissionPolicy` reads a leased record, asks :func:`kafka.tasks.rules.outcome.admit`, and makes a :class:`Job`;
it asks :func:`kafka.tasks.rules.outcome.decide` about an outcome and has the records made that carry the decision out.
It stores neither jobs nor leases. """

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kafka.log_limit import LimitedLog
from kafka.tasks.delivery.base import JobDelivery, JobLease
from kafka.tasks.delivery.records import StateRecords, outcome_error
from kafka.tasks.delivery.settlement import Settlement
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope, decode, too_many_headers, truncated_repr
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.options import WorkerOptions, is_task_name, limits
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.admit import admit, crashes_of
from kafka.tasks.rules.decide import JobDecision, JobHistory, JobPolicy, MoveTarget, decide
from kafka.tasks.rules.outcome import ChildLost, InvalidRecord, JobSucceeded, NotStarted, Outcome, UnknownTask
from kafka.tasks.states import JobState
from kafka.tasks.task import Task

log = logging.getLogger(__name__)


MAX_ERROR_CHARACTERS = 500
"""Characters of an error's first line in the log; all of it is in the dead topic and the result."""

MAX_TRACEBACK_LINES = 20
MAX_LINE_CHARACTERS = 300
"""Last lines of the traceback of a job that failed for good in the log, and characters of each."""


MAX_UNKNOWN_NAMES = 100
"""Maximum number of unknown task names that are logged."""


_NO_HISTORY = JobHistory()
"""Shared by successes, which need none: making one costs a microsecond."""


class AdmissionHold:
    """Keep a lease for ``seconds``, then let others have the job: :meth:`AdmissionPolicy.end_hold`."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


class AdmissionPolicy:
    """Applies the tables to the tasks of one worker. ``results_partitions``: ids that name others are no ids."""

    def __init__(
        self,
        tasks: Mapping[str, Task[..., Any]],
        state_records: StateRecords,
        delivery: JobDelivery,
        results_partitions: int,
        options: WorkerOptions,
    ) -> None:
        self._tasks = tasks
        self._state_records = state_records
        self._delivery = delivery
        self._results_partitions = results_partitions
        self._options = options
        self._limits: dict[Task[..., Any], tuple[float | None, float | None]] = {}
        self._policies: dict[tuple[str, bool], JobPolicy] = {}
        self._unknown: set[str] = set()  # names that were logged
        self._limited_log = LimitedLog(log)

    def admit(self, lease: JobLease, now_ms: int) -> Job | Settlement | AdmissionHold:
        """A job that may run, or how the lease ends without a run."""
        try:
            if lease.headers_left_out:
                raise too_many_headers(lease.headers_left_out)
            envelope = decode(lease.value, lease.headers)
            if envelope.results_partition >= self._results_partitions:
                raise BadRecord(
                    "bad-id", f"its id names results partition {envelope.results_partition}, which does not exist"
                )
            task = self._tasks.get(envelope.name) if envelope.name != ERROR_TASK else None
            if task is None and not is_task_name(envelope.name):
                raise BadRecord("bad-name", f"invalid task name {truncated_repr(envelope.name)}")
        except BadRecord as error:
            message = "record %s is not a valid job, moving it to the dead topic: %s"
            self._limited_log.warning((error.cause, lease.source.topic), message, lease.origin, error.text)
            record = self._state_records.no_job(lease, InvalidRecord(error.cause, error.text), now_ms)
            return Settlement(lease, None, [record], is_dead=True)
        suspect = lease.source.suspect
        crashes = crashes_of(envelope.crashes, lease.deliveries, suspect, lease.excused)
        if task is None or suspect or crashes or lease.deliveries > 1 or envelope.expires_ms is not None:
            known, policy, history = task is not None, self._policy(envelope), _history(lease, envelope, crashes)
            outcome = admit(envelope.name, history, policy, known=known, suspect=suspect, now_ms=now_ms)
            if outcome is not None:
                return self.end(lease, envelope, outcome, crashes, now_ms)
        assert task is not None  # admit() has an outcome for a task that is not known
        if envelope.timeout is None and envelope.soft_timeout is None:
            limits = self._limits.get(task)
            if limits is None:
                limits = self._limits[task] = self._time_limits(task, None, None)
            return Job(lease, envelope, task, *limits, crashes)
        return Job(lease, envelope, task, *self._time_limits(task, envelope.soft_timeout, envelope.timeout), crashes)

    def end(
        self, lease: JobLease, envelope: Envelope, outcome: Outcome, crashes: int, now_ms: int
    ) -> Settlement | AdmissionHold:
        """How a lease ends after ``outcome``; ``crashes`` are those behind the job."""
        policy = self._policy(envelope)
        history = _NO_HISTORY if isinstance(outcome, JobSucceeded) else _history(lease, envelope, crashes)
        decision = decide(outcome, history, policy, now_ms)
        if decision.hold_s:
            self._log_unknown_task(envelope, lease, policy)
            return AdmissionHold(decision.hold_s)
        return self._settlement(lease, envelope, outcome, decision, policy, now_ms)

    def end_hold(self, lease: JobLease, is_due: bool, now_ms: int) -> Settlement | None:
        """How a lease ends that was held since its task is unknown here; None: it is released. ``is_due`` False: before
        its time, which does not count. A suspect is never released, that would be a crash behind it.
        """
        if not lease.source.suspect:
            return None
        envelope = decode(lease.value, lease.headers)
        policy, crashes = self._policy(envelope), crashes_of(envelope.crashes, lease.deliveries, True, lease.excused)
        outcome: Outcome = UnknownTask(envelope.name, True) if is_due else NotStarted()
        decision = decide(outcome, _history(lease, envelope, crashes), policy, now_ms)
        return self._settlement(lease, envelope, outcome, decision, policy, now_ms)

    def _settlement(
        self,
        lease: JobLease,
        envelope: Envelope,
        outcome: Outcome,
        decision: JobDecision,
        policy: JobPolicy,
        now_ms: int,
    ) -> Settlement:
        """Turns a decision into the records to be written and the flags of the settlement; logs the move to the dead
        topic and retries. A job that goes back to the suspects' topic (SAME, from there) counts as a move, as one that
        goes there first."""
        records = self._state_records.for_decision(decision, outcome, envelope, lease, now_ms)
        if decision.move is MoveTarget.DEAD:
            place = records[0].topic
            message = "%s %s failed permanently (%s) and moves to the dead topic %s; cause %s%s"
            name, cause = envelope.name, decision.cause
            kind = (cause, name if name in self._tasks else "", outcome_error(outcome).type)
            self._limited_log.warning(
                kind, message, name, envelope.id, _error_summary(outcome), place, cause, _traceback_tail(outcome)
            )
        elif decision.state is JobState.RETRY:
            self._log_retry(envelope, outcome, decision, policy)
        move = decision.move
        is_dead = move is MoveTarget.DEAD
        is_last = is_dead or move is MoveTarget.NOWHERE
        is_move = move is MoveTarget.SUSPECT or (move is MoveTarget.SAME and lease.source.suspect)
        return Settlement(lease, envelope, records, is_move=is_move, is_dead=is_dead, is_last=is_last)

    def log_suppressed_counts(self) -> None:
        """Log how many lines were left out since the last one."""
        self._limited_log.flush()

    def _log_retry(self, envelope: Envelope, outcome: Outcome, decision: JobDecision, policy: JobPolicy) -> None:
        if isinstance(outcome, ChildLost):
            level, run, most = logging.WARNING, f"crash {decision.crashes}", policy.crash_limit
        elif log.isEnabledFor(logging.INFO):
            assert policy.max_attempts is not None  # an error of a task without a policy is final
            level, run, most = logging.INFO, f"attempt {envelope.attempt}", policy.max_attempts
        else:
            return
        name, message = envelope.name, "%s %s will be retried after %s of %d (%s)"
        kind = ("again", name, outcome_error(outcome).type)
        self._limited_log.write(level, kind, message, name, envelope.id, run, most, _error_summary(outcome))

    def _log_unknown_task(self, envelope: Envelope, lease: JobLease, policy: JobPolicy) -> None:
        """Log each name once, since nothing else shows that its jobs wait for another worker."""
        name = envelope.name
        if name in self._unknown or len(self._unknown) >= MAX_UNKNOWN_NAMES:
            return
        self._unknown.add(name)
        outcome, longest_s = UnknownTask(name, lease.source.suspect), self._delivery.lock_s / 3
        waits_s, deliveries, unknown = 0.0, lease.deliveries, envelope.unknown
        while True:
            hold_s = decide(outcome, JobHistory(deliveries=deliveries, unknown=unknown), policy, 0).hold_s
            if not hold_s:
                break
            waits_s += min(hold_s, longest_s)
            deliveries += 1
            unknown += 1
        log.warning(
            "unknown task %r: job %s waits for a worker that declares it, and fails in about %.0f s if there is none; "
            "import the module that defines the task in the app's module, or deploy it to this worker",
            name,
            envelope.id,
            waits_s,
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
        if policy is None or policy.delivery_limit != self._delivery.delivery_limit:
            attempts = task.retry.max_attempts if task is not None and task.retry is not None else None
            policy = JobPolicy(attempts, self._options.crash_limit, self._delivery.delivery_limit, stored)
            self._policies[key] = policy
        return policy


def _history(lease: JobLease, envelope: Envelope, crashes: int) -> JobHistory:
    return JobHistory(
        envelope.attempt, crashes, lease.deliveries, envelope.expires_ms, envelope.unknown, lease.excused
    )


def _error_summary(outcome: Outcome) -> str:
    error_info = outcome_error(outcome)
    first, _, more = error_info.text.partition("\n")
    return f"{error_info.type}: {_truncate(first, MAX_ERROR_CHARACTERS, bool(more))}"


def _traceback_tail(outcome: Outcome) -> str:
    """The end of its traceback, as lines below the first; empty when it has none."""
    lines = outcome_error(outcome).traceback.splitlines()
    if not lines:
        return ""
    last = [_truncate(line, MAX_LINE_CHARACTERS) for line in lines[-MAX_TRACEBACK_LINES:]]
    if len(lines) > MAX_TRACEBACK_LINES:
        last.insert(0, f"... {len(lines) - MAX_TRACEBACK_LINES} lines omitted, the dead topic has all of them ...")
    return "\n" + "\n".join(last)


def _truncate(text: str, most: int, is_cut: bool = False) -> str:
    """The first ``most`` characters, with a mark where more follow, or ``is_cut`` says so."""
    return f"{text[:most]}..." if is_cut or len(text) > most else text

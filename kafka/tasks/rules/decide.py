"""Decides what follows from an outcome: a pure function over plain data.

:func:`decide` maps an outcome to a :class:`JobDecision`; it touches no record: :mod:`kafka.tasks.delivery.records`
makes the records of a decision, and the delivery writes them and accepts the lease afterwards. The whole mapping is
this table (rows are tried from the top; ``test_decide.py`` walks every cell):

==============  ===============================  ==========  ========  =================
outcome         when                             moves to    state     cause
==============  ===============================  ==========  ========  =================
JobSucceeded    stored                           --          SUCCESS
JobSucceeded    store_result=False               --          --
AttemptFailed   no policy                        dead        FAILURE   error
AttemptFailed   its error is not listed          dead        FAILURE   error-not-listed
AttemptFailed   attempts used up                 dead        FAILURE   attempts
AttemptFailed   expires before the next attempt  dead        FAILURE   expired
AttemptFailed   otherwise, without a delay       due         RETRY
AttemptFailed   otherwise                        schedule    RETRY
JobRetried      attempts used up                 dead        FAILURE   attempts
JobRetried      expires before the next attempt  dead        FAILURE   expired
JobRetried      otherwise, its time has come     due         RETRY
JobRetried      otherwise                        schedule    RETRY
JobSnoozed      always                           schedule    SCHEDULED
JobCancelled    always                           --          REVOKED   cancelled
JobExpired      always                           --          REVOKED   expired
WorkerCrashed   always                           dead        FAILURE   crashes
ChildLost       it counts, below the limit       due         RETRY
ChildLost       it counts, at the limit          dead        FAILURE   lost-CAUSE
ChildLost       it does not count                back        --
SuspectedCrash  always                           suspect     --
NotStarted      always                           back        --
NotDue          always                           schedule    --
UnknownTask     within ``unknown_ttl``           schedule    --
UnknownTask     for longer                       dead        FAILURE   unknown-task
InvalidRecord   always                           dead        FAILURE   the record's own
==============  ===============================  ==========  ========  =================

*schedule*: with the time at which it is written to the due jobs, a second from now at least where no number of attempts
ends it. *back*: to the suspects if it comes from there, else to the due jobs, so that it does not queue behind
everything newer.

Why nothing is released or rejected: the broker's delivery count rises with every hand-out, clean ones included, is
capped at 5 (at most 10), and the broker drops the record silently after it. So it counts neither attempts nor crashes;
a count of 2 or more elsewhere makes a job a suspect, and only deliveries on the suspect topic, where each job starts at
once, count as crashes. The FAILURE of InvalidRecord is written only if the record has an id.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    NotDue,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState

UNKNOWN_DELAYS_S = (1, 2, 4, 8, 15, 30, 60)
"""Seconds until a job that a worker could not run is looked at again, by how often that has been so."""


LEAST_DELAY_MS = 1000
"""A job that has itself started again without end waits for so long at least."""


class MoveTarget(Enum):
    """Where a new record of the job goes before its lease is accepted."""

    NOWHERE = "nowhere"
    DUE = "due"
    SCHEDULE = "schedule"
    BACK = "back"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """The numbers that a decision depends on.

    ``max_attempts`` counts all attempts; None: the task has no policy, an error is final. ``unknown_ttl_ms``: how long
    a job waits for a worker that can run it.
    """

    max_attempts: int | None = None
    crash_limit: int = 3
    store_result: bool = True
    unknown_ttl_ms: int = 86_400_000


@dataclass(frozen=True, slots=True)
class JobHistory:
    """How far a job has come: this run's attempt, the crashes counted so far, the deliveries of its present record, how
    often and since when workers could not run it, the time before which it does not start, and of how many deliveries
    no worker is known to have died.
    """

    attempt: int = 1
    crashes: int = 0
    deliveries: int = 1
    expires_ms: int | None = None
    unknown: int = 0
    unknown_since_ms: int | None = None
    due_ms: int | None = None
    excused: int = 0


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What to do: accept once a record ``move`` and a ``state`` record are durable.

    ``attempt``, ``crashes``, ``unknown``, ``unknown_since_ms`` and ``due_ms`` are those of the moved record, ``clean``
    counts one more clean give-back, ``cause`` is the dead topic's word. What moves to the schedule has a ``due_ms``.
    """

    move: MoveTarget = MoveTarget.NOWHERE
    state: JobState | None = None
    attempt: int = 1
    crashes: int = 0
    clean: int = 0
    cause: str = ""
    unknown: int = 0
    unknown_since_ms: int | None = None
    due_ms: int | None = None


_STORED = JobDecision(state=JobState.SUCCESS)
_NOT_STORED = JobDecision()


def decide(
    outcome: Outcome, history: JobHistory, policy: JobPolicy, now_ms: int, delay_ms: int = 0
) -> JobDecision:
    """The table of this module's docstring. ``delay_ms``: the back-off before the attempt that follows a failed one.
    ``history.crashes`` includes the crash of a WorkerCrashed outcome, but not that of a ChildLost."""
    if isinstance(outcome, JobSucceeded):
        return _STORED if policy.store_result else _NOT_STORED
    if isinstance(outcome, AttemptFailed):
        cause = _final_cause(outcome, history, policy, now_ms + delay_ms)
        return _dead(history, cause) if cause else _retried(history, now_ms + delay_ms, now_ms)
    if isinstance(outcome, JobRetried):
        due_ms = outcome.due_ms if policy.max_attempts is not None else max(outcome.due_ms, now_ms + LEAST_DELAY_MS)
        cause = _exhausted_cause(history, policy, max(due_ms, now_ms))
        return _dead(history, cause) if cause else _retried(history, due_ms, now_ms)
    if isinstance(outcome, JobSnoozed):
        due_ms = now_ms + max(outcome.delay_ms, LEAST_DELAY_MS)
        return JobDecision(
            MoveTarget.SCHEDULE, JobState.SCHEDULED, attempt=history.attempt, crashes=history.crashes, due_ms=due_ms
        )
    if isinstance(outcome, JobCancelled):
        return JobDecision(state=JobState.REVOKED, attempt=history.attempt, cause="cancelled")
    if isinstance(outcome, JobExpired):
        return JobDecision(state=JobState.REVOKED, attempt=history.attempt, cause="expired")
    if isinstance(outcome, WorkerCrashed):
        return _dead(history, "crashes")
    if isinstance(outcome, ChildLost):
        return _lost(outcome, history, policy)
    if isinstance(outcome, SuspectedCrash):
        return _moved(history, MoveTarget.SUSPECT)
    if isinstance(outcome, NotStarted):
        return _moved(history, MoveTarget.BACK, clean=1)
    if isinstance(outcome, NotDue):
        return replace(_moved(history, MoveTarget.SCHEDULE), due_ms=outcome.due_ms)
    if isinstance(outcome, UnknownTask):
        return _unknown(history, policy, now_ms)
    assert isinstance(outcome, InvalidRecord)  # a run that ended for its lost lock decides nothing
    return _dead(history, outcome.cause)


def _final_cause(outcome: AttemptFailed, history: JobHistory, policy: JobPolicy, due_ms: int) -> str:
    """Why a failed job is not retried at ``due_ms``; empty when it is."""
    if policy.max_attempts is None:
        return "error"
    if not outcome.listed:
        return "error-not-listed"
    return _exhausted_cause(history, policy, due_ms)


def _exhausted_cause(history: JobHistory, policy: JobPolicy, due_ms: int) -> str:
    """Why no attempt may follow at ``due_ms``; empty when one may."""
    if policy.max_attempts is not None and history.attempt >= policy.max_attempts:
        return "attempts"
    if history.expires_ms is not None and due_ms >= history.expires_ms:
        return "expired"
    return ""


def _retried(history: JobHistory, due_ms: int, now_ms: int) -> JobDecision:
    attempt, crashes = history.attempt + 1, history.crashes
    if due_ms <= now_ms:
        return JobDecision(MoveTarget.DUE, JobState.RETRY, attempt, crashes)
    return JobDecision(MoveTarget.SCHEDULE, JobState.RETRY, attempt, crashes, due_ms=due_ms)


def _lost(outcome: ChildLost, history: JobHistory, policy: JobPolicy) -> JobDecision:
    # No suspect: its child died and no other process, so the crash is surely its own. Only where a whole worker died is
    # there anything to suspect.
    if not outcome.counts:
        return _moved(history, MoveTarget.BACK, clean=1)
    crashes = history.crashes + 1
    state, move, cause = JobState.RETRY, MoveTarget.DUE, ""
    if crashes >= policy.crash_limit:
        state, move, cause = JobState.FAILURE, MoveTarget.DEAD, f"lost-{outcome.cause}"
    return JobDecision(move, state, attempt=history.attempt, crashes=crashes, cause=cause)


def _unknown(history: JobHistory, policy: JobPolicy, now_ms: int) -> JobDecision:
    since_ms = now_ms if history.unknown_since_ms is None else history.unknown_since_ms
    if now_ms - since_ms >= policy.unknown_ttl_ms:
        return _dead(history, "unknown-task")
    delay_s = UNKNOWN_DELAYS_S[min(history.unknown, len(UNKNOWN_DELAYS_S) - 1)]
    return JobDecision(
        MoveTarget.SCHEDULE,
        attempt=history.attempt,
        crashes=history.crashes,
        unknown=history.unknown + 1,
        unknown_since_ms=since_ms,
        due_ms=now_ms + 1000 * delay_s,
    )


def _dead(history: JobHistory, cause: str) -> JobDecision:
    return JobDecision(
        MoveTarget.DEAD, JobState.FAILURE, attempt=history.attempt, crashes=history.crashes, cause=cause
    )


def _moved(history: JobHistory, move: MoveTarget, clean: int = 0) -> JobDecision:
    return JobDecision(
        move,
        attempt=history.attempt,
        crashes=history.crashes,
        clean=clean,
        unknown=history.unknown,
        unknown_since_ms=history.unknown_since_ms,
        due_ms=history.due_ms,
    )

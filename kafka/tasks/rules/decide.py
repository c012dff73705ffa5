"""Decides what happens to a job: two pure functions over plain data.

:func:`admit` looks at a job that was just leased and says why it should *not* run (None: run it). :func:`decide` maps
an outcome to a :class:`JobDecision`. Neither touches a record: :mod:`kafka.tasks.delivery.records` makes the records of
a decision, and the worker sends them and settles the lease afterwards. The whole mapping is this table (rows are tried
from the top; ``test_outcome.py`` walks every cell):

==============  ===============================  =======  ==========  ========  =================
outcome         when                             verdict  moves to    state     cause
==============  ===============================  =======  ==========  ========  =================
JobSucceeded    stored                           ACCEPT   --          SUCCESS
JobSucceeded    store_result=False               ACCEPT   --          --
AttemptFailed   no policy                        ACCEPT   dead        FAILURE   error
AttemptFailed   its error is not listed          ACCEPT   dead        FAILURE   error-not-listed
AttemptFailed   attempts used up                 ACCEPT   dead        FAILURE   attempts
AttemptFailed   expired meanwhile                ACCEPT   dead        FAILURE   expired
AttemptFailed   otherwise                        ACCEPT   queue       RETRY
JobCancelled    always                           ACCEPT   --          REVOKED   cancelled
JobExpired      always                           ACCEPT   --          REVOKED   expired
WorkerCrashed   below the crash limit            ACCEPT   suspect     --
WorkerCrashed   at the crash limit               ACCEPT   dead        FAILURE   crashes
ChildLost       it counts, below the limit       ACCEPT   queue       RETRY
ChildLost       it counts, at the limit          ACCEPT   dead        FAILURE   lost-CAUSE
ChildLost       it does not count                ACCEPT   same        --
SuspectedCrash  always                           ACCEPT   suspect     --
NotStarted      always                           ACCEPT   same        --
UnknownTask     hand-outs left                   RELEASE  --          --
UnknownTask     hand-outs left, a suspect        ACCEPT   same        --
UnknownTask     on the last but one              ACCEPT   dead        FAILURE   unknown-task
InvalidRecord   always                           ACCEPT   dead        FAILURE   the record's own
LockLost        always                           DROP     --          --
==============  ===============================  =======  ==========  ========  =================

Why a retry is not a RELEASE: the broker's delivery count rises with every hand-out, clean ones included, is capped at 5
(at most 10), and the broker drops the record silently after it. So it counts neither attempts nor crashes; a count of 2
or more on a queue makes a job a suspect, and only deliveries on the suspect topic, where each job starts at once, count
as crashes. So nothing is released there: a suspect of an unknown task is produced again, with the number of such
deliveries in a header. The FAILURE of InvalidRecord is written only if the id could be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    JobCancelled,
    JobExpired,
    JobSucceeded,
    LockLost,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState


class LeaseVerdict(Enum):
    """How a lease is settled. DROP: not at all, its lock is lost."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    DROP = "drop"


class MoveTarget(Enum):
    """Where a new record of the job goes before its lease is accepted."""

    NOWHERE = "nowhere"
    QUEUE = "queue"
    SAME = "same"
    SUSPECT = "suspect"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """The numbers that a decision depends on.

    ``max_attempts`` counts all attempts; None: the task has no policy, an error is final. ``delivery_limit`` is the
    group's ``share.delivery.count.limit``: the last delivery is never spent.
    """

    max_attempts: int | None = None
    crash_limit: int = 3
    delivery_limit: int = 5
    store_result: bool = True


@dataclass(frozen=True, slots=True)
class JobHistory:
    """How far a job has come: this run's attempt, the crashes counted so far, the deliveries of its present record, how
    often it was a suspect of workers that did not know it, and of how many deliveries no worker is known to have died.
    """

    attempt: int = 1
    crashes: int = 0
    deliveries: int = 1
    expires_ms: int | None = None
    unknown: int = 0
    excused: int = 0


@dataclass(frozen=True, slots=True)
class JobDecision:
    """What to do: settle with ``verdict`` once a record ``move`` and a ``state`` record are durable.

    ``attempt`` and ``crashes`` are those of the moved record, ``clean`` counts one more clean give-back, ``unknown``
    one more worker that did not know it, ``cause`` is the dead topic's word, ``hold_s`` is how long to keep the lease
    first.
    """

    verdict: LeaseVerdict
    move: MoveTarget = MoveTarget.NOWHERE
    state: JobState | None = None
    attempt: int = 1
    crashes: int = 0
    clean: int = 0
    cause: str = ""
    hold_s: float = 0.0
    unknown: int = 0


_STORED = JobDecision(LeaseVerdict.ACCEPT, state=JobState.SUCCESS)
_NOT_STORED = JobDecision(LeaseVerdict.ACCEPT)
_DROPPED = JobDecision(LeaseVerdict.DROP)


def decide(outcome: Outcome, history: JobHistory, policy: JobPolicy, now_ms: int) -> JobDecision:
    """The table of this module's docstring. ``history.crashes`` includes the crash of a WorkerCrashed outcome, but not
    that of a ChildLost."""
    if isinstance(outcome, JobSucceeded):
        return _STORED if policy.store_result else _NOT_STORED
    if isinstance(outcome, AttemptFailed):
        cause = _final(outcome, history, policy, now_ms)
        if cause:
            return _dead(history, cause)
        return JobDecision(
            LeaseVerdict.ACCEPT,
            MoveTarget.QUEUE,
            JobState.RETRY,
            attempt=history.attempt + 1,
            crashes=history.crashes,
        )
    if isinstance(outcome, LockLost):
        return _DROPPED
    if isinstance(outcome, JobCancelled):
        return JobDecision(LeaseVerdict.ACCEPT, state=JobState.REVOKED, attempt=history.attempt, cause="cancelled")
    if isinstance(outcome, JobExpired):
        return JobDecision(LeaseVerdict.ACCEPT, state=JobState.REVOKED, attempt=history.attempt, cause="expired")
    if isinstance(outcome, WorkerCrashed):
        if history.crashes >= policy.crash_limit:
            return _dead(history, "crashes")
        return _moved(history, MoveTarget.SUSPECT)
    if isinstance(outcome, ChildLost):
        return _lost(outcome, history, policy)
    if isinstance(outcome, SuspectedCrash):
        return _moved(history, MoveTarget.SUSPECT)
    if isinstance(outcome, NotStarted):
        return _moved(history, MoveTarget.SAME, clean=1)
    if isinstance(outcome, UnknownTask):
        return _unknown(outcome, history, policy)
    return _dead(history, outcome.cause)


def _final(outcome: AttemptFailed, history: JobHistory, policy: JobPolicy, now_ms: int) -> str:
    """Why a failed job is not retried; empty when it is."""
    if policy.max_attempts is None:
        return "error"
    if not outcome.listed:
        return "error-not-listed"
    if history.attempt >= policy.max_attempts:
        return "attempts"
    if history.expires_ms is not None and now_ms >= history.expires_ms:
        return "expired"
    return ""


def _lost(outcome: ChildLost, history: JobHistory, policy: JobPolicy) -> JobDecision:
    # No suspect: its child died and no other process, so the crash is surely its own. It returns to the queue with one
    # crash more and need not run alone. Only where a whole worker died is there anything to suspect.
    if not outcome.counts:
        return _moved(history, MoveTarget.SAME, clean=1)
    crashes = history.crashes + 1
    state, move, cause = JobState.RETRY, MoveTarget.QUEUE, ""
    if crashes >= policy.crash_limit:
        state, move, cause = JobState.FAILURE, MoveTarget.DEAD, f"lost-{outcome.cause}"
    return JobDecision(LeaseVerdict.ACCEPT, move, state, attempt=history.attempt, crashes=crashes, cause=cause)


def _unknown(outcome: UnknownTask, history: JobHistory, policy: JobPolicy) -> JobDecision:
    times = history.unknown + 1 if outcome.suspect else history.deliveries
    if times >= policy.delivery_limit - 1:
        return _dead(history, "unknown-task")
    hold_s = float(2 ** (times - 1))
    if outcome.suspect:
        if history.excused or history.deliveries >= policy.delivery_limit - 1:  # the broker drops it after the next
            hold_s = 0.0
        return replace(_moved(history, MoveTarget.SAME), unknown=1, hold_s=hold_s)
    return JobDecision(LeaseVerdict.RELEASE, attempt=history.attempt, hold_s=hold_s)


def _dead(history: JobHistory, cause: str) -> JobDecision:
    return JobDecision(
        LeaseVerdict.ACCEPT,
        MoveTarget.DEAD,
        JobState.FAILURE,
        attempt=history.attempt,
        crashes=history.crashes,
        cause=cause,
    )


def _moved(history: JobHistory, move: MoveTarget, clean: int = 0) -> JobDecision:
    return JobDecision(LeaseVerdict.ACCEPT, move, attempt=history.attempt, crashes=history.crashes, clean=clean)

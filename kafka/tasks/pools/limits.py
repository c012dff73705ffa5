"""When to check a child for its jobs' limits, and what to do then. Pure: time comes as an argument.

The parent does not learn when a job begins; it reads that from the child's page. So a child is looked at when the
first limit among its jobs *could* be due, and again when the page says that it will be. A child with many short jobs
under long limits is looked at once for thousands of them.

The outcome of a job that ran for too long is the same in all pools, and is made here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from kafka.tasks.errors import TimeLimit
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo


class LimitAction(Enum):
    """What is due."""

    NOTHING = "nothing"
    SOFT = "soft"
    AGAIN = "again"
    HARD = "hard"


class StartedJob(NamedTuple):
    """The job that a child has begun, and when (monotonic)."""

    seq: int
    job: Job
    started_at: float


SOFT_REPEAT_S = 1.0
"""A job that runs on after its soft limit gets the exception again so much later: the first one may have been raised
where it could not be caught. A child that has raised it ignores the others."""


class ChildLimits:
    """The next look at one child. ``check_at`` None: none of its jobs has a limit."""

    __slots__ = ("_repeat_at", "_soft_limit_seq", "check_at")

    def __init__(self) -> None:
        self.check_at: float | None = None
        self._soft_limit_seq = 0
        self._repeat_at = 0.0

    def add(self, job: Job, now: float) -> bool:
        """A job was handed to the child; whether the next look is earlier for it. Jobs without limits need no call."""
        at = now + least_limit(job)
        if self.check_at is not None and self.check_at <= at:
            return False
        self.check_at = at
        return True

    def on_soft_limit(self, seq: int, now: float) -> None:
        """The running job was asked to end, at its soft limit or for another reason: see AGAIN."""
        self._soft_limit_seq = seq
        self._repeat_at = now + SOFT_REPEAT_S
        if self.check_at is None or self.check_at > self._repeat_at:
            self.check_at = self._repeat_at

    def check(self, now: float, running: StartedJob | None, jobs: Iterable[Job]) -> LimitAction:
        """What is due for the running job; afterwards ``check_at`` is the next look. ``jobs``: all that the child has.

        SOFT is said once for a job, and AGAIN each second after it. HARD ends the looking: the child is killed.
        """
        due: list[float] = []
        for job in jobs:
            if (running is None or job is not running.job) and (job.soft_s is not None or job.hard_s is not None):
                due.append(now + least_limit(job))
        action = LimitAction.NOTHING
        if running is not None:
            action = self._check(now, running, due)
        self.check_at = min(due, default=None) if action is not LimitAction.HARD else None
        return action

    def _check(self, now: float, running: StartedJob, due: list[float]) -> LimitAction:
        """The running job: HARD goes before SOFT; after SOFT only AGAIN and HARD are left. Appends to ``due`` when to
        look next."""
        seq, job, started_at = running
        if job.hard_s is not None:
            if now >= started_at + job.hard_s:
                return LimitAction.HARD
            due.append(started_at + job.hard_s)
        if self._soft_limit_seq == seq:
            action = LimitAction.NOTHING
            if now >= self._repeat_at:
                action = LimitAction.AGAIN
                self._repeat_at = now + SOFT_REPEAT_S
            due.append(self._repeat_at)
            return action
        if job.soft_s is not None:
            if now >= started_at + job.soft_s:
                self.on_soft_limit(seq, now)
                due.append(self._repeat_at)
                return LimitAction.SOFT
            due.append(started_at + job.soft_s)
        return LimitAction.NOTHING


def least_limit(job: Job) -> float:
    """The nearer one of the limits of a job that has any; seconds from its start."""
    soft, hard = job.soft_s, job.hard_s
    if soft is None or hard is None:
        return soft if hard is None else hard  # type: ignore[return-value]  # one of them is there
    return min(soft, hard)


def timeout_text(job: Job) -> str:
    """The error text of a job that has reached its hard limit."""
    return f"it ran for longer than its timeout of {job.hard_s:g} s"


def timeout_outcome(
    job: Job, more: str = "", kill_signal: int | None = None, handlers_called: bool = False
) -> AttemptFailed:
    """The outcome of a job that has reached its hard limit; ``more`` goes behind the text."""
    error_info = ErrorInfo("TimeLimit", timeout_text(job) + more)
    return AttemptFailed(error_info, job.task.retries(TimeLimit()), kill_signal, handlers_called)

"""The outcomes of a job: how a lease came to its end, as data.

:mod:`kafka.tasks.rules.admit` and the pools make them, :mod:`kafka.tasks.rules.decide` maps them to decisions. A new
outcome is one more class here, its place in :data:`Outcome` and a row of the table there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as data: class name, message, traceback text. Host and time are added where it is written."""

    type: str
    text: str = ""
    traceback: str = ""


@dataclass(frozen=True, slots=True)
class JobSucceeded:
    """The function returned; ``value`` is its encoded result (empty when none is to be stored)."""

    value: bytes


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The function raised. ``listed``: the task's policy lists the error as worth another attempt. ``kill_signal``: its
    child was ended with this signal at its hard limit. ``handlers_called``: the error handlers were called where it
    ran.
    """

    error_info: ErrorInfo
    listed: bool = True
    kill_signal: int | None = None
    handlers_called: bool = True


@dataclass(frozen=True, slots=True)
class JobRetried:
    """The task asked for another attempt at ``due_ms`` (ms since the epoch, broker time): ``RetryAt``."""

    due_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobSnoozed:
    """The task asked to be started again after ``delay_ms``, which is no attempt: ``Snooze``."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """The task, or its caller, wants no result."""

    reason: str


@dataclass(frozen=True, slots=True)
class JobExpired:
    """It had expired before it started."""


@dataclass(frozen=True, slots=True)
class WorkerCrashed:
    """The process that ran it died."""

    error_info: ErrorInfo


LOST_CAUSES: dict[str, str] = {
    "time": "killed at its time limit",
    "memory": "killed at its memory limit",
    "oom": "killed by the kernel's OOM killer",
    "signal": "killed by a signal that the worker did not send",
    "exit": "the task ended its process",
    "channel": "its channel was closed or damaged",
    "frozen": "its process was stopped",
    "stopped": "the worker is stopping",
    "cancelled": "killed since its job was cancelled",
}
"""Causes of :class:`ChildLost`, and their texts."""


@dataclass(frozen=True, slots=True)
class ChildLost:
    """The child process died in which the job had begun.

    ``cause`` is a key of :data:`LOST_CAUSES`; ``rss_bytes`` what it was last seen to hold, ``peak_rss_bytes`` the most
    that it ever held, ``cpu_s`` what it used of the processor; ``detail`` is added to the text. ``counts``: it is a
    crash of the job's; else the job had no part in it (the worker's own stop), and is given back.
    """

    cause: str
    signal: int | None = None
    exit_code: int | None = None
    rss_bytes: int | None = None
    detail: str = ""
    counts: bool = True
    peak_rss_bytes: int | None = None
    cpu_s: float | None = None

    def error_info(self) -> ErrorInfo:
        """``WorkerLost`` with all that is known of the death, on one line."""
        cause = LOST_CAUSES.get(self.cause, self.cause)
        return ErrorInfo("WorkerLost", f"the job's process ended: {'; '.join((cause, *self.facts()))}")

    def facts(self) -> Iterator[str]:
        """How it ended and what it used, as far as that is known."""
        if self.signal is not None:
            yield f"signal {self.signal} ({signal_name(self.signal)})"
        if self.exit_code is not None:
            yield f"exit code {self.exit_code}"
        yield from self._memory()
        if self.cpu_s is not None:
            yield f"{self.cpu_s:.3g} s of CPU time"
        if self.detail:
            yield self.detail

    def _memory(self) -> Iterator[str]:
        seen, peak = _mib(self.rss_bytes), _mib(self.peak_rss_bytes)
        if seen is not None:
            yield f"last RSS {seen} MiB"
        if peak is not None and (seen is None or peak > seen):
            yield f"peak RSS {peak} MiB"


def _mib(size: int | None) -> int | None:
    return None if size is None else round(size / 1_048_576)


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


@dataclass(frozen=True, slots=True)
class SuspectedCrash:
    """Delivered before: its worker may have died while it held the job."""


@dataclass(frozen=True, slots=True)
class NotStarted:
    """Leased and given back before it ran."""


@dataclass(frozen=True, slots=True)
class NotDue:
    """It is to be started later, at ``due_ms`` (ms since the epoch, broker time): an older release, or another program,
    has written it to its queue before that."""

    due_ms: int


@dataclass(frozen=True, slots=True)
class UnknownTask:
    """This worker has no task of that name, or lacks what the job needs (``reason``); another one may."""

    name: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """The record is not a job."""

    cause: str
    text: str


@dataclass(frozen=True, slots=True)
class LockLost:
    """The acquisition lock was lost and the run ended for that: another worker runs the job, and nothing follows."""


Outcome: TypeAlias = (
    "JobSucceeded | AttemptFailed | JobRetried | JobSnoozed | JobCancelled | JobExpired | WorkerCrashed | ChildLost"
    " | SuspectedCrash | NotStarted | NotDue | UnknownTask | InvalidRecord | LockLost"
)

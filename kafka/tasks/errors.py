"""Errors of the task queue, and the three exceptions that control a running task.

Errors that reach the caller of a handle or of ``delay`` derive from :class:`TaskError` and so from
:class:`kafka.errors.KafkaError`. :class:`SoftTimeLimit` and :class:`TimeLimit` are raised *inside* user code and derive
from ``BaseException``, so that a task's ``except Exception`` does not eat its own time limit; :class:`Cancel` is
raised *by* user code. Wrong options raise :class:`kafka.errors.IllegalArgumentError`, wrong settings
:class:`kafka.errors.KafkaConfigurationError`; what the broker says stays what it is.
"""

from __future__ import annotations

import difflib
import math
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime, timedelta, timezone
from typing import Any

from kafka.errors import IllegalArgumentError, KafkaError


class TaskError(KafkaError):
    """The root of the task queue's own errors. ``str()`` is the text alone, as for Python's own errors: a traceback
    shows the class in front of it."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class JobFailed(TaskError):
    """The job ended in FAILURE: what was raised, where and when.

    ``type`` is the class (``OSError``, ``shop.errors.NoStock``), ``text`` its message, ``traceback`` the worker's text,
    ``host`` the worker's host name, ``job_id`` the job. The error's own text holds type and message; its cause is a
    :class:`RemoteTraceback`, so that Python shows both when it is not caught.
    """

    def __init__(self, type: str, text: str = "", traceback: str = "", host: str = "", job_id: str = "") -> None:
        super().__init__(f"{type}: {text}" if text else type)
        self.type = type
        self.text = text
        self.traceback = traceback
        self.host = host
        self.job_id = job_id
        if traceback:
            self.__cause__ = RemoteTraceback(traceback)

    def __reduce__(self) -> tuple[type[JobFailed], tuple[str, str, str, str, str]]:
        return JobFailed, (self.type, self.text, self.traceback, self.host, self.job_id)


class RemoteTraceback(Exception):
    """The cause of a :class:`JobFailed`: shows ``text``, where the error was raised in the worker. It is never
    raised."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text.rstrip()}\n"""'


class JobRevoked(TaskError):
    """The job ended without a result of its own: expired before it started, or cancelled. The text says which."""


class JobUnknown(TaskError):
    """No record of a bare id: nothing has been written about the job yet, it was never enqueued here, or its result is
    older than the app's ``result_ttl``. The text says what is possible."""


class NoResult(TaskError):
    """The job was enqueued with ``store_result=False``: there will be no result to wait for."""


class JobTimeout(TaskError, TimeoutError):
    """The job had no result within the time that the caller gave, and goes on; or the brokers have not answered by
    then, and the client's error is the cause."""


class JobsNotSent(TaskError):
    """``count`` of ``total`` jobs that were enqueued since the last flush could not be written, for example since the
    broker refused them or was away for too long. Enqueue them again; the others are safe.

    ``cause`` is the first error of the producer, and this error's ``__cause__``. Each handle says which job: its
    ``status()`` is FAILURE, its ``result()`` raises its error.
    """

    def __init__(self, count: int, total: int, cause: BaseException, place: str) -> None:
        jobs = "job was" if total == 1 else "jobs were"
        super().__init__(
            f"{count:,} of {total:,} {jobs} not written to {place}: {one_line(cause)}; enqueue those again whose "
            "handle has the status() FAILURE"
        )
        self.count = count
        self.total = total
        self.cause = cause
        self.place = place
        self.__cause__ = cause

    def __reduce__(self) -> tuple[type[JobsNotSent], tuple[int, int, BaseException, str]]:
        return JobsNotSent, (self.count, self.total, self.cause, self.place)


class NotSerialisable(TaskError, TypeError):
    """A value that the chosen format cannot carry unchanged. The text names the argument and what to do."""


class PayloadTooLarge(TaskError, ValueError):
    """A payload above the limit of its topic. Nothing was sent."""


class TaskInMain(TaskError):
    """A task of ``__main__``: no worker could import it. The text has the line that does."""


class UnknownQueue(TaskError, IllegalArgumentError):
    """A queue that the app does not declare and the broker does not have."""


class UnknownApp(TaskError):
    """A handle from another process is used, and its app is not loaded here."""


class LoadError(TaskError, IllegalArgumentError):
    """``MODULE:APP`` does not lead to an app. The text says which half failed and what to do."""


class BadRecord(TaskError):
    """A record that is no job, or not one that can be read.

    ``cause`` is a short word for the dead topic's header.
    """

    def __init__(self, cause: str, text: str) -> None:
        super().__init__(text)
        self.cause = cause
        self.text = text

    def __reduce__(self) -> tuple[type[BadRecord], tuple[str, str]]:
        return BadRecord, (self.cause, self.text)


class WorkerLost(TaskError):
    """The process that ran a job died: what error handlers are given for it, and the type of the job's failure.

    ``cause`` is a word of :data:`kafka.tasks.rules.outcome.LOST_CAUSES`; ``rss_bytes`` is what the process was last
    seen to hold, ``peak_rss_bytes`` the most that it ever held, ``cpu_s`` what it used of the processor. Whatever does
    not apply or is not known is None.
    """

    def __init__(
        self,
        text: str,
        cause: str = "",
        signal: int | None = None,
        exit_code: int | None = None,
        rss_bytes: int | None = None,
        peak_rss_bytes: int | None = None,
        cpu_s: float | None = None,
    ) -> None:
        super().__init__(text)
        self.cause = cause
        self.signal = signal
        self.exit_code = exit_code
        self.rss_bytes = rss_bytes
        self.peak_rss_bytes = peak_rss_bytes
        self.cpu_s = cpu_s

    def __reduce__(self) -> tuple[type[WorkerLost], tuple[Any, ...]]:
        known = (self.cause, self.signal, self.exit_code, self.rss_bytes, self.peak_rss_bytes, self.cpu_s)
        return WorkerLost, (self.args[0], *known)


class PoolFailed(TaskError):
    """No child process of the pool has ever come up: the worker cannot run any job, and gives up. The text says why."""


class Cancel(Exception):
    """Raise or return it from a task: the job ends as REVOKED with this reason, and is not retried."""

    def __init__(self, reason: str = "cancelled by the task") -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Exception):
    """Raise or return it from a task: the job starts again after ``seconds`` (a number or a ``timedelta``, at most
    :data:`LONGEST_DELAY_S`, at least a second), which counts no attempt."""

    def __init__(self, seconds: float | timedelta) -> None:
        self.delay_ms = int(1000 * check_delay("Snooze(seconds)", seconds))
        super().__init__(f"snoozed for {self.delay_ms / 1000:g} s")


class RetryAt(Exception):
    """Raise or return it from a task: another attempt follows at ``when``, an aware ``datetime`` or seconds since the
    epoch, at most :data:`LONGEST_DELAY_S` from now. It counts as an attempt: with ``retry=`` it is subject to
    ``max_attempts``. IllegalArgumentError for an instant before 2000, which is a delay by mistake."""

    def __init__(self, when: float | datetime, reason: str = "") -> None:
        given = when
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise IllegalArgumentError(f"RetryAt(when) needs a datetime with a time zone, not {when!r}")
            when = when.timestamp()
        due_s, now = max(0.0, _finite("RetryAt(when)", when)), wall_clock.get()()
        if due_s < _YEAR_2000_S <= now:
            delay = f"{min(max(1.0, when), 86_400.0):g}"
            raise IllegalArgumentError(
                f"RetryAt({given!r}): that is a time (seconds since 1970) and not a delay; use Snooze({delay}), or "
                f"RetryAt(datetime.now(timezone.utc) + timedelta(seconds={delay}))"
            )
        check_delay("RetryAt(when), from now on,", max(0.0, due_s - now))
        self.due_ms = int(1000 * due_s)
        super().__init__(reason or f"to be retried at {datetime.fromtimestamp(due_s, timezone.utc).isoformat()}")


wall_clock: ContextVar[Callable[[], float]] = ContextVar("kafka_wall_clock", default=time.time)
"""What :class:`RetryAt` takes for the present: the machine's clock, or that of a test while it runs a job."""

_YEAR_2000_S = 946_684_800.0

LONGEST_DELAY_S = 100 * 365.25 * 86_400
"""A longer delay is a mistake: a century."""


def check_delay(name: str, value: float | timedelta) -> float:
    """``value`` as seconds that a job may be delayed."""
    seconds = _finite(name, value.total_seconds() if isinstance(value, timedelta) else value)
    if not 0 <= seconds <= LONGEST_DELAY_S:
        raise IllegalArgumentError(f"{name} must be a number of seconds from 0 to a century, not {value!r}")
    return seconds


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise IllegalArgumentError(f"{name} must be a finite number of seconds, not {value!r}")
    return float(value)


class SoftTimeLimit(BaseException):
    """Raised inside a task that has run for ``soft_timeout`` seconds, or that the worker asks to end as it stops."""


class TimeLimit(BaseException):
    """Raised inside a task that has run for ``timeout`` seconds; its job has ended without it."""


def one_line(error: BaseException) -> str:
    """An error as it is shown within a line: its type, once, and the first line of its text."""
    name, text = type(error).__name__, str(error).partition("\n")[0]
    return text if text.startswith(name) else f"{name}: {text}" if text else name


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 job``, ``2 jobs``; ``plural`` where that is not the noun with an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'retry'?`` for the nearest known name, or the list of them when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names)}" if names else ""

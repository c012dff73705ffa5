"""``@app.success_handler`` and ``@app.error_handler``: the user's functions that are called when a run of a job has
ended.

They run where the job ran, after it and within its limits, so they can neither block the worker's loop nor end the
worker. A job whose process was killed, or whose thread was given up at the hard limit, has no such place any more: the
worker then has the error handlers run by the pool, as a job of the hidden task :data:`ERROR_TASK`, which no topic knows
and whose outcome is only logged (:class:`LostJobHandlers`). An error in a handler is logged and changes nothing about
the job.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka.tasks.delivery import JobLease, JobSource
from kafka.tasks.envelope import Envelope
from kafka.tasks.errors import BadRecord, TimeLimit, WorkerLost
from kafka.tasks.outcome import AttemptFailed, ChildLost, JobSucceeded, Outcome
from kafka.tasks.payload import decode_call, encode_call
from kafka.tasks.runner import Job

if TYPE_CHECKING:
    from kafka.tasks.task import Task

log = logging.getLogger(__name__)

ERROR_TASK = "kafka.tasks.error_handler"
"""The name of the hidden task; no task of a user's can have it."""

HANDLER_S = 60.0
"""Hard limit of the error handlers when they run as a job of their own."""

MOST_ARGUMENTS = 262_144
"""Bytes of a killed job's payload above which its handlers do not get the arguments."""

_FACTS = ("cause", "signal", "exit_code", "rss_bytes", "peak_rss_bytes", "cpu_s")
"""Of a :class:`ChildLost`, for its :class:`WorkerLost`."""

ExcInfo: TypeAlias = "tuple[type[BaseException], BaseException, TracebackType | None]"


@dataclass(frozen=True)
class FinishedJob:
    """The job as a handler gets it. ``args`` and ``kwargs`` are those of the call; None when they cannot be read,
    or are large and the job was killed.
    """

    id: str
    name: str
    attempt: int
    deliveries: int
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None


SuccessHandler: TypeAlias = Callable[[FinishedJob], object]
ErrorHandler: TypeAlias = "Callable[[FinishedJob, int | None, ExcInfo], object]"


class Handlers:
    """The handlers of one app, called in the order of their declaration."""

    __slots__ = ("errors", "successes")

    def __init__(self) -> None:
        self.successes: list[SuccessHandler] = []
        self.errors: list[ErrorHandler] = []

    def succeeded(self, job: Job) -> None:
        """The job's function has returned."""
        if job.task.name != ERROR_TASK:
            for handler in self.successes:
                _call(handler, finished_job(job))

    def failed(self, job: Job, error: BaseException) -> None:
        """This run of it has failed with ``error``."""
        if job.task.name != ERROR_TASK:
            self._call_all(finished_job(job), None, error)

    def run_lost(self, job: Mapping[str, Any], lost: Mapping[str, Any]) -> None:
        """What the hidden task does, with what :class:`LostJobHandlers` has written down."""
        error: BaseException = TimeLimit(lost["text"]) if lost["cause"] == "time" else WorkerLost(**lost)
        self._call_all(FinishedJob(**job), lost["signal"], error)

    def _call_all(self, job: FinishedJob, kill_signal: int | None, error: BaseException) -> None:
        for handler in self.errors:
            _call(handler, job, kill_signal, (type(error), error, error.__traceback__))


def _call(handler: Callable[..., object], *args: Any) -> None:
    try:
        handler(*args)
    except BaseException:  # also SystemExit and a time limit: the outcome does not change
        log.exception("handler %r failed for job %s; the job's outcome does not change", handler, args[0])


def finished_job(job: Job, most_bytes: int | None = None) -> FinishedJob:
    """A job as handlers see it; without its arguments when the payload has more than ``most_bytes``, or is none."""
    envelope = job.envelope
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    if most_bytes is None or len(envelope.value) <= most_bytes:
        with contextlib.suppress(BadRecord):
            args, kwargs = decode_call(envelope.value)
    return FinishedJob(envelope.id, envelope.name, envelope.attempt, job.lease.deliveries, args, kwargs)


class LostJobHandlers:
    """Runs of the hidden task that wait for a slot or run. ``task`` None: the app has no error handler."""

    __slots__ = ("_running", "_task", "_waiting")

    def __init__(self, task: Task[..., Any] | None) -> None:
        self._task = task
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def add_if_lost(self, job: Job, outcome: Outcome) -> None:
        """A job has ended: if it was killed or given up, its handlers are due."""
        if self._task is None:
            return
        if isinstance(outcome, ChildLost) and outcome.counts:
            lost = {name: getattr(outcome, name) for name in _FACTS}
            lost["text"] = outcome.error_info().text
        elif isinstance(outcome, AttemptFailed) and not outcome.handlers_called:
            lost = {"cause": "time", "text": outcome.error_info.text, "signal": outcome.kill_signal}
        else:
            return
        seen = finished_job(job, MOST_ARGUMENTS)
        value = encode_call(ERROR_TASK, (asdict(seen), lost), {})
        envelope = Envelope(seen.id, ERROR_TASK, value, store_result=False)
        lease = JobLease(JobSource("", ""), value, [], 1)
        self._waiting.append(Job(lease, envelope, self._task, None, HANDLER_S))

    def start(self, most: int, submit: Callable[[Job], None]) -> None:
        """Start up to ``most`` of them."""
        while self._waiting and most > 0:
            job = self._waiting.popleft()
            self._running.add(job)
            submit(job)
            most -= 1

    def finish(self, job: Job, outcome: Outcome) -> bool:
        """Whether it is one of these; then it is over."""
        if job not in self._running:
            return False
        self._running.remove(job)
        if not isinstance(outcome, JobSucceeded):
            log.error("the error handlers of job %s failed: %r", job.envelope.id, outcome)
        return True

    def requeue(self, job: Job) -> bool:
        """Whether it is one of these; then it waits again: the pool has not started it."""
        if job not in self._running:
            return False
        self._running.remove(job)
        self._waiting.appendleft(job)
        return True

    def drop(self) -> None:
        """The worker leaves without them."""
        if len(self):
            log.warning("not running the error handlers of %d jobs: the worker is stopping", len(self))
        self._waiting.clear()
        self._running.clear()

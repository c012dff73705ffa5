"""``@app.success_handler`` and ``@app.error_handler``: the user's functions that are called when a run of a job has
ended; and ``@app.on_enqueue_error``, which is called where a job was enqueued, when it could not be.

The first two run where the job ran, after it and within its limits, so they can neither block the worker's loop nor end
the worker. A job whose process was killed, or whose thread was given up at the hard limit, has no such place any more:
the worker then has the error handlers run by the pool, as a job of the hidden task :data:`ERROR_TASK`, which no topic
knows and whose outcome is only logged (:class:`LostJobHandlers`). An error in a handler is logged and changes
nothing about the job.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from kafka.tasks.errors import BadRecord, TimeLimit, WorkerLost
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.payload import PayloadCodec

if TYPE_CHECKING:
    from kafka.tasks.job import JobHandle

log = logging.getLogger(__name__)

ERROR_TASK = "kafka.tasks.error_handler"
"""The name of the hidden task; no task of a user's can have it."""

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
EnqueueErrorHandler: TypeAlias = "Callable[[JobHandle[Any], BaseException], object]"


class Handlers:
    """The handlers of one app, called in the order of their declaration."""

    __slots__ = ("enqueue_errors", "errors", "successes")

    def __init__(self) -> None:
        self.successes: list[SuccessHandler] = []
        self.errors: list[ErrorHandler] = []
        self.enqueue_errors: list[EnqueueErrorHandler] = []

    def succeeded(self, job: FinishedJob) -> None:
        """The job's function has returned."""
        if job.name != ERROR_TASK:
            for handler in self.successes:
                _call(handler, job)

    def failed(self, job: FinishedJob, error: BaseException) -> None:
        """This run of it has failed with ``error``."""
        if job.name != ERROR_TASK:
            self._call_all(job, None, error)

    def not_enqueued(self, job: JobHandle[Any], error: BaseException) -> None:
        """The job's record could not be written."""
        for handler in self.enqueue_errors:
            _call(handler, job, error)

    def run_lost(self, job: FinishedJob, lost: Mapping[str, Any]) -> None:
        """Call the error handlers of a job whose process was killed, or that was given up; ``lost``: the arguments of
        :class:`WorkerLost`."""
        error: BaseException = TimeLimit(lost["text"]) if lost["cause"] == "time" else WorkerLost(**lost)
        self._call_all(job, lost["signal"], error)

    def _call_all(self, job: FinishedJob, kill_signal: int | None, error: BaseException) -> None:
        for handler in self.errors:
            _call(handler, job, kill_signal, (type(error), error, error.__traceback__))


def _call(handler: Callable[..., object], *args: Any) -> None:
    try:
        handler(*args)
    except BaseException:  # also SystemExit and a time limit: the outcome does not change
        log.exception("handler %r failed for job %s; the job's outcome does not change", handler, args[0])


def finished_job(envelope: Envelope, deliveries: int, codec: PayloadCodec) -> FinishedJob:
    """A job as handlers see it; without its arguments when its payload cannot be read."""
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    with contextlib.suppress(BadRecord):
        args, kwargs = codec.decode_call(envelope.value, envelope.content_type)
    return FinishedJob(envelope.id, envelope.name, envelope.attempt, deliveries, args, kwargs)

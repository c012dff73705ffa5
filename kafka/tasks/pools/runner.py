"""Running one job where it runs: arguments in, user code, an :class:`kafka.tasks.rules.outcome.Outcome` out.

:func:`run` raises nothing of the task's and touches nothing but its job; every pool calls it, in a thread or in a
child, and the one of asyncio calls :func:`run_async` for coroutines. A :class:`Job` is one attempt about to run: its
envelope, its task, its limits, and what the pool notes about the run.
"""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from types import CoroutineType, FrameType
from typing import Any, Protocol

from kafka.tasks.context import Context
from kafka.tasks.delivery.base import JobLease
from kafka.tasks.enqueued_jobs import EnqueuedJobs
from kafka.tasks.errors import BadRecord, Cancel, NotSerialisable, PayloadTooLarge, RetryAt, Snooze
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.hooks import finished_job
from kafka.tasks.pools import task_forks
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ErrorInfo,
    JobCancelled,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    Outcome,
)
from kafka.tasks.task import Task

_ERROR_CODE = re.compile(r"\[Error -?\d+\] ")
TEXT_CHARACTERS = 4_000
TRACEBACK_CHARACTERS = 16_000
TEXT_BYTES = 8_000
TRACEBACK_BYTES = 32_000
"""Longer texts of errors are cut, with a note of how much is gone. Both together fit into what a dead record may have
beside the largest payload (:data:`kafka.tasks.format.topics.HEADROOM_BYTES`): one that its topic refused would never
end.
"""

_ASYNCIO = os.path.join(os.path.dirname(os.__file__), "asyncio", "")
"""Where the frames are that stand between us and a coroutine."""


class Job:
    """One attempt of a job in this worker: what is to run, its limits, and what is known of its run.

    ``soft_s`` and ``hard_s`` are the limits that hold for it (None: none). ``track_started``: the pool reports when it
    has begun (:meth:`kafka.tasks.pools.base.Pool.started`). ``started_at`` is a monotonic instant, None until the pool
    knows it; ``ran_s`` the seconds that it took. ``is_timed_out``: it has reached its hard limit and has
    ended without its run, whose outcome is dropped. These change by the methods only.
    """

    __slots__ = (
        "_cancelled", "crashes", "envelope", "hard_s", "is_timed_out", "lease", "ran_s", "soft_s", "started_at", "task",
        "track_started",
    )  # fmt: skip

    def __init__(
        self,
        lease: JobLease,
        envelope: Envelope,
        task: Task[..., Any],
        soft_s: float | None = None,
        hard_s: float | None = None,
        crashes: int = 0,
        track_started: bool = False,
    ) -> None:
        self.lease = lease
        self.envelope = envelope
        self.task = task
        self.soft_s = soft_s
        self.hard_s = hard_s
        self.crashes = crashes
        self.track_started = track_started
        # What its run changes.
        self._cancelled = False
        self.is_timed_out = False
        self.started_at: float | None = None
        self.ran_s = 0.0

    @property
    def cancelled(self) -> bool:
        """Whether the result of its run is not used any more. The task reads it through its context."""
        return self._cancelled

    def cancel(self) -> None:
        """The result of its run is not used any more, or the run is asked to end."""
        self._cancelled = True

    def on_started(self, at: float) -> None:
        """It has begun to run, at a monotonic instant."""
        self.started_at = at

    def on_ended(self, ran_s: float) -> None:
        """Its run has ended after so many seconds."""
        self.ran_s = ran_s

    def time_out(self, ran_s: float) -> None:
        """It has reached its hard limit after so many seconds, and is over whatever its run still does."""
        self._cancelled = self.is_timed_out = True
        self.ran_s = ran_s

    def __str__(self) -> str:
        return f"{self.envelope.name} {self.envelope.id}"

    def __repr__(self) -> str:
        return f"<Job {self.envelope.name} {self.envelope.id} attempt {self.envelope.attempt}>"


class SignalWindow(Protocol):
    """When the soft limit may be raised by a signal: from just before the task's function is called to just after."""

    disarm: Callable[[int], object]
    """Called with 0 when the function has ended: a function of C, so that nothing can happen between."""
    waiting: InterruptibleCoroutine | None
    """While the function is a coroutine: the coroutine to interrupt when it is not the one that runs."""

    def open(self) -> None:
        """The function is about to be called. May raise :class:`SoftTimeLimit`."""

    def function_ended(self, error: BaseException | None) -> None:
        """It has returned, or raised ``error``. Does not return in a copy of the process that the task has forked: the
        rest of the run is the original's."""

    def close(self) -> None:
        """Its limits do not apply any more."""


class InterruptibleCoroutine(Protocol):
    """A coroutine on an event loop. What a signal raises in the loop, or in another task, would never reach it."""

    def is_running(self, frame: FrameType | None) -> bool:
        """Whether ``frame`` is one of the coroutine's: what is raised there is raised in it."""

    def interrupt(self, error: BaseException) -> None:
        """Have ``error`` raised where it waits. From a signal handler."""


class _NoSignalWindow:
    """In the worker's own process: no signal raises anything here. One for each run."""

    __slots__ = ("_app", "_forks", "waiting")

    disarm: Callable[[int], object] = abs

    def __init__(self, job: Job) -> None:
        self._app = job.task.app
        self._forks = task_forks.fork_count
        self.waiting: InterruptibleCoroutine | None = None

    def open(self) -> None:
        """Nothing to open."""

    def function_ended(self, error: BaseException | None) -> None:
        if task_forks.fork_count != self._forks:
            task_forks.exit_forked_copy(error, self._app)

    def close(self) -> None:
        """Nothing to close."""


_NO_LOOP = RuntimeError("a process that a task forked with os.fork() has no event loop to wait on")


class _AwaitableWrapper:
    """A coroutine that is awaited step by step, through this."""

    __slots__ = ("_steps",)

    def __init__(self, coroutine: Awaitable[Any]) -> None:
        self._steps: Any = coroutine.__await__()

    def __await__(self) -> _AwaitableWrapper:
        return self

    def __iter__(self) -> _AwaitableWrapper:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        return self._steps.throw(*error)

    def close(self) -> None:
        self._steps.close()


class _ForkCheckedAwaitable(_AwaitableWrapper):
    """Awaits a coroutine on an event loop that others use, too. A copy of the process ends where the coroutine would
    wait: the loop is a copy there, and would go on with all of the others. (Beside the 3 us that the loop takes each
    time that a coroutine waits, this could not be measured.)
    """

    __slots__ = ("_window",)

    def __init__(self, coroutine: Awaitable[Any], window: _NoSignalWindow) -> None:
        super().__init__(coroutine)
        self._window = window

    def send(self, value: Any) -> Any:
        return self._check_fork(self._steps.send(value))

    def throw(self, *error: Any) -> Any:
        return self._check_fork(self._steps.throw(*error))

    def _check_fork(self, awaited: Any) -> Any:
        self._window.function_ended(_NO_LOOP)
        return awaited


def run(
    job: Job, window: SignalWindow | None = None, on_error: Callable[[BaseException], object] | None = None
) -> Outcome:
    """Run the job in this thread and return its outcome. Stores the duration of the run in ``job``.

    ``window`` None: this is the worker's own process. A coroutine is run to its end on an event loop of its own. The
    app's handlers are called here, too; ``on_error`` is called with what the run raised. :class:`SoftTimeLimit`
    propagates when it is raised while the function's own error is handled.
    """
    started_at = time.monotonic()
    job.on_started(started_at)
    error: BaseException | None = None
    window = window or _NoSignalWindow(job)
    disarm = window.disarm
    enqueued = EnqueuedJobs()
    try:
        call = bind_call(job)
        window.open()
        value = call()
        if type(value) is CoroutineType:  # by the value: a decorator may hide a coroutine function, or the reverse
            value = _run_coroutine(value, window)
        disarm(0)
        window.function_ended(None)
        if enqueued:
            enqueued.wait_sent()
        window.close()
        outcome = outcome_of_value(job, value)
    except BaseException as raised:
        failure = raised
        try:
            disarm(0)
        except BaseException as late:  # of the handler of an alarm that came as the function raised
            failure = late
        window.function_ended(failure)
        window.close()
        outcome, error = outcome_of_error(job, failure)
        if on_error is not None:
            on_error(error)
    finally:
        enqueued.end()
    try:
        call_handlers(job, outcome, error)
    finally:
        job.on_ended(time.monotonic() - started_at)
    return outcome


async def run_async(job: Job, limited_by: Callable[[], type[BaseException] | None]) -> Outcome:
    """The same for a coroutine task, on the event loop that this is awaited on.

    ``limited_by``: the limit for which the coroutine was cancelled, if it was. Its CancelledError then means that.
    """
    import asyncio  # imported already where this is awaited

    started_at = time.monotonic()
    job.on_started(started_at)
    error: BaseException | None = None
    window = _NoSignalWindow(job)
    enqueued = EnqueuedJobs()
    try:
        value = await _ForkCheckedAwaitable(bind_call(job)(), window)
        window.function_ended(None)
        if enqueued:
            await asyncio.to_thread(enqueued.wait_sent)
        outcome = outcome_of_value(job, value)
    except BaseException as raised:
        window.function_ended(raised)
        limit = limited_by()
        if limit is not None and type(raised).__name__ == "CancelledError":
            raised = limit("cancelled at its time limit").with_traceback(raised.__traceback__)
        outcome, error = outcome_of_error(job, raised)
    finally:
        enqueued.end()
    call_handlers(job, outcome, error)
    job.on_ended(time.monotonic() - started_at)
    return outcome


class _PayloadError(Exception):
    """What goes into the function or comes out of it is no JSON, or too large. ``error_info`` says which; another
    attempt is no use.
    """

    def __init__(self, error_info: ErrorInfo, error: Exception) -> None:
        super().__init__(error_info.text)
        self.error_info = error_info
        self.error = error


def bind_call(job: Job) -> Callable[[], Any]:
    """The call of the task's function with the job's arguments."""
    envelope, task = job.envelope, job.task
    try:
        args, kwargs = task.codec.decode_call(envelope.value, envelope.content_type)
    except BadRecord as error:
        raise _PayloadError(ErrorInfo("BadRecord", error.text), error) from None
    if task.bind:
        deliveries, extra = job.lease.deliveries, envelope.extra
        context = Context(envelope.id, envelope.name, envelope.attempt, deliveries, lambda: job.cancelled, extra)
        return partial(task.function, context, *args, **kwargs)
    return partial(task.function, *args, **kwargs)


def outcome_of_value(job: Job, value: Any) -> Outcome:
    """The outcome of a function that returned ``value``; raises what :func:`outcome_of_error` takes when it cannot
    be stored."""
    if isinstance(value, (Cancel, Snooze, RetryAt)):
        return _asked_for(value)
    envelope = job.envelope
    stored = envelope.store_result if envelope.store_result is not None else job.task.store_result
    if not stored:
        return JobSucceeded(b"")
    try:
        encoded = job.task.codec.encode_value(envelope.name, value, envelope.content_type)
    except NotSerialisable as error:
        raise _PayloadError(ErrorInfo("NotSerialisable", str(error.args[0])), error) from None
    most = job.task.app.settings.max_payload_bytes
    if len(encoded) > most:
        text = (
            f"the result of task {envelope.name} is {len(encoded)} bytes, more than max_payload_bytes ({most}): store "
            "it elsewhere and return a reference, or raise max_payload_bytes and the topics' max.message.bytes"
        )
        raise _PayloadError(ErrorInfo("PayloadTooLarge", text), PayloadTooLarge(text))
    return JobSucceeded(encoded)


def outcome_of_error(job: Job, error: BaseException) -> tuple[Outcome, BaseException]:
    """The outcome of a function that raised ``error``, and the error as handlers get it."""
    if isinstance(error, (Cancel, Snooze, RetryAt)):
        return _asked_for(error), error
    if isinstance(error, _PayloadError):
        return AttemptFailed(error.error_info, listed=False), error.error
    return AttemptFailed(error_info_of(error), job.task.retries(error)), error


def _asked_for(asked: Cancel | Snooze | RetryAt) -> Outcome:
    """The outcome that the task returned or raised itself."""
    if isinstance(asked, Cancel):
        return JobCancelled(_text(asked.reason))
    return JobSnoozed(asked.delay_ms) if isinstance(asked, Snooze) else JobRetried(asked.due_ms, _text(asked))


def call_handlers(job: Job, outcome: Outcome, error: BaseException | None) -> None:
    """Call the app's handlers."""
    if job.is_timed_out:
        return
    handlers = job.task.app.handlers
    if isinstance(outcome, JobSucceeded):
        if handlers.successes:
            handlers.succeeded(finished_job(job.envelope, job.lease.deliveries, job.task.codec))
    elif handlers.errors and isinstance(outcome, AttemptFailed) and error is not None:
        handlers.failed(finished_job(job.envelope, job.lease.deliveries, job.task.codec), error)


def in_running_loop() -> bool:
    """Whether this is called from an event loop of asyncio."""
    asyncio: Any = sys.modules.get("asyncio")  # not imported: no loop runs
    return asyncio is not None and asyncio._get_running_loop() is not None


def _run_coroutine(coroutine: CoroutineType[Any, Any, Any], window: SignalWindow) -> Any:
    if in_running_loop():
        coroutine.close()
        name = coroutine.__qualname__
        raise RuntimeError(f"the coroutine {name} cannot run in a thread whose event loop runs already")
    import asyncio  # some 3 MB and 30 ms that most workers do not need

    interruptible = _LoopCoroutine(coroutine)
    window.waiting = interruptible
    try:
        return asyncio.run(interruptible.run())
    except RuntimeError:
        if interruptible.late is None:
            raise
        raise interruptible.late from None
    finally:
        window.waiting = None


class _LoopCoroutine(_AwaitableWrapper):
    """A coroutine on a loop of its own that can be interrupted: implements :class:`InterruptibleCoroutine`.

    An interrupt is a cancellation that arrives as another error. When the coroutine has ended, and the loop waits for
    others that do not end when they are cancelled, an interrupt stops the loop; ``late`` is the error then.
    """

    __slots__ = ("_coroutine", "_error", "_loop", "_task", "late")

    def __init__(self, coroutine: CoroutineType[Any, Any, Any]) -> None:
        super().__init__(coroutine)
        self.late: BaseException | None = None
        self._coroutine = coroutine
        self._error: BaseException | None = None
        self._loop: Any = None
        self._task: Any = None

    async def run(self) -> Any:
        """To its end. The main function of a loop."""
        import asyncio

        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        return await self

    def is_running(self, frame: FrameType | None) -> bool:
        """See :class:`InterruptibleCoroutine`. Before it has begun, what is raised ends the run."""
        if self._loop is None:
            return True
        its_own = self._coroutine.cr_frame
        while frame is not None and frame is not its_own:
            frame = frame.f_back
        return frame is not None

    def interrupt(self, error: BaseException) -> None:
        """See :class:`InterruptibleCoroutine`."""
        if self._task.done():
            self.late = error
            self._loop.call_soon_threadsafe(self._loop.stop)
        else:
            self._error = error
            self._loop.call_soon_threadsafe(self._task.cancel)

    def throw(self, *raised: Any) -> Any:
        error = self._error
        if error is None or "CancelledError" not in (raised[0].__class__.__name__, getattr(raised[0], "__name__", "")):
            return self._steps.throw(*raised)
        self._error = None
        if hasattr(self._task, "uncancel"):  # Python 3.11; else timeouts in its own handling would count it
            self._task.uncancel()
        return self._steps.throw(error)


def error_info_of(error: BaseException) -> ErrorInfo:
    """An exception as data, without the first frames of its traceback, which are ours and asyncio's."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None and _is_ours(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    try:
        lines = "".join(traceback.format_exception(kind, error, frames))
    except BaseException as second:
        lines = f"<could not format the traceback: {type(second).__name__}>"
    return ErrorInfo(name, _text_without_name(error), truncate_middle(lines, TRACEBACK_CHARACTERS, TRACEBACK_BYTES))


def _is_ours(path: str) -> bool:
    return path == __file__ or path.startswith(_ASYNCIO)


def _text_without_name(error: BaseException) -> str:
    """An error's text, without the name of its class: that is in the record by itself, and in front of the text
    wherever both are shown. Kafka's errors have it in their text, behind the error code if they have one."""
    name, text = type(error).__name__, _text(error)
    if text == name:
        return ""
    code, found, rest = text.partition(f"{name}: ")
    return code + rest if found and (not code or _ERROR_CODE.fullmatch(code)) else text


def _text(value: object) -> str:
    """``str()`` of a user's object, also when its ``__str__`` raises."""
    try:
        text = str(value)
    except BaseException as error:
        text = f"<str() raised {type(error).__name__}>"
    return truncate_middle(text, TEXT_CHARACTERS, TEXT_BYTES)


def truncate_middle(text: str, most: int, most_bytes: int) -> str:
    """``text``, or its first and last part and the number of characters left out between. The parts are of whole lines,
    unless that made one of them less than half as long.

    ``most_bytes`` is that of the parts as UTF-8.
    """
    half = min(len(text), most) // 2
    if len(text) <= most and _size(text) <= most_bytes:
        return text
    while _size(text[:half] + text[-half:]) > most_bytes:
        half = half * 3 // 4
    head_end, tail_start = half, len(text) - half
    line_end, line_start = text.rfind("\n", half // 2, half), text.find("\n", tail_start - 1, len(text) - half // 2)
    head_end = head_end if line_end < 0 else line_end
    tail_start = tail_start if line_start < 0 else line_start + 1
    return f"{text[:head_end]}\n... {tail_start - head_end} characters omitted ...\n{text[tail_start:]}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))

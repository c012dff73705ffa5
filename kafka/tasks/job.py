"""Handles: what ``delay`` gives back, and what can be asked of a job.

A handle is small and does nothing by itself: its id, the app's back end, and the producer's future of the job's record.
It may be asked from any thread, in any process: :meth:`kafka.tasks.App.job` makes one from a bare id, and a pickled one
finds the app of its name where it is loaded. Cancelling comes with the schedule.

A call that waits is called back (:meth:`kafka.tasks.backends.base.Backend.add_waiter`), in a thread through a queue,
in a coroutine through its loop. It exceeds its timeout by no more than :data:`LEAST_ASK_S`, whatever the brokers do:
what they have not answered by then is a :class:`JobTimeout` with the client's error as its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kafka.errors import KafkaTimeoutError, RequestTimedOutError
from kafka.tasks.apps import find_app
from kafka.tasks.backends.base import Backend, RecordFuture
from kafka.tasks.deadline import Deadline
from kafka.tasks.errors import JobFailed, JobRevoked, JobTimeout, JobUnknown, NoResult, one_line
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.payload import PayloadCodec
from kafka.tasks.format.records import StateRecord
from kafka.tasks.settings import optional_timeout
from kafka.tasks.states import READY, JobState

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")

STATUS_TIMEOUT_S = 10.0
"""How long ``status()`` waits for the brokers, unless the caller says otherwise."""

LEAST_ASK_S = 1.0
"""Brokers have so long to answer even a caller with less time: ``wait(0)`` looks once. All other waiting is cut to the
caller's time."""


_UNANSWERED = (KafkaTimeoutError, RequestTimedOutError)


class JobHandle(Generic[R]):
    """One enqueued call of a task that returns ``R``: ``job.result()``, or ``await job``.

    ``codec``: how its result is read; None: as the app reads results of tasks that it does not know. ``is_stored``: its
    result is kept, as far as is known here. ``backend``: or the name of the app, which is then looked for when the
    handle is used. Handles of one job are equal, also across processes: they can be pickled.
    """

    __slots__ = ("_backend", "_codec", "_is_stored", "_sent", "id")

    def __init__(
        self,
        job_id: str,
        backend: Backend | str,
        codec: PayloadCodec | None = None,
        sent: RecordFuture | None = None,
        is_stored: bool = True,
    ) -> None:
        self.id = job_id
        """32 hex digits; enough to find the job's state from any process."""
        self._backend = backend
        self._codec = codec
        self._sent = sent
        self._is_stored = is_stored

    def status(self, timeout: float | timedelta | None = STATUS_TIMEOUT_S) -> JobState:
        """Where the job is now.

        The handle that enqueued it says PENDING until the broker has acknowledged the job, then QUEUED until the first
        state record, and FAILURE when the job could not be enqueued; a bare id says UNKNOWN until the first record,
        unless the app has ``track_queued``. Raises :class:`JobTimeout` when the brokers have not answered within
        ``timeout`` seconds.
        """
        timeout = optional_timeout("timeout", timeout)
        sent = self._sent
        if sent is None or (sent.is_done and sent.exception is None):
            seconds = _time_to_answer(timeout)
            try:
                record = self.backend.find(self.id, seconds)
            except _UNANSWERED as error:
                raise self._not_answered(error, seconds) from error
            assumed = JobState.UNKNOWN if sent is None else JobState.QUEUED
        else:  # it may have been written all the same, when it is the answer that was lost
            record = self.backend.known(self.id)
            assumed = JobState.FAILURE if sent.is_done else JobState.PENDING
        return assumed if record is None else record.state

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait until the job has ended, for at most ``timeout`` seconds; whether it has.

        Raises what :meth:`result` raises at once (:class:`NoResult`, and the producer's error), and
        :class:`JobTimeout` when the brokers have not answered in time.
        """
        record = self._ended(optional_timeout("timeout", timeout))
        return record is not None and record.state in READY

    def result(self, timeout: float | timedelta | None = None) -> R:
        """What the task returned; waits for it, for at most ``timeout`` seconds.

        Raises :class:`JobFailed`, :class:`JobRevoked`, :class:`JobTimeout` when it has not ended in time, or the
        brokers have not answered, :class:`JobUnknown` when a bare id has no record at all by then (or is older than
        results are kept), and the producer's error when the job could not be enqueued. A job with
        ``store_result=False`` leaves no record of a success to wait for: :class:`NoResult` at once, from the handle
        that enqueued it; a bare id does not know that.
        """
        timeout = optional_timeout("timeout", timeout)
        return self._value(self._ended(timeout), timeout)

    async def wait_async(self, timeout: float | timedelta | None = None) -> bool:
        """:meth:`wait` for a coroutine: the event loop goes on meanwhile."""
        record = await self._ended_async(optional_timeout("timeout", timeout))
        return record is not None and record.state in READY

    async def result_async(self, timeout: float | timedelta | None = None) -> R:
        """:meth:`result` for a coroutine: the event loop goes on meanwhile. ``await job`` is the same without a
        timeout."""
        timeout = optional_timeout("timeout", timeout)
        return self._value(await self._ended_async(timeout), timeout)

    def __await__(self) -> Generator[Any, Any, R]:
        return self.result_async().__await__()

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, JobHandle) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[type[JobHandle[R]], tuple[str, str, None, None, bool]]:
        app = self._backend if isinstance(self._backend, str) else self._backend.app
        return type(self), (self.id, app, None, None, self._is_stored)

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}>"

    @property
    def backend(self) -> Backend:
        """Where it was enqueued, or is looked for. :class:`UnknownApp` for a handle of another process whose app is not
        loaded here."""
        if isinstance(self._backend, str):
            self._backend = find_app(self._backend).backend()
        return self._backend

    @property
    def has_arrived(self) -> bool:
        """The broker has the job's record. (False also for a handle that was made of a bare id.)"""
        return self._sent is not None and self._sent.is_done and self._sent.exception is None

    @property
    def enqueue_error(self) -> BaseException | None:
        """The producer's error when the job's record could not be written; None when it was, or is under way."""
        sent = self._sent
        return sent.exception if sent is not None and sent.is_done else None

    def raise_if_not_sent(self) -> None:
        """Raise the producer's error when the job's record could not be written."""
        error = self.enqueue_error
        if error is not None:
            raise error

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _ended(self, timeout: float | None) -> StateRecord | None:
        """The job's final record, or what is known of it when the time is up."""
        backend, deadline = self.backend, Deadline(timeout)
        ends: SimpleQueue[StateRecord | None] = SimpleQueue()
        on_end = ends.put
        while True:
            self._check_has_result()
            record = self._add_waiter(backend, on_end, timeout)
            if _is_final(record) or self._is_known_expired():
                return record
            try:
                end = ends.get(timeout=deadline.left_s())
            except Empty:
                return backend.known(self.id) or record
            finally:
                backend.remove_waiter(self.id, on_end)
            if end is not None:
                return end
            # else it has ended, and is to be asked for

    async def _ended_async(self, timeout: float | None) -> StateRecord | None:
        """The same for a coroutine. What waits for a broker before that does so in a thread."""
        import asyncio  # 30 ms that most processes do not need

        backend, deadline = self.backend, Deadline(timeout)
        loop = asyncio.get_running_loop()

        while True:
            self._check_has_result()
            ended: asyncio.Future[StateRecord | None] = loop.create_future()
            waiter = _CoroutineWaiter(loop.call_soon_threadsafe, ended)

            def add_waiter(on_end: _CoroutineWaiter = waiter) -> StateRecord | None:
                record = self._add_waiter(backend, on_end, timeout)
                if on_end.is_over:  # cancelled meanwhile
                    backend.remove_waiter(self.id, on_end)
                return record

            try:
                is_at_hand = backend.is_at_hand(self.id)
                record = add_waiter() if is_at_hand else await asyncio.to_thread(add_waiter)
                if _is_final(record) or self._is_known_expired():
                    return record
                await asyncio.wait((ended,), timeout=deadline.left_s())
            finally:
                waiter.is_over = True
                backend.remove_waiter(self.id, waiter)
            if not ended.done():
                return backend.known(self.id) or record
            record = ended.result()
            if record is not None:
                return record

    def _check_has_result(self) -> None:
        self.raise_if_not_sent()
        if not self._is_stored:
            raise NoResult(
                f"job {self.id} has store_result=False, by its task or the call: no record of a success is written, and"
                " there is no result to wait for. Leave the option out to wait; status() still reports a failure"
            )

    def _add_waiter(
        self, backend: Backend, on_end: Callable[[StateRecord | None], object], timeout: float | None
    ) -> StateRecord | None:
        """What is known of the job; ``on_end`` is called when it ends, or turns out not to be enqueued."""
        seconds = _time_to_answer(timeout)
        try:
            if self._is_known_expired():
                return backend.find(self.id, seconds)
            record = backend.add_waiter(self.id, on_end, seconds)
        except _UNANSWERED as error:
            raise self._not_answered(error, seconds) from error
        if self._sent is not None and not self.has_arrived:
            self._sent.add_errback(lambda _: on_end(None))
        return record

    def _not_answered(self, error: Exception, seconds: float | None) -> JobTimeout:
        limit = "" if seconds is None else f" within {seconds:g} s"
        return JobTimeout(
            f"the brokers at {self.backend.address} did not say{limit} where job {self.id} is: {one_line(error)}"
        )

    def _value(self, record: StateRecord | None, timeout: float | None) -> R:
        if record is None or record.state not in READY:
            raise self._not_ended(record, timeout)
        if record.state is JobState.SUCCESS:
            codec = self._codec or find_app(self.backend.app).codec
            value: R = codec.decode_value(record.value, record.content_type)
            return value
        detail = record.detail()
        if record.state is JobState.REVOKED:
            raise JobRevoked(f"job {self.id} was revoked: {detail.get('reason', 'no reason given')}")
        raise JobFailed(
            str(detail.get("type", "unknown error")),
            str(detail.get("text", "")),
            str(detail.get("traceback", "")),
            str(detail.get("host", "")),
            self.id,
        )

    def _not_ended(self, record: StateRecord | None, timeout: float | None) -> Exception:
        if record is None and self._sent is None:
            if self._is_known_expired():
                return JobUnknown(f"no record of job {self.id}: its result has expired, or it never had one")
            return JobUnknown(
                f"no record of job {self.id} yet: it is queued or running (an app with track_queued=True and"
                " track_started=True records that), has store_result=False, or was never enqueued with this app"
            )
        state = record.state.name if record is not None else "QUEUED" if self.has_arrived else "PENDING"
        place = f" at {self.backend.address}" if record is None else ""
        future = "the job stays enqueued" if state == JobState.QUEUED.name else "it continues"
        return JobTimeout(f"job {self.id} did not end within {timeout} s; its state is {state}{place}, and {future}")

    def _is_known_expired(self) -> bool:
        """It is of a bare id, and so old that no result can follow."""
        if self._sent is not None:
            return False
        backend = self.backend
        return backend.clock.now_ms() - time_of(self.id) > backend.result_ttl_s * 1000


def _time_to_answer(timeout: float | None) -> float | None:
    return None if timeout is None else max(timeout, LEAST_ASK_S)


def _is_final(record: StateRecord | None) -> bool:
    return record is not None and record.state in READY


class _CoroutineWaiter:
    """Completes the future of a coroutine that waits, from any thread, once. ``is_over``: it waits no more."""

    __slots__ = ("_call_soon", "_ended", "is_over")

    def __init__(self, call_soon_threadsafe: Callable[..., object], ended: asyncio.Future[StateRecord | None]) -> None:
        self.is_over = False
        self._call_soon = call_soon_threadsafe
        self._ended = ended

    def __call__(self, record: StateRecord | None) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._call_soon(self._complete, record)

    def _complete(self, record: StateRecord | None) -> None:
        if not self._ended.done():
            self._ended.set_result(record)

"""Waiting for what brokers and workers do, written once for threads and for coroutines.

A *dialogue* is a generator that yields the steps that take time, is sent what they give, and returns an answer.
:func:`run` takes them in the caller's thread, :func:`run_async` in a coroutine whose event loop goes on meanwhile. What
a dialogue does between two steps waits for nothing.

A step that waits is called back (:meth:`kafka.tasks.backends.base.Backend.add_waiter`), in a thread through a queue,
in a coroutine through its loop. It exceeds its timeout by no more than :data:`LEAST_ASK_S`, whatever the brokers do:
what they have not answered by then is a :class:`JobTimeout` with the client's error as its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from kafka.errors import KafkaTimeoutError, RequestTimedOutError
from kafka.tasks.backends.base import Backend, RecordFuture
from kafka.tasks.deadline import Deadline
from kafka.tasks.errors import JobTimeout, one_line
from kafka.tasks.format.records import StateRecord
from kafka.tasks.states import READY

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

LEAST_ASK_S: Final = 1.0
"""Brokers have so long to answer even a caller with less time: ``wait(0)`` looks once. All other waiting is cut to the
caller's time."""

UNANSWERED: Final = (KafkaTimeoutError, RequestTimedOutError)
"""What the client raises for brokers that have not answered."""


class Blocking:
    """The step of a call that may block: a coroutine makes it in another thread. Gives what the call returns."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def run(self) -> Any:
        """In this thread."""
        return self._call()

    async def run_async(self) -> Any:
        """In another thread."""
        import asyncio  # 30 ms that most processes do not need

        return await asyncio.to_thread(self._call)


def _nothing_to_raise() -> None:
    """A wait that is always worth while."""


class WaitForEnd:
    """The step of waiting for the terminal record of one id, for ``timeout`` seconds (None: any time). Gives that
    record, or what is known when the time is up.

    ``is_enough``: says of what is known at first whether it will do; ``check`` raises when there is no use in waiting.
    ``sent``: the future of the record that was sent under this id; when that fails, ``check`` is asked again.
    """

    __slots__ = ("_backend", "_check", "_id", "_is_enough", "_sent", "_timeout")

    def __init__(
        self,
        backend: Backend,
        job_id: str,
        timeout: float | None,
        sent: RecordFuture | None = None,
        is_enough: Callable[[StateRecord | None], bool] = lambda record: False,
        check: Callable[[], object] = _nothing_to_raise,
    ) -> None:
        self._backend = backend
        self._id = job_id
        self._timeout = timeout
        self._sent = sent
        self._is_enough = is_enough
        self._check = check

    def run(self) -> StateRecord | None:
        """In this thread."""
        backend, deadline = self._backend, Deadline(self._timeout)
        ends: SimpleQueue[StateRecord | None] = SimpleQueue()
        on_end = ends.put
        while True:
            self._check()
            try:
                record = self._add_waiter(on_end)
                if is_final(record) or self._is_enough(record):
                    return record
                ran = backend.before_wait(self._id)
                if ran is not None:
                    return ran
                end = ends.get(timeout=deadline.left_s())
            except Empty:
                return backend.known(self._id) or record
            finally:
                backend.remove_waiter(self._id, on_end)
            if end is not None:
                return end
            # else it has ended, and is to be asked for

    async def run_async(self) -> StateRecord | None:
        """The same for a coroutine. What waits for a broker before that does so in a thread."""
        import asyncio  # 30 ms that most processes do not need

        backend, deadline = self._backend, Deadline(self._timeout)
        loop = asyncio.get_running_loop()

        while True:
            self._check()
            ended: asyncio.Future[StateRecord | None] = loop.create_future()
            waiter = _CoroutineWaiter(loop.call_soon_threadsafe, ended)

            def add_waiter(on_end: _CoroutineWaiter = waiter) -> StateRecord | None:
                record = self._add_waiter(on_end)
                if on_end.is_over:  # cancelled meanwhile
                    backend.remove_waiter(self._id, on_end)
                return record

            try:
                is_at_hand = backend.is_at_hand(self._id)
                record = add_waiter() if is_at_hand else await asyncio.to_thread(add_waiter)
                if is_final(record) or self._is_enough(record):
                    return record
                ran = backend.before_wait(self._id)
                if ran is not None:
                    return ran
                await asyncio.wait((ended,), timeout=deadline.left_s())
            finally:
                waiter.is_over = True
                backend.remove_waiter(self._id, waiter)
            if not ended.done():
                return backend.known(self._id) or record
            record = ended.result()
            if record is not None:
                return record

    def _add_waiter(self, on_end: Callable[[StateRecord | None], object]) -> StateRecord | None:
        """What is known of it; ``on_end`` is called when it ends, or turns out not to be sent."""
        seconds = time_to_answer(self._timeout)
        try:
            record = self._backend.add_waiter(self._id, on_end, seconds)
        except UNANSWERED as error:
            raise not_answered(self._backend, self._id, error, seconds) from error
        sent = self._sent
        if sent is not None and not (sent.is_done and sent.exception is None):
            sent.add_errback(lambda _: on_end(None))
        return record


Dialogue: TypeAlias = Generator[Blocking | WaitForEnd, Any, T]


def run(dialogue: Dialogue[T]) -> T:
    """Take the steps of a dialogue in this thread; returns its answer, and raises what it raises."""
    try:
        step = next(dialogue)
        while True:
            try:
                given = step.run()
            except BaseException as error:
                step = dialogue.throw(error)
            else:
                step = dialogue.send(given)
    except StopIteration as end:
        answer: T = end.value
        return answer


async def run_async(dialogue: Dialogue[T]) -> T:
    """The same for a coroutine."""
    try:
        step = next(dialogue)
        while True:
            try:
                given = await step.run_async()
            except BaseException as error:
                step = dialogue.throw(error)
            else:
                step = dialogue.send(given)
    except StopIteration as end:
        answer: T = end.value
        return answer


def is_final(record: StateRecord | None) -> bool:
    """Whether nothing follows on this record."""
    return record is not None and record.state in READY


def time_to_answer(timeout: float | None) -> float | None:
    """How long the brokers have for an answer to a caller with so much time."""
    return None if timeout is None else max(timeout, LEAST_ASK_S)


def not_answered(backend: Backend, job_id: str, error: Exception, seconds: float | None) -> JobTimeout:
    """The error of brokers that have not said within ``seconds`` where a job is."""
    limit = "" if seconds is None else f" within {seconds:g} s"
    return JobTimeout(
        f"the brokers at {backend.address} did not say{limit} where job {job_id} is: {one_line(error)}"
    )


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

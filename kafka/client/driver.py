"""Runs the dialogues of ``core/dialogue.py`` over the client's loop.

Each running dialogue is a :class:`_Run`; a step becomes a future, and the future's end sends the dialogue on. Steps
that are done at once are taken in a loop, not by recursion. A new step is an entry in ``DialogueDriver._steps``.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from kafka.core.dialogue import All, Dialogue, Forget, Now, RefreshMetadata, Send, Sleep, Step, Wait
from kafka.errors import Cancelled, KafkaTimeoutError
from kafka.future import Future

if TYPE_CHECKING:
    from kafka.client.kafka_client import KafkaClient

T = TypeVar("T")


class DialogueDriver:
    """The dialogues of one client."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._runs: set[_Run] = set()
        self._steps: dict[type[Any], Callable[[Any], Future[Any]]] = {
            Send: self._send,
            Sleep: self._sleep,
            RefreshMetadata: self._refresh,
            Forget: self._forget,
            Wait: self._wait,
            Now: self._now,
            All: self._all,
        }

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Begin it; the future gets what it returns, or the exception that it lets out."""
        run = _Run(self, dialogue)
        self._runs.add(run)
        run.advance(None, None)
        return run.future

    def close(self) -> None:
        """Throw Cancelled into whatever still runs."""
        for run in list(self._runs):
            run.cancel()

    def run_step(self, step: Step) -> Future[Any]:
        """The future of one step."""
        action = self._steps.get(type(step))
        if action is None:
            return Future[Any]().failure(TypeError(f"a dialogue yielded {step!r}, which is no step"))
        try:
            return action(step)
        except Exception as error:
            return Future[Any]().failure(error)

    def _send(self, step: Send) -> Future[Any]:
        timeout_s = step.timeout_s
        if step.give_up_at != inf:
            left_s = max(step.give_up_at - self._client.loop.time(), 0.0)
            timeout_s = min(self._client.request_timeout_s if timeout_s is None else timeout_s, left_s)
        return self._client.request(
            step.target,
            step.request,
            timeout_s,
            lane=step.lane,
            min_version=step.min_version,
            max_version=step.max_version,
        )

    def _sleep(self, step: Sleep) -> Future[None]:
        future: Future[None] = Future()
        self._client.loop.call_later(step.seconds, _done, future)
        return future

    def _refresh(self, step: RefreshMetadata) -> Future[None]:
        refreshed = self._client.refresh_metadata(step.topics)
        if step.give_up_at == inf or refreshed.is_done:
            return refreshed
        future: Future[None] = Future()
        loop = self._client.loop
        error = KafkaTimeoutError("the cluster's metadata could not be read in time")
        timer = loop.call_at(max(step.give_up_at, loop.time()), _fail, future, error)

        def done(outcome: None | BaseException) -> None:
            timer.cancel()
            if not future.is_done:
                refreshed.chain(future)

        refreshed.add_both(done)
        return future

    def _forget(self, step: Forget) -> Future[None]:
        self._client.coordinators.forget(step.coordinator)
        return Future[None]().success(None)

    def _wait(self, step: Wait) -> Future[Any]:
        return step.future

    def _now(self, step: Now) -> Future[float]:
        return Future[float]().success(self._client.loop.time())

    def _all(self, step: All) -> Future[list[Any]]:
        return gather([self.run_step(each) for each in step.steps], step.return_errors)


class _Run:
    """One dialogue under way: the only one to advance its generator."""

    __slots__ = ("_dialogue", "_driver", "_waits_for", "future")

    def __init__(self, driver: DialogueDriver, dialogue: Dialogue[Any]) -> None:
        self.future: Future[Any] = Future()
        self._driver = driver
        self._dialogue = dialogue
        self._waits_for: Future[Any] | None = None

    def advance(self, value: Any, error: BaseException | None) -> None:
        while True:
            try:
                step = self._dialogue.send(value) if error is None else self._dialogue.throw(error)
            except StopIteration as end:
                self._end(end.value, None)
                return
            except Exception as failure:
                self._end(None, failure)
                return
            pending = self._driver.run_step(step)
            if not pending.is_done:
                self._waits_for = pending
                pending.add_both(lambda _, pending=pending: self._step_done(pending))
                return
            value, error = pending.value, pending.exception

    def _step_done(self, pending: Future[Any]) -> None:
        if self._waits_for is pending:
            self._waits_for = None
            self.advance(pending.value, pending.exception)

    def cancel(self) -> None:
        if self._waits_for is not None:
            self._waits_for = None
            self.advance(None, Cancelled("the client was closed"))

    def _end(self, value: Any, error: BaseException | None) -> None:
        self._driver._runs.discard(self)
        if error is None:
            self.future.success(value)
        else:
            self.future.failure(error)


def gather(futures: list[Future[Any]], return_errors: bool = False) -> Future[list[Any]]:
    """All results in order, when all are done; the first error instead, unless errors are wanted in the list."""
    combined: Future[list[Any]] = Future()
    left = len(futures)

    def one_is_done(_: Any) -> None:
        nonlocal left
        left -= 1
        if left:
            return
        error = next((future.exception for future in futures if future.exception is not None), None)
        if error is not None and not return_errors:
            combined.failure(error)
        else:
            combined.success([future.exception or future.value for future in futures])

    if not futures:
        return combined.success([])
    for future in futures:
        future.add_both(one_is_done)
    return combined


def _fail(future: Future[None], error: Exception) -> None:
    if not future.is_done:
        future.failure(error)


def _done(future: Future[None]) -> None:
    if not future.is_done:
        future.success(None)

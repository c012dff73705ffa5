"""A coroutine on a client's loop, which awaits futures of the clients: for what is one long sequence of requests.

A dialogue (``client.run``) ends with its client alone; this one can be cancelled. The functions make futures of what a
coroutine waits for besides.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from kafka.future import Future


class LoopTask:
    """Runs ``coroutine`` from now on, until it ends or :meth:`cancel`. ``on_end`` is called once, with the exception
    that it let out; None: it has returned, or was cancelled. On the loop's thread."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, None], on_end: Callable[[BaseException | None], object]
    ) -> None:
        self._coroutine = coroutine
        self._on_end = on_end
        self._waits_for: Future[Any] | None = None
        self._is_running = False
        self._is_cancelled = False
        self._is_over = False
        self._advance()

    def cancel(self) -> None:
        """End it where it waits; its ``finally`` clauses run. Nothing when it is over."""
        self._is_cancelled = True
        if not self._is_running and not self._is_over:
            self._waits_for = None
            self._coroutine.close()
            self._end(None)

    def _advance(self) -> None:
        self._is_running = True
        try:
            waits_for: Future[Any] = self._coroutine.send(None)
        except StopIteration:
            self._end(None)
            return
        except Exception as error:
            self._end(error)
            return
        finally:
            self._is_running = False
        self._waits_for = waits_for
        if self._is_cancelled:  # by what it has called itself
            self.cancel()
        else:
            waits_for.add_both(lambda _: self._go_on(waits_for))

    def _go_on(self, future: Future[Any]) -> None:
        if self._waits_for is future:
            self._waits_for = None
            self._advance()

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        self._on_end(error)


def next_turn(loop: Any) -> Future[None]:
    """Done in the loop's next turn, so that others have theirs."""
    future: Future[None] = Future()
    loop.call_soon(_complete, future)
    return future


def sleep(loop: Any, seconds: float) -> Future[None]:
    """Done after so many seconds."""
    future: Future[None] = Future()
    loop.call_later(seconds, _complete, future)
    return future


def within(loop: Any, other: Future[Any], seconds: float) -> Future[bool]:
    """Done when the other future is done or the time is over: whether it is done. Its error is not raised."""
    future: Future[bool] = Future()
    timer = loop.call_later(seconds, lambda: future.is_done or future.success(False))

    def on_done(_: object) -> None:
        timer.cancel()
        if not future.is_done:
            future.success(True)

    other.add_both(on_done)
    return future


def _complete(future: Future[None]) -> None:
    future.success(None)

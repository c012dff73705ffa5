"""How much of a caller's time is left, for calls that consist of several waits; and calls that a caller need not wait
for to their end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kafka.future import Future

T = TypeVar("T")


class Deadline:
    """``timeout_s`` seconds from now; None: never."""

    __slots__ = ("_at", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._at = None if timeout_s is None else time.monotonic() + timeout_s

    def left_s(self) -> float | None:
        """Seconds that are left, at least 0; None: any number."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())


def run_in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Run ``call`` in a daemon thread of that name; the future of what it returns or raises."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            future.failure(error)
        else:
            future.success(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future

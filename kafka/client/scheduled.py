"""Functions that a client's loop calls at a time of the wall clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.future import Future
from kafka.net.delayed import NEVER_S, DelayedTaskQueue
from kafka.net.loop import Loop, LoopTimer


class ScheduledTasks:
    """The queue of scheduled functions, and the one timer for the next of them."""

    def __init__(self, loop: Loop, on_ran: Callable[[], object]) -> None:
        self._loop = loop
        self._queue = DelayedTaskQueue(loop.clock)
        self._timer: LoopTimer | None = None
        self._on_ran = on_ran

    def schedule(self, task: Callable[[], Any], at: float) -> Future[Any]:
        """Call ``task()`` at ``at`` (epoch seconds); its future gets the result, or the exception."""
        future = self._queue.add(task, at)
        self._arm()
        return future

    def unschedule(self, task: Callable[[], Any]) -> None:
        """Take it back: its future fails with Cancelled. Nothing happens for an unknown one."""
        if task in self._queue:
            self._queue.remove(task)
            self._arm()

    def close(self) -> None:
        """Take everything back."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.cancel_all()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait_s = self._queue.next_at()
        if wait_s < NEVER_S:
            self._timer = self._loop.call_later(wait_s, self._run_due)

    def _run_due(self) -> None:
        for task, future in self._queue.pop_ready():
            try:
                result = task()
            except Exception as error:
                future.failure(error)
            else:
                future.success(result)
        self._arm()
        self._on_ran()

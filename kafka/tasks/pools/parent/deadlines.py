"""The one heap of a pool's deadlines, and the one timer of the loop for its earliest.

All timed actions of a pool are here: limits, graces, back-offs, checks once a second. Time is
monotonic, so a step of the wall clock moves nothing. Actions run after the callbacks of descriptors of a turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from kafka.net.loop import Loop, LoopTimer, Timer, TimerHeap

log = logging.getLogger(__name__)

Action = Callable[[], object]
Deadline = Timer[Action]


class PoolDeadlines:
    """What is due when. Without a loop, the pool calls :meth:`run_due`."""

    def __init__(self, loop: Loop | None) -> None:
        self.time: Callable[[], float] = loop.time if loop is not None else time.monotonic
        self._loop = loop
        self._heap: TimerHeap[Action] = TimerHeap()
        self._timer: LoopTimer | None = None
        self._armed_at: float | None = None
        self._is_running = False

    def at(self, when: float, action: Action) -> Deadline:
        """Call it at a monotonic instant; the returned deadline can be cancelled."""
        deadline = self._heap.push(when, action)
        if self._armed_at is None or when < self._armed_at:
            self._arm()
        return deadline

    def after(self, seconds: float, action: Action) -> Deadline:
        """Call it after a delay."""
        return self.at(self.time() + seconds, action)

    def next_at(self) -> float | None:
        """The earliest, or None."""
        return self._heap.next_when()

    def run_due(self) -> None:
        """Run the due actions; an error of one is logged and does not affect the others."""
        now = self.time()
        self._is_running = True
        try:
            while (deadline := self._heap.pop_due(now)) is not None:
                action = deadline.take()
                if action is not None:
                    try:
                        action()
                    except Exception:
                        log.exception("timer callback %r failed", action)
        finally:
            self._is_running = False
        self._armed_at = None
        self._arm()

    def clear(self) -> None:
        """Cancel everything."""
        self._heap.clear()
        self._arm()

    def _arm(self) -> None:
        """The loop's timer may be too early for what was cancelled since: a turn for nothing then, and no harm."""
        if self._loop is None or self._is_running:
            return
        when = self._heap.next_when()
        if when == self._armed_at and when is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_at = when
        self._timer = None if when is None else self._loop.call_at(when, self.run_due)

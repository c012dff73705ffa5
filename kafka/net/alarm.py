"""One timer that is set again and again: for an owner that has a next deadline and one callback for it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kafka.net.loop import Loop, LoopTimer


class Alarm:
    """Calls ``callback()`` once, at the instant of the last :meth:`set`. Setting the same one or a
    later one costs nothing."""

    __slots__ = ("_callback", "_loop", "_timer", "_when")

    def __init__(self, loop: Loop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: LoopTimer | None = None
        self._when = inf

    def set(self, when: float) -> None:
        """Go off at ``when`` (the loop's clock, in seconds) instead of at what was set before; infinity: not at all."""
        self._when = when
        timer = self._timer
        if timer is not None:
            if timer.when <= when < inf:
                return  # it looks again when it has gone off: deadlines move on with every answer
            timer.cancel()
        self._timer = self._loop.call_at(when, self._go_off) if when < inf else None

    def _go_off(self) -> None:
        self._timer = None
        if self._when <= self._loop.time():
            self._when = inf
            self._callback()
        else:
            self._timer = self._loop.call_at(self._when, self._go_off)

"""One timer that is set again and again: for an owner that has a next deadline and one callback for it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kafka.net.loop import Loop, LoopTimer


class Alarm:
    """Calls ``callback()`` once, at the instant of the last :meth:`set`. Setting the same one again costs nothing."""

    __slots__ = ("_callback", "_loop", "_timer")

    def __init__(self, loop: Loop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: LoopTimer | None = None

    def set(self, when: float) -> None:
        """Go off at ``when`` (the loop's clock, in seconds) instead of at what was set before; infinity: not at all."""
        timer = self._timer
        if timer is not None and timer.is_pending:
            if timer.when == when:
                return
            timer.cancel()
        self._timer = self._loop.call_at(when, self._callback) if when < inf else None

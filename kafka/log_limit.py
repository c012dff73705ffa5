"""Log lines that any sender of records can cause at will: some of each kind, and how many more there were.

A peer that sends a hundred thousand damaged records must not fill the disk with a hundred thousand lines. So the first
:data:`MOST` lines of a kind within :data:`EVERY_S` seconds are written as they are, and the others counted: the next
line of the kind that is written says how many were left out before it, and :meth:`LimitedLog.flush` writes what is left
when no other line comes. Which lines are of a kind is for the caller to say; there are :data:`MOST_KINDS` at most, and
what does not fit in shares one.

Anybody may use it: it knows nothing but ``logging``. A limit belongs to one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable
from typing import Final

MOST: Final = 10
EVERY_S: Final = 10.0
MOST_KINDS: Final = 100


class _Kind:
    __slots__ = ("begun_at", "last", "left_out", "written")

    def __init__(self, now: float) -> None:
        self.begun_at = now
        self.written = 0
        self.left_out = 0
        self.last: tuple[int, str, tuple[object, ...]] | None = None  # the last line that was left out


class LimitedLog:
    """A logger with a limit for each kind of line. ``clock`` gives monotonic seconds."""

    __slots__ = ("_clock", "_every_s", "_kinds", "_log", "_most")

    def __init__(
        self,
        log: logging.Logger,
        most: int = MOST,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._most = most
        self._every_s = every_s
        self._clock = clock
        self._kinds: dict[Hashable, _Kind] = {}

    def write(self, level: int, kind: Hashable, text: str, *args: object) -> None:
        """``text % args`` as a line of that kind, or one more to count."""
        if not self._log.isEnabledFor(level):
            return
        now = self._clock()
        state = self._kinds.get(kind)
        if state is None:
            if len(self._kinds) >= MOST_KINDS:
                kind = None
            state = self._kinds.setdefault(kind, _Kind(now))
        if now - state.begun_at >= self._every_s:
            state.begun_at = now
            state.written = 0
        if state.written >= self._most:
            state.left_out += 1
            state.last = level, text, args
            return
        state.written += 1
        if state.left_out:
            text, args = f"{text} (%d more lines like this one were left out before it)", (*args, state.left_out)
            state.left_out = 0
        self._log.log(level, text, *args)

    def warning(self, kind: Hashable, text: str, *args: object) -> None:
        """:meth:`write` a WARNING."""
        self.write(logging.WARNING, kind, text, *args)

    def flush(self) -> None:
        """Log how many lines were left out since the last one that was written."""
        for state in self._kinds.values():
            if state.left_out and state.last is not None:
                level, text, args = state.last
                self._log.log(level, f"suppressed %d similar lines, the last was: {text}", state.left_out, *args)
            state.left_out = 0
            state.last = None

"""Clocks: the one place where time comes from.

A clock has monotonic time for deadlines and epoch time for users and records. The loop has a clock; machines get
``now`` as an argument. :class:`ManualClock` is for tests and simulations, :class:`AdjustableClock` for a running
program whose time a test sets forward or stops.
"""

from __future__ import annotations

import time
from math import inf
from typing import Protocol


class Clock(Protocol):
    """The clock that a loop uses."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...

    def time(self) -> float:
        """Seconds since the epoch; may be stepped by the machine's administrator."""
        ...


class SystemClock:
    """The operating system's clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


class ManualClock:
    """A clock that only a test moves. Both times move together; :meth:`step` moves the wall clock alone. Epoch time is
    stored as an offset, so that monotonic time stays exact.
    """

    def __init__(self, monotonic: float = 0.0, time: float = 1_700_000_000.0) -> None:
        self._now = monotonic
        self._offset = time - monotonic

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._now + self._offset

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass; ValueError when negative."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        self._now += seconds

    def set(self, monotonic: float) -> None:
        """Let time pass until the monotonic instant; ValueError when that is in the past."""
        if monotonic < self._now:
            raise ValueError(f"time does not go back (from {self._now} to {monotonic})")
        self._now = monotonic

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; monotonic time does not change."""
        self._offset += seconds


class AdjustableClock:
    """The machine's clocks (or ``base``), which can be set forward and stopped; both times move together. The loop
    sleeps for :meth:`left_s`, which is infinite while the clock is stopped.
    """

    def __init__(self, base: Clock | None = None) -> None:
        self._base: Clock = base or SystemClock()
        self._ahead_s = 0.0
        self._stands_at: float | None = None
        self._offset_s = 0.0

    @property
    def is_frozen(self) -> bool:
        return self._stands_at is not None

    def monotonic(self) -> float:
        stands_at = self._stands_at
        return self._base.monotonic() + self._ahead_s if stands_at is None else stands_at

    def time(self) -> float:
        if self._stands_at is None:
            return self._base.time() + self._ahead_s
        return self._stands_at + self._offset_s

    def left_s(self, when: float) -> float:
        """Seconds until the instant ``when``; infinity when the clock is stopped before it."""
        if self._stands_at is None:
            return when - self.monotonic()
        return inf if when > self._stands_at else 0.0

    def advance(self, seconds: float) -> None:
        """Set both times forward; ValueError when negative."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        if self._stands_at is None:
            self._ahead_s += seconds
        else:
            self._stands_at += seconds

    def freeze(self) -> None:
        """Stop the clock; no effect when it is stopped."""
        if self._stands_at is None:
            self._offset_s = self.time() - self.monotonic()
            self._stands_at = self.monotonic()

    def resume(self) -> None:
        """Let the clock continue."""
        if self._stands_at is not None:
            self._ahead_s = self._stands_at - self._base.monotonic()
            self._stands_at = None

"""Clocks: the one place where time comes from.

A clock has two faces: a monotonic one for deadlines and an epoch one for what users and records see. The loop holds a
clock; machines are handed ``now`` and hold none. :class:`ManualClock` is for tests and simulations,
:class:`AdjustableClock` for something that runs in earnest and whose time a test sets forward or stops.
"""

from __future__ import annotations

import time
from math import inf
from typing import Protocol


class Clock(Protocol):
    """What the loop needs to know of time."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...

    def time(self) -> float:
        """Seconds since the epoch; may be stepped by the machine's administrator."""
        ...


class SystemClock:
    """The machine's own clocks."""

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


class ManualClock:
    """A clock that stands still until a test moves it. Both faces move together; :meth:`step` moves the wall alone.

    The epoch face is kept as an offset, so that the monotonic one stays exact.
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
        """Let time pass until the monotonic instant; ValueError when that has been already."""
        if monotonic < self._now:
            raise ValueError(f"time does not go back (from {self._now} to {monotonic})")
        self._now = monotonic

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator does; monotonic time does not notice."""
        self._offset += seconds


class AdjustableClock:
    """The machine's clocks (or ``base``), which can be set forward and stopped; both faces move together.

    The loop asks :meth:`left_s` how long to sleep: the time of a clock that stands does not come nearer.
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
        """Seconds of the machine's time until the instant ``when``: infinity when this clock stands before it."""
        if self._stands_at is None:
            return when - self.monotonic()
        return inf if when > self._stands_at else 0.0

    def advance(self, seconds: float) -> None:
        """Set both faces forward; ValueError when negative."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        if self._stands_at is None:
            self._ahead_s += seconds
        else:
            self._stands_at += seconds

    def freeze(self) -> None:
        """Stop it. Nothing when it stands."""
        if self._stands_at is None:
            self._offset_s = self.time() - self.monotonic()
            self._stands_at = self.monotonic()

    def resume(self) -> None:
        """Let it go on from where it stands."""
        if self._stands_at is not None:
            self._ahead_s = self._stands_at - self._base.monotonic()
            self._stands_at = None

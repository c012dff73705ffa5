"""Clocks: the one place where time comes from.

A clock has two faces: a monotonic one for deadlines and an epoch one for what users and records see. The loop holds a
clock; machines are handed ``now`` and hold none. :class:`ManualClock` is for tests and simulations.
"""

from __future__ import annotations

import time
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
    """A clock that stands still until it is told to move. Both faces move together; :meth:`step` moves the wall alone.

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

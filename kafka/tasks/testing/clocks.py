"""The clocks of jobs that run in the caller's thread: one that a test sets, and one that skips what jobs wait for."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

from kafka.errors import IllegalArgumentError
from kafka.net.clock import ManualClock


class FakeClock(ManualClock):
    """A clock that stands still until it is set forward. ``start``: an aware ``datetime``, or seconds since the epoch;
    default: the present whole second."""

    def __init__(self, start: datetime | float | None = None) -> None:
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise IllegalArgumentError(f"FakeClock(start) needs a datetime with a time zone, not {start!r}")
            start = start.timestamp()
        super().__init__(time=float(int(time.time()) if start is None else start))

    def now(self) -> datetime:
        """The present, in UTC."""
        return datetime.fromtimestamp(round(self.time(), 6), timezone.utc)

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass. Nothing runs by this alone: see :meth:`TestingJobs.advance`."""
        self.set(self.instant_in(seconds))

    def instant_in(self, seconds: float | timedelta) -> float:
        """The monotonic instant in so many seconds, to the microsecond, so that sums of seconds stay exact."""
        value = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not value >= 0:
            raise IllegalArgumentError(f"time does not go back ({seconds!r})")
        now = self.monotonic()
        return max(now, round(now + value, 6))


class SkippingClock(ManualClock):
    """The machine's clock, ahead by what was skipped."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self._skipped_s

    def time(self) -> float:
        return time.time() + self._skipped_s

    def set(self, monotonic: float) -> None:
        """Skip the time until then, if there is any."""
        self._skipped_s += max(0.0, monotonic - self.monotonic())

"""Numbers over the last while: windows of time, of which the oldest is dropped whole.

    recorded     |  window  |  window  | now
                  sum count   sum count
                  most        most

A window is ``window_s`` long and ``count`` of them are kept, so a rate or an average is that of the last
``count - 1`` to ``count`` windows: with kafka-python's defaults of the last 30 to 60 s. Recording costs a comparison
and three additions; it is done for batches and requests, and never for records. ``record`` may be called in one thread
and the rest in any: a reader sees numbers that are out of step by one recording at most.

Source: Java's ``SampledStat`` and ``Rate``.
"""

from __future__ import annotations

from collections import deque


class SampleWindow:
    """What was recorded from ``began`` on."""

    __slots__ = ("began", "count", "most", "total")

    def __init__(self, began: float) -> None:
        self.began = began
        self.total = 0.0
        self.count = 0
        self.most = float("-inf")


class Sampled:
    """One quantity. Times in seconds on any one clock."""

    __slots__ = ("_count", "_window", "_window_s", "_windows", "count", "total")

    def __init__(self, count: int, window_s: float, now: float) -> None:
        self.total = 0.0
        """The sum of all times."""
        self.count = 0
        """How many values there were, of all times."""
        self._count = count
        self._window_s = window_s
        self._window = SampleWindow(now)
        self._windows: deque[SampleWindow] = deque([self._window])

    def record(self, value: float, now: float, count: int = 1, most: float | None = None) -> None:
        """``value`` is the sum of ``count`` values, the largest of which is ``most``."""
        window = self._window
        if now - window.began >= self._window_s:
            window = self._window = SampleWindow(now)
            self._windows.append(window)
            if len(self._windows) > self._count:
                self._windows.popleft()
        self.total += value
        self.count += count
        window.total += value
        window.count += count
        if most is None:
            most = value
        if most > window.most:
            window.most = most

    def rate(self, now: float) -> float:
        """By the second. At the beginning, as if all windows but one had passed, as in Java."""
        windows = self._recent(now)
        return sum(window.total for window in windows) / self._passed_s(windows, now) if windows else 0.0

    def frequency(self, now: float) -> float:
        """How many values there were by the second, whatever they are."""
        windows = self._recent(now)
        return sum(window.count for window in windows) / self._passed_s(windows, now) if windows else 0.0

    def average(self, now: float) -> float:
        """0 when nothing was recorded."""
        windows = self._recent(now)
        count = sum(window.count for window in windows)
        return sum(window.total for window in windows) / count if count else 0.0

    def most(self, now: float) -> float:
        """0 when nothing was recorded."""
        return max((window.most for window in self._recent(now) if window.count), default=0.0)

    def _passed_s(self, windows: list[SampleWindow], now: float) -> float:
        least_s = (self._count - 1) * self._window_s if len(self._windows) < self._count else 0.0
        return max(now - windows[0].began, least_s, 1e-3)

    def _recent(self, now: float) -> list[SampleWindow]:
        oldest = now - self._count * self._window_s
        return [window for window in list(self._windows) if window.began >= oldest]

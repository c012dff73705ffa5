"""The clocks of a member of a classic group: its session with the coordinator, and whether its user still polls."""

from __future__ import annotations

from math import inf
from typing import Final

STALLED_LOOK_S: Final = 0.5
"""How often it is looked whether a user who did not poll for too long does so again: polling wakes nobody."""


class Session:
    """Heartbeats every ``interval_s``; who heard nothing for ``timeout_s`` is dead to the coordinator. What counts is
    when an answered heartbeat was sent: later than that it may not have been heard."""

    def __init__(self, timeout_s: float, interval_s: float) -> None:
        self.timeout_s = timeout_s
        self._interval_s = interval_s
        self._over_at = inf
        self._beat_at = inf

    def begin(self, now: float) -> None:
        """The coordinator has made this a member of a generation."""
        self.heard(now)
        self._beat_at = now + self._interval_s

    def heard(self, at: float) -> None:
        """The coordinator knows that this was alive then."""
        self._over_at = at + self.timeout_s

    def sent(self, now: float) -> None:
        """A heartbeat is on its way."""
        self._beat_at = now + self._interval_s

    def pause(self, until: float) -> None:
        """The last one failed."""
        self._beat_at = until

    def is_over(self, now: float) -> bool:
        return now >= self._over_at

    def is_beat_due(self, now: float) -> bool:
        return now >= self._beat_at

    def deadline(self, may_beat: bool) -> float:
        """When to look again."""
        return min(self._over_at, self._beat_at) if may_beat else self._over_at

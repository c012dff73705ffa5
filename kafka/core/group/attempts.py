"""Whether a member of a classic group has to join, why, and when it may: the waits between attempts."""

from __future__ import annotations

from math import inf
from typing import Final

from kafka.core.group.classic_reactions import Reaction
from kafka.core.retry import Backoff

REPORT_PAUSE_S: Final = 1.0
"""After an error that the user was told of, before the next attempt."""


class Attempts:
    """``reason``: why it has to join, None when it has not to; the first one given counts. ``at``: not before."""

    def __init__(self, backoff: Backoff) -> None:
        self.reason: str | None = None
        self.at = -inf
        self._backoff = backoff
        self._failures = 0

    def want(self, reason: str) -> None:
        """It has to join."""
        if self.reason is None:
            self.reason = reason

    def take(self) -> str:
        """It does; why."""
        reason, self.reason = self.reason or "", None
        return reason

    def succeeded(self) -> None:
        """The next failure is the first in a row."""
        self._failures = 0

    def failed(self, reaction: Reaction, now: float) -> None:
        """The next attempt comes after a pause; where the group has answered that it goes on without us, the first
        comes at once."""
        self._failures += 1
        is_answer = reaction not in (Reaction.RETRY, Reaction.FIND_COORDINATOR, Reaction.REPORT)
        pause_s = self._backoff.delay_s(self._failures - is_answer)
        self.at = now + (max(REPORT_PAUSE_S, pause_s) if reaction is Reaction.REPORT else pause_s)

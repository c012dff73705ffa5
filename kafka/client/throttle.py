"""How long brokers made this client wait: the ``throttle_time_ms`` of its answers, counted by API.

Being quiet meanwhile is each connection's own affair (``connection.py``, KIP-219); these are the numbers for metrics.
One thread writes (the loop's), any may read.
"""

from __future__ import annotations

from typing import NamedTuple


class Throttled(NamedTuple):
    """``answers`` with a throttle time above 0, the sum of their times, and the longest."""

    answers: int
    total_ms: int
    most_ms: int


NEVER = Throttled(0, 0, 0)


class ThrottleTimes:
    """``by_api``: the API's name ("Produce") -> what was counted for it."""

    def __init__(self) -> None:
        self.by_api: dict[str, Throttled] = {}

    def note(self, api: str, throttle_ms: int) -> None:
        """An answer of ``api`` asked for so long a rest."""
        known = self.by_api.get(api, NEVER)
        self.by_api[api] = Throttled(known.answers + 1, known.total_ms + throttle_ms, max(known.most_ms, throttle_ms))

    def of(self, api: str) -> Throttled:
        """What was counted for one API; zeros when it was never throttled."""
        return self.by_api.get(api, NEVER)

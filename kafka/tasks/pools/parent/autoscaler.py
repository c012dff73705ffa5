"""How many slots a pool should have: a decision over a sample a second, with hysteresis. Pure.

All slots busy with work left over for two seconds: half as many more. At most half of them busy and nothing waiting for
thirty seconds: half of the idle ones less. Anything else starts both waits anew, so a load that swings around either
threshold moves nothing.
"""

from __future__ import annotations

from typing import NamedTuple

GROW_AFTER_S = 2.0
SHRINK_AFTER_S = 30.0
IDLE_SHARE = 0.5


class PoolLoad(NamedTuple):
    """What a sample sees: slots, those that run a job, jobs that wait for one."""

    slots: int
    busy: int
    waiting: int


class Autoscaler:
    """Decides between ``least`` and ``most`` slots."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._saturated_since: float | None = None
        self._idle_since: float | None = None

    def target(self, now: float, load: PoolLoad) -> int:
        """How many slots there should be from now on."""
        slots, busy, waiting = load
        is_saturated = busy >= slots and waiting > 0
        is_idle = busy <= slots * IDLE_SHARE and not waiting
        self._saturated_since = _start_of(self._saturated_since, is_saturated, now)
        self._idle_since = _start_of(self._idle_since, is_idle, now)
        target = slots
        if self._saturated_since is not None and now - self._saturated_since >= GROW_AFTER_S:
            self._saturated_since = now
            target = slots + min(waiting, max(1, slots // 2))
        elif self._idle_since is not None and now - self._idle_since >= SHRINK_AFTER_S:
            self._idle_since = now
            target = slots - max(1, (slots - busy) // 2)
        return min(max(target, self._least), self._most)


def _start_of(before: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if before is None else before

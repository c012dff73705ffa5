"""Who of many wants to be asked when, at the latest: one entry each, the next one found at once.

    at_latest("g", 12.5)     an entry, or an earlier one for the one that is there
    pop_due(now)             those whose time has come; whoever still waits for something says so again

An owner whose deadline has moved away says nothing: it is asked too early, once, and then names the new one. So 2,000
share partitions whose locks come and go with every fetch cost one comparison for each lock, not a scan for each turn.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from kafka.net.delayed import Timer, TimerHeap

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """Names by monotonic instant."""

    __slots__ = ("_heap", "_timers")

    def __init__(self) -> None:
        self._heap: TimerHeap[K] = TimerHeap()
        self._timers: dict[K, Timer[K]] = {}

    def __len__(self) -> int:
        return len(self._timers)

    @property
    def next_at(self) -> float | None:
        """The earliest deadline of all, or None."""
        return self._heap.next_when()

    def at_latest(self, name: K, when: float | None) -> None:
        """``name`` is to be asked at ``when`` (monotonic s; None: nothing changes) or before."""
        if when is None:
            return
        timer = self._timers.get(name)
        if timer is not None:
            if timer.when <= when:
                return
            timer.cancel()
        self._timers[name] = self._heap.push(when, name)

    def pop_due(self, now: float) -> list[K]:
        """Take out all whose time has come, the earliest first."""
        due: list[K] = []
        while (timer := self._heap.pop_due(now)) is not None:
            if timer.item is not None:
                due.append(timer.item)
                del self._timers[timer.item]
        return due

    def discard(self, name: K) -> None:
        """Forget a name, if it is there."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

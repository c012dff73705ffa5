"""Requests that wait: each is tried again when something that it watches has changed, and answered when its time is up.

    park(keys, deadline, attempt)      -> waits under each of its keys
    touch(key)                         -> what waits under the key is due for another attempt
    run(now)                           -> makes the attempts; the last one of those whose time is up

Touching is cheap and says nothing yet: attempts are made by :meth:`Purgatory.run`, once for all that happened since the
last one, so that ten produces wake a fetch once and it finds the records of all ten.

Kafka's name for it. Keys are whatever hashes: a partition, a share partition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from kafka.net.delayed import Timer, TimerHeap

Attempt = Callable[[float, bool], bool]
"""``(now, is_last)``: try to answer, True when that is done. With ``is_last`` the request has to be answered."""


class Parked:
    """One request that waits."""

    __slots__ = ("attempt", "keys", "timer")

    def __init__(self, keys: tuple[Hashable, ...], attempt: Attempt) -> None:
        self.keys = keys
        self.attempt: Attempt | None = attempt
        self.timer: Timer[Parked] | None = None


class Purgatory:
    """All that waits on one broker."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self._deadlines: TimerHeap[Parked] = TimerHeap()
        self._touched: dict[Parked, None] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`run` next, in monotonic s; minus infinity when there is something to do now."""
        return float("-inf") if self._touched else self._deadlines.next_when()

    def park(self, keys: Iterable[Hashable], deadline: float, attempt: Attempt) -> Parked:
        """Let a request wait until ``deadline`` (monotonic s) at the longest."""
        parked = Parked(tuple(keys), attempt)
        parked.timer = self._deadlines.push(deadline, parked)
        for key in parked.keys:
            self._by_key.setdefault(key, {})[parked] = None
        return parked

    def touch(self, key: Hashable) -> None:
        """Something under ``key`` has changed."""
        waiting = self._by_key.get(key)
        if waiting:
            self._touched.update(waiting)

    def cancel(self, parked: Parked) -> None:
        """Forget a request: nobody is there to be answered."""
        parked.attempt = None
        self._touched.pop(parked, None)
        if parked.timer is not None:
            parked.timer.cancel()
            parked.timer = None
        for key in parked.keys:
            waiting = self._by_key.get(key)
            if waiting is not None:
                waiting.pop(parked, None)
                if not waiting:
                    del self._by_key[key]

    def run(self, now: float) -> bool:
        """Try what was touched, end what is over; whether there was any. What attempts touch has its turn in the next
        run."""
        has_tried = bool(self._touched)
        if self._touched:
            touched, self._touched = self._touched, {}
            for parked in touched:
                if parked.attempt is not None and parked.attempt(now, False):
                    self.cancel(parked)
        while (timer := self._deadlines.pop_due(now)) is not None:
            has_tried = True
            due = timer.item
            if due is not None and due.attempt is not None:
                due.attempt(now, True)
                self.cancel(due)
        return has_tried

"""The heap of timers, and the queue of scheduled tasks on top of it.

:class:`TimerHeap` orders items by a monotonic instant and serves the loop too. :class:`DelayedTaskQueue` speaks epoch
seconds, remembers tasks by identity of value (they are hashable) and gives each a future. Neither runs or wakes
anything: the owner asks when the next is due.

    heap entry:  (when, number, timer)        number: order of adding, so ties are fair and timers are never compared
    cancelled:   timer.item is None           left in the heap until it comes up, or until half of the heap is such
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from kafka.errors import Cancelled
from kafka.future import Future
from kafka.net.clock import Clock, SystemClock

T = TypeVar("T")

NEVER_S = 9999999999
"""The result of :meth:`DelayedTaskQueue.next_at` when nothing is scheduled."""

GRAIN_S = 1e-6
"""Epoch seconds as a float are no finer than a quarter of a microsecond, so what is nearer than this is due."""

_COMPACT_FROM = 64
"""A smaller heap is not worth the cleaning."""


class Timer(Generic[T]):
    """One item in a heap. ``when`` is its instant, ``item`` is None once it was cancelled or has been run."""

    __slots__ = ("_heap", "item", "when")

    def __init__(self, when: float, item: T, heap: TimerHeap[T]) -> None:
        self.when = when
        self.item: T | None = item
        self._heap: TimerHeap[T] | None = heap

    @property
    def is_pending(self) -> bool:
        """Whether it was neither cancelled nor run."""
        return self.item is not None

    def take(self) -> T | None:
        """Take the item out to run it; None when the timer was cancelled."""
        item, self.item = self.item, None
        return item

    def cancel(self) -> None:
        """Cancel it: O(1), at any time, any number of times. The item is released at once."""
        self.item = None
        heap, self._heap = self._heap, None
        if heap is not None:
            heap._count_cancelled()


class TimerHeap(Generic[T]):
    """Items by monotonic instant; equal instants in the order of adding. ``len()`` does not count cancelled ones."""

    __slots__ = ("_cancelled_count", "_entries", "_number")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Timer[T]]] = []
        self._number = 0
        self._cancelled_count = 0

    def __len__(self) -> int:
        return len(self._entries) - self._cancelled_count

    @property
    def stored_count(self) -> int:
        """Entries in memory, cancelled ones included: at most twice ``len()`` and a few."""
        return len(self._entries)

    def push(self, when: float, item: T) -> Timer[T]:
        """Add ``item`` (anything but None) for the instant ``when``; ValueError when that is not a number."""
        if when != when:
            raise ValueError("the instant of a timer is not a number")
        timer = Timer(when, item, self)
        self._number += 1
        heapq.heappush(self._entries, (when, self._number, timer))
        return timer

    def next_when(self) -> float | None:
        """The earliest instant, or None when there is nothing."""
        entries = self._entries
        while entries:
            when, _, timer = entries[0]
            if timer.item is not None:
                return when
            heapq.heappop(entries)
            self._cancelled_count -= 1
        return None

    def pop_due(self, now: float) -> Timer[T] | None:
        """Take out the earliest timer when it is due at ``now``; it can be cancelled still (its item is then None)."""
        when = self.next_when()
        if when is None or when > now:
            return None
        timer = heapq.heappop(self._entries)[2]
        timer._heap = None
        return timer

    def clear(self) -> None:
        """Cancel everything."""
        for _, _, timer in self._entries:
            timer.item = None
            timer._heap = None
        self._entries.clear()
        self._cancelled_count = 0

    def _count_cancelled(self) -> None:
        self._cancelled_count += 1
        entries = self._entries
        # Cleaning costs as much as the cancellations that led to it, so cancel() stays O(1) on average.
        if len(entries) >= _COMPACT_FROM and self._cancelled_count * 2 > len(entries):
            self._entries = [entry for entry in entries if entry[2].item is not None]
            heapq.heapify(self._entries)
            self._cancelled_count = 0


class DelayedTaskQueue:
    """Tasks that are to run at a time of the wall clock, each with a future.

    ``at`` is turned into a monotonic deadline when the task is added, so a later step of the wall clock neither fires
    nor delays it. ``clock``: the machine's by default. The caller of :meth:`pop_ready` runs the tasks and completes
    their futures.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._heap: TimerHeap[tuple[Hashable, Future[Any]]] = TimerHeap()
        self._timers: dict[Hashable, Timer[tuple[Hashable, Future[Any]]]] = {}
        self._offset_s: float | None = None

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, task: Hashable) -> bool:
        return task in self._timers

    def add(self, task: Hashable, at: float) -> Future[Any]:
        """Schedule ``task`` for ``at`` (epoch seconds). One already there is cancelled: its future fails."""
        future: Future[Any] = Future()
        timer = self._heap.push(at - self._wall_offset_s(), (task, future))
        former = self._timers.pop(task, None)
        self._timers[task] = timer
        if former is not None:
            _cancel(former, "the task was scheduled again")
        return future

    def remove(self, task: Hashable) -> None:
        """Unschedule ``task``: its future fails with :class:`~kafka.errors.Cancelled`. KeyError when it is not
        there."""
        _cancel(self._timers.pop(task), "the task was unscheduled")

    def cancel_all(self) -> None:
        """Unschedule everything, each as by :meth:`remove`."""
        for task in list(self._timers):
            self.remove(task)

    def next_at(self) -> float:
        """Seconds until the next task: 0 when one is due, 9999999999 when there is none."""
        when = self._heap.next_when()
        if when is None:
            return NEVER_S
        left_s = when - self._clock.monotonic()
        return left_s if left_s > GRAIN_S else 0

    def pop_ready(self) -> list[tuple[Any, Future[Any]]]:
        """Take out what is due: (task, future) in time order, ties in the order of adding."""
        now = self._clock.monotonic() + GRAIN_S
        ready: list[tuple[Any, Future[Any]]] = []
        while (timer := self._heap.pop_due(now)) is not None:
            if timer.item is not None:
                del self._timers[timer.item[0]]
                ready.append(timer.item)
        return ready

    def _wall_offset_s(self) -> float:
        """Epoch minus monotonic. The same until the wall clock is stepped: equal ``at`` must give equal deadlines.

        The two clocks cannot be read at one instant, and the thread may lose the processor between; the true offset
        lies in the interval that three readings give, and the known one is kept while it does so too.
        """
        before = self._clock.monotonic()
        wall = self._clock.time()
        after = self._clock.monotonic()
        known = self._offset_s
        if known is None or not wall - after - GRAIN_S <= known <= wall - before + GRAIN_S:
            self._offset_s = known = wall - before
        return known


def _cancel(timer: Timer[tuple[Hashable, Future[Any]]], why: str) -> None:
    item = timer.item
    timer.cancel()
    if item is not None:
        item[1].failure(Cancelled(why))

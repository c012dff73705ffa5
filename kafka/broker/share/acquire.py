"""One acquire: which records of a share partition a member gets, and their locks (KIP-932, KIP-1206).

First what is available again, then what never was handed out. The quirks are Apache Kafka 4.3.0's, measured: without
an exact limit batches are taken whole; redelivery near the limit of deliveries goes in halves, the last one alone.

Changes only the window; nothing of it is durable, as a lock ends with the broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka.broker.share.inflight import InFlightBatch, Run
from kafka.broker.share.states import ACQUIRED, AVAILABLE, Acquired, ShareSettings
from kafka.broker.share.window import Window


class Acquisition:
    """Locks for one member until ``deadline`` (monotonic s); ``taken`` says on what, ascending. ``exact``: no more than
    the limit, even if that cuts a batch."""

    __slots__ = ("_member_id", "_settings", "_window", "deadline", "exact", "taken")

    def __init__(
        self, window: Window, settings: ShareSettings, member_id: str, deadline: float, exact: bool
    ) -> None:
        self._window = window
        self._settings = settings
        self._member_id = member_id
        self.deadline = deadline
        self.exact = exact
        self.taken: list[Acquired] = []

    def again(
        self,
        batches: Sequence[InFlightBatch],
        base: int,
        last: int,
        limit: int,
    ) -> int:
        """Lock what is available among batches in flight; returns by how much that uses up the limit."""
        count = 0
        for batch in batches:
            if count >= limit:
                break
            throttled = self._is_throttled(batch, base, last)
            if throttled and count:
                return limit
            runs = batch.runs
            whole = len(runs) == 1 and batch.first >= base and batch.last <= last
            if whole and not throttled and not (self.exact and batch.size > limit - count):
                if runs[0].state == AVAILABLE:
                    self._lock(runs[0])
                    self.taken.append(Acquired(batch.first, batch.last, runs[0].count))
                    count += batch.size
                continue
            part = self._part(batch, base, last, limit - count if self.exact else None)
            count += part
            if throttled and part:
                return limit
        return count

    def _part(
        self,
        batch: InFlightBatch,
        base: int,
        last: int,
        at_most: int | None,
    ) -> int:
        """Lock some of a batch, smaller parts the more often they were delivered, the last delivery alone."""
        delivery_limit = self._settings.delivery_limit
        throttle_from = _throttle_from(delivery_limit)
        cap: int | None = None
        count = 0
        parts: list[tuple[int, int]] = []
        for run in batch.overlapping(base, last):
            if run.state != AVAILABLE:
                continue
            first = max(run.first, base)
            room = min(run.last, last) - first + 1
            is_last_delivery = delivery_limit > 2 and run.count == delivery_limit - 1
            if is_last_delivery and count:
                break
            if cap is None and run.count >= throttle_from:
                cap = max(1, batch.size >> (run.count - throttle_from + 1))
            if is_last_delivery:
                room = 1
            if at_most is not None:
                room = min(room, at_most - count)
            if cap is not None and count < cap:
                room = min(room, cap - count)
            parts.append((first, first + room - 1))
            count += room
            if is_last_delivery or count in (at_most, cap):
                break
        for first, end in parts:
            for run in batch.cut(first, end):
                self._lock(run)
                taken = self.taken
                if taken and taken[-1].last + 1 == run.first and taken[-1].delivery_count == run.count:
                    taken[-1] = Acquired(taken[-1].first, run.last, run.count)
                else:
                    taken.append(Acquired(run.first, run.last, run.count))
        if parts:
            batch.join()
        return count

    def new(
        self,
        fetched: Sequence[tuple[int, int]],
        first: int,
        last: int,
        limit: int,
        batch_size: int,
    ) -> None:
        """Take records into the window that never were in it, up to the border of the batch in which the limit
        falls.
        """
        last = next((end for _, end in fetched if end >= first + limit - 1), last)
        if not self._window.batches:
            self._window.start = first
        borders = [first]
        if not self.exact:
            for base, _ in fetched:
                if base > last:
                    break
                if base - borders[-1] >= batch_size:
                    borders.append(base)
        for at, begin in enumerate(borders):
            end = borders[at + 1] - 1 if at + 1 < len(borders) else last
            stop = min(end, begin + limit - 1) if self.exact else end
            runs = [Run(begin, stop, ACQUIRED, 1, self._member_id, self.deadline)]
            if stop < end:
                runs.append(Run(stop + 1, end, AVAILABLE, 0))
                self._window.freed(stop + 1)
            self._window.append(InFlightBatch(begin, end, runs))
            self.taken.append(Acquired(begin, stop, 1))

    def _is_throttled(self, batch: InFlightBatch, base: int, last: int) -> bool:
        limit = _throttle_from(self._settings.delivery_limit)
        runs = batch.runs
        if len(runs) == 1:
            return runs[0].state == AVAILABLE and runs[0].count >= limit
        return any(run.state == AVAILABLE and run.count >= limit for run in batch.overlapping(base, last))

    def _lock(self, run: Run) -> None:
        run.state = ACQUIRED
        run.count += 1
        run.member = self._member_id
        run.deadline = self.deadline


def _throttle_from(delivery_limit: int) -> int:
    """The delivery count from which redelivery goes in smaller parts: half of the limit, at least 2."""
    return max(2, (delivery_limit + 1) // 2)

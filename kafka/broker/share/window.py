"""The window of a share partition: the offsets from its start to its end, in batches, and what moves the start.

    start ........................................ end
    [InFlightBatch][InFlightBatch]...[InFlightBatch]     ascending; holes are offsets that the log never had

What is at the front and done leaves the window; its span is what Kafka limits. Who may change which run, and what is
durable, is ``partition.py``'s and ``acquire.py``'s business.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from kafka.broker.share.inflight import InFlightBatch, Run
from kafka.broker.share.states import ACQUIRED, ARCHIVED, AVAILABLE, StateRange

_OPEN = (ACQUIRED, AVAILABLE)
"""States of records that are not done."""


class Window:
    """``start``: the first offset that is not done; ``end``: the one after the last that was ever handed out."""

    __slots__ = ("_available_from", "batches", "end", "firsts", "start")

    def __init__(self, start: int, restored: Sequence[StateRange] = ()) -> None:
        self.start = start
        self.end = start
        self.batches: list[InFlightBatch] = []
        self.firsts: list[int] = []
        """The first offset of each batch, for bisection."""
        self._available_from: int | None = None
        self._restore(restored)

    @property
    def span(self) -> int:
        """What counts against the limit of records in flight."""
        return self.end - self.start if self.batches else 0

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """The batches that have an offset in ``first`` to ``last``."""
        low = bisect_right(self.firsts, first) - 1
        if low < 0 or self.batches[low].last < first:
            low += 1
        return self.batches[low : bisect_right(self.firsts, last)]

    def runs(self) -> Iterator[Run]:
        """Every run, ascending."""
        for batch in self.batches:
            yield from batch.runs

    def held_by(self, member_id: str) -> list[Run]:
        """The runs that a member has locked."""
        return [run for run in self.runs() if run.state == ACQUIRED and run.member == member_id]

    def next_fetch_offset(self) -> int:
        """Where to read the log for the next acquire: the first available offset, else the end."""
        if self._available_from is None:
            return self.end
        index = max(0, bisect_right(self.firsts, self._available_from) - 1)
        for batch in self.batches[index:]:
            for run in batch.runs:
                if run.state == AVAILABLE and run.last >= self.start:
                    self._available_from = max(run.first, self.start)
                    return self._available_from
        self._available_from = None
        return self.end

    def state_ranges(self) -> list[StateRange]:
        """Everything in flight as it is durable: what is acquired is available, and this delivery is not yet
        counted.
        """
        ranges: list[StateRange] = []
        for run in self.runs():
            state, count = (AVAILABLE, run.count - 1) if run.state == ACQUIRED else (run.state, run.count)
            if run.last >= self.start and (state != AVAILABLE or count):
                ranges.append(StateRange(max(run.first, self.start), run.last, state, count))
        return ranges

    # -- changes -----------------------------------------------------------------------------------------------------

    def append(self, batch: InFlightBatch) -> None:
        """Take a batch in behind all others."""
        self.batches.append(batch)
        self.firsts.append(batch.first)
        self.end = batch.last + 1

    def freed(self, offset: int) -> None:
        """Something from ``offset`` on is available."""
        if self._available_from is None or offset < self._available_from:
            self._available_from = offset

    def archive_available(self, first: int, last: int) -> None:
        """What is available in this range will never come: the log has it no more (compaction)."""
        for batch in self.overlapping(first, last):
            if any(run.state == AVAILABLE for run in batch.overlapping(first, last)):
                for run in batch.cut(first, last):
                    if run.state == AVAILABLE:
                        run.state = ARCHIVED
                batch.join()

    def advance(self) -> bool:
        """Move the start past all that is done at the front, and forget the batches that end there; whether it moved.
        """
        before = self.start
        done = 0
        for batch in self.batches:
            for run in batch.runs:
                if run.state in _OPEN:
                    break
            else:
                done += 1
                continue
            self.start = max(self.start, run.first)
            break
        else:
            self.start = self.end
            self._available_from = None
        if done:
            del self.batches[:done]
            del self.firsts[:done]
        return self.start != before

    def _restore(self, ranges: Sequence[StateRange]) -> None:
        """Take up what was durable; offsets in between, of which nothing was written, are available for the first
        time.
        """
        for found in sorted(ranges):
            if found.last < self.start:
                continue
            first = max(found.first, self.start)
            if first > self.end:
                self._add(self.end, first - 1, AVAILABLE, 0)
            self._add(first, found.last, found.state, found.delivery_count)
        self.advance()

    def _add(self, first: int, last: int, state: int, count: int) -> None:
        at = bisect_left(self.firsts, first)
        self.firsts.insert(at, first)
        self.batches.insert(at, InFlightBatch(first, last, [Run(first, last, state, count)]))
        self.end = max(self.end, last + 1)
        if state == AVAILABLE:
            self.freed(first)

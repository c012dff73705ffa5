"""Jobs by id in little memory: when the schedule is to look at each, and where its record is.

A million jobs are a million rows of 36 bytes in arrays, about 55 MB; as Python objects they would be 300. Rows are in
segments by some bits of their ids, each an open hash table with linear probing, so that a table that grows copies
a few thousand rows at a time. No row is in any order: what is due next is found by looking at all
(:meth:`PendingTable.due`), every half minute or so, which takes 40 ns a row and is what keeps them small.

::

    row    id, 2 x 64 bits | wake, ms | offset | generation << 3 | kind
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

SEGMENTS: Final = 256
SEGMENT_SHIFT: Final = 40
SLOT_SHIFT: Final = 16
"""Which of an id's last 64 bits choose segment and slot. Not the last ones, which are the same in all jobs of a
partition of the schedule (:func:`kafka.tasks.format.commands.partition_of_job`), nor the first twelve, which are the
same in all jobs of a client."""

FREE: Final = 0
REMOVED: Final = 1
"""Kinds of rows that hold no job."""
FIRST_KIND: Final = 2
"""Kinds from here to 7 are the caller's."""

MOST_GENERATION: Final = (1 << 29) - 1

NEVER_MS: Final = (1 << 62) - 1
"""The time of rows that hold no job."""


class PendingRow(NamedTuple):
    """When to look at a job, where its record is, its kind and its generation."""

    wake_ms: int
    offset: int
    kind: int
    generation: int


class _Segment:
    """An open hash table. A slot that is not FREE may continue a chain of rows that begin before it."""

    __slots__ = ("count", "earliest_ms", "high", "low", "offset", "size", "tag", "used", "wake")

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self.used = 0
        self.earliest_ms = NEVER_MS
        self.high = array("Q", bytes(8 * size))
        self.low = array("Q", bytes(8 * size))
        self.wake = array("q", [NEVER_MS]) * size
        self.offset = array("q", bytes(8 * size))
        self.tag = array("I", bytes(4 * size))

    def find(self, high: int, low: int) -> int:
        """The slot of an id; -1 when it is not here."""
        size, tags, lows, highs = self.size, self.tag, self.low, self.high
        slot = (low >> SLOT_SHIFT) % size
        while tags[slot] != FREE:
            if lows[slot] == low and highs[slot] == high and tags[slot] != REMOVED:
                return slot
            slot += 1
            if slot == size:
                slot = 0
        return -1

    def insert(self, high: int, low: int, wake_ms: int, offset: int, tag: int) -> None:
        """Add an id that is not here; there is a free slot."""
        size, tags = self.size, self.tag
        slot = (low >> SLOT_SHIFT) % size
        while tags[slot] > REMOVED:
            slot += 1
            if slot == size:
                slot = 0
        self.used += tags[slot] == FREE
        self.count += 1
        self.high[slot] = high
        self.low[slot] = low
        self.offset[slot] = offset
        tags[slot] = tag
        self.set_wake(slot, wake_ms)

    def set_wake(self, slot: int, wake_ms: int) -> None:
        """Look at the job of a slot at another time."""
        self.wake[slot] = wake_ms
        if wake_ms < self.earliest_ms:
            self.earliest_ms = wake_ms

    def remove(self, slot: int) -> None:
        """Remove the job of a slot."""
        self.tag[slot] = REMOVED
        self.wake[slot] = NEVER_MS
        self.count -= 1
        if not self.count:
            self.earliest_ms = NEVER_MS

    def resized(self) -> _Segment:
        """The same jobs with as much room again."""
        other = _Segment(self.count * 7 // 4 + 8)
        for high, low, wake_ms, offset, tag in zip(self.high, self.low, self.wake, self.offset, self.tag, strict=True):
            if tag > REMOVED:
                other.insert(high, low, wake_ms, offset, tag)
        return other


class PendingTable:
    """See the module. Ids are 32 hex digits; offsets and times are below 2**62."""

    __slots__ = ("_segments",)

    def __init__(self) -> None:
        self._segments = [_Segment(8) for _ in range(SEGMENTS)]

    def __len__(self) -> int:
        return sum(segment.count for segment in self._segments)

    def get(self, job_id: str) -> PendingRow | None:
        """The row of a job; None when it has none."""
        low = int(job_id[16:], 16)
        segment = self._segments[low >> SEGMENT_SHIFT & 0xFF]
        slot = segment.find(int(job_id[:16], 16), low)
        if slot < 0:
            return None
        tag = segment.tag[slot]
        return PendingRow(segment.wake[slot], segment.offset[slot], tag & 7, tag >> 3)

    def put(self, job_id: str, wake_ms: int, offset: int, kind: int, generation: int) -> None:
        """Write the row of a job, instead of the one that it has."""
        high, low = int(job_id[:16], 16), int(job_id[16:], 16)
        tag = min(generation, MOST_GENERATION) << 3 | kind
        segment = self._segments[low >> SEGMENT_SHIFT & 0xFF]
        slot = segment.find(high, low)
        if slot >= 0:
            segment.offset[slot] = offset
            segment.tag[slot] = tag
            segment.set_wake(slot, wake_ms)
            return
        if segment.used * 5 >= segment.size * 4:
            segment = self._segments[low >> SEGMENT_SHIFT & 0xFF] = segment.resized()
        segment.insert(high, low, wake_ms, offset, tag)

    def remove(self, job_id: str) -> None:
        """Remove the row of a job, if it has one."""
        low = int(job_id[16:], 16)
        segment = self._segments[low >> SEGMENT_SHIFT & 0xFF]
        slot = segment.find(int(job_id[:16], 16), low)
        if slot >= 0:
            segment.remove(slot)

    def count(self, kind: int) -> int:
        """Jobs of a kind; looks at all rows."""
        return sum(tag & 7 == kind for segment in self._segments for tag in segment.tag)

    def due(self, before_ms: int, most: int = NEVER_MS) -> list[tuple[int, str]]:
        """The jobs to look at before this time, with that time, in no order; the earliest ``most`` of them."""
        slots_of: list[tuple[_Segment, list[int]]] = []
        for segment in self._segments:
            if segment.earliest_ms < before_ms:
                slots = [slot for slot, wake_ms in enumerate(segment.wake) if wake_ms < before_ms]
                slots_of.append((segment, slots))
                segment.earliest_ms = min(segment.wake)
        last_count = 0  # jobs of the time before_ms that are taken as well
        if sum(len(slots) for _, slots in slots_of) > most:
            times = sorted(segment.wake[slot] for segment, slots in slots_of for slot in slots)
            before_ms = times[most]
            last_count = most - bisect_left(times, before_ms)
        found: list[tuple[int, str]] = []
        for segment, slots in slots_of:
            for slot in slots:
                wake_ms = segment.wake[slot]
                if wake_ms == before_ms and last_count:
                    last_count -= 1
                elif wake_ms >= before_ms:
                    continue
                found.append((wake_ms, f"{segment.high[slot]:016x}{segment.low[slot]:016x}"))
        return found

    @property
    def earliest_ms(self) -> int:
        """No job is to be looked at before this time; NEVER_MS when there is none."""
        return min([segment.earliest_ms for segment in self._segments])

"""The account of ``buffer_memory``: what is held, who waits for more, in which order.

What counts is what Python holds, not what will go over the wire. A record of seven bytes is six pointers until its
neighbours are joined with it, and a batch is a dozen objects however little is in it; so a batch counts with

    open      OBJECT_BYTES + what it may grow to before it has to ask again + the pieces of its last records
    closed    OBJECT_BYTES + its bytes
    parked    PARKED_BYTES for each record + its bytes: of a topic whose partitions are not known

What is not counted: the futures that users keep (a batch's own is in OBJECT_BYTES), values that users keep, the
requests that are being written, and what the memory allocator rounds up to. ``test/producer/test_memory.py`` measures
processes, and keeps the sum of these within a fifth.

Waiters get memory in the order in which they came, as from Java's ``BufferPool``: nobody who comes later gets any while
one waits, small as it may be. A record for which an open batch has room needs none, and waits for nobody.

Everything here is done under the accumulator's lock; threads and their events are the producer's (``Waiter.wake``).
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from kafka.records.builder import CHUNK_RECORDS
from kafka.records.header import HEADER_BYTES

OBJECT_BYTES: Final = 1024
"""A batch with its future, its builder and its places in tables, about: measured with one record in each."""
PIECES_BYTES: Final = 96
"""A record that was not joined with others yet costs so much more than its bytes, about."""
LEAST_RECORD_BYTES: Final = 7
PARKED_BYTES: Final = 320
"""A parked record costs so much more than its key, its value and its headers, about."""
PARKED_HEADER_BYTES: Final = 192
PLENTY_BITS: Final = 5
"""A waiter is woken at once when a 32nd of the memory is free: 1 MiB by default."""


class Waiter(Protocol):
    """Somebody who waits for memory."""

    needed_bytes: int
    """Set here."""

    def wake(self) -> object:
        """There may be enough: try again. Called by any thread."""


class BufferFull(Exception):
    """There is no room for ``needed_bytes`` more, or others wait for it already."""

    def __init__(self, needed_bytes: int) -> None:
        super().__init__(needed_bytes)
        self.needed_bytes = needed_bytes


class Memory:
    """Owner of the sum and of the row of waiters."""

    __slots__ = ("is_short", "limit_bytes", "used_bytes", "waiters")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.waiters: deque[Waiter] = deque()
        self.is_short = False
        """Somebody was refused and nothing was freed since, or somebody waits: nothing should linger now."""

    def take(self, count: int, waiter: Waiter | None) -> bool:
        """Count so many bytes more, if there is room; ``waiter`` is the caller when it stands in the row.

        One that is larger than everything is let in when it is alone: nobody could ever send it otherwise.
        """
        is_first = not self.waiters or self.waiters[0] is waiter
        if is_first and (not self.used_bytes or self.used_bytes + count <= self.limit_bytes):
            self.used_bytes += count
            return True
        self.is_short = True
        if waiter is not None:
            waiter.needed_bytes = count
        return False

    def give(self, count: int) -> None:
        """So many bytes are free again."""
        self.used_bytes -= count
        if not self.waiters:
            self.is_short = False

    def has_plenty(self) -> bool:
        """Whether there is a waiter, and so much for it that several batches will find room."""
        if not self.waiters:
            return False
        wanted = max(self.waiters[0].needed_bytes, self.limit_bytes >> PLENTY_BITS)
        return not self.used_bytes or self.used_bytes + wanted <= self.limit_bytes

    def next_waiter(self) -> Waiter | None:
        """The first in the row, when there may be enough for it."""
        if not self.waiters:
            return None
        first = self.waiters[0]
        if not self.used_bytes or self.used_bytes + first.needed_bytes <= self.limit_bytes:
            return first
        return None

    def leave(self, waiter: Waiter) -> None:
        """``waiter`` got what it needs, or gives up; nothing when it does not stand there."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)
        if not self.waiters:
            self.is_short = False


def open_batch_bytes(room_bytes: int, record_bytes: int) -> int:
    """What an open batch counts that may grow to ``room_bytes``, when its records have ``record_bytes`` on average."""
    pieces = (room_bytes - HEADER_BYTES) // max(record_bytes, LEAST_RECORD_BYTES) + 1
    return OBJECT_BYTES + room_bytes + PIECES_BYTES * (pieces if pieces < CHUNK_RECORDS else CHUNK_RECORDS)

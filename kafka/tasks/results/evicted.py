"""Which jobs a client may have forgotten: a set of ids in bounded memory that never denies one that was added.

The last 24 bits of an id, which are random, are its place in a bitmap of 2 MiB. After 200,000 evictions about one id
in 80 is taken for an evicted one; that costs a look-up in the log, and no more. Before the map says so of more than one
id in 8 it is cleared, and from then on every id that is not later than the latest added one counts as evicted.
"""

from __future__ import annotations

PLACE_DIGITS = 6
BITMAP_BYTES = (1 << 4 * PLACE_DIGITS) // 8
MOST_ADDED = 1 << 21


class EvictedIds:
    """See the module."""

    __slots__ = ("_bitmap", "_count", "_latest", "_latest_cleared")

    def __init__(self) -> None:
        self._bitmap: bytearray | None = None
        self._count = 0
        self._latest = self._latest_cleared = ""

    @property
    def byte_count(self) -> int:
        """What it takes of memory."""
        return 0 if self._bitmap is None else BITMAP_BYTES

    def add(self, job_id: str) -> None:
        """Add one id."""
        bitmap = self._bitmap
        if bitmap is None or self._count == MOST_ADDED:
            self._latest_cleared = self._latest  # first: another thread may ask meanwhile
            self._bitmap = bitmap = bytearray(BITMAP_BYTES)
            self._count = 0
        place = int(job_id[-PLACE_DIGITS:], 16)
        bitmap[place >> 3] |= 1 << (place & 7)
        self._count += 1
        self._latest = max(self._latest, job_id)

    def __contains__(self, job_id: str) -> bool:
        bitmap = self._bitmap
        if bitmap is None:
            return False
        place = int(job_id[-PLACE_DIGITS:], 16)
        return job_id <= self._latest_cleared or bitmap[place >> 3] >> (place & 7) & 1 == 1

"""A sparse index of one segment: which batch lies where, one entry for every 4 KiB or so of the file.

    entry:  base offset of a batch | its position | the greatest timestamp of all batches before it

All three columns ascend, so each look-up is one bisection. 24 bytes for 4 KiB of log: 6 MB for a segment of 1 GiB.
It lives in memory, is made by appending and by scanning, and is stored in the segment's seal.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right

INTERVAL_BYTES = 4096


class SparseIndex:
    """Offsets and times -> positions in a file."""

    __slots__ = ("_end", "offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        self._end = -INTERVAL_BYTES

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, base_offset: int, position: int, max_timestamp_before: int, *, force: bool = False) -> None:
        """Take note of a batch, if the last entry is far enough away or ``force``."""
        if position - self._end >= INTERVAL_BYTES or force:
            self.offsets.append(base_offset)
            self.positions.append(position)
            self.times.append(max_timestamp_before)
            self._end = position

    def position_of(self, offset: int) -> int:
        """The last known position of a batch that begins at or below ``offset``; 0 when there is none."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before(self, position: int) -> int:
        """The last known position of a batch at or below ``position``."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before_time(self, timestamp: int) -> int:
        """A position below which no batch has a timestamp of ``timestamp`` or more."""
        at = bisect_left(self.times, timestamp) - 1
        return self.positions[at] if at >= 0 else 0

    def to_bytes(self) -> bytes:
        """The three columns, one after the other, little-endian."""
        return b"".join(_little(column).tobytes() for column in (self.offsets, self.positions, self.times))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> SparseIndex:
        """What :meth:`to_bytes` gave; ValueError when that cannot be."""
        if len(data) % 24:
            raise ValueError(f"{len(data)} bytes are no index")
        index = cls()
        size = len(data) // 3
        for at, column in enumerate((index.offsets, index.positions, index.times)):
            column.frombytes(bytes(data[at * size : (at + 1) * size]))
            if sys.byteorder == "big":
                column.byteswap()
        if index.positions:
            index._end = index.positions[-1]
        return index


def _little(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = array("q", column)
    swapped.byteswap()
    return swapped

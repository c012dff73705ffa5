"""Which leader epoch began at which offset: what OffsetForLeaderEpoch answers (KIP-101, KIP-279).

    epoch          0        1    4
    offsets     0 ... 99  100  101 ... 149 | end 150

    asked for      0    1    2    4    5          below the first one    -1
    answer     0,100 1,101 1,101 4,150 -1,-1      itself, the first offset   -1,-1

An epoch ends where the next one begins, the current one at the log end offset. An epoch without records is replaced by
the next one. Pure; the log rebuilds it from the headers of its batches and stores it in its seals.
"""

from __future__ import annotations

from collections.abc import Sequence

UNDEFINED = (-1, -1)
_NONE = -1


class LeaderEpochs:
    """Epochs in ascending order, each with the offset that it began at."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []
        self.latest = -1
        """The last entry's epoch; read with each append."""

    def assign(self, epoch: int, start_offset: int) -> None:
        """``epoch`` begins at ``start_offset``, if it has not begun already; entries from there on are replaced."""
        if epoch == self.latest:
            return
        while self.entries and (self.entries[-1][0] >= epoch or self.entries[-1][1] >= start_offset):
            self.entries.pop()
        self.entries.append((epoch, start_offset))
        self.latest = epoch

    def truncate_from_start(self, start_offset: int) -> None:
        """Raise the first offset to the log start offset: drop epochs that ended before it."""
        while len(self.entries) > 1 and self.entries[1][1] <= start_offset:
            del self.entries[0]
        if self.entries and self.entries[0][1] < start_offset:
            self.entries[0] = (self.entries[0][0], start_offset)

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The greatest known epoch that is not above ``epoch``, and where it ended; ``end_offset``: the log's."""
        if epoch == _NONE or not self.entries or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, end_offset
        found = epoch
        for known, start in self.entries:
            if known > epoch:
                return found, start  # older than all known: itself, and the first one's start
            found = known
        return UNDEFINED

    def snapshot(self) -> list[list[int]]:
        """Plain lists, for the segment's seal."""
        return [list(entry) for entry in self.entries]

    def restore(self, rows: Sequence[Sequence[int]]) -> None:
        """Restore a :meth:`snapshot`; TypeError or ValueError for anything else."""
        entries = [(epoch + 0, start + 0) for epoch, start in rows]
        self.entries = entries
        self.latest = entries[-1][0] if entries else -1

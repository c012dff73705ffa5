"""Partitions that are left alone for a moment, because they answered with an error.

Without that the broker would answer the next request at once with the same error. Each error in a row makes the rest
twice as long; the first answer without one ends the count.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka.core.share.records import SharePartition


class Rests:
    """Until when which partition rests. Instants are ``now`` of one monotonic clock, in seconds."""

    __slots__ = ("_counts", "_until")

    def __init__(self) -> None:
        self._until: dict[SharePartition, float] = {}
        self._counts: dict[SharePartition, int] = {}

    def __contains__(self, partition: object) -> bool:
        return partition in self._until

    def begin(self, partition: SharePartition, now: float, first_s: float, most_s: float) -> None:
        """One more error of the partition."""
        self._counts[partition] = count = self._counts.get(partition, 0) + 1
        self._until[partition] = now + min(first_s * 2.0 ** min(count - 1, 10), most_s)

    def went_well(self, partition: SharePartition) -> None:
        """An answer without an error: the next one is the first again."""
        self._counts.pop(partition, None)

    def keep_only(self, partitions: Iterable[SharePartition]) -> None:
        """The others matter no more."""
        kept = set(partitions)
        self._counts = {each: count for each, count in self._counts.items() if each in kept}

    def is_over(self, partition: SharePartition, now: float) -> bool:
        """It does not rest (any more)."""
        return self._until.get(partition, now) <= now

    def end_those_over(self, now: float) -> None:
        """Forget rests that are over."""
        if self._until:
            self._until = {partition: until for partition, until in self._until.items() if until > now}

    def next_end(self, now: float) -> float | None:
        """When the next of them is over; a rest that is over matters no more until there is a request to be made."""
        return min((until for until in self._until.values() if until > now), default=None)

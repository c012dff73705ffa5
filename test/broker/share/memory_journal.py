"""A journal in memory, for tests of what is durable."""

from __future__ import annotations

from collections.abc import Callable

from kafka.broker.share import ShareStateStore
from kafka.errors import KafkaStorageError

Entries = list[tuple[bytes, bytes | None]]


class MemoryJournal:
    """Keeps entries; ``fails`` makes every append fail, ``rewrite_above`` asks for a rewrite at that many entries."""

    def __init__(self, entries: Entries | None = None, rewrite_above: int = 1_000_000) -> None:
        self.entries: Entries = entries if entries is not None else []
        self.rewrite_above = rewrite_above
        self.fails = False

    def append(self, entries: Entries) -> None:
        if self.fails:
            raise KafkaStorageError("the disk is full")
        self.entries += entries

    def tidy(self, entries: Callable[[], Entries]) -> None:
        if len(self.entries) > self.rewrite_above:
            self.entries[:] = entries()

    def open(self, replay: Callable[[bytes, bytes | None], None]) -> MemoryJournal:
        for key, value in self.entries:
            replay(key, value)
        return self

    def store(self) -> ShareStateStore:
        """A store over what is in the journal now, as after a restart."""
        return ShareStateStore(self.open)

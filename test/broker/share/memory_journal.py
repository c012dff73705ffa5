"""A state topic of one partition in memory, for tests of what is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kafka.broker.share.state_store import ShareStateStore
from kafka.broker.state.records import StateEvent
from kafka.errors import KafkaStorageError

Entry = tuple[bytes, bytes | None]
Entries = list[Entry]


class MemoryJournal:
    """Keeps records; ``fails`` makes every append fail, ``rewrite_above`` asks to begin anew at that many."""

    def __init__(self, entries: Entries | None = None, rewrite_above: int = 1_000_000) -> None:
        self.entries: Entries = entries if entries is not None else []
        self.rewrite_above = rewrite_above
        self.fails = False

    def partition_of(self, key: str) -> int:
        return 0

    def append(self, partition: int, records: Sequence[Entry], *, producer: tuple[int, int] | None = None) -> None:
        if self.fails:
            raise KafkaStorageError("the disk is full")
        self.entries += records

    def replay(self) -> Iterator[tuple[int, StateEvent]]:
        for key, value in list(self.entries):
            yield 0, StateEvent(key, value, None)

    def should_rewrite(self, partition: int) -> bool:
        return len(self.entries) > self.rewrite_above

    def rewrite(self, partition: int, holding: Sequence[Entry]) -> None:
        if not self.fails:
            groups = [(key, value) for key, value in self.entries if key[1] > 1]
            self.entries[:] = [*groups, *holding]

    def add_deletion_listener(self, callback: Callable[[], None]) -> None:
        """Nobody deletes this one."""

    def store(self) -> ShareStateStore:
        """A store over what is there now, as after a restart. One topic has all records: their keys differ."""
        return ShareStateStore(self, self)

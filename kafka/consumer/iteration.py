"""Records that iteration has taken from ``poll`` and not handed out yet: they count as unread until they are.

polled:   | yielded ... current | unyielded ............ |        consumed() is behind ``current``
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka.core.consume.partition import ConsumerRecord
from kafka.structs import OffsetAndMetadata, TopicPartition


class YieldedRecords:
    """One consumer's. ``run`` is a generator over what one poll returned; everything else may be called between two
    of its records."""

    __slots__ = ("_current", "_dropped", "_ending", "_open")

    def __init__(self) -> None:
        self._open: dict[TopicPartition, ConsumerRecord] = {}  # whose last record was not yielded: their first
        self._current: ConsumerRecord | None = None
        self._ending: ConsumerRecord | None = None  # the last of a partition's that was yielded
        self._dropped: set[TopicPartition] = set()

    def begin(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> None:
        """These are to be yielded by :meth:`run`."""
        self._dropped.clear()
        self._current = None
        self._open = {partition: batch[0] for partition, batch in records.items()}

    def run(self, records: dict[TopicPartition, list[ConsumerRecord]]) -> Iterator[ConsumerRecord]:
        """Yield them, those of a dropped partition left out.

        An interrupt (Ctrl-C) comes behind a call or a jump: what is noted for a record stands right before its yield.
        """
        for partition, batch in records.items():
            if partition not in self._open:
                continue  # dropped before it was begun
            for record in batch[:-1]:
                if self._dropped and partition in self._dropped:
                    break
                self._current = record
                yield record
            else:
                record = batch[-1]
                if partition in self._open:
                    self._ending = record
                    self._current = None  # this ends the batch: the reader's own position is the right one
                    del self._open[partition]
                    yield record
        self._current = None

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Of the partitions whose records were not all yielded: where reading would have to go on."""
        found = {partition: OffsetAndMetadata(record.offset, "", -1) for partition, record in self._open.items()}
        current = self._current
        if current is not None:
            partition = TopicPartition(current.topic, current.partition)
            if partition not in self._dropped:
                found[partition] = OffsetAndMetadata(current.offset + 1, "", current.leader_epoch)
        return found

    def without_last(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """As :meth:`consumed`; but the record that was yielded last did not reach the user."""
        found = self.consumed()
        last = self._current or self._ending
        if last is not None:
            partition = TopicPartition(last.topic, last.partition)
            if partition not in self._dropped:
                found[partition] = OffsetAndMetadata(last.offset, "", -1)
        return found

    def drop(self, partition: TopicPartition) -> None:
        """Yield no more of this one's: it was moved, paused or taken away."""
        self._open.pop(partition, None)
        self._dropped.add(partition)

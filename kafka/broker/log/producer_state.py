"""What a partition remembers of idempotent producers: their epoch and their last five batches (KIP-98).

    the next sequence, or the first one of a new epoch    append
    one of the last five batches once more                a duplicate: answer with its offset, append nothing
    any other sequence                                    OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    an older epoch                                        INVALID_PRODUCER_EPOCH (47)

A producer that nobody knows may begin anywhere, because its state may have been dropped with its records. Pure; the log
rebuilds it from the headers of its batches. Transactions add their own fields here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from kafka.errors import InvalidProducerEpochError, OutOfOrderSequenceNumberError
from kafka.records import BatchHeader

REMEMBERED_BATCHES = 5
LAST_SEQUENCE = 2**31 - 1
EXPIRATION_MS = 7 * 24 * 3600 * 1000


class ProducedBatch(NamedTuple):
    """One remembered batch: sequences, offsets (first and last, inclusive) and its greatest timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """One producer: ``batches`` are the last ones of ``epoch``, oldest first."""

    __slots__ = ("batches", "epoch", "updated_ms")

    def __init__(self, epoch: int, updated_ms: int, batches: Sequence[ProducedBatch] = ()) -> None:
        self.epoch = epoch
        self.updated_ms = updated_ms
        self.batches: deque[ProducedBatch] = deque(batches, REMEMBERED_BATCHES)


class ProducerStates:
    """All producers of one partition, by producer id."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Whether a produced batch may be appended: None, or the batch that it is a duplicate of. Changes nothing.

        Errors: ``OutOfOrderSequenceNumberError``, ``InvalidProducerEpochError``.
        """
        entry = self.entries.get(header.producer_id)
        if header.producer_id < 0 or entry is None:
            return None
        first = header.base_sequence
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} came with epoch {header.producer_epoch}; it is at {entry.epoch}"
            )
        if header.producer_epoch > entry.epoch or not entry.batches:
            if first != 0 and header.producer_epoch > entry.epoch:
                raise OutOfOrderSequenceNumberError(
                    f"producer {header.producer_id} began epoch {header.producer_epoch} with sequence {first}, not 0"
                )
            return None
        for batch in entry.batches:
            if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                return batch
        expected = entry.batches[-1].last_sequence + 1 if entry.batches[-1].last_sequence < LAST_SEQUENCE else 0
        if first != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id} came with sequence {first}; {expected} is next"
            )
        return None

    def update(self, header: BatchHeader, base_offset: int, timestamp: int, now_ms: int) -> None:
        """Remember a batch that has been appended at ``base_offset``."""
        if header.producer_id < 0:
            return
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_epoch, now_ms)
        entry.updated_ms = now_ms
        if header.base_sequence >= 0 and not header.is_control:
            last = base_offset + header.last_offset_delta
            entry.batches.append(
                ProducedBatch(header.base_sequence, header.last_sequence, base_offset, last, timestamp)
            )

    def expire(self, now_ms: int, after_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have been silent for long."""
        old = [name for name, entry in self.entries.items() if now_ms - entry.updated_ms > after_ms]
        for name in old:
            del self.entries[name]

    def snapshot(self) -> list[list[object]]:
        """Plain lists, for the segment's seal."""
        return [
            [name, entry.epoch, entry.updated_ms, [list(batch) for batch in entry.batches]]
            for name, entry in self.entries.items()
        ]

    def restore(self, rows: Sequence[Sequence[object]]) -> None:
        """Take up what :meth:`snapshot` gave, in the place of what is known; TypeError or ValueError for other
        things.
        """
        entries: dict[int, ProducerEntry] = {}
        for name, epoch, updated_ms, batches in rows:
            if not (isinstance(name, int) and isinstance(epoch, int) and isinstance(updated_ms, int)):
                raise TypeError("a producer's id, epoch and time are numbers")
            if not isinstance(batches, list):
                raise TypeError("a producer's batches are a list")
            entries[name] = ProducerEntry(epoch, updated_ms, [ProducedBatch(*batch) for batch in batches])
        self.entries = entries

"""What a partition remembers of its producers: epochs and last five batches (KIP-98), and their transactions.

    the next sequence, or the first one of a new epoch    append
    one of the last five batches once more                a duplicate: answer with its offset, append nothing
    any other sequence                                    OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    an older epoch                                        INVALID_PRODUCER_EPOCH (47)
    outside of its own open transaction                   INVALID_TXN_STATE (48)

A producer that nobody knows may begin anywhere, because its state may have been dropped with its records. One whose
last word is a marker of its epoch begins at 0.

    offsets   0    1    2    3    4    5    6    7
              A0   B0   A1   Aa   B1   C0   Bc   ...       Aa: A aborted, Bc: B committed
                                                           last stable offset here: 5, where C began

What a marker aborted stays in :attr:`ProducerStates.aborted` as long as its segment does: readers of committed records
are given what touches their range, and leave it out. Whether a batch may be part of a transaction at all is asked of
the coordinator before the log sees it. Pure; the log rebuilds it from the headers of its batches and from markers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from kafka.records import BatchHeader

REMEMBERED_BATCHES = 5
LAST_SEQUENCE = 2**31 - 1
EXPIRATION_MS = 24 * 3600 * 1000
NO_COORDINATOR = -1
ABORTED_ROW = "aborted"
MAX_AWAITED = 10_000
"""Producers whose first batch failed, and who may never come again."""


class ProducedBatch(NamedTuple):
    """One remembered batch: sequences, offsets (first and last, inclusive) and its greatest timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """What one abort marker ended: its producer's records from ``first_offset`` to ``last_offset``, where the marker
    lies. ``last_stable_offset``: as it was behind the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerEntry:
    """One producer: ``batches`` are the last ones of ``epoch``, oldest first; ``txn_start_offset``: where its open
    transaction began in this partition; ``coordinator_epoch``: of its last marker."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "txn_start_offset", "updated_ms")

    def __init__(
        self,
        epoch: int,
        updated_ms: int,
        batches: Sequence[ProducedBatch] = (),
        coordinator_epoch: int = NO_COORDINATOR,
        txn_start_offset: int | None = None,
    ) -> None:
        self.epoch = epoch
        self.updated_ms = updated_ms
        self.batches: deque[ProducedBatch] = deque(batches, REMEMBERED_BATCHES)
        self.coordinator_epoch = coordinator_epoch
        self.txn_start_offset = txn_start_offset

    @property
    def last_sequence(self) -> int:
        """Of the last batch; -1 when there is none since the epoch began or was told by a marker."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """All producers of one partition, by producer id."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedTransaction] = []
        """In the order of their markers."""
        self._open: dict[int, int] = {}  # first offset -> producer, in the order of offsets
        self._awaited: dict[int, tuple[int, int]] = {}  # producer -> epoch, least sequence that came

    # -- transactions ------------------------------------------------------------------------------------------------

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction began, or None."""
        return next(iter(self._open), None)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer has records in this partition that no marker has ended."""
        entry = self.entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.txn_start_offset is not None

    def aborted_between(self, first: int, last: int) -> Iterator[AbortedTransaction]:
        """The aborted transactions with records from ``first`` to ``last`` (inclusive), in their markers' order."""
        at = bisect_left(self.aborted, first, key=lambda row: row.last_offset)
        for number in range(at, len(self.aborted)):  # no slice: there may be very many, and most are not asked for
            row = self.aborted[number]
            if row.first_offset <= last:
                yield row
            if row.last_stable_offset > last:
                return  # all that ended later began behind

    def await_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """The first batch of a transaction has come and is not appended yet. Should it fail, no later one is taken in
        its place: of a producer that nobody knows they would seem in order."""
        known_epoch, least = self._awaited.get(producer_id, (-1, sequence))
        if epoch > known_epoch:
            self._awaited[producer_id] = (epoch, sequence)
            if len(self._awaited) > MAX_AWAITED:
                del self._awaited[next(iter(self._awaited))]
        elif epoch == known_epoch:
            self._awaited[producer_id] = (epoch, min(least, sequence))

    def forget_aborted_before(self, offset: int) -> None:
        """Forget the aborted transactions whose markers lie below ``offset``."""
        del self.aborted[: bisect_left(self.aborted, offset, key=lambda row: row.last_offset)]

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, must_be_newer: bool = False
    ) -> None:
        """Whether a marker may be appended. ``must_be_newer``: with transaction version 2 the marker that ends a
        transaction has an epoch of its own; one that comes again ends nothing.

        Errors: ``InvalidProducerEpochError`` (47), ``TransactionCoordinatorFencedError`` (52).
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            if coordinator_epoch < NO_COORDINATOR:
                raise TransactionCoordinatorFencedError(f"no coordinator is of epoch {coordinator_epoch}")
            return
        is_late = must_be_newer and epoch == entry.epoch and entry.txn_start_offset is not None
        if epoch < entry.epoch or is_late:
            raise InvalidProducerEpochError(
                f"a marker of producer {producer_id} came with epoch {epoch}; it is at {entry.epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker of producer {producer_id} came from a coordinator of epoch {coordinator_epoch}; "
                f"one of {entry.coordinator_epoch} was here"
            )

    def end_transaction(
        self, producer_id: int, epoch: int, offset: int, *, committed: bool, coordinator_epoch: int, now_ms: int
    ) -> None:
        """Remember a marker that was appended at ``offset``."""
        entry = self._entry(producer_id, epoch, now_ms)
        self._awaited.pop(producer_id, None)
        entry.coordinator_epoch = max(coordinator_epoch, entry.coordinator_epoch)
        first, entry.txn_start_offset = entry.txn_start_offset, None
        if first is None:
            return
        self._open.pop(first, None)
        if not committed:
            stable = self.first_unstable_offset
            self.aborted.append(
                AbortedTransaction(producer_id, first, offset, offset + 1 if stable is None else stable)
            )

    # -- batches -----------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, begins_at_zero: bool = False) -> ProducedBatch | None:
        """Whether a produced batch may be appended: None, or the batch that it is a duplicate of. Changes nothing.

        ``begins_at_zero``: an unknown producer has to begin with sequence 0 (transaction version 2).
        Errors: ``OutOfOrderSequenceNumberError``, ``InvalidProducerEpochError``, ``InvalidTxnStateError``.
        """
        if header.producer_id < 0 or header.is_control:
            return None
        entry = self.entries.get(header.producer_id)
        first = header.base_sequence
        if entry is None:
            self._check_awaited(header)
            if begins_at_zero and first != 0:
                raise OutOfOrderSequenceNumberError(
                    f"producer {header.producer_id}, unknown here, began with sequence {first}, not 0"
                )
            return None
        if header.producer_epoch == entry.epoch:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return batch
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} came with epoch {header.producer_epoch}; it is at {entry.epoch}"
            )
        self._check_awaited(header)
        if first < 0:
            return None  # records of the broker's own, in a client's transaction: they have no sequence
        expected = entry.last_sequence + 1 if entry.last_sequence < LAST_SEQUENCE else 0
        if header.producer_epoch > entry.epoch:
            expected = 0
        if first != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id} came with sequence {first} of epoch {header.producer_epoch}; "
                f"{expected} is next"
            )
        if entry.txn_start_offset is not None and not header.is_transactional:
            raise InvalidTxnStateError(f"producer {header.producer_id} has an open transaction that this is no part of")
        return None

    def _check_awaited(self, header: BatchHeader) -> None:
        epoch, least = self._awaited.get(header.producer_id, (-1, 0))
        if epoch == header.producer_epoch and header.base_sequence > least:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id} came with sequence {header.base_sequence}; {least} came before and was "
                "not taken"
            )

    def update(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Remember a batch that has been appended at ``base_offset``; ``timestamp``: its greatest, in ms, by which the
        producer expires, as in Kafka. Control batches are :meth:`end_transaction`'s.
        """
        if header.producer_id < 0 or header.is_control:
            return
        entry = self._entry(header.producer_id, header.producer_epoch, timestamp)
        if header.is_transactional:
            self._awaited.pop(header.producer_id, None)
        if header.is_transactional and entry.txn_start_offset is None:
            entry.txn_start_offset = base_offset
            self._open[base_offset] = header.producer_id
        if header.base_sequence >= 0:
            last = base_offset + header.last_offset_delta
            entry.batches.append(
                ProducedBatch(header.base_sequence, header.last_sequence, base_offset, last, timestamp)
            )

    def _entry(self, producer_id: int, epoch: int, now_ms: int) -> ProducerEntry:
        """The producer's entry, with the batches of other epochs forgotten."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch, now_ms)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.updated_ms = now_ms
        return entry

    def expire(self, now_ms: int, after_ms: int = EXPIRATION_MS) -> None:
        """Forget producers that have been silent for long, but for those with an open transaction."""
        old = [
            name
            for name, entry in self.entries.items()
            if entry.txn_start_offset is None and now_ms - entry.updated_ms >= after_ms
        ]
        for name in old:
            del self.entries[name]

    # -- kept in seals -----------------------------------------------------------------------------------------------

    def snapshot(self, aborted_from: int = 0) -> list[list[object]]:
        """Plain lists, for a segment's seal: all producers, and what was aborted by markers at ``aborted_from`` or
        behind: each seal keeps that of its own segment."""
        rows: list[list[object]] = [
            [
                name, entry.epoch, entry.updated_ms, [list(batch) for batch in entry.batches],
                entry.coordinator_epoch, entry.txn_start_offset,
            ]
            for name, entry in self.entries.items()
        ]  # fmt: skip
        at = bisect_left(self.aborted, aborted_from, key=lambda row: row.last_offset)
        rows += [[ABORTED_ROW, *row] for row in self.aborted[at:]]
        return rows

    def restore(self, rows: Sequence[Sequence[object]]) -> None:
        """Take up what :meth:`snapshot` gave: producers in the place of those that are known, aborted transactions in
        addition; TypeError or ValueError for other things.
        """
        entries: dict[int, ProducerEntry] = {}
        aborted: list[AbortedTransaction] = []
        for row in rows:
            if row[0] == ABORTED_ROW:
                aborted.append(AbortedTransaction(*_numbers(row[1:])))
                continue
            name, epoch, updated_ms, batches, *more = row
            coordinator_epoch, start = more if more else (NO_COORDINATOR, None)
            if not isinstance(batches, list):
                raise TypeError("a producer's batches are a list")
            name, epoch, updated_ms, coordinator_epoch = _numbers((name, epoch, updated_ms, coordinator_epoch))
            entries[name] = ProducerEntry(
                epoch,
                updated_ms,
                [ProducedBatch(*_numbers(batch)) for batch in batches],
                coordinator_epoch,
                None if start is None else _numbers((start,))[0],
            )
        known = self.aborted[-1].last_offset if self.aborted else -1
        self.aborted += [row for row in aborted if row.last_offset > known]
        self.entries = entries
        self._open = dict(
            sorted(
                (entry.txn_start_offset, name)
                for name, entry in entries.items()
                if entry.txn_start_offset is not None
            )
        )


def _numbers(values: Sequence[object]) -> list[int]:
    """The same values, all of them numbers."""
    found = [value for value in values if isinstance(value, int)]
    if len(found) != len(values):
        raise TypeError("a producer's id, epochs, times and offsets are numbers")
    return found

"""The producer state of a partition: epochs and last five batches of idempotent producers (KIP-98), transactions.

    the next sequence, or the first one of a new epoch    append
    one of the last five batches again                    a duplicate: respond with its offset, append nothing
    any other sequence                                    OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    an older epoch                                        INVALID_PRODUCER_EPOCH (47)
    outside of its own open transaction                   INVALID_TXN_STATE (48)

An unknown producer may begin at any sequence, because its state may have been deleted with its records. One whose
last batch is a marker of its epoch begins at 0.

    offsets   0    1    2    3    4    5    6    7
              A0   B0   A1   Aa   B1   C0   Bc   ...       Aa: A aborted, Bc: B committed
                                                           last stable offset here: 5, where C began

An aborted transaction stays in :attr:`ProducerStates.aborted` as long as its segment: Fetch returns those of the
fetched range, and read_committed consumers filter their records. Whether a batch may be part of a transaction is
checked with the coordinator before the append. Pure; the log rebuilds it from the headers of its batches and from
markers.
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
from kafka.records import BatchHeader, iter_batches

REMEMBERED_BATCHES = 5
LAST_SEQUENCE = 2**31 - 1
EXPIRATION_MS = 24 * 3600 * 1000
EPOCH_BUMP_SINCE = 2
"""The transaction version with which every end raises the epoch."""

NO_COORDINATOR = -1
ABORTED_ROW = "aborted"
MAX_EXPECTED_FIRST = 10_000
"""Producers whose first batch failed, which may never retry it."""


class ProducedBatch(NamedTuple):
    """One remembered batch: sequences, offsets (first and last, inclusive) and its greatest timestamp in ms."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class AbortedTransaction(NamedTuple):
    """One aborted transaction: its producer's records from ``first_offset`` to ``last_offset``, the marker's.
    ``last_stable_offset``: as it was after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionMarker(NamedTuple):
    """The end of one transaction. ``version``: the transaction version; from 2 on a marker has an epoch of its own."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int
    version: int = 0


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
        """The sequence of the last batch; -1 when the epoch has none yet."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """All producers of one partition, by producer id."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.aborted: list[AbortedTransaction] = []
        """In the order of their markers."""
        self._open: dict[int, int] = {}  # first offset -> producer, in the order of offsets
        self._expected_first: dict[int, tuple[int, int]] = {}  # producer -> epoch, least sequence that came

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
        for number in range(at, len(self.aborted)):  # no slice: there may be very many, of which few are needed
            row = self.aborted[number]
            if row.first_offset <= last:
                yield row
            if row.last_stable_offset > last:
                return  # all later ones began after ``last``

    def expect_first(self, producer_id: int, epoch: int, sequence: int) -> None:
        """The first batch of a transaction was received and is not appended yet. Should it fail, no later batch is
        accepted before it: of an unknown producer they would seem in order."""
        known_epoch, least = self._expected_first.get(producer_id, (-1, sequence))
        if epoch > known_epoch:
            self._expected_first[producer_id] = (epoch, sequence)
            if len(self._expected_first) > MAX_EXPECTED_FIRST:
                del self._expected_first[next(iter(self._expected_first))]
        elif epoch == known_epoch:
            self._expected_first[producer_id] = (epoch, min(least, sequence))

    def forget_aborted_before(self, offset: int) -> None:
        """Forget the aborted transactions whose markers lie below ``offset``."""
        del self.aborted[: bisect_left(self.aborted, offset, key=lambda row: row.last_offset)]

    def check_marker(self, marker: TransactionMarker) -> None:
        """Whether a marker may be appended. From transaction version 2 on it has an epoch of its own, and one that
        comes again ends nothing.

        Errors: ``InvalidProducerEpochError`` (47), ``TransactionCoordinatorFencedError`` (52).
        """
        producer_id, epoch, _, coordinator_epoch, version = marker
        entry = self.entries.get(producer_id)
        if entry is None:
            if coordinator_epoch < NO_COORDINATOR:
                raise TransactionCoordinatorFencedError(f"coordinator epoch {coordinator_epoch} is invalid")
            return
        is_late = version >= EPOCH_BUMP_SINCE and epoch == entry.epoch and entry.txn_start_offset is not None
        if epoch < entry.epoch or is_late:
            raise InvalidProducerEpochError(
                f"a marker of producer {producer_id} came with epoch {epoch}; it is at {entry.epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker of producer {producer_id} has coordinator epoch {coordinator_epoch}; "
                f"the last one had {entry.coordinator_epoch}"
            )

    def end_transaction(self, marker: TransactionMarker, offset: int, now_ms: int) -> None:
        """Remember a marker that was appended at ``offset``."""
        entry = self._entry(marker.producer_id, marker.epoch, now_ms)
        self._expected_first.pop(marker.producer_id, None)
        entry.coordinator_epoch = max(marker.coordinator_epoch, entry.coordinator_epoch)
        first, entry.txn_start_offset = entry.txn_start_offset, None
        if first is None:
            return
        self._open.pop(first, None)
        if not marker.committed:
            stable = self.first_unstable_offset
            self.aborted.append(
                AbortedTransaction(marker.producer_id, first, offset, offset + 1 if stable is None else stable)
            )

    # -- batches -----------------------------------------------------------------------------------------------------

    def check(self, header: BatchHeader, *, must_begin_at_zero: bool = False) -> ProducedBatch | None:
        """Whether a produced batch may be appended: None, or the batch that it is a duplicate of. Changes nothing.

        ``must_begin_at_zero``: an unknown producer has to begin with sequence 0 (transaction version 2).
        Errors: ``OutOfOrderSequenceNumberError``, ``InvalidProducerEpochError``, ``InvalidTxnStateError``.
        """
        if header.producer_id < 0 or header.is_control:
            return None
        entry = self.entries.get(header.producer_id)
        first = header.base_sequence
        if entry is None:
            self._check_expected_first(header)
            if must_begin_at_zero and first != 0:
                raise OutOfOrderSequenceNumberError(
                    f"unknown producer {header.producer_id} must begin with sequence 0, not {first}"
                )
            return None
        if header.producer_epoch == entry.epoch:
            for batch in entry.batches:
                if batch.first_sequence == first and batch.last_sequence == header.last_sequence:
                    return batch
        if header.producer_epoch < entry.epoch:
            raise InvalidProducerEpochError(
                f"producer {header.producer_id} has epoch {entry.epoch}; the batch has {header.producer_epoch}"
            )
        self._check_expected_first(header)
        if first < 0:
            return None  # made by the broker in a client's transaction (offset commits): no sequence
        expected = entry.last_sequence + 1 if entry.last_sequence < LAST_SEQUENCE else 0
        if header.producer_epoch > entry.epoch:
            expected = 0
        if first != expected:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id}: sequence {first} of epoch {header.producer_epoch} is out of order; "
                f"expected {expected}"
            )
        if entry.txn_start_offset is not None and not header.is_transactional:
            raise InvalidTxnStateError(
                f"producer {header.producer_id} sent a non-transactional batch within its open transaction"
            )
        return None

    def _check_expected_first(self, header: BatchHeader) -> None:
        epoch, least = self._expected_first.get(header.producer_id, (-1, 0))
        if epoch == header.producer_epoch and header.base_sequence > least:
            raise OutOfOrderSequenceNumberError(
                f"producer {header.producer_id}: sequence {header.base_sequence} is out of order; {least} was received "
                "before and not appended"
            )

    def update(self, header: BatchHeader, base_offset: int, timestamp: int) -> None:
        """Remember a batch that has been appended at ``base_offset``; ``timestamp``: its greatest, in ms, by which the
        producer expires, as in Kafka. Control batches are :meth:`end_transaction`'s.
        """
        if header.producer_id < 0 or header.is_control:
            return
        entry = self._entry(header.producer_id, header.producer_epoch, timestamp)
        if header.is_transactional:
            self._expected_first.pop(header.producer_id, None)
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
        """Forget producers that have been idle for ``after_ms``, except those with an open transaction."""
        expired = [
            name
            for name, entry in self.entries.items()
            if entry.txn_start_offset is None and now_ms - entry.updated_ms >= after_ms
        ]
        for name in expired:
            del self.entries[name]

    # -- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self, aborted_from: int = 0) -> list[list[object]]:
        """Plain lists, for a segment's seal: all producers, and the transactions aborted by markers from offset
        ``aborted_from`` on: each seal has those of its own segment."""
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
        """Restore a :meth:`snapshot`: its producers replace the known ones, its aborted transactions are added;
        TypeError or ValueError for anything else.
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
    """The values as a list, if all are integers. TypeError."""
    found = [value for value in values if isinstance(value, int)]
    if len(found) != len(values):
        raise TypeError("a producer's id, epochs, times and offsets are numbers")
    return found


def aborted_batches(data: bytes | memoryview, aborted: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last offset of each aborted batch in ``data``, without markers. ``aborted``: the result of
    :meth:`PartitionLog.aborted_transactions` for its offsets: producer id and first offset. Consumers filter aborted
    batches themselves; for a share group the broker does."""
    waiting = sorted(((first, producer_id) for producer_id, first in aborted), reverse=True)
    dropping: set[int] = set()
    found: list[tuple[int, int]] = []
    for header in iter_batches(data, check_crcs=False):
        while waiting and waiting[-1][0] <= header.last_offset:
            dropping.add(waiting.pop()[1])
        if header.producer_id not in dropping or not header.is_transactional:
            continue
        if header.is_control:
            dropping.discard(header.producer_id)  # its abort marker
        else:
            found.append((header.base_offset, header.last_offset))
    return found

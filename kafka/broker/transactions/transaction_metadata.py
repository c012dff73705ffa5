"""One transactional id: its states, and the transition of each request. Values in, values out, no clock and no disk.

    after_init(metadata, ...)           InitProducerId             a new epoch, or a new producer id
    after_fence(metadata, ...)          InitProducerId, timeout    abort the ongoing transaction under a new epoch
    after_add_partitions(metadata, ...) AddPartitionsToTxn, AddOffsetsToTxn, Produce from v12, TxnOffsetCommit from v5
    after_end(metadata, ...)            EndTxn
    after_markers(metadata, ...)        the markers are written
    check_member(metadata, ...)         verification: is this partition part of the transaction?

Each returns the next :class:`TransactionMetadata`, or the given one when there is nothing to change (a retry), or
raises the client's error. Errors are those of new versions of the requests; the handlers translate them for older ones.

                 ┌────────────────────────── InitProducerId ──────────────────────────┐
                 v                                                                    │
              Empty ──add──> Ongoing ──commit──> PrepareCommit ──markers──> CompleteCommit
                 │            ^   │                                                │  │
                 │            │   └───abort───> PrepareAbort ────markers──> CompleteAbort
                 │            └───────────────────────────────────────add─────────────┘
                 └──abort (v5) ──────> PrepareAbort

A fence (InitProducerId or a timeout while a transaction is ongoing) is an abort with a new epoch. Apache Kafka has
PrepareEpochFence for the moment between, and Dead for an id that is being deleted: neither is ever stored, nor seen
here between two requests. To add a state: its member, its row in ``STEPS``, and its functions here.

There are two protocols. Before transaction version 2 a producer keeps its epoch from InitProducerId on; with it
(KIP-890) every end raises the epoch, so that no late request can affect the next transaction. Each request's version
is its protocol (``client_version``): with Produce 12 and EndTxn 4 partitions are added and the epoch stays; the
broker's own aborts follow its finalized transaction.version.

The order of the checks was measured on Apache Kafka 4.3.0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from kafka.broker.log.producer_state import EPOCH_BUMP_SINCE
from kafka.broker.state.records import Producer
from kafka.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafka.structs import TopicPartition


class CoordinatorTransactionState(enum.IntEnum):
    """The values of ``TransactionLogValue.transaction_status``; :attr:`title` is the name in DescribeTransactions."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


(
    EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE,
) = CoordinatorTransactionState  # fmt: skip

STEPS: Final[Mapping[CoordinatorTransactionState, frozenset[CoordinatorTransactionState]]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT, PREPARE_EPOCH_FENCE}),
    PREPARE_EPOCH_FENCE: frozenset({PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    DEAD: frozenset(),
}
"""State -> the states that may follow."""

COMPLETED: Final[Mapping[CoordinatorTransactionState, CoordinatorTransactionState]] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""A Prepare state -> the Complete state that follows when the markers are written."""

AT_REST: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})
"""No transaction is in progress: the id may be initialized, begin a transaction, or expire."""

BY_TITLE: Final[Mapping[str, CoordinatorTransactionState]] = {
    state.title: state for state in CoordinatorTransactionState
}


NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
LAST_GIVEN_EPOCH: Final = MAX_EPOCH - 1
"""No producer gets a higher one: there is always one left to fence it with."""


class TransactionMetadata(NamedTuple):
    """A transactional id, and its transaction. ``previous_producer_id``: before the last step;
    ``next_producer_id``: the one to use next when the epochs of this one are used up; ``last_epoch``: the one that a
    retry of the last InitProducerId or EndTxn has; ``client_version``: the protocol of the last step. Times in ms since
    the epoch, -1: none."""

    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    state: CoordinatorTransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    client_version: int = 0

    @property
    def producer(self) -> Producer:
        """The id and epoch that the client uses next."""
        if self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left."""
        return self.epoch >= LAST_GIVEN_EPOCH

    def step(self, state: CoordinatorTransactionState, now_ms: int, **changes: object) -> TransactionMetadata:
        """The next metadata; RuntimeError for a transition that ``STEPS`` does not have (a bug)."""
        if state not in STEPS[self.state]:
            raise RuntimeError(f"producer {self.producer_id}: no transition from {self.state.title} to {state.title}")
        changes = {"previous_producer_id": self.producer_id, "next_producer_id": NO_PRODUCER, **changes}
        return self._replace(state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]


def after_init(
    found: TransactionMetadata,
    timeout_ms: int,
    expected: Producer | None,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """InitProducerId; ``expected``: the id and epoch that the producer already had (KIP-360).

    Not while a transaction is ongoing: see :func:`must_abort_first`. Errors: ProducerFencedError (90),
    ConcurrentTransactionsError (51).
    """
    _check_expected(found, expected)
    is_empty = {"partitions": frozenset(), "start_ms": -1, "timeout_ms": timeout_ms}
    if found.is_exhausted and (expected is None or expected[1] == found.epoch):
        last = NO_EPOCH if expected is None else found.epoch
        return found.step(EMPTY, now_ms, producer_id=new_producer_id(), epoch=0, last_epoch=last, **is_empty)
    if expected is None:
        return found.step(EMPTY, now_ms, epoch=found.epoch + 1, last_epoch=NO_EPOCH, **is_empty)
    if found.epoch == NO_EPOCH or expected[1] == found.epoch:
        return found.step(EMPTY, now_ms, epoch=found.epoch + 1, last_epoch=found.epoch, **is_empty)
    if expected[1] == found.last_epoch:  # a retry of the last request
        return found.step(EMPTY, now_ms, **is_empty)
    raise ProducerFencedError(f"producer epoch {expected[1]} is fenced: the current one is {found.epoch}")


def must_abort_first(found: TransactionMetadata, expected: Producer | None) -> bool:
    """Whether InitProducerId has to abort an ongoing transaction first; errors as
    :func:`after_init`."""
    # Also with an old epoch of the same producer (seen on 4.3.0): only the producer id is compared while a transaction
    # is ongoing, and the request is refused when it comes again.
    _check_expected(found, expected)
    return found.state is ONGOING


def _check_expected(found: TransactionMetadata, expected: Producer | None) -> None:
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the last transaction is not completed yet")
    if expected is None or found.epoch == NO_EPOCH or expected[0] == found.producer_id:
        return
    if expected[0] == found.previous_producer_id and expected[1] >= LAST_GIVEN_EPOCH:
        return
    raise ProducerFencedError(
        f"producer id {expected[0]} is fenced: the transactional id belongs to {found.producer_id}"
    )


def after_fence(
    found: TransactionMetadata, server_version: int, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    """The broker aborts the ongoing transaction under the next epoch."""
    # Seen on 4.3.0: after a timeout the late producer gets INVALID_TXN_STATE for a commit and success for an abort,
    # which looks like a retry of the broker's own; with EndTxn 4 PRODUCER_FENCED for both.
    epoch = min(found.epoch + 1, MAX_EPOCH)
    if server_version < EPOCH_BUMP_SINCE:
        return found.step(PREPARE_ABORT, now_ms, epoch=epoch, last_epoch=NO_EPOCH, client_version=server_version)
    following = new_producer_id() if found.is_exhausted else NO_PRODUCER
    return found.step(
        PREPARE_ABORT,
        now_ms,
        epoch=epoch,
        last_epoch=found.epoch,
        next_producer_id=following,
        client_version=server_version,
    )


def after_add_partitions(
    found: TransactionMetadata,
    producer: Producer,
    partitions: Iterable[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Add partitions to the transaction, which begins with the first one.

    Errors: ConcurrentTransactionsError (51), InvalidProducerIdMappingError (49), ProducerFencedError (90).
    """
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the last transaction is not completed yet")
    _check_producer(found, producer)
    added = frozenset(partitions)
    if found.state is ONGOING and added <= found.partitions:
        return found
    start_ms = now_ms if found.state in AT_REST else found.start_ms
    return found.step(
        ONGOING, now_ms, partitions=found.partitions | added, start_ms=start_ms, client_version=client_version
    )


def check_member(found: TransactionMetadata, producer: Producer, partition: TopicPartition) -> None:
    """Whether the partition is part of the producer's transaction.

    Errors: InvalidProducerIdMappingError (49), ProducerFencedError (90), ConcurrentTransactionsError (51),
    TransactionAbortableError (120): it is not.
    """
    _check_producer(found, producer)
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the transaction is ending")
    if partition not in found.partitions:
        raise TransactionAbortableError(f"{partition.topic}-{partition.partition} was not added to the transaction")


def _check_producer(found: TransactionMetadata, producer: Producer) -> None:
    if found.producer_id != producer[0]:
        raise InvalidProducerIdMappingError(
            f"producer id {producer[0]} is unknown: the transactional id belongs to {found.producer_id}"
        )
    if found.epoch != producer[1]:
        raise ProducerFencedError(f"producer epoch {producer[1]} is fenced: the current one is {found.epoch}")


def after_end(
    found: TransactionMetadata,
    producer: Producer,
    committed: bool,
    client_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """Commit or abort: the decision, which is durable with its record. The same object for a retry.

    Errors: InvalidProducerIdMappingError (49), ProducerFencedError (90), ConcurrentTransactionsError (51),
    InvalidTxnStateError (48).
    """
    if client_version < EPOCH_BUMP_SINCE:
        _check_producer(found, producer)
        return _after_end_v1(found, committed, client_version, now_ms)
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the transaction is ending")
    has_new_producer_id = producer == (found.previous_producer_id, LAST_GIVEN_EPOCH) and found.epoch == 0
    is_retry = found.state in _RESULTS and (has_new_producer_id or found.epoch == producer[1] + 1)
    if found.producer_id != producer[0] and not has_new_producer_id:
        raise InvalidProducerIdMappingError(
            f"producer id {producer[0]} is unknown: the transactional id belongs to {found.producer_id}"
        )
    if found.epoch != producer[1] and not is_retry:
        raise ProducerFencedError(f"producer epoch {producer[1]} is fenced: the current one is {found.epoch}")
    if is_retry:
        if _RESULTS[found.state] == committed:
            return found
        raise _wrong_state(found, committed)
    if found.state is not ONGOING and committed:
        raise _wrong_state(found, committed)
    # An abort without a transaction also raises the epoch: the client does not know whether a partition was added.
    return found.step(
        PREPARE_COMMIT if committed else PREPARE_ABORT,
        now_ms,
        epoch=found.epoch + 1,
        last_epoch=found.epoch,
        next_producer_id=new_producer_id() if found.is_exhausted else NO_PRODUCER,
        start_ms=found.start_ms if found.state is ONGOING else now_ms,
        client_version=client_version,
    )


_RESULTS: Final = {COMPLETE_COMMIT: True, COMPLETE_ABORT: False}
"""How a completed transaction ended."""


def _after_end_v1(found: TransactionMetadata, committed: bool, client_version: int, now_ms: int) -> TransactionMetadata:
    """EndTxn before transaction version 2: the epoch stays."""
    if found.state is ONGOING:
        return found.step(
            PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms, client_version=client_version
        )
    if _RESULTS.get(found.state) == committed:
        return found
    if (found.state is PREPARE_COMMIT and committed) or (found.state is PREPARE_ABORT and not committed):
        raise ConcurrentTransactionsError("the transaction is ending")
    raise _wrong_state(found, committed)


def _wrong_state(found: TransactionMetadata, committed: bool) -> InvalidTxnStateError:
    return InvalidTxnStateError(f"cannot {'commit' if committed else 'abort'}: the state is {found.state.title}")


def after_markers(found: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """All markers of the decided transaction are written."""
    producer_id, epoch = found.producer
    return found.step(
        COMPLETED[found.state], now_ms, producer_id=producer_id, epoch=epoch, partitions=frozenset()
    )

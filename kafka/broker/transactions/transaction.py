"""One transactional id: what each request makes of it. Values in, values out, no clock and no disk.

    initialized(found, ...)       InitProducerId        a new epoch, or a new producer
    fenced(found, ...)            InitProducerId, timeout    abort what is ongoing, under an epoch that nobody has
    with_partitions(found, ...)   AddPartitionsToTxn, AddOffsetsToTxn, Produce from v12, TxnOffsetCommit from v5
    ended(found, ...)             EndTxn
    completed(found, ...)         after the markers
    check_member(found, ...)      verification: is this partition part of the transaction?

Each gives the next :class:`Transaction`, or the one it was given when there is nothing to change (a retry), or raises
what the client is told. Errors are those of new versions of the requests; ``handlers/`` say it in older words.

Two protocols live side by side. Before transaction version 2 a producer keeps its epoch from InitProducerId on; with it
(KIP-890) every end raises the epoch, so that nothing that is late can get into the next transaction. Which one is used
is told by the version of EndTxn (``client_version``); what the broker itself aborts follows its own level.

The order of the checks was measured on Apache Kafka 4.3.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kafka.broker.transactions.states import (
    AT_REST,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    STEPS,
    TransactionState,
)
from kafka.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafka.structs import TopicPartition

NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 2**15 - 1
LAST_GIVEN_EPOCH: Final = MAX_EPOCH - 1
"""No producer is given a higher one: there is always one left to fence it with."""

EPOCH_BUMP_SINCE: Final = 2
"""The transaction version with which every end raises the epoch."""

Producer = tuple[int, int]
"""Producer id and epoch."""


class Transaction(NamedTuple):
    """A transactional id, and its transaction. ``previous_producer_id``: before the last step;
    ``next_producer_id``: the one to go on with when the epochs of this one are used up; ``last_epoch``: the one that
    a retry of the last InitProducerId or EndTxn comes with; ``client_version``: the protocol of the last step. Times
    in ms since the epoch, -1: none."""

    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER
    next_producer_id: int = NO_PRODUCER
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    client_version: int = 0

    @property
    def producer(self) -> Producer:
        """The id and epoch that the client is to go on with."""
        if self.next_producer_id != NO_PRODUCER:
            return self.next_producer_id, 0
        return self.producer_id, self.epoch

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer id has no epoch left to give."""
        return self.epoch >= LAST_GIVEN_EPOCH

    def step(self, state: TransactionState, now_ms: int, **changes: object) -> Transaction:
        """The next one; RuntimeError for a step that the table does not have (a fault of ours)."""
        if state not in STEPS[self.state]:
            raise RuntimeError(f"producer {self.producer_id}: no step from {self.state.title} to {state.title}")
        changes = {"previous_producer_id": self.producer_id, "next_producer_id": NO_PRODUCER, **changes}
        return self._replace(state=state, updated_ms=now_ms, **changes)  # type: ignore[arg-type]


def initialized(
    found: Transaction, timeout_ms: int, expected: Producer | None, new_producer_id: Callable[[], int], now_ms: int
) -> Transaction:
    """A producer asks for its id and epoch; with ``expected`` it already had these (KIP-360).

    Not for one that is ongoing: see :func:`must_abort_first`. Errors: ProducerFencedError (90),
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
    if expected[1] == found.last_epoch:  # a retry: the first one was answered, and nobody else has come since
        return found.step(EMPTY, now_ms, **is_empty)
    raise ProducerFencedError(f"epoch {expected[1]} came; the producer is at {found.epoch}")


def must_abort_first(found: Transaction, expected: Producer | None) -> bool:
    """Whether InitProducerId meets a transaction that is to be aborted before anything else; errors as
    :func:`initialized`."""
    _check_expected(found, expected)
    return found.state is ONGOING


def _check_expected(found: Transaction, expected: Producer | None) -> None:
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the last transaction is not completed yet")
    if expected is None or found.epoch == NO_EPOCH or expected[0] == found.producer_id:
        return
    if expected[0] == found.previous_producer_id and expected[1] >= LAST_GIVEN_EPOCH:
        return
    raise ProducerFencedError(f"producer {expected[0]} came; {found.producer_id} has the transactional id")


def fenced(found: Transaction, server_version: int, new_producer_id: Callable[[], int], now_ms: int) -> Transaction:
    """The ongoing transaction, aborted by the broker under the next epoch."""
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


def with_partitions(
    found: Transaction, producer: Producer, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """Make partitions part of the transaction, which begins with the first one.

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


def check_member(found: Transaction, producer: Producer, partition: TopicPartition) -> None:
    """Whether the partition is part of the producer's transaction.

    Errors: InvalidProducerIdMappingError (49), ProducerFencedError (90), ConcurrentTransactionsError (51),
    TransactionAbortableError (120): it is not.
    """
    _check_producer(found, producer)
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the transaction is ending")
    if partition not in found.partitions:
        raise TransactionAbortableError(f"{partition.topic}-{partition.partition} was not added to the transaction")


def _check_producer(found: Transaction, producer: Producer) -> None:
    if found.producer_id != producer[0]:
        raise InvalidProducerIdMappingError(
            f"producer {producer[0]} came; {found.producer_id} has the transactional id"
        )
    if found.epoch != producer[1]:
        raise ProducerFencedError(f"epoch {producer[1]} came; the producer is at {found.epoch}")


def ended(
    found: Transaction,
    producer: Producer,
    committed: bool,
    client_version: int,
    new_producer_id: Callable[[], int],
    now_ms: int,
) -> Transaction:
    """Commit or abort: the decision, which holds from its record on. The same object for a retry of what is done.

    Errors: InvalidProducerIdMappingError (49), ProducerFencedError (90), ConcurrentTransactionsError (51),
    InvalidTxnStateError (48).
    """
    if client_version < EPOCH_BUMP_SINCE:
        _check_producer(found, producer)
        return _ended_in_old_way(found, committed, client_version, now_ms)
    if found.state in COMPLETED:
        raise ConcurrentTransactionsError("the transaction is ending")
    has_changed_id = producer == (found.previous_producer_id, LAST_GIVEN_EPOCH) and found.epoch == 0
    is_retry = found.state in _RESULTS and (has_changed_id or found.epoch == producer[1] + 1)
    if found.producer_id != producer[0] and not has_changed_id:
        raise InvalidProducerIdMappingError(
            f"producer {producer[0]} came; {found.producer_id} has the transactional id"
        )
    if found.epoch != producer[1] and not is_retry:
        raise ProducerFencedError(f"epoch {producer[1]} came; the producer is at {found.epoch}")
    if is_retry:
        if _RESULTS[found.state] == committed:
            return found
        raise _wrong(found, committed)
    if found.state is not ONGOING and committed:
        raise _wrong(found, committed)
    # An abort without a transaction raises the epoch, too: the client cannot know whether anything was added.
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


def _ended_in_old_way(found: Transaction, committed: bool, client_version: int, now_ms: int) -> Transaction:
    if found.state is ONGOING:
        return found.step(
            PREPARE_COMMIT if committed else PREPARE_ABORT, now_ms, client_version=client_version
        )
    if _RESULTS.get(found.state) == committed:
        return found
    if (found.state is PREPARE_COMMIT and committed) or (found.state is PREPARE_ABORT and not committed):
        raise ConcurrentTransactionsError("the transaction is ending")
    raise _wrong(found, committed)


def _wrong(found: Transaction, committed: bool) -> InvalidTxnStateError:
    return InvalidTxnStateError(f"cannot {'commit' if committed else 'abort'}: the state is {found.state.title}")


def completed(found: Transaction, now_ms: int) -> Transaction:
    """The decided transaction, with all its markers written."""
    producer_id, epoch = found.producer
    return found.step(
        COMPLETED[found.state], now_ms, producer_id=producer_id, epoch=epoch, partitions=frozenset()
    )

"""KIP-890 transaction verification: may a batch or an offset be part of a transaction? Checked before the append.

    the log has an open transaction of this producer and epoch    yes
    else, Produce from v12, TxnOffsetCommit from v5               the coordinator adds the partition
    else, with transaction.partition.verification.enable          the coordinator verifies it; older clients must have
                                                                  added the partition themselves
    else                                                          yes, as before KIP-890

The coordinator's error is translated for the request's version:

                                Produce up to v10    v11      from v12   TxnOffsetCommit up to v3   from v4
    not part of it                    48             120      (added)             48                 120
    fenced                            47             47          47               47                  47
    the last one is not completed     19             19          51               51                  51
    the disk does not take it         19             19          19               16                  16
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.log import PartitionLog
from kafka.broker.log.producer_state import EPOCH_BUMP_SINCE
from kafka.broker.state.records import Producer
from kafka.errors import (
    BrokerResponseError,
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.transactions.coordinator import TransactionCoordinator

ADDS_SINCE_PRODUCE = 12
ADDS_SINCE_OFFSET_COMMIT = 5
_ABORTABLE_SINCE_PRODUCE = 11
_ABORTABLE_SINCE_OFFSET_COMMIT = 4
_TEXT_SINCE = 8


class VerificationFailedError(BrokerResponseError):
    """The coordinator's error; ``errno`` is the client's error code, ``text`` its message where Kafka has one."""

    def __init__(self, error: BrokerResponseError, text: str = "") -> None:
        super().__init__(text)
        self.errno = error.errno
        self.text = text


def verify_batch(
    coordinator: TransactionCoordinator,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str | None,
    producer: Producer,
    sequence: int,
    version: int,
) -> None:
    """Verify a transactional batch of Produce in this version, with this first sequence; VerificationFailedError."""
    if not log.producers.has_open_transaction(*producer):
        log.producers.expect_first(*producer, sequence)
    adds = version >= ADDS_SINCE_PRODUCE
    try:
        _verify(coordinator, partition, log, transactional_id, producer, adds=adds)
    except BrokerResponseError as error:
        if isinstance(error, TransactionAbortableError) and version < _ABORTABLE_SINCE_PRODUCE:
            text = "Partition was not added to the transaction" if version >= _TEXT_SINCE else ""
            raise VerificationFailedError(InvalidTxnStateError(), text) from None
        if isinstance(error, NotCoordinatorError) or (isinstance(error, ConcurrentTransactionsError) and not adds):
            text = "Unable to verify the partition has been added to the transaction. Underlying error: "
            raise VerificationFailedError(NotEnoughReplicasError(), text + error.message) from None
        raise _failed(error) from None


def verify_offsets(
    coordinator: TransactionCoordinator,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str,
    producer: Producer,
    version: int,
) -> None:
    """Verify offsets for a partition of ``__consumer_offsets`` of TxnOffsetCommit in this version;
    VerificationFailedError."""
    try:
        _verify(coordinator, partition, log, transactional_id, producer, adds=version >= ADDS_SINCE_OFFSET_COMMIT)
    except BrokerResponseError as error:
        if isinstance(error, TransactionAbortableError) and version < _ABORTABLE_SINCE_OFFSET_COMMIT:
            raise VerificationFailedError(InvalidTxnStateError()) from None
        raise _failed(error) from None


def _failed(error: BrokerResponseError) -> VerificationFailedError:
    """What is the same in all versions of both requests."""
    return VerificationFailedError(InvalidProducerEpochError() if isinstance(error, ProducerFencedError) else error)


def _verify(
    coordinator: TransactionCoordinator,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str | None,
    producer: Producer,
    *,
    adds: bool,
) -> None:
    entry = log.producers.entries.get(producer[0])
    if entry is not None and entry.epoch > producer[1]:
        raise ProducerFencedError(f"producer epoch {producer[1]} is fenced: the partition has seen {entry.epoch}")
    if log.producers.has_open_transaction(*producer):  # whatever the transactional id is, as in Apache Kafka
        return
    if adds:  # even if the batch is then refused, as in Apache Kafka
        coordinator.add_partitions(transactional_id, producer, [partition], EPOCH_BUMP_SINCE)
    elif coordinator.verifies:
        coordinator.verify(transactional_id, producer, partition)

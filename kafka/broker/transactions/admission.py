"""Whether a batch or an offset may be part of a transaction (KIP-890): asked before a log sees it.

    the log has an open transaction of this producer and epoch    yes
    else, Produce from v12, TxnOffsetCommit from v5               the coordinator adds the partition
    else, with transaction.partition.verification.enable          the coordinator is asked; older clients must have
                                                                  added the partition themselves
    else                                                          yes, as before KIP-890

What the coordinator says is told in the words of the request's version:

                                Produce up to v10    v11      from v12   TxnOffsetCommit up to v3   from v4
    not part of it                    48             120      (added)             48                 120
    fenced                            47             47          47               47                  47
    the last one is not completed     19             19          51               51                  51
    the disk does not take it         19             19          19               16                  16
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.log import PartitionLog
from kafka.broker.transactions.transaction import EPOCH_BUMP_SINCE, Producer
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
    from kafka.broker.broker import Broker

ADDS_SINCE_PRODUCE = 12
ADDS_SINCE_OFFSET_COMMIT = 5
_ABORTABLE_SINCE_PRODUCE = 11
_ABORTABLE_SINCE_OFFSET_COMMIT = 4
_TEXT_SINCE = 8


class NotAdmittedError(BrokerResponseError):
    """The coordinator's refusal; ``errno`` as the client is to see it, ``text`` where Kafka gives one."""

    def __init__(self, error: BrokerResponseError, text: str = "") -> None:
        super().__init__(text)
        self.errno = error.errno
        self.text = text


def admit_batch(
    broker: Broker,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str | None,
    producer: Producer,
    sequence: int,
    version: int,
) -> None:
    """A transactional batch in Produce of this version, which begins with ``sequence``; NotAdmittedError."""
    if not log.producers.has_open_transaction(*producer):
        log.producers.expect_first(*producer, sequence)
    try:
        _admit(broker, partition, log, transactional_id, producer, adds=version >= ADDS_SINCE_PRODUCE)
    except TransactionAbortableError as error:
        if version >= _ABORTABLE_SINCE_PRODUCE:
            raise NotAdmittedError(error) from None
        text = "Partition was not added to the transaction" if version >= _TEXT_SINCE else ""
        raise NotAdmittedError(InvalidTxnStateError(), text) from None
    except ProducerFencedError:
        raise NotAdmittedError(InvalidProducerEpochError()) from None
    except (ConcurrentTransactionsError, NotCoordinatorError) as error:
        if version >= ADDS_SINCE_PRODUCE and isinstance(error, ConcurrentTransactionsError):
            raise NotAdmittedError(error) from None
        raise NotAdmittedError(
            NotEnoughReplicasError(),
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{error.message}",
        ) from None
    except BrokerResponseError as error:
        raise NotAdmittedError(error) from None


def admit_offsets(
    broker: Broker,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str,
    producer: Producer,
    version: int,
) -> None:
    """Offsets for a partition of ``__consumer_offsets`` in TxnOffsetCommit of this version; NotAdmittedError."""
    try:
        _admit(broker, partition, log, transactional_id, producer, adds=version >= ADDS_SINCE_OFFSET_COMMIT)
    except TransactionAbortableError as error:
        is_known = version >= _ABORTABLE_SINCE_OFFSET_COMMIT
        raise NotAdmittedError(error if is_known else InvalidTxnStateError()) from None
    except ProducerFencedError:
        raise NotAdmittedError(InvalidProducerEpochError()) from None
    except BrokerResponseError as error:
        raise NotAdmittedError(error) from None


def _admit(
    broker: Broker,
    partition: TopicPartition,
    log: PartitionLog,
    transactional_id: str | None,
    producer: Producer,
    *,
    adds: bool,
) -> None:
    entry = log.producers.entries.get(producer[0])
    if entry is not None and entry.epoch > producer[1]:
        raise ProducerFencedError(f"epoch {producer[1]} came; the partition has seen {entry.epoch}")
    if log.producers.has_open_transaction(*producer):
        return
    if adds:
        broker.transactions.add_partitions(transactional_id, producer, [partition], EPOCH_BUMP_SINCE)
    elif broker.transactions.verifies:
        broker.transactions.verify(transactional_id, producer, partition)

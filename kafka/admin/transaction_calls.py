"""The admin client's calls about transactions and the offsets of partitions, under kafka-python 3's names."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.admin import dialogues
from kafka.admin.running import Running
from kafka.core.admin.group_values import OffsetSpec
from kafka.core.admin.transaction_values import (
    AbortTransactionSpec,
    PartitionProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.structs import IsolationLevel, OffsetAndTimestamp, TopicPartition


class TransactionCalls(Running):
    """Transactions as coordinators and partitions know them (KIP-664), and where partitions begin and end."""

    def list_transactions(
        self,
        broker_ids: Sequence[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactional ids that each broker coordinates: ``{broker: [TransactionListing]}``; all brokers for None.

        Filters: ids of producers; states such as "ongoing"; transactions that were begun more than so many ms ago
        (3.8, KIP-994); ids that match a whole regular expression (4.1, KIP-1152). IncompatibleBrokerVersion before 3.0,
        UnsupportedVersionError for a state that a broker does not know.
        """
        return self._run(
            dialogues.list_transactions(
                broker_ids,
                producer_id_filters,
                state_filters,
                duration_filter_ms,
                transactional_id_pattern,
                **self._limits,
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What coordinators know: ``{transactional id: TransactionDescription}``. Raises the first error
        (TransactionalIdNotFoundError). IncompatibleBrokerVersion before 3.0."""
        return self._run(dialogues.describe_transactions(transactional_ids, **self._limits))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """What partitions remember of their producers: ``{partition: PartitionProducerState}``. Asks their leaders, or
        the replica ``broker_id`` of all of them. Raises the first error. IncompatibleBrokerVersion before 2.8."""
        return self._run(dialogues.describe_producers(partitions, broker_id, **self._limits))

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort a producer's transaction in one partition, by ``AbortTransactionSpec(partition, producer_id,
        producer_epoch)``, whatever its coordinator says: for one that hangs, as readers of committed records wait for
        its end. Its coordinator does not hear of it. InvalidProducerEpochError for an epoch older than the partition's,
        ClusterAuthorizationFailedError.

        The producer's next transaction is not touched: before a further try the partition is asked whether this one is
        still there. Where it cannot be asked (brokers before 2.8; topics that may not be read), and the answer was
        lost, the error says that the outcome is not known. After a KafkaTimeoutError, too, look before you call again.
        """
        self._run(dialogues.abort_transaction(spec, **self._limits))

    def find_hanging_transactions(
        self, broker_ids: Sequence[int] | None = None, max_transaction_timeout_ms: float = 900_000
    ) -> list[dict[str, Any]]:
        """Transactions that nobody is going to end: ``[{"transactional_id", "producer_id", "producer_epoch", "state",
        "age_ms", "coordinator_id", "topic_partitions"}]``.

        Those that are still open at their coordinators five minutes after the longest time that one may have
        (``transaction.max.timeout.ms`` of the brokers): leave these to them, as they may be about to commit. And those
        that are open in a partition, with nothing written for so long, of which no coordinator knows:
        ``transactional_id`` is None, ``state`` "Unknown" and ``coordinator_id`` -1 where the producer is not known
        either, and only these may be aborted without a further look. ``broker_ids``: what these brokers coordinate and
        lead. Partitions that have no leader now, or may not be read, are left out, and logged. KafkaTimeoutError while
        a coordinator that may know of one cannot be asked. This computer's clock should be right, and the user allowed
        to describe all transactional ids. IncompatibleBrokerVersion before 3.0.
        """
        return self._run(
            dialogues.find_hanging_transactions(
                broker_ids, max_transaction_timeout_ms, now_ms=time.time() * 1000, **self._limits
            )
        )

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset that each OffsetSpec means, or the first that is not older than a time in ms since the epoch:
        ``{partition: OffsetAndTimestamp}``; offset -1: there is none.

        READ_COMMITTED: nothing behind the first open transaction counts. Raises the first error
        (UnknownTopicOrPartitionError). UnsupportedVersionError: brokers are too old for this OffsetSpec.
        """
        return self._run(
            dialogues.list_partition_offsets(
                topic_partition_specs, isolation_level, **self._limits_within(timeout_ms)
            )
        )

"""Commit and abort markers: they end a transaction in a partition's log.

In ``__consumer_offsets`` a marker also applies the pending offsets of its producer, or drops them. The coordinator
decides, or an operator with WriteTxnMarkers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafka.broker.log import LogDirectory, PartitionLog, TransactionMarker
from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.offset_store import OffsetStore

log = logging.getLogger(__name__)


class MarkerWriter:
    """Writes markers to the logs. ``on_append`` is called with each log that was appended to."""

    def __init__(
        self,
        logs: LogDirectory,
        offsets: OffsetStore,
        *,
        epoch_ms: Callable[[], int],
        on_append: Callable[[PartitionLog], None],
    ) -> None:
        self._logs = logs
        self._offsets = offsets
        self._epoch_ms = epoch_ms
        self._on_append = on_append

    def write(self, partition: TopicPartition, marker: TransactionMarker) -> None:
        """Append a marker to a partition's log.

        Errors: UnknownTopicOrPartitionError (3), InvalidProducerEpochError (47), TransactionCoordinatorFencedError
        (52), KafkaStorageError (56).
        """
        found = self._log(partition)
        found.append_marker(marker, self._epoch_ms())
        if partition.topic == CONSUMER_OFFSETS:
            self._offsets.complete(marker.producer_id, marker.committed, [partition.partition])
        self._on_append(found)

    def write_all(self, partitions: frozenset[TopicPartition], marker: TransactionMarker, *, is_retry: bool) -> None:
        """Write the markers of a decided transaction; after KafkaStorageError (56) the rest is for the next attempt.

        ``is_retry``: some may be written already, by an attempt that failed or a process that was killed: a partition
        gets one only where the transaction is still open. A deleted topic is skipped; a partition that refuses the
        marker belongs to a newer producer's transaction, which is only logged.
        """
        for partition in sorted(partitions):
            try:
                if not (is_retry and self._is_ended(partition, marker)):
                    self.write(partition, marker)
            except UnknownTopicOrPartitionError:
                continue
            except (InvalidProducerEpochError, TransactionCoordinatorFencedError) as error:
                log.warning("%s-%d refused the marker of its transaction: %s", *partition, error)

    def check_written(self, partitions: frozenset[TopicPartition]) -> None:
        """KafkaStorageError (56) when a marker written to one of these partitions may be lost."""
        for name, number in partitions:
            topic = self._logs.metadata.topic(name)
            found = None if topic is None else self._logs.log_if_open(topic.topic_id, number)
            if found is not None and found.failure is not None:
                raise found.failure

    def _log(self, partition: TopicPartition) -> PartitionLog:
        return self._logs.log(self._logs.metadata.known_topic(partition.topic), partition.partition)

    def _is_ended(self, partition: TopicPartition, marker: TransactionMarker) -> bool:
        entry = self._log(partition).producers.entries.get(marker.producer_id)
        if entry is None or entry.txn_start_offset is not None:
            return False
        return entry.epoch >= marker.epoch and entry.coordinator_epoch >= 0

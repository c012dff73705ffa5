"""Commit and abort markers: what ends a transaction in a partition's log.

For the partitions of ``__consumer_offsets`` a marker also makes the pending offsets of its producer current, or drops
them. Who decides is the coordinator, or an operator with WriteTxnMarkers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kafka.broker.state.state_topic import CONSUMER_OFFSETS
from kafka.broker.transactions.transaction import EPOCH_BUMP_SINCE
from kafka.errors import InvalidProducerEpochError, TransactionCoordinatorFencedError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)


class Marker(NamedTuple):
    """One transaction's end. ``version``: the transaction version; from 2 on a marker has an epoch of its own."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int
    version: int


def write_marker(broker: Broker, partition: TopicPartition, marker: Marker) -> None:
    """Append a marker to a partition's log.

    Errors: UnknownTopicOrPartitionError (3), InvalidProducerEpochError (47), TransactionCoordinatorFencedError (52),
    KafkaStorageError (56).
    """
    found = broker.logs.log(broker.topic(partition.topic), partition.partition)
    found.append_marker(
        marker.producer_id,
        marker.epoch,
        marker.committed,
        marker.coordinator_epoch,
        broker.epoch_ms(),
        must_be_newer=marker.version >= EPOCH_BUMP_SINCE,
    )
    if partition.topic == CONSUMER_OFFSETS:
        broker.offsets.complete(marker.producer_id, marker.committed, [partition.partition])
    broker.appended(found)


def end_everywhere(broker: Broker, partitions: frozenset[TopicPartition], marker: Marker, *, again: bool) -> None:
    """Write the markers of a decided transaction; KafkaStorageError (56) leaves the rest for the next attempt.

    ``again``: some may be there already, from an attempt that failed or a process that was killed: a partition gets
    one only where the transaction is still open. A topic that was deleted has nothing to end; a partition that refuses
    the marker has been taken over by somebody else's, and only a warning is left to give.
    """
    for partition in sorted(partitions):
        try:
            if again and _is_ended(broker, partition, marker):
                continue
            write_marker(broker, partition, marker)
        except UnknownTopicOrPartitionError:
            continue
        except (InvalidProducerEpochError, TransactionCoordinatorFencedError) as error:
            log.warning("%s-%d takes no marker of its transaction: %s", *partition, error)


def check_written(broker: Broker, partitions: frozenset[TopicPartition]) -> None:
    """KafkaStorageError (56) when a marker that was written in one of these partitions may be lost."""
    for topic, number in partitions:
        found = broker.metadata.topic(topic)
        opened = None if found is None else broker.logs.log_if_open(found.topic_id, number)
        if opened is not None and opened.failure is not None:
            raise opened.failure


def _is_ended(broker: Broker, partition: TopicPartition, marker: Marker) -> bool:
    found = broker.logs.log(broker.topic(partition.topic), partition.partition)
    entry = found.producers.entries.get(marker.producer_id)
    if entry is None or entry.txn_start_offset is not None:
        return False
    return entry.epoch >= marker.epoch and entry.coordinator_epoch >= 0

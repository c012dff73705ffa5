"""Transactions in a partition's log that no coordinator knows: what a lost machine can leave, as it may keep a batch
and lose the record that its partition was part of a transaction. Nobody would ever end them, and readers of committed
records would wait for ever (Kafka calls them hanging, and has a tool to find them: KIP-664).

They get the marker that they miss when they are older than any transaction may be (``transaction.max.timeout.ms``). It
is a commit where the coordinator knows that just this one was committed, else an abort.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafka.broker.log import PartitionLog, Topic
from kafka.broker.transactions.markers import Marker, write_marker
from kafka.broker.transactions.states import AT_REST, COMPLETE_COMMIT
from kafka.broker.transactions.transaction import Transaction
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

_ANY_VERSION = 0
"""Of a marker that may have the epoch of its transaction."""


def end_orphans(broker: Broker, topic: Topic, partition: int, found: PartitionLog) -> None:
    """End those that are in this log. KafkaStorageError."""
    if found.producers.first_unstable_offset is None:
        return
    where = TopicPartition(topic.name, partition)
    limit_ms = broker.epoch_ms() - broker.config.number("transaction.max.timeout.ms")
    known = {one.producer_id: one for one in broker.transactions.all.values()}
    for producer_id, entry in list(found.producers.entries.items()):
        if entry.txn_start_offset is None or entry.updated_ms > limit_ms:
            continue
        one = known.get(producer_id)
        if one is not None and one.state not in AT_REST and where in one.partitions:
            continue
        is_committed = one is not None and _has_committed(one, entry.epoch)
        log.warning(
            "%s-%d: the transaction of producer %d at offset %d is known to nobody, and is %s", *where, producer_id,
            entry.txn_start_offset, "committed" if is_committed else "aborted",
        )  # fmt: skip
        epoch = entry.epoch + 1 if is_committed else entry.epoch
        write_marker(
            broker, where, Marker(producer_id, epoch, is_committed, max(0, entry.coordinator_epoch), _ANY_VERSION)
        )


def _has_committed(one: Transaction, epoch: int) -> bool:
    """Whether the last transaction of this id was that of ``epoch``, and committed: with transaction version 2 each
    end raises the epoch."""
    return one.state is COMPLETE_COMMIT and one.epoch == epoch + 1

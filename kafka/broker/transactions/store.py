"""Transactional ids in ``__transaction_state``, in Kafka's own records: an id's last record is what it is.

Reads what any 4.x broker wrote. Writes version 1 of the value, and version 0 while the broker's transaction version is
0, which has no room for the fields of KIP-890. ``last_epoch`` has no field: a retry of InitProducerId across a restart
is fenced, in Apache Kafka, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka.broker.state.record_codec import decode_value, encode_key, encode_value
from kafka.broker.state.state_topic import StateTopic
from kafka.broker.state.transaction_records import TRANSACTION_KEYS, TransactionLogKey, TransactionLogValue
from kafka.broker.transactions.states import DEAD, EMPTY, TransactionState
from kafka.broker.transactions.transaction import NO_PRODUCER, Transaction
from kafka.errors import KafkaStorageError
from kafka.structs import TopicPartition

_FLEXIBLE_SINCE: Final = 1
"""The transaction version from which on values are of version 1."""


class TransactionStore:
    """All transactional ids. Changes are on the disk, as any append, when they are in memory."""

    def __init__(self, topic: StateTopic) -> None:
        self._topic = topic
        self._found: dict[str, Transaction] = {}
        topic.replay(self._on_record, lambda *_marker: None)
        topic.when_deleted(self._found.clear)

    @property
    def all(self) -> Mapping[str, Transaction]:
        """Transactional id -> transaction."""
        return self._found

    def get(self, transactional_id: str) -> Transaction | None:
        return self._found.get(transactional_id)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """What markers say about who wrote them: the leader epoch of the id's partition."""
        return self._topic.log(self._topic.partition_of(transactional_id)).leader_epoch

    def check(self, transactional_id: str) -> None:
        """KafkaStorageError (56) when what was kept of the id may be lost."""
        failure = self._topic.log(self._topic.partition_of(transactional_id)).failure
        if failure is not None:
            raise failure

    def put(self, transactional_id: str, transaction: Transaction, server_version: int) -> None:
        """Keep a transaction; KafkaStorageError (56) leaves what was there."""
        version, row = 1, transaction
        if server_version < _FLEXIBLE_SINCE:
            version, row = 0, transaction._replace(
                previous_producer_id=NO_PRODUCER, next_producer_id=NO_PRODUCER, client_version=0
            )
        value = encode_value(_value_of(row), version)
        self._topic.append(self._topic.partition_of(transactional_id), [(_key_of(transactional_id), value)])
        self._found[transactional_id] = transaction

    def forget(self, transactional_id: str) -> None:
        """Let an id go."""
        self._topic.append(self._topic.partition_of(transactional_id), [(_key_of(transactional_id), None)])
        self._found.pop(transactional_id, None)

    def _on_record(self, _partition: int, key: bytes, value: bytes | None, _producer: tuple[int, int] | None) -> None:
        found = TRANSACTION_KEYS.decode(key)
        if not isinstance(found, TransactionLogKey):
            return
        if value is None:
            self._found.pop(found.transactional_id, None)
            return
        self._found[found.transactional_id] = _transaction_of(decode_value(TransactionLogValue, value))


def _key_of(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


def _value_of(found: Transaction) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for partition in sorted(found.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return TransactionLogValue(
        producer_id=found.producer_id,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        producer_epoch=found.epoch,
        transaction_timeout_ms=found.timeout_ms,
        transaction_status=int(found.state),
        transaction_partitions=None
        if found.state is EMPTY
        else [
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in topics.items()
        ],
        transaction_last_update_timestamp_ms=found.updated_ms,
        transaction_start_timestamp_ms=found.start_ms,
        client_transaction_version=found.client_version,
    )


def _transaction_of(value: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise KafkaStorageError(f"a transaction is in the state {value.transaction_status}, which is none") from None
    if state is DEAD:
        raise KafkaStorageError("a transactional id was kept as dead")
    return Transaction(
        producer_id=value.producer_id,
        timeout_ms=value.transaction_timeout_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        state=state,
        partitions=frozenset(
            TopicPartition(row.topic, number)
            for row in value.transaction_partitions or ()
            for number in row.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        client_version=value.client_transaction_version,
    )

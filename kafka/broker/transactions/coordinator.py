"""The coordinator of all transactional ids of the broker, and their records in ``__transaction_state``.

Each request is one step: ``transaction_metadata.py`` decides, the record goes to ``__transaction_state``, and an end is
carried out:

    PrepareCommit  ─flush─>  markers in all partitions  ─flush─>  CompleteCommit     flush: with fsync=always only

With ``fsync=always`` each step is on the disk before the next one is written: otherwise a crash of the machine could
keep one of two markers and lose the decision, and the transaction would be half committed. With other policies all is
done at once. A write that fails leaves the transaction in its Prepare state: clients get CONCURRENT_TRANSACTIONS, and
it is retried every second; a killed process's are completed by :meth:`TransactionCoordinator.recover`.

    timers    transaction timeout       per ongoing transaction: abort it, and fence its producer
              retry                     of markers that could not be written
              transactional.id.expiration.ms      checked periodically, as in Kafka

Owns the transactional ids; partitions (with their producers, and when these expire) and offsets belong to the logs and
the offset store.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from kafka.broker.log import LogDirectory, PartitionLog, Topic, TransactionMarker
from kafka.broker.state.records import (
    Producer,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
    read_records,
)
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE, StateTopic, StateTopics
from kafka.broker.transactions.markers import MarkerWriter
from kafka.broker.transactions.transaction_metadata import (
    AT_REST,
    COMPLETE_COMMIT,
    COMPLETED,
    DEAD,
    EMPTY,
    NO_PRODUCER,
    ONGOING,
    PREPARE_COMMIT,
    CoordinatorTransactionState,
    TransactionMetadata,
    after_add_partitions,
    after_end,
    after_fence,
    after_init,
    after_markers,
    check_member,
    must_abort_first,
)
from kafka.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    KafkaStorageError,
    NotCoordinatorError,
)
from kafka.net.loop import Timer, TimerHeap
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.config import BrokerConfig
    from kafka.broker.emulation import Release

log = logging.getLogger(__name__)

_ADD_PARTITIONS: Final = 24
_VERIFIED_SINCE: Final = 4
"""Releases with this version of AddPartitionsToTxn verify."""

_FLEXIBLE_SINCE: Final = 1
"""The transaction version from which on values are of version 1."""

_ANY_EPOCH_VERSION: Final = 0
"""The version of a marker that may have the epoch of its transaction."""

RETRY_S: Final = 1.0
"""Between two attempts to write markers."""

EndCallback = Callable[[bool], object]
"""Called with whether the decision is durable: False when it may not be on the disk."""


class TransactionStore:
    """All transactional ids, as Kafka's own records: the last record of an id is its metadata.

    Reads what any 4.x broker wrote. Writes version 1 of the value, and version 0 while the broker's transaction version
    is 0, without the fields of KIP-890. ``last_epoch`` has no field: a retry of InitProducerId across a restart is
    fenced, as in Apache Kafka. A change is appended before it is visible here.
    """

    def __init__(self, topic: StateTopic) -> None:
        self._topic = topic
        self.all: dict[str, TransactionMetadata] = {}
        """Transactional id -> its metadata."""
        read_records(topic.replay(), {TransactionLogKey: (TransactionLogValue, self._on_record)})
        topic.add_deletion_listener(self.all.clear)

    def coordinator_epoch(self, transactional_id: str) -> int:
        """The coordinator epoch of markers: the leader epoch of the id's partition. KafkaStorageError (56) when the
        records of that partition may be lost."""
        found = self._topic.log(self._topic.partition_of(transactional_id))
        if found.failure is not None:
            raise found.failure
        return found.leader_epoch

    def put(self, transactional_id: str, transaction: TransactionMetadata, server_version: int) -> None:
        """Store an id's metadata; KafkaStorageError (56) leaves the old one."""
        version, row = 1, transaction
        if server_version < _FLEXIBLE_SINCE:
            version, row = 0, transaction._replace(
                previous_producer_id=NO_PRODUCER, next_producer_id=NO_PRODUCER, client_version=0
            )
        value = encode_value(_value_of(row), version)
        self._topic.append(self._topic.partition_of(transactional_id), [(_key_of(transactional_id), value)])
        self.all[transactional_id] = transaction

    def delete(self, transactional_id: str) -> None:
        """Delete an id. KafkaStorageError (56)."""
        self._topic.append(self._topic.partition_of(transactional_id), [(_key_of(transactional_id), None)])
        self.all.pop(transactional_id, None)

    def _on_record(self, _partition: int, key: TransactionLogKey, value: TransactionLogValue | None, _: object) -> None:
        if value is None:
            self.all.pop(key.transactional_id, None)
        else:
            self.all[key.transactional_id] = _transaction_of(value)


def _key_of(transactional_id: str) -> bytes:
    return encode_key(TransactionLogKey(transactional_id=transactional_id))


def _value_of(found: TransactionMetadata) -> TransactionLogValue:
    """The record's value of a transactional id."""
    by_topic = groupby(sorted(found.partitions), key=lambda partition: partition.topic)
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
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=[one.partition for one in partitions])
            for topic, partitions in by_topic
        ],
        transaction_last_update_timestamp_ms=found.updated_ms,
        transaction_start_timestamp_ms=found.start_ms,
        client_transaction_version=found.client_version,
    )


def _transaction_of(value: TransactionLogValue) -> TransactionMetadata:
    """The metadata in a record's value. KafkaStorageError for a state that is never stored."""
    try:
        state = CoordinatorTransactionState(value.transaction_status)
    except ValueError:
        raise KafkaStorageError(f"unknown transaction state {value.transaction_status}") from None
    if state is DEAD:
        raise KafkaStorageError("a transactional id was stored in the state Dead")
    return TransactionMetadata(
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


class TransactionCoordinator:
    """Made before the broker serves; call :meth:`recover` when all logs and offsets are there. ``now`` returns the
    monotonic time in s, ``epoch_ms`` the time of day."""

    def __init__(
        self,
        release: Release,
        config: BrokerConfig,
        state: StateTopics,
        logs: LogDirectory,
        markers: MarkerWriter,
        *,
        new_producer_id: Callable[[], int],
        now: Callable[[], float],
        epoch_ms: Callable[[], int],
    ) -> None:
        self.version = release.finalized.get("transaction.version", 0)
        """The finalized feature: 2 with release 4.3.0, 0 with those before KIP-890."""
        self._is_verifying_release = release.apis.get(_ADD_PARTITIONS, (0, 0))[1] >= _VERIFIED_SINCE
        self._config = config
        self._logs = logs
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._now = now
        self._epoch_ms = epoch_ms
        self._offsets_topic = state.topic(CONSUMER_OFFSETS)
        self._store = TransactionStore(state.topic(TRANSACTION_STATE))
        self.all: Mapping[str, TransactionMetadata] = self._store.all
        """Transactional id -> its metadata."""
        self._timers: TimerHeap[str] = TimerHeap()
        # Each id has one timer at most: a step cancels that of the step before.
        self._timer_of: dict[str, Timer[str]] = {}
        self._ending: dict[str, list[EndCallback]] = {}
        """Transactional ids whose end is being carried out -> the callbacks that wait for it."""
        self._expiration_at = now() + self._expiration_interval_s

    # -- requests ----------------------------------------------------------------------------------------------------

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, expected: Producer | None) -> Producer:
        """A producer id and epoch.

        Errors: InvalidRequestError (42), InvalidTransactionTimeoutError (50), ConcurrentTransactionsError (51),
        ProducerFencedError (90), NotCoordinatorError (16).
        """
        if transactional_id is None:
            return self._new_producer_id(), 0
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty")
        longest = self._config.number("transaction.max.timeout.ms")
        if not 0 < timeout_ms <= longest:
            raise InvalidTransactionTimeoutError(f"{timeout_ms} ms; transaction.max.timeout.ms is {longest}")
        now_ms = self._epoch_ms()
        found = self.all.get(transactional_id)
        if found is None:
            found = TransactionMetadata(self._new_producer_id(), timeout_ms, now_ms)
        if must_abort_first(found, expected):
            self._fence(transactional_id, found)
            raise ConcurrentTransactionsError("the ongoing transaction was aborted; retry for a new epoch")
        following = after_init(found, timeout_ms, expected, self._new_producer_id, now_ms)
        self._put(transactional_id, following)
        return following.producer

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> None:
        """Add partitions to the transaction; errors as :func:`after_add_partitions`, and 42, 49, 16."""
        found = self._known(transactional_id)
        following = after_add_partitions(found, producer, partitions, client_version, self._epoch_ms())
        if following is not found:
            assert transactional_id is not None
            self._put(transactional_id, following)

    def add_group(self, transactional_id: str, producer: Producer, group_id: str, client_version: int) -> None:
        """Add a group's partition of ``__consumer_offsets`` to the transaction."""
        self.add_partitions(transactional_id, producer, [self.offsets_partition(group_id)], client_version)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """The partition with a group's offsets."""
        return TopicPartition(CONSUMER_OFFSETS, self._offsets_topic.partition_of(group_id))

    @property
    def verifies(self) -> bool:
        """Whether batches of clients that add partitions themselves are verified (KIP-890, part 1)."""
        return self._is_verifying_release and self._config.flag("transaction.partition.verification.enable")

    def verify(self, transactional_id: str | None, producer: Producer, partition: TopicPartition) -> None:
        """Check that the partition is part of the transaction; errors as :func:`check_member`, and 42, 49."""
        check_member(self._known(transactional_id), producer, partition)

    def end(self, transactional_id: str, producer: Producer, committed: bool, client_version: int) -> Producer:
        """Commit or abort; the id and epoch to use next. Errors as :func:`after_end`, and 42, 49, 16."""
        found = self._known(transactional_id)
        following = after_end(found, producer, committed, client_version, self._new_producer_id, self._epoch_ms())
        if following is not found:
            self._put(transactional_id, following)
            self._complete(transactional_id)
        return following.producer

    def call_when_ended(self, transactional_id: str, callback: EndCallback) -> bool:
        """Call ``callback`` when the end in progress is carried out, or has failed; False: no end is in progress."""
        waiting = self._ending.get(transactional_id)
        if waiting is None:
            return False
        waiting.append(callback)
        return True

    def _known(self, transactional_id: str | None) -> TransactionMetadata:
        if not transactional_id:
            raise InvalidRequestError("the transactional id is empty")
        found = self.all.get(transactional_id)
        if found is None:
            raise InvalidProducerIdMappingError(f"unknown transactional id {transactional_id}")
        return found

    def _fence(self, transactional_id: str, found: TransactionMetadata) -> None:
        self._put(transactional_id, after_fence(found, self.version, self._new_producer_id, self._epoch_ms()))
        self._complete(transactional_id)

    def _put(self, transactional_id: str, following: TransactionMetadata) -> None:
        """Store a step; NotCoordinatorError (16) when it cannot be written, as in Kafka."""
        try:
            self._store.put(transactional_id, following, self.version)
        except KafkaStorageError as error:
            raise NotCoordinatorError(str(error.args[0]) if error.args else "") from error
        self._schedule_timeout(transactional_id, following)

    # -- carrying out the end of a transaction -----------------------------------------------------------------------

    def recover(self) -> None:
        """At the start: complete what was decided, and schedule the timeouts of ongoing transactions."""
        for transactional_id, found in list(self.all.items()):
            if found.state in COMPLETED:
                self._complete(transactional_id, is_retry=True)
            else:
                self._schedule_timeout(transactional_id, found)

    def _complete(self, transactional_id: str, *, is_retry: bool = False) -> None:
        """The id is in a Prepare state: write its markers, then its Complete record. ``is_retry``: some markers may be
        written already."""
        self._ending.setdefault(transactional_id, [])
        self._logs.call_when_flushed(partial(self._write_markers, transactional_id, is_retry))

    def _write_markers(self, transactional_id: str, is_retry: bool) -> None:
        """Write the markers of a decided transaction, if its record is safe."""
        found = self._decided(transactional_id)
        if found is None:
            return
        is_durable = False
        try:
            epoch = self._store.coordinator_epoch(transactional_id)
            is_durable = True
            is_committed = found.state is PREPARE_COMMIT
            marker = TransactionMarker(found.producer_id, found.epoch, is_committed, epoch, found.client_version)
            self._markers.write_all(found.partitions, marker, is_retry=is_retry)
        except KafkaStorageError as error:
            self._end_failed(transactional_id, error, is_durable=is_durable)
        else:
            self._logs.call_when_flushed(partial(self._write_complete, transactional_id))

    def _write_complete(self, transactional_id: str) -> None:
        found = self._decided(transactional_id)
        if found is None:
            return
        try:
            self._markers.check_written(found.partitions)
            self._store.put(transactional_id, after_markers(found, self._epoch_ms()), self.version)
        except KafkaStorageError as error:
            self._end_failed(transactional_id, error, is_durable=True)
        else:
            self._call_back(transactional_id, True)

    def _decided(self, transactional_id: str) -> TransactionMetadata | None:
        """The transaction; None when ``__transaction_state`` was deleted meanwhile."""
        found = self.all.get(transactional_id)
        if found is not None and found.state in COMPLETED:
            return found
        self._call_back(transactional_id, True)
        return None

    def _end_failed(self, transactional_id: str, error: KafkaStorageError, *, is_durable: bool) -> None:
        log.error("cannot complete the transaction of %s, retrying in %g s: %s", transactional_id, RETRY_S, error)
        self._schedule(transactional_id, self._now() + RETRY_S)
        self._call_back(transactional_id, is_durable)

    def _call_back(self, transactional_id: str, is_durable: bool) -> None:
        for callback in self._ending.pop(transactional_id, []):
            callback(is_durable)

    def end_hanging(self, topic: Topic, number: int, partition: PartitionLog) -> None:
        """End the hanging transactions of a partition (KIP-664). KafkaStorageError.

        A crash of the machine may keep a batch and lose the record that its partition was part of a transaction: no
        coordinator would ever end it, and read_committed consumers would wait for ever. One that is older than any
        transaction may be (``transaction.max.timeout.ms``) gets its marker: a commit where this coordinator knows that
        just this one was committed, else an abort.
        """
        if partition.producers.first_unstable_offset is None:
            return
        where = TopicPartition(topic.name, number)
        limit_ms = self._epoch_ms() - self._config.number("transaction.max.timeout.ms")
        known = {metadata.producer_id: metadata for metadata in self.all.values()}
        for producer_id, entry in list(partition.producers.entries.items()):
            if entry.txn_start_offset is None or entry.updated_ms > limit_ms:
                continue
            metadata = known.get(producer_id)
            if metadata is not None and metadata.state not in AT_REST and where in metadata.partitions:
                continue
            # With transaction version 2 each end raises the epoch, so this says that the last one was committed.
            is_committed = (
                metadata is not None and metadata.state is COMPLETE_COMMIT and metadata.epoch == entry.epoch + 1
            )
            log.warning(
                "%s-%d: %s the hanging transaction of producer %d at offset %d", *where,
                "committing" if is_committed else "aborting", producer_id, entry.txn_start_offset,
            )  # fmt: skip
            epoch = entry.epoch + 1 if is_committed else entry.epoch
            marker = TransactionMarker(
                producer_id, epoch, is_committed, max(0, entry.coordinator_epoch), _ANY_EPOCH_VERSION
            )
            self._markers.write(where, marker)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` at the latest (monotonic s)."""
        timer_at = self._timers.next_when()
        if not self.all:
            return timer_at
        return self._expiration_at if timer_at is None else min(timer_at, self._expiration_at)

    def tick(self, now: float) -> None:
        """Do what is due at ``now``."""
        while (timer := self._timers.pop_due(now)) is not None:
            transactional_id = timer.item
            if transactional_id is not None:
                self._timer_of.pop(transactional_id, None)
                self._on_timer(transactional_id, now)
        if self._expiration_at <= now:
            self._expiration_at = now + self._expiration_interval_s
            self._expire_transactional_ids()

    def _on_timer(self, transactional_id: str, now: float) -> None:
        found = self.all.get(transactional_id)
        if found is None:
            return
        if found.state in COMPLETED:
            self._complete(transactional_id, is_retry=True)
        elif found.state is ONGOING:
            log.info("aborting the transaction of %s: it took more than %d ms", transactional_id, found.timeout_ms)
            try:
                self._fence(transactional_id, found)
            except (NotCoordinatorError, KafkaStorageError) as error:
                log.error("cannot abort the transaction of %s, retrying in %g s: %s", transactional_id, RETRY_S, error)
                self._schedule(transactional_id, now + RETRY_S)

    def _schedule_timeout(self, transactional_id: str, found: TransactionMetadata) -> None:
        """Set the timer of an ongoing transaction, or cancel it."""
        if found.state is ONGOING:
            left_ms = found.start_ms + found.timeout_ms - self._epoch_ms()
            left_ms = max(0, min(left_ms, found.timeout_ms))  # the clock may have been set back since
            self._schedule(transactional_id, self._now() + left_ms / 1000)
        else:
            self._schedule(transactional_id, None)

    def _schedule(self, transactional_id: str, when: float | None) -> None:
        timer = self._timer_of.pop(transactional_id, None)
        if timer is not None:
            timer.cancel()
        if when is not None:
            self._timer_of[transactional_id] = self._timers.push(when, transactional_id)

    @property
    def _expiration_interval_s(self) -> float:
        return self._config.number("transaction.remove.expired.transaction.cleanup.interval.ms") / 1000

    def _expire_transactional_ids(self) -> None:
        """Delete ids that were not used for ``transactional.id.expiration.ms`` and have no transaction in progress."""
        limit_ms = self._epoch_ms() - self._config.number("transactional.id.expiration.ms")
        for transactional_id, found in list(self.all.items()):
            if found.state in AT_REST and found.updated_ms <= limit_ms:
                try:
                    self._store.delete(transactional_id)
                except KafkaStorageError as error:
                    log.error("cannot expire the transactional id %s yet: %s", transactional_id, error)

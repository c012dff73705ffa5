"""The coordinator of all transactional ids of the broker.

Each call is one step: ``transaction.py`` decides, the record goes to ``__transaction_state``, and a decision to end is
carried out by ``ending.py``: markers, then the record that they are written. What the disk does not take on the way
stays in its Prepare state, is told as CONCURRENT_TRANSACTIONS, and is tried again every second; what a killed process
has left there is completed by :meth:`TransactionCoordinator.recover` at the next start.

    timers    transaction timeout       per ongoing transaction: abort it, and fence its producer
              retry                     of markers that could not be written
              transactional.id.expiration.ms      looked at now and then, as in Kafka

Owns the transactional ids; partitions (with their producers, and when these expire) and offsets belong to the logs and
the offset store.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafka.broker.state.state_topic import CONSUMER_OFFSETS, TRANSACTION_STATE
from kafka.broker.transactions.ending import Ended, Endings
from kafka.broker.transactions.states import AT_REST, COMPLETED, ONGOING
from kafka.broker.transactions.store import TransactionStore
from kafka.broker.transactions.transaction import (
    Producer,
    Transaction,
    check_member,
    ended,
    fenced,
    initialized,
    must_abort_first,
    with_partitions,
)
from kafka.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    KafkaStorageError,
    NotCoordinatorError,
)
from kafka.net.delayed import Timer, TimerHeap
from kafka.structs import TopicPartition

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

log = logging.getLogger(__name__)

_ADD_PARTITIONS: Final = 24
_VERIFIED_SINCE: Final = 4
"""Releases with this version of AddPartitionsToTxn verify."""

RETRY_S: Final = 1.0
"""Between two attempts to write markers."""


class TransactionCoordinator:
    """Made before the broker serves; call :meth:`recover` when all that it may touch is there."""

    def __init__(self, broker: Broker) -> None:
        self.version = broker.release.facts.finalized.get("transaction.version", 0)
        """The finalized feature: 2 with release 4.3.0, 0 with those before KIP-890."""
        self._broker = broker
        self._store = TransactionStore(broker.state.topic(TRANSACTION_STATE))
        self._timers: TimerHeap[str] = TimerHeap()
        self._timer_of: dict[str, Timer[str]] = {}
        self._endings = Endings(broker, self._store, self.version, self._try_again)
        self._sweep_at = broker.now + self._sweep_interval_s

    @property
    def all(self) -> Mapping[str, Transaction]:
        """Transactional id -> transaction."""
        return self._store.all

    def get(self, transactional_id: str) -> Transaction | None:
        return self._store.get(transactional_id)

    # -- requests ----------------------------------------------------------------------------------------------------

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int, expected: Producer | None) -> Producer:
        """A producer id and epoch.

        Errors: InvalidRequestError (42), InvalidTransactionTimeoutError (50), ConcurrentTransactionsError (51),
        ProducerFencedError (90), NotCoordinatorError (16).
        """
        broker = self._broker
        if transactional_id is None:
            return broker.ids.new_producer_id(), 0
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id")
        longest = broker.config.number("transaction.max.timeout.ms")
        if not 0 < timeout_ms <= longest:
            raise InvalidTransactionTimeoutError(f"{timeout_ms} ms; transaction.max.timeout.ms is {longest}")
        now_ms = broker.epoch_ms()
        found = self._store.get(transactional_id)
        if found is None:
            found = Transaction(broker.ids.new_producer_id(), timeout_ms, now_ms)
        if must_abort_first(found, expected):
            self._fence(transactional_id, found)
            raise ConcurrentTransactionsError("an ongoing transaction was aborted; come again for an epoch")
        following = initialized(found, timeout_ms, expected, broker.ids.new_producer_id, now_ms)
        self._put(transactional_id, following)
        return following.producer

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        client_version: int,
    ) -> None:
        """Make partitions part of the transaction; errors as :func:`with_partitions`, and 42, 49, 16."""
        found = self._known(transactional_id)
        following = with_partitions(found, producer, partitions, client_version, self._broker.epoch_ms())
        if following is not found:
            assert transactional_id is not None
            self._put(transactional_id, following)

    def add_group(self, transactional_id: str, producer: Producer, group_id: str, client_version: int) -> None:
        """Make a group's partition of ``__consumer_offsets`` part of the transaction."""
        self.add_partitions(transactional_id, producer, [self.offsets_partition(group_id)], client_version)

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Where a group's offsets are kept."""
        return TopicPartition(CONSUMER_OFFSETS, self._broker.state.topic(CONSUMER_OFFSETS).partition_of(group_id))

    @property
    def verifies(self) -> bool:
        """Whether the batches of clients that add partitions themselves are looked at (KIP-890, part 1)."""
        is_known = self._broker.release.facts.apis.get(_ADD_PARTITIONS, (0, 0))[1] >= _VERIFIED_SINCE
        return is_known and self._broker.config.flag("transaction.partition.verification.enable")

    def verify(self, transactional_id: str | None, producer: Producer, partition: TopicPartition) -> None:
        """Whether the partition is part of the transaction; errors as :func:`check_member`, and 42, 49."""
        check_member(self._known(transactional_id), producer, partition)

    def end(self, transactional_id: str, producer: Producer, committed: bool, client_version: int) -> Producer:
        """Commit or abort; the id and epoch to go on with. Errors as :func:`ended`, and 42, 49, 16."""
        found = self._known(transactional_id)
        broker = self._broker
        following = ended(found, producer, committed, client_version, broker.ids.new_producer_id, broker.epoch_ms())
        if following is not found:
            self._put(transactional_id, following)
            self._endings.carry_out(transactional_id)
        return following.producer

    def when_ended(self, transactional_id: str, then: Ended) -> bool:
        """Have ``then`` called when the end that is under way is carried out; False: none is (``ending.py``)."""
        return self._endings.when_ended(transactional_id, then)

    def _known(self, transactional_id: str | None) -> Transaction:
        if not transactional_id:
            raise InvalidRequestError("an empty transactional id")
        found = self._store.get(transactional_id)
        if found is None:
            raise InvalidProducerIdMappingError(f"nobody has the transactional id {transactional_id}")
        return found

    # -- ends --------------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """At the start: complete what was decided, and watch what is ongoing."""
        for transactional_id, found in list(self._store.all.items()):
            if found.state in COMPLETED:
                self._endings.carry_out(transactional_id, again=True)
            else:
                self._watch(transactional_id, found)

    def _fence(self, transactional_id: str, found: Transaction) -> None:
        broker = self._broker
        self._put(transactional_id, fenced(found, self.version, broker.ids.new_producer_id, broker.epoch_ms()))
        self._endings.carry_out(transactional_id)

    def _put(self, transactional_id: str, following: Transaction) -> None:
        """Keep a step; NotCoordinatorError (16) when the disk does not take it, as in Kafka."""
        try:
            self._store.put(transactional_id, following, self.version)
        except KafkaStorageError as error:
            raise NotCoordinatorError(str(error.args[0]) if error.args else "") from error
        self._watch(transactional_id, following)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float | None:
        """When to call :meth:`tick` at the latest (monotonic s)."""
        timer_at = self._timers.next_when()
        if not self._store.all:
            return timer_at
        return self._sweep_at if timer_at is None else min(timer_at, self._sweep_at)

    def tick(self, now: float) -> None:
        """Do what is due at ``now``."""
        while (timer := self._timers.pop_due(now)) is not None:
            transactional_id = timer.item
            if transactional_id is not None:
                self._timer_of.pop(transactional_id, None)
                self._timed_out(transactional_id, now)
        if self._sweep_at <= now:
            self._sweep_at = now + self._sweep_interval_s
            self._expire_transactional_ids()

    def _timed_out(self, transactional_id: str, now: float) -> None:
        found = self._store.get(transactional_id)
        if found is None:
            return
        if found.state in COMPLETED:
            self._endings.carry_out(transactional_id, again=True)
        elif found.state is ONGOING:
            log.info("the transaction of %s is aborted: it took more than %d ms", transactional_id, found.timeout_ms)
            try:
                self._fence(transactional_id, found)
            except (NotCoordinatorError, KafkaStorageError) as error:
                log.error("the transaction of %s cannot be aborted yet: %s", transactional_id, error)
                self._schedule(transactional_id, now + RETRY_S)

    def _try_again(self, transactional_id: str) -> None:
        self._schedule(transactional_id, self._broker.now + RETRY_S)

    def _watch(self, transactional_id: str, found: Transaction) -> None:
        """Set the timer of an ongoing transaction, or take it back."""
        if found.state is ONGOING:
            left_ms = found.start_ms + found.timeout_ms - self._broker.epoch_ms()
            left_ms = max(0, min(left_ms, found.timeout_ms))  # the clock may have been put back since
            self._schedule(transactional_id, self._broker.now + left_ms / 1000)
        else:
            self._schedule(transactional_id, None)

    def _schedule(self, transactional_id: str, when: float | None) -> None:
        timer = self._timer_of.get(transactional_id)
        if timer is not None and timer.when == when:
            return
        if timer is not None:
            timer.cancel()
            del self._timer_of[transactional_id]
        if when is not None:
            self._timer_of[transactional_id] = self._timers.push(when, transactional_id)

    @property
    def _sweep_interval_s(self) -> float:
        return self._broker.config.number("transaction.remove.expired.transaction.cleanup.interval.ms") / 1000

    def _expire_transactional_ids(self) -> None:
        """Forget ids that nothing was heard of for ``transactional.id.expiration.ms``, and nothing is under way of."""
        limit_ms = self._broker.epoch_ms() - self._broker.config.number("transactional.id.expiration.ms")
        for transactional_id, found in list(self._store.all.items()):
            if found.state in AT_REST and found.updated_ms <= limit_ms:
                try:
                    self._store.forget(transactional_id)
                except KafkaStorageError as error:
                    log.error("the transactional id %s cannot be forgotten yet: %s", transactional_id, error)

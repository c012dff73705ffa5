"""Carries out what the sender decides: requests, timers, metadata, the producer's id. All of it on the loop's thread.

:class:`ProducerDriver` makes the accumulator and the sender of its producer's settings, and tells them what the cluster
is like. The machine is ``kafka.core.produce.sender``; it is asked again (:meth:`ProducerDriver.pump`) after everything
that happens, once per turn of the loop however much that was.
"""

from __future__ import annotations

import logging
import os
import random
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from math import inf
from typing import Any, Final
from uuid import UUID

from kafka.client import ClientHost, KafkaClient
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, send
from kafka.core.produce.accumulator import PRODUCER_CLOSED, STICKY, RecordAccumulator, partitioning_for
from kafka.core.produce.batch import EncodedProduceRequest, ProducerBatch, ProducerIdAndEpoch, TopicQueues
from kafka.core.produce.sender import RequestProducerId, SendBatches, Sender
from kafka.core.produce.topics import learn_topic
from kafka.core.produce.transactions import TransactionManager
from kafka.core.routing import AnyNode, Coordinator, CoordinatorType
from kafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    UnsupportedVersionError,
    raise_for_code,
)
from kafka.future import Future
from kafka.log_limit import LimitedLog
from kafka.net.loop import DeadlineTimer
from kafka.partitioner import DefaultPartitioner, StickyPartitioner
from kafka.producer.metrics import ProducerMetrics
from kafka.producer.settings import chosen_codec
from kafka.protocol.produce import ProduceRequest, ProduceResponse
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.wire.types import ZERO_UUID

log = logging.getLogger(__name__)

STALLED_LOG_S: Final = 60.0
"""A warning of batches that brokers refuse is repeated after so long, for each error."""
MAX_TRANSACTION_TIMEOUT_MS = 2**31 - 1
FORKED_ERROR: Final = "the producer belongs to the parent process: after a fork, make a new one in the child"


_NAMES: dict[type, str | None] = {DefaultPartitioner: None, StickyPartitioner: STICKY}
"""kafka-python's classes for what is built in."""


def _built_in(partitioner: Any) -> Any:
    """A name, where it is one of kafka-python's own classes, or an instance of just that; else what was given."""
    kind = partitioner if isinstance(partitioner, type) else type(partitioner)
    return _NAMES.get(kind, partitioner)


def guard_of(host: ClientHost) -> Callable[[], None]:
    """What raises where waiting for a record would never end. Records' futures have it, so it holds neither the host
    nor the producer."""
    host_ref = weakref.ref(host)
    pid = os.getpid()

    def guard() -> None:
        living = host_ref()
        if living is not None:
            living.check_may_block()
        elif os.getpid() != pid:
            raise IllegalStateError(FORKED_ERROR)

    return guard


_limited_logs: Final[weakref.WeakKeyDictionary[KafkaClient, LimitedLog]] = weakref.WeakKeyDictionary()


def _limited_log(client: KafkaClient) -> LimitedLog:
    """The log of all producers of a client, whose records are refused together when a broker is lost."""
    return _limited_logs.setdefault(
        client, LimitedLog(log, most=1, every_s=STALLED_LOG_S, clock=client.loop.time)
    )


class ProducerDriver:
    """One producer's work on its loop. ``lock`` is the accumulator's.

    Nothing that the I/O thread holds, as it does this object, may hold ``host``, nor the producer: forgetting them ends
    the thread.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        host: ClientHost,
        lock: AbstractContextManager[Any],
        transactions: TransactionManager | None,
    ) -> None:
        client = host.client
        self.client = client
        self.is_closed = False
        self.on_pumped: Callable[[], object] = lambda: None
        """Called after each pump: by what decides with the sender (transactions)."""
        self._loop = client.loop
        self._router = client.router
        self._cluster = client.cluster
        self._pid = os.getpid()
        self._settings = settings
        self._codec = codec = chosen_codec(settings)
        key = settings["transactional_id"]
        self._transaction_coordinator = None if key is None else Coordinator(key, CoordinatorType.TRANSACTION)
        late_ms = settings["partitioner_availability_timeout_ms"]
        rng = random.Random()
        partitioning = partitioning_for(
            _built_in(settings["partitioner"]),
            rng,
            batch_bytes=settings["batch_size"],
            adaptive=settings["partitioner_adaptive_partitioning_enable"],
            ignore_keys=settings["partitioner_ignore_keys"],
            late_s=late_ms and (late_ms + settings["linger_ms"]) / 1000,
            cluster=client.cluster,
        )
        self.accumulator = RecordAccumulator(
            lock=lock,
            clock=client.loop.time,
            rng=rng,
            signal=self._signal,
            guard=guard_of(host),
            buffer_bytes=settings["buffer_memory"],
            batch_bytes=min(settings["batch_size"], settings["max_request_size"]),
            batch_records=settings["batch_max_records"],
            max_batch_bytes=settings["max_request_size"],
            compression=codec.number,
            compression_level=codec.level,
            partitioner=partitioning,
        )
        self.sender = Sender(
            self.accumulator,
            leader_of=self._leader_of,
            leader_epoch_of=self._leader_epoch_of,
            topic_id_of=self._topic_id_of,
            free_at=client.router.throttled_until,
            acks=settings["acks"],
            idempotent=settings["enable_idempotence"],
            linger_s=settings["linger_ms"] / 1000,
            max_request_bytes=settings["max_request_size"],
            max_in_flight=settings["max_in_flight_requests_per_connection"],
            request_timeout_s=settings["request_timeout_ms"] / 1000,
            delivery_timeout_s=settings["delivery_timeout_ms"] / 1000,
            backoff=client.retry_backoff,
            retries=None if settings["retries"] == float("inf") else int(settings["retries"]),
            transactions=transactions,
            on_stalled=self._stalled,
        )
        self._limited_log = _limited_log(client)
        self._alarm = DeadlineTimer(self._loop, self.pump)
        self._is_pump_due = False
        self._learning: dict[str, Future[None]] = {}
        self._is_refreshing = False
        self.metrics = (
            ProducerMetrics(settings, client, self.accumulator.memory, self.sender.counts, self._loop.time)
            if settings["metrics_enabled"]
            else None
        )
        client.cluster.add_listener(self._metadata_changed)
        # A shared client closes after its residents have finished.
        client.add_resident(self)

    # -- what the machines ask -----------------------------------------------------------------------------------------

    def _signal(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.pump)
        except RuntimeError:
            raise IllegalStateError(FORKED_ERROR if os.getpid() != self._pid else PRODUCER_CLOSED) from None

    def _leader_of(self, topic: str, partition: int) -> int | None:
        found = self._cluster.snapshot.partitions.get(topic, {}).get(partition)
        return None if found is None or found.leader < 0 else found.leader

    def _leader_epoch_of(self, topic: str, partition: int) -> int:
        found = self._cluster.snapshot.partitions.get(topic, {}).get(partition)
        return -1 if found is None else found.leader_epoch

    def _topic_id_of(self, topic: str) -> UUID:
        return self._cluster.snapshot.ids.get(topic, ZERO_UUID)

    # -- the sender ----------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Ask the sender what there is to do, and do it."""
        self._is_pump_due = False
        if self.is_closed:
            return
        now = self._loop.time()
        for effect in self.sender.poll(now):
            if self.is_closed:  # by a callback of what has failed meanwhile
                return
            if isinstance(effect, SendBatches):
                if self.metrics is not None:
                    self.metrics.sent(effect, now)
                carried = EncodedProduceRequest(effect.request, self._codec.number, self._codec.level)
                future = self._router.request(
                    effect.node,
                    ByVersion(ProduceRequest, carried.build, self._transaction_coordinator),
                    max_version=effect.max_version,
                )
                future.add_both(self._done, effect, carried)
            elif isinstance(effect, RequestProducerId):
                asked = self.client.run(_ask_identity())
                asked.add_callback(self._identity_received)
                asked.add_errback(self._identity_failed)
            elif not self._is_refreshing:
                self._is_refreshing = True
                self.client.refresh_metadata(sorted(effect.topics)).add_both(self._refreshed)
        self._alarm.set(self.sender.next_deadline)
        self.on_pumped()

    def pump_soon(self) -> None:
        """Pump in this turn of the loop or the next."""
        if not self._is_pump_due:
            self._is_pump_due = True
            self._loop.call_soon(self.pump)

    def _done(
        self, effect: SendBatches, carried: EncodedProduceRequest, outcome: ProduceResponse | BaseException | None
    ) -> None:
        now = self._loop.time()
        is_answer = not isinstance(outcome, BaseException)
        if self.metrics is not None:
            self.metrics.answered(effect, now, is_answer=is_answer)
        if isinstance(outcome, BaseException):
            self.sender.failed(effect, outcome, now)
        else:
            self.sender.answered(effect, carried.complete(outcome), now)
        self.pump_soon()

    def _identity_received(self, identity: ProducerIdAndEpoch) -> None:
        self.sender.identity_received(identity)
        self.pump_soon()

    def _identity_failed(self, error: BaseException) -> None:
        is_supported = not isinstance(error, (IncompatibleBrokerVersion, UnsupportedVersionError))
        if not is_supported and self._settings.get("requires_idempotence"):
            is_supported = True  # what was asked for explicitly is not given up silently
            why = error.args[0] if error.args else type(error).__name__
            error = UnsupportedVersionError(f"enable_idempotence=True needs Kafka 0.11 or later: {why}")
        self.sender.identity_failed(error, self._loop.time(), is_supported=is_supported)
        self.pump_soon()

    def _stalled(self, batch: ProducerBatch, error: BrokerResponseError) -> None:
        self._limited_log.warning(
            type(error).__name__,
            "records of %s-%d are not written after %d attempts, retrying within delivery_timeout_ms=%d: %s",
            batch.topic, batch.partition, batch.attempts, self._settings["delivery_timeout_ms"], error,
        )  # fmt: skip

    # -- metadata ------------------------------------------------------------------------------------------------------

    def learn(self, topic: TopicQueues) -> Future[None]:
        """Have the topic's partitions known. Fails with KafkaTimeoutError after ``max_block_ms``, or with the error
        that the topic has for good; records that wait for its metadata fails with the same."""
        name = topic.name
        found = self._learning.get(name)
        if found is None:
            # Another user of the client may have asked for it: no request, and no back-off. A topic that only the first
            # metadata has is asked for, so that it is among those whose changes are looked for.
            if name in self._cluster.wanted_topics:
                self._metadata_changed()
            found = self._learning[name] = self.client.run(
                learn_topic(
                    name,
                    lambda: bool(topic.queues),
                    lambda: self.client.cluster.topic_error(name),
                    timeout_s=self._settings["max_block_ms"] / 1000,
                    backoff=self.client.retry_backoff,
                    may_create=self._settings["allow_auto_create_topics"],
                )
            )
            self._metadata_changed()
            found.add_both(lambda _: self._learning.pop(name, None))
            found.add_errback(lambda error: self.accumulator.fail_unassigned(topic, error))
        return found

    def _metadata_changed(self, *_: object) -> None:
        cluster = self._cluster
        for topic in list(self.accumulator.topics.values()):
            partitions = cluster.partitions_for_topic(topic.name)
            if partitions:
                available = cluster.available_partitions_for_topic(topic.name) or ()
                self.accumulator.set_partitions(topic, len(partitions), sorted(available))
        self.pump_soon()

    def _refreshed(self, _: object) -> None:
        self._is_refreshing = False
        self.pump_soon()

    # -- the end -------------------------------------------------------------------------------------------------------

    def when_answered(self) -> Future[None]:
        """Send everything that is here now; done when all of it was answered, well or not."""
        waiting: set[Any] = set()
        done: Future[None] = Future()

        def settle(pending_records: Any) -> None:
            waiting.discard(pending_records)
            if pending_records.forward is not None:
                self.accumulator.close_open_batches()  # what it moved to is to go out, too
                for target, _index in pending_records.forward:
                    watch(target)
            if not waiting and not done.is_done:
                done.success(None)

        def watch(pending_records: Any) -> None:
            if not pending_records.done.is_done and pending_records not in waiting:
                waiting.add(pending_records)
                pending_records.done.add_both(lambda _: settle(pending_records))

        for pending_records in self.accumulator.close_open_batches():
            watch(pending_records)
        if not waiting:
            done.success(None)
        return done

    def close(self) -> None:
        """Fail what is left, and do nothing from now on."""
        if not self.is_closed:
            left = sum(pending_records.records_count for pending_records in self.accumulator.incomplete)
            if left:
                records, them = ("record", "it") if left == 1 else ("records", "them")
                log.warning("producer closed with %d unacknowledged %s; failing %s", left, records, them)
            self.is_closed = self.accumulator.is_closed = True
            self.sender.abort()
            self._alarm.set(inf)
            self.client.cluster.remove_listener(self._metadata_changed)
            if self.metrics is not None:
                self.metrics.close()
            self.client.remove_resident(self)

    def finish(self) -> Future[None]:
        """What the client's :class:`~kafka.client.kafka_client.LoopResident` is asked for."""
        return self.when_answered()


def _ask_identity() -> Dialogue[ProducerIdAndEpoch]:
    """InitProducerId for an idempotent producer: any node gives a new id. (Of its epochs it disposes by itself.)"""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=MAX_TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
    )
    answer = yield from send(AnyNode(), request)
    raise_for_code(answer.error_code, "the producer's id")
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

"""KafkaProducer: what users call. Arguments, blocking, the end; the work is in ``core/produce`` and ``driver.py``.

:meth:`KafkaProducer.send` is the hot path of the package: one short lock, no call to the loop unless a batch begins or
is full. It repeats the first step of ``Accumulator.append`` inline, because a call less is 0.2 us of 2.7 (plain Python
3.11).

Closing, and a fork in the child, take the table of topics away, so that ``send`` notices without looking: a topic that
is not there leads to :meth:`KafkaProducer._admit`, which knows why.
"""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from kafka.client import Host, KafkaClient, make_host
from kafka.config import resolve
from kafka.core.produce.accumulator import STICKY, Accumulator, BufferFull, TopicQueues
from kafka.core.produce.batch import Batch
from kafka.core.produce.sender import Sender
from kafka.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.producer.driver import Driver
from kafka.producer.edge import header_items, plain_bytes, serializer_for, topic_name
from kafka.producer.edge import timestamp as checked_timestamp
from kafka.producer.future import FutureRecordMetadata
from kafka.records import CODEC_NAMES, NONE, max_record_bytes
from kafka.structs import TopicPartition
from kafka.wire.types import ZERO_UUID

_CODECS = {name: number for number, name in CODEC_NAMES.items()}
_SIZE_MARGIN = 128
"""More than a batch's header and a record's lengths take."""

_producers: weakref.WeakSet[KafkaProducer] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for producer in _producers:
        producer._refuse("the producer belongs to the parent process: after a fork, make a new one in the child")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KafkaProducer:
    """Sends records to topics. :meth:`send` may be called from any thread.

    ``configs``: see the reference of settings; ``bootstrap_servers`` is the one that everybody needs. Without ``loop``
    the producer has a loop of its own in an I/O thread. With ``loop``, a :class:`kafka.net.loop.Loop`, it lives there
    beside others, has no thread, and is to be used on that loop's thread: results come through callbacks, and calls
    that would wait (``flush``, ``partitions_for``, a future's ``get``) are refused with IllegalStateError; use
    :meth:`flush_async`. With ``client``, a KafkaClient, it shares that client, its loop and its connections.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be.
    """

    def __init__(self, *, loop: Loop | None = None, client: KafkaClient | None = None, **configs: Any) -> None:
        settings = resolve("producer", configs)
        _check_together(settings, configs)
        self._settings = settings
        self._key_serializer = serializer_for("key_serializer", settings["key_serializer"])
        self._value_serializer = serializer_for("value_serializer", settings["value_serializer"])
        self._max_request_size: int = settings["max_request_size"]
        self._large_bytes = self._max_request_size - _SIZE_MARGIN
        self._max_block_s: float = settings["max_block_ms"] / 1000
        self._lock = threading.Lock()
        self._memory_freed = threading.Event()
        self._refusal: str | None = None
        self._host: Host = make_host("producer", settings, loop, client)
        own_loop = self._host.loop
        # Nothing that the I/O thread holds may hold this object: forgetting it ends the thread.
        host_ref = weakref.ref(self._host)

        def guard() -> None:
            host = host_ref()
            if host is not None:
                host.check_may_block()

        def signal() -> None:
            try:
                own_loop.call_soon_threadsafe(driver.pump)
            except RuntimeError:
                raise IllegalStateError("the producer is closed") from None

        partitioner = settings["partitioner"]
        self._accumulator = Accumulator(
            lock=self._lock,
            clock=self._host.loop.time,
            rng=random.Random(),
            signal=signal,
            freed=self._memory_freed.set,
            guard=guard,
            buffer_bytes=settings["buffer_memory"],
            batch_bytes=settings["batch_size"],
            batch_records=settings["batch_max_records"],
            compression=_CODECS[settings["compression_type"]] if settings["compression_type"] else NONE,
            partitioner=STICKY if partitioner is None else partitioner,
        )
        self._places = partitioner is not None
        """Whether the partitioner is asked even for records without a key."""
        self._last_index = self._accumulator.last_index
        self._topics: dict[str, TopicQueues] = self._accumulator.topics
        cluster = self._host.client.cluster

        def leader_of(topic: str, partition: int) -> int | None:
            leader = cluster.leader_for_partition(TopicPartition(topic, partition))
            return None if leader is None or leader < 0 else leader

        self._sender = Sender(
            self._accumulator,
            leader_of=leader_of,
            topic_id_of=lambda topic: cluster.topic_id(topic) or ZERO_UUID,
            acks=settings["acks"],
            idempotent=settings["enable_idempotence"],
            linger_s=settings["linger_ms"] / 1000,
            max_request_bytes=self._max_request_size,
            max_in_flight=settings["max_in_flight_requests_per_connection"],
            request_timeout_s=settings["request_timeout_ms"] / 1000,
            delivery_timeout_s=settings["delivery_timeout_ms"] / 1000,
            retry_backoff_s=settings["retry_backoff_ms"] / 1000,
            retries=None if settings["retries"] == float("inf") else int(settings["retries"]),
        )
        self._driver = driver = Driver(self._host.client, self._accumulator, self._sender, settings)
        _producers.add(self)

    # -- sending -------------------------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Take a record over for sending, and return its future.

        ``key`` and ``value`` are bytes or None, or whatever their serializer takes. ``headers``: a list of (text,
        bytes). ``partition``: that one; else the key decides, as in Java, and without a key the partitioner.
        ``timestamp_ms``: ms since the epoch, default now.

        The first record for a topic waits for its metadata, and one that finds ``buffer_memory`` full for room, both
        for at most ``max_block_ms``: KafkaTimeoutError says which. (On a loop that was given, records wait for metadata
        in the background, and a full memory is that error at once.) TypeError for what is not bytes, with the setting
        that helps; InvalidTopicError; MessageSizeTooLargeError above ``max_request_size``; IllegalArgumentError for a
        partition that is not there; IllegalStateError when closed. Nothing is sent then.
        """
        queues = self._topics.get(topic)
        if queues is None or not queues.queues:
            queues = self._admit(topic)
        if headers:
            headers = header_items(headers)
            header_size = sum(len(name) + len(item or b"") for name, item in headers)
        else:
            headers = None
            header_size = -1
        if self._key_serializer is not None:
            key = self._key_serializer(queues.name, headers, key)
        elif key is not None and key.__class__ is not bytes:
            key = plain_bytes("key", key)
        if self._value_serializer is not None:
            value = self._value_serializer(queues.name, headers, value)
        elif value is not None and value.__class__ is not bytes:
            value = plain_bytes("value", value)
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        if key_size + value_size + header_size > self._large_bytes or headers:
            self._check_size(key, value, headers)
        timestamp = int(time.time() * 1000) if timestamp_ms is None else checked_timestamp(timestamp_ms)

        if not queues.queues:
            parked, index = self._accumulator.park(queues, timestamp, key, value, headers, partition)
            return FutureRecordMetadata(parked, index, timestamp, (key_size, value_size, header_size))
        if partition is None and key is None and not self._places:
            queue = None
            target = queues.sticky
        else:
            target = queue = self._accumulator.queue_for(queues, key, partition)
        index = -1
        batch: Batch | None = None
        if target is not None:
            with self._lock:
                batch = target.open
                if batch is not None:
                    index = batch.append(timestamp, key, value, headers)
            if index >= self._last_index:
                assert batch is not None
                self._accumulator.batch_filled(target, batch)
        if index < 0 or batch is None:
            try:
                batch, index = self._accumulator.append(queues, queue, timestamp, key, value, headers)
            except BufferFull:
                batch, index = self._append_when_there_is_room(queues, queue, timestamp, key, value, headers)
        return FutureRecordMetadata(batch, index, timestamp, (key_size, value_size, header_size))

    def _admit(self, topic: Any) -> TopicQueues:
        """The queues of a topic that is new, or has no partitions yet, or the reason why nothing may be sent."""
        self._check_usable()
        name = topic_name(topic)
        if self._sender.error is not None:
            raise self._sender.error
        found = self._accumulator.topics.get(name)
        if found is None:
            found = self._accumulator.topics.setdefault(name, TopicQueues(name))
        if not found.queues:
            if self._may_block:
                run: Callable[..., Any] = self._driver.learn
                self._host.call(run, found)
            else:
                self._driver.learn(found)
        return found

    def _append_when_there_is_room(self, *record: Any) -> tuple[Batch, int]:
        text = f"no room within buffer_memory={self._settings['buffer_memory']}"
        if not self._may_block:
            raise KafkaTimeoutError(text)
        give_up_at = time.monotonic() + self._max_block_s
        while True:
            self._memory_freed.clear()
            try:
                return self._accumulator.append(*record)
            except BufferFull:
                left_s = give_up_at - time.monotonic()
                if left_s <= 0 or not self._memory_freed.wait(left_s):
                    raise KafkaTimeoutError(f"{text} after max_block_ms={self._settings['max_block_ms']}") from None
            self._check_usable()

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        size = max_record_bytes(key, value, headers)
        if size > self._max_request_size:
            raise MessageSizeTooLargeError(
                f"a record of {size} bytes is larger than max_request_size={self._max_request_size}"
            )

    # -- waiting -------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float | None = None) -> None:
        """Send everything that is here, and wait until each record was delivered or has failed.

        ``timeout`` in seconds: KafkaTimeoutError when it passes, and the rest goes on. Errors of records are their
        futures', not this call's. IllegalStateError on the thread of the loop: see :meth:`flush_async`.
        """
        self._check_usable()
        self._guard()
        run: Callable[..., Any] = self._driver.when_answered
        try:
            self._host.call(run, timeout_s=timeout)
        except KafkaTimeoutError:
            count = len(self._accumulator.incomplete)
            raise KafkaTimeoutError(f"flush: {count} batches were not answered within {timeout} s") from None

    def flush_async(self) -> Future[None]:
        """On the loop: send everything that is here; done when each record was delivered or has failed."""
        self._check_usable()
        return self._driver.when_answered()

    def partitions_for(self, topic: str) -> set[int]:
        """The numbers of the topic's partitions. Waits for metadata, like ``send``; errors as there."""
        queues = self._topics.get(topic)
        if queues is None or not queues.queues:
            self._check_usable()
            self._guard()
            queues = self._admit(topic)
        return set(range(len(queues.queues)))

    def bootstrap_connected(self) -> bool:
        """Whether the cluster's metadata has been read."""
        return bool(self._host.client.cluster.brokers())

    def metrics(self, raw: bool = False) -> dict[str, dict[str, float]]:
        """Totals since the start, as ``{"producer-metrics": {name: value}}``."""
        counts = self._sender.counts
        return {
            "producer-metrics": {
                "record-send-total": counts.records,
                "byte-total": counts.bytes,
                "batch-total": counts.batches,
                "request-total": counts.requests,
                "record-retry-total": counts.retries,
                "record-error-total": counts.errors,
            }
        }

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is here, for at most ``timeout`` seconds (None: as long as it takes), and stop. What is left
        then fails with Cancelled. Any number of times.

        On the thread of a loop that was given it does not wait: only ``timeout=0`` is taken there, and
        :meth:`close_async` closes in good order.
        """
        if self._refusal is not None:
            return
        if not self._may_block:
            if timeout != 0:
                self._guard()
            self._finish()
            return
        try:
            if timeout != 0:
                self.flush(timeout)
        except KafkaTimeoutError:
            pass
        finally:
            self._refuse("the producer is closed")
            self._host.call(self._driver.close)
            self._host.close()

    def close_async(self) -> Future[None]:
        """On the loop: take no more records, deliver what is here, and stop. The future is done then."""
        done: Future[None] = Future()
        if self._refusal is not None:
            return done.success(None)
        answered = self._driver.when_answered()
        self._refuse("the producer is closed")

        def finish(_: object) -> None:
            self._driver.close()
            self._host.close()
            done.success(None)

        answered.add_both(finish)
        return done

    def _finish(self) -> None:
        self._refuse("the producer is closed")
        self._driver.close()
        self._host.close()

    def __enter__(self) -> KafkaProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _may_block(self) -> bool:
        return not self._host.loop.in_loop_thread()

    def _guard(self) -> None:
        """Raise where waiting would wait for ever."""
        self._host.check_may_block()

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise IllegalStateError(self._refusal)

    def _refuse(self, why: str) -> None:
        if self._refusal is None:
            self._refusal = why
            self._topics = {}


def _check_together(settings: dict[str, Any], given: dict[str, Any]) -> None:
    """Idempotence wants acks=all and at most five requests in flight. A user who only set one of the others did not ask
    for idempotence, and does without."""
    conflict = None
    if settings["acks"] != -1:
        conflict = f"acks={given['acks']!r}"
    elif settings["max_in_flight_requests_per_connection"] > 5:
        conflict = f"max_in_flight_requests_per_connection={settings['max_in_flight_requests_per_connection']}"
    elif settings["retries"] == 0:
        conflict = "retries=0"
    if conflict is None or not settings["enable_idempotence"]:
        return
    if given.get("enable_idempotence"):
        raise KafkaConfigurationError(f"enable_idempotence=True excludes {conflict}")
    settings["enable_idempotence"] = False

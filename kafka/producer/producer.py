"""KafkaProducer: what users call to send. The work is in ``core/produce`` and ``driver.py``.

edge.py       arguments            checks.py     settings together       assembly.py   the parts
lifecycle.py  flush, close, fork   future.py     a record's result       driver.py     the loop's side
sending.py    send itself, the hot path
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafka.client import KafkaClient, make_host
from kafka.client.telemetry import HasTelemetry
from kafka.config import as_given, defaults, resolve
from kafka.core.produce.accumulator import BufferFull, TopicQueues
from kafka.core.produce.batch import Batch
from kafka.errors import MessageSizeTooLargeError
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.producer.assembly import assemble
from kafka.producer.checks import check_together
from kafka.producer.edge import serializer_for, sizes_of, takes_headers, topic_name
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.interceptors import Interceptors, ProducerRecord
from kafka.producer.sending import Sending
from kafka.producer.transactional import Transactional
from kafka.producer.waiting import append_when_there_is_room, no_memory
from kafka.records import max_record_bytes

log = logging.getLogger(__name__)

_SIZE_MARGIN = 128
"""More than a batch's header and a record's lengths take."""


class KafkaProducer(Transactional, HasTelemetry):
    """Sends records to topics. :meth:`send` may be called from any thread.

    ``configs``: see the reference of settings; ``bootstrap_servers`` is the one that everybody needs. Without ``loop``
    the producer has a loop of its own in an I/O thread. With ``loop``, a :class:`kafka.net.loop.Loop`, it lives there
    beside others, has no thread, and is to be used on that loop's thread: results come through callbacks, and calls
    that would wait (``flush``, ``partitions_for``, a future's ``get``) are refused with IllegalStateError; use
    :meth:`flush_async`. With ``client``, a KafkaClient, it shares that client, its loop and its connections.

    Errors of construction: KafkaConfigurationError for a setting that is unknown or cannot be.
    """

    DEFAULT_CONFIG: Final = defaults("producer")
    """All settings with their defaults."""
    DEPRECATED_CONFIGS: Final = ()

    def __init__(self, *, loop: Loop | None = None, client: KafkaClient | None = None, **configs: Any) -> None:
        settings = resolve("producer", configs)
        check_together(settings, configs)
        self._settings = settings
        self._config = as_given(settings, configs)
        self._key_serializer = serializer_for("key_serializer", settings["key_serializer"])
        self._value_serializer = serializer_for("value_serializer", settings["value_serializer"])
        self._shares_headers = any(takes_headers(settings[name]) for name in ("key_serializer", "value_serializer"))
        self._max_request_size: int = settings["max_request_size"]
        self._buffer_memory: int = settings["buffer_memory"]
        self._large_bytes = min(self._max_request_size, self._buffer_memory) - _SIZE_MARGIN
        self._interceptors = Interceptors(settings["interceptors"]) if settings["interceptors"] else None
        lock = self._make_lock()
        super().__init__(make_host("producer", settings, loop, client))
        self._accumulator, self._sender, self._driver, transactions = assemble(settings, self._host, lock)
        self._last_index = self._accumulator.last_index
        self._places = self._accumulator.partitioning.asks_always
        """Whether the partitioner is asked even for records without a key."""
        self._wants_objects = self._accumulator.partitioning.wants_objects
        if self._interceptors is None:
            self._known_topics = self._accumulator.topics
        self._attach(transactions)
        metrics = self._driver.metrics
        resource = {"transactional_id": settings["transactional_id"] or ""}
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict, lambda: resource)

    # -- sending -------------------------------------------------------------------------------------------------------

    if TYPE_CHECKING:  # what may be handed in; see Sending.send, which looks at it

        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            headers: Any = None,
            partition: int | None = None,
            timestamp_ms: int | None = None,
        ) -> FutureRecordMetadata: ...

    def _admit_or_send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> TopicQueues | FutureRecordMetadata:
        self._check_may_send()
        if self._interceptors is not None and not isinstance(topic, TopicQueues):
            return self._send_through(
                self._interceptors, ProducerRecord(topic, value, key, headers, partition, timestamp_ms)
            )
        return self._admit(topic)

    def _admit(self, topic: Any) -> TopicQueues:
        """The queues of a topic that is new, or has no partitions yet, or the reason why nothing may be sent."""
        self._check_usable()
        name = topic.name if isinstance(topic, TopicQueues) else topic_name(topic)
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

    def _park(
        self, queues: TopicQueues, timestamp: int, key: bytes | None, value: bytes | None, headers: Any,
        partition: Any, given: Any,
    ) -> FutureRecordMetadata:  # fmt: skip
        try:
            parked, index = self._accumulator.park(queues, timestamp, key, value, headers, partition, given)
        except BufferFull as full:
            raise no_memory(self._accumulator, full, queues.name, None) from None
        return FutureRecordMetadata(parked, index, timestamp, *sizes_of(key, value, headers))

    def _append_when_there_is_room(self, full: BufferFull, record: Any) -> tuple[Batch, int]:
        if not self._may_block:
            raise no_memory(self._accumulator, full, record[0].name, None) from None
        return append_when_there_is_room(
            self._accumulator, full, self._settings["max_block_ms"], self._check_usable, record
        )

    def _send_through(self, interceptors: Interceptors, given: ProducerRecord) -> FutureRecordMetadata:
        """:meth:`send` of a producer with interceptors. It comes here since ``_topics`` is empty then, always; and goes
        back with the queues in the topic's place."""
        record = interceptors.on_send(given)
        try:
            queues: Any = self._admit(record.topic)
            future = Sending.send(self, queues, *record[1:])
        except Exception as error:
            interceptors.refused(record, error)
            raise
        interceptors.watch(record, future)
        return future

    def _check_size(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        size = max_record_bytes(key, value, headers)
        for name, limit in (("max_request_size", self._max_request_size), ("buffer_memory", self._buffer_memory)):
            if size > limit:
                raise MessageSizeTooLargeError(f"a record of {size} bytes is larger than {name}={limit}")

    @property
    def config(self) -> dict[str, Any]:
        """All settings as they are in force, by name: a copy. ``bootstrap_servers`` as they were given."""
        return dict(self._config)

    def _end_watching(self, timeout_s: float | None) -> None:
        self._end_telemetry(timeout_s)

    def _watched_out(self) -> Future[None]:
        return self._finish_telemetry()

    def _closed(self) -> None:
        if not self._may_block:
            self._end_telemetry()
        if self._interceptors is not None:
            self._interceptors.close()
        for name in ("key_serializer", "value_serializer"):
            close = getattr(self._settings[name], "close", None)
            if callable(close) and not isinstance(self._settings[name], type):
                try:
                    close()
                except Exception:
                    log.exception("an error in close of %s", name)

    # -- looking ------------------------------------------------------------------------------------------------------

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

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What was measured, as ``{group: {name: number}}`` with kafka-python's names; ``raw``: the metrics themselves,
        as ``{MetricName: KafkaMetric}``. Empty with ``metrics_enabled=False``. See ``kafka/producer/metrics.py``."""
        metrics = self._driver.metrics
        if metrics is None:
            return {}
        return metrics.raw() if raw else metrics.by_group()

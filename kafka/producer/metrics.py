"""What a producer measures, under kafka-python's names.

    PRODUCER   of the whole producer      group ``producer-metrics``
    NODE       of each node               group ``producer-node-metrics.node-N``
    TOPIC      of each topic              group ``producer-topic-metrics``, tag ``topic`` (in ``metrics()``:
                                          ``producer-topic-metrics.TOPIC``)

Everything is measured when a request is handed over and when it is answered: per batch or request, never per record. So
the size of a record is the mean of its batch, and the largest size that of the batch with the largest mean; and a
request's size is that of its batches. Times in milliseconds, sizes in bytes. What rows say is in
``kafka/metrics/registry.py``; totals are the sender's (``ProduceCounters``).

A new metric is a row; a new quantity its ``record``, or a line in ``_gauges``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafka.client import KafkaClient
from kafka.core.produce.accumulator import BufferPool
from kafka.core.produce.batch import ProducerBatch
from kafka.core.produce.sender import ProduceCounters, SendBatches
from kafka.metrics import KafkaMetric, Measured, Measurements, MetricName, Row, Sampled

_TRAFFIC: Final[tuple[Row, ...]] = (
    ("incoming-byte-rate", "incoming", "rate"),
    ("outgoing-byte-rate", "request-size", "rate"),
    ("request-latency-avg", "latency", "average"),
    ("request-latency-max", "latency", "most"),
    ("request-rate", "requests", "rate"),
    ("request-size-avg", "request-size", "average"),
    ("request-size-max", "request-size", "most"),
    ("response-rate", "responses", "rate"),
)
PRODUCER: Final[tuple[Row, ...]] = (
    *(row for row in _TRAFFIC if row[0] != "outgoing-byte-rate"),
    ("batch-size-avg", "batch-size", "average"),
    ("batch-size-max", "batch-size", "most"),
    ("byte-rate", "batch-size", "rate"),
    ("byte-total", "bytes", "counter"),
    ("batch-total", "batches", "counter"),
    ("compression-rate-avg", "compression", "average"),
    ("network-io-rate", "network", "rate"),
    ("record-error-rate", "errors", "rate"),
    ("record-error-total", "errors", "counter"),
    ("record-queue-time-avg", "queue-time", "average"),
    ("record-queue-time-max", "queue-time", "most"),
    ("record-retry-rate", "retries", "rate"),
    ("record-retry-total", "retries", "counter"),
    ("record-send-rate", "records", "rate"),
    ("record-send-total", "records", "counter"),
    ("record-size-avg", "record-size", "average"),
    ("record-size-max", "record-size", "most"),
    ("records-per-request-avg", "per-request", "average"),
    ("request-total", "requests", "counter"),
    ("throttle-time-avg", "throttle", "average"),
    ("throttle-time-max", "throttle", "most"),
    ("produce-throttle-time-avg", "throttle", "average"),  # Java's name, which KIP-714 asks for
    ("produce-throttle-time-max", "throttle", "most"),
    ("connection-creation-total", "all-opened", "counter"),
    ("connection-close-total", "all-lost", "counter"),
    ("connection-count", "connections", "gauge"),
    ("connection-creation-rate", "opened", "rate"),
    ("connection-close-rate", "lost", "rate"),
    ("requests-in-flight", "in-flight", "gauge"),
    ("metadata-age", "metadata-age", "gauge"),
    ("buffer-total-bytes", "buffer", "gauge"),
    ("buffer-available-bytes", "free", "gauge"),
    ("waiting-threads", "waiting", "gauge"),
)
NODE: Final = _TRAFFIC
TOPIC: Final[tuple[Row, ...]] = (
    ("record-send-rate", "records", "rate"),
    ("byte-rate", "batch-size", "rate"),
    ("compression-rate", "compression", "average"),
    ("record-retry-rate", "retries", "rate"),
    ("record-error-rate", "errors", "rate"),
)
GROUP: Final = "producer-metrics"
NODE_GROUP: Final = "producer-node-metrics.node-"
TOPIC_GROUP: Final = "producer-topic-metrics"


class _Requests:
    """What is recorded for each request: of the whole producer, or of a node. As attributes, which compiled code finds
    without a look-up: a batch is recorded in twenty places."""

    __slots__ = ("incoming", "latency", "requests", "responses", "size")

    def __init__(self, measured: Mapping[str, Sampled]) -> None:
        self.incoming = measured["incoming"]
        self.latency = measured["latency"]
        self.requests = measured["requests"]
        self.responses = measured["responses"]
        self.size = measured["request-size"]


class _Batches:
    """What is recorded for each batch: of the whole producer, or of a topic."""

    __slots__ = ("compression", "records", "size")

    def __init__(self, measured: Mapping[str, Sampled]) -> None:
        self.compression = measured["compression"]
        self.records = measured["records"]
        self.size = measured["batch-size"]


class ProducerMetrics:
    """The metrics of one producer. ``record``-ing happens on the loop's thread, reading in any."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        client: KafkaClient,
        memory: BufferPool,
        counts: ProduceCounters,
        clock: Callable[[], float],
    ) -> None:
        """``counts`` are the sender's totals; of batches that are retried or fail they tell this object."""
        self._measurements = Measurements(settings, clock)
        self._router = router = client.router
        self._cluster = client.cluster
        self._clock = clock
        self._sent_at: dict[int, float] = {}
        self._received_all = self._opened = self._lost = self._throttled_ms = 0
        """What was seen at the last look, each of all times."""
        self._received: dict[int, int] = {}
        """By node: what its connection had received at the last look. Another connection begins at 0."""
        self._metadata_at = clock()
        gauges: dict[str, Callable[[], float]] = {
            "connections": lambda: sum(connection.connected() for connection in router.nodes),
            "all-opened": lambda: router.connections_opened,
            "all-lost": lambda: router.connections_lost,
            "in-flight": client.in_flight_request_count,
            "metadata-age": lambda: self._clock() - self._metadata_at,
            "buffer": lambda: memory.limit_bytes,
            "free": lambda: max(memory.limit_bytes - memory.used_bytes, 0),
            "waiting": lambda: len(memory.waiters),
            "batches": lambda: float(counts.batches),
            "bytes": lambda: float(counts.bytes),
            "errors": lambda: float(counts.errors),
            "records": lambda: float(counts.records),
            "requests": lambda: float(counts.requests),
            "retries": lambda: float(counts.retries),
        }
        self._all = everything = self._measurements.measure(GROUP, PRODUCER, gauges=gauges)
        self._requests = _Requests(everything)
        self._batches = _Batches(everything)
        self._network, self._per_request = everything["network"], everything["per-request"]
        self._queue_time, self._record_size = everything["queue-time"], everything["record-size"]
        self._throttle_time = everything["throttle"]
        self._nodes: dict[int, _Requests] = {}
        self._topics: dict[str, Measured] = {}
        self._batches_of: dict[str, _Batches] = {}
        counts.report_to(self)
        self._cluster.add_listener(self._metadata_changed)

    # -- told by the driver --------------------------------------------------------------------------------------------

    def sent(self, call: SendBatches, now: float) -> None:
        """``call`` is handed over."""
        self._sent_at[id(call)] = now
        size = records = 0
        for batch in call.batches:
            count = batch.records_count
            records += count
            size += batch.encoded_bytes
            if batch.attempts == 1:
                self._batch_sent(batch, count, now)
        node, everything = self._node(call.node), self._requests
        everything.requests.record(1, now)
        everything.size.record(size, now)
        node.requests.record(1, now)
        node.size.record(size, now)
        self._network.record(1, now)
        self._per_request.record(records, now)

    def _batch_sent(self, batch: ProducerBatch, count: int, now: float) -> None:
        size, plain = batch.encoded_bytes, batch.builder.size_bytes
        self._queue_time.record((now - batch.created_at) * 1000, now)
        self._record_size.record(plain, now, count, plain / count)
        ratio = size / plain
        topic, everything = self._batches_of.get(batch.topic), self._batches
        if topic is None:
            topic = self._batches_of[batch.topic] = _Batches(self._topic(batch.topic))
        everything.size.record(size, now)
        everything.compression.record(ratio, now)
        everything.records.record(count, now)
        topic.size.record(size, now)
        topic.compression.record(ratio, now)
        topic.records.record(count, now)

    def answered(self, call: SendBatches, now: float, *, is_answer: bool) -> None:
        """``call`` is over, with an answer or without."""
        sent_at = self._sent_at.pop(id(call), now)
        node, everything, router = self._node(call.node), self._requests, self._router
        if is_answer:
            latency_ms = (now - sent_at) * 1000
            everything.latency.record(latency_ms, now)
            everything.responses.record(1, now)
            node.latency.record(latency_ms, now)
            node.responses.record(1, now)
            self._network.record(1, now)
        all_received = 0
        for connection in router.nodes:
            received = connection.bytes_received
            all_received += received
            if connection.lane is None and connection.node_id == call.node:
                before = self._received.get(call.node, 0)
                self._received[call.node] = received
                node.incoming.record(received - before if received >= before else received, now)
        if all_received != self._received_all:
            everything.incoming.record(max(all_received - self._received_all, 0), now)
            self._received_all = all_received
        opened = router.connections_opened
        if opened != self._opened:
            self._all["opened"].record(opened - self._opened, now)
            self._opened = opened
        lost = router.connections_lost
        if lost != self._lost:
            self._all["lost"].record(lost - self._lost, now)
            self._lost = lost
        throttled = router.throttle.by_api.get("Produce")
        throttled_ms = 0 if throttled is None else throttled.total_ms
        self._throttle_time.record(throttled_ms - self._throttled_ms, now)
        self._throttled_ms = throttled_ms

    # -- told by the outcomes ------------------------------------------------------------------------------------------

    def retried(self, batch: ProducerBatch) -> None:
        """The batch goes out once more."""
        self._note("retries", batch)

    def failed(self, batch: ProducerBatch) -> None:
        """Its records have failed."""
        self._note("errors", batch)

    def _note(self, name: str, batch: ProducerBatch) -> None:
        now = self._clock()
        for measured in (self._all, self._topic(batch.topic)):
            measured[name].record(batch.records_count, now)

    # -- read ----------------------------------------------------------------------------------------------------------

    def by_group(self) -> dict[str, dict[str, float]]:
        """``{group: {name: value}}``, a topic's in a group of its own."""
        return self._measurements.by_group()

    def raw(self) -> dict[MetricName, KafkaMetric]:
        """The metrics themselves, by name."""
        return self._measurements.raw()

    def close(self) -> None:
        self._cluster.remove_listener(self._metadata_changed)
        self._measurements.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _node(self, node: int) -> _Requests:
        found = self._nodes.get(node)
        if found is None:
            found = self._nodes[node] = _Requests(self._measurements.measure(f"{NODE_GROUP}{node}", NODE))
        return found

    def _topic(self, topic: str) -> Measured:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self._measurements.measure(TOPIC_GROUP, TOPIC, {"topic": topic})
        return found

    def _metadata_changed(self, *_: object) -> None:
        self._metadata_at = self._clock()

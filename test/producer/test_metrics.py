from __future__ import annotations

from typing import Any

import pytest

from kafka.metrics import AbstractMetricsReporter, KafkaMetric, Sampled
from test.producer.support import producer_in_memory, refuse

# Seen in kafka-python 3.0.12.
PRODUCER = [
    "batch-size-avg",
    "batch-size-max",
    "byte-rate",
    "compression-rate-avg",
    "connection-close-rate",
    "connection-count",
    "connection-creation-rate",
    "incoming-byte-rate",
    "metadata-age",
    "network-io-rate",
    "record-error-rate",
    "record-queue-time-avg",
    "record-queue-time-max",
    "record-retry-rate",
    "record-send-rate",
    "record-size-avg",
    "record-size-max",
    "records-per-request-avg",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "requests-in-flight",
    "response-rate",
    "throttle-time-avg",
    "throttle-time-max",
]
TOPIC = ["record-send-rate", "byte-rate", "compression-rate", "record-retry-rate", "record-error-rate"]
NODE = [
    "incoming-byte-rate",
    "outgoing-byte-rate",
    "request-latency-avg",
    "request-latency-max",
    "request-rate",
    "request-size-avg",
    "request-size-max",
    "response-rate",
]


def test_the_names_and_groups_are_those_of_kafka_python() -> None:
    with producer_in_memory() as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        found = rig.producer.metrics()
        assert set(PRODUCER) <= set(found["producer-metrics"])
        assert set(TOPIC) == set(found["producer-topic-metrics.t"])
        assert set(NODE) == set(found["producer-node-metrics.node-1"])
        raw = rig.producer.metrics(raw=True)
        assert found["kafka-metrics-count"]["count"] == len(raw)
        assert {name.group for name in raw} == {
            "producer-metrics", "producer-topic-metrics", "producer-node-metrics.node-1",
        }  # fmt: skip
        assert {name.tags.get("topic") for name in raw if name.group == "producer-topic-metrics"} == {"t"}


def test_what_was_sent_is_what_is_measured() -> None:
    with producer_in_memory(batch_max_records=50, linger_ms=5) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        for _ in range(99):
            rig.producer.send("t", b"x" * 93)
        rig.flush()
        found = rig.producer.metrics()["producer-metrics"]
        topic = rig.producer.metrics()["producer-topic-metrics.t"]
        assert found["record-send-total"] == 100
        assert found["batch-total"] == found["request-total"] == 3
        assert found["records-per-request-avg"] == pytest.approx(100 / 3)
        assert found["compression-rate-avg"] == topic["compression-rate"] == 1
        assert found["record-send-rate"] == topic["record-send-rate"] == pytest.approx(100 / 30, rel=0.01)
        assert found["batch-size-max"] == pytest.approx(50 * 100, abs=200)
        assert found["record-size-max"] == pytest.approx(100, abs=5)
        assert found["request-size-avg"] == found["batch-size-avg"]
        assert found["connection-count"] >= 1
        assert found["requests-in-flight"] == 0
        assert found["buffer-available-bytes"] == found["buffer-total-bytes"] == 33554432


def test_repetitions_and_failures_are_counted_for_the_topic_too() -> None:
    with producer_in_memory() as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        rig.cluster.faults = [refuse(6), refuse(29)]
        for _ in range(10):
            rig.producer.send("t", b"x")
        rig.flush()
        for group in ("producer-metrics", "producer-topic-metrics.t"):
            found = rig.producer.metrics()[group]
            assert found["record-retry-rate"] > 0
            assert found["record-error-rate"] == found["record-retry-rate"]


def test_without_metrics_nothing_is_measured() -> None:
    with producer_in_memory(metrics_enabled=False) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        assert rig.producer.metrics() == rig.producer.metrics(raw=True) == {}


def test_reporters_get_all_metrics_and_none_breaks_the_producer() -> None:
    reported: list[Any] = []

    class Reporter(AbstractMetricsReporter):
        def configure(self, configs: Any) -> None:
            reported.append(("configure", configs["linger_ms"], [name for name in configs if "password" in name]))

        def metric_change(self, metric: KafkaMetric) -> None:
            reported.append(metric)

        def close(self) -> None:
            reported.append("close")

    class Broken(AbstractMetricsReporter):
        def metric_change(self, metric: KafkaMetric) -> None:
            raise RuntimeError

    with producer_in_memory(metric_reporters=[Broken, Reporter], linger_ms=3) as rig:
        rig.producer.send("t", b"x")
        rig.flush()
        (sent,) = (m for m in reported[1:] if m.metric_name.name == "record-send-total")
        assert sent.value() == 1
    assert reported[0] == ("configure", 3, [])
    assert reported[-1] == "close"


def test_a_rate_is_of_the_last_windows_and_old_ones_are_dropped_whole() -> None:
    sampled = Sampled(2, 30.0, 0.0)
    for second in range(30):
        sampled.record(3, float(second))
    assert sampled.rate(30.0) == pytest.approx(3)
    assert sampled.rate(1.0) == pytest.approx(3), "as if a window had passed"
    sampled.record(9, 59.0)
    assert sampled.average(59.0) == pytest.approx(99 / 31)
    assert sampled.most(59.0) == 9
    sampled.record(1, 95.0)
    assert sampled.most(95.0) == 9
    assert sampled.rate(300.0) == sampled.average(300.0) == sampled.most(300.0) == 0
    assert sampled.total == 100


def test_what_a_node_has_sent_is_counted_on_over_its_next_connection() -> None:
    with producer_in_memory() as rig:
        for _ in range(2):
            rig.producer.send("t", b"x")
            rig.flush()
        metrics, client = rig.producer._driver.metrics, rig.producer._host.client
        assert metrics is not None
        ((node, measured),) = metrics._nodes.items()
        connection = client.connection(node)
        assert connection is not None
        before = measured.incoming.total
        connection.bytes_received = 0  # as that of a new one
        rig.producer.send("t", b"x")
        rig.flush()
        assert measured.incoming.total == before + connection.bytes_received > before

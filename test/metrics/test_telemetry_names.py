"""What metrics are called in telemetry, and how totals are told (KIP-714)."""

from __future__ import annotations

import logging
from math import nan

import pytest

from kafka.client.telemetry import DeltaAccumulator, MetricPoint, telemetry_name
from kafka.metrics import KafkaMetric, MetricName


# Seen in pushes of Java's client 4.3.0; the first column is what kafka-python calls them.
@pytest.mark.parametrize(
    ("group", "name", "tags", "told", "attributes"),
    [
        ("producer-metrics", "record-queue-time-avg", {}, "producer.record.queue.time.avg", {}),
        ("producer-node-metrics.node-1", "request-latency-max", {}, "producer.node.request.latency.max",
         {"node_id": "node-1"}),
        ("producer-topic-metrics", "byte-rate", {"topic": "T-1"}, "producer.topic.byte.rate", {"topic": "T-1"}),
        ("consumer-metrics", "poll-idle-ratio-avg", {}, "consumer.poll.idle.ratio.avg", {}),
        ("consumer-coordinator-metrics", "rebalance-latency-total", {}, "consumer.coordinator.rebalance.latency.total",
         {}),
        ("consumer-fetch-manager-metrics", "records-lag", {"topic": "t", "partition": "0"},
         "consumer.fetch.manager.records.lag", {"topic": "t", "partition": "0"}),
        ("my-App", "Queue-depth", {"queue-name": "q"}, "my.app.queue.depth", {"queue_name": "q"}),
    ],
)  # fmt: skip
def test_names_are_those_of_java(
    group: str, name: str, tags: dict[str, str], told: str, attributes: dict[str, str]
) -> None:
    found = telemetry_name(MetricName(name, group, None, {"client-id": "me", **tags}))
    assert found == (f"org.apache.kafka.{told}", attributes)


class Metrics:
    """A total and a gauge whose values are set by hand."""

    def __init__(self) -> None:
        self.values = {"sent-total": 0.0, "size-avg": 0.0}
        self.all = [
            KafkaMetric(MetricName(name, "x-metrics"), lambda name=name: self.values[name], name.endswith("total"))  # type: ignore[misc]
            for name in self.values
        ]


def everything(name: str) -> bool:
    return True


def test_a_total_is_sent_as_the_difference_since_the_last_push() -> None:
    metrics, ledger = Metrics(), DeltaAccumulator(now_ns=1000)
    metrics.values["sent-total"] = 5
    first = ledger.collect(metrics.all, everything, True, 2000)
    metrics.values["sent-total"] = 7
    second = ledger.collect(metrics.all, everything, True, 3000)
    name = "org.apache.kafka.x.sent.total"
    assert first[0] == MetricPoint(name, {}, 5, 2000, 1000, True)
    assert second[0] == MetricPoint(name, {}, 2, 3000, 2000, True)
    assert second[1] == MetricPoint("org.apache.kafka.x.size.avg", {}, 0, 3000), "a gauge is as it is"


def test_a_total_is_sent_as_it_is_with_its_beginning_when_the_broker_asks_for_that() -> None:
    metrics, ledger = Metrics(), DeltaAccumulator(now_ns=1000)
    metrics.values["sent-total"] = 5
    ledger.collect(metrics.all, everything, False, 2000)
    metrics.values["sent-total"] = 7
    assert ledger.collect(metrics.all, everything, False, 3000)[0][2:] == (7, 3000, 1000, False)


def test_another_way_of_telling_begins_anew() -> None:
    metrics, ledger = Metrics(), DeltaAccumulator(now_ns=1000)
    metrics.values["sent-total"] = 5
    ledger.collect(metrics.all, everything, True, 2000)
    assert ledger.collect(metrics.all, everything, False, 3000)[0][2:] == (5, 3000, 3000, False)
    metrics.values["sent-total"] = 6
    assert ledger.collect(metrics.all, everything, True, 4000)[0].value == 6


def test_a_total_that_went_back_counts_from_nothing() -> None:
    metrics, ledger = Metrics(), DeltaAccumulator(now_ns=0)
    metrics.values["sent-total"] = 5
    ledger.collect(metrics.all, everything, True, 1)
    metrics.values["sent-total"] = 1
    assert ledger.collect(metrics.all, everything, True, 2)[0].value == 1


def test_only_what_is_requested_is_read() -> None:
    def read() -> float:
        raise AssertionError

    metrics = [KafkaMetric(MetricName("a", "x-metrics"), read)]
    assert DeltaAccumulator(0).collect(metrics, lambda name: False, True, 1) == []


def test_metrics_without_a_number_are_left_out_and_the_rest_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> float:
        raise RuntimeError("broken")

    metrics = [
        KafkaMetric(MetricName("a", "x"), fail),
        KafkaMetric(MetricName("b", "x"), lambda: nan),
        KafkaMetric(MetricName("c", "x"), lambda: "text"),  # type: ignore[arg-type, return-value]
        KafkaMetric(MetricName("d", "x"), lambda: 1),
    ]
    with caplog.at_level(logging.WARNING):
        found = DeltaAccumulator(0).collect(metrics, everything, True, 1)
    assert [point.name for point in found] == ["org.apache.kafka.x.d"]
    assert "broken" in caplog.text


def test_a_metric_that_is_gone_is_forgotten() -> None:
    metrics, ledger = Metrics(), DeltaAccumulator(now_ns=0)
    metrics.values["sent-total"] = 5
    ledger.collect(metrics.all, everything, True, 1)
    ledger.collect([], everything, True, 2)
    assert ledger.collect(metrics.all, everything, True, 3)[0].value == 5, "one of the same name is another one"

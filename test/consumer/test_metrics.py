"""What a consumer measures, under kafka-python's names; and interceptors (KIP-42)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.interceptors import ConsumerInterceptor
from kafka.errors import KafkaConfigurationError
from kafka.metrics import AbstractMetricsReporter, KafkaMetric
from kafka.testing import EmbeddedBroker

# Seen in kafka-python 3.0.12.
CONSUMER = {
    "connection-close-rate", "connection-count", "connection-creation-rate", "incoming-byte-rate", "network-io-rate",
    "outgoing-byte-rate", "request-latency-avg", "request-latency-max", "request-rate", "request-size-avg",
    "request-size-max", "response-rate", "throttle-time-avg", "throttle-time-max",
}  # fmt: skip
FETCHES = {
    "bytes-consumed-rate", "fetch-latency-avg", "fetch-latency-max", "fetch-rate", "fetch-size-avg", "fetch-size-max",
    "records-consumed-rate", "records-lag-max", "records-per-request-avg",
}  # fmt: skip
GROUP = {
    "assigned-partitions", "commit-latency-avg", "commit-latency-max", "commit-rate", "heartbeat-rate",
    "heartbeat-response-time-max", "join-rate", "join-time-avg", "join-time-max", "last-heartbeat-seconds-ago",
    "sync-rate", "sync-time-avg", "sync-time-max",
}  # fmt: skip
NODE = {
    "incoming-byte-rate", "outgoing-byte-rate", "request-latency-avg", "request-latency-max", "request-rate",
    "request-size-avg", "request-size-max", "response-rate", "throttle-time-avg", "throttle-time-max",
}  # fmt: skip
FETCH = "consumer-fetch-manager-metrics"
MEMBER = "consumer-coordinator-metrics"
COUNT = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True, topics={"t": 2}) as running:
        running.fill("t", [b"x" * 50] * COUNT, partition=0)
        yield running


def reader(broker: EmbeddedBroker, **settings: Any) -> KafkaConsumer:
    return KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings)


def read_all(consumer: KafkaConsumer, count: int = COUNT) -> int:
    found = 0
    while found < count:
        found += sum(map(len, consumer.poll(30_000).values()))
    return found


def test_the_names_and_groups_are_those_of_kafka_python(broker: EmbeddedBroker) -> None:
    with reader(broker, group_id="names") as consumer:
        consumer.subscribe(["t"])
        read_all(consumer)
        consumer.commit()
        found = consumer.metrics()
        raw = consumer.metrics(raw=True)
    assert set(found["consumer-metrics"]) >= CONSUMER
    assert set(found[FETCH]) >= FETCHES
    assert set(found[MEMBER]) >= GROUP
    assert set(found["consumer-node-metrics.node-1"]) >= NODE
    assert set(found[f"{FETCH}.t"]) >= {"fetch-size-avg", "records-consumed-rate", "bytes-consumed-rate"}
    assert set(found[f"{FETCH}.t-0"]) == {
        "records-lag", "records-lag-avg", "records-lag-max", "records-lead", "records-lead-avg",
    }  # fmt: skip
    assert found["kafka-metrics-count"]["count"] == len(raw)


def test_what_was_read_is_what_is_measured(broker: EmbeddedBroker) -> None:
    with reader(broker, max_poll_records=5) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer, 5)
        found = consumer.metrics()
        assert found[FETCH]["records-consumed-total"] == found[f"{FETCH}.t"]["records-consumed-total"] == 5
        assert found[FETCH]["records-lag-max"] == found[f"{FETCH}.t-0"]["records-lag"] == COUNT - 5
        assert found[f"{FETCH}.t-0"]["records-lead"] == 5
        read_all(consumer, COUNT - 5)
        found = consumer.metrics()
        assert found[FETCH]["records-consumed-total"] == COUNT
        assert found[FETCH]["records-lag-max"] == 0
        assert found[FETCH]["bytes-consumed-total"] > COUNT * 50
        assert found[FETCH]["fetch-total"] >= 1
        assert found["consumer-metrics"]["request-total"] >= found[FETCH]["fetch-total"]
        assert found["consumer-metrics"]["request-size-avg"] > 0
        assert found["consumer-metrics"]["incoming-byte-total"] > COUNT * 50
        assert 0 <= found["consumer-metrics"]["poll-idle-ratio-avg"] <= 1
        assert MEMBER not in found, "there is no group"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_membership_is_measured_with_either_protocol(broker: EmbeddedBroker, protocol: str) -> None:
    with reader(broker, group_id=f"member-{protocol}", group_protocol=protocol) as consumer:
        consumer.subscribe(["t"])
        read_all(consumer)
        consumer.commit()
        found = consumer.metrics()[MEMBER]
        assert found["assigned-partitions"] == 2
        assert found["commit-total"] >= 1 and found["commit-latency-max"] > 0
        assert found["rebalance-total"] >= 1 and found["rebalance-latency-total"] > 0
        assert found["last-rebalance-seconds-ago"] >= 0
        if protocol == "consumer":
            assert found["heartbeat-total"] >= 1 and found["last-heartbeat-seconds-ago"] >= 0
        else:
            assert found["join-total"] >= 1 and found["sync-total"] == 1


def test_metrics_of_partitions_go_with_their_assignment(broker: EmbeddedBroker) -> None:
    with reader(broker) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer)
        assert f"{FETCH}.t-0" in consumer.metrics()
        broker.fill("t", [b"y"], partition=1)
        consumer.assign([TopicPartition("t", 1)])
        read_all(consumer, 1)
        found = consumer.metrics()
        assert f"{FETCH}.t-1" in found and f"{FETCH}.t-0" not in found


def test_without_metrics_nothing_is_measured(broker: EmbeddedBroker) -> None:
    with reader(broker, metrics_enabled=False) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer)
        assert consumer.metrics() == consumer.metrics(raw=True) == {}


def test_reporters_get_metrics_that_are_added_and_removed(broker: EmbeddedBroker) -> None:
    reported: list[Any] = []

    class Reporter(AbstractMetricsReporter):
        def metric_change(self, metric: KafkaMetric) -> None:
            reported.append(metric.metric_name.name)

        def close(self) -> None:
            reported.append("close")

    with reader(broker, metric_reporters=[Reporter]) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer)
    assert {"records-lag", "fetch-rate", "request-rate"} <= set(reported) and reported[-1] == "close"


# -- interceptors ------------------------------------------------------------------------------------------------------


class Seen(ConsumerInterceptor):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records = 0
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.is_closed = False

    def on_consume(self, records: Any) -> Any:
        self.records += sum(map(len, records.values()))
        return records

    def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)

    def close(self) -> None:
        self.is_closed = True


def test_interceptors_see_what_is_handed_out_and_what_was_committed(broker: EmbeddedBroker) -> None:
    seen = Seen()
    with reader(broker, group_id="seen", interceptors=[seen]) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer)
        assert seen.records == COUNT
        consumer.commit()
        assert [found[TopicPartition("t", 0)].offset for found in seen.commits] == [COUNT]
        consumer.commit_async({TopicPartition("t", 0): 3}).wait(30)
        consumer.poll(0)
        assert seen.commits[-1][TopicPartition("t", 0)].offset == 3
    assert seen.is_closed


def test_one_after_another_gets_the_records_as_the_one_before_has_left_them(broker: EmbeddedBroker) -> None:
    class First:
        def on_consume(self, records: Any) -> Any:
            return {partition: batch[:1] for partition, batch in records.items()}

    second = Seen()
    with reader(broker, interceptors=[First, second], max_poll_records=COUNT) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        ((_, batch),) = consumer.poll(30_000).items()
        assert len(batch) == second.records == 1
        assert consumer.position(TopicPartition("t", 0)) == COUNT, "what was left out counts as consumed"


def test_iteration_goes_through_interceptors_too(broker: EmbeddedBroker) -> None:
    seen = Seen()
    with reader(broker, interceptors=[seen], consumer_timeout_ms=30_000) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        for number, _ in enumerate(consumer, 1):
            if number == COUNT:
                break
    assert seen.records == COUNT


@pytest.mark.parametrize("answer", [None, "raise"])
def test_an_error_in_one_is_logged_and_changes_nothing(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    class Broken:
        def on_consume(self, records: Any) -> Any:
            if answer == "raise":
                raise RuntimeError("broken")

        def on_commit(self, offsets: Any) -> None:
            raise RuntimeError("broken")

        def close(self) -> None:
            raise RuntimeError("broken")

    seen = Seen()
    group_id = f"broken-{answer}"
    with (
        caplog.at_level(logging.ERROR),
        reader(broker, group_id=group_id, interceptors=[Broken(), seen]) as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        read_all(consumer)
        consumer.commit()
    assert seen.records == COUNT and seen.commits and seen.is_closed
    for method in ("on_consume", "on_commit", "close"):
        assert f"interceptor's {method} raised" in caplog.text


def test_what_has_none_of_the_methods_is_refused() -> None:
    with pytest.raises(KafkaConfigurationError, match="on_consume"):
        KafkaConsumer(interceptors=[object()])

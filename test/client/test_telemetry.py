"""Metrics that clients push to a broker that asks for them (KIP-714, KIP-1076), end to end."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.client import telemetry
from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaTimeoutError
from kafka.metrics import KafkaMetric, MetricName
from kafka.net.loop import Loop
from kafka.testing import EmbeddedBroker

metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="the extra telemetry")

PREFIX = "org.apache.kafka."
INTERVAL_MS = 100
WAIT_S = 60.0

# The metrics that KIP-714 asks of every client.
OF_PRODUCERS = {
    "producer.connection.creation.rate", "producer.connection.creation.total", "producer.node.request.latency.avg",
    "producer.node.request.latency.max", "producer.produce.throttle.time.avg", "producer.produce.throttle.time.max",
    "producer.record.queue.time.avg", "producer.record.queue.time.max",
}  # fmt: skip
OF_CONSUMERS = {
    "consumer.connection.creation.rate", "consumer.connection.creation.total", "consumer.node.request.latency.avg",
    "consumer.node.request.latency.max", "consumer.poll.idle.ratio.avg", "consumer.coordinator.commit.latency.avg",
    "consumer.coordinator.commit.latency.max", "consumer.coordinator.assigned.partitions",
    "consumer.coordinator.rebalance.latency.avg", "consumer.coordinator.rebalance.latency.max",
    "consumer.coordinator.rebalance.latency.total", "consumer.fetch.manager.fetch.latency.avg",
    "consumer.fetch.manager.fetch.latency.max",
}  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(telemetry=True, in_process=True, topics=["t"]) as running:
        yield running


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """One that nobody is asked for metrics by, until a test says so."""
    yield shared
    for name in ("test", "other"):
        shared.pushed.unsubscribe(name)
    shared.pushed.tell_totals(as_delta=True)


class Told:
    """A push, decoded."""

    def __init__(self, data: bytes) -> None:
        (of_client,) = metrics_pb2.MetricsData.FromString(data).resource_metrics
        (scope,) = of_client.scope_metrics
        self.resource = {each.key: each.value.string_value for each in of_client.resource.attributes}
        self.metrics = {each.name.removeprefix(PREFIX): each for each in scope.metrics}

    def points(self, name: str) -> Any:
        metric = self.metrics[name]
        return getattr(metric, metric.WhichOneof("data")).data_points

    def value(self, name: str) -> float:
        (point,) = self.points(name)
        return float(point.as_double)


def pushed(broker: EmbeddedBroker, client_id: str, n: int = 1, **match: Any) -> list[Told]:
    return [Told(each.metrics) for each in broker.pushed.find(client_id=client_id, n=n, timeout=WAIT_S, **match)]


def next_pushed(broker: EmbeddedBroker, client_id: str) -> Told:
    """One whose values were taken after this call: the next but one, since the next may be on its way."""
    seen = len(broker.pushed.find(client_id=client_id))
    return Told(broker.pushed.find(client_id=client_id, n=seen + 2, timeout=WAIT_S)[-1].metrics)


def test_a_producer_pushes_what_the_broker_wants_and_a_last_time_when_it_is_closed(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe("org.apache.kafka.producer.", INTERVAL_MS, match="client_id=p1")
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="p1") as producer:
        instance = producer.client_instance_id()
        producer.send("t", b"x").get(WAIT_S)
        seen = broker.pushed.find(client_id="p1", n=2, timeout=WAIT_S)
        assert {push.client_instance_id for push in seen} == {instance}
        assert {push.compression_type for push in seen} == {"zstd"}
        assert not any(push.is_terminating for push in seen)
    *_, last = broker.pushed.find(client_id="p1", is_terminating=True, n=1, timeout=WAIT_S)
    received = Told(last.metrics)
    assert set(received.metrics) >= OF_PRODUCERS
    assert all(name.startswith("producer.") for name in received.metrics)
    (node,) = received.points("producer.node.request.latency.avg")
    assert [(each.key, each.value.string_value) for each in node.attributes] == [("node_id", "node-1")]
    (topic,) = received.points("producer.topic.record.send.rate")
    assert [(each.key, each.value.string_value) for each in topic.attributes] == [("topic", "t")]


def test_a_consumer_pushes_what_the_kip_asks_for_and_says_which_group_it_is_of(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(["org.apache.kafka.consumer."], INTERVAL_MS, match="client_id=c1")
    broker.fill("t", [b"a", b"b"])
    with KafkaConsumer(
        "t", bootstrap_servers=broker.bootstrap, client_id="c1", group_id="telemetry", auto_offset_reset="earliest"
    ) as consumer:
        while not consumer.poll(1000):
            pass
        consumer.commit()
    (told,) = pushed(broker, "c1", is_terminating=True)
    assert set(told.metrics) >= OF_CONSUMERS
    assert told.resource["group_id"] == "telemetry" and told.resource["group_member_id"]
    (lag,) = told.points("consumer.fetch.manager.records.lag")
    assert {each.key: each.value.string_value for each in lag.attributes} == {"topic": "t", "partition": "0"}
    commits = sum(each.value("consumer.coordinator.commit.total") for each in pushed(broker, "c1"))
    assert commits >= 1


def share_consumer(**settings: Any) -> KafkaShareConsumer:
    return KafkaShareConsumer("t", group_id="telemetry-share", **settings)


@pytest.mark.parametrize(
    ("make", "metric"),
    [
        (KafkaAdminClient, "admin.client.request.total"),
        (share_consumer, "consumer.share.coordinator.heartbeat.total"),
        (KafkaConsumer, "consumer.request.total"),
    ],
)
def test_every_client_has_an_id_and_pushes(broker: EmbeddedBroker, make: Callable[..., Any], metric: str) -> None:
    broker.pushed.subscribe(interval_ms=INTERVAL_MS, match="client_id=every")
    with make(bootstrap_servers=broker.bootstrap, client_id="every") as client:
        instance = client.client_instance_id(WAIT_S * 1000)
        (first,) = broker.pushed.find(client_instance_id=instance, n=1, timeout=WAIT_S)[:1]
    assert metric in Told(first.metrics).metrics
    last = broker.pushed.find(client_instance_id=instance)[-1]
    assert last.is_terminating


def test_totals_are_what_was_added_since_the_last_push(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(interval_ms=INTERVAL_MS, match="client_id=delta")
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="delta") as producer:
        for _ in range(3):
            producer.send("t", b"x").get(WAIT_S)
        pushed(broker, "delta", n=2)
        producer.send("t", b"x").get(WAIT_S)
    received = pushed(broker, "delta")
    name = "producer.record.send.total"
    metric = received[0].metrics[name]
    assert metric.sum.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_DELTA and metric.sum.is_monotonic
    assert sum(each.value(name) for each in received) == 4
    for before, after in zip(received, received[1:], strict=False):
        (first,), (second,) = before.points(name), after.points(name)
        assert first.time_unix_nano == second.start_time_unix_nano


def test_totals_are_sent_as_they_are_when_the_broker_asks_for_that(broker: EmbeddedBroker) -> None:
    broker.pushed.tell_totals(as_delta=False)
    broker.pushed.subscribe(interval_ms=INTERVAL_MS, match="client_id=cumulative")
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="cumulative") as producer:
        for _ in range(3):
            producer.send("t", b"x").get(WAIT_S)
        pushed(broker, "cumulative", n=2)
        producer.send("t", b"x").get(WAIT_S)
    received = pushed(broker, "cumulative")
    name = "producer.record.send.total"
    metric = received[-1].metrics[name].sum
    assert metric.aggregation_temporality == metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert received[-1].value(name) == 4
    assert len({each.points(name)[0].start_time_unix_nano for each in received}) == 1, "the same beginning"


def test_a_changed_subscription_is_found_out_with_the_next_push(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(["org.apache.kafka.producer.record."], INTERVAL_MS, match="client_id=changed")
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="changed"):
        (first, *_) = pushed(broker, "changed")
        assert all(name.startswith("producer.record") for name in first.metrics)
        broker.pushed.subscribe(["org.apache.kafka.producer.buffer."], INTERVAL_MS, match="client_id=changed")
        received = next_pushed(broker, "changed")
        assert set(received.metrics) == {"producer.buffer.available.bytes", "producer.buffer.total.bytes"}
        broker.pushed.subscribe(["org.apache.kafka.producer.waiting"], INTERVAL_MS, "client_id=changed", name="other")
        assert len(next_pushed(broker, "changed").metrics) == 3, "what several want together"


def test_metrics_of_the_application_are_pushed_along(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(["org.apache.kafka.my.app."], INTERVAL_MS, match="client_id=app")
    depth = KafkaMetric(MetricName("depth", "my-app", tags={"queue-name": "q"}), lambda: 7)
    done = KafkaMetric(MetricName("done-total", "my-app"), lambda: 5, is_total=True)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="app") as producer:
        for metric in (depth, done):
            producer.register_metric_for_subscription(metric)
        received = next_pushed(broker, "app")
        assert set(received.metrics) == {"my.app.depth", "my.app.done.total"}
        assert received.value("my.app.depth") == 7
        told_of = [each for each in pushed(broker, "app") if "my.app.done.total" in each.metrics]
        assert sum(each.value("my.app.done.total") for each in told_of) == 5, "each push tells what was added"
        (point,) = received.points("my.app.depth")
        assert [(each.key, each.value.string_value) for each in point.attributes] == [("queue_name", "q")]
        producer.unregister_metric_from_subscription(done)
        assert set(next_pushed(broker, "app").metrics) == {"my.app.depth"}


def test_a_metric_of_the_application_does_not_stand_for_one_of_the_client(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="own") as producer:
        name = next(iter(producer.metrics(raw=True)))
        producer.register_metric_for_subscription(KafkaMetric(name, lambda: 0))
        assert "cannot register" in caplog.text
        with pytest.raises(TypeError, match="KafkaMetric is needed"):
            producer.register_metric_for_subscription(object())  # type: ignore[arg-type]


def test_what_does_not_fit_is_left_out_and_the_client_as_a_whole_comes_first() -> None:
    points = [
        telemetry.MetricPoint(f"n.{number}", {"topic": "t" * 40} if number else {}, number, 1) for number in range(100)
    ]
    data = telemetry._fitting(points, {}, 0, 1000)
    found = metrics_pb2.MetricsData.FromString(data).resource_metrics[0].scope_metrics[0].metrics
    assert len(data) <= 1000 and 1 < len(found) < 100
    assert found[0].name == "n.0"
    assert telemetry._fitting(points, {}, 0, 3) == b""


def test_a_client_whose_broker_went_away_goes_on_with_the_next_one(tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path, telemetry=True, topics=["t"]) as broker:
        broker.pushed.subscribe(interval_ms=INTERVAL_MS)
        with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="r") as producer:
            instance = producer.client_instance_id(WAIT_S * 1000)
            pushed(broker, "r")
            broker.kill()
            broker.restart()
            assert broker.pushed.find(client_instance_id=instance, n=2, timeout=WAIT_S), "with the id that it had"


def test_a_broker_that_does_not_offer_it_is_asked_for_nothing() -> None:
    with EmbeddedBroker(in_process=True, topics=["t"]) as broker:
        with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
            producer.send("t", b"x").get(WAIT_S)
            with pytest.raises(KafkaTimeoutError, match="does it offer telemetry"):
                producer.client_instance_id(0)
        assert not [each for each in broker.requests if "Telemetry" in each.api]
        with pytest.raises(IllegalArgumentError, match="telemetry=True"):
            broker.pushed.find()


def test_it_is_off_by_one_setting(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(interval_ms=INTERVAL_MS)
    seen = broker.requests.count
    with KafkaProducer(bootstrap_servers=broker.bootstrap, enable_metrics_push=False) as producer:
        producer.send("t", b"x").get(WAIT_S)
        producer.register_metric_for_subscription(KafkaMetric(MetricName("a", "b"), lambda: 1))
        with pytest.raises(IllegalStateError, match="enable_metrics_push is False"):
            producer.client_instance_id()
    assert not [each for each in broker.requests.find(after=seen) if "Telemetry" in each.api]


def test_without_the_extra_nothing_is_pushed_and_that_is_reported_once(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    monkeypatch.setattr(telemetry, "_logged", set())
    seen = broker.requests.count
    with caplog.at_level(logging.INFO, "kafka.client.telemetry"):
        for _ in range(2):
            with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send("t", b"x").get(WAIT_S)
                with pytest.raises(IllegalStateError, match=r"kafka-taskloop\[telemetry\]"):
                    producer.client_instance_id()
    assert len([each for each in caplog.records if "opentelemetry-proto" in each.getMessage()]) == 1
    assert not [each for each in broker.requests.find(after=seen) if "Telemetry" in each.api]


def test_a_negative_timeout_is_refused(broker: EmbeddedBroker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    with producer, pytest.raises(IllegalArgumentError, match="at least 0"):
        producer.client_instance_id(-1)


def test_on_a_loop_the_last_push_goes_out_before_the_client_is_closed(broker: EmbeddedBroker) -> None:
    broker.pushed.subscribe(interval_ms=INTERVAL_MS, match="client_id=loop")
    loop = Loop()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="loop", loop=loop)
    try:
        sent = producer.send("t", b"x")
        loop.run_until(producer.flush_async())
        assert sent.get(0)
        assert producer._telemetry is not None
        loop.run_until(producer._telemetry.instance_id())
        loop.run_until(producer.close_async())
    finally:
        loop.close()
    assert broker.pushed.find(client_id="loop", is_terminating=True, n=1, timeout=WAIT_S)


def test_a_client_that_is_closed_while_the_broker_hangs_is_not_held_up_for_long(tmp_path: Any) -> None:
    with EmbeddedBroker(tmp_path, telemetry=True, topics=["t"]) as broker:
        broker.pushed.subscribe(interval_ms=INTERVAL_MS)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="h")
        producer.client_instance_id(WAIT_S * 1000)
        with paused(broker):
            producer.close(timeout=0.2)


def paused(broker: EmbeddedBroker) -> AbstractContextManager[None]:
    @contextlib.contextmanager
    def hold() -> Iterator[None]:
        broker.pause()
        try:
            yield
        finally:
            broker.resume()

    return hold()


def test_no_client_loads_protobuf_before_a_broker_wants_metrics() -> None:
    code = "import sys, kafka; kafka.KafkaProducer; kafka.KafkaConsumer; print('google.protobuf' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"

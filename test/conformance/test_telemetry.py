"""Telemetry (KIP-714) with the originals: our clients and an Apache Kafka with a plug-in that takes what is pushed,
Java's client and the embedded broker, and the same requests to both brokers."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.client import KafkaClient
from kafka.core.routing import AnyNode
from kafka.protocol.telemetry import GetTelemetrySubscriptionsRequest, PushTelemetryRequest
from kafka.testing import EmbeddedBroker
from kafka.wire.types import ZERO_UUID
from test.conformance.reading import take
from test.support import jars, telemetry_plugin
from test.support.apache_kafka import LATEST, ApacheKafka, refuse, require_apache_kafka
from test.support.optional import needs_re2
from test.support.waiting import WITHIN_S, eventually, until

metrics_pb2 = pytest.importorskip("opentelemetry.proto.metrics.v1.metrics_pb2", reason="the extra telemetry")


class Plugged(NamedTuple):
    """A broker that takes metrics. ``pushed()``: what came, as (client instance, last one, metrics)."""

    bootstrap: str
    pushed: Callable[[], list[tuple[UUID, bool, bytes]]]


@pytest.fixture(scope="module", params=["embedded", "apache"])
def plugged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plugged]:
    if request.param == "embedded":
        with EmbeddedBroker(telemetry=True) as broker:
            yield Plugged(
                broker.bootstrap,
                lambda: [(one.client_instance_id, one.is_terminating, one.metrics) for one in broker.pushed.find()],
            )
        return
    require_apache_kafka()
    try:
        classes = telemetry_plugin.compiled(LATEST)
    except jars.Unavailable as reason:
        refuse(str(reason))
    directory = tmp_path_factory.mktemp("pushes")
    with ApacheKafka(settings=telemetry_plugin.settings(directory), plugins=[classes]) as apache:
        yield Plugged(apache.bootstrap, lambda: [tuple(one) for one in telemetry_plugin.pushes(directory)])  # type: ignore[misc]


def subscribe(bootstrap: str, name: str, **values: str) -> None:
    """Ask clients for metrics."""
    configs = {key.replace("_", "."): value for key, value in values.items()}
    with KafkaAdminClient(bootstrap_servers=bootstrap, enable_metrics_push=False) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.CLIENT_METRICS, name, configs)])


def names_of(data: bytes) -> set[str]:
    """What a push tells of, with the ways in which it is told."""
    return {
        f"{metric.name} {metric.WhichOneof('data')}"
        for of_client in metrics_pb2.MetricsData.FromString(data).resource_metrics
        for scope in of_client.scope_metrics
        for metric in scope.metrics
    }


def wait_for_last(plugged: Plugged, instance: UUID) -> list[bytes]:
    """All pushes of a client whose last one has come."""
    until(lambda: any(one[0] == instance and one[1] for one in plugged.pushed()))
    return [metrics for other, _, metrics in plugged.pushed() if other == instance]


@needs_re2
def test_a_producer_and_a_consumer_push_to_a_broker_that_wants_metrics(
    plugged: Plugged, unique: Callable[[str], str]
) -> None:
    topic, client_id = unique("topic"), unique("client")
    subscribe(plugged.bootstrap, client_id, metrics="*", interval_ms="100", match=f"client_id={client_id}")
    settings: dict[str, Any] = {"bootstrap_servers": plugged.bootstrap, "client_id": client_id}
    with KafkaProducer(**settings) as producer:
        made_by = producer.client_instance_id(WITHIN_S * 1000)
        producer.send(topic, b"x").get(WITHIN_S)
        until(lambda: any(one[0] == made_by for one in plugged.pushed()))
    assert "org.apache.kafka.producer.record.send.total sum" in names_of(wait_for_last(plugged, made_by)[-1])
    with KafkaConsumer(topic, group_id=client_id, auto_offset_reset="earliest", **settings) as consumer:
        read_by = consumer.client_instance_id(WITHIN_S * 1000)
        take(consumer, 1)
    assert "org.apache.kafka.consumer.fetch.manager.records.lag gauge" in names_of(wait_for_last(plugged, read_by)[-1])


class Asker:
    """Requests by hand, and the codes of their answers."""

    def __init__(self, bootstrap: str) -> None:
        self.client = KafkaClient(bootstrap_servers=bootstrap)
        self.instance = ZERO_UUID
        self.number = 0

    def get(self) -> tuple[int, list[str], int]:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.instance)
        future = self.client.request(AnyNode(), request)
        self.client.loop.run_until(future)
        answer = future.result()
        if not answer.error_code:
            self.instance, self.number = answer.client_instance_id, answer.subscription_id
        return answer.error_code, sorted(answer.requested_metrics), answer.push_interval_ms

    def push(
        self,
        data: bytes = b"",
        *,
        number: int | None = None,
        last: bool = False,
        codec: int = 0,
        given: UUID | None = None,
    ) -> int:
        request = PushTelemetryRequest(
            client_instance_id=self.instance if given is None else given,
            subscription_id=self.number if number is None else number,
            terminating=last,
            compression_type=codec,
            metrics=data,
        )
        future = self.client.request(AnyNode(), request)
        self.client.loop.run_until(future)
        return future.result().error_code


INTERVAL_S = 0.3


@needs_re2
def test_every_rule_about_who_may_push_when_is_kafkas(plugged: Plugged, unique: Callable[[str], str]) -> None:
    """What each step is answered was measured on Apache Kafka 4.3.0."""
    name = unique("rules")
    asker = Asker(plugged.bootstrap)
    try:
        match = f"client_id={asker.client.config['client_id']}"
        subscribe(plugged.bootstrap, name, metrics="m.", interval_ms=str(int(INTERVAL_S * 1000)), match=match)
        subscription = (0, ["m."], int(INTERVAL_S * 1000))

        def first() -> tuple[int, list[str], int]:
            asker.instance = ZERO_UUID
            return asker.get()

        def second() -> int:
            """Asked at once after a first one."""
            pause()
            began = time.monotonic()
            assert asker.get() == subscription
            code = asker.get()[0]
            assert code == 89 or time.monotonic() - began >= INTERVAL_S
            return code

        eventually(first, subscription)  # a broker hears of a new setting a little later
        eventually(second, 89)  # 0 when the machine was so slow that the interval has passed
        assert asker.push() == 0
        pause()
        assert asker.push(number=asker.number + 1) == 117
        assert asker.get() == subscription, "who was refused for that may ask at once"
        assert asker.push(codec=9) in (76, 89), "89 in the same millisecond"
        pause()
        assert asker.push(b"x" * 1_048_577) == 118
        pause()
        assert asker.push(b"garbage", codec=1) == 87
        pause()
        assert asker.push(b"garbage") == 0
        assert asker.push(given=ZERO_UUID) == asker.push(given=UUID(int=1)) == 42
        assert asker.push(last=True) == 0, "the last one may be early"
        assert asker.push() == 42
    finally:
        asker.client.close()


def pause() -> None:
    """Until the interval has passed, by the broker's clock: no event tells of it."""
    time.sleep(INTERVAL_S + 0.02)


def test_javas_producer_pushes_to_the_embedded_broker_under_the_names_that_ours_has() -> None:
    require_apache_kafka()
    if shutil.which("java") is None:
        refuse("Java is not installed")
    try:
        classpath = jars.tools_classpath()
    except jars.Unavailable as reason:
        refuse(str(reason))
    with EmbeddedBroker(telemetry=True, topics=["t"]) as broker:
        broker.pushed.subscribe(interval_ms=100)
        command = [
            "java", "-XX:TieredStopAtLevel=1", "-cp", classpath, "org.apache.kafka.tools.ProducerPerformance",
            "--topic", "t", "--num-records", "1000000", "--record-size", "10", "--throughput", "200",
            "--bootstrap-server", broker.bootstrap,
        ]  # fmt: skip
        tool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            pushed = broker.pushed.find(client_id="perf-producer-client", n=10, timeout=WITHIN_S)
        finally:
            tool.kill()
            tool.wait()
        with KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="ours") as producer:
            producer.client_instance_id(WITHIN_S * 1000)
            producer.send("t", b"x").get(WITHIN_S)
        ours = broker.pushed.find(client_id="ours", is_terminating=True, n=1, timeout=WITHIN_S)[-1]
    assert {java.compression_type for java in pushed} == {ours.compression_type} == {"zstd"}
    only_here = names_of(ours.metrics) - {name for java in pushed for name in names_of(java.metrics)}
    assert {name.removeprefix("org.apache.kafka.producer.") for name in only_here} == {
        "batch.total sum", "byte.rate gauge", "byte.total sum", "throttle.time.avg gauge", "throttle.time.max gauge",
    }, "kafka-python's, and ours"  # fmt: skip


def test_a_plain_apache_kafka_offers_no_telemetry(bootstrap: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        client = producer._host.client
        producer.partitions_for("t")
        ranges = [connection.ranges for connection in client.connections() if connection.ranges is not None]
    assert ranges and not any(71 in each or 72 in each for each in ranges)

"""One connection is lost after the other, at every request of a client's life: nobody gives up before his time is over.

Each client is used again and again, and each time another one of its requests is lost, or its answer is, until a use
had none left to lose.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka import KafkaAdminClient, KafkaClient, KafkaConsumer, KafkaProducer, KafkaShareConsumer
from kafka.admin import ConfigResource
from kafka.tasks import App
from kafka.testing import EmbeddedBroker, running_worker

Use = Callable[[EmbeddedBroker, str], None]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = broker.create_topic(f"topic-{uuid.uuid4().hex[:8]}")
    broker.fill(name, ["x"] * 100)
    return name


def send_one(broker: EmbeddedBroker, topic: str) -> None:
    with KafkaProducer(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as producer:
        producer.send(topic, b"x").get(30)


def read_one(broker: EmbeddedBroker, topic: str) -> None:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=10
    )
    try:
        assert consumer.poll(timeout_ms=20_000)
    finally:
        consumer.close()


def share_one(broker: EmbeddedBroker, topic: str) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as admin:
        admin.alter_configs([ConfigResource("GROUP", group, {"share.auto.offset.reset": "earliest"})])
    with KafkaShareConsumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=group, retry_backoff_ms=10
    ) as consumer:
        assert consumer.poll(timeout_ms=20_000)


def look_around(broker: EmbeddedBroker, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as admin:
        assert topic in admin.list_topics()
        assert admin.describe_topics([topic])[0]["name"] == topic
        assert len(admin.describe_cluster()["brokers"]) == 1
        assert isinstance(admin.list_groups(), list)
        assert admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        admin.wait_for_topics([topic])


def ask_for_the_version(broker: EmbeddedBroker, topic: str) -> None:
    with KafkaClient(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as client:
        assert client.check_version() == "4.3"


def add(a: int, b: int) -> int:
    return a + b


def run_a_job(broker: EmbeddedBroker, topic: str) -> None:
    app = App(f"app-{uuid.uuid4().hex[:8]}", bootstrap_servers=broker.bootstrap, partitions=1)
    job = app.task(add)
    try:
        with running_worker(app):
            assert job.delay(1, 2).result(timeout=20) == 3
    finally:
        app.close()


@pytest.mark.parametrize("use", [send_one, read_one, share_one, look_around, ask_for_the_version])
@pytest.mark.parametrize("when", ["before", "after"])
def test_any_one_connection_may_be_lost(broker: EmbeddedBroker, topic: str, use: Use, when: str) -> None:
    for nth in itertools.count(1):
        with broker.faults.close("*", when=when, nth=nth) as lost:
            use(broker, topic)
            if not lost.hits:
                break
    assert nth > 2


@pytest.mark.parametrize("nth", range(1, 60, 6))
def test_a_job_is_done_whichever_connection_was_lost(broker: EmbeddedBroker, topic: str, nth: int) -> None:
    with broker.faults.close("*", when="after" if nth % 4 == 1 else "before", nth=nth):
        run_a_job(broker, topic)


@pytest.mark.parametrize("use", [send_one, read_one, share_one, look_around, run_a_job])
def test_a_beginning_on_a_bad_line_takes_longer_and_ends_well(
    broker: EmbeddedBroker, topic: str, use: Use
) -> None:
    broker.faults.close("ApiVersions", first=3)
    broker.faults.close("Metadata", when="after", first=3)
    broker.faults.close("*", probability=0.03, seed=1)
    try:
        use(broker, topic)
    finally:
        broker.faults.clear()

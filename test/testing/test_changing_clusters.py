"""What clients make of a cluster that changes below them: another address, topics made anew, more partitions."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaTimeoutError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kafka.net import resolve
from kafka.net.transport import Address
from kafka.testing import EmbeddedBroker
from test.support.ports import free_ports
from test.support.waiting import until

RECONNECT: dict[str, Any] = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 20}


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    return broker.create_topic(f"topic-{uuid.uuid4().hex[:8]}")


# -- another address ---------------------------------------------------------------------------------------------------


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The name "service", which leads to a port that may change; a name service with ports, since there is one host."""
    where: dict[str, int] = {}

    def lookup(host: str, port: int, family: int = 0) -> list[Address]:
        assert host == "service", host
        return [Address(socket.AF_INET, ("127.0.0.1", where["port"]))]

    monkeypatch.setattr(resolve, "lookup", lookup)
    return where


def test_clients_follow_a_broker_that_was_killed_and_came_back_at_another_address(
    service: dict[str, int], tmp_path: pathlib.Path
) -> None:
    """The broker tells its new port, which nobody can ask it for: only the bootstrap servers lead there (KIP-899)."""
    first = EmbeddedBroker(tmp_path, fsync="always")
    with contextlib.ExitStack() as stack:
        stack.callback(first.stop)
        first.start()
        service["port"] = first.port
        first.create_topic("t")
        producer = stack.enter_context(KafkaProducer(bootstrap_servers="service:1", **RECONNECT))
        consumer = stack.enter_context(
            KafkaConsumer("t", bootstrap_servers="service:1", auto_offset_reset="earliest", **RECONNECT)
        )
        producer.send("t", b"before").get(30)
        assert next(consumer).value == b"before"
        first.kill()
        future = producer.send("t", b"after")
        second = EmbeddedBroker(tmp_path, fsync="always", port=free_ports(1)[0])
        stack.callback(second.stop)
        second.start()
        assert second.port != first.port
        service["port"] = second.port
        assert future.get(30).offset == 1
        assert next(consumer).value == b"after"
        known = producer._host.client.cluster.brokers()
        assert [broker.port for broker in known] == [second.port]


def test_with_the_strategy_none_it_is_not_found_again(service: dict[str, int]) -> None:
    with EmbeddedBroker() as first:
        service["port"] = first.port
        first.create_topic("t")
        with KafkaProducer(
            bootstrap_servers="service:1",
            client_id="mine",
            metadata_recovery_strategy="none",
            delivery_timeout_ms=2_000,
            request_timeout_ms=1_000,
            **RECONNECT,
        ) as producer:
            producer.send("t", b"before").get(30)
            first.kill()
            with EmbeddedBroker(topics=["t"]) as second:
                service["port"] = second.port
                future = producer.send("t", b"after")
                with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
                    future.get(30)
                assert not [each for each in second.requests.find("Metadata") if each.client_id == "mine"]


# -- topics ------------------------------------------------------------------------------------------------------------


def test_both_go_on_with_a_topic_that_was_deleted_and_made_anew(broker: EmbeddedBroker, topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "allow_auto_create_topics": False, **RECONNECT}
    with (
        KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin,
        KafkaProducer(**settings) as producer,
        KafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer,
    ):
        for number in range(3):
            producer.send(topic, b"old %d" % number).get(30)
        assert [next(consumer).value for _ in range(3)] == [b"old 0", b"old 1", b"old 2"]
        former = producer._host.client.cluster.topic_id(topic)
        admin.delete_topics([topic])
        broker.create_topic(topic)
        assert producer.send(topic, b"new").get(30).offset == 0
        assert next(consumer).value == b"new"
        assert producer._host.client.cluster.topic_id(topic) not in (None, former)


def test_records_that_were_sent_while_the_topic_was_away_arrive_when_it_is_back(
    broker: EmbeddedBroker, topic: str
) -> None:
    with (
        KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin,
        KafkaProducer(
            bootstrap_servers=broker.bootstrap, allow_auto_create_topics=False, **RECONNECT
        ) as producer,
    ):
        producer.send(topic, b"old").get(30)
        admin.delete_topics([topic])
        future = producer.send(topic, b"new")
        cluster = producer._host.client.cluster
        until(lambda: isinstance(cluster.topic_error(topic), UnknownTopicOrPartitionError))
        assert not future.is_done
        broker.create_topic(topic)
        assert future.get(30).offset == 0


def test_a_producer_uses_partitions_that_were_added(broker: EmbeddedBroker, topic: str) -> None:
    with (
        KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin,
        KafkaProducer(bootstrap_servers=broker.bootstrap, metadata_max_age_ms=100, batch_size=0) as producer,
        KafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, metadata_max_age_ms=100, auto_offset_reset="earliest"
        ) as consumer,
    ):
        assert producer.send(topic, b"first").get(30).partition == 0
        admin.create_partitions({topic: 3})
        until(lambda: producer.partitions_for(topic) == {0, 1, 2})
        assert producer.send(topic, b"there", partition=2).get(30).partition == 2
        used = {producer.send(topic, b"x", key=b"%d" % number).get(30).partition for number in range(20)}
        assert used == {0, 1, 2}
        assert len([next(consumer) for _ in range(22)]) == 22
        assert consumer.assignment() == {TopicPartition(topic, number) for number in range(3)}


@pytest.mark.parametrize("call", ["send", "partitions_for"])
def test_a_topic_that_may_not_be_described_is_an_error_at_once(broker: EmbeddedBroker, topic: str, call: str) -> None:
    broker.faults.answer("Metadata", TopicAuthorizationFailedError, topic=topic)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, max_block_ms=300_000) as producer:
        began = time.monotonic()
        with pytest.raises(TopicAuthorizationFailedError, match=topic):
            getattr(producer, call)(topic)
        assert time.monotonic() - began < 45


@pytest.mark.parametrize("call", ["send", "partitions_for"])
def test_a_topic_that_nobody_makes_is_an_error_soon(broker: EmbeddedBroker, call: str) -> None:
    with KafkaProducer(
        bootstrap_servers=broker.bootstrap, max_block_ms=300_000, allow_auto_create_topics=False
    ) as producer:
        began = time.monotonic()
        with pytest.raises(UnknownTopicOrPartitionError, match="topic nobodys is not there"):
            getattr(producer, call)("nobodys")
        assert time.monotonic() - began < 45

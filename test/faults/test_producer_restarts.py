"""A broker killed with -9, paused, or cut off in its answers while an idempotent producer writes to several partitions:
each record arrives once and in the order of its partition.

A round is 20,000 records and two kills; ``KAFKA_TEST_ROUNDS=10`` is the long form: 200,000 records and twenty kills.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaTimeoutError
from kafka.producer import FutureRecordMetadata, KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import polled

PARTITIONS = 4
RECORDS = 20_000
KILLS = 2
DEADLINE_S = 120
SETTINGS = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 200, "reconnect_backoff_ms": 10, "batch_size": 4096}
VALUE_BYTES = 100


class Mortal(Protocol):
    """A broker that can be killed."""

    def kill(self) -> None: ...


def make_topic(bootstrap: str, topic: str) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])


def send_all(
    producer: KafkaProducer, topic: str, count: int, marks: dict[int, threading.Event]
) -> list[FutureRecordMetadata]:
    """``count`` records, each saying which it is; an event of ``marks`` is set when the record of that number was
    delivered."""
    futures = []
    for number in range(count):
        value = b"%d" % number
        future = producer.send(topic, value.ljust(VALUE_BYTES, b"."), partition=number % PARTITIONS)
        mark = marks.get(number)
        if mark is not None:
            future.add_both(lambda _, mark=mark: mark.set())
        futures.append(future)
    return futures


def check_once_and_in_order(bootstrap: str, topic: str, count: int, hasty: int | None = None) -> None:
    """All ``count`` are there. Of another producer's negative numbers some may be missing, but not the last."""
    places = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found: dict[TopicPartition, list[int]] = {place: [] for place in places}
    with KafkaConsumer(bootstrap_servers=bootstrap, max_poll_records=100_000) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        assert hasty is not None or sum(ends.values()) == count
        for record in polled(consumer, sum(ends.values()), within_s=DEADLINE_S):
            found[TopicPartition(topic, record.partition)].append(int((record.value or b"").rstrip(b".")))
    others = [-number for number in found[places[0]] if number < 0]
    assert others == sorted(set(others)) and others[-1:] == ([-hasty] if hasty is not None else [])
    for place in places:
        assert [number for number in found[place] if number >= 0] == list(range(place.partition, count, PARTITIONS))


@contextmanager
def killed(broker: Mortal, start: Callable[[], Any], marks: list[threading.Event]) -> Iterator[None]:
    """At each mark the broker is killed and started again."""
    faults: list[BaseException] = []

    def run() -> None:
        try:
            for number, mark in enumerate(marks):
                assert mark.wait(DEADLINE_S), f"mark {number} was not reached"
                broker.kill()
                start()
        except BaseException as error:
            faults.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(DEADLINE_S * 2)
    assert not faults, faults
    assert not thread.is_alive()


def through_kills(broker: Mortal, start: Callable[[], Any], bootstrap: str, count: int, kills: int) -> None:
    topic = "restarts"
    make_topic(bootstrap, topic)
    marks = {(number + 1) * count // (kills + 2): threading.Event() for number in range(kills)}
    began = time.monotonic()
    # Time counts from `send` on, and what `buffer_memory` holds is sent over a dozen kills when there are twenty.
    with KafkaProducer(bootstrap_servers=bootstrap, delivery_timeout_ms=600_000, **SETTINGS) as producer:
        with killed(broker, start, list(marks.values())):
            futures = send_all(producer, topic, count, marks)
            producer.flush(DEADLINE_S + 10 * kills)
        errors = [future.exception for future in futures if future.failed()]
        assert not errors, errors[:3]
        metrics = producer.metrics()["producer-metrics"]
    check_once_and_in_order(bootstrap, topic, count)
    print(
        f"{count} records, {kills} kills: each once and in order; {metrics['record-retry-total']:.0f} batches sent "
        f"again, {time.monotonic() - began:.1f} s"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_record_arrives_once_and_in_order_while_the_embedded_broker_is_killed(rounds: int) -> None:
    with EmbeddedBroker() as broker:
        through_kills(broker, broker.start, broker.bootstrap, RECORDS * rounds, KILLS * rounds)


@pytest.mark.deep("another broker; kept by the same test on the embedded broker")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_record_arrives_once_and_in_order_while_apache_kafka_is_killed(
    start_apache_kafka: Callable[..., ApacheKafka], rounds: int
) -> None:
    broker = start_apache_kafka()
    through_kills(broker, broker.restart, broker.bootstrap, RECORDS * rounds, rounds)


def through_a_pause(broker: Any, bootstrap: str) -> None:
    """The broker stands still for longer than a request may last, and longer than a record may take."""
    make_topic(bootstrap, "paused")
    with (
        KafkaProducer(bootstrap_servers=bootstrap, request_timeout_ms=500, **SETTINGS) as producer,
        KafkaProducer(
            bootstrap_servers=bootstrap, request_timeout_ms=500, delivery_timeout_ms=3000, **SETTINGS
        ) as hasty,
    ):
        assert hasty.send("paused", b"-1", partition=0).get(DEADLINE_S).offset == 0
        mark = threading.Event()
        futures: list[FutureRecordMetadata] = []
        sending = threading.Thread(target=lambda: futures.extend(send_all(producer, "paused", 10_000, {1000: mark})))
        sending.start()
        assert mark.wait(DEADLINE_S)
        broker.pause()
        try:
            sending.join(DEADLINE_S)
            late = [hasty.send("paused", b"-%d" % number, partition=0) for number in range(2, 50)]
            for future in late:
                with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms=3000"):
                    future.get(DEADLINE_S)
        finally:
            broker.resume()
        producer.flush(DEADLINE_S)
        assert not [future.exception for future in futures if future.failed()]
        assert hasty.send("paused", b"-50", partition=0).get(DEADLINE_S).offset > 0
    check_once_and_in_order(bootstrap, "paused", 10_000, hasty=-50)


def test_each_record_arrives_once_and_in_order_when_the_embedded_broker_is_paused() -> None:
    with EmbeddedBroker() as broker:
        through_a_pause(broker, broker.bootstrap)


@pytest.mark.deep("another broker; kept by the same test on the embedded broker")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_record_arrives_once_and_in_order_when_apache_kafka_is_paused(
    start_apache_kafka: Callable[..., ApacheKafka],
) -> None:
    broker = start_apache_kafka()
    through_a_pause(broker, broker.bootstrap)


@pytest.mark.parametrize("when", ["before", "after", "during"])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_each_record_arrives_once_and_in_order_when_every_third_answer_is_lost(when: str, in_flight: int) -> None:
    with EmbeddedBroker() as broker:
        make_topic(broker.bootstrap, "cut")
        with (
            broker.faults.close("Produce", when=when, every=3) as fault,
            KafkaProducer(
                bootstrap_servers=broker.bootstrap, max_in_flight_requests_per_connection=in_flight, **SETTINGS
            ) as producer,
        ):
            futures = send_all(producer, "cut", 5000, {})
            producer.flush(DEADLINE_S)
            assert fault.hits > 3
            assert not [future.exception for future in futures if future.failed()]
        check_once_and_in_order(broker.bootstrap, "cut", 5000)

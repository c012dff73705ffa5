"""A consumer reads while records are written, and its fetch sessions, answers and connections break: each once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.broker.fetch_sessions import FetchSessions
from kafka.errors import CorruptRecordError
from kafka.testing import EmbeddedBroker, Fault
from test.support.waiting import eventually, until

COUNT = 40
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker


@pytest.fixture
def broker(shared: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    yield shared
    shared.faults.clear()


@pytest.fixture
def partitions(broker: EmbeddedBroker) -> list[TopicPartition]:
    topic = broker.create_topic(f"topic-{uuid.uuid4().hex[:8]}", 3)
    return [TopicPartition(topic, number) for number in range(3)]


def consumer_of(broker: EmbeddedBroker, partitions: list[TopicPartition], **settings: Any) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", retry_backoff_ms=10, **settings
    )
    consumer.assign(partitions)
    return consumer


class Reading:
    """What a consumer has read, and the errors that it was told."""

    def __init__(self, consumer: KafkaConsumer, partitions: list[TopicPartition]) -> None:
        self.consumer = consumer
        self.found: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
        self.errors: list[Exception] = []

    def up_to(self, count: int) -> None:
        """Until so many records of each partition are here."""
        until(
            lambda: all(len(values) >= count for values in self.found.values()),
            meanwhile=self._poll,
            shown=lambda: (self.found, self.errors),
        )

    def _poll(self) -> None:
        try:
            batches = self.consumer.poll(500)
        except CorruptRecordError as error:
            self.errors.append(error)
            return
        for partition, records in batches.items():
            self.found[partition] += [record.value for record in records]


def write(producer: KafkaProducer, partitions: list[TopicPartition], number: int) -> None:
    for partition in partitions:
        producer.send(partition.topic, b"%d" % number, partition=partition.partition).get(30)


Break = Callable[[EmbeddedBroker], Fault]
FAULTS: dict[str, Break] = {
    "the session is lost": lambda b: b.faults.answer("Fetch", "FETCH_SESSION_ID_NOT_FOUND", every=4),
    "the session's epoch is wrong": lambda b: b.faults.answer("Fetch", "INVALID_FETCH_SESSION_EPOCH", every=4),
    "the session mixes names and ids": lambda b: b.faults.answer("Fetch", "FETCH_SESSION_TOPIC_ID_ERROR", every=4),
    "answers are lost": lambda b: b.faults.close("Fetch", when="after", every=5),
    "requests are lost": lambda b: b.faults.close("Fetch", every=5),
    "answers are cut off": lambda b: b.faults.close("Fetch", when="during", every=5),
    "answers are late": lambda b: b.faults.delay("Fetch", 0.02, every=2),
    "batches are damaged on their way": lambda b: b.faults.corrupt("Fetch", every=6),
    "by chance": lambda b: b.faults.close("Fetch", when="after", probability=0.2, seed=7),
}


@pytest.mark.parametrize("make", FAULTS.values(), ids=FAULTS.keys())
def test_each_record_is_read_once_and_in_order(
    broker: EmbeddedBroker, partitions: list[TopicPartition], make: Break
) -> None:
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap) as producer,
        consumer_of(broker, partitions) as consumer,
    ):
        reading = Reading(consumer, partitions)
        fault = make(broker)
        for number in range(COUNT):
            write(producer, partitions, number)
            if number % 3 == 0:
                reading.up_to(number + 1)
        reading.up_to(COUNT)
        assert fault.hits >= 3
    assert list(reading.found.values()) == [[b"%d" % number for number in range(COUNT)]] * 3


def test_a_session_outlives_no_broker_and_reading_goes_on(tmp_path: Path) -> None:
    with EmbeddedBroker(in_process=True, data_dir=tmp_path) as own:
        topic = own.create_topic("t", 3)
        partitions = [TopicPartition(topic, number) for number in range(3)]
        with KafkaProducer(bootstrap_servers=own.bootstrap) as producer, consumer_of(own, partitions) as consumer:
            reading = Reading(consumer, partitions)
            for number in range(3):
                write(producer, partitions, number)
                reading.up_to(number + 1)
                own.restart()
            write(producer, partitions, 3)
            reading.up_to(4)
        assert list(reading.found.values()) == [[b"0", b"1", b"2", b"3"]] * 3


Begun = list[tuple[int, int, int]]
"""Of each fetch: its epoch, how many topics it names and how many it forgets."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    found: Begun = []
    begin = FetchSessions.begin

    def noted(self: FetchSessions, request: Any, version: int, now: float) -> Any:
        found.append((request.session_epoch, len(request.topics), len(request.forgotten_topics_data)))
        return begin(self, request, version, now)

    monkeypatch.setattr(FetchSessions, "begin", noted)
    return found


def test_an_idle_session_says_nothing_of_its_partitions(
    broker: EmbeddedBroker, partitions: list[TopicPartition], begun: Begun
) -> None:
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap) as producer,
        consumer_of(broker, partitions, fetch_max_wait_ms=20) as consumer,
    ):
        write(producer, partitions, 0)
        Reading(consumer, partitions).up_to(1)
        idle = len(begun) + 8
        until(lambda: len(begun) >= idle + 4)
        assert begun[0] == (0, 1, 0)
        assert [told[1:] for told in begun[idle : idle + 4]] == [(0, 0)] * 4


def test_closing_ends_the_session_at_the_broker(
    broker: EmbeddedBroker, partitions: list[TopicPartition], begun: Begun
) -> None:
    with consumer_of(broker, partitions) as consumer:
        # Not the second fetch: it may be one without a session, for what the first, which is held, does not ask for.
        until(lambda: any(epoch > 0 for epoch, _, _ in begun), meanwhile=lambda: consumer.poll(50))
    eventually(lambda: begun[-1], (-1, 0, 0))


def test_a_seek_does_not_wait_for_a_fetch_that_the_broker_holds(
    broker: EmbeddedBroker, partitions: list[TopicPartition]
) -> None:
    with (
        KafkaProducer(bootstrap_servers=broker.bootstrap) as producer,
        consumer_of(broker, partitions, fetch_max_wait_ms=100_000, request_timeout_ms=150_000) as consumer,
    ):
        write(producer, partitions, 0)
        reading = Reading(consumer, partitions)
        reading.up_to(1)
        for _ in range(3):
            consumer.poll(50)  # the next fetch is held by now
            consumer.seek(partitions[1], 0)
            assert consumer.poll(30_000)

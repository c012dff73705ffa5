"""Tests of ``kafka.tasks.backends.kafka.schedule_reader`` on the embedded broker."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from kafka import KafkaProducer
from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord
from kafka.errors import TopicAuthorizationFailedError
from kafka.net.loop import Loop
from kafka.structs import TopicPartition
from kafka.tasks.backends.kafka import schedule_reader
from kafka.tasks.backends.kafka.loop_task import LoopTask
from kafka.tasks.backends.kafka.schedule_reader import ScheduleReader
from kafka.testing import EmbeddedBroker
from test.support.waiting import until

RECORDS = 20_000
MARKER = 10_000
"""The offset at which a transaction ends. Each record says its own offset."""

names = itertools.count()


@pytest.fixture(scope="module")
def place(broker: EmbeddedBroker) -> TopicPartition:
    place = TopicPartition(broker.create_topic("schedule"), 0)
    with KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="owner") as producer:
        producer.init_transactions()
        for first, end in ((0, MARKER), (MARKER + 1, RECORDS)):
            producer.begin_transaction()
            for number in range(first, end):
                producer.send(place.topic, b"%d" % number, headers=[("h", b"x" * 200)])
            producer.commit_transaction()
    return place


class Reading:
    """A reader on a loop. ``made``: the records that its consumer has made."""

    def __init__(self, broker: EmbeddedBroker, place: TopicPartition) -> None:
        self.loop = Loop()
        self.client = KafkaClient(bootstrap_servers=broker.bootstrap, loop=self.loop)
        self.reader = ScheduleReader(self.client, place)
        self.made = 0
        consumer = self.reader._consumer
        poll = consumer.poll

        def counted(*args: Any) -> Any:
            records = poll(*args)
            self.made += sum(map(len, records.values()))
            return records

        consumer.poll = counted

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        ends: list[BaseException | None] = []
        LoopTask(coroutine, ends.append)
        until(lambda: ends, meanwhile=lambda: self.loop.run_once(0.01))
        assert ends == [None]

    def read(self, offsets: Sequence[int], most: int | None = None) -> dict[int, int | None]:
        """What each record says that is at these offsets, until there are ``most``."""
        found: dict[int, int | None] = {}

        def take(offset: int, record: ConsumerRecord | None) -> bool:
            found[offset] = None if record is None else int(record.value or b"")
            return len(found) != most

        self.run(self.reader.read(offsets, take))
        return found

    def close(self) -> None:
        self.reader.close()
        self.client.close()
        self.loop.close()


@pytest.fixture
def reading(broker: EmbeddedBroker, place: TopicPartition) -> Iterator[Reading]:
    made = Reading(broker, place)
    yield made
    made.close()


def test_all_is_read_but_the_marker(reading: Reading) -> None:
    found: list[int] = []
    reading.run(reading.reader.read_all(lambda record: found.append(int(record.value or b""))))
    assert found == [number for number in range(RECORDS) if number != MARKER]


@pytest.mark.parametrize(
    "offsets",
    [
        range(7, RECORDS, 100),
        range(0, RECORDS, 9_000),
        [3, 4, 5, 9, 11, 4_000, 4_003, 4_030, 19_998, 19_999],
        [MARKER - 1, MARKER + 1],
        [*range(MARKER - 300, MARKER, 50), *range(MARKER + 1, MARKER + 300, 50)],
    ],
)
def test_records_that_are_far_apart_are_read_without_making_those_between(
    reading: Reading, offsets: Sequence[int]
) -> None:
    for _ in range(2):  # again from the start
        assert reading.read(offsets) == {offset: offset for offset in offsets}
    assert reading.made <= 2 * (len(offsets) + 40)


def test_those_that_are_side_by_side_come_together(reading: Reading) -> None:
    offsets = range(5_000, 7_000)
    polls: list[int] = []
    consumer = reading.reader._consumer
    poll: Callable[..., Any] = consumer.poll

    def noted(*args: Any) -> Any:
        records = poll(*args)
        polls.extend(map(len, records.values()))
        return records

    consumer.poll = noted
    assert reading.read(offsets) == {offset: offset for offset in offsets}
    assert sum(polls) == len(offsets)
    assert len(polls) < 30


def test_one_that_is_gone_is_said_to_be(reading: Reading) -> None:
    assert reading.read([MARKER - 20, MARKER, MARKER + 20]) == {
        MARKER - 20: MARKER - 20,
        MARKER: None,
        MARKER + 20: MARKER + 20,
    }


def test_reading_ends_when_there_is_no_room_for_more(reading: Reading) -> None:
    assert list(reading.read([5, 500, 5_000], most=2)) == [5, 500]
    assert reading.read([400]) == {400: 400}


def test_what_keeps_it_from_reading_on_is_its_error_at_once(
    broker: EmbeddedBroker, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_reader, "STUCK_S", 300.0)
    ends: list[BaseException | None] = []

    def take(offset: int, record: ConsumerRecord | None) -> bool:
        broker.faults.answer("Fetch", TopicAuthorizationFailedError)
        return True

    try:
        LoopTask(reading.reader.read(range(0, RECORDS, 1_500), take), ends.append)
        until(lambda: ends, meanwhile=lambda: reading.loop.run_once(0.01))
    finally:
        broker.faults.clear()
    assert isinstance(ends[0], TopicAuthorizationFailedError)

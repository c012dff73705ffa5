"""A dead topic on a broker: read by time over its partitions, in parts, marked and trimmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.admin import KafkaAdminClient
from kafka.errors import TopicAuthorizationFailedError
from kafka.producer import KafkaProducer
from kafka.tasks import App, UnknownQueue
from kafka.tasks.backends.base import DeadLog
from kafka.tasks.backends.kafka import dead_log
from kafka.testing import EmbeddedBroker

TOPIC = "shop.mail.dead"
RECORDS = 40


@pytest.fixture
def log(broker: EmbeddedBroker) -> Iterator[DeadLog]:
    """A dead topic of two partitions; the records of the first have the times 0, 2, 4 s ..., of the second 1, 3 ..."""
    app = App("shop", bootstrap_servers=broker.bootstrap)
    broker.create_topic(TOPIC, 2)
    with KafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(
                TOPIC, b"%d" % number, b"key", [("n", b"%d" % number)], number % 2, timestamp_ms=1_000 * number
            )
    found = app.backend().dead_log("mail")
    yield found
    found.close()
    app.close()
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([TOPIC])


def numbers(log: DeadLog, spans: dict[int, tuple[int, int]]) -> list[int]:
    return [int(record.value or b"") for record in log.read(spans)]


@pytest.mark.parametrize("most", [dead_log.MOST_BUFFERED, 1])
def test_records_come_by_time_over_all_partitions(log: DeadLog, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(dead_log, "MOST_BUFFERED", most)
    assert log.bounds() == {0: (0, 20), 1: (0, 20)}
    assert numbers(log, log.bounds()) == list(range(RECORDS))
    assert numbers(log, {0: (2, 4), 1: (0, 1)}) == [1, 4, 6]
    assert numbers(log, {0: (0, 0), 1: (20, 20)}) == []


def test_a_record_is_read_whole(log: DeadLog) -> None:
    (record,) = log.read({1: (3, 4)})
    assert record == (1, 3, 7_000, b"key", b"7", [("n", b"7")])


def test_offsets_are_found_by_time(log: DeadLog) -> None:
    assert log.offsets_at(0) == {0: 0, 1: 0}
    assert log.offsets_at(3_001) == {0: 2, 1: 2}
    assert log.offsets_at(10**9) == {0: 20, 1: 20}


def test_a_record_is_appended_to_its_partition_while_others_are_read(log: DeadLog) -> None:
    for record in log.read({0: (0, 2), 1: (0, 2)}):
        log.append(record.partition, b"mark", [("dead-mark", b"dropped")])
    assert log.bounds() == {0: (0, 22), 1: (0, 22)}
    assert [record.headers for record in log.read({1: (20, 22)})] == [[("dead-mark", b"dropped")]] * 2


def test_what_is_before_an_offset_is_deleted(log: DeadLog) -> None:
    log.delete_before({0: 5})
    assert log.bounds() == {0: (5, 20), 1: (0, 20)}
    assert numbers(log, {0: (0, 7)}) == [10, 12], "a reader goes on at the new beginning"


def test_a_refused_deletion_is_the_brokers_error(log: DeadLog, broker: EmbeddedBroker) -> None:
    fault = broker.faults.answer("DeleteRecords", "TOPIC_AUTHORIZATION_FAILED")
    with fault, pytest.raises(TopicAuthorizationFailedError):
        log.delete_before({0: 5})


def test_a_queue_without_dead_topic_is_named_with_the_nearest_one(log: DeadLog, broker: EmbeddedBroker) -> None:
    app = App("shop", bootstrap_servers=broker.bootstrap)
    with pytest.raises(UnknownQueue, match=r"the broker has no topic shop\.mial\.dead; did you mean 'shop\.mail'\?"):
        app.backend().dead_log("mial")
    app.close()

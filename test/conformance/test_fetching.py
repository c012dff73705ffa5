"""What a consumer fetches, over every release since the first with record batches: isolation, resets, seeks, bounds."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import LogTruncationError, OffsetOutOfRangeError
from kafka.protocol.topics import DeleteRecordsRequest
from kafka.structs import OffsetAndMetadata
from test.broker.raw_client import RawClient
from test.conformance.reading import poll_until, take
from test.support.either_broker import every_release_with_batches
from test.support.waiting import until

pytestmark = every_release_with_batches

NewTopicFixture = Callable[..., str]


def consumer_of(bootstrap: str, *partitions: TopicPartition, **settings: Any) -> KafkaConsumer:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, **{"auto_offset_reset": "earliest", **settings})
    consumer.assign(partitions)
    return consumer


def read(consumer: KafkaConsumer, condition: Callable[[], bool]) -> list[bytes]:
    """Values until the condition holds."""
    return [record.value for record in poll_until(condition, consumer)]


@pytest.fixture
def producers(bootstrap: str) -> Iterator[Callable[[], KafkaProducer]]:
    """Transactional ones."""
    made: list[KafkaProducer] = []

    def make() -> KafkaProducer:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"txn-{uuid.uuid4().hex[:8]}")
        made.append(producer)
        producer.init_transactions()
        return producer

    yield make
    for producer in made:
        producer.close(timeout=10)


def test_aborted_records_are_left_out_and_open_ones_are_waited_for(
    bootstrap: str, new_topic: NewTopicFixture, producers: Callable[[], KafkaProducer]
) -> None:
    partition = TopicPartition(new_topic(1), 0)
    first, second, third = producers(), producers(), producers()

    def send(producer: KafkaProducer, value: bytes) -> int:
        return producer.send(partition.topic, value, partition=0).get(30).offset  # type: ignore[no-any-return]

    for producer in (first, second):
        producer.begin_transaction()
    send(first, b"committed 1")
    send(second, b"aborted 1")
    send(first, b"committed 2")
    send(second, b"aborted 2")
    second.abort_transaction()
    second.begin_transaction()
    send(second, b"committed 3")
    first.commit_transaction()
    second.commit_transaction()
    third.begin_transaction()
    opened = send(third, b"open")
    with KafkaProducer(bootstrap_servers=bootstrap) as plain:
        end = plain.send(partition.topic, b"plain", partition=0).get(30).offset + 1
    committed = [b"committed 1", b"committed 2", b"committed 3"]
    with consumer_of(bootstrap, partition) as consumer:
        everything = read(consumer, lambda: consumer.position(partition) >= end)
    assert everything == [
        b"committed 1", b"aborted 1", b"committed 2", b"aborted 2", b"committed 3", b"open", b"plain",
    ]  # fmt: skip
    with consumer_of(bootstrap, partition, isolation_level="read_committed") as consumer:
        # Fetches tell of all that is there, and bring nothing from the open transaction on.
        assert read(consumer, lambda: consumer.highwater(partition) == end) == committed
        assert consumer.position(partition) == opened
        assert consumer.end_offsets([partition])[partition] == opened
        third.abort_transaction()
        assert read(consumer, lambda: consumer.position(partition) >= end) == [b"plain"]
    # From the middle of an aborted transaction on, it is no less aborted.
    with consumer_of(bootstrap, partition, isolation_level="read_committed") as consumer:
        consumer.seek(partition, 3)
        assert read(consumer, lambda: consumer.position(partition) >= end) == [b"committed 3", b"plain"]


def test_positions_that_the_log_does_not_have_are_reset_by_the_policy(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    partition = TopicPartition(new_topic(1), 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            producer.send(partition.topic, b"%d" % number, partition=0).get(30)
    partition_request = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=4)
    topics = [DeleteRecordsRequest.DeleteRecordsTopic(name=partition.topic, partitions=[partition_request])]
    with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
        raw.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 0)
    for offset in (2, 100):
        with consumer_of(bootstrap, partition, auto_offset_reset="earliest") as consumer:
            consumer.seek(partition, offset)
            assert next(consumer).offset == 4
        with consumer_of(bootstrap, partition, auto_offset_reset="latest") as consumer:
            consumer.seek(partition, offset)
            read(consumer, lambda: consumer.position(partition) == 10)
        with consumer_of(bootstrap, partition, auto_offset_reset="none") as consumer:
            consumer.seek(partition, offset)
            with pytest.raises(OffsetOutOfRangeError, match=f"{partition.topic}-0 has no offset {offset} .*: seek"):
                consumer.poll(20_000)
            assert consumer.position(partition) == offset
            consumer.seek(partition, 9)
            assert next(consumer).value == b"9"


@pytest.mark.parametrize("policy", ["none", "latest"])
def test_what_was_read_and_is_gone_is_found_out_by_its_epoch(
    bootstrap: str, new_topic: NewTopicFixture, policy: str
) -> None:
    """As if another member had committed what a leader lost when it was elected."""
    partition = TopicPartition(new_topic(1), 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send(partition.topic, b"%d" % number, partition=0).get(30)
        with consumer_of(bootstrap, partition, auto_offset_reset="earliest") as consumer:
            epoch = next(consumer).leader_epoch
        with consumer_of(bootstrap, partition, auto_offset_reset=policy) as consumer:
            with consumer._driver.lock:
                consumer._fetcher.position_of(partition).seek(5, leader_epoch=epoch)
            consumer._wake_fetcher()
            if policy == "none":
                # Releases before 2.3 do not tell where epochs end: that the offset is not there is all that they say.
                with pytest.raises((LogTruncationError, OffsetOutOfRangeError)) as told:
                    consumer.poll(30_000)
                if isinstance(told.value, LogTruncationError):
                    assert told.value.divergent_offsets == {partition: OffsetAndMetadata(3, "", epoch)}
                assert consumer.position(partition) == 5
            else:
                read(consumer, lambda: consumer.position(partition) == 3)
            consumer.seek(partition, 3)
            producer.send(partition.topic, b"3", partition=0).get(30)
            assert next(consumer).value == b"3"


@pytest.mark.parametrize(("duration", "position"), [("PT3H", 0), ("PT1H", 1), ("PT10M", 2)])
def test_positions_are_found_by_duration(
    bootstrap: str, new_topic: NewTopicFixture, duration: str, position: int
) -> None:
    """Where no record is so late, it is the end."""
    partition = TopicPartition(new_topic(1), 0)
    now_ms = int(time.time() * 1000)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for minutes in (120, 30):
            producer.send(partition.topic, b"x", partition=0, timestamp_ms=now_ms - minutes * 60_000).get(30)
    with consumer_of(bootstrap, partition, auto_offset_reset=f"by_duration:{duration}") as consumer:
        assert consumer.position(partition, timeout_ms=20_000) == position


def test_a_seek_does_not_wait_for_a_fetch_that_the_broker_holds(bootstrap: str, new_topic: NewTopicFixture) -> None:
    first, second = (TopicPartition(new_topic(1), 0) for _ in range(2))
    with (
        KafkaProducer(bootstrap_servers=bootstrap) as producer,
        consumer_of(bootstrap, first, fetch_max_wait_ms=100_000, request_timeout_ms=150_000) as consumer,
    ):
        producer.send(first.topic, b"first", partition=0).get(30)
        producer.send(second.topic, b"second", partition=0).get(30)
        assert next(consumer).value == b"first"
        consumer.poll(200)  # from here on, the broker holds a fetch
        consumer.seek(first, 0)
        assert [record.value for record in consumer.poll(45_000)[first]] == [b"first"]
        consumer.assign([first, second])
        assert [record.value for record in consumer.poll(45_000)[second]] == [b"second"]


def test_all_is_read_in_order_through_a_small_buffer(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic(3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with KafkaProducer(bootstrap_servers=bootstrap, batch_size=10_000) as producer:
        for number in range(300):
            producer.send(topic, b"%d " % number + b"x" * 2000, partition=number % 3)
        producer.flush(60)
    with consumer_of(bootstrap, *partitions, fetch_buffer_bytes=60_000, max_partition_fetch_bytes=20_000) as consumer:
        consumer.pause(partitions[2])
        paused = [int(record.value.split()[0]) for record in take(consumer, 200)]
        consumer.resume(partitions[2])
        rest = [int(record.value.split()[0]) for record in take(consumer, 100)]
    for number in (0, 1):
        assert [value for value in paused if value % 3 == number] == list(range(number, 300, 3))
    assert rest == list(range(2, 300, 3))


def test_records_are_skipped_as_far_as_they_have_been_fetched(bootstrap: str, new_topic: NewTopicFixture) -> None:
    partition = TopicPartition(new_topic(1), 0)
    with KafkaProducer(bootstrap_servers=bootstrap, batch_size=2_000) as producer:
        for number in range(1_000):
            producer.send(partition.topic, b"%d" % number, partition=0)
        producer.flush(30)
    found: list[int] = []
    with consumer_of(bootstrap, partition, max_poll_records=1, max_partition_fetch_bytes=5_000) as consumer:
        assert consumer.position(partition) == 0

        def poll() -> None:
            found.extend(int(record.value) for records in consumer.poll(100).values() for record in records)

        for wanted in range(0, 1_000, 100):
            until(lambda to=wanted: consumer.skip_to(partition, to) == to, f"{wanted} is fetched", meanwhile=poll)
            found += [int(record.value) for record in take(consumer, 1)]
    assert [number for number in found if number % 100 == 0] == list(range(0, 1_000, 100))
    assert len(found) < 100, "no more than one for each fetch"
    with consumer_of(bootstrap, partition) as consumer:
        assert int(next(consumer).value) == 0
        assert consumer.skip_to(partition, 10) == 1, "iteration had taken what was fetched"
        assert int(next(consumer).value) == 1

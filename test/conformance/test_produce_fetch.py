"""Records in, records out: the same on both brokers, and where it is clients that are tried, on older releases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafka.client import KafkaClient
from kafka.consumer import ConsumerRecord, KafkaConsumer
from kafka.errors import (
    IllegalStateError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
)
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.metadata import DescribeClusterRequest, MetadataRequest
from kafka.protocol.offsets import OffsetCommitRequest
from kafka.protocol.produce import ProduceResponse
from kafka.protocol.topics import DeleteRecordsRequest, DeleteTopicsRequest
from kafka.records import RecordBatchBuilder
from kafka.structs import TopicPartition
from test.broker.driver import produce_request
from test.broker.raw_client import RawClient
from test.conformance.reading import poll_until, take
from test.support.either_broker import every_release
from test.support.waiting import eventually, look_until, until

NewTopicFixture = Callable[..., str]


def read(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """The next ``count`` records, with which no more come."""
    found = take(consumer, count)
    assert len(found) == count
    return found


@every_release
def test_what_is_sent_is_read_as_it_was(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        future = producer.send(topic, b"value", key=b"key", headers=[("h", b"1"), ("n", None)], timestamp_ms=1234567)
        producer.send(topic, None, key=b"tombstone")
        metadata = future.get(30)
    assert (metadata.topic, metadata.partition, metadata.offset, metadata.timestamp) == (topic, 0, 0, 1234567)
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        first, second = read(consumer, 2)
    assert (first.offset, first.key, first.value, first.timestamp) == (0, b"key", b"value", 1234567)
    assert first.headers == [("h", b"1"), ("n", None)]
    assert (second.offset, second.key, second.value) == (1, b"tombstone", None)


@every_release
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement_delivers(bootstrap: str, new_topic: NewTopicFixture, acks: int | str) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % n) for n in range(10)]
        producer.flush(20)
    assert all(future.succeeded() for future in futures)
    assert (futures[9].value.offset == 9) is (acks != 0)  # type: ignore[union-attr]
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        assert [record.value for record in read(consumer, 10)] == [b"%d" % n for n in range(10)]


@every_release
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_thousands_of_records_from_many_threads_keep_each_threads_order(
    bootstrap: str, new_topic: NewTopicFixture, compression: str | None
) -> None:
    topic = new_topic(3)
    with KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, batch_size=2000) as producer:

        def run(name: int) -> None:
            for n in range(1000):
                producer.send(topic, b"%d" % n, key=b"%d" % name)

        threads = [threading.Thread(target=run, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        records = read(consumer, 4000)
    for name in range(4):
        assert [int(r.value) for r in records if r.key == b"%d" % name] == list(range(1000))
        assert len({r.partition for r in records if r.key == b"%d" % name}) == 1


@every_release
def test_batches_of_at_most_sixty_four_records_arrive_whole(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap, batch_max_records=64) as producer:
        for n in range(1000):
            producer.send(topic, b"%d" % n)
        producer.flush(20)
        assert producer.metrics()["producer-metrics"]["batch-total"] >= 1000 / 64
    with KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        assert [int(record.value) for record in read(consumer, 1000)] == list(range(1000))


@every_release
def test_a_record_above_the_topics_limit_fails_and_the_others_do_not(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic(max_message_bytes=2000)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        before = producer.send(topic, b"small")
        before.get(30)
        large = producer.send(topic, b"x" * 5000)
        with pytest.raises(MessageSizeTooLargeError):
            large.get(30)
        after = producer.send(topic, b"small")
        assert after.get(30).offset == 1


@every_release
def test_positions_are_sought_and_found(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(10):
            producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1000 * (n + 1))
        producer.flush(20)
    with KafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        assert consumer.beginning_offsets([one, two]) == {one: 0, two: 0}
        assert consumer.end_offsets([one, two]) == {one: 10, two: 0}
        found = consumer.offsets_for_times({one: 4500, two: 0})
        at = found[one]
        assert at is not None
        assert (at.offset, at.timestamp) == (4, 5000)
        assert found[two] is None
        assert consumer.partitions_for_topic(topic) == {0, 1}
        assert topic in consumer.topics()
        consumer.assign([one])
        assert consumer.position(one) == 10, "auto_offset_reset is latest"
        consumer.seek_to_beginning(one)
        assert read(consumer, 10)[0].offset == 0
        consumer.seek(one, 7)
        assert [record.offset for record in read(consumer, 3)] == [7, 8, 9]
        assert consumer.position(one) == 10
        consumer.seek_to_end(one)
        assert consumer.position(one) == 10
        assert consumer.highwater(one) == 10
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.seek(two, 0)


def test_an_offset_out_of_range_is_an_error_or_a_reset(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"x").get(30)
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 500)
        with pytest.raises(OffsetOutOfRangeError, match="has no offset 500"):
            read(consumer, 1)
        consumer.seek(partition, 0)
        assert read(consumer, 1)[0].value == b"x"
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 500)
        assert read(consumer, 1)[0].value == b"x"


def test_max_records_bounds_a_poll_and_pause_holds_a_partition_back(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic(2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(20):
            producer.send(topic, b"%d" % n, partition=n % 2)
        producer.flush(20)
    with KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([one, two])
        consumer.pause(two)
        assert consumer.paused() == {two}
        assert {record.partition for record in read(consumer, 10)} == {0}
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"later", partition=0).get(20)
        assert [(record.partition, record.value) for record in read(consumer, 1)] == [(0, b"later")]
        consumer.resume(two)
        got = consumer.poll(20_000, max_records=3)
        assert [len(records) for records in got.values()] == [3]
        assert len(read(consumer, 7)) == 7


def test_iteration_ends_when_nothing_comes(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for n in range(5):
            producer.send(topic, b"%d" % n)
    with KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=1500
    ) as consumer:
        found: list[ConsumerRecord] = []
        until(lambda: len(found) >= 5, meanwhile=lambda: found.extend(consumer))  # again, while some are on their way
        assert [record.value for record in found] == [b"0", b"1", b"2", b"3", b"4"]


@every_release
def test_a_producer_and_a_tail_share_one_loop_and_one_client(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    loop = Loop()
    client = KafkaClient(loop=loop, bootstrap_servers=bootstrap, all_topics=False, request_timeout_ms=150_000)
    producer = KafkaProducer(client=client)
    got: list[ConsumerRecord] = []
    consumer = KafkaConsumer(
        client=client,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100_000,
        on_records=lambda found: got.extend(found[partition]),
    )
    try:
        consumer.assign([partition])
        futures = [producer.send(topic, b"%d" % n) for n in range(100)]
        assert loop.run_until(lambda: len(got) == 100, 20)
        assert loop.run_until(producer.flush_async(), 20)
        assert [record.value for record in got] == [b"%d" % n for n in range(100)]
        assert [future.value.offset for future in futures] == list(range(100))  # type: ignore[union-attr]
        # A fetch that the broker holds does not hold back what is produced on the same client.
        assert loop.run_until(client.in_flight_request_count, 20)
        producer.send(topic, b"late")
        assert loop.run_until(lambda: len(got) == 101, 20)
        assert loop.run_until(producer.close_async(), 20)
    finally:
        consumer.close()
        client.close()
        loop.close()


def test_poll_of_nothing_does_not_wait_on_a_loop_and_when_ready_says_when_to(
    bootstrap: str, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    loop = Loop()
    consumer = KafkaConsumer(loop=loop, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    try:
        with KafkaProducer(bootstrap_servers=bootstrap) as producer:
            producer.send(topic, b"x").get(30)
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.poll(0) == {}, "the record is there, and whoever waited would have it"
        with pytest.raises(IllegalStateError, match="own thread"):
            consumer.poll(1000)

        def is_there() -> bool:
            return consumer.when_ready().is_done and bool(found.update(consumer.poll(0)) or found)

        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        assert loop.run_until(is_there, 20)
        assert [record.value for records in found.values() for record in records] == [b"x"]
    finally:
        consumer.close()
        loop.close()


@every_release
def test_partitions_that_are_added_to_a_subscribed_topic_are_read(bootstrap: str, new_topic: NewTopicFixture) -> None:
    from kafka.admin import KafkaAdminClient

    topic = new_topic()
    with (
        KafkaConsumer(
            topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=200
        ) as consumer,
        KafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=200) as producer,
        KafkaAdminClient(bootstrap_servers=bootstrap) as admin,
    ):
        producer.send(topic, b"first").get(30)
        assert read(consumer, 1)[0].partition == 0
        admin.create_partitions({topic: 2})
        assert poll_until(lambda: producer.partitions_for(topic) == {0, 1}, consumer) == []
        producer.send(topic, b"second", partition=1).get(30)
        assert read(consumer, 1)[0].partition == 1


# -- over a bare socket: exact error codes ---------------------------------------------------------------------------


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(int(bootstrap.rpartition(":")[2])) as client:
        yield client


def keyed(*records: tuple[bytes | None, int], **options: bool) -> bytes:
    """A batch of records with these keys, and timestamps that many ms from now."""
    builder = RecordBatchBuilder(1 << 30)
    for key, ahead_ms in records:
        builder.append(int(time.time() * 1000) + ahead_ms, key, b"v")
    return builder.build(-1, -1, -1, **options)


def produced(
    raw: RawClient, topic: str, data: bytes | None, version: int = 9, acks: int = -1, partition: int = 0
) -> ProduceResponse.PartitionProduceResponse:
    """The partition's answer, once the partition is there: that takes Apache Kafka a moment."""
    is_never_there = partition != 0 or topic.startswith("no-such")
    request = produce_request(topic, data, partition, acks)
    return look_until(
        lambda: raw.ask(request, version).responses[0].partition_responses[0],
        lambda found: found.error_code not in (3, 6) or is_never_there,
    )


def commit_once(raw: RawClient, topic: str) -> None:
    """Commit an offset: so __consumer_offsets is there."""
    row = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    rows = [OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])]

    def code() -> int:
        raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[topic]))
        return raw.ask(OffsetCommitRequest(group_id=topic, topics=rows), 9).topics[0].partitions[0].error_code

    eventually(code, 0)


K, DAY_MS = b"k", 24 * 3_600_000


@pytest.mark.parametrize(
    ("settings", "data", "code", "records"),
    [
        ({}, keyed((None, 0)), 0, []),
        ({"cleanup_policy": "compact"}, keyed((None, 0)), 87, [0]),
        ({"cleanup_policy": "compact,delete"}, keyed((K, 0), (None, 0), (None, 0)), 87, [1, 2]),
        ({"cleanup_policy": "compact"}, keyed((b"", 0)), 0, []),
        ({}, keyed((K, -400 * DAY_MS)), 0, []),
        ({}, keyed((K, 2 * DAY_MS)), 32, [0]),
        ({"message_timestamp_before_max_ms": DAY_MS}, keyed((K, -DAY_MS // 2)), 0, []),
        ({"message_timestamp_before_max_ms": DAY_MS}, keyed((K, 0), (K, -2 * DAY_MS)), 32, [1]),
        (
            {"message_timestamp_before_max_ms": DAY_MS, "message_timestamp_after_max_ms": DAY_MS},
            keyed((K, -2 * DAY_MS), (K, 0), (K, 2 * DAY_MS)),
            32,
            [0, 2],
        ),
        (
            {"message_timestamp_before_max_ms": DAY_MS, "message_timestamp_type": "LogAppendTime"},
            keyed((K, -2 * DAY_MS)),
            0,
            [],
        ),
        (
            {"message_timestamp_before_max_ms": DAY_MS, "cleanup_policy": "compact"},
            keyed((None, -2 * DAY_MS), (None, 0), (K, -2 * DAY_MS)),
            32,
            [0, 1, 2],
        ),
        ({"max_message_bytes": 50}, keyed((K, 0)), 10, []),
        ({}, keyed((K, 0)) * 2, 87, []),
        ({}, b"", 87, []),
        ({}, b"x" * 10, 87, []),
        ({}, keyed((K, 0), control=True), 87, []),
        ({}, keyed((K, 0))[:-1] + b"\xff", 2, []),
    ],
    ids=lambda value: "data" if isinstance(value, bytes) else str(value)[:40],  # data has the time of day in it
)
def test_what_a_topic_takes(
    raw: RawClient,
    new_topic: NewTopicFixture,
    settings: dict[str, object],
    data: bytes,
    code: int,
    records: list[int],
) -> None:
    topic = new_topic(**settings)
    answer = produced(raw, topic, data)
    assert (answer.error_code, answer.base_offset) == (code, -1 if code else 0)
    assert [error.batch_index for error in answer.record_errors] == records
    assert all(error.batch_index_error_message for error in answer.record_errors)
    if records:
        assert answer.log_start_offset == 0
        assert (answer.error_message or "").startswith("One or more records have been rejected due to")
        assert produced(raw, topic, data, 7).record_errors == []


@pytest.mark.parametrize(
    ("topic", "partition", "acks", "code"),
    [
        ("no-such-topic", 0, -1, 3),
        (None, 7, -1, 3),
        (None, -1, -1, 3),
        (None, 0, 2, 21),
        (None, 0, -2, 21),
        ("__consumer_offsets", 0, -1, 17),
    ],
)
def test_produce_to_what_is_not_there_or_not_open(
    raw: RawClient, new_topic: NewTopicFixture, topic: str | None, partition: int, acks: int, code: int
) -> None:
    name = topic or new_topic()
    if name == "__consumer_offsets":
        commit_once(raw, new_topic())
    assert produced(raw, name, keyed((K, 0)), acks=acks, partition=partition).error_code == code


def test_produce_makes_no_topics_and_metadata_does(raw: RawClient, unique: Callable[[str], str]) -> None:
    name = "no-such-" + unique("topic")
    assert produced(raw, name, keyed((K, 0))).error_code == 3
    wanted = [MetadataRequest.MetadataRequestTopic(name=name)]
    for makes in (False, False, True):
        asked = MetadataRequest(topics=wanted, allow_auto_topic_creation=makes)
        assert [topic.error_code for topic in raw.ask(asked).topics] == [3]
    topic = look_until(lambda: raw.ask(MetadataRequest(topics=wanted)).topics[0], lambda topic: not topic.error_code)
    assert [partition.leader_epoch for partition in topic.partitions] == [0, 0]
    state = DeleteTopicsRequest.DeleteTopicState(name=name)
    assert raw.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000)).responses[0].error_code == 0


@pytest.mark.parametrize(
    ("policy", "offset", "code", "start"),
    [
        ("delete", 2, 0, 2),
        ("delete", 0, 0, 0),
        ("delete", -1, 0, 3),
        ("delete", 3, 0, 3),
        ("delete", 4, 1, -1),
        ("delete", -2, 1, -1),
        ("compact", 0, 44, -1),
        ("compact,delete", 1, 0, 1),
        ("", 1, 0, 1),
    ],
)
def test_delete_records(
    raw: RawClient, new_topic: NewTopicFixture, policy: str, offset: int, code: int, start: int
) -> None:
    topic = new_topic(cleanup_policy=policy)
    assert produced(raw, topic, keyed((K, 0), (K, 0), (K, 0))).error_code == 0
    partition_request = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[partition_request])
    (found,) = raw.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000)).topics[0].partitions
    assert (found.error_code, found.low_watermark) == (code, start)


@pytest.mark.parametrize(("kind", "code"), [(0, 115), (1, 0), (2, 114), (3, 115)])
def test_endpoints_of_the_cluster(raw: RawClient, kind: int, code: int) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=kind, include_fenced_brokers=True
    )
    answer = raw.ask(request)
    assert (answer.error_code, answer.endpoint_type, len(answer.brokers)) == (code, 1, 0 if code else 1)
    assert (answer.controller_id, bool(answer.cluster_id)) == (-1 if code else 1, not code)
    assert [broker.is_fenced for broker in answer.brokers] == [False] * len(answer.brokers)

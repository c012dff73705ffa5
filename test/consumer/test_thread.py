"""A consumer with a loop and an I/O thread of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from kafka.admin import KafkaAdminClient
from kafka.client import KafkaClient
from kafka.consumer import KafkaConsumer
from kafka.consumer.listener import SubscriptionPattern
from kafka.errors import IllegalStateError, KafkaTimeoutError
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker
from test.support.optional import needs_re2
from test.support.waiting import until


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker.bootstrap


def test_asking_for_a_topics_partitions_does_not_create_it(served: str) -> None:
    with KafkaConsumer(bootstrap_servers=served) as consumer, KafkaAdminClient(bootstrap_servers=served) as admin:
        assert consumer.partitions_for_topic("missing") == set()
        assert "missing" not in admin.list_topics()
        admin.create_topics({"there": {"num_partitions": 3, "replication_factor": 1}})
        assert consumer.partitions_for_topic("there") == {0, 1, 2}
        assert "there" in consumer.topics()


def test_a_consumer_can_wait_for_the_cluster(served: str) -> None:
    with KafkaConsumer(bootstrap_servers=served) as consumer:
        assert consumer.bootstrap() is None  # type: ignore[func-returns-value]
        assert consumer.bootstrap_connected()
        cluster = consumer._host.client.cluster
        for _ in range(2):
            seen = cluster._refreshed_at or 0.0
            consumer.bootstrap(timeout_ms=10_000, refresh=True)
            assert (cluster._refreshed_at or 0.0) > seen
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.bootstrap()


def test_a_consumer_says_what_was_in_the_way_of_the_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = f"127.0.0.1:{server.getsockname()[1]}"
    with KafkaConsumer(bootstrap_servers=nobody) as consumer:
        with pytest.raises(KafkaTimeoutError, match=r"timeout_ms=300: no bootstrap server.*refused"):
            consumer.bootstrap(timeout_ms=300)
        assert not consumer.bootstrap_connected()


READERS_OF_PATTERNS: dict[str, dict[str, str]] = {
    "alone": {},
    "classic": {"group_id": "classic-pattern"},
    "new": {"group_id": "new-pattern", "group_protocol": "consumer"},
    "brokers": {"group_id": "brokers-pattern", "group_protocol": "consumer"},
}


@needs_re2
@pytest.mark.parametrize("reader", READERS_OF_PATTERNS)
def test_a_deleted_topic_of_a_pattern_is_not_made_again(served: str, reader: str) -> None:
    gone, stays = f"pattern-{reader}-gone", f"pattern-{reader}-stays"
    settings = READERS_OF_PATTERNS[reader]
    with (
        KafkaAdminClient(bootstrap_servers=served) as admin,
        KafkaProducer(bootstrap_servers=served) as producer,
        KafkaConsumer(bootstrap_servers=served, auto_offset_reset="earliest", **settings) as consumer,
    ):
        admin.create_topics({gone: {"num_partitions": 3}, stays: {"num_partitions": 1}}, wait_for_metadata=True)
        producer.send(gone, b"1", partition=0)
        producer.send(stays, b"1")
        producer.flush()
        pattern = f"pattern-{reader}-.*"
        consumer.subscribe(pattern=SubscriptionPattern(pattern) if reader == "brokers" else pattern)
        read = read_from(consumer, {gone, stays})
        admin.delete_topics([gone])
        cluster = consumer._host.client.cluster
        until(lambda: cluster.partitions_for_topic(gone) is None, meanwhile=lambda: consumer.poll(20))
        producer.send(stays, b"2").get(30)
        assert read_from(consumer, {stays}) == {stays} and read == {gone, stays}
        assert gone not in admin.list_topics()


def test_the_leader_of_a_group_does_not_make_the_topics_of_others(served: str) -> None:
    """They may have found them by a pattern, and be the last to know that they were deleted."""
    with (
        KafkaAdminClient(bootstrap_servers=served) as admin,
        KafkaConsumer(bootstrap_servers=served, group_id="led") as leader,
        KafkaConsumer(bootstrap_servers=served, group_id="led", allow_auto_create_topics=False) as other,
    ):
        admin.create_topics({"led-mine": {"num_partitions": 1}}, wait_for_metadata=True)
        leader.subscribe(["led-mine"])
        other.subscribe(["led-others"])
        cluster = leader._host.client.cluster
        until(leader.assignment, meanwhile=lambda: leader.poll(50))
        until(lambda: cluster.topic_error("led-others"), meanwhile=lambda: (leader.poll(50), other.poll(50)))
        assert cluster.partitions_for_topic("led-mine") == {0}
        assert "led-others" not in admin.list_topics()


def test_a_producer_on_the_client_of_a_patterns_consumer_still_has_topics_made(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as first:
        first.send("shared-in", b"1").get(30)
    loop = Loop()
    with KafkaClient(bootstrap_servers=served, loop=loop, all_topics=False) as client:
        consumer = KafkaConsumer(client=client)
        consumer.subscribe(pattern="shared-in")
        producer = KafkaProducer(client=client)
        assert loop.run_until(lambda: client.cluster.partitions_for_topic("shared-in") is not None, 20)
        sent = producer.send("shared-out", b"1")
        assert loop.run_until(lambda: sent.is_done, 20) and sent.succeeded()
        assert loop.run_until(consumer.close_async(), 20)
    loop.close()


def read_from(consumer: KafkaConsumer, wanted: set[str]) -> set[str]:
    """The topics that records came from, until there were some from all that are wanted."""
    found: set[str] = set()
    until(lambda: wanted <= found, meanwhile=lambda: found.update(each.topic for each in consumer.poll(100)))
    return found


def iterated(consumer: KafkaConsumer) -> list[bytes | None]:
    """What iteration gives until it ends; again, while what is there is still on its way."""
    return until(lambda: [record.value for record in consumer])


def test_iteration_ends_when_nothing_came_for_consumer_timeout_ms_and_goes_on_when_asked_again(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("tail", b"1").get(30)
        consumer = KafkaConsumer(
            "tail", bootstrap_servers=served, auto_offset_reset="earliest", consumer_timeout_ms=300
        )
        with consumer:
            assert iterated(consumer) == [b"1"]
            producer.send("tail", b"2").get(30)
            assert iterated(consumer) == [b"2"]
            assert consumer.position(TopicPartition("tail", 0)) == 2


def test_a_partition_that_is_added_later_is_read(served: str) -> None:
    with (
        KafkaAdminClient(bootstrap_servers=served) as admin,
        KafkaProducer(bootstrap_servers=served, metadata_max_age_ms=200) as producer,
        KafkaConsumer("grows", bootstrap_servers=served, auto_offset_reset="earliest", metadata_max_age_ms=200,
                      consumer_timeout_ms=20_000) as consumer,
    ):  # fmt: skip
        producer.send("grows", b"first").get(30)
        assert next(consumer).value == b"first"
        admin.create_partitions({"grows": 2})
        while producer.partitions_for("grows") != {0, 1}:
            producer.flush()
        producer.send("grows", b"second", partition=1).get(30)
        record = next(consumer)
        assert (record.partition, record.value) == (1, b"second")


def test_a_partition_that_is_not_there_is_reported_once_and_holds_up_no_other(
    served: str, caplog: pytest.LogCaptureFixture
) -> None:
    there, missing = TopicPartition("some", 0), TopicPartition("some", 99)
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("some", b"1").get(30)
    with KafkaConsumer(bootstrap_servers=served, auto_offset_reset="earliest", request_timeout_ms=20_000) as consumer:
        consumer.assign([there, missing])
        began = time.monotonic()
        assert next(consumer).value == b"1"
        assert time.monotonic() - began < 10
        with KafkaProducer(bootstrap_servers=served) as producer:
            producer.send("some", b"2").get(30)
        assert next(consumer).value == b"2"
        times = {there: 1.5}
        found = consumer.offsets_for_times(times)[there]
        assert found is not None and found.offset == 0
    lines = [record for record in caplog.records if "some-99" in record.message]
    assert [record.levelname for record in lines] == ["WARNING"]
    assert "topic some has 1 partitions, and no such one (yet)" in lines[0].message


def test_a_closed_consumer_refuses_calls_in_the_thread_that_closed_it_too(served: str) -> None:
    where = TopicPartition("closed", 0)
    consumer = KafkaConsumer(bootstrap_servers=served, group_id="closed")
    consumer.assign([where])
    consumer.close()
    consumer.close()
    for call in (consumer.poll, lambda: next(consumer), lambda: consumer.seek(where, 0), lambda: consumer.pause(where)):
        with pytest.raises(IllegalStateError, match="the consumer is closed"):
            call()

"""A consumer with a loop and an I/O thread of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka.admin import KafkaAdminClient
from kafka.consumer import KafkaConsumer
from kafka.errors import IllegalStateError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.testing import EmbeddedBroker


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with EmbeddedBroker(in_process=True) as broker:
        yield broker.bootstrap


def test_asking_for_a_topics_partitions_does_not_create_it(served: str) -> None:
    with KafkaConsumer(bootstrap_servers=served) as consumer, KafkaAdminClient(bootstrap_servers=served) as admin:
        assert consumer.partitions_for_topic("missing") is None
        assert "missing" not in admin.list_topics()
        admin.create_topics({"there": {"num_partitions": 3, "replication_factor": 1}})
        assert consumer.partitions_for_topic("there") == {0, 1, 2}
        assert "there" in consumer.topics()


def test_iteration_ends_when_nothing_came_for_consumer_timeout_ms_and_goes_on_when_asked_again(served: str) -> None:
    with KafkaProducer(bootstrap_servers=served) as producer:
        producer.send("tail", b"1").get(30)
        consumer = KafkaConsumer(
            "tail", bootstrap_servers=served, auto_offset_reset="earliest", consumer_timeout_ms=300
        )
        with consumer:
            assert [record.value for record in consumer] == [b"1"]
            producer.send("tail", b"2").get(30)
            assert [record.value for record in consumer] == [b"2"]
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


def test_a_closed_consumer_refuses_calls_in_the_thread_that_closed_it_too(served: str) -> None:
    where = TopicPartition("closed", 0)
    consumer = KafkaConsumer(bootstrap_servers=served, group_id="closed")
    consumer.assign([where])
    consumer.close()
    consumer.close()
    for call in (consumer.poll, lambda: next(consumer), lambda: consumer.seek(where, 0), lambda: consumer.pause(where)):
        with pytest.raises(IllegalStateError, match="the consumer is closed"):
            call()

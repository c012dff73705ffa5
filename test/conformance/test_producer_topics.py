"""``KafkaProducer`` on every release: topics that it makes, does not find, or that change under it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, TopicAlreadyExistsError
from kafka.producer import KafkaProducer
from test.conformance.reading import DEADLINE_S, outcomes, values_of
from test.support.either_broker import every_release
from test.support.waiting import eventually, until

pytestmark = every_release

NewTopicFixture = Callable[..., str]
Unique = Callable[[str], str]


def test_a_topic_is_made_by_the_first_record_that_is_sent_to_it(bootstrap: str, unique: Unique) -> None:
    topic = unique("made")
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(20)]
        assert outcomes(futures) == [None] * 20
        assert producer.partitions_for(topic) == {0, 1}, "as many as the broker's num.partitions says"
    assert values_of(bootstrap, topic) == [b"%d" % number for number in range(20)]


def test_a_topic_is_made_by_asking_for_its_partitions(bootstrap: str, unique: Unique) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        assert producer.partitions_for(unique("made")) == {0, 1}
        assert producer.bootstrap_connected()


def test_a_topic_that_nobody_may_make_is_an_error_that_names_it(bootstrap: str, unique: Unique) -> None:
    topic = unique("missing")
    with KafkaProducer(bootstrap_servers=bootstrap, allow_auto_create_topics=False, max_block_ms=300) as producer:
        with pytest.raises(KafkaTimeoutError, match=topic):
            producer.partitions_for(topic)
        with pytest.raises(KafkaTimeoutError, match=topic):
            producer.send(topic, b"x").get(DEADLINE_S)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as admin:
        assert topic not in admin.list_topics()


def test_a_partition_that_is_not_there_is_an_error_that_names_it(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        assert producer.partitions_for(topic) == {0, 1}
        producer._settings["max_block_ms"] = 300
        with pytest.raises(KafkaError, match=topic):
            producer.send(topic, b"x", partition=2).get(DEADLINE_S)
        assert producer.send(topic, b"x", partition=1).get(DEADLINE_S).offset == 0


@pytest.mark.parametrize("name", ["", "..", "with space", "ä", "x" * 250])
def test_a_bad_name_is_refused_at_the_call(bootstrap: str, name: str) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer, pytest.raises(InvalidTopicError):
        producer.send(name, b"x")


def create(admin: KafkaAdminClient, topic: str) -> None:
    """Brokers with a ZooKeeper end a deletion some time after the topic has gone from their metadata."""

    def is_created() -> bool:
        try:
            return bool(admin.create_topics([NewTopic(topic, 1, 1)], wait_for_metadata=True))
        except TopicAlreadyExistsError:
            return False

    until(is_created, f"{topic} is created")


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_a_topic_that_was_deleted_and_made_anew_is_written_from_its_start(
    bootstrap: str, unique: Unique, idempotent: bool
) -> None:
    topic = unique("anew")
    with (
        KafkaAdminClient(bootstrap_servers=bootstrap) as admin,
        KafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=idempotent, allow_auto_create_topics=False
        ) as producer,
    ):
        for turn in range(3):
            create(admin, topic)
            futures = [producer.send(topic, b"%d %d" % (turn, number)) for number in range(10)]
            assert [future.get(DEADLINE_S).offset for future in futures] == list(range(10))
            assert values_of(bootstrap, topic) == [b"%d %d" % (turn, number) for number in range(10)]
            admin.delete_topics([topic])
            until(lambda: topic not in admin.list_topics(), f"{topic} is deleted")


def test_partitions_that_are_added_are_found_and_take_records(bootstrap: str, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with (
        KafkaAdminClient(bootstrap_servers=bootstrap) as admin,
        KafkaProducer(bootstrap_servers=bootstrap, metadata_max_age_ms=100, partitioner="round_robin") as producer,
    ):
        producer.send(topic, b"x").get(DEADLINE_S)
        admin.create_partitions({topic: 3})
        eventually(lambda: producer.partitions_for(topic), {0, 1, 2})
        futures = [producer.send(topic, b"%d" % number) for number in range(6)]
        assert outcomes(futures) == [None] * 6
        assert sorted(future.get(0).partition for future in futures) == [0, 0, 1, 1, 2, 2]

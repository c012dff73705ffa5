"""Our transactional producer over every release, and so with both versions of the protocol."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    UnknownMemberIdError,
)
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.offsets import OffsetFetchRequest
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from test.broker.raw_client import RawClient
from test.conformance.reading import poll_until, records_of_all
from test.support.either_broker import EITHER, every_release
from test.support.waiting import eventually, until

pytestmark = every_release


class Cluster(NamedTuple):
    bootstrap: str
    version: int


@pytest.fixture
def cluster(request: pytest.FixtureRequest, bootstrap: str) -> Cluster:
    """Where it is, and which version of the protocol it speaks: older releases, which are called by name, have 1."""
    return Cluster(bootstrap, 2 if request.node.callspec.params["bootstrap"] in EITHER else 1)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"txn-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 3, 1)], wait_for_metadata=True)
    return name


Make = Callable[..., KafkaProducer]


@pytest.fixture
def make(cluster: Cluster, name: str) -> Iterator[Make]:
    made: list[KafkaProducer] = []

    def new(**settings: Any) -> KafkaProducer:
        settings = {"transactional_id": name, **settings}
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, **settings)
        made.append(producer)
        producer.init_transactions()
        return producer

    yield new
    for producer in made:
        producer.close(timeout=10)


def read(cluster: Cluster, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """All values of a topic that a reader of this isolation gets."""
    found = itertools.chain(*records_of_all(cluster.bootstrap, topic, 3, isolation_level=isolation))
    return sorted(record.value for record in found if record.value is not None)


def committed(cluster: Cluster, group: str, partition: TopicPartition) -> int:
    """The group's offset, when no transaction has one pending; -1: none."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
    with RawClient(int(cluster.bootstrap.rpartition(":")[2])) as raw:
        eventually(lambda: raw.ask(FindCoordinatorRequest(key=group, key_type=0), 3).error_code, 0)  # makes its topic

        def stable() -> list[int]:
            answer = raw.ask(request, 7)
            rows = [row for topic in answer.topics for row in topic.partitions if not row.error_code]
            return [] if answer.error_code else [row.committed_offset for row in rows]

        return until(stable, f"a stable offset of {partition} in {group}")[0]


def test_commits_and_aborts_are_what_readers_see(cluster: Cluster, topic: str, make: Make) -> None:
    producer = make()
    machine = producer._transactions.machine  # type: ignore[union-attr]
    assert machine.version == cluster.version
    expected, everything = [], []
    for number in range(6):
        values = [b"%d-%d" % (number, n) for n in range(20)]
        producer.begin_transaction()
        for n, value in enumerate(values):
            producer.send(topic, value, partition=n % 3)
        producer.flush()
        everything += values
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
            expected += values
    assert read(cluster, topic) == sorted(expected)
    assert read(cluster, topic, "read_uncommitted") == sorted(everything)
    assert machine.identity.epoch == (6 if cluster.version == 2 else 0)


def test_offsets_count_when_the_transaction_is_committed(cluster: Cluster, topic: str, make: Make) -> None:
    producer, group, where = make(), f"g-{topic}", TopicPartition(topic, 1)
    for number, is_committed in enumerate((False, True, False, True)):
        before = committed(cluster, group, where)
        producer.begin_transaction()
        producer.send(topic, b"x")
        producer.send_offsets_to_transaction({where: OffsetAndMetadata(number, "m", 0)}, group)
        if is_committed:
            producer.commit_transaction()
            assert committed(cluster, group, where) == number
        else:
            producer.abort_transaction()
            assert committed(cluster, group, where) == before


def test_the_second_producer_fences_the_first(cluster: Cluster, topic: str, make: Make) -> None:
    first = make()
    first.begin_transaction()
    first.send(topic, b"of the first").get(30)
    second = make()
    with pytest.raises(ProducerFencedError, match=topic):
        first.commit_transaction()
    with second.transaction():
        second.send(topic, b"of the second")
    assert read(cluster, topic) == [b"of the second"]


def test_a_fenced_producer_that_continues_gets_an_error_at_the_abort(cluster: Cluster, topic: str, make: Make) -> None:
    first = make()
    first.begin_transaction()
    first.send(topic, b"1", partition=0).get(30)
    make()
    with pytest.raises(InvalidProducerEpochError):
        first.send(topic, b"2", partition=0).get(30)
    with pytest.raises(AbortableTransactionError):
        first.commit_transaction()
    with pytest.raises(ProducerFencedError):
        first.abort_transaction()
    assert read(cluster, topic) == []


def test_a_member_reads_the_offsets_of_a_transaction_as_soon_as_that_is_committed(
    cluster: Cluster, topic: str, make: Make
) -> None:
    """KIP-447: the member's own generation is what the broker checks, and its offsets are read when they are stable."""
    where = TopicPartition(topic, 0)
    producer = make()
    with KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id=f"g-{topic}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        poll_until(lambda: where in consumer.assignment(), consumer)
        with producer.transaction():
            producer.send_offsets_to_transaction({where: OffsetAndMetadata(3, "", -1)}, consumer.group_metadata())
        assert consumer.committed(where) == 3
        stale = consumer.group_metadata()._replace(generation_id=0, member_id="nobody")
        producer.begin_transaction()
        with pytest.raises(AbortableTransactionError):
            producer.send_offsets_to_transaction({where: OffsetAndMetadata(1, "", -1)}, stale)
        producer.abort_transaction()
        assert consumer.committed(where) == 3


def test_a_member_that_is_not_in_the_group_makes_the_transaction_abortable(
    cluster: Cluster, topic: str, make: Make
) -> None:
    producer = make()
    producer.begin_transaction()
    zombie = ConsumerGroupMetadata(f"g-{topic}", 3, "nobody")
    with pytest.raises(AbortableTransactionError) as raised:
        producer.send_offsets_to_transaction({TopicPartition(topic, 0): OffsetAndMetadata(1)}, zombie)
    assert isinstance(raised.value, (IllegalGenerationError, UnknownMemberIdError))
    producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"goes on")
    assert read(cluster, topic) == [b"goes on"]


def test_a_record_that_the_broker_refuses_makes_the_transaction_abortable(
    cluster: Cluster, topic: str, make: Make
) -> None:
    producer = make(max_request_size=8_000_000)
    for _ in range(2):
        producer.begin_transaction()
        producer.send(topic, b"written", partition=0).get(30)
        producer.send(topic, bytes(2_000_000), partition=0)
        with pytest.raises(AbortableTransactionError):
            producer.commit_transaction()
        producer.abort_transaction()
    with producer.transaction():
        producer.send(topic, b"goes on", partition=0)
    assert read(cluster, topic) == [b"goes on"]


def test_a_timeout_above_the_brokers_is_fatal(cluster: Cluster, make: Make) -> None:
    with pytest.raises(FatalTransactionError) as raised:
        make(transaction_timeout_ms=3_600_000)
    assert isinstance(raised.value, InvalidTransactionTimeoutError)


def test_transactions_follow_one_another_at_once(cluster: Cluster, topic: str, make: Make) -> None:
    """Real brokers answer EndTxn before the markers are written: the next transaction comes too early, and waits."""
    producer = make()
    for number in range(40):
        with producer.transaction():
            for partition in range(3):
                producer.send(topic, b"%d" % number, partition=partition)
    assert read(cluster, topic) == sorted(b"%d" % number for number in range(40) for _ in range(3))

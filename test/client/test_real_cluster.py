"""The client and two brokers of real Apache Kafka: leaders that move, brokers that go, quotas."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.client import KafkaClient
from kafka.client.cluster import ClusterMetadata
from kafka.core.routing import Controller
from kafka.errors import raise_for_code
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.quotas import AlterClientQuotasRequest
from kafka.protocol.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.wire.message import Request, Response
from test.support import apache_kafka as apache
from test.support.apache_kafka import ApacheKafka

pytestmark = pytest.mark.timeout(180)


class Cluster:
    """Brokers 1 and 2, and an administrator's client of them."""

    def __init__(self, one: ApacheKafka, two: ApacheKafka) -> None:
        self.one = one
        self.two = two
        self.bootstrap = f"{one.bootstrap},{two.bootstrap}"
        self.client = KafkaClient(bootstrap_servers=one.bootstrap)

    def ask(self, request: Request[Response]) -> Response:
        future = self.client.request(Controller(), request)
        self.client.poll(future=future)
        return future.result()

    def create(self, *replicas: int, name: str | None = None) -> TopicPartition:
        """A new topic with one partition, on these brokers."""
        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[],
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False))  # type: ignore
        raise_for_code(answer.topics[0].error_code, name)  # type: ignore[attr-defined]
        self.wait_for(name, lambda: self.client.cluster.leader_for_partition(TopicPartition(name, 0)) == replicas[0])
        return TopicPartition(name, 0)

    def wait_for(self, topic: str, is_so: object) -> None:
        give_up_at = time.monotonic() + 30
        while not is_so():  # type: ignore[operator]
            assert time.monotonic() < give_up_at
            self.client.poll(future=self.client.cluster.request_update())

    def leads(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether the broker itself knows that it leads, which it may learn later than the metadata tells it."""
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        future = self.client.request(node_id, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        self.client.poll(future=future)
        return future.result().topics[0].partitions[0].error_code == 0  # type: ignore[no-any-return]

    def in_sync(self, partition: TopicPartition) -> set[int]:
        found = self.client.cluster.partition_metadata(partition)
        return set() if found is None else set(found.isr)

    def move(self, partition: TopicPartition, *replicas: int) -> None:
        """The first of ``replicas`` leads from now on, and knows it."""
        self.wait_for(partition.topic, lambda: self.in_sync(partition) == set(replicas))
        entry = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=list(replicas))
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=partition.topic, partitions=[entry])
        self.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000))  # type: ignore[arg-type]
        elected = ElectLeadersRequest.TopicPartitions(topic=partition.topic, partitions=[0])
        self.ask(ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=10_000))  # type: ignore
        self.wait_for(
            partition.topic,
            lambda: (
                self.client.cluster.leader_for_partition(partition) == replicas[0]
                and self.in_sync(partition) == set(replicas)
                and self.leads(partition, replicas[0])
            ),
        )

    def quota(self, client_id: str, name: str, value: float | None) -> None:
        entry = AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[AlterClientQuotasRequest.OpData(key=name, value=value or 0.0, remove=value is None)],
        )
        answer = self.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))  # type: ignore[arg-type]
        raise_for_code(answer.entries[0].error_code, client_id)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    apache.require_apache_kafka()
    with ApacheKafka() as one, ApacheKafka(beside=one) as two:
        made = Cluster(one, two)
        yield made
        made.client.close()


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[set[TopicPartition]]:
    """What each answer with hints was news of."""
    seen: list[set[TopicPartition]] = []
    update = ClusterMetadata.update_partition_leaders

    def noted(self: ClusterMetadata, leaders: object, nodes: object = ()) -> set[TopicPartition]:
        news = update(self, leaders, nodes)  # type: ignore[arg-type]
        seen.append(news)
        return news

    monkeypatch.setattr(ClusterMetadata, "update_partition_leaders", noted)
    return seen


def test_a_producer_follows_the_hint_of_the_former_leader(cluster: Cluster, hints: list[set[TopicPartition]]) -> None:
    partition = cluster.create(1, 2)
    settings = {"bootstrap_servers": cluster.bootstrap, "retry_backoff_ms": 8_000, "retry_backoff_max_ms": 8_000}
    for number, leader in enumerate((2, 1, 2)):
        with KafkaProducer(**settings) as producer:  # another each time: a refresh of the metadata follows the hint
            producer.send(partition.topic, b"%d" % (2 * number)).get(20)
            cluster.move(partition, leader, 3 - leader)
            began = time.monotonic()
            producer.send(partition.topic, b"%d" % (2 * number + 1)).get(20)
            assert time.monotonic() - began < 4, "less than its back-off"
            assert hints.count({partition}) == number + 1
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert [next(consumer).value for _ in range(6)] == [b"0", b"1", b"2", b"3", b"4", b"5"]


def test_a_consumer_follows_the_hint_of_the_former_leader(cluster: Cluster, hints: list[set[TopicPartition]]) -> None:
    partition = cluster.create(1, 2)
    with (
        KafkaConsumer(
            bootstrap_servers=cluster.bootstrap,
            auto_offset_reset="earliest",
            retry_backoff_ms=8_000,
            retry_backoff_max_ms=8_000,
        ) as consumer,
        KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer,
    ):
        consumer.assign([partition])
        producer.send(partition.topic, b"0").get(20)
        assert next(consumer).value == b"0"
        cluster.move(partition, 2, 1)
        producer.send(partition.topic, b"1").get(20)
        hints.clear()
        began = time.monotonic()
        assert next(consumer).value == b"1"
        assert time.monotonic() - began < 4
    assert cluster.client.cluster.leader_for_partition(partition) == 2


def test_a_producer_obeys_its_quota_and_keeps_its_connection(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = cluster.create(1)
    client_id = f"client-{uuid.uuid4().hex[:8]}"
    cluster.quota(client_id, "producer_byte_rate", 20_000)
    with KafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        client_id=client_id,
        request_timeout_ms=3_000,
        linger_ms=5,
        max_request_size=100_000,
    ) as producer:
        producer.send(partition.topic, b"first").get(20)
        client = producer._host.client
        lost: list[object] = []
        monkeypatch.setattr(client._router, "on_lost", lambda *what: lost.append(what))
        began = time.monotonic()
        futures = [producer.send(partition.topic, b"x" * 5_000) for _ in range(60)]
        for future in futures:
            future.get(120)
        took_s = time.monotonic() - began
        throttled = client.throttle.of("Produce")
        assert producer._sender.counts.retries == 0
        assert not lost, "the connection stays"
    cluster.quota(client_id, "producer_byte_rate", None)
    # 300 kB at 20 kB/s are 15 s; the last throttle time is not waited for, and the broker counts in windows of 11 s.
    print(f"300 kB in {took_s:.1f} s, {throttled}")
    assert took_s > 4 and throttled.answers and throttled.most_ms > 3_000, "more than a request may last"


def test_both_go_on_with_a_topic_that_was_made_anew(cluster: Cluster) -> None:
    partition = cluster.create(1)
    with (
        KafkaProducer(bootstrap_servers=cluster.bootstrap, allow_auto_create_topics=False) as producer,
        KafkaConsumer(
            bootstrap_servers=cluster.bootstrap, allow_auto_create_topics=False, auto_offset_reset="earliest"
        ) as consumer,
    ):
        consumer.assign([partition])
        for number in range(3):
            producer.send(partition.topic, b"old %d" % number).get(20)
        assert [next(consumer).value for _ in range(3)] == [b"old 0", b"old 1", b"old 2"]
        former = producer._host.client.cluster.topic_id(partition.topic)
        state = DeleteTopicsRequest.DeleteTopicState(name=partition.topic)
        cluster.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000))  # type: ignore[arg-type]
        cluster.wait_for(partition.topic, lambda: cluster.client.cluster.topic_id(partition.topic) is None)
        cluster.create(2, name=partition.topic)
        assert producer.send(partition.topic, b"new").get(30).offset == 0
        assert next(consumer).value == b"new"
        assert producer._host.client.cluster.topic_id(partition.topic) not in (None, former)

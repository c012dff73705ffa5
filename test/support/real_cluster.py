"""A cluster of two real brokers for tests, and an administrator's client: topics here or there, leaders that move.

The fixture is ``cluster`` of ``test/client/conftest.py``, for all modules there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from kafka import TopicPartition
from kafka.client import KafkaClient
from kafka.core.routing import Controller
from kafka.errors import raise_for_code
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.quotas import AlterClientQuotasRequest
from kafka.protocol.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.wire.message import Request, Response
from test.support import apache_kafka as apache
from test.support.apache_kafka import ApacheKafka
from test.support.waiting import eventually, until

R = TypeVar("R", bound=Response)


class Cluster:
    """Brokers 1 and 2, and an administrator's client of them."""

    def __init__(self, one: ApacheKafka, two: ApacheKafka) -> None:
        self.one = one
        self.two = two
        self.bootstrap = f"{one.bootstrap},{two.bootstrap}"
        self.client = KafkaClient(bootstrap_servers=one.bootstrap)

    def ask(self, request: Request[R]) -> R:
        self.client.poll(timeout_ms=0)  # nobody polls it between two tests: a broker may have closed an idle connection
        future = self.client.request(Controller(), request)
        self.client.poll(future=future)
        return future.result()

    def create(
        self, *replicas: int, name: str | None = None, configs: Mapping[str, str] | None = None
    ) -> TopicPartition:
        """A new topic with one partition, on these brokers."""
        name = name or f"topic-{uuid.uuid4().hex[:8]}"
        topic = CreateTopicsRequest.CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name=n, value=v) for n, v in (configs or {}).items()],
        )
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False))
        raise_for_code(answer.topics[0].error_code, name)
        partition = TopicPartition(name, 0)
        self.wait_for(name, lambda: self.all_know(partition, *replicas))
        return partition

    def wait_for(self, topic: str, is_so: Callable[[], bool]) -> None:
        until(is_so, topic, meanwhile=self._refresh)

    def _refresh(self) -> None:
        self.client.poll(future=self.client.cluster.request_update())

    def all_know(self, partition: TopicPartition, leader: int, *others: int) -> bool:
        """Whether all brokers tell that it leads, and the replicas' own view is the same: else a client that asks the
        wrong one has to come again after its back-off."""
        return (
            self.client.cluster.leader_for_partition(partition) == leader
            and all(self.told_by(node_id, partition) == leader for node_id in {1, 2, leader, *others})
            and self.leads(partition, leader)
            and not any(self.leads(partition, node_id) for node_id in others)
        )

    def told_by(self, node_id: int, partition: TopicPartition) -> int | None:
        """The leader, as this broker's metadata has it."""
        topic = MetadataRequest.MetadataRequestTopic(name=partition.topic)
        future = self.client.request(node_id, MetadataRequest(topics=[topic], allow_auto_topic_creation=False))
        self.client.poll(future=future)
        found = future.result().topics[0].partitions
        return found[partition.partition].leader_id if found else None

    def leads(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether the broker itself knows that it leads, which it may learn later than the metadata tells it."""
        partition_request = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[partition_request])
        future = self.client.request(node_id, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        self.client.poll(future=future)
        return future.result().topics[0].partitions[0].error_code == 0

    def in_sync(self, partition: TopicPartition) -> set[int]:
        found = self.client.cluster.partition_metadata(partition)
        return set() if found is None else set(found.isr)

    def move(self, partition: TopicPartition, *replicas: int) -> None:
        """The first of ``replicas`` leads from now on, and all brokers know it."""
        self.wait_for(partition.topic, lambda: self.in_sync(partition) == set(replicas))
        entry = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=list(replicas))
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=partition.topic, partitions=[entry])
        self.ask(AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000))
        elected = ElectLeadersRequest.TopicPartitions(topic=partition.topic, partitions=[0])
        self.ask(ElectLeadersRequest(election_type=0, topic_partitions=[elected], timeout_ms=10_000))
        self.wait_for(
            partition.topic,
            lambda: self.in_sync(partition) == set(replicas) and self.all_know(partition, *replicas),
        )

    def warm_up(self) -> None:
        """A broker's first producer has to come again after its back-off: the numbers are not there yet."""
        until(lambda: {broker.nodeId for broker in self.client.cluster.brokers()} == {1, 2}, meanwhile=self._refresh)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        def code_of(node_id: int) -> int:
            future = self.client.request(node_id, request)
            self.client.poll(future=future)
            return future.result().error_code

        for node_id in (1, 2):
            eventually(lambda node_id=node_id: code_of(node_id), 0)  # type: ignore[misc]

    def quota(self, client_id: str, name: str, value: float | None) -> None:
        entry = AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[AlterClientQuotasRequest.OpData(key=name, value=value or 0.0, remove=value is None)],
        )
        answer = self.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
        raise_for_code(answer.entries[0].error_code, client_id)


@contextmanager
def two_brokers() -> Iterator[Cluster]:
    """Brokers 1 and 2 in the racks ``left`` and ``right``, which send consumers to the replica in theirs."""
    apache.require_apache_kafka()
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with (
        ApacheKafka(settings={**selector, "broker.rack": "left"}) as one,
        ApacheKafka(settings={**selector, "broker.rack": "right"}, beside=one) as two,
    ):
        made = Cluster(one, two)
        try:
            made.warm_up()
            yield made
        finally:
            made.client.close()

"""Clusters of two or three real brokers for tests, and an administrator's client: topics here or there, leaders that
move, who coordinates what, and whether all replicas are in sync.

:func:`two_brokers` are for ``test/client`` (fixture ``cluster`` of its ``conftest.py``): one controller, and topics
with the replicas that a test asks for. :func:`three_brokers` are for faults (``test/faults/clusters``): each of them is
a controller too, everything has three replicas, and two must be in sync, so that any one may be lost.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from kafka import TopicPartition
from kafka.client import KafkaClient
from kafka.client.connection import BrokerConnection, PendingRequest
from kafka.core.routing import AnyNode, Controller, CoordinatorType, Target
from kafka.errors import KafkaError, raise_for_code
from kafka.protocol.coordinator import FindCoordinatorRequest
from kafka.protocol.fetch import FetchResponse
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.quorum import DescribeQuorumRequest
from kafka.protocol.quotas import AlterClientQuotasRequest
from kafka.protocol.reassignments import AlterPartitionReassignmentsRequest, ElectLeadersRequest
from kafka.protocol.topics import CreateTopicsRequest, DeleteTopicsRequest
from kafka.protocol.transactions import InitProducerIdRequest
from kafka.wire.message import Request, Response
from test.support import apache_kafka as apache
from test.support.apache_kafka import LATEST, ApacheKafka, Place, start_all
from test.support.ports import free_ports
from test.support.waiting import eventually, until

R = TypeVar("R", bound=Response)
T = TypeVar("T")

ANSWER_S: Final = 10.0
"""Of one request to a cluster that may have lost a broker."""
QUORUM_TOPIC: Final = "__cluster_metadata"


class FetchedNodes:
    """Which nodes have answered fetches with records, in order: for ``KafkaClient.add_traffic``."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def sent(self, connection: BrokerConnection, pending: PendingRequest, size_bytes: int) -> None:
        return

    def answered(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        if isinstance(response, FetchResponse) and any(
            entry.records for topic in response.responses for entry in topic.partitions
        ):
            self.seen.append(connection.node_id)


class Cluster:
    """Brokers 1, 2 and so on, and an administrator's client of them. It belongs to the test's thread."""

    def __init__(self, *brokers: ApacheKafka) -> None:
        self.brokers = dict(enumerate(brokers, 1))
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)
        self.client = KafkaClient(bootstrap_servers=self.bootstrap.split(","))

    @property
    def one(self) -> ApacheKafka:
        return self.brokers[1]

    @property
    def two(self) -> ApacheKafka:
        return self.brokers[2]

    def ask(self, request: Request[R], target: Target | None = None) -> R:
        self.client.poll(timeout_ms=0)  # nobody polls it between two tests: a broker may have closed an idle connection
        future = self.client.request(Controller() if target is None else target, request, ANSWER_S)
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
            and all(self.told_by(node_id, partition) == leader for node_id in {*self.brokers, leader, *others})
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
        until(
            lambda: {broker.nodeId for broker in self.client.cluster.brokers()} == set(self.brokers),
            meanwhile=self._refresh,
        )
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)

        def code_of(node_id: int) -> int:
            future = self.client.request(node_id, request)
            self.client.poll(future=future)
            return future.result().error_code

        for node_id in self.brokers:
            eventually(lambda node_id=node_id: code_of(node_id), 0)  # type: ignore[misc]

    def quota(self, client_id: str, name: str, value: float | None) -> None:
        entry = AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[AlterClientQuotasRequest.OpData(key=name, value=value or 0.0, remove=value is None)],
        )
        answer = self.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False))
        raise_for_code(answer.entries[0].error_code, client_id)


    # -- through faults ----------------------------------------------------------------------------------------------

    def retried(self, look: Callable[[], T], what: str) -> T:
        """``look()``, again while it raises a retriable error: brokers may be down, or elect a leader."""
        found: list[T] = []
        seen: list[KafkaError] = []

        def succeeds() -> bool:
            try:
                found.append(look())
            except KafkaError as error:
                if not error.retriable:
                    raise
                seen[:] = [error]
            return bool(found)

        until(succeeds, what, meanwhile=lambda: self.client.poll(timeout_ms=100), shown=lambda: seen)
        return found[0]

    def metadata(self, node_id: int | None = None) -> MetadataResponse:
        """Of all topics, the internal ones too, as one broker tells it, or any."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self.ask(request, AnyNode() if node_id is None else node_id)

    def wait_healthy(self, within_s: float = 60.0) -> None:
        """Until every broker answers, knows all the others, and tells of every partition that it has a leader and all
        its replicas are in sync."""
        missing: list[object] = []

        def look() -> bool:
            missing[:] = [fault for node_id in self.brokers for fault in self._faults_told_by(node_id)]
            return not missing

        until(look, "all replicas are in sync", within_s=within_s, shown=lambda: missing[:20],
              meanwhile=lambda: self.client.poll(timeout_ms=100))  # fmt: skip

    def _faults_told_by(self, node_id: int) -> list[object]:
        try:
            told = self.metadata(node_id)
        except KafkaError as error:
            return [f"node {node_id}: {error!r}"]
        if {broker.node_id for broker in told.brokers} != set(self.brokers):
            return [f"node {node_id} knows {[broker.node_id for broker in told.brokers]}"]
        return [
            f"node {node_id}: {topic.name}-{each.partition_index}, leader {each.leader_id}, in sync {each.isr_nodes}"
            for topic in told.topics
            for each in topic.partitions
            if each.leader_id < 0 or set(each.isr_nodes) != set(each.replica_nodes)
        ]

    def partitions(self, *names: str) -> dict[TopicPartition, MetadataResponse.MetadataResponsePartition]:
        """Those of topics whose names begin with one of these."""
        told = self.retried(self.metadata, "a broker tells its metadata")
        return {
            TopicPartition(topic.name, each.partition_index): each
            for topic in told.topics
            if topic.name is not None and topic.name.startswith(names)
            for each in topic.partitions
        }

    def topic_id(self, name: str) -> str:
        """As Kafka writes it."""
        told = self.retried(self.metadata, "a broker tells its metadata")
        (found,) = (topic.topic_id for topic in told.topics if topic.name == name)
        return base64.urlsafe_b64encode(found.bytes).decode().rstrip("=")

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads it."""
        return until(lambda: self.partitions(topic)[TopicPartition(topic, partition)].leader_id, "a leader")

    def coordinator_of(self, key: str, kind: CoordinatorType = CoordinatorType.GROUP) -> int:
        """The node that coordinates a group, or a transactional id; of share state, ``group:topic id:partition``."""

        def find() -> int:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            told = self.ask(request, AnyNode())
            found = told.coordinators[0]
            raise_for_code(found.error_code, key)
            return found.node_id

        return self.retried(find, f"{key} has a coordinator")

    def active_controller(self) -> int:
        """The leader of the quorum of controllers."""
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=QUORUM_TOPIC, partitions=[partition])

        def find() -> int:
            told = self.ask(DescribeQuorumRequest(topics=[topic]), AnyNode())
            raise_for_code(told.error_code, QUORUM_TOPIC)
            raise_for_code(told.topics[0].partitions[0].error_code, QUORUM_TOPIC)
            return told.topics[0].partitions[0].leader_id

        return self.retried(find, "there is an active controller")

    def reassign(self, replicas: Mapping[TopicPartition, list[int]]) -> None:
        """Give these partitions these replicas, and wait until they are in sync, and they alone."""
        by_topic: dict[str, list[AlterPartitionReassignmentsRequest.ReassignablePartition]] = {}
        for place, nodes in replicas.items():
            entry = AlterPartitionReassignmentsRequest.ReassignablePartition(
                partition_index=place.partition, replicas=nodes
            )
            by_topic.setdefault(place.topic, []).append(entry)
        topics = [
            AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=entries)
            for name, entries in by_topic.items()
        ]
        request = AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=10_000)
        self.retried(lambda: raise_for_code(self.ask(request).error_code, "reassignment"), "a reassignment")

        def are_there() -> bool:
            told = self.partitions(*by_topic)
            return all(
                told[place].leader_id in nodes and told[place].replica_nodes == nodes
                and set(told[place].isr_nodes) == set(nodes)
                for place, nodes in replicas.items()
            )  # fmt: skip

        until(are_there, "the replicas are where they should be", meanwhile=lambda: self.client.poll(timeout_ms=100))

    def elect_preferred(self, places: list[TopicPartition]) -> None:
        """Have the first replica of each of these lead it, and wait until it does."""
        by_topic: dict[str, list[int]] = {}
        for place in places:
            by_topic.setdefault(place.topic, []).append(place.partition)
        elected = [
            ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic.items()
        ]
        request = ElectLeadersRequest(election_type=0, topic_partitions=elected, timeout_ms=10_000)
        self.retried(lambda: raise_for_code(self.ask(request).error_code, "election"), "an election")

        def do_lead() -> bool:
            told = self.partitions(*by_topic)
            return all(told[place].leader_id == told[place].replica_nodes[0] for place in places)

        until(do_lead, "the preferred replicas lead", meanwhile=lambda: self.client.poll(timeout_ms=100))

    def delete(self, *names: str) -> None:
        """Delete the topics whose names begin with one of these."""
        topics = [
            DeleteTopicsRequest.DeleteTopicState(name=name)
            for name in sorted({place.topic for place in self.partitions(*names)})
        ]
        if topics:
            request = DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
            self.retried(lambda: self.ask(request), "topics are deleted")

    def recover(self) -> None:
        """Whatever a test has done to them, let all brokers run, and wait until all is well."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.resume()
            else:
                broker.restart()
        self.wait_healthy()


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


_THREE: Final[Mapping[str, object]] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    # A leader that ends without a word is missed after this time (9 s by default), a controller after a second (two).
    "broker.session.timeout.ms": 1500,
    "broker.heartbeat.interval.ms": 300,
    "controller.quorum.fetch.timeout.ms": 1000,
    "controller.quorum.election.timeout.ms": 500,
    "controller.quorum.election.backoff.max.ms": 500,
    "auto.leader.rebalance.enable": "false",  # tests say when leaders move
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}
_SHARE: Final[Mapping[str, object]] = {
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
}
"""Since 4.0."""
SMALL: Final = (*apache.FAST_START[:2], "-Xmx384m")
RACKS: Final = "abc"


@contextmanager
def three_brokers(version: str = LATEST) -> Iterator[Cluster]:
    """Brokers 1 to 3 of a release since 3.3 in the racks ``a``, ``b`` and ``c``, each of them a controller too."""
    apache.require_apache_kafka(version)
    ports = free_ports(6)
    quorum = [Place(number + 1, ports[2 * number], ports[2 * number + 1]) for number in range(3)]
    shared = {**_THREE, **(_SHARE if version >= "4" else {})}
    cluster_id = apache.random_id()
    brokers = [
        ApacheKafka(
            version, {**shared, "broker.rack": rack}, jvm=SMALL, place=place, quorum=quorum,
            cluster_id=cluster_id,
        )
        for place, rack in zip(quorum, RACKS, strict=True)
    ]  # fmt: skip
    start_all(brokers)
    made = Cluster(*brokers)
    try:
        made.warm_up()
        yield made
    finally:
        made.client.close()
        for broker in brokers:
            broker.stop(gracefully=False)

"""The admin client and two brokers of real Apache Kafka: partitions that move, leaders that are elected."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ElectionType
from kafka.errors import NoError, NoReassignmentInProgressError
from kafka.structs import TopicPartitionReplica
from test.support.real_cluster import Cluster
from test.support.waiting import until

pytestmark = pytest.mark.timeout(180)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=cluster.bootstrap) as client:
        yield client


def brokers_with(admin: KafkaAdminClient, partition: TopicPartition) -> set[int]:
    """The brokers in whose directories it is."""
    found = admin.describe_log_dirs([partition])
    assert {one["broker"] for one in found} == {1, 2}
    return {one["broker"] for one in found for directory in one["log_dirs"] if directory["topics"]}


@pytest.fixture
def slowly(admin: KafkaAdminClient) -> Iterator[Callable[[], None]]:
    """Brokers copy next to nothing of topics that are throttled. What it yields is called to end that."""
    brokers = [ConfigResource("broker", str(number), RATES) for number in (1, 2)]

    def rates() -> list[str]:
        found = admin.describe_configs(brokers)["broker"]
        return [entry["value"] for settings in found.values() for entry in settings.values()]

    def end() -> None:
        # a broker lists these settings as long as they are set, and no longer
        assert admin.reset_configs(brokers, raise_on_unknown=False) == {"broker": {"1": "OK", "2": "OK"}}
        until(lambda: rates() == [])

    admin.alter_configs([ConfigResource("broker", one.name, dict.fromkeys(RATES, 1)) for one in brokers])
    until(lambda: rates() == ["1"] * 4)
    yield end
    end()


def test_a_move_is_listed_called_off_and_made(
    cluster: Cluster, admin: KafkaAdminClient, slowly: Callable[[], None]
) -> None:
    throttled = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
    partition = cluster.create(1, configs=dict.fromkeys(throttled, "*"))
    with KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=None) as producer:
        for _ in range(8):
            producer.send(partition.topic, bytes(500_000), partition=0)
    assert admin.alter_partition_reassignments({partition: [2]}) == {partition: None}
    under_way = {partition: {"replicas": [2, 1], "adding_replicas": [2], "removing_replicas": [1]}}
    assert admin.list_partition_reassignments() == under_way
    assert admin.list_partition_reassignments([partition]) == under_way
    assert admin.list_partition_reassignments({partition.topic: [7]}) == {}
    assert admin.alter_partition_reassignments({partition: None}) == {partition: None}
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments({partition: None}) == {partition: NoReassignmentInProgressError}
    slowly()
    assert admin.alter_partition_reassignments({partition: [2]}) == {partition: None}
    until(lambda: admin.list_partition_reassignments() == {})
    until(lambda: brokers_with(admin, partition) == {2})
    (described,) = admin.describe_topic_partitions([partition.topic])["topics"]
    assert [one["leader_id"] for one in described["partitions"]] == [2]


def test_the_preferred_replica_is_elected_when_it_does_not_lead(cluster: Cluster, admin: KafkaAdminClient) -> None:
    partition = cluster.create(1, 2)
    cluster.wait_for(partition.topic, lambda: cluster.in_sync(partition) == {1, 2})
    admin.alter_partition_reassignments({partition: [2, 1]})
    until(lambda: admin.list_partition_reassignments([partition]) == {})

    def elected(kind: ElectionType) -> list[int]:
        (result,) = admin.elect_leaders(kind, [partition])["replica_election_results"]
        return [one["error_code"] for one in result["partition_result"]]

    assert elected(ElectionType.PREFERRED) == [0]
    cluster.wait_for(partition.topic, lambda: cluster.all_know(partition, 2, 1))
    assert elected(ElectionType.PREFERRED) == elected(ElectionType.UNCLEAN) == [84]


def test_each_broker_answers_for_its_own_directories(cluster: Cluster, admin: KafkaAdminClient) -> None:
    partition = cluster.create(1, 2)
    until(lambda: brokers_with(admin, partition) == {1, 2})
    moves = {
        TopicPartitionReplica(*partition, one["broker"]): one["log_dirs"][0]["log_dir"]
        for one in admin.describe_log_dirs()
    }
    assert admin.alter_replica_log_dirs(moves) == dict.fromkeys(moves, NoError)
    (one,) = admin.describe_log_dirs([partition], [2])
    assert (one["broker"], one["log_dirs"][0]["topics"][0]["name"]) == (2, partition.topic)
    (metadata,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
    assert [voter["replica_id"] for voter in metadata["current_voters"]] == [metadata["leader_id"]] == [1]
    assert [observer["replica_id"] for observer in metadata["observers"]] == [2]

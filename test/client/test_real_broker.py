"""The client against real Apache Kafka: what no script of ours can prove."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka.client.kafka_client import KafkaClient
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import retrying
from kafka.core.routing import AnyNode, Controller, Coordinator, Leader
from kafka.errors import KafkaConnectionError, raise_for_code
from kafka.protocol.groups import ListGroupsRequest
from kafka.protocol.list_offsets import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.topics import CreateTopicsRequest
from kafka.structs import TopicPartition
from test.support.apache_kafka import ApacheKafka

pytestmark = pytest.mark.timeout(180)


def make_topic(client: KafkaClient, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    made = client.request(Controller(), request)
    client.poll(future=made)
    assert made.result().topics[0].error_code == 0


def offset_of(client: KafkaClient, partition: TopicPartition) -> Dialogue[int]:
    topic = ListOffsetsRequest.ListOffsetsTopic(
        name=partition.topic,
        partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=-1)
        ],
    )

    def attempt() -> Dialogue[int]:
        response = yield from send(Leader(partition), ListOffsetsRequest(replica_id=-1, topics=[topic]))
        found = response.topics[0].partitions[0]
        raise_for_code(found.error_code)  # a new leader may not know yet that it is one
        return found.offset

    return retrying(
        attempt, what="reading the end", backoff=client.retry_backoff, timeout_s=60, topics=[partition.topic]
    )


def test_requests_reach_controller_leader_and_coordinator(apache_kafka: ApacheKafka) -> None:
    with KafkaClient(bootstrap_servers=apache_kafka.bootstrap, all_topics=False) as client:
        make_topic(client, "client-routes")
        offset = client.run(offset_of(client, TopicPartition("client-routes", 2)))
        client.poll(future=offset)
        assert offset.result() == 0
        groups = client.request(Coordinator("client-routes-group"), ListGroupsRequest())
        client.poll(future=groups)
        assert groups.result().error_code in (0, 14), "14: a broker that has just started loads its groups"
        assert client.cluster.topic_id("client-routes") is not None
        assert client.cluster.leader_epoch_for_partition(TopicPartition("client-routes", 0)) == 0
        assert client.check_version() == "4.3"


def test_a_broker_that_dies_and_comes_back_is_found_again(start_apache_kafka: Callable[..., ApacheKafka]) -> None:
    broker = start_apache_kafka()
    with KafkaClient(bootstrap_servers=broker.bootstrap, reconnect_backoff_max_ms=500) as client:
        make_topic(client, "client-lives")
        known = client.request(AnyNode(), MetadataRequest(topics=[]))
        client.poll(future=known)
        broker.kill()
        lost = client.request(known.result().brokers[0].node_id, ListGroupsRequest())
        client.poll(future=lost)
        assert isinstance(lost.exception, KafkaConnectionError)
        future = client.run(offset_of(client, TopicPartition("client-lives", 0)))
        broker.restart()
        client.poll(future=future)
        assert future.result() == 0

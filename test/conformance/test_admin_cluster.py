"""Replicas, leaders, directories, controllers and what has settings, as an administrator sees them; on all brokers.

Moves and elections with somewhere to go need two brokers: ``test/client/test_real_admin.py``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafka.admin import ConfigResource, ConfigResourceType, ElectionType, KafkaAdminClient
from kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidReplicationAssignmentError,
    LogDirNotFoundError,
    NoError,
    NoReassignmentInProgressError,
    UnknownBrokerIdError,
    UnknownTopicOrPartitionError,
)
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition, TopicPartitionReplica
from test.support.either_broker import every_release, every_release_with_batches
from test.support.waiting import eventually, look_until

NewTopicFixture = Callable[..., str]


@pytest.fixture
def node_id(admin: KafkaAdminClient) -> int:
    (broker,) = admin.describe_cluster()["brokers"]
    found: int = broker["broker_id"]
    return found


def mistyped() -> TopicPartition:
    return TopicPartition(f"mistyped-{uuid.uuid4().hex[:8]}", 0)


# -- replicas and leaders --------------------------------------------------------------------------------------------


@every_release
def test_moves_are_accepted_or_refused_one_by_one(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int
) -> None:
    topic = new_topic(3)
    here, there, stays = (TopicPartition(topic, number) for number in range(3))
    missing = mistyped()
    assert admin.alter_partition_reassignments(
        {here: [node_id], there: [node_id + 70], stays: None, missing: [node_id]}
    ) == {
        here: None,
        there: InvalidReplicationAssignmentError,
        stays: NoReassignmentInProgressError,
        missing: UnknownTopicOrPartitionError,
    }
    assert admin.list_partition_reassignments() == {}
    assert admin.list_partition_reassignments([here, missing]) == {}
    assert admin.list_partition_reassignments({topic: [0, 1]}, timeout_ms=5000) == {}
    assert admin.alter_partition_reassignments({}) == {}


@every_release
@pytest.mark.parametrize("kind", [ElectionType.PREFERRED, 1])
def test_no_election_is_needed_where_leaders_are_as_they_should_be(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, kind: int
) -> None:
    topic = new_topic(2)
    for given in ([topic], {topic: [0, 1]}, [TopicPartition(topic, 0), TopicPartition(topic, 1)]):
        found = admin.elect_leaders(kind, given)
        assert json.dumps(found) and found["error_code"] == 0
        (result,) = found["replica_election_results"]
        assert result["topic"] == topic
        assert {one["partition_id"]: one["error_code"] for one in result["partition_result"]} == {0: 84, 1: 84}


def test_an_election_of_all_leaders_returns_all_partitions(
    admin: KafkaAdminClient, new_topic: NewTopicFixture
) -> None:
    topic = new_topic(2)
    results = admin.elect_leaders("preferred", timeout_ms=10_000)["replica_election_results"]
    (found,) = [result["partition_result"] for result in results if result["topic"] == topic]
    assert [one["error_code"] for one in found] == [84, 84]


@every_release
def test_an_election_without_the_partition_is_an_error(admin: KafkaAdminClient) -> None:
    missing = mistyped()
    with pytest.raises(UnknownTopicOrPartitionError, match=missing.topic):
        admin.elect_leaders(0, [missing])
    with pytest.raises(UnknownTopicOrPartitionError, match=missing.topic):
        admin.elect_leaders(0, [missing.topic])
    (result,) = admin.elect_leaders(0, [missing], raise_errors=False)["replica_election_results"]
    assert [one["error_code"] for one in result["partition_result"]] == [3]


def test_topics_are_described_page_by_page(admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int) -> None:
    first, second = sorted([new_topic(2), new_topic(2)])
    cursor, seen = None, []
    while True:
        page = admin.describe_topic_partitions([second, first], 3, cursor)
        assert json.dumps(page) and sum(len(topic["partitions"]) for topic in page["topics"]) <= 3
        seen += [(topic["name"], one["partition_index"]) for topic in page["topics"] for one in topic["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert cursor == {"topic_name": second, "partition_index": 1}
    assert seen == [(first, 0), (first, 1), (second, 0), (second, 1)]
    (topic,) = admin.describe_topic_partitions([first])["topics"]
    (described,) = admin.describe_topics([first])
    for name in ("name", "topic_id", "error_code", "is_internal", "authorized_operations"):
        assert topic[name] == described[name]
    assert all(one["leader_id"] == node_id and one["isr_nodes"] == [node_id] for one in topic["partitions"])
    assert first in {each["name"] for each in admin.describe_topic_partitions()["topics"]}
    (missing,) = admin.describe_topic_partitions([mistyped().topic])["topics"]
    assert (missing["error_code"], missing["topic_id"], missing["partitions"]) == (3, None, [])


# -- directories -----------------------------------------------------------------------------------------------------


def sizes(found: list[dict[str, Any]], topic: str) -> dict[int, int]:
    (broker,) = found
    return {
        one["partition_index"]: one["partition_size"]
        for directory in broker["log_dirs"]
        for each in directory["topics"]
        if each["name"] == topic
        for one in each["partitions"]
    }


@every_release
def test_directories_have_the_sizes_of_partitions(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int
) -> None:
    topic = new_topic(2)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, bytes(5000), partition=1).get(20)
    found = look_until(admin.describe_log_dirs, lambda found: len(sizes(found, topic)) == 2)
    assert json.dumps(found) and [one["broker"] for one in found] == [node_id]
    (directory,) = found[0]["log_dirs"]
    assert set(directory) == {"error_code", "log_dir", "topics", "total_bytes", "usable_bytes", "is_cordoned"}
    assert (directory["error_code"], directory["is_cordoned"]) == (0, False)
    assert sizes(found, topic)[0] == 0 and sizes(found, topic)[1] > 5000
    assert set(sizes(admin.describe_log_dirs([topic], [node_id]), topic)) == {0, 1}
    for given in ({topic: [1, 7]}, [TopicPartition(topic, 1), mistyped()]):
        (only,) = admin.describe_log_dirs(given)[0]["log_dirs"]
        assert [(each["name"], [one["partition_index"] for one in each["partitions"]]) for each in only["topics"]] == [
            (topic, [1])
        ]
    assert not any(each["partitions"] for each in admin.describe_log_dirs([])[0]["log_dirs"][0]["topics"])
    assert admin.describe_log_dirs(brokers=[]) == []
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_log_dirs([mistyped().topic])


@every_release
def test_a_replica_moves_only_to_a_directory_that_there_is(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int
) -> None:
    topic = new_topic(2)
    found = look_until(lambda: admin.describe_log_dirs([topic]), lambda found: len(sizes(found, topic)) == 2)
    path = found[0]["log_dirs"][0]["log_dir"]
    here, there_too = (TopicPartitionReplica(topic, number, node_id) for number in range(2))
    assert admin.alter_replica_log_dirs({here: path, (topic, 1, node_id): "/no/such/directory"}) == {
        here: NoError,
        there_too: LogDirNotFoundError,
    }
    assert admin.alter_replica_log_dirs({}) == {}


@every_release
@pytest.mark.parametrize(
    "call",
    [
        lambda admin, node_id: admin.describe_log_dirs(brokers=[node_id]),
        lambda admin, node_id: admin.alter_replica_log_dirs({("mistyped", 0, node_id): "/no/such/directory"}),
        lambda admin, node_id: admin.describe_configs([ConfigResource("broker", str(node_id))]),
        lambda admin, node_id: admin.reset_configs([ConfigResource("broker", str(node_id))]),
    ],
    ids=["describe_log_dirs", "alter_replica_log_dirs", "describe_configs", "reset_configs"],
)
def test_a_broker_can_be_asked_first_of_all(
    bootstrap: str, node_id: int, call: Callable[[KafkaAdminClient, int], object]
) -> None:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as fresh:
        assert call(fresh, node_id)
    with KafkaAdminClient(bootstrap_servers=bootstrap) as fresh, pytest.raises(UnknownBrokerIdError):
        call(fresh, node_id + 70)


# -- controllers -----------------------------------------------------------------------------------------------------


def test_the_quorum_has_a_leader_that_votes(admin: KafkaAdminClient, node_id: int) -> None:
    found = admin.describe_metadata_quorum()
    assert json.dumps(found) and set(found) == {"topics", "nodes"}
    (topic,) = found["topics"]
    (partition,) = topic["partitions"]
    assert (topic["topic_name"], partition["partition_index"], partition["error"]) == ("__cluster_metadata", 0, None)
    assert partition["leader_id"] in {voter["replica_id"] for voter in partition["current_voters"]}
    assert all(voter["last_caught_up_timestamp"] > 0 for voter in partition["current_voters"])
    assert {node["node_id"] for node in found["nodes"]} == {node_id}
    assert found["nodes"][0]["listeners"][0]["name"] == "CONTROLLER"


# -- settings --------------------------------------------------------------------------------------------------------


def test_what_has_settings_is_listed(admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int) -> None:
    topic, group = new_topic(), f"group-{uuid.uuid4().hex[:8]}"
    admin.alter_configs([ConfigResource("group", group, {"share.auto.offset.reset": "earliest"})])
    # The broker learns of settings behind the controller's answer.
    found = look_until(admin.list_config_resources, lambda found: group in found.get("group", ()))
    assert topic in found["topic"]
    assert (found["broker"], found["broker_logger"]) == ([str(node_id)], [str(node_id)])
    some = admin.list_config_resources([ConfigResourceType.BROKER, "topic"])
    assert set(some) == {"broker", "topic"} and topic in some["topic"]
    with pytest.raises(IllegalArgumentError):
        admin.list_config_resources([0])
    admin.reset_configs([ConfigResource("group", group)])
    look_until(admin.list_config_resources, lambda found: group not in found.get("group", ()))


def expect_set(admin: KafkaAdminClient, topic: str, names: set[str]) -> None:
    """That these are what is set for the topic, in a moment."""
    resource = ConfigResource("topic", topic)
    eventually(lambda: set(admin.describe_configs([resource])["topic"][topic]), names)


@every_release_with_batches
@pytest.mark.parametrize("incremental", [None, False])
def test_settings_are_reset_by_name_and_all_at_once(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, incremental: bool | None
) -> None:
    topic = new_topic(retention_ms=60_000, segment_ms=70_000, max_message_bytes=9999)
    everything = {"retention.ms", "segment.ms", "max.message.bytes"}
    expect_set(admin, topic, everything)
    by_name = [ConfigResource("topic", topic, ["retention.ms"])]
    assert admin.reset_configs(by_name, validate_only=True, incremental=incremental) == {"topic": {topic: "OK"}}
    assert admin.reset_configs(by_name, incremental=incremental) == {"topic": {topic: "OK"}}
    expect_set(admin, topic, everything - {"retention.ms"})
    assert admin.reset_configs([ConfigResource("topic", topic)], incremental=incremental) == {"topic": {topic: "OK"}}
    expect_set(admin, topic, set())
    assert admin.reset_configs([ConfigResource("topic", topic)], incremental=incremental) == {"topic": {topic: "OK"}}


@every_release_with_batches
@pytest.mark.parametrize("incremental", [None, False])
def test_settings_that_are_not_named_stay_however_the_others_are_altered(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, incremental: bool | None
) -> None:
    topic = new_topic(retention_ms=60_000, segment_ms=70_000)
    change = ConfigResource("topic", topic, {"max.message.bytes": 9999, "segment.ms": None})
    assert admin.alter_configs([change], incremental=incremental) == {"topic": {topic: "OK"}}
    expect_set(admin, topic, {"retention.ms", "max.message.bytes"})
    append = ConfigResource("topic", topic, {"cleanup.policy": ("append", "compact")})
    with pytest.raises(IllegalArgumentError, match="can only be set"):
        admin.alter_configs([append], incremental=False)


@every_release
def test_what_is_no_setting_is_not_reset(admin: KafkaAdminClient, new_topic: NewTopicFixture, node_id: int) -> None:
    topic = new_topic(retention_ms=60_000)
    wrong = ConfigResource("topic", topic, ["retention.ms", "no.such.setting"])
    with pytest.raises(IllegalArgumentError, match=r"no setting that can be reset: no\.such\.setting"):
        admin.reset_configs([wrong])
    with pytest.raises(IllegalArgumentError, match=r"node\.id|broker\.id"):
        admin.reset_configs([ConfigResource("broker", str(node_id), ["broker.id"])])
    expect_set(admin, topic, {"retention.ms"})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_configs([ConfigResource("topic", mistyped().topic)])


@every_release
def test_settings_of_brokers_are_reset_where_they_were_set(admin: KafkaAdminClient, node_id: int) -> None:
    one = ConfigResource("broker", str(node_id))
    all_of_them = ConfigResource("broker", "", ["max.connections"])

    def source() -> str:
        found = admin.describe_configs([one], config_filter="all")["broker"][str(node_id)]
        name: str = found["max.connections"]["config_source"]
        return name

    before = source()
    for resource, while_set in ((one, "DYNAMIC_BROKER_CONFIG"), (all_of_them, "DYNAMIC_DEFAULT_BROKER_CONFIG")):
        admin.alter_configs([ConfigResource("broker", resource.name, {"max.connections": 5000})])
        eventually(source, while_set)
        assert admin.reset_configs([resource]) == {"broker": {resource.name: "OK"}}
        eventually(source, before)


# -- older brokers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", ["embedded 2.8", "apache 2.8.2"], indirect=True, scope="session")
@pytest.mark.parametrize(
    ("call", "release"),
    [
        (lambda admin: admin.describe_topic_partitions(["x"]), r"3\.8"),
        (lambda admin: admin.describe_metadata_quorum(), r"3\.3"),
        (lambda admin: admin.list_config_resources(), r"3\.7"),
    ],
    ids=["topic partitions", "quorum", "config resources"],
)
def test_what_an_older_broker_lacks_is_reported_with_the_release_that_has_it(
    admin: KafkaAdminClient, call: Callable[[KafkaAdminClient], object], release: str
) -> None:
    with pytest.raises(IncompatibleBrokerVersion, match=f"brokers have it since release .*{release}") as caught:
        call(admin)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bootstrap", ["embedded 3.9", "apache 3.9.1"], indirect=True, scope="session")
def test_a_broker_before_4_1_lists_subscriptions_to_client_metrics_alone(admin: KafkaAdminClient) -> None:
    assert set(admin.list_config_resources()) <= {"client_metrics"}
    assert set(admin.list_config_resources(["client_metrics"])) <= {"client_metrics"}
    with pytest.raises(IncompatibleBrokerVersion, match=r"since release 4\.1"):
        admin.list_config_resources(["topic"])

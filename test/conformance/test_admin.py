"""What an administrator asks for, on both brokers."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kafka.admin import (
    AbortTransactionSpec,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    dialogues,
)
from kafka.client import KafkaClient
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition
from test.support.waiting import look_until

NewTopicFixture = Callable[..., str]


def settings_of(admin: KafkaAdminClient, resource: ConfigResource, names: set[str]) -> dict[str, dict[str, Any]]:
    """What was set for the resource, as soon as it is these: the broker learns of it behind the controller's answer."""
    return look_until(
        lambda: admin.describe_configs([resource])[resource.resource_type.name.lower()][resource.name],
        lambda found: set(found) == names,
    )


def test_topics_are_created_described_listed_and_deleted(admin: KafkaAdminClient) -> None:
    names = [f"made-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    created = admin.create_topics(
        [NewTopic(names[0], 3, 1), NewTopic(names[1], 1, 1, topic_configs={"retention.ms": 60000})],
        wait_for_metadata=True,
    )
    assert {topic["name"]: topic["error_code"] for topic in created["topics"]} == dict.fromkeys(names, 0)
    assert set(names) <= set(admin.list_topics())
    assert set(created) == {"topics"} and json.dumps(created)
    made = created["topics"][1]
    assert made["configs"]["retention.ms"]["value"] == "60000"
    assert made["configs"]["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    (described,) = admin.describe_topics([names[0]])
    assert json.dumps(described)
    assert described["topic_id"] == created["topics"][0]["topic_id"] and uuid.UUID(described["topic_id"])
    assert described["authorized_operations"][:3] == ["READ", "WRITE", "CREATE"]
    assert admin.describe_topics([uuid.UUID(described["topic_id"])])[0]["name"] == names[0]
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    with pytest.raises(TopicAlreadyExistsError, match=names[0]):
        admin.create_topics([names[0]])
    deleted = admin.delete_topics(names)
    assert {topic["name"] for topic in deleted["topics"]} == set(names)
    assert set(deleted) == {"topics"} and json.dumps(deleted)
    assert admin.describe_topics([f"{names[0]}-never"])[0]["topic_id"] is None
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([names[0]])
    assert admin.delete_topics([names[0]], raise_errors=False)["topics"][0]["error_code"] == 3


def test_nothing_is_created_when_only_validating(admin: KafkaAdminClient) -> None:
    name = f"made-{uuid.uuid4().hex[:8]}"
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, validate_only=True)
    assert name not in admin.list_topics()


def test_a_topic_gets_more_partitions_and_never_fewer(admin: KafkaAdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    admin.create_partitions({topic: NewPartitions(3)})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def test_settings_of_topics_are_changed_one_by_one(admin: KafkaAdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    altered = admin.alter_configs(
        [ConfigResource("topic", topic, {"retention.ms": 3_600_000, "cleanup.policy": (AlterConfigOp.SET, "compact")})]
    )
    assert altered == {"topic": {topic: "OK"}}
    found = settings_of(admin, resource, {"retention.ms", "cleanup.policy"})
    assert {name: entry["value"] for name, entry in found.items()} == {
        "retention.ms": "3600000",
        "cleanup.policy": "compact",
    }
    assert found["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": None})])
    assert set(settings_of(admin, resource, {"cleanup.policy"})) == {"cleanup.policy"}
    everything = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    assert everything["retention.ms"]["config_source"] != "DYNAMIC_TOPIC_CONFIG"
    assert not everything["cleanup.policy"]["is_default"]
    assert everything["flush.messages"]["config_source"] == "DEFAULT_CONFIG"
    assert everything["flush.messages"]["is_default"]


def test_settings_of_groups_are_set_before_the_group_is_there(admin: KafkaAdminClient) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    admin.alter_configs([ConfigResource("group", group, {"share.auto.offset.reset": "earliest"})])
    found = settings_of(admin, ConfigResource("group", group), {"share.auto.offset.reset"})
    assert found["share.auto.offset.reset"]["value"] == "earliest"
    assert found["share.auto.offset.reset"]["config_source"] == "DYNAMIC_GROUP_CONFIG"


def test_an_unknown_setting_is_the_brokers_error(admin: KafkaAdminClient, new_topic: NewTopicFixture) -> None:
    with pytest.raises(BrokerResponseError, match=r"no\.such\.setting"):
        admin.alter_configs([ConfigResource("topic", new_topic(), {"no.such.setting": 1})])


def test_records_are_deleted_up_to_an_offset(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFixture
) -> None:
    partition = TopicPartition(new_topic(), 0)
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for _ in range(10):
            producer.send(partition.topic, b"x")
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert admin.delete_records({partition: -1}, partition_leader_id=1)[partition]["low_watermark"] == 10


NAMING: dict[str, Callable[[KafkaAdminClient, TopicPartition], object]] = {
    "create_topics": lambda admin, at: admin.create_topics([NewTopic(at.topic, 1, 1)], validate_only=True),
    "wait_for_topics": lambda admin, at: admin.wait_for_topics([at.topic], timeout_ms=100),
    "delete_topics": lambda admin, at: admin.delete_topics([at.topic]),
    "create_partitions": lambda admin, at: admin.create_partitions({at.topic: 2}),
    "delete_records": lambda admin, at: admin.delete_records({at: 1}),
    "delete_records, all": lambda admin, at: admin.delete_records({at: -1}),
    "describe_topics": lambda admin, at: admin.describe_topics([at.topic]),
    "describe_configs": lambda admin, at: admin.describe_configs([ConfigResource("topic", at.topic)]),
    "alter_configs": lambda admin, at: admin.alter_configs(
        [ConfigResource("topic", at.topic, {"retention.ms": 60_000})]
    ),
    "reset_configs": lambda admin, at: admin.reset_configs([ConfigResource("topic", at.topic)]),
    "describe_topic_partitions": lambda admin, at: admin.describe_topic_partitions([at.topic]),
    "alter_partition_reassignments": lambda admin, at: admin.alter_partition_reassignments({at: [1]}),
    "list_partition_reassignments": lambda admin, at: admin.list_partition_reassignments([at]),
    "elect_leaders": lambda admin, at: admin.elect_leaders("preferred", [at.topic]),
    "elect_leaders, by number": lambda admin, at: admin.elect_leaders("preferred", [at]),
    "describe_log_dirs": lambda admin, at: admin.describe_log_dirs([at.topic]),
    "list_partition_offsets": lambda admin, at: admin.list_partition_offsets({at: OffsetSpec.LATEST}),
    "describe_producers": lambda admin, at: admin.describe_producers([at]),
    "abort_transaction": lambda admin, at: admin.abort_transaction(AbortTransactionSpec(at, 1, 0)),
    "list_group_offsets": lambda admin, at: admin.list_group_offsets({"g": [at]}),
    "list_consumer_group_offsets": lambda admin, at: admin.list_consumer_group_offsets("g", partitions=[at]),
    "alter_group_offsets": lambda admin, at: admin.alter_group_offsets("g", {at: OffsetAndMetadata(1, "", -1)}),
    "reset_group_offsets": lambda admin, at: admin.reset_group_offsets("g", {at: OffsetSpec.EARLIEST}),
    "delete_group_offsets": lambda admin, at: admin.delete_group_offsets("g", [at]),
    "list_share_group_offsets": lambda admin, at: admin.list_share_group_offsets({"s": [at]}),
    "alter_share_group_offsets": lambda admin, at: admin.alter_share_group_offsets("s", {at: 1}),
    "delete_share_group_offsets": lambda admin, at: admin.delete_share_group_offsets("s", [at.topic]),
}


@pytest.mark.parametrize("call", NAMING.values(), ids=NAMING)
def test_no_call_makes_a_topic_that_it_names(
    admin: KafkaAdminClient, call: Callable[[KafkaAdminClient, TopicPartition], object]
) -> None:
    partition = TopicPartition(f"mistyped-{uuid.uuid4().hex[:8]}", 0)
    with contextlib.suppress(KafkaError):
        call(admin, partition)
    assert partition.topic not in admin.list_topics()


def test_every_call_that_takes_topics_is_among_those_that_make_none() -> None:
    about_topics = {
        name
        for name in vars(dialogues)["__all__"]
        if any(word in name for word in ("topics", "partitions", "records", "offsets", "configs"))
    }
    left_out = {"list_topics", "share_group_offsets"}  # of all; list_share_group_offsets is made of the other
    assert about_topics - left_out <= {name.partition(",")[0] for name in NAMING}


@pytest.mark.parametrize("offset", [1, -1])
def test_records_of_a_topic_that_is_not_there_are_an_error(admin: KafkaAdminClient, offset: int) -> None:
    topic = f"mistyped-{uuid.uuid4().hex[:8]}"
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-0"):
        admin.delete_records({TopicPartition(topic, 0): offset})
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-0"):
        admin.reset_group_offsets("g", {TopicPartition(topic, 0): offset})


def test_a_partition_that_is_not_there_is_an_error_at_once(admin: KafkaAdminClient, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    with pytest.raises(UnknownTopicOrPartitionError, match=f"no {topic}-7"):
        admin.delete_records({TopicPartition(topic, 0): 0, TopicPartition(topic, 7): 0})


def test_on_a_client_that_may_create_topics_administration_does_not(bootstrap: str) -> None:
    loop = Loop()
    client = KafkaClient(loop=loop, bootstrap_servers=bootstrap, all_topics=False)
    partition = TopicPartition(f"mistyped-{uuid.uuid4().hex[:8]}", 0)
    limits = {"backoff": client.retry_backoff, "timeout_s": 20.0}
    leader_of = client.cluster.leader_for_partition
    for dialogue in (
        dialogues.delete_records({partition: 1}, **limits),
        dialogues.reset_group_offsets("g", {partition: OffsetSpec.LATEST}, leader_of, **limits),
    ):
        done: Future[object] = client.run(dialogue)
        assert loop.run_until(done, 30)
        assert isinstance(done.exception, UnknownTopicOrPartitionError)
    topics = client.run(dialogues.list_topics(**limits))
    assert loop.run_until(topics, 30) and partition.topic not in topics.result()
    client.close()
    loop.close()


def test_the_cluster_returns_its_brokers_and_groups(admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert cluster["controller_id"] in {broker["broker_id"] for broker in cluster["brokers"]}
    assert set(cluster) == {"cluster_id", "controller_id", "brokers", "authorized_operations"}
    assert "CREATE" in cluster["authorized_operations"]
    assert all(broker["is_fenced"] is False for broker in cluster["brokers"])
    assert isinstance(admin.list_groups(), list)


def test_the_same_calls_run_as_dialogues_on_a_loop(bootstrap: str) -> None:
    loop = Loop()
    client = KafkaClient(loop=loop, bootstrap_servers=bootstrap, all_topics=False)
    admin = KafkaAdminClient(client=client)
    name = f"made-{uuid.uuid4().hex[:8]}"
    try:
        created = client.run(dialogues.create_topics([NewTopic(name, 1, 1)], backoff=client.retry_backoff))
        assert loop.run_until(created, 20)
        assert created.result()["topics"][0]["name"] == name
        with pytest.raises(IllegalStateError, match="own thread"):
            admin.list_topics()
        deleted = admin.run(dialogues.delete_topics([name], backoff=client.retry_backoff))
        assert loop.run_until(deleted, 20)
        assert deleted.succeeded()
    finally:
        admin.close()
        client.close()
        loop.close()


def test_wrong_arguments_are_refused_before_anything_is_sent(admin: KafkaAdminClient) -> None:
    for call in (
        lambda: ConfigResource("tpoic", "x"),
        lambda: admin.create_topics([]),
        lambda: admin.describe_configs([ConfigResource("broker", "one")]),
        lambda: admin.describe_configs([ConfigResource("topic", "x")], config_filter="some"),
        lambda: admin.alter_configs([ConfigResource("topic", "x", ["retention.ms"])]),
        lambda: admin.alter_configs([ConfigResource("topic", "x", {"retention.ms": ("PUT", "1")})]),
    ):
        with pytest.raises(IllegalArgumentError):
            call()

"""What an administrator asks for, on both brokers."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
    dialogues,
)
from kafka.client import KafkaClient
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IllegalStateError,
    InvalidPartitionsError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.net.loop import Loop
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition

NewTopicFixture = Callable[..., str]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=bootstrap) as client:
        yield client


def test_topics_are_created_described_listed_and_deleted(admin: KafkaAdminClient) -> None:
    names = [f"made-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    created = admin.create_topics(
        [NewTopic(names[0], 3, 1), NewTopic(names[1], 1, 1, topic_configs={"retention.ms": 60000})],
        wait_for_metadata=True,
    )
    assert {topic["name"]: topic["error_code"] for topic in created["topics"]} == dict.fromkeys(names, 0)
    assert set(names) <= set(admin.list_topics())
    (described,) = admin.describe_topics([names[0]])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    with pytest.raises(TopicAlreadyExistsError, match=names[0]):
        admin.create_topics([names[0]])
    deleted = admin.delete_topics(names)
    assert {topic["name"] for topic in deleted["topics"]} == set(names)
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
    assert isinstance(altered["topic"][topic], NoError)
    found = admin.describe_configs([resource])["topic"][topic]
    assert {name: entry["value"] for name, entry in found.items()} == {
        "retention.ms": "3600000",
        "cleanup.policy": "compact",
    }
    assert found["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": None})])
    assert set(admin.describe_configs([resource])["topic"][topic]) == {"cleanup.policy"}
    everything = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    assert everything["retention.ms"]["config_source"] != "DYNAMIC_TOPIC_CONFIG"


def test_settings_of_groups_are_set_before_the_group_is_there(admin: KafkaAdminClient) -> None:
    group = f"group-{uuid.uuid4().hex[:8]}"
    admin.alter_configs([ConfigResource("group", group, {"share.auto.offset.reset": "earliest"})])
    found = admin.describe_configs([ConfigResource("group", group)])["group"][group]
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
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10


def test_the_cluster_tells_its_brokers_and_groups(admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert cluster["controller_id"] in {broker["broker_id"] for broker in cluster["brokers"]}
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
    ):
        with pytest.raises(IllegalArgumentError):
            call()

"""Groups as an administrator sees them: listed, described, their offsets read, set, reset, forgotten; on all brokers.

Members are made by hand, request by request: what a group is does not depend on whose consumers are in it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.admin import (
    ConfigResource,
    GroupState,
    GroupType,
    KafkaAdminClient,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
)
from kafka.client import KafkaClient
from kafka.core.group.protocol import MemberAssignment, MemberSubscription, write_assignment, write_subscription
from kafka.core.routing import Coordinator
from kafka.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    NoError,
    NonEmptyGroupError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kafka.producer import KafkaProducer
from kafka.protocol.groups import ConsumerGroupHeartbeatRequest, JoinGroupRequest, SyncGroupRequest
from kafka.share import KafkaShareConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition
from test.conformance.reading import take
from test.support.either_broker import every_release
from test.support.waiting import eventually, look_until, until

NewTopicFixture = Callable[..., str]


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaClient]:
    with KafkaClient(bootstrap_servers=bootstrap, all_topics=False) as client:
        yield client


def ask(client: KafkaClient, group: str, request: Any) -> Any:
    def answer() -> Any:
        future = client.request(Coordinator(group), request)
        client.poll(future=future)
        return future.result()

    return look_until(
        answer,
        lambda found: found.error_code not in (14, 15, 16),
        meanwhile=lambda: client.coordinators.forget(Coordinator(group)),
    )


def join_classic(client: KafkaClient, group: str, topic: str) -> str:
    """The only member of a classic group, with all of the topic's first partition; its id."""
    member = ""
    for _ in range(2):  # the first time, modern brokers only give an id (KIP-394)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(
            name="range", metadata=write_subscription(MemberSubscription((topic,)))
        )
        joined = ask(client, group, JoinGroupRequest(
            group_id=group, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id=member,
            protocol_type="consumer", protocols=[protocol],
        ))  # fmt: skip
        member = joined.member_id
        if not joined.error_code:
            break
    assert joined.error_code == 0
    mine = SyncGroupRequest.SyncGroupRequestAssignment(
        member_id=member, assignment=write_assignment(MemberAssignment((TopicPartition(topic, 0),)))
    )
    synced = ask(client, group, SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=member, assignments=[mine],
        protocol_type="consumer", protocol_name="range",
    ))  # fmt: skip
    assert synced.error_code == 0
    return str(member)


def join_new(client: KafkaClient, group: str, topic: str) -> str:
    """A member of a group of KIP-848."""
    member = str(uuid.uuid4())
    answer = ask(client, group, ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=30_000,
        subscribed_topic_names=[topic], topic_partitions=[],
    ))  # fmt: skip
    assert answer.error_code == 0
    return member


def put(bootstrap: str, topic: str, count: int, timestamp_ms: int = 1_700_000_000_000) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=timestamp_ms + number)


# -- offsets ----------------------------------------------------------------------------------------------------------


@every_release
def test_offsets_of_a_group_without_members_are_set_and_listed(
    admin: KafkaAdminClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group, other = new_topic(2), unique("group"), unique("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.alter_group_offsets(group, {first: OffsetAndMetadata(0, "mine")}) == {first: NoError}
    assert admin.alter_group_offsets(other, {second: OffsetAndMetadata(0)}) == {second: NoError}
    assert admin.alter_group_offsets(group, {}) == {}
    found = admin.list_group_offsets([group, other])
    assert {partition: offset[:2] for partition, offset in found[group].items()} == {first: (0, "mine")}
    assert set(found[other]) == {second}
    one = admin.list_group_offsets({group: [first, second]})[group]
    assert (one[first].offset, one[second].offset) == (0, -1)
    assert admin.list_group_offsets(group)[group][first].metadata == "mine"
    assert admin.list_consumer_group_offsets(group) == found[group]
    assert set(admin.list_consumer_group_offsets(group, partitions=[second])) == {second}
    assert group in {each["group_id"] for each in admin.list_groups()}
    assert group in {name for name, _ in admin.list_consumer_groups()}


@every_release
def test_groups_are_deleted_each_with_its_own_outcome(
    admin: KafkaAdminClient, client: KafkaClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic = new_topic()
    empty, full, none = unique("empty"), unique("full"), unique("none")
    admin.alter_group_offsets(empty, {TopicPartition(topic, 0): OffsetAndMetadata(0)})
    join_classic(client, full, topic)
    assert admin.delete_groups([empty, full, none]) == {
        empty: "OK", full: "NonEmptyGroupError", none: "GroupIdNotFoundError",
    }  # fmt: skip
    assert admin.delete_consumer_groups([full]) == [(full, NonEmptyGroupError)]
    assert admin.list_group_offsets(empty) == {empty: {}}


@every_release
def test_offsets_are_reset_to_what_is_meant_and_brought_into_range(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(), unique("group")
    partition = TopicPartition(topic, 0)
    put(bootstrap, topic, 10)
    admin.delete_records({partition: 2})
    admin.alter_group_offsets(group, {partition: OffsetAndMetadata(5, "text")})
    for spec, offset in (
        (OffsetSpec.EARLIEST, 2),
        (OffsetSpec.LATEST, 10),
        (OffsetTimestamp(1_700_000_000_007), 7),
        (OffsetTimestamp(1_800_000_000_000), 10),
        (4, 4),
        (0, 2),
        (99, 10),
    ):
        assert admin.reset_group_offsets(group, {partition: spec}) == {partition: {"error": NoError, "offset": offset}}
        found = admin.list_group_offsets(group)[group][partition]
        assert (found.offset, found.metadata) == (offset, "text")
    assert admin.reset_group_offsets(group, {}) == {}
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.reset_group_offsets(group, {TopicPartition(topic, 7): 1})
    with pytest.raises(IllegalArgumentError):
        admin.reset_group_offsets(group, {partition: "earliest"})  # type: ignore[dict-item]


@every_release
def test_offsets_of_a_group_with_members_are_theirs(
    admin: KafkaAdminClient, client: KafkaClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(), unique("group")
    partition = TopicPartition(topic, 0)
    join_classic(client, group, topic)
    assert admin.alter_group_offsets(group, {partition: OffsetAndMetadata(0)}) == {partition: UnknownMemberIdError}
    reset = admin.reset_group_offsets(group, {partition: OffsetSpec.EARLIEST})
    assert reset[partition]["error"] is UnknownMemberIdError


@every_release
def test_offsets_are_forgotten_but_for_those_of_topics_that_are_read(
    admin: KafkaAdminClient, client: KafkaClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, read, group = new_topic(), new_topic(), unique("group")
    mine, theirs = TopicPartition(topic, 0), TopicPartition(read, 0)
    admin.alter_group_offsets(group, {mine: OffsetAndMetadata(0), theirs: OffsetAndMetadata(0)})
    join_classic(client, group, read)
    assert admin.delete_group_offsets(group, [mine, theirs]) == {mine: NoError, theirs: GroupSubscribedToTopicError}
    assert set(admin.list_group_offsets(group)[group]) == {theirs}
    with pytest.raises(GroupIdNotFoundError, match="none-"):
        admin.delete_group_offsets(unique("none"), [mine])
    assert admin.delete_group_offsets(group, []) == {}


# -- what they are ----------------------------------------------------------------------------------------------------


@every_release
def test_a_classic_group_is_described_with_its_members_metadata(
    admin: KafkaAdminClient, client: KafkaClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group, none = new_topic(), unique("group"), unique("none")
    member_id = join_classic(client, group, topic)
    found = admin.describe_groups([group, none], include_authorized_operations=True)
    described = found[group]
    assert (described["group_id"], described["group_state"], described["error"]) == (group, "Stable", None)
    assert (described["group_type"], described["protocol_type"], described["protocol_data"]) == (
        "classic", "consumer", "range",
    )  # fmt: skip
    assert {"READ", "DELETE", "DESCRIBE"} <= set(described["authorized_operations"])
    (member,) = described["members"]
    assert member["member_id"] == member_id
    assert member["member_metadata"]["topics"] == [topic]
    assert member["member_assignment"]["assigned_partitions"] == [{"topic": topic, "partitions": [0]}]
    assert found[none]["group_state"] == "Dead"
    assert found[none]["members"] == []
    (older,) = admin.describe_consumer_groups([group])
    assert (older.group, older.state, older.protocol) == (group, "Stable", "range")
    assert older.members[0].member_metadata.subscription == [topic]
    assert older.members[0].member_assignment.partitions() == [TopicPartition(topic, 0)]
    assert admin.describe_consumer_groups([none])[0].state == "Dead"


@every_release
def test_members_of_a_classic_group_are_removed(
    admin: KafkaAdminClient, client: KafkaClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(), unique("group")
    member_id = join_classic(client, group, topic)
    stranger = f"{member_id[:-1]}x"  # no id has an x
    found = admin.remove_group_members(group, [MemberToRemove(stranger), MemberToRemove(member_id, reason="test")])
    assert found == {stranger: UnknownMemberIdError, member_id: NoError}
    assert admin.describe_groups([group])[group]["group_state"] == "Empty"
    assert admin.remove_group_members(group, []) == {}
    with pytest.raises(IllegalArgumentError):
        admin.remove_group_members(group, [MemberToRemove()])


def test_groups_of_all_types_are_listed_by_state_and_type_and_described_each_by_its_own_api(
    bootstrap: str,
    admin: KafkaAdminClient,
    client: KafkaClient,
    new_topic: NewTopicFixture,
    unique: Callable[[str], str],
) -> None:
    topic = new_topic()
    classic, new, share, none = (unique(stem) for stem in ("classic", "new", "share", "none"))
    join_classic(client, classic, topic)
    member = join_new(client, new, topic)
    with KafkaShareConsumer(topic, group_id=share, bootstrap_servers=bootstrap) as consumer:
        until(lambda: consumer.has_joined, f"a member of {share}")
        eventually(lambda: admin.describe_groups([new])[new]["group_state"], "Stable")
        types = {each["group_id"]: each["group_type"] for each in admin.list_groups()}
        assert (types[classic], types[new], types[share]) == ("classic", "consumer", "share")
        for kind, group in ((GroupType.SHARE, share), ("CONSUMER", new), ("classic", classic)):
            listed = {each["group_id"] for each in admin.list_groups(types_filter=[kind])}
            assert {classic, new, share} & listed == {group}
        stable = {each["group_id"] for each in admin.list_groups(states_filter=["stable", GroupState.ASSIGNING])}
        assert classic in stable
        found = admin.describe_groups([classic, new, share, none])
        assert {group: each.get("group_type") for group, each in found.items() if group != none} == {
            classic: "classic", new: "consumer", share: "share",
        }  # fmt: skip
        assert found[none]["group_state"] == "Dead"
        (described,) = found[new]["members"]
        assert (described["member_id"], described["subscribed_topic_names"]) == (member, [topic])
        assert found[new]["assignor_name"] == "uniform"
        (described,) = found[share]["members"]
        assert (described["member_id"], described["subscribed_topic_names"]) == (consumer.member_id, [topic])
        assert admin.describe_share_groups([share])[share]["members"] == found[share]["members"]
        assert "GroupIdNotFound" in admin.describe_share_groups([classic])[classic]["error"]
        (older,) = admin.describe_consumer_groups([new])
        assert older.members[0].member_metadata.subscription == [topic]
    with pytest.raises(IllegalArgumentError, match="one of"):
        admin.list_groups(types_filter=["shared"])


# -- share groups -----------------------------------------------------------------------------------------------------


def test_a_share_groups_offsets_are_listed_with_its_lag_altered_and_deleted(
    bootstrap: str, admin: KafkaAdminClient, new_topic: NewTopicFixture, unique: Callable[[str], str]
) -> None:
    topic, group = new_topic(), unique("share")
    partition = TopicPartition(topic, 0)
    settings = {"share.auto.offset.reset": "earliest", "share.assignment.interval.ms": "0"}
    admin.alter_configs([ConfigResource("group", group, settings)])
    put(bootstrap, topic, 10)
    with KafkaShareConsumer(
        topic, group_id=group, bootstrap_servers=bootstrap, share_acknowledgement_mode="explicit"
    ) as consumer:
        for record in take(consumer, 10)[:4]:
            consumer.acknowledge(record)
        consumer.commit(10_000)
        with pytest.raises(NonEmptyGroupError, match=group):
            admin.alter_share_group_offsets(group, {partition: 0})
        with pytest.raises(NonEmptyGroupError, match=group):
            admin.delete_share_group_offsets(group, [topic])
    (at,) = admin.list_share_group_offsets(group)[group].values()
    assert (at.start_offset, at.lag) == (4, 6)
    assert set(admin.list_share_group_offsets({group: [partition]})[group]) == {partition}
    assert admin.alter_share_group_offsets(group, {partition: 7}) == {partition: NoError}
    assert admin.list_share_group_offsets(group)[group][partition].start_offset == 7
    with KafkaShareConsumer(topic, group_id=group, bootstrap_servers=bootstrap) as consumer:
        assert next(consumer).offset == 7
    assert admin.delete_share_group_offsets(group, [topic, "none-such"])[topic] is NoError
    assert admin.list_share_group_offsets(group)[group] == {}
    assert admin.delete_groups([group]) == {group: "OK"}
    assert admin.list_share_group_offsets([group]) == {group: {}}
    assert admin.alter_share_group_offsets(group, {}) == {}
    for call in (
        lambda: admin.alter_share_group_offsets(group, {partition: -1}),
        lambda: admin.delete_share_group_offsets(group, topic),
        lambda: admin.list_share_group_offsets([]),
    ):
        with pytest.raises(IllegalArgumentError):
            call()


@every_release
def test_what_a_release_does_not_have_is_one_clear_error(bootstrap: str, admin: KafkaAdminClient) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    try:
        found = admin.describe_share_groups([group])
    except IncompatibleBrokerVersion as error:
        assert "ShareGroupDescribe" in str(error)
        with pytest.raises((IncompatibleBrokerVersion, UnsupportedVersionError), match="DescribeShareGroupOffsets"):
            admin.list_share_group_offsets(group)
    else:
        assert "GroupIdNotFound" in found[group]["error"]

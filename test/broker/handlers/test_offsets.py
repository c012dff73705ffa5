"""OffsetCommit, OffsetFetch, ListGroups, DeleteGroups for groups without members: as measured on Apache Kafka 4.3.0."""

from __future__ import annotations

from uuid import UUID

import pytest

from kafka.broker.handlers.offsets import errors_first
from kafka.protocol.groups import DeleteGroupsRequest, ListGroupsRequest
from kafka.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from kafka.wire.types import ZERO_UUID
from test.broker.driver import HandBroker


def commit(
    hand: HandBroker,
    offset: int = 5,
    *,
    group: str = "g",
    topic: str = "t",
    partition: int = 0,
    metadata: str | None = "m",
    generation: int = -1,
    member: str = "",
    version: int = 9,
    topic_id: UUID = ZERO_UUID,
) -> int:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )
    return hand.ask(request, version).topics[0].partitions[0].error_code


def old_fetch(
    hand: HandBroker, version: int, group: str = "g", every: bool = False
) -> list[tuple[int, int, str | None]]:
    topic_request = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    answer = hand.ask(OffsetFetchRequest(group_id=group, topics=None if every else [topic_request]), version)
    rows = [row for topic in answer.topics for row in topic.partitions]
    return [(row.partition_index, row.committed_offset, row.metadata) for row in rows]


@pytest.mark.parametrize("version", range(2, 11))
def test_an_offset_is_committed_in_every_version_and_survives_a_restart(hand: HandBroker, version: int) -> None:
    topic_id = hand.create_topic("t", 2)
    assert commit(hand, 7, version=version, topic_id=topic_id) == 0
    hand.restart()
    assert old_fetch(hand, 7) == [(0, 7, "m"), (1, -1, "")]


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_are_fetched_in_every_old_version(hand: HandBroker, version: int) -> None:
    hand.create_topic("t", 2)
    commit(hand, 7)
    assert old_fetch(hand, version) == [(0, 7, "m"), (1, -1, "")]
    assert old_fetch(hand, version, "nobody") == [(0, -1, ""), (1, -1, "")]
    if version >= 2:
        assert old_fetch(hand, version, every=True) == [(0, 7, "m")]


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_are_fetched_at_once(hand: HandBroker, version: int) -> None:
    topic_id = hand.create_topic("t", 2)
    commit(hand, 7)
    topic_request = OffsetFetchRequest.OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0, 1])
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[topic_request]),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequest.OffsetFetchRequestGroup(group_id="nobody", topics=None),
        ]
    )
    some, every, none = hand.ask(request, version).groups
    assert [row.committed_offset for row in some.topics[0].partitions] == [7, -1]
    assert [row.committed_offset for row in every.topics[0].partitions] == [7]
    assert none.topics == []
    if version >= 10:
        assert every.topics[0].topic_id == topic_id


def test_an_unknown_topic_id_is_reported_for_each_partition(hand: HandBroker) -> None:
    wanted = OffsetFetchRequest.OffsetFetchRequestTopics(topic_id=UUID(int=4), partition_indexes=[0])
    request = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=[wanted])])
    assert hand.ask(request, 10).groups[0].topics[0].partitions[0].error_code == 100
    assert commit(hand, version=10, topic_id=UUID(int=4)) == 100


def test_who_is_no_member_may_commit_without_a_generation_only(hand: HandBroker) -> None:
    hand.create_topic("t")
    assert commit(hand, generation=3, version=8) == 22
    assert commit(hand, generation=3, version=9) == 69
    assert commit(hand, member="anybody") == 0
    assert commit(hand, generation=3) == 25
    assert commit(hand, group="") == 0


@pytest.mark.parametrize(
    ("topic", "partition", "metadata", "code"),
    [("nope", 0, "", 3), ("t", 9, "", 3), ("t", 0, "m" * 4097, 12), ("t", 0, "m" * 4096, 0), ("t", 0, None, 0)],
)
def test_a_commit_is_checked(hand: HandBroker, topic: str, partition: int, metadata: str | None, code: int) -> None:
    hand.create_topic("t")
    assert commit(hand, topic=topic, partition=partition, metadata=metadata) == code


def test_groups_with_offsets_are_listed_and_can_be_deleted(hand: HandBroker) -> None:
    hand.create_topic("t")
    commit(hand)
    for version in range(6):
        assert [row.group_id for row in hand.ask(ListGroupsRequest(), version).groups] == ["g"]
    (group,) = hand.ask(ListGroupsRequest()).groups
    assert (group.group_state, group.group_type, group.protocol_type) == ("Empty", "classic", "")
    assert hand.ask(ListGroupsRequest(types_filter=["Share"])).groups == []
    assert hand.ask(ListGroupsRequest(states_filter=["Stable"])).groups == []
    assert len(hand.ask(ListGroupsRequest(states_filter=["empty"], types_filter=["Classic"])).groups) == 1
    answer = hand.ask(DeleteGroupsRequest(groups_names=["g", "nobody"]))
    assert [row.error_code for row in answer.results] == [0, 69]
    hand.restart()
    assert hand.ask(ListGroupsRequest()).groups == []


def test_what_is_refused_comes_before_what_the_coordinator_answers_for_the_same_topic() -> None:
    assert errors_first({"b": [9], "a": [7]}, [("a", [0]), ("c", [1])]) == [("b", [9]), ("a", [7, 0]), ("c", [1])]


def test_a_topic_that_is_named_twice_stays_twice_unless_something_is_refused() -> None:
    assert errors_first({}, [("a", [0]), ("a", [1])]) == [("a", [0]), ("a", [1])]
    assert errors_first({"b": []}, [("a", [0]), ("a", [1])]) == [("b", []), ("a", [0, 1])]

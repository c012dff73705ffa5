"""Dialogues about committed offsets: what each version is asked, and which offsets a reset commits."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.core.admin.groups import (
    alter_group_offsets,
    delete_group_offsets,
    list_group_offsets,
    reset_group_offsets,
)
from kafka.core.admin.values import OffsetSpec, OffsetTimestamp
from kafka.core.dialogue import Send
from kafka.errors import (
    GroupAuthorizationFailedError,
    GroupSubscribedToTopicError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    NoError,
    NonEmptyGroupError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.coordinator import FindCoordinatorResponse
from kafka.protocol.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.wire.codec import encode
from test.core.admin.driving import BACKOFF, asked
from test.core.admin.many_brokers import Brokers

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOT_COORDINATOR, UNKNOWN_MEMBER, DENIED, GROUP_DENIED, NOT_EMPTY, SUBSCRIBED = 16, 25, 29, 30, 68, 86
OLD = IncompatibleBrokerVersion("too old")


def coordinator(node: int = 1, group: str = "g") -> FindCoordinatorResponse:
    return FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(key=group, node_id=node)])


# -- read -------------------------------------------------------------------------------------------------------------


def fetched(code: int = 0, *, part_code: int = 0, metadata: str | None = "m") -> OffsetFetchResponse:
    message = OffsetFetchResponse
    part = message.OffsetFetchResponsePartitions(
        partition_index=1, committed_offset=5, committed_leader_epoch=3, metadata=metadata, error_code=part_code
    )
    topic = message.OffsetFetchResponseTopics(name="t", partitions=[part])
    return message(groups=[message.OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=code)])


def fetched_alone(code: int = 0) -> OffsetFetchResponse:
    message = OffsetFetchResponse
    part = message.OffsetFetchResponsePartition(partition_index=1, committed_offset=5, metadata=None)
    return message(error_code=code, topics=[message.OffsetFetchResponseTopic(name="t", partitions=[part])])


@pytest.mark.parametrize(
    ("wanted", "topics"), [(None, None), ([B, C, A], [("t", [1, 0]), ("u", [0])]), (iter([B]), [("t", [1])]), ([], [])]
)
def test_offsets_of_all_partitions_or_of_some_are_asked_for_with_names(wanted: Any, topics: Any) -> None:
    """Several groups in a request came with version 8 (KIP-709), ids in the place of names with version 10."""
    found, (_, send) = asked(list_group_offsets({"g": wanted}, backoff=BACKOFF), coordinator(7), fetched())
    assert found == {"g": {B: OffsetAndMetadata(5, "m", 3)}}
    assert (send.target, send.min_version, send.max_version) == (7, 8, 9)
    request: Any = send.request
    ((group,),) = (request.groups,)
    requested = None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]
    assert (group.group_id, requested) == ("g", topics)
    for version in (8, 9):
        encode(request, version)


@pytest.mark.parametrize(("wanted", "topics", "least"), [(None, None, 2), ([B], [("t", [1])], 1), ([], [], 1)])
def test_one_group_is_asked_for_up_to_version_7(wanted: Any, topics: Any, least: int) -> None:
    """Null for all partitions came with version 2 (KIP-88); version 0 reads from ZooKeeper."""
    dialogue = list_group_offsets({"g": wanted}, backoff=BACKOFF)
    found, (*_, send) = asked(dialogue, coordinator(), OLD, fetched_alone())
    assert found == {"g": {B: OffsetAndMetadata(5, "", -1)}}
    assert (send.target, send.min_version, send.max_version) == (1, least, 7)
    request: Any = send.request
    requested = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    assert (request.group_id, requested) == ("g", topics)
    for version in range(least, 8):
        encode(request, version)


def test_the_error_of_the_group_or_of_a_partition_is_raised() -> None:
    for answer in (fetched(GROUP_DENIED), fetched(GROUP_DENIED, part_code=DENIED)):
        with pytest.raises(GroupAuthorizationFailedError, match="group g$"):
            asked(list_group_offsets({"g": None}, backoff=BACKOFF), coordinator(), answer)
    with pytest.raises(TopicAuthorizationFailedError, match="group g: t-1"):
        asked(list_group_offsets({"g": None}, backoff=BACKOFF), coordinator(), fetched(part_code=DENIED))
    with pytest.raises(GroupAuthorizationFailedError, match="group g$"):
        asked(list_group_offsets({"g": None}, backoff=BACKOFF), coordinator(), OLD, fetched_alone(GROUP_DENIED))


def test_offsets_that_a_transaction_is_about_to_commit_are_waited_for_when_that_is_asked() -> None:
    """KIP-447: with require_stable the coordinator answers UNSTABLE_OFFSET_COMMIT (88) as long as one is open."""
    unstable = fetched(part_code=88)
    dialogue = list_group_offsets({"g": [B]}, backoff=BACKOFF, require_stable=True)
    found, sent = asked(dialogue, coordinator(), unstable, coordinator(), fetched())
    assert found == {"g": {B: OffsetAndMetadata(5, "m", 3)}}
    requests: list[Any] = [send.request for send in sent if isinstance(send.request, OffsetFetchRequest)]
    assert [request.require_stable for request in requests] == [True, True]


def test_no_text_is_an_empty_text() -> None:
    found, _ = asked(list_group_offsets({"g": None}, backoff=BACKOFF), coordinator(), fetched(metadata=None))
    assert found == {"g": {B: OffsetAndMetadata(5, "", 3)}}


# -- set --------------------------------------------------------------------------------------------------------------


def committed(*codes: int, topic: str = "t") -> OffsetCommitResponse:
    message = OffsetCommitResponse
    parts = [
        message.OffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return message(topics=[message.OffsetCommitResponseTopic(name=topic, partitions=parts)])


def commits(send: Send) -> dict[TopicPartition, tuple[int, int, str | None]]:
    """Partition -> (offset, leader epoch, text)."""
    request: Any = send.request
    assert (request.group_id, send.max_version) == ("g", 9), "version 10 has ids in the place of names"
    return {
        TopicPartition(topic.name, each.partition_index): (
            each.committed_offset, each.committed_leader_epoch, each.committed_metadata
        )
        for topic in request.topics
        for each in topic.partitions
    }  # fmt: skip


def test_offsets_are_committed_at_the_coordinator_each_with_its_error() -> None:
    offsets: Any = {A: OffsetAndMetadata(0), B: OffsetAndMetadata(7, "m", 3), C: OffsetAndMetadata(1, "", None)}
    found, sends = asked(
        alter_group_offsets("g", offsets, backoff=BACKOFF),
        coordinator(1), committed(NOT_COORDINATOR, 0), coordinator(2), committed(0, UNKNOWN_MEMBER),
    )  # fmt: skip
    assert found == {A: NoError, B: UnknownMemberIdError}
    assert [send.target for send in sends[1::2]] == [1, 2]
    assert commits(sends[1]) == {A: (0, -1, ""), B: (7, 3, "m"), C: (1, -1, "")}


def test_nothing_to_commit_or_to_forget_is_nothing_to_ask() -> None:
    leader_of: Any = {}.get
    for dialogue in (
        alter_group_offsets("g", {}, backoff=BACKOFF),
        delete_group_offsets("g", [], backoff=BACKOFF),
        reset_group_offsets("g", {}, leader_of, backoff=BACKOFF),
    ):
        assert asked(dialogue) == ({}, [])


# -- moved to a place -------------------------------------------------------------------------------------------------


class Cluster(Brokers):
    """Partition A has the offsets 3 to 9, B 0 to 4. A time finds offset 6, or none."""

    def __init__(self) -> None:
        super().__init__({A: 1, B: 2}, {"g": 1})
        self.key_type = 0
        self.ranges = {A: (3, 9), B: (0, 4)}
        self.at_time = 6
        self.texts: dict[TopicPartition, str] = {A: "kept"}
        self.handlers |= {
            ListOffsetsRequest: self._list,
            OffsetFetchRequest: self._fetch,
            OffsetCommitRequest: lambda node, request: committed(0),
        }

    def _offset(self, partition: TopicPartition, timestamp: int) -> int:
        if timestamp >= 0:
            return self.at_time
        return self.ranges[partition][{-2: 0, -1: 1}[timestamp]]

    def _list(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        message = ListOffsetsResponse
        topics = [
            message.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    message.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=0,
                        offset=self._offset(TopicPartition(topic.name, each.partition_index), each.timestamp),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return message(topics=topics)

    def _fetch(self, node: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        message = OffsetFetchResponse
        parts = [
            message.OffsetFetchResponsePartitions(partition_index=number, committed_offset=5, metadata=text)
            for (_, number), text in self.texts.items()
        ]
        topic = message.OffsetFetchResponseTopics(name="t", partitions=parts)
        return message(groups=[message.OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    def reset(self, **specs: Any) -> dict[str, tuple[int, int, str | None]]:
        """What is committed: (offset, leader epoch, text)."""
        wanted = {{"a": A, "b": B}[name]: spec for name, spec in specs.items()}
        self.run(reset_group_offsets("g", wanted, self.leaders.get, backoff=BACKOFF))
        request = self.asked(OffsetCommitRequest)[-1][1]
        return {
            {0: "a", 1: "b"}[each.partition_index]: (
                each.committed_offset, each.committed_leader_epoch, each.committed_metadata
            )
            for topic in request.topics
            for each in topic.partitions
        }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "a", "b"),
    [
        (OffsetSpec.EARLIEST, 3, 0),
        (OffsetSpec.LATEST, 9, 4),
        (OffsetTimestamp(99), 6, 4),
        (0, 3, 0),
        (1, 3, 1),
        (3, 3, 3),
        (4, 4, 4),
        (5, 5, 4),
        (9, 9, 4),
        (10, 9, 4),
        (-1, 9, 4),
    ],
)
def test_what_is_meant_is_brought_into_the_range_of_the_partition(spec: Any, a: int, b: int) -> None:
    """As ``kafka-consumer-groups --reset-offsets`` does with ``--to-offset`` (``checkOffsetsRange``)."""
    assert Cluster().reset(a=spec, b=spec) == {"a": (a, -1, "kept"), "b": (b, -1, "")}


def test_a_time_that_no_record_has_is_the_end() -> None:
    cluster = Cluster()
    cluster.at_time = -1
    assert cluster.reset(a=OffsetTimestamp(99)) == {"a": (9, -1, "kept")}


def test_a_reset_returns_each_partitions_error_and_offset() -> None:
    cluster = Cluster()
    cluster.handlers[OffsetCommitRequest] = lambda node, request: committed(0, UNKNOWN_MEMBER)
    found = cluster.run(reset_group_offsets("g", {A: 4, B: 2}, cluster.leaders.get, backoff=BACKOFF))
    assert found == {A: {"error": NoError, "offset": 4}, B: {"error": UnknownMemberIdError, "offset": 2}}
    assert cluster.refreshes == 1


@pytest.mark.parametrize("spec", ["latest", None, 1.0, True])
def test_what_is_no_place_is_refused_before_anything_is_asked(spec: Any) -> None:
    cluster = Cluster()
    with pytest.raises(IllegalArgumentError, match="an OffsetSpec, an OffsetTimestamp or an offset"):
        cluster.reset(a=spec)
    assert cluster.sent == []


def test_a_partition_that_is_not_there_or_that_nobody_leads_is_not_reset() -> None:
    cluster = Cluster()
    with pytest.raises(UnknownTopicOrPartitionError, match="there is no u-0"):
        cluster.run(reset_group_offsets("g", {A: 1, C: 1}, cluster.leaders.get, backoff=BACKOFF))
    with pytest.raises(UnknownTopicOrPartitionError, match="t-1"):
        cluster.run(reset_group_offsets("g", {A: 1, B: 1}, {A: 1}.get, backoff=BACKOFF))
    assert cluster.asked(OffsetCommitRequest) == []


# -- forgotten --------------------------------------------------------------------------------------------------------


def test_offsets_are_forgotten_each_with_its_error() -> None:
    message = OffsetDeleteResponse
    part = message.OffsetDeleteResponsePartition
    parts = [part(partition_index=0, error_code=0), part(partition_index=1, error_code=SUBSCRIBED)]

    def answer(code: int = 0) -> OffsetDeleteResponse:
        topic = message.OffsetDeleteResponseTopic(name="t", partitions=parts)
        return message(error_code=code, throttle_time_ms=0, topics=[topic])

    found, (_, send) = asked(delete_group_offsets("g", [B, C, A], backoff=BACKOFF), coordinator(7), answer())
    assert found == {A: NoError, B: GroupSubscribedToTopicError}
    request: Any = send.request
    assert isinstance(request, OffsetDeleteRequest) and (send.target, request.group_id) == (7, "g")
    assert [(topic.name, [each.partition_index for each in topic.partitions]) for topic in request.topics] == [
        ("t", [1, 0]), ("u", [0]),
    ]  # fmt: skip
    with pytest.raises(NonEmptyGroupError, match="group g"):
        asked(delete_group_offsets("g", [A], backoff=BACKOFF), coordinator(), answer(NOT_EMPTY))

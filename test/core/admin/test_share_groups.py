"""Dialogues about where share groups stand."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafka.core.admin.groups import (
    SharePartitionOffset,
    alter_share_group_offsets,
    delete_share_group_offsets,
    list_share_group_offsets,
    share_group_offsets,
)
from kafka.errors import (
    GroupIdNotFoundError,
    IllegalArgumentError,
    KafkaConnectionError,
    NoError,
    NonEmptyGroupError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from kafka.structs import TopicPartition
from test.core.admin.driving import BACKOFF
from test.core.admin.many_brokers import Brokers

A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
UNKNOWN_TOPIC, NOT_COORDINATOR, DENIED, NOT_EMPTY, NOT_FOUND = 3, 16, 29, 68, 69
ID = UUID(int=7)


class Cluster(Brokers):
    """Groups g and h are coordinated by brokers 1 and 2; their errors and those of their partitions come in turn."""

    def __init__(self) -> None:
        super().__init__({}, {"g": 1, "h": 2})
        self.key_type = 0
        self.codes: list[int] = []
        self.partition_codes: dict[TopicPartition, int] = {}
        self.handlers |= {
            DescribeShareGroupOffsetsRequest: self._describe,
            AlterShareGroupOffsetsRequest: self._alter,
            DeleteShareGroupOffsetsRequest: self._delete,
        }

    def _code(self) -> int:
        return self.codes.pop(0) if self.codes else 0

    def _describe(self, node: int, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
        message = DescribeShareGroupOffsetsResponse
        groups = []
        for group in request.groups:
            wanted = [("t", [0])] if group.topics is None else [(t.topic_name, t.partitions) for t in group.topics]
            topics = [
                message.DescribeShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=ID,
                    partitions=[
                        message.DescribeShareGroupOffsetsResponsePartition(
                            partition_index=number,
                            start_offset=10 * node + number,
                            leader_epoch=3,
                            lag=5,
                            error_code=self.partition_codes.get(TopicPartition(name, number), 0),
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in wanted
            ]
            code = self._code()
            groups.append(
                message.DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id, topics=topics, error_code=code, error_message="no" if code else None
                )
            )
        return message(throttle_time_ms=0, groups=groups)

    def _alter(self, node: int, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse:
        message = AlterShareGroupOffsetsResponse
        topics = [
            message.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=ID,
                partitions=[
                    message.AlterShareGroupOffsetsResponsePartition(
                        partition_index=each.partition_index,
                        error_code=self.partition_codes.get(TopicPartition(topic.topic_name, each.partition_index), 0),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return message(throttle_time_ms=0, error_code=self._code(), error_message="no", responses=topics)

    def _delete(self, node: int, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse:
        message = DeleteShareGroupOffsetsResponse
        topics = [
            message.DeleteShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name, topic_id=ID, error_code=UNKNOWN_TOPIC if topic.topic_name == "u" else 0
            )
            for topic in request.topics
        ]
        return message(throttle_time_ms=0, error_code=self._code(), error_message="no", responses=topics)


def test_a_place_without_more_has_neither_lag_nor_epoch() -> None:
    assert SharePartitionOffset(4) == (4, -1, -1)


def test_each_coordinator_returns_the_offsets_of_its_groups() -> None:
    cluster = Cluster()
    assert cluster.run(list_share_group_offsets({"g": [B, C], "h": None}, backoff=BACKOFF)) == {
        "g": {B: SharePartitionOffset(11, 5, 3), C: SharePartitionOffset(10, 5, 3)},
        "h": {A: SharePartitionOffset(20, 5, 3)},
    }
    asked = cluster.asked(DescribeShareGroupOffsetsRequest)
    assert [node for node, _ in asked] == [1, 2]
    ((some,), (all_,)) = (request.groups for _, request in asked)
    assert [(topic.topic_name, topic.partitions) for topic in some.topics] == [("t", [1]), ("u", [0])]
    assert all_.topics is None, "null: every partition of the group (KIP-932)"


def test_the_error_of_a_group_or_of_one_of_its_partitions_is_in_the_place_of_its_offsets() -> None:
    cluster = Cluster()
    cluster.codes = [NOT_COORDINATOR, NOT_FOUND]
    cluster.partition_codes = {B: DENIED}
    found = cluster.run(share_group_offsets({"g": [A]}, backoff=BACKOFF))
    assert isinstance(found["g"], GroupIdNotFoundError) and found["g"].args == ("no",)
    assert len(cluster.asked(DescribeShareGroupOffsetsRequest)) == 2
    found = cluster.run(share_group_offsets({"g": [A, B], "h": [A]}, backoff=BACKOFF))
    assert isinstance(found["g"], TopicAuthorizationFailedError) and found["g"].args == ("t-1",)
    assert found["h"] == {A: SharePartitionOffset(20, 5, 3)}
    cluster.codes = [NOT_FOUND]
    with pytest.raises(GroupIdNotFoundError) as caught:
        cluster.run(list_share_group_offsets({"g": [A]}, backoff=BACKOFF))
    assert caught.value.args == ("group g: no",)
    with pytest.raises(TopicAuthorizationFailedError, match="group g: t-1"):
        cluster.run(list_share_group_offsets({"h": [A], "g": [A, B]}, backoff=BACKOFF))


def test_a_group_begins_at_other_offsets() -> None:
    cluster = Cluster()
    cluster.codes = [NOT_COORDINATOR]
    cluster.partition_codes = {C: UNKNOWN_TOPIC}
    found = cluster.run(alter_share_group_offsets("g", {A: 0, C: 1, B: 7}, backoff=BACKOFF))
    assert found == {A: NoError, B: NoError, C: UnknownTopicOrPartitionError}
    (_, (node, request)) = cluster.asked(AlterShareGroupOffsetsRequest)
    assert (node, request.group_id) == (1, "g")
    assert [
        (topic.topic_name, [(each.partition_index, each.start_offset) for each in topic.partitions])
        for topic in request.topics
    ] == [("t", [(0, 0), (1, 7)]), ("u", [(0, 1)])]
    cluster.codes = [NOT_EMPTY]
    with pytest.raises(NonEmptyGroupError, match="group g: no"):
        cluster.run(alter_share_group_offsets("g", {A: 0}, backoff=BACKOFF))


@pytest.mark.parametrize("lost", [KafkaConnectionError("gone"), NotCoordinatorError("moved")])
def test_offsets_are_altered_once_where_nothing_may_be_tried_again(lost: Exception) -> None:
    cluster = Cluster()
    cluster.handlers[AlterShareGroupOffsetsRequest] = lambda node, request: lost
    with pytest.raises(type(lost)):
        cluster.run(alter_share_group_offsets("g", {A: 0}, backoff=BACKOFF, attempts=1))
    assert len(cluster.asked(AlterShareGroupOffsetsRequest)) == 1


def test_a_group_forgets_topics() -> None:
    cluster = Cluster()
    found = cluster.run(delete_share_group_offsets("h", ["t", "u"], backoff=BACKOFF))
    assert found == {"t": NoError, "u": UnknownTopicOrPartitionError}
    ((node, request),) = cluster.asked(DeleteShareGroupOffsetsRequest)
    assert (node, request.group_id) == (2, "h")
    cluster.codes = [NOT_FOUND]
    with pytest.raises(GroupIdNotFoundError, match="group h: no"):
        cluster.run(delete_share_group_offsets("h", ["t"], backoff=BACKOFF))


def test_nothing_to_alter_or_to_forget_is_nothing_to_ask() -> None:
    cluster = Cluster()
    assert cluster.run(alter_share_group_offsets("g", {}, backoff=BACKOFF)) == {}
    assert cluster.run(delete_share_group_offsets("g", [], backoff=BACKOFF)) == {}
    assert cluster.run(list_share_group_offsets({}, backoff=BACKOFF)) == {}
    assert cluster.sent == []


@pytest.mark.parametrize(
    ("dialogue", "text"),
    [
        (lambda: alter_share_group_offsets("g", {A: -1}, backoff=BACKOFF), "an offset is a number, at least 0"),
        (lambda: alter_share_group_offsets("g", {A: "1"}, backoff=BACKOFF), "an offset is a number, at least 0"),  # type: ignore[dict-item]
        (lambda: delete_share_group_offsets("g", "events", backoff=BACKOFF), "topics='events': a list of names"),
        (lambda: delete_share_group_offsets("g", [A], backoff=BACKOFF), "a list of names"),  # type: ignore[list-item]
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_sent(dialogue: Any, text: str) -> None:
    cluster = Cluster()
    with pytest.raises(IllegalArgumentError, match=text):
        cluster.run(dialogue())
    assert cluster.sent == []

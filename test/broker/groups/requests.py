"""Requests of groups, in as few words as a test wants to read. For the hand-driven broker and for raw sockets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from kafka.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    deserialize,
    serialize,
)
from kafka.protocol.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from kafka.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

Owned = Mapping[UUID, Sequence[int]]


def join(
    group: str,
    member: str = "",
    instance: str | None = None,
    *,
    protocols: Sequence[tuple[str, bytes]] = (("range", b"r"),),
    protocol_type: str = "consumer",
    session_ms: int = 10_000,
    rebalance_ms: int = 10_000,
) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
    )
    if instance is not None:
        request.group_instance_id = instance
    return request


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: Mapping[str, bytes] | None = None,
    instance: str | None = None,
    *,
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=one, assignment=data)
            for one, data in (assignments or {}).items()
        ],
    )
    if instance is not None:
        request.group_instance_id = instance
    return request


def beat(group: str, generation: int, member: str, instance: str | None = None) -> HeartbeatRequest:
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
    if instance is not None:
        request.group_instance_id = instance
    return request


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        members=[
            LeaveGroupRequest.MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members
        ],
    )


def consumer(
    group: str,
    member: str,
    epoch: int,
    topics: Sequence[str] | None = None,
    *,
    regex: str | None = None,
    rebalance_ms: int = -1,
    instance: str | None = None,
    assignor: str | None = None,
    owned: Owned | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of the consumer group protocol; a join (epoch 0) has what a join has to have."""
    if epoch == 0:
        rebalance_ms = 30_000 if rebalance_ms == -1 else rebalance_ms
        owned = {} if owned is None else owned
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=None if topics is None else list(topics),
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(numbers))
            for topic_id, numbers in owned.items()
        ],
    )


def given(answer: ConsumerGroupHeartbeatResponse) -> dict[UUID, list[int]] | None:
    """What a heartbeat's answer assigns; None: nothing new."""
    if answer.assignment is None:
        return None
    return {one.topic_id: sorted(one.partitions) for one in answer.assignment.topic_partitions}


def commit(
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
    metadata: str = "",
) -> OffsetCommitRequest:
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=offset, committed_metadata=metadata
                    )
                    for number, offset in offsets.items()
                ],
            )
        ],
    )
    if instance is not None:
        request.group_instance_id = instance
    return request


def codes(answer: OffsetCommitResponse) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def fetch(
    group: str,
    topic: str | None,
    partitions: Sequence[int] = (0,),
    member: str | None = None,
    epoch: int = -1,
    *,
    stable: bool = False,
) -> OffsetFetchRequest:
    """For version 8 and 9."""
    group_request = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        topics=None
        if topic is None
        else [OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=list(partitions))],
    )
    return OffsetFetchRequest(groups=[group_request], require_stable=stable)


def offsets(answer: OffsetFetchResponse) -> list[int]:
    return [one.committed_offset for topic in answer.groups[0].topics for one in topic.partitions]


def delete_offsets(group: str, topic: str, partitions: Sequence[int] = (0,)) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=number) for number in partitions
                ],
            )
        ],
    )


def write_subscription(topics: Sequence[str], owned: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """A subscription of version 1 without user data."""
    kind = ConsumerProtocolSubscription
    has = [kind.TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in (owned or {}).items()]
    return serialize(kind(topics=list(topics), owned_partitions=has), 1)


def write_assignment(partitions: Mapping[str, Sequence[int]], version: int) -> bytes:
    """An assignment without user data."""
    kind = ConsumerProtocolAssignment
    assigned = [kind.TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in partitions.items()]
    return serialize(kind(assigned_partitions=assigned), version)


def read_assignment(data: bytes) -> dict[str, list[int]]:
    """Topic -> partitions; nothing for no bytes."""
    if not data:
        return {}
    return {one.topic: one.partitions for one in deserialize(ConsumerProtocolAssignment, data).assigned_partitions}

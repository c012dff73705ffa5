"""Subscriptions and assignments of the classic protocol as assignors see them, and their bytes
(``kafka.protocol.consumer_protocol``)."""

from __future__ import annotations

from typing import NamedTuple

from kafka.core.partitions import by_topic, check_assigned
from kafka.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    deserialize,
    serialize,
)
from kafka.structs import TopicPartition


class MemberSubscription(NamedTuple):
    """A subscription as assignors see it. ``owned`` is of ``generation`` (-1: unknown); ``rack`` may be
    empty."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str = ""


class MemberAssignment(NamedTuple):
    """What one member is to read."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes | None = None


def write_subscription(
    subscription: MemberSubscription, version: int = ConsumerProtocolSubscription.max_version
) -> bytes:
    """The bytes of a subscription, in order as Java writes them: brokers compare them to see whether who joins again
    says anything new."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(sorted(subscription.owned)).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack or None,
    )
    return serialize(message, version)


def read_subscription(data: bytes | memoryview) -> MemberSubscription:
    """KafkaProtocolError for bytes that are none."""
    message = deserialize(ConsumerProtocolSubscription, data)
    return MemberSubscription(
        tuple(message.topics),
        None if message.user_data is None else bytes(message.user_data),
        tuple(TopicPartition(each.topic, number) for each in message.owned_partitions for number in each.partitions),
        message.generation_id,
        message.rack_id or "",
    )


def write_assignment(assignment: MemberAssignment, version: int = ConsumerProtocolAssignment.max_version) -> bytes:
    """The bytes of an assignment."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in by_topic(assignment.partitions).items()
        ],
        user_data=assignment.user_data,
    )
    return serialize(message, version)


def read_assignment(data: bytes | memoryview) -> MemberAssignment:
    """Nothing for no bytes: the leader forgot this member. KafkaProtocolError for bytes that are none, and for more
    partitions than a member takes."""
    if not data:
        return MemberAssignment()
    message = deserialize(ConsumerProtocolAssignment, data)
    check_assigned(each.partitions for each in message.assigned_partitions)
    return MemberAssignment(
        tuple(TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions),
        None if message.user_data is None else bytes(message.user_data),
    )

"""What consumers say to one another in the opaque bytes of the classic protocol: subscriptions and assignments.

The bytes begin with the version (int16), and the message follows in it. A reader of a later version than it knows
reads it as the latest it knows: newer fields stand at the end, and what is left over is not looked at. The broker only
passes the bytes on. KIP-429 (owned partitions, v1), KIP-792 (their generation, v2), KIP-881 (rack, v3).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeVar

from kafka.core.partitions import by_topic, check_assigned
from kafka.errors import KafkaProtocolError
from kafka.structs import TopicPartition
from kafka.wire.codec import decode_from, encode
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import Bytes, Int32, String

PROTOCOL_TYPE: Final = "consumer"
_VERSION: Final = struct.Struct(">h")

M = TypeVar("M", bound=Message)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """What a member says of itself when it joins."""

    class TopicPartition(Struct):
        topic: String
        partitions: list[Int32]

    topics: list[String]
    user_data: Bytes | None = field(default=None, null_since=0)
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = field(
        default_factory=list, since=1, ignorable=True
    )
    generation_id: Int32 = field(default=-1, since=2, ignorable=True)
    rack_id: String | None = field(default=None, since=3, null_since=3, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """A member's assignment, made by the leader."""

    class TopicPartition(Struct):
        topic: String
        partitions: list[Int32]

    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: Bytes | None = field(default=None, null_since=0)


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
    return _VERSION.pack(version) + encode(message, version)


def read_subscription(data: bytes | memoryview) -> MemberSubscription:
    """KafkaProtocolError for bytes that are none."""
    message = _read_message(ConsumerProtocolSubscription, data)
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
    return _VERSION.pack(version) + encode(message, version)


def read_assignment(data: bytes | memoryview) -> MemberAssignment:
    """Nothing for no bytes: the leader forgot this member. KafkaProtocolError for bytes that are none, and for more
    partitions than a member takes."""
    if not data:
        return MemberAssignment()
    message = _read_message(ConsumerProtocolAssignment, data)
    check_assigned(each.partitions for each in message.assigned_partitions)
    return MemberAssignment(
        tuple(TopicPartition(each.topic, number) for each in message.assigned_partitions for number in each.partitions),
        None if message.user_data is None else bytes(message.user_data),
    )


def _read_message(cls: type[M], data: bytes | memoryview) -> M:
    if len(data) < _VERSION.size:
        raise KafkaProtocolError(f"{len(data)} bytes are no {cls.__name__}", offset=0)
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise KafkaProtocolError(f"version {version} of {cls.__name__}", offset=0)
    message, _ = decode_from(cls, data, _VERSION.size, min(version, cls.max_version))
    return message

"""What consumers say to one another in the opaque bytes of the classic protocol: subscriptions and assignments, Java's
``ConsumerProtocol``.

The bytes begin with the version (int16), and the message follows in it. A reader of a later version than it knows
reads it as the latest it knows: newer fields stand at the end, and what is left over is not looked at. A broker passes
the bytes on, and reads them to know what a group is subscribed to (OffsetDelete, expiry) and to convert a group into
one of another protocol (KIP-848). KIP-429 (owned partitions, v1), KIP-792 (their generation, v2), KIP-881 (rack, v3).
"""

from __future__ import annotations

import struct
from typing import Final, TypeVar

from kafka.errors import KafkaProtocolError
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


def serialize(message: ConsumerProtocolSubscription | ConsumerProtocolAssignment, version: int) -> bytes:
    """The bytes of a subscription or an assignment; of a later version than the latest: in the latest."""
    version = min(version, message.max_version)
    return _VERSION.pack(version) + encode(message, version)


def deserialize(cls: type[M], data: bytes | memoryview, *, null_is_empty: bool = False) -> M:
    """The subscription or assignment in the bytes. ``null_is_empty``: read a null array or string as an empty one where
    the schema has no null, as a broker does. KafkaProtocolError for bytes that are none."""
    version = min(deserialize_version(data), cls.max_version)
    return decode_from(cls, data, _VERSION.size, version, null_is_empty=null_is_empty)[0]


def deserialize_version(data: bytes | memoryview) -> int:
    """The version that the bytes begin with; KafkaProtocolError for none."""
    if len(data) < _VERSION.size:
        raise KafkaProtocolError(f"{len(data)} bytes are no message of the consumer protocol", offset=0)
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise KafkaProtocolError(f"the consumer protocol has no version {version}", offset=0)
    return version

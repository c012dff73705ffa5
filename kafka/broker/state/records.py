"""The records of the internal topics, in Apache Kafka's own formats; a test compares them with its coordinators'
schemas.

    key    kind     i16    which record it is: the ``api_key`` of its class
           fields          the key's class, version 0
    value  version  i16    of the value's class
           fields          ...

    __consumer_offsets     committed offsets, classic groups, consumer groups, share groups
    __share_group_state    share partitions: snapshots, and updates since (KIP-932)
    __transaction_state    transactional ids (KIP-98, KIP-890)

A key and its value have the same ``api_key``; the writer chooses the value's version. Streams groups (17 to 23) are not
stored, and of share groups neither members (10), assignments (12 to 14) nor the list of their partitions (15). Such
records, and offsets in the format before 0.9 (0), are ignored when another broker's files are read. To add a kind: its
two classes, and where its owner calls :func:`read_records` what it does with one.

A snapshot's key and an update's differ in their kind, so that compaction keeps the updates; updates with a lower
``snapshot_epoch`` than the snapshot's are outdated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kafka.errors import KafkaError, KafkaStorageError
from kafka.wire.codec import decode, encode
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import ZERO_UUID, Bytes, Int8, Int16, Int32, Int64, String, Uuid

M = TypeVar("M", bound=Message)

_PREFIX: Final = struct.Struct(">h")


def encode_key(key: Message) -> bytes:
    """A key's bytes."""
    return _PREFIX.pack(key.api_key) + encode(key, 0)


def encode_value(value: Message, version: int) -> bytes:
    """A value's bytes, in this version."""
    return _PREFIX.pack(version) + encode(value, version)


def decode_value(cls: type[M], data: bytes) -> M:
    """The value; KafkaStorageError for bytes that cannot be decoded."""
    try:
        (version,) = _PREFIX.unpack_from(data)
        return decode(cls, memoryview(data)[_PREFIX.size :], version)
    except (KafkaError, struct.error) as error:
        raise KafkaStorageError(f"cannot decode a record's value as {cls.__name__}: {data[:64]!r}: {error}") from error


class KeyDecoder(Generic[M]):
    """Decodes keys of these classes."""

    def __init__(self, classes: Iterable[type[M]]) -> None:
        self._classes = {cls.api_key: cls for cls in classes}

    def decode(self, data: bytes) -> M | None:
        """The key; None for another kind. KafkaStorageError for bytes that cannot be decoded."""
        try:
            (kind,) = _PREFIX.unpack_from(data)
            cls = self._classes.get(kind)
            return None if cls is None else decode(cls, memoryview(data)[_PREFIX.size :], 0)
        except (KafkaError, struct.error) as error:
            raise KafkaStorageError(f"cannot decode a record's key: {data[:64]!r}: {error}") from error


RecordEntry = tuple[bytes, bytes | None]
"""A record's key and value; None: a tombstone."""

Producer = tuple[int, int]
"""Producer id and epoch."""


class StateEvent(NamedTuple):
    """A record (``value`` None: a tombstone), or with ``key`` None the marker that ends ``producer``'s transaction."""

    key: bytes | None
    value: bytes | None
    producer: Producer | None
    is_committed: bool = False


RecordReader = tuple[type[Message], Callable[[int, Any, Any, "Producer | None"], None]]
"""The class of a kind's values, and what takes its records: ``(partition, key, value, producer)``, decoded; the value
of a tombstone is None."""

OnMarker = Callable[[int, int, int, bool], None]
"""``(partition, producer id, producer epoch, committed)``."""


def read_records(
    events: Iterable[tuple[int, StateEvent]],
    readers: Mapping[type[Message], RecordReader],
    on_marker: OnMarker = lambda *marker: None,
) -> None:
    """Give each event, with its partition, to the reader of its key's class. Other kinds are passed over.
    KafkaStorageError for bytes that cannot be decoded."""
    keys = KeyDecoder(readers)
    kinds = frozenset(_PREFIX.pack(cls.api_key) for cls in readers)
    for partition, (key, value, producer, is_committed) in events:
        if key is None:
            assert producer is not None
            on_marker(partition, *producer, is_committed)
        elif key[:2] in kinds and (found := keys.decode(key)) is not None:  # most records are another reader's
            cls, on_record = readers[type(found)]
            on_record(partition, found, None if value is None else decode_value(cls, value), producer)


class OffsetCommitKey(Message, api_key=1, versions=(0, 0)):
    """A committed offset of a group."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, api_key=1, versions=(0, 4), flexible=4):
    """The offset; ``commit_timestamp`` in ms. Version 4 has the topic's id, so that a later topic of the name has
    none of its offsets; version 1 was for an offset with an end of its own."""

    offset: Int64
    leader_epoch: Int32 = field(default=-1, since=3, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field(default=-1, since=1, until=1, ignorable=True)
    topic_id: Uuid = field(default=ZERO_UUID, since=4, tag=0, tag_since=4, ignorable=True)


class GroupMetadataKey(Message, api_key=2, versions=(0, 0)):
    """A classic group."""

    group: String


class GroupMetadataValue(Message, api_key=2, versions=(0, 4), flexible=4):
    """What the members of a generation agreed on. Times in ms."""

    class MemberMetadata(Struct):
        member_id: String
        group_instance_id: String | None = field(default=None, since=3, null_since=3, ignorable=True)
        client_id: String
        client_host: String
        rebalance_timeout: Int32 = field(default=-1, since=1, ignorable=True)
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes

    protocol_type: String
    generation: Int32
    protocol: String | None = field(null_since=0)
    leader: String | None = field(null_since=0)
    current_state_timestamp: Int64 = field(default=-1, since=2, ignorable=True)
    members: list[GroupMetadataValue.MemberMetadata]


class ConsumerGroupMetadataKey(Message, api_key=3, versions=(0, 0)):
    """A consumer group (KIP-848)."""

    group_id: String


class ConsumerGroupMetadataValue(Message, api_key=3, versions=(0, 0), flexible=0):
    """Its epoch. ``metadata_hash``: of the topics that it is subscribed to."""

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, api_key=4, versions=(0, 0)):
    """The topics of a consumer group, as releases before 4.1 kept them."""

    group_id: String


class ConsumerGroupPartitionMetadataValue(Message, api_key=4, versions=(0, 0), flexible=0):
    """Its topics; read, and never written."""

    class PartitionMetadata(Struct):
        partition: Int32
        racks: list[String]

    class TopicMetadata(Struct):
        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]

    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata]


class ConsumerGroupMemberMetadataKey(Message, api_key=5, versions=(0, 0)):
    """A member of a consumer group."""

    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(Message, api_key=5, versions=(0, 0), flexible=0):
    """What the member said of itself. ``classic_member_metadata``: of one that speaks the classic protocol."""

    class ClassicProtocol(Struct):
        name: String
        metadata: Bytes

    class ClassicMemberMetadata(Struct):
        session_timeout_ms: Int32
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]

    instance_id: String | None = field(null_since=0)
    rack_id: String | None = field(null_since=0)
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(null_since=0)
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(null_since=0)
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = field(
        default_factory=lambda: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=0, supported_protocols=[]
        ),
        null_since=0,
        tag=0,
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, api_key=6, versions=(0, 0)):
    """The target assignment of a consumer group."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, api_key=6, versions=(0, 0), flexible=0):
    """The group epoch that it was made for."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, api_key=7, versions=(0, 0)):
    """A member's part of the target assignment."""

    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(Message, api_key=7, versions=(0, 0), flexible=0):
    """Its partitions."""

    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Message, api_key=8, versions=(0, 0)):
    """Where a member is on its way to the target."""

    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(Message, api_key=8, versions=(0, 0), flexible=0):
    """Its epochs, its state and its partitions."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: list[Int32]
        assignment_epochs: list[Int32] | None = field(default_factory=list, null_since=0, tag=0)

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, api_key=16, versions=(0, 0)):
    """A regular expression that members of a consumer group are subscribed to."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, api_key=16, versions=(0, 0), flexible=0):
    """The topics that it stands for, and since when (ms)."""

    topics: list[String]
    version: Int64
    timestamp: Int64


class ShareGroupMetadataKey(Message, api_key=11, versions=(0, 0)):
    """A share group."""

    group_id: String


class ShareGroupMetadataValue(Message, api_key=11, versions=(0, 0), flexible=0):
    """Its epoch. ``metadata_hash``: of the topics that it is subscribed to."""

    epoch: Int32
    metadata_hash: Int64


class ShareSnapshotKey(Message, api_key=0, versions=(0, 0)):
    """A share partition, as a whole."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(Message, api_key=0, versions=(0, 0), flexible=0):
    """All that holds of it: what came before is of no use any more. Times in ms."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotValue.StateBatch]


class ShareUpdateKey(Message, api_key=1, versions=(0, 0)):
    """A change of a share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(Message, api_key=1, versions=(0, 0), flexible=0):
    """What has changed; laid over the snapshot of the same epoch and the updates since."""

    class StateBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field(default=-1, tag=0)
    state_batches: list[ShareUpdateValue.StateBatch]


class TransactionLogKey(Message, api_key=0, versions=(0, 0)):
    """A transactional id."""

    transactional_id: String


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible=1):
    """Its producer, its state, and the partitions of the transaction under way; times in ms."""

    class PartitionsSchema(Struct):
        topic: String
        partition_ids: list[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = field(default=-1, since=1, tag=0, tag_since=1)
    next_producer_id: Int64 = field(default=-1, since=1, tag=1, tag_since=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(default=-1, since=1, tag=3, tag_since=1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = field(null_since=0)
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(default=0, since=1, tag=2, tag_since=1)

"""Offsets that groups commit, and offsets of leader epochs."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Boolean, Int16, Int32, Int64, String, Uuid


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions=(0, 10), flexible=8):
    """Store a group's offsets with a text of its own each."""

    class OffsetCommitRequestPartition(Struct):
        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = field(default=-1, since=6, ignorable=True)
        commit_timestamp: Int64 = field(default=-1, since=1, until=1)
        committed_metadata: String | None = field(null_since=0)

    class OffsetCommitRequestTopic(Struct):
        name: String = field(default="", until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1, since=1, ignorable=True)
    member_id: String = field(default="", since=1, ignorable=True)
    group_instance_id: String | None = field(default=None, since=7, null_since=7)
    retention_time_ms: Int64 = field(default=-1, since=2, until=4, ignorable=True)
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]


class OffsetCommitResponse(Response, api_key=8, versions=(0, 10), flexible=8):
    """The error of each partition."""

    class OffsetCommitResponsePartition(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)

    class OffsetCommitResponseTopic(Struct):
        name: String = field(default="", until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic]


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions=(0, 10), flexible=6):
    """Read a group's offsets; None for all. Several groups at once from version 8 on (KIP-709)."""

    class OffsetFetchRequestTopic(Struct):
        name: String = field(default="", until=7)
        partition_indexes: list[Int32] = field(default_factory=list, until=7)

    class OffsetFetchRequestTopics(Struct):
        name: String = field(default="", since=8, until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partition_indexes: list[Int32] = field(default_factory=list, since=8)

    class OffsetFetchRequestGroup(Struct):
        group_id: String = field(default="", since=8)
        member_id: String | None = field(default=None, since=9, null_since=9, ignorable=True)
        member_epoch: Int32 = field(default=-1, since=9, ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field(
            default_factory=list, since=8, null_since=8
        )

    group_id: String = field(default="", until=7)
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = field(default_factory=list, until=7, null_since=2)
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = field(default_factory=list, since=8)
    require_stable: Boolean = field(default=False, since=7)


class OffsetFetchResponse(Response, api_key=9, versions=(0, 10), flexible=6):
    """The committed offsets, -1 where there is none."""

    class OffsetFetchResponsePartition(Struct):
        partition_index: Int32 = field(default=0, until=7)
        committed_offset: Int64 = field(default=0, until=7)
        committed_leader_epoch: Int32 = field(default=-1, since=5, until=7, ignorable=True)
        metadata: String | None = field(default="", until=7, null_since=0)
        error_code: Int16 = field(default=0, until=7)

    class OffsetFetchResponseTopic(Struct):
        name: String = field(default="", until=7)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field(default_factory=list, until=7)

    class OffsetFetchResponsePartitions(Struct):
        partition_index: Int32 = field(default=0, since=8)
        committed_offset: Int64 = field(default=0, since=8)
        committed_leader_epoch: Int32 = field(default=-1, since=8, ignorable=True)
        metadata: String | None = field(default="", since=8, null_since=8)
        error_code: Int16 = field(default=0, since=8)

    class OffsetFetchResponseTopics(Struct):
        name: String = field(default="", since=8, until=9, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field(default_factory=list, since=8)

    class OffsetFetchResponseGroup(Struct):
        group_id: String = field(default="", since=8)
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field(default_factory=list, since=8)
        error_code: Int16 = field(default=0, since=8)

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = field(default_factory=list, until=7)
    error_code: Int16 = field(default=0, since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = field(default_factory=list, since=8)


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions=(0, 0)):
    """Forget a group's offsets (KIP-496)."""

    class OffsetDeleteRequestPartition(Struct):
        partition_index: Int32

    class OffsetDeleteRequestTopic(Struct):
        name: String
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]

    group_id: String
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]


class OffsetDeleteResponse(Response, api_key=47, versions=(0, 0)):
    """The error of each partition."""

    class OffsetDeleteResponsePartition(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)

    class OffsetDeleteResponseTopic(Struct):
        name: String
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic]


class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"], api_key=23, versions=(0, 4), flexible=4):
    """Where a leader epoch ended, to detect truncation (KIP-101, KIP-320)."""

    class OffsetForLeaderPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
        leader_epoch: Int32

    class OffsetForLeaderTopic(Struct):
        topic: String
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]

    replica_id: Int32 = field(default=-2, since=3, ignorable=True)
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]


class OffsetForLeaderEpochResponse(Response, api_key=23, versions=(0, 4), flexible=4):
    """The end offset of each epoch asked for."""

    class EpochEndOffset(Struct):
        error_code: Int16 = field(default=0)
        partition: Int32
        leader_epoch: Int32 = field(default=-1, since=1, ignorable=True)
        end_offset: Int64 = field(default=-1)

    class OffsetForLeaderTopicResult(Struct):
        topic: String
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]

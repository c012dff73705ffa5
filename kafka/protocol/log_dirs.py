"""The directories of a broker: what is in them, and moves from one to another (KIP-113)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int16, Int32, Int64, String


class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"], api_key=34, versions=(0, 2), flexible=2):
    """Move replicas on a broker to another of its directories, named by its absolute path."""

    class AlterReplicaLogDirTopic(Struct):
        name: String
        partitions: list[Int32]

    class AlterReplicaLogDir(Struct):
        path: String
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]

    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]


class AlterReplicaLogDirsResponse(Response, api_key=34, versions=(0, 2), flexible=2):
    """An outcome for each partition."""

    class AlterReplicaLogDirPartitionResult(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)

    class AlterReplicaLogDirTopicResult(Struct):
        topic_name: String
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]


class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"], api_key=35, versions=(0, 5), flexible=2):
    """Ask for the directories of a broker and what is in them; None: all topics."""

    class DescribableLogDirTopic(Struct):
        topic: String
        partitions: list[Int32]

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = field(null_since=0)


class DescribeLogDirsResponse(Response, api_key=35, versions=(0, 5), flexible=2):
    """Directories with their replicas. Sizes in bytes; total and usable from version 4 on (KIP-827), cordoned from
    version 5 on (KIP-1066)."""

    class DescribeLogDirsPartition(Struct):
        partition_index: Int32
        partition_size: Int64
        offset_lag: Int64
        is_future_key: Boolean

    class DescribeLogDirsTopic(Struct):
        name: String
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]

    class DescribeLogDirsResult(Struct):
        error_code: Int16 = field(default=0)
        log_dir: String
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: Int64 = field(default=-1, since=4, ignorable=True)
        usable_bytes: Int64 = field(default=-1, since=4, ignorable=True)
        is_cordoned: Boolean = field(default=False, since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=3, ignorable=True)
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult]

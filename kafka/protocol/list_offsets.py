"""Offsets by time."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Int8, Int16, Int32, Int64, String


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions=(0, 11), flexible=6):
    """Offsets for timestamps in ms: -1 the end, -2 the start, -3 the largest timestamp (KIP-734), -4 and -5 of tiers.

    Version 0 asks for up to ``max_num_offsets`` segment starts.
    """

    class ListOffsetsPartition(Struct):
        partition_index: Int32
        current_leader_epoch: Int32 = field(default=-1, since=4, ignorable=True)
        timestamp: Int64
        max_num_offsets: Int32 = field(default=1, until=0)

    class ListOffsetsTopic(Struct):
        name: String
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]

    replica_id: Int32
    isolation_level: Int8 = field(default=0, since=2)
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: Int32 = field(default=0, since=10, ignorable=True)


class ListOffsetsResponse(Response, api_key=2, versions=(0, 11), flexible=6):
    """The first offset at or after each time, or -1."""

    class ListOffsetsPartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        old_style_offsets: list[Int64] = field(default_factory=list, until=0)
        timestamp: Int64 = field(default=-1, since=1)
        offset: Int64 = field(default=-1, since=1)
        leader_epoch: Int32 = field(default=-1, since=4)

    class ListOffsetsTopicResponse(Struct):
        name: String
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse]

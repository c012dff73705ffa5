"""Append record batches to partitions."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Int16, Int32, Int64, Records, String, Uuid


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions=(0, 13), flexible=9):
    """Batches by topic and partition. ``acks``: 0 none (and no response), 1 the leader, -1 all in sync.

    Topics are named up to version 12 and carry their id from 13 on. Versions 0 to 2 carry message sets.
    """

    class PartitionProduceData(Struct):
        index: Int32
        records: Records | None = field(null_since=0)

    class TopicProduceData(Struct):
        name: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partition_data: list[ProduceRequest.PartitionProduceData]

    transactional_id: String | None = field(default=None, since=3, null_since=3)
    acks: Int16
    timeout_ms: Int32
    topic_data: list[ProduceRequest.TopicProduceData]


class ProduceResponse(Response, api_key=0, versions=(0, 13), flexible=9):
    """What became of each partition's batch, and from version 10 on hints to a new leader (KIP-951)."""

    class BatchIndexAndErrorMessage(Struct):
        batch_index: Int32 = field(default=0, since=8)
        batch_index_error_message: String | None = field(default=None, since=8, null_since=8)

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field(default=-1, since=10)
        leader_epoch: Int32 = field(default=-1, since=10)

    class PartitionProduceResponse(Struct):
        index: Int32
        error_code: Int16 = field(default=0)
        base_offset: Int64
        log_append_time_ms: Int64 = field(default=-1, since=2, ignorable=True)
        log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(
            default_factory=list, since=8, ignorable=True
        )
        error_message: String | None = field(default=None, since=8, null_since=8, ignorable=True)
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ProduceResponse.LeaderIdAndEpoch(), since=10, tag=0, tag_since=10
        )

    class TopicProduceResponse(Struct):
        name: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partition_responses: list[ProduceResponse.PartitionProduceResponse]

    class NodeEndpoint(Struct):
        node_id: Int32 = field(default=0, since=10)
        host: String = field(default="", since=10)
        port: Int32 = field(default=0, since=10)
        rack: String | None = field(default=None, since=10, null_since=10)

    responses: list[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    node_endpoints: list[ProduceResponse.NodeEndpoint] = field(default_factory=list, since=10, tag=0, tag_since=10)

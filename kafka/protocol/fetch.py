"""Read record batches from partitions."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Records, String, Uuid


class FetchRequest(Request["FetchResponse"], api_key=1, versions=(0, 18), flexible=12):
    """Positions to read from. Sessions since version 7 (KIP-227), topic ids since 13 (KIP-516).

    ``max_wait_ms`` is how long the broker may hold the answer until ``min_bytes`` are there.
    """

    class ReplicaState(Struct):
        replica_id: Int32 = field(default=-1, since=15)
        replica_epoch: Int64 = field(default=-1, since=15)

    class FetchPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = field(default=-1, since=9, ignorable=True)
        fetch_offset: Int64
        last_fetched_epoch: Int32 = field(default=-1, since=12)
        log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
        partition_max_bytes: Int32
        replica_directory_id: Uuid = field(default=ZERO_UUID, since=17, tag=0, tag_since=17, ignorable=True)
        high_watermark: Int64 = field(default=9_223_372_036_854_775_807, since=18, tag=1, tag_since=18, ignorable=True)

    class FetchTopic(Struct):
        topic: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: list[FetchRequest.FetchPartition]

    class ForgottenTopic(Struct):
        topic: String = field(default="", since=7, until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: list[Int32] = field(default_factory=list, since=7)

    cluster_id: String | None = field(default=None, since=12, null_since=12, tag=0, tag_since=12, ignorable=True)
    replica_id: Int32 = field(default=-1, until=14)
    replica_state: FetchRequest.ReplicaState = field(
        default_factory=lambda: FetchRequest.ReplicaState(), since=15, tag=1, tag_since=15
    )
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2_147_483_647, since=3, ignorable=True)
    isolation_level: Int8 = field(default=0, since=4, ignorable=True)
    session_id: Int32 = field(default=0, since=7, ignorable=True)
    session_epoch: Int32 = field(default=-1, since=7, ignorable=True)
    topics: list[FetchRequest.FetchTopic]
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = field(default_factory=list, since=7)
    rack_id: String = field(default="", since=11, ignorable=True)


class FetchResponse(Response, api_key=1, versions=(0, 18), flexible=12):
    """Whole record batches, the last of which may be cut, with the partitions' offsets."""

    class EpochEndOffset(Struct):
        epoch: Int32 = field(default=-1, since=12)
        end_offset: Int64 = field(default=-1, since=12)

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32 = field(default=-1, since=12)
        leader_epoch: Int32 = field(default=-1, since=12)

    class SnapshotId(Struct):
        end_offset: Int64 = field(default=-1)
        epoch: Int32 = field(default=-1)

    class AbortedTransaction(Struct):
        producer_id: Int64 = field(default=0, since=4)
        first_offset: Int64 = field(default=0, since=4)

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        high_watermark: Int64
        last_stable_offset: Int64 = field(default=-1, since=4, ignorable=True)
        log_start_offset: Int64 = field(default=-1, since=5, ignorable=True)
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            default_factory=lambda: FetchResponse.EpochEndOffset(), since=12, tag=0, tag_since=12
        )
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: FetchResponse.LeaderIdAndEpoch(), since=12, tag=1, tag_since=12
        )
        snapshot_id: FetchResponse.SnapshotId = field(
            default_factory=lambda: FetchResponse.SnapshotId(), since=12, tag=2, tag_since=12
        )
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(
            default_factory=list, since=4, null_since=4, ignorable=True
        )
        preferred_read_replica: Int32 = field(default=-1, since=11)
        records: Records | None = field(null_since=0)

    class FetchableTopicResponse(Struct):
        topic: String = field(default="", until=12, ignorable=True)
        topic_id: Uuid = field(default=ZERO_UUID, since=13, ignorable=True)
        partitions: list[FetchResponse.PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32 = field(default=0, since=16)
        host: String = field(default="", since=16)
        port: Int32 = field(default=0, since=16)
        rack: String | None = field(default=None, since=16, null_since=16)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0, since=7, ignorable=True)
    session_id: Int32 = field(default=0, since=7)
    responses: list[FetchResponse.FetchableTopicResponse]
    node_endpoints: list[FetchResponse.NodeEndpoint] = field(default_factory=list, since=16, tag=0, tag_since=16)

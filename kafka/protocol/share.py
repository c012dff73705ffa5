"""Share groups: records handed out one by one, each with a lock and an acknowledgement (KIP-932)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, Int64, Records, String, Uuid


class ShareGroupHeartbeatRequest(Request["ShareGroupHeartbeatResponse"], api_key=76, versions=(1, 1), flexible=0):
    """Join (epoch 0), stay or leave (epoch -1). The client makes the member id."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = field(default=None, null_since=0)
    subscribed_topic_names: list[String] | None = field(default=None, null_since=0)


class ShareGroupHeartbeatResponse(Response, api_key=76, versions=(1, 1), flexible=0):
    """The member's epoch, the interval, and the assignment when it changed."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    class Assignment(Struct):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    member_id: String | None = field(default=None, null_since=0)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ShareGroupHeartbeatResponse.Assignment | None = field(default=None, null_since=0)


class ShareGroupDescribeRequest(Request["ShareGroupDescribeResponse"], api_key=77, versions=(1, 1), flexible=0):
    """Describe share groups."""

    group_ids: list[String]
    include_authorized_operations: Boolean


class ShareGroupDescribeResponse(Response, api_key=77, versions=(1, 1), flexible=0):
    """State, epochs and members of each group."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: list[Int32]

    class Assignment(Struct):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions]

    class Member(Struct):
        member_id: String
        rack_id: String | None = field(default=None, null_since=0)
        member_epoch: Int32
        client_id: String
        client_host: String
        subscribed_topic_names: list[String]
        assignment: ShareGroupDescribeResponse.Assignment

    class DescribedGroup(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[ShareGroupDescribeResponse.Member]
        authorized_operations: Int32 = field(default=-2_147_483_648)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[ShareGroupDescribeResponse.DescribedGroup]


class ShareFetchRequest(Request["ShareFetchResponse"], api_key=78, versions=(1, 2), flexible=0):
    """Acquire records, and acknowledge others on the way.

    ``share_session_epoch``: 0 opens a session, -1 ends it. ``share_acquire_mode``: 0 whole batches, 1 no more than
    ``max_records`` (KIP-1206). ``is_renew_ack``: there are renewals among the acknowledgements (KIP-1222).
    """

    class AcknowledgementBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        acknowledge_types: list[Int8]

    class FetchPartition(Struct):
        partition_index: Int32
        partition_max_bytes: Int32 = field(default=0, until=0)
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch]

    class FetchTopic(Struct):
        topic_id: Uuid
        partitions: list[ShareFetchRequest.FetchPartition]

    class ForgottenTopic(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String | None = field(default=None, null_since=0)
    member_id: String | None = field(null_since=0)
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2_147_483_647)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field(default=0, since=2, ignorable=True)
    is_renew_ack: Boolean = field(default=False, since=2)
    topics: list[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic]


class ShareFetchResponse(Response, api_key=78, versions=(1, 2), flexible=0):
    """Whole record batches, and the ranges of offsets in them that were acquired."""

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32
        leader_epoch: Int32

    class AcquiredRecords(Struct):
        first_offset: Int64
        last_offset: Int64
        delivery_count: Int16

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)
        acknowledge_error_code: Int16
        acknowledge_error_message: String | None = field(default=None, null_since=0)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: Records
        acquired_records: list[ShareFetchResponse.AcquiredRecords]

    class ShareFetchableTopicResponse(Struct):
        topic_id: Uuid
        partitions: list[ShareFetchResponse.PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None, null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse]
    node_endpoints: list[ShareFetchResponse.NodeEndpoint]


class ShareAcknowledgeRequest(Request["ShareAcknowledgeResponse"], api_key=79, versions=(1, 2), flexible=0):
    """Acknowledge: 0 gap, 1 accept, 2 release, 3 reject, 4 renew."""

    class AcknowledgementBatch(Struct):
        first_offset: Int64
        last_offset: Int64
        acknowledge_types: list[Int8]

    class AcknowledgePartition(Struct):
        partition_index: Int32
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch]

    class AcknowledgeTopic(Struct):
        topic_id: Uuid
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition]

    group_id: String | None = field(default=None, null_since=0)
    member_id: String | None = field(null_since=0)
    share_session_epoch: Int32
    is_renew_ack: Boolean = field(default=False, since=2)
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic]


class ShareAcknowledgeResponse(Response, api_key=79, versions=(1, 2), flexible=0):
    """The error of each partition."""

    class LeaderIdAndEpoch(Struct):
        leader_id: Int32
        leader_epoch: Int32

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch

    class ShareAcknowledgeTopicResponse(Struct):
        topic_id: Uuid
        partitions: list[ShareAcknowledgeResponse.PartitionData]

    class NodeEndpoint(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None, null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    acquisition_lock_timeout_ms: Int32 = field(default=0, since=2, ignorable=True)
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse]
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint]


class DescribeShareGroupOffsetsRequest(
    Request["DescribeShareGroupOffsetsResponse"], api_key=90, versions=(0, 1), flexible=0
):
    """Where share groups stand (KIP-1226 adds the lag)."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        topic_name: String
        partitions: list[Int32]

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        group_id: String
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = field(
            null_since=0
        )

    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions=(0, 1), flexible=0):
    """The start offset of each partition."""

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32
        start_offset: Int64
        leader_epoch: Int32
        lag: Int64 = field(default=-1, since=1, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        topic_name: String
        topic_id: Uuid
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        group_id: String
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]


class AlterShareGroupOffsetsRequest(Request["AlterShareGroupOffsetsResponse"], api_key=91, versions=(0, 0), flexible=0):
    """Move an empty share group."""

    class AlterShareGroupOffsetsRequestPartition(Struct):
        partition_index: Int32
        start_offset: Int64

    class AlterShareGroupOffsetsRequestTopic(Struct):
        topic_name: String
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]

    group_id: String
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions=(0, 0), flexible=0):
    """The error of each partition."""

    class AlterShareGroupOffsetsResponsePartition(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)

    class AlterShareGroupOffsetsResponseTopic(Struct):
        topic_name: String
        topic_id: Uuid
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsRequest(
    Request["DeleteShareGroupOffsetsResponse"], api_key=92, versions=(0, 0), flexible=0
):
    """Make an empty share group forget topics."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        topic_name: String

    group_id: String
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponse(Response, api_key=92, versions=(0, 0), flexible=0):
    """The error of each topic."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        topic_name: String
        topic_id: Uuid
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic]

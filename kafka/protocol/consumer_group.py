"""Groups of the consumer group protocol, whose broker assigns (KIP-848)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, String, Uuid


class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"], api_key=68, versions=(0, 1), flexible=0):
    """Join (epoch 0), stay, report what is owned, leave (epoch -1, static members -2)."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(default=None, null_since=0)
    rack_id: String | None = field(default=None, null_since=0)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(default=None, null_since=0)
    subscribed_topic_regex: String | None = field(default=None, since=1, null_since=1)
    server_assignor: String | None = field(default=None, null_since=0)
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = field(default=None, null_since=0)


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions=(0, 1), flexible=0):
    """The member's epoch and, when it changed, its target assignment."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: list[Int32]

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None, null_since=0)
    member_id: String | None = field(default=None, null_since=0)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None = field(default=None, null_since=0)


class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"], api_key=69, versions=(0, 1), flexible=0):
    """Describe groups of the consumer group protocol."""

    group_ids: list[String]
    include_authorized_operations: Boolean


class ConsumerGroupDescribeResponse(Response, api_key=69, versions=(0, 1), flexible=0):
    """State, epochs and members of each group."""

    class TopicPartitions(Struct):
        topic_id: Uuid
        topic_name: String
        partitions: list[Int32]

    class Assignment(Struct):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]

    class Member(Struct):
        member_id: String
        instance_id: String | None = field(default=None, null_since=0)
        rack_id: String | None = field(default=None, null_since=0)
        member_epoch: Int32
        client_id: String
        client_host: String
        subscribed_topic_names: list[String]
        subscribed_topic_regex: String | None = field(default=None, null_since=0)
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: Int8 = field(default=-1, since=1, ignorable=True)

    class DescribedGroup(Struct):
        error_code: Int16
        error_message: String | None = field(default=None, null_since=0)
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: Int32 = field(default=-2_147_483_648)

    throttle_time_ms: Int32
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]

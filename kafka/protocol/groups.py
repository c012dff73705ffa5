"""Classic groups (KIP-62), and what lists, describes and deletes groups of every type."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Bytes, Int8, Int16, Int32, String, Uuid


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions=(0, 9), flexible=6):
    """Become or stay a member of a classic group."""

    class JoinGroupRequestProtocol(Struct):
        name: String
        metadata: Bytes

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field(default=-1, since=1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field(default=None, since=5, null_since=5)
    protocol_type: String
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: String | None = field(default=None, since=8, null_since=8, ignorable=True)


class JoinGroupResponse(Response, api_key=11, versions=(0, 9), flexible=6):
    """The generation, and for its leader the members to assign to."""

    class JoinGroupResponseMember(Struct):
        member_id: String
        group_instance_id: String | None = field(default=None, since=5, null_since=5, ignorable=True)
        metadata: Bytes

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field(default=None, since=7, null_since=7, ignorable=True)
    protocol_name: String | None = field(null_since=7)
    leader: String
    skip_assignment: Boolean = field(default=False, since=9)
    member_id: String
    members: list[JoinGroupResponse.JoinGroupResponseMember]


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions=(0, 5), flexible=4):
    """Hand in the assignment (the leader) and ask for one's own."""

    class SyncGroupRequestAssignment(Struct):
        member_id: String
        assignment: Bytes

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3, null_since=3)
    protocol_type: String | None = field(default=None, since=5, null_since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, null_since=5, ignorable=True)
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]


class SyncGroupResponse(Response, api_key=14, versions=(0, 5), flexible=4):
    """The member's assignment."""

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0)
    protocol_type: String | None = field(default=None, since=5, null_since=5, ignorable=True)
    protocol_name: String | None = field(default=None, since=5, null_since=5, ignorable=True)
    assignment: Bytes


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions=(0, 4), flexible=4):
    """Stay in a classic group."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field(default=None, since=3, null_since=3)


class HeartbeatResponse(Response, api_key=12, versions=(0, 4), flexible=4):
    """Whether the group goes on or rebalances."""

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0)


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions=(0, 5), flexible=4):
    """Leave; several members at once from version 3 on (KIP-345)."""

    class MemberIdentity(Struct):
        member_id: String = field(default="", since=3)
        group_instance_id: String | None = field(default=None, since=3, null_since=3)
        reason: String | None = field(default=None, since=5, null_since=5, ignorable=True)

    group_id: String
    member_id: String = field(default="", until=2)
    members: list[LeaveGroupRequest.MemberIdentity] = field(default_factory=list, since=3)


class LeaveGroupResponse(Response, api_key=13, versions=(0, 5), flexible=4):
    """The error of each member."""

    class MemberResponse(Struct):
        member_id: String = field(default="", since=3)
        group_instance_id: String | None = field(default="", since=3, null_since=3)
        error_code: Int16 = field(default=0, since=3)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[LeaveGroupResponse.MemberResponse] = field(default_factory=list, since=3)


class DescribeGroupsRequest(Request["DescribeGroupsResponse"], api_key=15, versions=(0, 6), flexible=5):
    """Describe classic groups."""

    groups: list[String]
    include_authorized_operations: Boolean = field(default=False, since=3)


class DescribeGroupsResponse(Response, api_key=15, versions=(0, 6), flexible=5):
    """State, protocol and members of each group."""

    class DescribedGroupMember(Struct):
        member_id: String
        group_instance_id: String | None = field(default=None, since=4, null_since=4, ignorable=True)
        client_id: String
        client_host: String
        member_metadata: Bytes
        member_assignment: Bytes

    class DescribedGroup(Struct):
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, since=6, null_since=6)
        group_id: String
        group_state: String
        protocol_type: String
        protocol_data: String
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: Int32 = field(default=-2_147_483_648, since=3)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    groups: list[DescribeGroupsResponse.DescribedGroup]


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions=(0, 5), flexible=3):
    """List groups by state (KIP-518) and type (KIP-848)."""

    states_filter: list[String] = field(default_factory=list, since=4)
    types_filter: list[String] = field(default_factory=list, since=5)


class ListGroupsResponse(Response, api_key=16, versions=(0, 5), flexible=3):
    """The groups that this broker coordinates."""

    class ListedGroup(Struct):
        group_id: String
        protocol_type: String
        group_state: String = field(default="", since=4, ignorable=True)
        group_type: String = field(default="", since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: list[ListGroupsResponse.ListedGroup]


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions=(0, 2), flexible=2):
    """Delete empty groups of any type."""

    groups_names: list[String]


class DeleteGroupsResponse(Response, api_key=42, versions=(0, 2), flexible=2):
    """The error of each group."""

    class DeletableGroupResult(Struct):
        group_id: String
        error_code: Int16 = field(default=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeleteGroupsResponse.DeletableGroupResult]


# -- the consumer group protocol, in which the broker assigns partitions (KIP-848) --


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

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
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
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: Int32 = field(default=-2_147_483_648)

    throttle_time_ms: Int32 = field(default=0)
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]

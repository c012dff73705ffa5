"""Topics: create, grow, empty, describe and delete them."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Boolean, Int8, Int16, Int32, Int64, String, Uuid


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions=(0, 7), flexible=5):
    """Create topics with partitions, replicas and settings."""

    class CreatableReplicaAssignment(Struct):
        partition_index: Int32
        broker_ids: list[Int32]

    class CreatableTopicConfig(Struct):
        name: String
        value: String | None = field(null_since=0)

    class CreatableTopic(Struct):
        name: String
        num_partitions: Int32
        replication_factor: Int16
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]

    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Boolean = field(default=False, since=1)


class CreateTopicsResponse(Response, api_key=19, versions=(0, 7), flexible=5):
    """The error of each topic, and from version 5 on what was made (KIP-525)."""

    class CreatableTopicConfigs(Struct):
        name: String = field(default="", since=5)
        value: String | None = field(default="", since=5, null_since=5)
        read_only: Boolean = field(default=False, since=5)
        config_source: Int8 = field(default=-1, since=5, ignorable=True)
        is_sensitive: Boolean = field(default=False, since=5)

    class CreatableTopicResult(Struct):
        name: String
        topic_id: Uuid = field(default=ZERO_UUID, since=7, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default="", since=1, null_since=0, ignorable=True)
        topic_config_error_code: Int16 = field(default=0, since=5, tag=0, tag_since=5, ignorable=True)
        num_partitions: Int32 = field(default=-1, since=5, ignorable=True)
        replication_factor: Int16 = field(default=-1, since=5, ignorable=True)
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            default_factory=list, since=5, null_since=5, ignorable=True
        )

    throttle_time_ms: Int32 = field(default=0, since=2, ignorable=True)
    topics: list[CreateTopicsResponse.CreatableTopicResult]


class DeleteTopicsRequest(Request["DeleteTopicsResponse"], api_key=20, versions=(0, 6), flexible=4):
    """Delete topics by name or, from version 6 on, by id."""

    class DeleteTopicState(Struct):
        name: String | None = field(default=None, since=6, null_since=6)
        topic_id: Uuid = field(default=ZERO_UUID, since=6)

    topics: list[DeleteTopicsRequest.DeleteTopicState] = field(default_factory=list, since=6)
    topic_names: list[String] = field(default_factory=list, until=5, ignorable=True)
    timeout_ms: Int32


class DeleteTopicsResponse(Response, api_key=20, versions=(0, 6), flexible=4):
    """The error of each topic."""

    class DeletableTopicResult(Struct):
        name: String | None = field(null_since=6)
        topic_id: Uuid = field(default=ZERO_UUID, since=6, ignorable=True)
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, since=5, null_since=5, ignorable=True)

    throttle_time_ms: Int32 = field(default=0, since=1, ignorable=True)
    responses: list[DeleteTopicsResponse.DeletableTopicResult]


class CreatePartitionsRequest(Request["CreatePartitionsResponse"], api_key=37, versions=(0, 3), flexible=2):
    """Give topics more partitions (KIP-195)."""

    class CreatePartitionsAssignment(Struct):
        broker_ids: list[Int32]

    class CreatePartitionsTopic(Struct):
        name: String
        count: Int32
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(null_since=0)

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Boolean


class CreatePartitionsResponse(Response, api_key=37, versions=(0, 3), flexible=2):
    """The error of each topic."""

    class CreatePartitionsTopicResult(Struct):
        name: String
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default=None, null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult]


class DeleteRecordsRequest(Request["DeleteRecordsResponse"], api_key=21, versions=(0, 2), flexible=2):
    """Move the start of partitions forward (KIP-107)."""

    class DeleteRecordsPartition(Struct):
        partition_index: Int32
        offset: Int64

    class DeleteRecordsTopic(Struct):
        name: String
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsResponse(Response, api_key=21, versions=(0, 2), flexible=2):
    """The new start of each partition."""

    class DeleteRecordsPartitionResult(Struct):
        partition_index: Int32
        low_watermark: Int64
        error_code: Int16 = field(default=0)

    class DeleteRecordsTopicResult(Struct):
        name: String
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult]


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], api_key=75, versions=(0, 0), flexible=0
):
    """Describe topics page by page (KIP-966)."""

    class TopicRequest(Struct):
        name: String

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    topics: list[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: DescribeTopicPartitionsRequest.Cursor | None = field(default=None, null_since=0)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions=(0, 0), flexible=0):
    """A page of topics, and where the next begins."""

    class DescribeTopicPartitionsResponsePartition(Struct):
        error_code: Int16 = field(default=0)
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = field(default=-1, ignorable=True)
        replica_nodes: list[Int32]
        isr_nodes: list[Int32]
        eligible_leader_replicas: list[Int32] | None = field(default=None, null_since=0)
        last_known_elr: list[Int32] | None = field(default=None, null_since=0)
        offline_replicas: list[Int32] = field(ignorable=True)

    class DescribeTopicPartitionsResponseTopic(Struct):
        error_code: Int16 = field(default=0)
        name: String | None = field(null_since=0)
        topic_id: Uuid = field(ignorable=True)
        is_internal: Boolean = field(default=False, ignorable=True)
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: Int32 = field(default=-2_147_483_648)

    class Cursor(Struct):
        topic_name: String
        partition_index: Int32

    throttle_time_ms: Int32 = field(default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = field(default=None, null_since=0)

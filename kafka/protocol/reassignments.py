"""Where partitions and their leaders are: elections and moves."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, String


class ElectLeadersRequest(Request["ElectLeadersResponse"], api_key=43, versions=(0, 2), flexible=2):
    """Elect leaders of partitions; None: of all. Type 0: the preferred replica, 1: any of them (KIP-460)."""

    class TopicPartitions(Struct):
        topic: String
        partitions: list[Int32]

    election_type: Int8 = field(default=0, since=1)
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = field(null_since=0)
    timeout_ms: Int32 = field(default=60000)


class ElectLeadersResponse(Response, api_key=43, versions=(0, 2), flexible=2):
    """An outcome for each partition."""

    class PartitionResult(Struct):
        partition_id: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)

    class ReplicaElectionResult(Struct):
        topic: String
        partition_result: list[ElectLeadersResponse.PartitionResult]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0, since=1)
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult]


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], api_key=45, versions=(0, 1), flexible=0
):
    """Move partitions to these brokers; None: call a move off (KIP-455)."""

    class ReassignablePartition(Struct):
        partition_index: Int32
        replicas: list[Int32] | None = field(default=None, null_since=0)

    class ReassignableTopic(Struct):
        name: String
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Boolean = field(default=True, since=1)
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]


class AlterPartitionReassignmentsResponse(Response, api_key=45, versions=(0, 1), flexible=0):
    """An outcome for each partition."""

    class ReassignablePartitionResponse(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)

    class ReassignableTopicResponse(Struct):
        name: String
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]

    throttle_time_ms: Int32 = field(default=0)
    allow_replication_factor_change: Boolean = field(default=True, since=1, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], api_key=46, versions=(0, 0), flexible=0
):
    """Ask for the moves under way; None: of all partitions."""

    class ListPartitionReassignmentsTopics(Struct):
        name: String
        partition_indexes: list[Int32]

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = field(
        default=None, null_since=0
    )


class ListPartitionReassignmentsResponse(Response, api_key=46, versions=(0, 0), flexible=0):
    """The moves: brokers that are, that come and that go."""

    class OngoingPartitionReassignment(Struct):
        partition_index: Int32
        replicas: list[Int32]
        adding_replicas: list[Int32]
        removing_replicas: list[Int32]

    class OngoingTopicReassignment(Struct):
        name: String
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]

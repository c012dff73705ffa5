"""The controllers and what the cluster has agreed on: quorum, voters, features, brokers that are gone."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Boolean, Int8, Int16, Int32, Int64, String, Uint16, Uuid


class DescribeQuorumRequest(Request["DescribeQuorumResponse"], api_key=55, versions=(0, 2), flexible=0):
    """Ask for the state of the controllers' quorum (KIP-595)."""

    class PartitionData(Struct):
        partition_index: Int32

    class TopicData(Struct):
        topic_name: String
        partitions: list[DescribeQuorumRequest.PartitionData]

    topics: list[DescribeQuorumRequest.TopicData]


class DescribeQuorumResponse(Response, api_key=55, versions=(0, 2), flexible=0):
    """Voters and observers, and how far each of them has come."""

    class ReplicaState(Struct):
        replica_id: Int32
        replica_directory_id: Uuid = field(default=ZERO_UUID, since=2)
        log_end_offset: Int64
        last_fetch_timestamp: Int64 = field(default=-1, since=1, ignorable=True)
        last_caught_up_timestamp: Int64 = field(default=-1, since=1, ignorable=True)

    class PartitionData(Struct):
        partition_index: Int32
        error_code: Int16 = field(default=0)
        error_message: String | None = field(default="", since=2, null_since=2, ignorable=True)
        leader_id: Int32
        leader_epoch: Int32
        high_watermark: Int64
        current_voters: list[DescribeQuorumResponse.ReplicaState]
        observers: list[DescribeQuorumResponse.ReplicaState]

    class TopicData(Struct):
        topic_name: String
        partitions: list[DescribeQuorumResponse.PartitionData]

    class Listener(Struct):
        name: String = field(default="", since=2)
        host: String = field(default="", since=2)
        port: Uint16 = field(default=0, since=2)

    class Node(Struct):
        node_id: Int32 = field(default=0, since=2)
        listeners: list[DescribeQuorumResponse.Listener] = field(default_factory=list, since=2)

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="", since=2, null_since=2, ignorable=True)
    topics: list[DescribeQuorumResponse.TopicData]
    nodes: list[DescribeQuorumResponse.Node] = field(default_factory=list, since=2)


class UpdateFeaturesRequest(Request["UpdateFeaturesResponse"], api_key=57, versions=(0, 2), flexible=0):
    """Raise or lower the levels of features (KIP-584). Upgrade type 1: up, 2: down where nothing is lost, 3: down."""

    class FeatureUpdateKey(Struct):
        feature: String
        max_version_level: Int16
        allow_downgrade: Boolean = field(default=False, until=0)
        upgrade_type: Int8 = field(default=1, since=1)

    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: Boolean = field(default=False, since=1)


class UpdateFeaturesResponse(Response, api_key=57, versions=(0, 2), flexible=0):
    """One outcome for all; one for each feature only up to version 1."""

    class UpdatableFeatureResult(Struct):
        feature: String
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = field(default_factory=list, until=1, ignorable=True)


class UnregisterBrokerRequest(Request["UnregisterBrokerResponse"], api_key=64, versions=(0, 0), flexible=0):
    """Forget a broker that is gone for good."""

    broker_id: Int32


class UnregisterBrokerResponse(Response, api_key=64, versions=(0, 0), flexible=0):
    """Whether it was."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)


class AddRaftVoterRequest(Request["AddRaftVoterResponse"], api_key=80, versions=(0, 1), flexible=0):
    """Let a controller vote (KIP-853)."""

    class Listener(Struct):
        name: String
        host: String
        port: Uint16

    cluster_id: String | None = field(null_since=0)
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[AddRaftVoterRequest.Listener]
    ack_when_committed: Boolean = field(default=True, since=1)


class AddRaftVoterResponse(Response, api_key=80, versions=(0, 1), flexible=0):
    """Whether it does."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="", null_since=0, ignorable=True)


class RemoveRaftVoterRequest(Request["RemoveRaftVoterResponse"], api_key=81, versions=(0, 0), flexible=0):
    """Let a controller vote no more (KIP-853)."""

    cluster_id: String | None = field(null_since=0)
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, api_key=81, versions=(0, 0), flexible=0):
    """Whether it does not."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="", null_since=0, ignorable=True)

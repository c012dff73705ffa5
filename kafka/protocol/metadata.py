"""The cluster as one broker sees it: brokers, controller, topics, partitions and their leaders."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import ZERO_UUID, Boolean, Int8, Int16, Int32, String, Uuid


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 13), flexible=9):
    """Ask for all topics (None; in version 0 an empty list), for none (an empty list from version 1 on) or for some."""

    class MetadataRequestTopic(Struct):
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        name: String | None = field(null_since=10)

    topics: list[MetadataRequest.MetadataRequestTopic] | None = field(null_since=1)
    allow_auto_topic_creation: Boolean = field(default=True, since=4)
    include_cluster_authorized_operations: Boolean = field(default=False, since=8, until=10)
    include_topic_authorized_operations: Boolean = field(default=False, since=8)


class MetadataResponse(Response, api_key=3, versions=(0, 13), flexible=9):
    """Brokers, controller and topics. Topic ids came with version 10 (KIP-516)."""

    class MetadataResponseBroker(Struct):
        node_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None, since=1, null_since=1, ignorable=True)

    class MetadataResponsePartition(Struct):
        error_code: Int16 = field(default=0)
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = field(default=-1, since=7, ignorable=True)
        replica_nodes: list[Int32]
        isr_nodes: list[Int32]
        offline_replicas: list[Int32] = field(default_factory=list, since=5, ignorable=True)

    class MetadataResponseTopic(Struct):
        error_code: Int16 = field(default=0)
        name: String | None = field(null_since=12)
        topic_id: Uuid = field(default=ZERO_UUID, since=10, ignorable=True)
        is_internal: Boolean = field(default=False, since=1, ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: Int32 = field(default=-2_147_483_648, since=8)

    throttle_time_ms: Int32 = field(default=0, since=3, ignorable=True)
    brokers: list[MetadataResponse.MetadataResponseBroker]
    cluster_id: String | None = field(default=None, since=2, null_since=2, ignorable=True)
    controller_id: Int32 = field(default=-1, since=1, ignorable=True)
    topics: list[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field(default=-2_147_483_648, since=8, until=10)
    error_code: Int16 = field(default=0, since=13, ignorable=True)


class DescribeClusterRequest(Request["DescribeClusterResponse"], api_key=60, versions=(0, 2), flexible=0):
    """Describe the cluster (KIP-700)."""

    include_cluster_authorized_operations: Boolean
    endpoint_type: Int8 = field(default=1, since=1)
    include_fenced_brokers: Boolean = field(default=False, since=2)


class DescribeClusterResponse(Response, api_key=60, versions=(0, 2), flexible=0):
    """Its id, controller and brokers."""

    class DescribeClusterBroker(Struct):
        broker_id: Int32
        host: String
        port: Int32
        rack: String | None = field(default=None, null_since=0)
        is_fenced: Boolean = field(default=False, since=2)

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None, null_since=0)
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2_147_483_648)

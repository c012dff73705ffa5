"""The cluster as a whole."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Boolean, Int8, Int16, Int32, String


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

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(default=None, null_since=0)
    endpoint_type: Int8 = field(default=1, since=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2_147_483_648)

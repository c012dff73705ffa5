"""DescribeCluster (KIP-700): the id, and the one broker, which is its own controller.

Different from Apache Kafka 4.3.0: nothing that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.operations import ALL_CLUSTER_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.protocol.cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

BROKERS: Final = 1
CONTROLLERS: Final = 2
NOT_OF_CONTROLLERS: Final = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)


@handles(DescribeClusterRequest, versions=(0, 2))
def describe_cluster(broker: Broker, call: Call[DescribeClusterRequest]) -> DescribeClusterResponse:
    wanted = call.request.endpoint_type
    if wanted != BROKERS:
        known = wanted == CONTROLLERS
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=114 if known else 115,
            error_message=NOT_OF_CONTROLLERS if known else f"Unsupported endpoint type {wanted}",
            endpoint_type=BROKERS,
            cluster_id="",
            brokers=[],
        )
    host, port = broker.endpoint(call.connection)
    node_id = broker.config.node_id
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        endpoint_type=BROKERS,
        cluster_id=broker.ids.cluster_id,
        controller_id=node_id,
        brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=host, port=port)],
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS
        if call.request.include_cluster_authorized_operations
        else NOT_ASKED,
    )

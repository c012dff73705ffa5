"""ListConfigResources (KIP-1000, KIP-1142): topics, the broker, its loggers, and the groups and subscriptions to client
metrics that have configurations. Version 0 asks for the last alone. As Apache Kafka 4.3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.client_metrics import KIND
from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import UnsupportedVersionError
from kafka.protocol.configs import ListConfigResourcesRequest, ListConfigResourcesResponse

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
_KNOWN: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


@handles(ListConfigResourcesRequest, versions=(0, 1))
def list_config_resources(broker: Broker, call: Call[ListConfigResourcesRequest]) -> ListConfigResourcesResponse:
    wanted = set(call.request.resource_types) if call.version else {CLIENT_METRICS}
    if not wanted <= _KNOWN:
        code = error_code(UnsupportedVersionError)
        return ListConfigResourcesResponse(throttle_time_ms=0, error_code=code, config_resources=[])
    node = str(broker.config.node_id)
    names = {
        CLIENT_METRICS: list(broker.metadata.configs(KIND)),
        GROUP: list(broker.metadata.configs("group")),
        BROKER_LOGGER: [node],
        BROKER: [node],
        TOPIC: [topic.name for topic in broker.metadata],
    }
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=0,
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind, found in names.items()
            for name in found
            if not wanted or kind in wanted
        ],
    )

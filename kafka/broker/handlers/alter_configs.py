"""AlterConfigs: all that a resource has set is replaced by what the request sets; what it does not name is unset.

The checks are those of IncrementalAlterConfigs (``configs.py``), which clients should use instead.

Different from Apache Kafka 4.3.0: a resource that is named twice gets INVALID_REQUEST (42; there, the request is never
answered).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka.broker.client_metrics import KIND
from kafka.broker.codes import error_code, error_text
from kafka.broker.handlers.configs import BROKER, CLIENT_METRICS, DELETE, GROUP, SET, TOPIC, alter_resource
from kafka.broker.registry import Call, handles
from kafka.errors import BrokerResponseError, InvalidRequestError
from kafka.protocol.configs import AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_KINDS: Final = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: KIND, GROUP: "group"}

_Change = IncrementalAlterConfigsRequest.AlterableConfig


@handles(AlterConfigsRequest, versions=(0, 2))
def alter_configs(broker: Broker, call: Call[AlterConfigsRequest]) -> AlterConfigsResponse:
    request = call.request
    count_of = Counter((one.resource_type, one.resource_name) for one in request.resources)
    responses = []
    for resource in request.resources:
        code, text = 0, None
        try:
            if count_of[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            _replace(broker, resource, request.validate_only)
        except BrokerResponseError as error:
            code, text = error_code(error), error_text(error) or None
        responses.append(
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code,
                error_message=text,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


def _replace(broker: Broker, resource: AlterConfigsRequest.AlterConfigsResource, validate_only: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == TOPIC and not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    given = {one.name for one in resource.configs}
    own = broker.metadata.config(_KINDS[kind], name) if kind in _KINDS else {}
    changes = [_Change(name=one.name, config_operation=SET, value=one.value) for one in resource.configs]
    changes += [_Change(name=key, config_operation=DELETE, value=None) for key in own if key not in given]
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changes
    )
    alter_resource(broker, wanted, validate_only)

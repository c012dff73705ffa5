"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), of a broker that was asked for them: ``--telemetry``.

Otherwise they are neither listed nor served, as by an Apache Kafka without a plug-in that takes metrics. What is pushed
is kept for tests to look at, the last 100 pushes of each client. A push that cannot be decompressed gets INVALID_RECORD
(87), as from a plug-in that fails.

Different from Apache Kafka 4.3.0 with a plug-in: the metrics are not in a random order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.registry import RequestContext, handles
from kafka.broker.telemetry import ACCEPTED, ClientTelemetry
from kafka.errors import UnsupportedVersionError
from kafka.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    broker: Broker, call: RequestContext[GetTelemetrySubscriptionsRequest]
) -> GetTelemetrySubscriptionsResponse:
    """A new client instance, or a known one, and which metrics to push."""
    telemetry = _telemetry(broker)
    instance = telemetry.subscribe(call.request.client_instance_id, call.client_id, call.connection, call.now)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=telemetry.is_delta,
        requested_metrics=list(instance.wanted.metrics),
    )


@handles(PushTelemetryRequest)
def push_telemetry(broker: Broker, call: RequestContext[PushTelemetryRequest]) -> PushTelemetryResponse:
    _telemetry(broker).push(call.request, call.client_id, call.connection, call.now)
    return PushTelemetryResponse()


def _telemetry(broker: Broker) -> ClientTelemetry:
    if broker.telemetry is None:
        raise UnsupportedVersionError("telemetry is off")
    return broker.telemetry

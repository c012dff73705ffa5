"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), of a broker that was asked for them: ``--telemetry``.

Otherwise they are neither listed nor served, as by an Apache Kafka without a plug-in that takes metrics. What is pushed
is kept for tests to look at, the last 100 pushes of each client. A push that cannot be decompressed gets INVALID_RECORD
(87), as from a plug-in that fails.

Different from Apache Kafka 4.3.0 with a plug-in: the metrics are not in a random order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import error_code
from kafka.broker.telemetry import ACCEPTED
from kafka.errors import BrokerResponseError, UnsupportedVersionError
from kafka.protocol.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(GetTelemetrySubscriptionsRequest)
def get_telemetry_subscriptions(
    broker: Broker, call: RequestContext[GetTelemetrySubscriptionsRequest]
) -> GetTelemetrySubscriptionsResponse:
    """A new client instance, or a known one, and which metrics to push; the error's response has nothing but zeros."""
    telemetry = broker.telemetry
    try:
        if telemetry is None:
            raise UnsupportedVersionError("telemetry is off")
        instance = telemetry.subscribe(call.request.client_instance_id, call.client_id, call.connection, call.now)
    except BrokerResponseError as error:
        return GetTelemetrySubscriptionsResponse(
            throttle_time_ms=0,
            error_code=error_code(error),
            client_instance_id=ZERO_UUID,
            subscription_id=0,
            accepted_compression_types=[],
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=[],
        )
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=0,
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
    telemetry = broker.telemetry
    code = 0
    try:
        if telemetry is None:
            raise UnsupportedVersionError("telemetry is off")
        telemetry.push(call.request, call.client_id, call.connection, call.now)
    except BrokerResponseError as error:
        code = error_code(error)
    return PushTelemetryResponse(throttle_time_ms=0, error_code=code)

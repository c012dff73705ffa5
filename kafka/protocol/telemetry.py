"""Metrics that clients push when a broker asks for them (KIP-714)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, field
from kafka.wire.types import Boolean, Bytes, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(
    Request["GetTelemetrySubscriptionsResponse"], api_key=71, versions=(0, 0), flexible=0
):
    """Ask what to push."""

    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions=(0, 0), flexible=0):
    """What, how often, and how compressed."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Boolean
    requested_metrics: list[String]


class PushTelemetryRequest(Request["PushTelemetryResponse"], api_key=72, versions=(0, 0), flexible=0):
    """Metrics in OpenTelemetry's encoding."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Boolean
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Response, api_key=72, versions=(0, 0), flexible=0):
    """The error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)

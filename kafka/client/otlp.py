"""Metrics in OpenTelemetry's encoding, as PushTelemetry carries them: ``MetricsData`` of its protobuf schemas.

Java makes each metric a ``ResourceMetrics`` of its own; here all share one, and the points of one name one metric,
which means the same and is shorter. Needs the extra ``telemetry`` (``opentelemetry-proto``), which is imported with the
first push: it costs some 30 ms. :func:`is_available` costs next to nothing.

Source: KIP-714; opentelemetry-proto, ``metrics/v1/metrics.proto``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kafka.metrics.telemetry import Point

_MODULE = "opentelemetry.proto.metrics.v1.metrics_pb2"


def is_available() -> bool:
    """Whether the library is installed."""
    try:
        return find_spec("opentelemetry.proto") is not None and find_spec("google.protobuf") is not None
    except ModuleNotFoundError:  # not even the package above
        return False


def encode(points: Sequence[Point], resource: Mapping[str, str]) -> bytes:
    """The bytes of one push. ``resource``: the attributes of the client, such as its group."""
    schema: Any = import_module(_MODULE)
    data = schema.MetricsData()
    of_client = data.resource_metrics.add()
    _add_attributes(of_client.resource.attributes, resource)
    metrics = of_client.scope_metrics.add().metrics
    by_name: dict[tuple[str, bool], Any] = {}
    for point in points:
        is_sum = point.start_ns is not None
        key = point.name, is_sum
        holder = by_name.get(key)
        if holder is None:
            metric = metrics.add()
            metric.name = point.name
            holder = by_name[key] = metric.sum if is_sum else metric.gauge
            if is_sum:
                holder.is_monotonic = True
                holder.aggregation_temporality = (
                    schema.AGGREGATION_TEMPORALITY_DELTA
                    if point.is_delta
                    else schema.AGGREGATION_TEMPORALITY_CUMULATIVE
                )
        told = holder.data_points.add()
        told.time_unix_nano = point.at_ns
        if point.start_ns is not None:
            told.start_time_unix_nano = point.start_ns
        told.as_double = float(point.value)
        _add_attributes(told.attributes, point.attributes)
    encoded: bytes = data.SerializeToString()
    return encoded


def _add_attributes(attributes: Any, given: Mapping[str, str]) -> None:
    for name, value in given.items():
        attribute = attributes.add()
        attribute.key = name
        attribute.value.string_value = str(value)

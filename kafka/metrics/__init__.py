"""Metrics: sampled numbers, and the names under which clients and reporters find them."""

from __future__ import annotations

from kafka.metrics.registry import (
    AbstractMetricsReporter,
    KafkaMetric,
    Measured,
    Measurements,
    MetricName,
    Metrics,
    Row,
)
from kafka.metrics.stats import Sampled

__all__ = [
    "AbstractMetricsReporter",
    "KafkaMetric",
    "Measured",
    "Measurements",
    "MetricName",
    "Metrics",
    "Row",
    "Sampled",
]

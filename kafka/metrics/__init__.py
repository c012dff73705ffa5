"""Metrics: sampled numbers, and the names under which clients and reporters find them."""

from __future__ import annotations

from kafka.metrics.measured import Measured, Measurements, Row
from kafka.metrics.registry import AbstractMetricsReporter, KafkaMetric, MetricName, Metrics
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

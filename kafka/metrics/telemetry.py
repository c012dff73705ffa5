"""Metrics as telemetry tells them (KIP-714): their names, and what was added since the last time.

    ``consumer-fetch-manager-metrics``, ``fetch-rate``   ->  ``org.apache.kafka.consumer.fetch.manager.fetch.rate``
    ``producer-node-metrics.node-1``, ``request-rate``   ->  ``org.apache.kafka.producer.node.request.rate``
                                                             with the attribute ``node_id``: ``node-1``
    tag ``topic-name``                                   ->  attribute ``topic_name``; ``client-id`` is left out,
                                                             since the broker knows it from the request

A metric that counts (``is_total``) becomes a monotonic sum, cumulative or as what was added since the last push; any
other a gauge. What has no number for a value is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Final, NamedTuple

from kafka.metrics.registry import KafkaMetric, MetricName

log = logging.getLogger(__name__)

PREFIX: Final = "org.apache.kafka."
CLIENT_ID: Final = "client_id"


class Point(NamedTuple):
    """One metric's value. ``start_ns``, ``at_ns``: since the epoch; a gauge has no start. ``is_delta``: of a sum."""

    name: str
    attributes: dict[str, str]
    value: float
    at_ns: int
    start_ns: int | None = None
    is_delta: bool = False


def telemetry_name(name: MetricName) -> tuple[str, dict[str, str]]:
    """The name of a metric, and its attributes."""
    group, _, node = name.group.partition(".")
    attributes = {tag.lower().replace("-", "_"): value for tag, value in name.tags.items()}
    if node:
        attributes["node_id"] = node
    attributes.pop(CLIENT_ID, None)
    cleaned = group.lower().replace("-", ".").replace(".metrics", "")
    return f"{PREFIX}{cleaned}.{name.name.lower().replace('-', '.')}", attributes


class Ledger:
    """What was told of each total the last time. One thread."""

    def __init__(self, now_ns: int) -> None:
        self._began_ns = now_ns
        self._last: dict[MetricName, tuple[float, int]] = {}
        """Value and when."""
        self._since: dict[MetricName, int] = {}
        """Since when a total is known."""
        self._was_delta: bool | None = None

    def collect(
        self, metrics: Iterable[KafkaMetric], wants: Callable[[str], bool], is_delta: bool, now_ns: int
    ) -> list[Point]:
        """The points of those metrics whose names are wanted. A metric that cannot be read is left out, and logged."""
        if self._was_delta is not None and self._was_delta != is_delta:
            self._last.clear()  # as in Java: the other way of telling begins anew
            self._since = {}
            self._began_ns = now_ns
        self._was_delta = is_delta
        points = []
        seen: set[MetricName] = set()
        for metric in metrics:
            name, attributes = telemetry_name(metric.metric_name)
            if not wants(name):
                continue
            try:
                value = metric.value()
                if not isfinite(value):
                    continue
            except Exception as error:
                log.warning("the metric %r cannot be read: %r", metric.metric_name, error)
                continue
            if metric.is_total:
                seen.add(metric.metric_name)
                points.append(self._sum(metric.metric_name, name, attributes, value, is_delta, now_ns))
            else:
                points.append(Point(name, attributes, value, now_ns))
        for gone in self._since.keys() - seen:
            self._last.pop(gone, None)
            del self._since[gone]
        return points

    def _sum(
        self, metric: MetricName, name: str, attributes: dict[str, str], value: float, is_delta: bool, now_ns: int
    ) -> Point:
        start_ns = self._since.setdefault(metric, self._began_ns)
        if is_delta:
            before, at_ns = self._last.get(metric, (0.0, start_ns))
            if value < before:  # another one of the same name
                before = 0.0
            self._last[metric] = (value, now_ns)
            return Point(name, attributes, value - before, now_ns, at_ns, is_delta=True)
        return Point(name, attributes, value, now_ns, start_ns)

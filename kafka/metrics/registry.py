"""Metrics by name, and reporters of them: what users of kafka-python's ``kafka.metrics`` see.

A metric is a name and a function that reads it now; nothing is kept here. Who measures is the client's own
(``kafka/producer/metrics.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

log = logging.getLogger(__name__)


class MetricName:
    """``name`` within ``group``, with tags. Equal and hashable by these three."""

    __slots__ = ("description", "group", "name", "tags")

    def __init__(
        self, name: str, group: str, description: str | None = None, tags: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.group = group
        self.description = description
        self.tags: dict[str, str] = dict(tags or {})

    def _key(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        return self.name, self.group, tuple(sorted(self.tags.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MetricName) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"MetricName(name={self.name!r}, group={self.group!r}, tags={self.tags!r})"


class KafkaMetric:
    """A metric: ``value()`` is its value now, which ``read()`` gives. ``is_total``: it counts something since the start
    and only grows, so that telemetry may tell of what was added since the last time (KIP-714)."""

    __slots__ = ("_read", "is_total", "metric_name")

    def __init__(self, metric_name: MetricName, read: Callable[[], float], is_total: bool = False) -> None:
        self.metric_name = metric_name
        self.is_total = is_total
        self._read = read

    def value(self, time_ms: int | None = None) -> float:
        """Now, whatever ``time_ms`` says; kafka-python takes one."""
        return self._read()

    def __repr__(self) -> str:
        return f"<KafkaMetric {self.metric_name!r} {self.value()}>"


class AbstractMetricsReporter:
    """Notified of each metric that is added or removed; reads their values when it likes. All of it may be left out."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        """Called first, with the client's settings but for passwords."""

    def init(self, metrics: list[KafkaMetric]) -> None:
        """Those that there are at the start."""

    def metric_change(self, metric: KafkaMetric) -> None:
        """There is one more."""

    def metric_removal(self, metric: KafkaMetric) -> None:
        """It is gone."""

    def close(self) -> None:
        """The client is closed."""


class Metrics:
    """The metrics of one client. An error of a reporter is logged and changes nothing else."""

    def __init__(self, reporters: Iterable[Any] = (), configs: Mapping[str, Any] | None = None) -> None:
        self.metrics: dict[MetricName, KafkaMetric] = {}
        self._reporters = [reporter() if isinstance(reporter, type) else reporter for reporter in reporters]
        for method, argument in (("configure", dict(configs or {})), ("init", [])):
            self._tell(method, argument)

    def add(self, name: MetricName, read: Callable[[], float], is_total: bool = False) -> None:
        """Have one more, in any thread."""
        metric = KafkaMetric(name, read, is_total)
        self.metrics[name] = metric
        self._tell("metric_change", metric)

    def remove(self, name: MetricName) -> None:
        """Have one less, in any thread; nothing for one that is not there."""
        metric = self.metrics.pop(name, None)
        if metric is not None:
            self._tell("metric_removal", metric)

    def close(self) -> None:
        """Tell the reporters that it is over. What was measured can still be read."""
        for metric in list(self.metrics.values()):
            self._tell("metric_removal", metric)
        self._tell("close")

    def by_group(self) -> dict[str, dict[str, float]]:
        """``{group: {name: value}}``."""
        found: dict[str, dict[str, float]] = {}
        for name, metric in list(self.metrics.items()):
            found.setdefault(name.group, {})[name.name] = metric.value()
        return found

    def _tell(self, method: str, *arguments: Any) -> None:
        for reporter in self._reporters:
            run = getattr(reporter, method, None)
            if run is None:
                continue
            try:
                run(*arguments)
            except Exception:
                log.exception("metrics reporter's %s raised; ignoring it", method)

"""Metrics by name, what users of kafka-python's ``kafka.metrics`` see, and the tables that they are made from.

A metric is a name and a function that reads its value now; no value is kept here. :class:`Metrics` has those of one
client and calls reporters. :class:`Measurements` makes metrics from a client's table of rows. A row is a name, a
quantity, and how that is read:

    rate, average, most    of what was recorded over the last windows (``stats.py``)
    frequency              how often something was recorded there, by the second
    total, count           the sum, or the number, of all that was recorded since the start
    gauge, counter         a number as it is now, from a function; a counter only grows

Each client's rows are its own (``kafka/client/metrics.py`` and the like); recording is done by their owners, in one
thread, and reading in any. :meth:`Measurements.measure` gives the quantities of a group of rows, to be recorded to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka.metrics.stats import Sampled

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
    and only grows, so that telemetry may send what was added since the last time (KIP-714)."""

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
    """Is called for the metrics of a client, which it may read at any time. Each method may be left out."""

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
            self._call_reporters(method, argument)

    def add(self, name: MetricName, read: Callable[[], float], is_total: bool = False) -> None:
        """Add a metric, in any thread."""
        metric = KafkaMetric(name, read, is_total)
        self.metrics[name] = metric
        self._call_reporters("metric_change", metric)

    def remove(self, name: MetricName) -> None:
        """Remove a metric, in any thread; nothing for an unknown one."""
        metric = self.metrics.pop(name, None)
        if metric is not None:
            self._call_reporters("metric_removal", metric)

    def close(self) -> None:
        """Close the reporters. The metrics can still be read."""
        for metric in list(self.metrics.values()):
            self._call_reporters("metric_removal", metric)
        self._call_reporters("close")

    def by_group(self) -> dict[str, dict[str, float]]:
        """``{group: {name: value}}``."""
        found: dict[str, dict[str, float]] = {}
        for name, metric in list(self.metrics.items()):
            found.setdefault(name.group, {})[name.name] = metric.value()
        return found

    def _call_reporters(self, method: str, *arguments: Any) -> None:
        for reporter in self._reporters:
            run = getattr(reporter, method, None)
            if run is None:
                continue
            try:
                run(*arguments)
            except Exception:
                log.exception("metrics reporter's %s raised; ignoring it", method)


Row = tuple[str, str, str]
"""Name, quantity, what is read of it."""

SECRETS: Final = ("password", "token", "ssl_context", "proxy")
"""Settings with one of these in their names are not given to reporters."""


class Measured(dict[str, Sampled]):
    """The quantities of one group of rows, by name; and the names of its metrics."""

    __slots__ = ("names",)

    def __init__(self) -> None:
        super().__init__()
        self.names: list[MetricName] = []


class Measurements:
    """The metrics of one client. ``settings`` are its resolved ones; ``clock`` is the loop's, in seconds."""

    def __init__(self, settings: Mapping[str, Any], clock: Callable[[], float]) -> None:
        shown = {name: value for name, value in settings.items() if not any(word in name for word in SECRETS)}
        self.registry = Metrics(settings["metric_reporters"], shown)
        self.tags: dict[str, str] = {"client-id": settings["client_id"] or ""}
        self.clock = clock
        self._samples: int = settings["metrics_num_samples"]
        self._window_s: float = settings["metrics_sample_window_ms"] / 1000

    def measure(
        self,
        group: str,
        rows: Iterable[Row],
        tags: Mapping[str, str] | None = None,
        gauges: Mapping[str, Callable[[], float]] | None = None,
    ) -> Measured:
        """Add the metrics of ``rows``, with ``tags`` beside the client's own. ``gauges``: quantity -> its function."""
        found = Measured()
        now = self.clock()
        all_tags = {**self.tags, **(tags or {})}
        for name, quantity, reading in rows:
            metric_name = MetricName(name, group, None, all_tags)
            read: Callable[[], float]
            if reading in ("gauge", "counter"):
                read = (gauges or {})[quantity]
            else:
                if quantity not in found:
                    found[quantity] = Sampled(self._samples, self._window_s, now)
                read = self._reader(found[quantity], READINGS[reading])
            self.registry.add(metric_name, read, reading in TOTALS)
            found.names.append(metric_name)
        return found

    def remove(self, measured: Measured) -> None:
        """Remove its metrics."""
        for name in measured.names:
            self.registry.remove(name)

    def raw(self) -> dict[MetricName, KafkaMetric]:
        """The metrics themselves, by name."""
        return dict(self.registry.metrics)

    def by_group(self) -> dict[str, dict[str, float]]:
        """``{group: {name: value}}``; what is tagged with a topic, or a partition, in a group of its own:
        ``GROUP.TOPIC``, ``GROUP.TOPIC-PARTITION``."""
        found: dict[str, dict[str, float]] = {}
        for name, metric in self.raw().items():
            group, topic, partition = name.group, name.tags.get("topic"), name.tags.get("partition")
            if topic is not None:
                group = f"{group}.{topic}" if partition is None else f"{group}.{topic}-{partition}"
            found.setdefault(group, {})[name.name] = metric.value()
        found["kafka-metrics-count"] = {"count": float(len(self.registry.metrics))}
        return found

    def close(self) -> None:
        """Close the reporters."""
        self.registry.close()

    def _reader(self, sampled: Sampled, read: Callable[[Sampled, float], float]) -> Callable[[], float]:
        clock = self.clock
        return lambda: read(sampled, clock())


def _total(sampled: Sampled, now: float) -> float:
    return sampled.total


def _count(sampled: Sampled, now: float) -> float:
    return float(sampled.count)


READINGS: Final[dict[str, Callable[[Sampled, float], float]]] = {
    "rate": Sampled.rate,
    "frequency": Sampled.frequency,
    "average": Sampled.average,
    "most": Sampled.most,
    "total": _total,
    "count": _count,
}
TOTALS: Final = frozenset({"total", "count", "counter"})

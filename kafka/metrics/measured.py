"""From rows to metrics: what a client measures is a table, and this makes the numbers behind it.

A row is a name, what is measured, and what is read of it:

    rate, average, most    of what was recorded over the last windows (``stats.py``)
    frequency              how often something was recorded there, by the second
    total, count           the sum, or the number, of all that was recorded since the start
    gauge, counter         a number as it is now, from a function; a counter is one that only grows

Each client's rows are its own (``kafka/consumer/metrics.py`` and the like); recording is done by their owners, in one
thread, and reading in any. :meth:`Measurements.measure` gives the quantities of a group of rows, to be recorded to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka.metrics.registry import KafkaMetric, MetricName, Metrics
from kafka.metrics.stats import Sampled

Row = tuple[str, str, str]
"""Name, quantity, what is read of it."""

SECRETS: Final = ("password", "token", "ssl_context", "proxy")
"""Settings with one of these in their names are not told to reporters."""


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
        """Have the metrics of ``rows``, with ``tags`` beside the client's own. ``gauges``: quantity -> its function."""
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

    def forget(self, measured: Measured) -> None:
        """Have its metrics no more."""
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
        """Tell the reporters that it is over."""
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

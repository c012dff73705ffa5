"""Numbers of a worker, and of an app's queues, as Prometheus's text, through its own client: the extra ``metrics``.

A collector of our own in a registry of our own: it reads the numbers when a scrape comes, and nothing is counted twice.
Another number is a row of :data:`FAMILIES`, which each worker serves, or of :data:`APP_FAMILIES`, which
``python -m kafka inspect --metrics-port`` serves for all of them. Children come and go, so no label names one: there
are sums, and a count for each state.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka.tasks.backends.base import QueueBacklog, ScheduleSnapshot
from kafka.tasks.errors import TaskError
from kafka.tasks.health.job_metrics import BUCKETS_S, Histogram, TaskMetrics
from kafka.tasks.health.queue_lengths import QueueLength
from kafka.tasks.health.snapshot import QueueJobs, WorkerSnapshot

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = logging.getLogger(__name__)

PREFIX: Final = "kafka_tasks_"

Samples = Iterable[tuple[tuple[str, ...], "float | Histogram | None"]]
"""Values of labels, and the number; None: not known, left out."""


class WorkerScrape(NamedTuple):
    """What a scrape of a worker reads: the worker, its counts of jobs, its queues as the brokers see them, and its
    part of the schedule (None: it never has one)."""

    worker: WorkerSnapshot
    tasks: Sequence[TaskMetrics] = ()
    backlogs: Sequence[QueueBacklog] = ()
    schedule: ScheduleSnapshot | None = None


class AppScrape(NamedTuple):
    """What a scrape of an app reads: its queues, and its workers by state."""

    queues: Sequence[QueueLength] = ()
    workers: Mapping[str, int] = {}


_POOL_GAUGES: Final = frozenset({"concurrency", "busy", "children"})
"""What goes down, too, of the pool's statistics; all others count for ever."""


_COUNTS_WITH_FAMILIES: Final = frozenset({"failed", "dead"})
"""Counts of jobs that have families of their own: what alarms look at."""


class MetricsMissing(TaskError):
    """The package that makes Prometheus's text is not installed."""


class Family(NamedTuple):
    """One row: name behind the prefix, its kind, the help text, the labels, and where its samples come from."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    samples: Callable[[Any], Samples]


def _of_worker(read: Callable[[WorkerSnapshot], float | None]) -> Callable[[WorkerScrape], Samples]:
    return lambda scrape: [((), read(scrape.worker))]


def _of_schedule(read: Callable[[ScheduleSnapshot], float]) -> Callable[[WorkerScrape], Samples]:
    return lambda scrape: [] if scrape.schedule is None else [((), read(scrape.schedule))]


def _by_name(read: Callable[[WorkerSnapshot], Mapping[str, int]]) -> Callable[[WorkerScrape], Samples]:
    return lambda scrape: [((name,), count) for name, count in sorted(read(scrape.worker).items())]


def _histogram(read: Callable[[TaskMetrics], Histogram]) -> Callable[[WorkerScrape], Samples]:
    return lambda scrape: [((each.queue, each.task), read(each)) for each in scrape.tasks]


def _endings(scrape: WorkerScrape) -> Samples:
    for task in scrape.tasks:
        yield from (((task.queue, task.task, ending), count) for ending, count in task.endings.items())


def _info(scrape: WorkerScrape) -> Samples:
    worker = scrape.worker
    return [((worker.app, worker.id, worker.host, worker.pool, worker.version, ",".join(worker.queues)), 1)]


def _held(scrape: WorkerScrape) -> Samples:
    for each in scrape.worker.queue_jobs:
        yield (each.queue, "running"), each.running


def _of_queues(read: Callable[[QueueJobs], float | None]) -> Callable[[WorkerScrape], Samples]:
    return lambda scrape: [((each.queue,), read(each)) for each in scrape.worker.queue_jobs]


def _queue_jobs(scrape: AppScrape) -> Samples:
    for each in scrape.queues:
        yield (each.queue, "available"), each.available
        yield (each.queue, "running"), each.running


def _children_rss(worker: WorkerSnapshot) -> float | None:
    sizes = [child.rss_bytes for child in worker.children if child.rss_bytes is not None]
    return sum(sizes) if sizes else None


FAMILIES: Final[tuple[Family, ...]] = (
    Family("worker", "info", "Who this worker is.", ("app", "worker", "host", "pool", "version", "queues"), _info),
    Family("ready", "gauge", "1 when jobs that come now would be begun.", (), _of_worker(lambda each: each.is_ready)),
    Family(
        "stage", "gauge", "1 for the stage that the worker is in.", ("stage",),
        lambda scrape: [((scrape.worker.stage,), 1)],
    ),
    Family("uptime_seconds", "gauge", "Time since the worker began.", (), _of_worker(lambda each: each.uptime_s)),
    Family(
        "broker_contact_age_seconds", "gauge", "Time since the brokers' last good answer.", (),
        _of_worker(lambda each: each.contact_age_s),
    ),
    Family("slots", "gauge", "Jobs that can run at once.", (), _of_worker(lambda each: each.concurrency)),
    Family("jobs_in_pool", "gauge", "Jobs that run, or are next in the pool.", (), _of_worker(lambda each: each.busy)),
    Family("jobs_held", "gauge", "Jobs leased and not settled.", (), _of_worker(lambda each: each.held)),
    Family(
        "jobs", "counter", "Jobs by what became of them here.", ("event",),
        _by_name(lambda each: {name: n for name, n in each.counts.items() if name not in _COUNTS_WITH_FAMILIES}),
    ),
    Family(
        "jobs_failed", "counter", "Runs that ended with an error, at a limit, or with their process.", (),
        _of_worker(lambda each: each.counts.get("failed")),
    ),
    Family(
        "jobs_dead", "counter", "Jobs put into a dead topic: they have failed for good.", (),
        _of_worker(lambda each: each.counts.get("dead")),
    ),
    Family(
        "queue_held_jobs", "gauge", "Jobs that this worker runs or settles.", ("queue", "state"), _held,
    ),
    Family(
        "queue_full_partitions", "gauge",
        "Partitions of this worker that take no more jobs until long ones end; with consumer groups.", ("queue",),
        _of_queues(lambda each: each.full_partitions),
    ),
    Family(
        "queue_metadata_characters", "gauge",
        "Offset metadata of that partition of this worker which uses most of 4,000; with consumer groups.", ("queue",),
        _of_queues(lambda each: each.metadata_characters),
    ),
    Family(
        "queue_unfinished_jobs", "gauge", "Jobs of the queue that have not ended: the same from each worker.",
        ("queue",), lambda scrape: [((each.queue,), each.unfinished) for each in scrape.backlogs],
    ),
    Family(
        "queue_dead_jobs", "gauge", "Records in the queue's dead topic: the same from each worker.", ("queue",),
        lambda scrape: [((each.queue,), each.dead) for each in scrape.backlogs],
    ),
    Family(
        "job_outcomes", "counter", "Jobs by queue, task and how they ended, or that they run again.",
        ("queue", "task", "outcome"), _endings,
    ),
    Family(
        "job_wait_seconds", "histogram", "From the enqueue of a job to the start of its first run.", ("queue", "task"),
        _histogram(lambda each: each.wait),
    ),
    Family(
        "job_run_seconds", "histogram", "How long runs took, well or not.", ("queue", "task"),
        _histogram(lambda each: each.run),
    ),
    Family(
        "pool_events", "counter", "What the pool has counted.", ("event",),
        _by_name(lambda each: {name: n for name, n in each.pool_counts.items() if name not in _POOL_GAUGES}),
    ),
    Family("jobs_lost", "counter", "Jobs lost with their child process.", ("cause",), _by_name(lambda each: each.lost)),
    Family(
        "children", "gauge", "Child processes by state.", ("state",),
        _by_name(lambda each: Counter(child.state for child in each.children)),
    ),
    Family("children_rss_bytes", "gauge", "Resident memory of all children.", (), _of_worker(_children_rss)),
    Family(
        "oldest_job_seconds", "gauge", "Age of the job that has run for longest; 0 when none runs.", (),
        _of_worker(lambda each: max((job.age_s for job in each.running), default=0.0)),
    ),
    Family(
        "schedule_partitions", "gauge", "Partitions of the schedule that this worker owns.", (),
        _of_schedule(lambda each: len(each.partitions)),
    ),
    Family(
        "schedule_jobs", "gauge", "Jobs that wait in these partitions, and those moved in the last ten minutes.",
        (), _of_schedule(lambda each: each.jobs),
    ),
    Family(
        "schedule_jobs_moved", "counter", "Jobs that were due, written to their queues by this worker.", (),
        _of_schedule(lambda each: each.moved),
    ),
    Family(
        "schedule_late_seconds", "gauge", "How late the latest of its jobs is, or was when it was moved.", (),
        _of_schedule(lambda each: each.late_s),
    ),
)  # fmt: skip


APP_FAMILIES: Final[tuple[Family, ...]] = (
    Family(
        "queue_jobs", "gauge", "Jobs of the queue by state: available, running.", ("queue", "state"),
        _queue_jobs,
    ),
    Family(
        "queue_dead_jobs", "gauge", "Records in the queue's dead topic.", ("queue",),
        lambda scrape: [((each.queue,), each.dead) for each in scrape.queues],
    ),
    Family(
        "queue_paused", "gauge", "1 while the queue is paused, else 0.", ("queue",),
        lambda scrape: [((each.queue,), each.paused) for each in scrape.queues],
    ),
    Family(
        "workers", "gauge", "Workers of the app by state: ready, unready, silent.", ("state",),
        lambda scrape: [((state,), count) for state, count in scrape.workers.items()],
    ),
)  # fmt: skip


class MetricsText:
    """Prometheus's text of some families; ``read`` is called for each scrape, and its result given to each family.
    :class:`MetricsMissing` without the extra.

    The process's own numbers (memory, CPU, descriptors) are there, too, where the system has ``/proc``.
    """

    def __init__(self, families: Sequence[Family], read: Callable[[], Any]) -> None:
        try:
            from prometheus_client import CollectorRegistry, ProcessCollector, exposition
        except ImportError as error:
            raise MetricsMissing(
                f"Prometheus's client is not installed ({error}): pip install 'kafka-taskloop[metrics]'"
            ) from None
        self._families = families
        self._read = read
        self._exposition: Any = exposition
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def text(self, accept: str) -> tuple[str, bytes]:
        """Content type and body in the format that an ``Accept`` header asks for."""
        try:
            encoder, content_type = self._exposition.choose_encoder(accept)
            return content_type, encoder(self._registry)
        except Exception as error:  # a version that is none, say, which the client compares all the same
            log.debug("unsupported Accept header %s (%r), using the plain text format", accept, error)
            encoder, content_type = self._exposition.choose_encoder("")
            return content_type, encoder(self._registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        kinds: dict[str, Any] = {
            "counter": CounterMetricFamily,
            "gauge": GaugeMetricFamily,
            "histogram": HistogramMetricFamily,
            "info": InfoMetricFamily,
        }
        scrape = self._read()
        for name, kind, text, labels, samples in self._families:
            family = kinds[kind](PREFIX + name, text, labels=labels if kind != "info" else ())
            for values, number in samples(scrape):
                if kind == "info":
                    family.add_metric((), dict(zip(labels, values, strict=True)))
                elif isinstance(number, Histogram):
                    family.add_metric(values, _buckets(number), number.total_s)
                elif number is not None:
                    family.add_metric(values, float(number))
            yield family


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    """Upper bounds and cumulative counts, as Prometheus has them."""
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))

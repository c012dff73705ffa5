"""What a worker reports about itself: to probes, to Prometheus, and to ``python -m kafka inspect``.

    checks.py      is it ready, and if not, why: pure decisions
    snapshot.py    a worker at one instant, and as JSON
    http.py        bytes -> request, answer -> bytes: pure
    server.py      connections of HTTP clients, bounded in number, size and time, on the worker's loop
    job_metrics.py counts and histograms of jobs by task; the only part that adds for each job, where metrics are served
    metrics.py     all that as Prometheus's text; needs the extra ``metrics``
    outage.py      no broker is reachable: what is logged
    monitor.py     all of it for one worker: reads the worker, answers, publishes snapshots every few seconds
    queue_lengths.py  jobs of a queue that are available, or run: the brokers' backlog and the snapshots
    exporter.py    these served to Prometheus by a process that is no worker
    directory.py   the reader: the snapshots of all of an app's workers, and its queues: lengths, delivery

What a probe, a scrape or a snapshot needs is read when it is asked for, from numbers that the worker, its pool and its
delivery keep anyway. Another path to answer is a row of ``monitor.PATHS``, another number a field of the snapshot and a
row of ``metrics.FAMILIES``. How snapshots travel is the back end's affair
(:class:`kafka.tasks.backends.base.SnapshotPublisher`).
"""

from __future__ import annotations

from kafka.tasks.backends.base import QueueDelivery
from kafka.tasks.health.directory import Directory, Seen
from kafka.tasks.health.exporter import QueueExporter
from kafka.tasks.health.job_metrics import JobMetrics
from kafka.tasks.health.monitor import Monitor
from kafka.tasks.health.queue_lengths import QueueLength
from kafka.tasks.health.server import parse_address
from kafka.tasks.health.snapshot import QueueJobs, RunningJob, WorkerSnapshot
from kafka.tasks.pools.base import ChildSnapshot

__all__ = [
    "ChildSnapshot",
    "Directory",
    "JobMetrics",
    "Monitor",
    "QueueDelivery",
    "QueueExporter",
    "QueueJobs",
    "QueueLength",
    "RunningJob",
    "Seen",
    "WorkerSnapshot",
    "parse_address",
]

"""One worker watched from inside: its state for probes and scrapes, its snapshot published every few seconds, and a
line in the log when no broker can be reached (:mod:`kafka.tasks.health.outage`).

It reads the worker, the pool and the delivery when it is asked and writes to none of them. It is made before there is a
pool or a connection, so that probes are answered while children still import the tasks::

    Monitor --listen()--> "starting" --start(worker, side)--> answers what is so, publishes --close()--> has left

On the worker's loop. A pool that runs jobs on that very loop (``inline``) answers no request while a job runs.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from http import HTTPStatus
from typing import Any, Final, Protocol

from kafka import __version__
from kafka.log_limit import LimitedLog
from kafka.net.loop import Loop
from kafka.net.transport import Address, Network
from kafka.tasks.backends.base import (
    BacklogCallback,
    QueueBacklog,
    ScheduleMember,
    SnapshotPublisher,
    WorkerBackend,
)
from kafka.tasks.delivery.base import BrokerContact, MetadataUse
from kafka.tasks.health.checks import STARTING, Condition, contact_age_s, reasons_not_ready
from kafka.tasks.health.http import HttpRequest, HttpResponse
from kafka.tasks.health.job_metrics import TaskMetrics
from kafka.tasks.health.metrics import FAMILIES, MetricsMissing, MetricsText, WorkerScrape
from kafka.tasks.health.outage import CHECK_S, BrokerOutage
from kafka.tasks.health.server import HealthServer, parse_address
from kafka.tasks.health.snapshot import QueueJobs, RunningJob, WorkerSnapshot, to_json
from kafka.tasks.pools.base import ChildSnapshot, Pool
from kafka.tasks.pools.parent.memory import sample_process
from kafka.tasks.pools.runner import Job

log = logging.getLogger(__name__)

PUBLISH_S: Final = 5.0
"""Between snapshots."""
FIRST_PUBLISH_S: Final = 1.0
"""Until the first one: a worker that is gone by then needs no topic, and the worker's own beginnings come first."""
LEAVE_S: Final = 1.0
"""How long a stopping worker waits for its last snapshot."""
BACKLOG_S: Final = 10.0
"""Between questions to the brokers about the lengths of queues, give or take a fifth; while metrics are served."""
MOST_RUNNING: Final = 1000

_POOL = "pool_"
"""What :meth:`kafka.tasks.worker.worker.Worker.statistics` puts in front of the pool's own counts."""


class MonitoredWorker(Protocol):
    """What is read of a :class:`kafka.tasks.worker.worker.Worker`."""

    @property
    def stage(self) -> IntEnum:
        """How far its stop has come."""

    @property
    def pool(self) -> Pool:
        """Where its jobs run."""

    def contacts(self) -> list[BrokerContact]:
        """When the brokers last answered."""

    def metadata_use(self) -> list[MetadataUse]:
        """Of the queues that are delivered by consumer groups."""

    def statistics(self) -> dict[str, int]:
        """Its counts and the pool's, which begin with ``pool_``; and ``held``."""

    def running(self) -> list[Job]:
        """The jobs that are with the pool."""

    def count_by_queue(self) -> dict[str, int]:
        """Of each queue: how many jobs run or are being settled."""


class Monitor:
    """See the module. ``queues`` are those that it works on, ``pool`` is the name of its pool, ``tasks`` are its counts
    of jobs, which are read for each scrape."""

    def __init__(
        self,
        app: str,
        queues: Sequence[str],
        pool: str,
        loop: Any,
        tasks: Iterable[TaskMetrics] = (),
    ) -> None:
        """Reads and writes nothing yet: probes say "starting" until :meth:`start`."""
        host = socket.gethostname()
        self.worker_id = f"{host}:{os.getpid()}:{secrets.token_hex(3)}"
        self._app = app
        self._host = host
        self._queues = tuple(queues)
        self._pool_name = pool
        self._tasks = tasks
        self._loop: Loop = loop
        self._started_ms = int(time.time() * 1000)
        self._started_at = self._loop.time()
        self._worker: MonitoredWorker | None = None
        self._snapshots: SnapshotPublisher | None = None
        self._schedule: ScheduleMember | None = None
        self._server: HealthServer | None = None
        self._metrics: MetricsText | str = "not listening"
        self._timer: Any = None
        self._limited_log = LimitedLog(log, most=1, every_s=600.0, clock=self._loop.time)
        self._outage = BrokerOutage()
        self._outage_timer: Any = None
        self._has_published = False
        self._backlogs: Sequence[QueueBacklog] = ()
        self._backlog_timer: Any = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def listen(self, address: str, network: Network | None = None) -> Address:
        """Answer probes and scrapes at PORT or HOST:PORT; where that is, with port 0 one that was free.

        :class:`kafka.errors.IllegalArgumentError` for what is no address, OSError for one that cannot be had.
        """
        host_port = parse_address(address)
        try:
            self._metrics = MetricsText(FAMILIES, self._scrape)
        except MetricsMissing as missing:
            self._metrics = str(missing)
            log.warning("/metrics is disabled: %s", missing)
        self._server = HealthServer(self._loop, host_port, self._answer, network)
        log.info("health server listening at http://%s%s", self._server.address, ", ".join(PATHS))
        return self._server.address

    def start(self, worker: MonitoredWorker, backend: WorkerBackend) -> None:
        """There is the worker, which has its connection."""
        self._worker = worker
        self._snapshots = backend.snapshots
        self._schedule = backend.schedule
        if backend.snapshots is not None:
            self._timer = self._loop.call_later(FIRST_PUBLISH_S, self._publish_snapshot, backend.snapshots)
        self._check_brokers(worker, backend.connect_error)
        if backend.measure_backlogs is not None and isinstance(self._metrics, MetricsText):
            self._measure_backlogs_later(FIRST_PUBLISH_S, backend.measure_backlogs)

    def close(self) -> None:
        """The worker has left. May drive the loop for a moment: the last snapshot says that it has stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._outage_timer is not None:
            self._outage_timer.cancel()
            self._outage_timer = None
        if self._backlog_timer is not None:
            self._backlog_timer.cancel()
            self._backlog_timer = None
        if self._server is not None:
            self._server.close()
            self._server = None
        self._worker = self._schedule = None
        if self._snapshots is not None:
            if self._has_published:
                self._snapshots.publish(self.worker_id, None)
            self._snapshots.close(LEAVE_S)
            self._snapshots = None

    def _publish_snapshot(self, snapshots: SnapshotPublisher) -> None:
        self._timer = self._loop.call_later(PUBLISH_S, self._publish_snapshot, snapshots)
        self._has_published = True
        snapshots.publish(self.worker_id, to_json(self.snapshot()))

    def _check_brokers(self, worker: MonitoredWorker, connect_error: Callable[[], str | None]) -> None:
        self._outage_timer = self._loop.call_later(CHECK_S, self._check_brokers, worker, connect_error)
        self._outage.check(self._loop.time(), worker.contacts(), connect_error())

    def _measure_backlogs_later(self, pause_s: float, measure: Callable[[BacklogCallback], object]) -> None:
        """Ask the brokers after the pause, and again some seconds after their answer: one request at a time. Workers
        that were started together ask at different times."""

        def answer(found: list[QueueBacklog] | BaseException) -> None:
            if self._worker is None:
                return  # it has left meanwhile
            if isinstance(found, BaseException):
                self._limited_log.warning("", "the lengths of the queues are not in /metrics for now: %s", found)
                found = []  # rather none than old ones: an autoscaler would act on them
            self._backlogs = found
            self._measure_backlogs_later(BACKLOG_S, measure)

        self._backlog_timer = self._loop.call_later(pause_s * random.uniform(0.8, 1.2), measure, answer)

    # -- state --------------------------------------------------------------------------------------------------------

    def reasons(self) -> list[str]:
        """Why the worker is not ready; empty when it is."""
        worker, now = self._worker, self._loop.time()
        if worker is None:
            return reasons_not_ready(Condition(STARTING, False, None, (), now))
        pool = worker.pool
        return reasons_not_ready(Condition(worker.stage.name, pool.ready, pool.degraded, worker.contacts(), now))

    def snapshot(self) -> WorkerSnapshot:
        """The worker now."""
        worker, now = self._worker, self._loop.time()
        own_fields: dict[str, Any] = {
            "id": self.worker_id,
            "app": self._app,
            "host": self._host,
            "pid": os.getpid(),
            "queues": self._queues,
            "pool": self._pool_name,
            "stage": self._stage(),
            "reasons": tuple(self.reasons()),
            "version": __version__,
            "started_ms": self._started_ms,
            "uptime_s": max(0.0, now - self._started_at),
            "rss_bytes": None if (seen := sample_process(os.getpid())) is None else seen.rss_bytes,
        }
        if worker is None:
            return WorkerSnapshot(**own_fields)
        pool, counts = worker.pool, dict(worker.statistics())
        held = counts.pop("held", 0)
        pool_counts = {name.removeprefix(_POOL): counts.pop(name) for name in list(counts) if name.startswith(_POOL)}
        children, running_by_queue = pool.children(), worker.count_by_queue()
        uses = {queue: rest for queue, *rest in worker.metadata_use()}
        return WorkerSnapshot(
            **own_fields,
            concurrency=pool.concurrency,
            busy=pool.busy,
            held=held,
            contact_age_s=contact_age_s(worker.contacts(), now),
            counts=counts,
            pool_counts=pool_counts,
            lost=dict(pool.lost_by_cause()),
            queue_jobs=tuple(
                QueueJobs(queue, running_by_queue.get(queue, 0), *uses.get(queue, ())) for queue in self._queues
            ),
            children=tuple(children),
            running=tuple(_running(children, worker.running() if not children else (), now)),
        )

    def _scrape(self) -> WorkerScrape:
        schedule = None if self._schedule is None else self._schedule.snapshot()
        return WorkerScrape(self.snapshot(), list(self._tasks), self._backlogs, schedule)

    def _stage(self) -> str:
        return STARTING if self._worker is None else self._worker.stage.name

    # -- requests -----------------------------------------------------------------------------------------------------

    def _answer(self, request: HttpRequest) -> HttpResponse:
        serve = PATHS.get(request.path)
        if serve is None:
            return HttpResponse(HTTPStatus.NOT_FOUND, f"here are {', '.join(PATHS)}\n".encode())
        return serve(self, request)

    def _healthz(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, f"ok: {self._stage()}\n".encode())

    def _readyz(self, request: HttpRequest) -> HttpResponse:
        reasons = self.reasons()
        if not reasons:
            return HttpResponse(HTTPStatus.OK, b"ready\n")
        return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, "".join(f"{reason}\n" for reason in reasons).encode())

    def _metrics_text(self, request: HttpRequest) -> HttpResponse:
        if isinstance(self._metrics, str):
            return HttpResponse(HTTPStatus.NOT_IMPLEMENTED, f"{self._metrics}\n".encode())
        content_type, body = self._metrics.text(request.headers.get("accept", ""))
        return HttpResponse(HTTPStatus.OK, body, content_type)


PATHS: Final[dict[str, Callable[[Monitor, HttpRequest], HttpResponse]]] = {
    "/healthz": Monitor._healthz,
    "/readyz": Monitor._readyz,
    "/metrics": Monitor._metrics_text,
}
"""Path -> what answers it."""


def _running(children: Sequence[ChildSnapshot], jobs: Sequence[Job], now: float) -> list[RunningJob]:
    """The jobs that run: those of the children, or where there are none those that the pool has begun."""
    running = [
        RunningJob(child.job_id, child.job_name or "", child.age_s or 0.0, child.rss_bytes, child.pid)
        for child in children
        if child.job_id is not None
    ]
    running += [
        RunningJob(job.envelope.id, job.envelope.name, max(0.0, now - job.started_at))
        for job in jobs
        if job.started_at is not None
    ]
    return running[:MOST_RUNNING]

"""Pools: how fast those with processes drain no-op jobs, how soon a job starts in a child, what an idle worker costs.

Methods. *Drain*: as in ``test_queue.py``, which has the pool ``threads``; with a caller that sleeps, and one that reads
all results as they come (``prefork`` only). ``fork`` gets a twentieth of the jobs. CPU for a job is that of the worker
and all processes below it, with the worker's start and end, and from the first result to the last.
*Beside it*, Celery's prefork with two children, in the same run (``redis_peers.py``). *Hand-out to start*: from
``submit`` of a pool without a broker to the first line of the task, one job at a time. *Idle*: proportional set size
and CPU of a worker with two children.

``KAFKA_BENCH_JOBS`` is how many no-op jobs there are (default 50,000).
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import uuid

import pytest

from kafka.tasks import PoolSettings
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.payload import decode_value, encode_call
from kafka.tasks.pools import Pool, make_pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import JobSucceeded, Outcome
from test.benchmarks.jobs import NAME_VARIABLE, make_app, worker_command
from test.benchmarks.places import FORK, JOBS, PATIENCE_S, PREFORK, Place, cpu_of, measure_drain
from test.benchmarks.processes import running
from test.benchmarks.redis_peers import Peer, celery_drain
from test.benchmarks.report import Measure, Report, percentile
from test.support.peers import foreign_environment
from test.support.process_table import children_of, memory_of
from test.support.waiting import until

pytestmark = pytest.mark.timeout(1800)

SINGLES = 500
IDLE_S = 10.0
MIB = 1 << 20

START_P50 = Measure("hand-out to start, p50", "ms", "1")
START_P99 = Measure("hand-out to start, p99", "ms")
IDLE_PSS = Measure("idle worker with 2 children, PSS", "MB", "60")
IDLE_CPU = Measure("idle worker with 2 children, CPU", "%", "1")
PEER_DRAIN = Measure("drain, Celery's prefork of 2", "jobs/s")


@pytest.fixture(scope="module")
def celery(tmp_path_factory: pytest.TempPathFactory, queue_figures: Report) -> Peer | None:
    """What Celery drains; None where it cannot be had."""
    peer = celery_drain(tmp_path_factory.mktemp("celery"), JOBS)
    if peer is not None:
        queue_figures.add(PEER_DRAIN, peer.column, peer.rate)
    return peer


@pytest.mark.parametrize("how", ["stored", "read"])
def test_prefork_drains(how: str, place: Place, queue_figures: Report, celery: Peer | None) -> None:
    measure_drain(PREFORK, how, place, queue_figures, celery)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_fork_drains(place: Place, queue_figures: Report) -> None:
    measure_drain(FORK, "stored", place, queue_figures)


def test_an_idle_worker(place: Place, queue_figures: Report) -> None:
    installed = place.installed
    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", place.bootstrap)
    command = worker_command(str(installed.python), "bench_jobs:app", place.bootstrap, PREFORK.flags)
    environment = {**foreign_environment(), NAME_VARIABLE: app.name}
    with (
        contextlib.closing(app),
        running(command, installed.folder, installed.folder / "log", environment) as worker,
    ):
        for job in [app.tasks["noop"].delay(number) for number in range(100)]:
            job.result(PATIENCE_S)
        pids = [worker.pid, *(each.pid for each in children_of(worker.pid))]
        before, began = cpu_of(pids), time.monotonic()
        time.sleep(IDLE_S)
        queue_figures.add(IDLE_CPU, place.name, (cpu_of(pids) - before) / (time.monotonic() - began) * 100)
        queue_figures.add(IDLE_PSS, place.name, sum(memory_of(pid, "Pss") for pid in pids) / MIB)


def _is_up(pool: Pool) -> bool:
    return bool(pool.free_slots or pool.finished(0.1))


def _next_outcome(pool: Pool) -> Outcome:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for _, outcome in pool.finished(1.0):
            return outcome
    raise AssertionError("the job does not end")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_hand_out_to_start(figures: Report) -> None:
    app = make_app("bench")
    task = app.tasks["waited"]
    for name in ("prefork", "fork", "threads"):
        pool = make_pool(name, PoolSettings(concurrency=2, app=app), lambda: None)
        times_ms = []
        try:
            until(functools.partial(_is_up, pool), "a child is up", within_s=PATIENCE_S)
            for number in range(SINGLES):
                value = encode_call("waited", (time.monotonic(),), {})
                envelope = Envelope(f"{number:032x}", "waited", value)
                pool.submit(Job(JobLease(JobSource("bench", "bench"), value, [], 1), envelope, task))
                outcome = _next_outcome(pool)
                assert isinstance(outcome, JobSucceeded), outcome
                times_ms.append(decode_value(outcome.value) * 1000)
        finally:
            pool.stop(1.0)
        figures.add(START_P50, name, percentile(times_ms, 50))
        figures.add(START_P99, name, percentile(times_ms, 99))

"""The task queue: how fast jobs go in, how fast they come out, how long one waits.

Methods. *Enqueue*: from the first ``delay()`` to the end of ``flush()``, all acknowledged, no worker running.
*Drain*: these jobs, from the start of one worker process (its interpreter, connections and group included) until every
SUCCESS record has been read back here; and the same from the first result on. *Delay to start*: one job each 5 ms on
an idle queue, from the call of ``delay()`` to the first line of the task.

``KAFKA_BENCH_JOBS`` is how many no-op jobs there are (default 50,000).
"""

from __future__ import annotations

import os
import resource
import time

import pytest

from kafka.tasks import App, JobState
from test.benchmarks.conftest import Broker, StartWorker
from test.benchmarks.drain import wait_for_any
from test.benchmarks.report import Measure, Report, percentile

pytestmark = pytest.mark.timeout(600)

JOBS = int(os.environ.get("KAFKA_BENCH_JOBS", "50000"))
SINGLES = 400
WARM_UP = 100
APART_S = 0.005
PATIENCE_S = 60.0

ENQUEUE = Measure("enqueue", "jobs/s", "20,000")
ENQUEUE_CPU = Measure("  CPU of the caller", "µs/job")
DRAIN = Measure("drain, one threads worker", "jobs/s", "5,000")
DRAIN_STEADY = Measure("  from the first result on", "jobs/s")
DRAIN_CPU = Measure("  CPU of the worker", "µs/job")
START_P50 = Measure("delay to start, p50", "ms", "10")
START_P99 = Measure("delay to start, p99", "ms")


def cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def test_no_op_jobs_go_in_and_come_out(app: App, broker: Broker, start_worker: StartWorker, report: Report) -> None:
    noop = app.tasks["noop"]
    noop.delay(-1)  # connects, makes the topics
    app.flush(30)

    began, cpu = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
    jobs = [noop.delay(number) for number in range(JOBS)]
    app.flush(PATIENCE_S)
    report.add(ENQUEUE, broker.name, JOBS / (time.perf_counter() - began))
    report.add(ENQUEUE_CPU, broker.name, (cpu_s(resource.RUSAGE_SELF) - cpu) / JOBS * 1e6)

    cpu = cpu_s(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with start_worker() as worker:

        def check() -> None:
            assert worker.poll() is None, "the worker has ended by itself"
            assert time.perf_counter() < began + PATIENCE_S, "no job ends"

        first = wait_for_any(jobs, check)
        for job in reversed(jobs):
            assert job.wait(PATIENCE_S)
        ended = time.perf_counter()
    assert all(job.status() is JobState.SUCCESS for job in jobs)
    report.add(DRAIN, broker.name, JOBS / (ended - began))
    report.add(DRAIN_STEADY, broker.name, JOBS / (ended - first))
    report.add(DRAIN_CPU, broker.name, (cpu_s(resource.RUSAGE_CHILDREN) - cpu) / JOBS * 1e6)


def test_a_job_on_an_idle_queue_starts_soon(
    app: App, broker: Broker, start_worker: StartWorker, report: Report
) -> None:
    waited = app.tasks["waited"]
    with start_worker():
        for _ in range(WARM_UP):
            waited.delay(time.monotonic()).result(PATIENCE_S)
        jobs = []
        for _ in range(SINGLES):
            jobs.append(waited.delay(time.monotonic()))
            time.sleep(APART_S)
        times_ms = [job.result(PATIENCE_S) * 1000 for job in jobs]
    report.add(START_P50, broker.name, percentile(times_ms, 50))
    report.add(START_P99, broker.name, percentile(times_ms, 99))

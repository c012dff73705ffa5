"""The task queue: how fast jobs go in, how fast threads get them out, how long one takes.

Methods. Worker, caller and, where it is the embedded one, the broker are this project installed from the tree, in plain
Python and compiled. *Enqueue*: from the first ``delay()`` to the end of ``flush()``, all acknowledged, no worker
running; the best of two runs. *Drain*: these jobs, from the start of one worker process (its interpreter, connections
and group included) until every SUCCESS record is acknowledged by the broker, the caller asleep, and then read back
(*stored*); and until a caller that reads meanwhile has all (*read*); each also from the first result on (``drain.py``).
Apache Kafka has had a drain of six times as many jobs before, since half of what it takes for the first ones is its
just-in-time compiler's. *Delay to start* and *to result*: one job each 5 ms on an idle queue, from the call of
``delay()`` to the first line of the task, and to the moment a waiting thread has the result (``latency.py``). *Beside
them*, in the same run: what Dramatiq enqueues, and what taskiq drains with two processes (``redis_peers.py``).

``KAFKA_BENCH_JOBS`` is how many no-op jobs there are (default 50,000).
"""

from __future__ import annotations

import pytest

from test.benchmarks.places import JOBS, THREADS, Place, goals, note_drain
from test.benchmarks.redis_peers import Peer, dramatiq_enqueue, taskiq_drain
from test.benchmarks.report import Measure, Report, percentile

pytestmark = pytest.mark.timeout(1800)

SINGLES = 400

ENQUEUE = Measure("enqueue", "jobs/s", goals({"plain": "60,000", "compiled": "100,000"}))
ENQUEUE_TO_PEER = Measure("enqueue, to Dramatiq's", "times", "25")
ENQUEUE_CPU = Measure("enqueue, CPU of the caller", "µs/job")
PEER_DRAIN = Measure("drain, taskiq's two processes", "jobs/s")
LATENCIES = {"start_ms": ("delay to start", "3"), "result_ms": ("delay to result", "6")}


@pytest.fixture(scope="module")
def dramatiq(tmp_path_factory: pytest.TempPathFactory, queue_figures: Report) -> Peer | None:
    """What Dramatiq enqueues; None where it cannot be had."""
    peer = dramatiq_enqueue(tmp_path_factory.mktemp("dramatiq"), JOBS)
    if peer is not None:
        queue_figures.add(ENQUEUE, peer.column, peer.rate)
    return peer


@pytest.fixture(scope="module")
def taskiq(tmp_path_factory: pytest.TempPathFactory, queue_figures: Report) -> Peer | None:
    """What taskiq drains; None where it cannot be had."""
    peer = taskiq_drain(tmp_path_factory.mktemp("taskiq"), JOBS)
    if peer is not None:
        queue_figures.add(PEER_DRAIN, peer.column, peer.rate)
    return peer


def test_no_op_jobs_go_in_and_come_out(
    place: Place, queue_figures: Report, dramatiq: Peer | None, taskiq: Peer | None
) -> None:
    runs = {how: place.drain(THREADS.jobs, how, THREADS.flags) for how in ("stored", "read")}
    best = min(runs.values(), key=lambda run: run["enqueue_s"])
    rate = best["enqueued_jobs"] / best["enqueue_s"]
    queue_figures.add(ENQUEUE, place.name, rate)
    if dramatiq is not None:
        queue_figures.add(ENQUEUE_TO_PEER, place.name, rate / dramatiq.rate)
    queue_figures.add(ENQUEUE_CPU, place.name, best["enqueue_cpu_s"] / best["enqueued_jobs"] * 1e6)
    for how, found in runs.items():
        note_drain(THREADS, how, found, place, queue_figures, taskiq)


def test_a_job_on_an_idle_queue_takes_little_time(place: Place, queue_figures: Report) -> None:
    times = place.run("latency.py", str(SINGLES), *THREADS.flags)
    for what, (title, goal) in LATENCIES.items():
        queue_figures.add(Measure(f"{title}, p50", "ms", goal), place.name, percentile(times[what], 50))
        queue_figures.add(Measure(f"{title}, p99", "ms"), place.name, percentile(times[what], 99))

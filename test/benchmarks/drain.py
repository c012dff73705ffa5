"""The caller of a drain: enqueues no-op jobs, starts one worker, waits for all results, and prints what it took.

``python drain.py BOOTSTRAP COUNT HOW [FLAG ...]`` runs in a folder with ``bench_jobs.py`` and in the Python that is
measured, so that caller and worker are of one installation. HOW: ``stored``, and the caller sleeps until the topic of
results is as long as there are jobs (as other task queues are measured, whose callers wait for the last job to run; the
results are read and looked at afterwards), or ``read``, and it reads all results meanwhile. It prints one line of JSON:

* of enqueueing, from the first ``delay()`` to the end of ``flush()``: jobs, seconds, CPU seconds of this process
* of the drain: the jobs and the seconds from the worker's start to the last result, and from the first one on; CPU
  seconds of the worker with its children, until its end, and from the first result to the last; of the caller meanwhile
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.tasks import App, JobHandle, JobState

PATIENCE_S = 120.0
LOOK_S = 0.05
OF_THE_WORKER = 1
"""Records that a worker writes to the topic of results before it leases: it learns the broker's time by that."""


class Mark(NamedTuple):
    """An instant, how many jobs had ended by then, and the CPU seconds that the worker had used."""

    at: float
    jobs: int
    cpu_s: float


class Watch:
    """A worker that drains."""

    def __init__(self, worker: subprocess.Popen[bytes], began: float) -> None:
        self._worker = worker
        self._give_up_at = began + PATIENCE_S

    def check(self) -> None:
        """Whether there is still something to wait for."""
        assert self._worker.poll() is None, "the worker has ended by itself"
        assert time.perf_counter() < self._give_up_at, "the jobs do not end"

    def mark(self, jobs: int) -> Mark:
        """Now."""
        return Mark(time.perf_counter(), jobs, tree_cpu_s(self._worker.pid))


def tree_cpu_s(root: int) -> float:
    """CPU of a process, its descendants, and those of them that have ended; 0 where there is no /proc."""
    if not os.path.isdir("/proc/self"):
        return 0.0
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        parents[int(name)] = int(fields[1])
        ticks[int(name)] = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    total = 0
    for pid, used in ticks.items():
        ancestor = pid
        while ancestor not in (root, 0):
            ancestor = parents.get(ancestor, 0)
        total += used if ancestor == root else 0
    return float(total / os.sysconf("SC_CLK_TCK"))


class Stored(Protocol):
    """Where results are counted."""

    def stored(self) -> int:
        """How many jobs have a result by now."""


class Results:
    """The topic of results, which grows by one record for each job. Made before the worker starts."""

    def __init__(self, app: App, bootstrap: str) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        topic = f"{app.name}.results"
        self._partitions = [
            TopicPartition(topic, number) for number in self._consumer.partitions_for_topic(topic) or ()
        ]
        assert self._partitions, "there is no topic of results"
        self._begin = self._length() + OF_THE_WORKER

    def _length(self) -> int:
        return sum(self._consumer.end_offsets(self._partitions).values())

    def stored(self) -> int:
        """How many jobs have a result by now."""
        return self._length() - self._begin


def read_meanwhile(results: Stored, jobs: list[JobHandle[Any]], watch: Watch) -> tuple[Mark, Mark]:
    """The first result, and the last, as a caller sees them who asks for each. At the first one those that are stored
    count as read, so that what comes in a batch with it makes no rate look higher."""
    few = jobs[:64]  # which are first depends on the partitions
    while not any(job.status() is JobState.SUCCESS for job in few):
        watch.check()
        few[0].wait(0.005)
    first = watch.mark(results.stored())
    for job in reversed(jobs):
        assert job.wait(PATIENCE_S), "a job does not end"
    return first, watch.mark(len(jobs))


def wait_until_stored(results: Stored, jobs: list[JobHandle[Any]], watch: Watch) -> tuple[Mark, Mark]:
    """The same for a caller that sleeps and looks how many are stored."""
    first: Mark | None = None
    while True:
        ended = results.stored()
        if ended > 0 and first is None:
            first = watch.mark(ended)
        if first is not None and ended >= len(jobs):
            assert ended == len(jobs), "a job has run twice"
            return first, watch.mark(ended)
        watch.check()
        time.sleep(LOOK_S)


class Committed:
    """The offsets of the queue's consumer group, where jobs are delivered by one: the topic of results also has the
    ends of transactions, which cannot be told from results by its length."""

    def __init__(self, app: App, bootstrap: str) -> None:
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._group = f"{app.name}.{app.settings.default_queue}.group"

    def stored(self) -> int:
        """How many jobs have a result by now, not counting those behind one that has none."""
        return sum(committed.offset for committed in self._admin.list_consumer_group_offsets(self._group).values())


HOW: dict[str, Callable[[Stored, list[JobHandle[Any]], Watch], tuple[Mark, Mark]]] = {
    "read": read_meanwhile,
    "stored": wait_until_stored,
}


def main(bootstrap: str, count: int, how: str, flags: list[str]) -> None:
    """Do it once."""
    from bench_jobs import make_app, worker_of  # type: ignore[import-not-found]

    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", bootstrap)
    noop = app.tasks["noop"]
    jobs = [noop.delay(0)]  # connects, makes the topics
    app.flush(PATIENCE_S)

    cpu, began = time.process_time(), time.perf_counter()
    jobs += [noop.delay(number) for number in range(1, count)]
    app.flush(PATIENCE_S)
    enqueue_s, enqueue_cpu_s = time.perf_counter() - began, time.process_time() - cpu

    results = (Committed if app.settings.delivery == "group" else Results)(app, bootstrap)
    caller_cpu, began = time.process_time(), time.perf_counter()
    with worker_of(app, "bench_jobs:app", bootstrap, flags) as worker:
        first, last = HOW[how](results, jobs, Watch(worker, began))
        caller_cpu = time.process_time() - caller_cpu
        for job in reversed(jobs):
            assert job.wait(PATIENCE_S) and job.status() is JobState.SUCCESS, "a job has failed"
    app.close(10)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "enqueued_jobs": count - 1,
        "enqueue_s": enqueue_s,
        "enqueue_cpu_s": enqueue_cpu_s,
        "jobs": last.jobs,
        "seconds": last.at - began,
        "steady_jobs": last.jobs - first.jobs,
        "steady_s": last.at - first.at,
        "steady_cpu_s": last.cpu_s - first.cpu_s,
        "worker_cpu_s": usage.ru_utime + usage.ru_stime,
        "caller_cpu_s": caller_cpu,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])

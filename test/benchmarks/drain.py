"""The caller of a drain: enqueues no-op jobs, starts one worker, waits for all results, and prints what it took.

``python drain.py BOOTSTRAP COUNT HOW [FLAG ...]`` runs in a folder with ``bench_jobs.py`` and in the Python that is
measured, so that caller and worker are of one installation. HOW: ``stored``, and the caller sleeps until the topic of
results is as long as there are jobs (as other task queues are measured, whose callers wait for the last job to run; the
results are read and looked at afterwards), or ``read``, and it reads all results meanwhile. It prints one line of JSON:
the jobs and the seconds from the worker's start to the last result, and from the first one on; CPU seconds of the
worker with its children, and of the caller meanwhile.
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
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.tasks import App, JobHandle, JobState

PATIENCE_S = 120.0
STOP_S = 40.0
LOOK_S = 0.05
OF_THE_WORKER = 1
"""Records that a worker writes to the topic of results before it leases: it learns the broker's time by that."""

Mark = tuple[float, int]
"""An instant, and how many jobs had ended by then."""


def wait_for_any(jobs: list[JobHandle[Any]], check: Callable[[], None]) -> float:
    """When the first result had come, about. Looks at a few jobs: which are first depends on the partitions."""
    few = jobs[:64]
    while not any(job.status() is JobState.SUCCESS for job in few):
        check()
        few[0].wait(0.005)
    return time.perf_counter()


class ReadMeanwhile:
    """The first result, and the last, as somebody sees them who asks for each."""

    def __init__(self, _: App, jobs: list[JobHandle[Any]], __: str) -> None:
        self._jobs = jobs

    def wait(self, check: Callable[[], None]) -> tuple[Mark, Mark]:
        first = wait_for_any(self._jobs, check), 0
        for job in reversed(self._jobs):
            assert job.wait(PATIENCE_S), "a job does not end"
        return first, (time.perf_counter(), len(self._jobs))


class WaitUntilStored:
    """The same by the length of the topic of results, which grows by one record for each job. Made before the worker
    starts."""

    def __init__(self, app: App, jobs: list[JobHandle[Any]], bootstrap: str) -> None:
        self._count = len(jobs)
        self._consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        topic = f"{app.name}.results"
        self._partitions = [
            TopicPartition(topic, number) for number in self._consumer.partitions_for_topic(topic) or ()
        ]
        assert self._partitions, "there is no topic of results"
        self._begin = self._length() + OF_THE_WORKER

    def _length(self) -> int:
        return sum(self._consumer.end_offsets(self._partitions).values())

    def wait(self, check: Callable[[], None]) -> tuple[Mark, Mark]:
        first: Mark | None = None
        while True:
            ended = self._length() - self._begin
            now = time.perf_counter()
            if ended > 0 and first is None:
                first = now, ended
            if first is not None and ended >= self._count:
                assert ended == self._count, "a job has run twice"
                self._consumer.close()
                return first, (now, ended)
            check()
            time.sleep(LOOK_S)


HOW: dict[str, type[ReadMeanwhile] | type[WaitUntilStored]] = {"read": ReadMeanwhile, "stored": WaitUntilStored}


def main(bootstrap: str, count: int, how: str, flags: list[str]) -> None:
    """Do it once."""
    from bench_jobs import NAME_VARIABLE, make_app, worker_command  # type: ignore[import-not-found]

    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", bootstrap)
    noop = app.tasks["noop"]
    jobs = [noop.delay(number) for number in range(count)]
    app.flush(PATIENCE_S)
    results = HOW[how](app, jobs, bootstrap)
    command = worker_command(sys.executable, "bench_jobs:app", bootstrap, flags)
    caller_cpu, began = time.process_time(), time.perf_counter()
    worker = subprocess.Popen(command, env={**os.environ, NAME_VARIABLE: app.name}, stdout=sys.stderr)

    def check() -> None:
        assert worker.poll() is None, "the worker has ended by itself"
        assert time.perf_counter() < began + PATIENCE_S, "the jobs do not end"

    try:
        first, last = results.wait(check)
        caller_cpu = time.process_time() - caller_cpu
        for job in reversed(jobs):
            assert job.wait(PATIENCE_S) and job.status() is JobState.SUCCESS, "a job has failed"
    finally:
        worker.terminate()
        try:
            worker.wait(STOP_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
    app.close(10)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {
        "jobs": last[1],
        "seconds": last[0] - began,
        "steady_jobs": last[1] - first[1],
        "steady_s": last[0] - first[0],
        "worker_cpu_s": usage.ru_utime + usage.ru_stime,
        "caller_cpu_s": caller_cpu,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:])

"""The caller of a drain: enqueues no-op jobs, starts one worker, reads all results back, and prints what it took.

``python drain.py BOOTSTRAP COUNT [FLAG ...]`` runs in a folder with ``bench_jobs.py`` and in the Python that is
measured, so that caller and worker are of one installation. It prints one line of JSON: seconds from the worker's start
to the last result, and from the first result on; CPU seconds of the worker with its children, and of the caller
meanwhile.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
import uuid
from typing import Any

from kafka.tasks import JobHandle, JobState

PATIENCE_S = 120.0
STOP_S = 40.0


def wait_for_any(jobs: list[JobHandle[Any]], worker: subprocess.Popen[bytes], patience_s: float) -> float:
    """When the first result had come, about. Looks at a few jobs: which are first depends on the partitions."""
    give_up_at = time.perf_counter() + patience_s
    few = jobs[:64]
    while not any(job.status() is JobState.SUCCESS for job in few):
        assert worker.poll() is None, "the worker has ended by itself"
        assert time.perf_counter() < give_up_at, "no job ends"
        few[0].wait(0.005)
    return time.perf_counter()


def main(bootstrap: str, count: int, flags: list[str]) -> None:
    """Do it once."""
    from bench_jobs import NAME_VARIABLE, make_app, worker_command  # type: ignore[import-not-found]

    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", bootstrap)
    noop = app.tasks["noop"]
    jobs = [noop.delay(number) for number in range(count)]
    app.flush(PATIENCE_S)
    command = worker_command(sys.executable, "bench_jobs:app", bootstrap, flags)
    caller_cpu, began = time.process_time(), time.perf_counter()
    worker = subprocess.Popen(command, env={**os.environ, NAME_VARIABLE: app.name}, stdout=sys.stderr)
    try:
        first = wait_for_any(jobs, worker, PATIENCE_S)
        for job in reversed(jobs):
            assert job.wait(PATIENCE_S), "a job does not end"
        ended, caller_cpu = time.perf_counter(), time.process_time() - caller_cpu
        assert all(job.status() is JobState.SUCCESS for job in jobs), "a job has failed"
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
        "seconds": ended - began,
        "steady_s": ended - first,
        "worker_cpu_s": usage.ru_utime + usage.ru_stime,
        "caller_cpu_s": caller_cpu,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

"""The caller of single jobs on an idle queue: prints how long each took to start, and to come back.

``python latency.py BOOTSTRAP COUNT [FLAG ...]`` runs as ``drain.py`` does. A job each 5 ms; threads of this process
wait for the results, as many as are out at a time and more. It prints one line of JSON with two lists of milliseconds
from the call of ``delay()``: to the first line of the task, and to the return of ``result()`` in the thread that waits.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka.tasks import JobHandle

PATIENCE_S = 60.0
WARM_UP = 100
APART_S = 0.005
WAITING = 4


def wait_for(job: JobHandle[float], began: float) -> tuple[float, float]:
    """Milliseconds to start, and to the result."""
    start_s = job.result(PATIENCE_S)
    return start_s * 1000, (time.monotonic() - began) * 1000


def main(bootstrap: str, count: int, flags: list[str]) -> None:
    """Do it once."""
    from bench_jobs import make_app, worker_of  # type: ignore[import-not-found]

    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", bootstrap)
    waited = app.tasks["waited"]
    with worker_of(app, "bench_jobs:app", bootstrap, flags), ThreadPoolExecutor(WAITING) as threads:
        for _ in range(WARM_UP):
            waited.delay(time.monotonic()).result(PATIENCE_S)
        out: list[Any] = []
        for _ in range(count):
            began = time.monotonic()
            out.append(threads.submit(wait_for, waited.delay(began), began))
            time.sleep(APART_S)
        start_ms, result_ms = zip(*(each.result() for each in out), strict=True)
    app.close(10)
    print(json.dumps({"start_ms": start_ms, "result_ms": result_ms}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

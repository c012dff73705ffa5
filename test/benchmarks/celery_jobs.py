"""No-op jobs in Celery, over Redis: what its worker imports, and ``python celery_jobs.py N FILE``, which enqueues.

Run in the environment of the peer, so nothing of the project is imported. The last job writes the time into the file.
``CELERY_BENCH_BROKER`` is where Redis is.
"""

from __future__ import annotations

import os
import sys
import time

from celery import Celery

app = Celery("celery_jobs", broker=os.environ["CELERY_BENCH_BROKER"], backend=None)
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 64
app.conf.broker_connection_retry_on_startup = True


@app.task(name="noop")
def noop(number: int) -> None:
    """Nothing."""


@app.task(name="last")
def last(path: str) -> None:
    """Say that all is done."""
    with open(f"{path}.part", "w") as file:
        file.write(repr(time.time()))
    os.rename(f"{path}.part", path)


if __name__ == "__main__":
    for number in range(int(sys.argv[1])):
        noop.delay(number)
    last.delay(sys.argv[2])

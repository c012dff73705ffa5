"""No-op jobs in Celery, over Redis: what its worker imports, and ``python celery_jobs.py N FILE``, which enqueues.

Run in the environment of the peer, so nothing of the project is imported. The last job writes the time into the file.
``REDIS_URL`` is where Redis is. Celery stores no results here, as its user guide wants where nobody reads them, and
prefetches more than by default, as the guide wants for short jobs; the rest are its defaults, so a worker acknowledges
a job before it runs. Jobs are in Redis's memory only.
"""

from __future__ import annotations

import os
import sys
import time

from celery import Celery

app = Celery("celery_jobs", broker=f"{os.environ['REDIS_URL']}/0", backend=None)
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

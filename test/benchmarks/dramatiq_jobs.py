"""No-op jobs in Dramatiq, over Redis: ``python dramatiq_jobs.py N`` enqueues and prints how many a second.

Run in the environment of the peer, so nothing of the project is imported. ``REDIS_URL`` is where Redis is. Dramatiq has
its defaults: one request to Redis for each ``send``, which returns when Redis has the job in its memory; no call sends
many at once (``group.run`` sends them one by one). Nothing is on a disk. There are no results, and no worker.
"""

from __future__ import annotations

import json
import os
import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=f"{os.environ['REDIS_URL']}/0"))


@dramatiq.actor
def noop(number: int) -> None:
    """Nothing."""


def main(count: int) -> None:
    """Enqueue once."""
    noop.send(-1)  # connects, declares the queue
    began = time.perf_counter()
    for number in range(count):
        noop.send(number)
    print(json.dumps({"jobs": count, "seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

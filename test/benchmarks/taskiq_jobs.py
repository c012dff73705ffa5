"""No-op jobs in taskiq, over Redis: what its worker imports, and ``python taskiq_jobs.py N FILE``, which enqueues.

Run in the environment of the peer, so nothing of the project is imported. The last job writes the time into the file.
``REDIS_URL`` is where Redis is. Everything has its defaults. The jobs are in a stream, whose readers acknowledge each
when its result is stored: of taskiq-redis's brokers the one that loses no job with a worker. Results are in Redis, too,
and nobody reads them. Both are in its memory only. The task is a coroutine, since taskiq hands others to threads.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

ADDRESS = os.environ["REDIS_URL"]

broker = RedisStreamBroker(f"{ADDRESS}/0").with_result_backend(RedisAsyncResultBackend(f"{ADDRESS}/1"))


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    """Nothing."""


@broker.task(task_name="last")
async def last(path: str) -> None:
    """Say that all is done."""
    with open(f"{path}.part", "w") as file:
        file.write(repr(time.time()))
    os.rename(f"{path}.part", path)


async def enqueue(count: int, path: str) -> None:
    """Make the stream, and fill it."""
    await broker.startup()
    for number in range(count):
        await noop.kiq(number)
    await last.kiq(path)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(enqueue(int(sys.argv[1]), sys.argv[2]))

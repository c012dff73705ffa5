"""The app of the drain in stages: a worker imports it, and a client, a process of its own, enqueues its jobs.

``STAGED_SERVERS`` is the broker. The client reads numbers of jobs, one a line, and answers each with the number when
the broker has the jobs.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import IO, Final

from kafka.tasks import App

APP: Final = "staged"
PARTITIONS: Final = 2
RESULTS_IN_MEMORY: Final = 1000
"""So that the client's view is full, and its memory settled, after a few thousand jobs."""
PAYLOAD_BYTES: Final = 600
"""Of hexadecimal digits, of which no compression makes less than half. Small as they are, 100,000 jobs fill several
segments of each partition."""
WITHIN_S: Final = 300.0
CLIENT: Final = [sys.executable, "-c", "from test.faults.staged_jobs import enqueue_stages; enqueue_stages()"]

app = App(
    APP,
    bootstrap_servers=os.environ.get("STAGED_SERVERS", "127.0.0.1:1"),
    partitions=PARTITIONS,
    result_view=RESULTS_IN_MEMORY,
)


@app.task
def noop(text: str) -> None:
    """Does nothing."""


def enqueue_stages() -> None:
    """The client. It has asked for a result, so it reads those of all its jobs."""
    assert noop.delay("first").wait(WITHIN_S), "the first job has not ended"
    randbytes = random.Random(0).randbytes
    for line in sys.stdin:
        count = int(line)
        for _ in range(count):
            noop.delay(randbytes(PAYLOAD_BYTES // 2).hex())
        app.flush(WITHIN_S)
        print(count, flush=True)
    app.close(WITHIN_S)


def enqueue(client: subprocess.Popen[str], count: int) -> None:
    """Let the client enqueue a stage, and wait for its answer."""
    stdin, stdout = _pipes(client)
    stdin.write(f"{count}\n")
    stdin.flush()
    answer = stdout.readline()
    assert answer.strip() == str(count), f"the client has ended: {answer!r}"


def _pipes(client: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert client.stdin is not None
    assert client.stdout is not None
    return client.stdin, client.stdout

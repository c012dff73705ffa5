"""The app of the benchmarks and its tasks: what their workers import.

Each measurement has an app of its own, so that none finds another's topics; workers learn its name from the
environment (:data:`NAME_VARIABLE`), and how jobs are delivered (:data:`DELIVERY_VARIABLE`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kafka.tasks import App

NAME_VARIABLE: Final = "KAFKA_BENCH_APP"
DELIVERY_VARIABLE: Final = "KAFKA_BENCH_DELIVERY"
QUEUE: Final = "jobs"
STOP_S: Final = 40.0


def noop(number: int) -> None:
    """Nothing."""


def waited(enqueued: float) -> float:
    """Seconds from the caller's ``delay`` to this line; both clocks are the machine's."""
    return time.monotonic() - enqueued


def make_app(name: str, bootstrap_servers: str = "localhost:9092") -> App:
    """An app as users have it, but for a memory of results that holds a whole run."""
    delivery = os.environ.get(DELIVERY_VARIABLE, "auto")
    app = App(
        name,
        bootstrap_servers=bootstrap_servers,
        default_queue=QUEUE,
        result_view=1_000_000,
        delivery=delivery,  # type: ignore[arg-type]  # one of its values
    )
    app.task(name="noop")(noop)
    app.task(name="waited")(waited)
    return app


def worker_command(python: str, app_path: str, bootstrap: str, flags: Sequence[str]) -> list[str]:
    """How a worker of the app is started, which takes the app's name from the environment."""
    command = [python, "-m", "kafka", "worker", app_path, "--queues", QUEUE, *flags]
    return [*command, "--log-level", "WARNING", "--bootstrap-server", bootstrap]


@contextmanager
def worker_of(app: App, app_path: str, bootstrap: str, flags: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of this Python, from its start to its sure end; what it prints goes to stderr."""
    command = worker_command(sys.executable, app_path, bootstrap, flags)
    worker = subprocess.Popen(command, env={**os.environ, NAME_VARIABLE: app.name}, stdout=sys.stderr)
    try:
        yield worker
    finally:
        worker.terminate()
        try:
            worker.wait(STOP_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


app = make_app(os.environ.get(NAME_VARIABLE, "bench"))

"""The app of the kill tests, and its workers: each start of a job leaves a line ``id pid time`` in a file.

Settings come through the environment, since workers are processes of their own: ``COUNTED_APP`` the app's name,
``COUNTED_SERVERS``, ``COUNTED_PARTITIONS`` and ``COUNTED_FILE``.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections import defaultdict
from typing import NamedTuple

from kafka.tasks import App, Context
from test.support.waiting import whole_lines

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_app(name: str, servers: str, partitions: int) -> App:
    """The app as its workers declare it; in a test, one of the test's own, with the task as ``work``."""
    app = App(name, bootstrap_servers=servers, partitions=partitions, stop_grace=5.0, kill_grace=1.0)
    app.task(bind=True, name="work")(_work)
    app.task(bind=True, name="kill_the_worker")(_kill_the_worker)
    return app


def _note(context: Context) -> None:
    line = f"{context.job_id} {os.getpid()} {time.time():.6f}\n"
    file = os.open(os.environ["COUNTED_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def _work(context: Context, number: int, seconds: float) -> int:
    _note(context)
    time.sleep(seconds)
    return number


def _kill_the_worker(context: Context) -> None:
    _note(context)
    os.kill(os.getpid(), 9)


class Start(NamedTuple):
    """One start of a job: the worker's process, and the time in seconds since the epoch."""

    pid: int
    at: float


class Crew:
    """Worker processes of one app, and what they started."""

    def __init__(self, directory: pathlib.Path, name: str, servers: str, partitions: int) -> None:
        self.app = make_app(name, servers, partitions)
        self.directory = directory
        self.file = directory / "starts"
        self.file.touch()
        self.workers: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            "COUNTED_APP": name,
            "COUNTED_SERVERS": servers,
            "COUNTED_PARTITIONS": str(partitions),
            "COUNTED_FILE": str(self.file),
        }

    def start(self, concurrency: int = 2, pool: str = "threads") -> subprocess.Popen[bytes]:
        """One more worker; its log is in the crew's directory. With threads, a start's pid is its worker's."""
        command = [
            sys.executable, "-m", "kafka", "worker", "test.faults.counted_jobs:app",
            "--pool", pool, "--concurrency", str(concurrency),
            "--log-level", os.environ.get("KAFKA_TEST_WORKER_LOG", "INFO"),
        ]  # fmt: skip
        with open(self.directory / f"worker-{len(self.workers)}.log", "ab") as log_file:
            self.workers.append(subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=log_file))
        return self.workers[-1]

    def starts(self) -> dict[str, list[Start]]:
        """All starts so far, by job."""
        found: dict[str, list[Start]] = defaultdict(list)
        for line in whole_lines(self.file):
            job_id, pid, at = line.split()
            found[job_id].append(Start(int(pid), float(at)))
        return found

    def starts_count(self, pid: int | None = None) -> int:
        """Starts so far, of all workers or of one."""
        lines = whole_lines(self.file)
        return len(lines) if pid is None else sum(int(line.split()[1]) == pid for line in lines)

    def logs(self) -> str:
        """What the workers said, for the text of a failure."""
        return "\n".join(path.read_text()[-3000:] for path in sorted(self.directory.glob("worker-*.log")))

    def close(self) -> None:
        """End the workers, and the app's connection."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self.app.close()


if "COUNTED_APP" in os.environ:
    app = make_app(
        os.environ["COUNTED_APP"], os.environ["COUNTED_SERVERS"], int(os.environ["COUNTED_PARTITIONS"])
    )

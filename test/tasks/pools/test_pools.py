"""Tests of ``kafka.tasks.pools``: what every pool does, and the threads.

Tasks are declared before the pool is made: a child knows those that were there when it was forked. A child shares no
object with the test either, so gates are files.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, Context, Retry, SoftTimeLimit, Task
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools import POOLS, PROCESS_POOLS, Pool, PoolSettings, default_pool, make_pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded, LockLost, Outcome
from test.support.waiting import until
from test.tasks.fakes import a_job

DEADLINE_S = 40.0
FAR_S = 3600.0
"""A limit that comes when the test says so: the pool is told a later time."""


class Bench:
    """A pool, made when it is first asked for; the app of its tasks; how often it woke the loop."""

    def __init__(self, name: str, concurrency: int = 2) -> None:
        self.name = name
        self.app = App("shop")
        self.wakes = 0
        self._concurrency = concurrency
        self._pool: Pool | None = None

    @property
    def pool(self) -> Pool:
        if self._pool is None:
            settings = PoolSettings(self._concurrency, app=self.app, start_method="fork")
            self._pool = make_pool(self.name, settings, self._wake)
            if self.name in PROCESS_POOLS:
                until(lambda: self._all_up(self._pool))
        return self._pool

    @staticmethod
    def _all_up(pool: Any) -> bool:
        assert pool.finished(0.01) == []
        return len(pool.supervision.available) == pool.concurrency

    def _wake(self) -> None:
        self.wakes += 1

    def job(
        self, function: Callable[..., Any], *args: Any, track_started: bool = False, **options: Any
    ) -> Job:
        name = f"task{len(self.app.tasks)}"
        declare: Callable[[Callable[..., Any]], Task[..., Any]] = self.app.task(name=name, **options)
        task = declare(function)
        envelope = a_job(name, *args)
        lease = JobLease(JobSource("q", "shop.q"), envelope.value, [], 1)
        limits = task.options.soft_timeout, task.options.timeout
        return Job(lease, envelope, task, *limits, track_started=track_started)

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            assert self.pool.free_slots > 0
            self.pool.submit(job)

    def outcomes(self, count: int) -> dict[Job, Outcome]:
        found: dict[Job, Outcome] = {}

        def turn() -> None:
            due = self.pool.tick(time.monotonic())
            wait = 0.5 if due is None else min(0.5, max(0.0, due - time.monotonic()))
            found.update(self.pool.finished(wait + 0.001))

        until(lambda: len(found) >= count, f"{count} outcomes", meanwhile=turn, shown=found.values)
        assert len(found) == count
        return found

    def stop(self, grace: float) -> None:
        if self._pool is not None:
            self._pool.stop(grace)


class Gate:
    """Opened for all processes. ``begun`` are the jobs that stand before it, each by its name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def wait(self, name: str) -> str:
        (self._folder / f"begun-{name}").touch()
        until((self._folder / "open").exists)
        return name

    def begun(self) -> set[str]:
        return {path.name.removeprefix("begun-") for path in self._folder.glob("begun-*")}

    def open(self) -> None:
        (self._folder / "open").touch()


def _pools(names: list[str]) -> list[Any]:
    windows = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
    return [pytest.param(name, marks=windows if name in PROCESS_POOLS else ()) for name in names]


@pytest.fixture(params=_pools(sorted(POOLS)))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.stop(0)


@pytest.fixture
def threads() -> Iterator[Bench]:
    bench = Bench("threads")
    yield bench
    bench.stop(5)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_every_job_comes_back_with_its_outcome(bench: Bench) -> None:
    jobs = [bench.job(lambda n: n * n, n) for n in range(50)]
    bench.pool.set_depth(64)
    bench.submit(*jobs)
    found = bench.outcomes(50)
    assert [found[job] for job in jobs] == [JobSucceeded(str(n * n).encode()) for n in range(50)]
    assert bench.pool.busy == 0
    assert bench.pool.statistics()["done"] == 50


def test_a_full_pool_has_no_free_slot(bench: Bench, gate: Gate) -> None:
    jobs = [bench.job(gate.wait, str(n)) for n in range(2)][: 1 if bench.name == "inline" else 2]
    bench.submit(*jobs)
    assert bench.pool.free_slots == 0
    gate.open()
    bench.outcomes(len(jobs))
    until(lambda: bench.pool.free_slots == bench.pool.concurrency or bench.pool.finished(0.01))


def test_errors_are_outcomes_and_the_pool_goes_on(bench: Bench) -> None:
    def bad() -> None:
        raise SystemExit(1)

    jobs = [bench.job(bad) for _ in range(5)]
    after = bench.job(lambda: 1)
    bench.pool.set_depth(10)
    bench.submit(*jobs)
    assert all(isinstance(o, AttemptFailed) for o in bench.outcomes(5).values())
    until(lambda: bench.pool.free_slots or bench.pool.finished(0.01))
    bench.submit(after)
    assert bench.outcomes(1) == {after: JobSucceeded(b"1")}


def test_jobs_that_have_not_started_can_be_taken_back(bench: Bench, gate: Gate) -> None:
    jobs = [bench.job(gate.wait, str(n)) for n in range(6)]
    bench.pool.set_depth(10)
    bench.submit(*jobs)
    if bench.name != "inline":
        until(lambda: len(gate.begun()) == 2 or bench.pool.finished(0.01))
    begun = gate.begun()
    back = bench.pool.recall()
    assert back == [job for n, job in enumerate(jobs) if str(n) not in begun]
    assert len(back) >= 4
    gate.open()
    bench.outcomes(6 - len(back))
    assert bench.pool.busy == 0


def test_a_start_is_reported_when_the_job_has_begun_and_before_it_ends(bench: Bench, gate: Gate) -> None:
    jobs = [bench.job(gate.wait, str(n), track_started=True) for n in range(5)]
    bench.pool.set_depth(10)
    bench.submit(*jobs)
    started: list[Job] = []

    def turn() -> None:
        assert bench.pool.finished(0.01) == []
        started.extend(bench.pool.started())

    until(lambda: len(started) == bench.pool.concurrency, "starts", meanwhile=turn)
    assert bench.wakes >= 1
    waiting = bench.pool.recall()
    assert set(started) | set(waiting) == set(jobs)
    assert len(waiting) == len(jobs) - len(started)
    if bench.name != "inline":  # which runs it in the next call, on this thread
        until(lambda: gate.begun() == {str(jobs.index(job)) for job in started}, meanwhile=turn)
    gate.open()
    assert set(bench.outcomes(len(started))) == set(started)
    assert bench.pool.started() == []
    assert bench.pool.busy == 0


def test_jobs_that_end_at_once_are_reported_as_started_too_and_others_only_when_asked_for(bench: Bench) -> None:
    jobs = [bench.job(lambda: 1, track_started=n % 2 == 0) for n in range(20)]
    bench.pool.set_depth(20)
    bench.submit(*jobs)
    ended: list[Job] = []
    started: list[Job] = []

    def turn() -> None:
        ended.extend(job for job, _ in bench.pool.finished(0.01))
        started.extend(bench.pool.started())
        assert {job for job in ended if job.track_started} <= set(started)

    until(lambda: len(ended) == 20, "outcomes", meanwhile=turn)
    assert sorted(map(jobs.index, started)) == list(range(0, 20, 2))


def test_a_job_that_ends_wakes_the_loop(bench: Bench) -> None:
    bench.submit(bench.job(lambda: 1))
    bench.outcomes(1)
    until(lambda: bench.wakes >= 1)


def test_pools_are_made_by_name_and_wrong_ones_say_so() -> None:
    with pytest.raises(IllegalArgumentError, match="did you mean 'threads'"):
        make_pool("thread", PoolSettings(1), lambda: None)
    with pytest.raises(IllegalArgumentError, match="an integer from 1"):
        make_pool("threads", PoolSettings(0), lambda: None)
    with pytest.raises(IllegalArgumentError, match="needs the app object"):
        make_pool("prefork", PoolSettings(1, start_method="fork"), lambda: None)
    with pytest.raises(IllegalArgumentError, match="MODULE:APP"):
        make_pool("prefork", PoolSettings(1, start_method="spawn"), lambda: None)
    assert default_pool() == ("threads" if sys.platform == "win32" else "prefork")


# -- threads only -----------------------------------------------------------------------------------------------------


def test_jobs_run_beside_one_another(threads: Bench) -> None:
    barrier = threading.Barrier(2)
    for _ in range(2):
        threads.pool.submit(threads.job(lambda: barrier.wait(DEADLINE_S) >= 0))
    assert list(threads.outcomes(2).values()) == [JobSucceeded(b"true")] * 2


@pytest.mark.parametrize("pool", ["threads", "asyncio"])
def test_a_job_whose_lock_is_over_does_not_begin(pool: str) -> None:
    """Others run it. After SIGSTOP a thread may take it before the worker's own thread finds out."""
    bench = Bench(pool)
    ran: list[str] = []
    over, good, unknown = (bench.job(ran.append, name) for name in ("over", "good", "unknown"))
    over.lease.locked_until = time.monotonic()
    good.lease.locked_until = time.monotonic() + 60.0
    for job in (over, good, unknown):
        bench.submit(job)
        assert isinstance(bench.outcomes(1)[job], LockLost if job is over else JobSucceeded)
    assert (ran, bench.pool.busy) == (["good", "unknown"], 0)
    bench.stop(1.0)


def test_many_outcomes_wake_the_loop_once(threads: Bench) -> None:
    threads.pool.set_depth(1000)
    for _ in range(500):
        threads.pool.submit(threads.job(lambda: None))
    until(lambda: threads.pool.statistics()["busy"] == 500 and threads.wakes >= 1)
    threads.outcomes(500)
    assert threads.wakes < 100


def _big() -> str:
    return "x" * 2_000_000


async def _big_coroutine() -> str:
    return _big()


@pytest.mark.parametrize("function", [_big, _big_coroutine])
def test_a_result_that_is_too_large_is_a_failure_that_calls_the_error_handlers_alone(
    bench: Bench, tmp_path: Path, function: Callable[[], Any]
) -> None:
    bench.app.success_handler(lambda job: (tmp_path / "success").touch())
    bench.app.error_handler(lambda job, kill_signal, exc_info: (tmp_path / exc_info[0].__name__).touch())
    job = bench.job(function, retry=Retry())
    bench.submit(job)
    outcome = bench.outcomes(1)[job]
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed) == ("PayloadTooLarge", False)
    assert outcome.error_info.text == (
        f"the result of task {job.task.name} is 2000002 bytes, more than max_payload_bytes (1000000): store it "
        "elsewhere and return a reference, or raise max_payload_bytes and the topics' max.message.bytes"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["PayloadTooLarge"]


def test_the_soft_limit_is_an_exception_that_except_exception_does_not_eat(threads: Bench) -> None:
    begun = threading.Event()

    def stubborn() -> str:
        try:
            begun.set()
            while True:
                try:
                    time.sleep(0.001)
                except Exception:
                    return "eaten"
        except SoftTimeLimit:
            return "cleaned up"

    job = threads.job(stubborn, soft_timeout=FAR_S)
    threads.pool.submit(job)
    assert begun.wait(DEADLINE_S)
    threads.pool.tick(time.monotonic() + FAR_S)
    assert threads.outcomes(1) == {job: JobSucceeded(b'"cleaned up"')}
    assert threads.pool.statistics()["soft_limits"] == 1


def test_a_soft_limit_that_is_let_out_is_a_failure_that_a_policy_can_list(threads: Bench) -> None:
    def slow() -> None:
        while True:
            time.sleep(0.001)

    job = threads.job(slow, soft_timeout=0.05, retry=Retry(on=(SoftTimeLimit,)))
    threads.pool.submit(job)
    outcome = threads.outcomes(1)[job]
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed) == ("kafka.tasks.errors.SoftTimeLimit", True)


def test_at_the_hard_limit_the_job_ends_and_its_slot_is_free_again(threads: Bench) -> None:
    outcomes: list[object] = []
    threads.app.success_handler(outcomes.append)
    threads.app.error_handler(lambda *seen: outcomes.append(seen))
    gate = threading.Event()
    stuck = [threads.job(gate.wait, DEADLINE_S, timeout=0.05) for _ in range(2)]
    for job in stuck:
        threads.pool.submit(job)
    found = threads.outcomes(2)
    assert {o.error_info.type for o in found.values() if isinstance(o, AttemptFailed)} == {"TimeLimit"}
    assert not any(o.handlers_called for o in found.values() if isinstance(o, AttemptFailed))
    assert all(job.cancelled for job in stuck)
    again = threads.job(lambda: 1)
    threads.pool.submit(again)
    assert threads.outcomes(1) == {again: JobSucceeded(b"1")}
    assert len(outcomes) == 1
    gate.set()
    until(lambda: sum(t.name == "kafka-task" for t in threading.enumerate()) == 2)
    assert threads.pool.finished() == []
    assert len(outcomes) == 1  # of the two that were stuck the worker tells, at their limit
    assert threads.pool.statistics()["hard_limits"] == 2


def test_a_job_behind_a_slow_one_has_its_limit_from_its_own_start(threads: Bench) -> None:
    threads.pool.set_depth(10)
    gate = threading.Event()
    first = [threads.job(gate.wait, DEADLINE_S) for _ in range(2)]
    last = threads.job(lambda: 1, timeout=FAR_S)
    for job in [*first, last]:
        threads.pool.submit(job)
    until(lambda: all(job.started_at is not None for job in first))
    threads.pool.tick(time.monotonic() + FAR_S)
    gate.set()
    assert threads.outcomes(3)[last] == JobSucceeded(b"1")


def test_interrupt_reaches_running_jobs_through_flag_and_exception(threads: Bench) -> None:
    started = threading.Barrier(3)

    def polite(ctx: Context) -> str:
        try:
            started.wait(DEADLINE_S)
            while not ctx.cancelled:
                time.sleep(0.001)
            while True:
                time.sleep(0.001)
        except SoftTimeLimit:
            return "ended"

    jobs = [threads.job(polite, bind=True) for _ in range(2)]
    for job in jobs:
        threads.pool.submit(job)
    started.wait(DEADLINE_S)
    threads.pool.interrupt()
    assert list(threads.outcomes(2).values()) == [JobSucceeded(b'"ended"')] * 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a limit may strike in a finaliser
def test_no_outcome_is_lost_when_limits_strike_as_jobs_end(threads: Bench) -> None:
    threads.pool.set_depth(400)
    jobs = [threads.job(lambda: time.sleep(0.001), soft_timeout=0.001, timeout=0.0012) for _ in range(300)]
    for job in jobs:
        threads.pool.submit(job)
    assert len(threads.outcomes(300)) == 300
    after = threads.job(lambda: sum(range(1000)))
    threads.pool.submit(after)
    assert threads.outcomes(1) == {after: JobSucceeded(b"499500")}
    assert threads.pool.finished() == []


def test_stop_names_the_jobs_that_never_finished() -> None:
    bench = Bench("threads", 1)
    bench.pool.set_depth(5)
    gate = threading.Event()
    jobs = [bench.job(gate.wait, DEADLINE_S) for _ in range(3)]
    for job in jobs:
        bench.pool.submit(job)
    until(lambda: jobs[0].started_at is not None)
    assert set(bench.pool.stop(0.01)) == set(jobs)
    gate.set()


_TRACED = """
import sys, time
from kafka.tasks import App, SoftTimeLimit
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools import PoolSettings, make_pool
from kafka.tasks.pools.runner import Job
from test.tasks.fakes import a_job

app = App("shop")

@app.task(name="slow")
def slow():
    while True:
        time.sleep(0.001)

pool = make_pool("threads", PoolSettings(concurrency=1), lambda: None)
pool.submit(Job(JobLease(JobSource("q", "shop.q"), b"", [], 1), a_job("slow"), slow, soft_s=0.01))
ended = []
while not ended:
    pool.tick(time.monotonic())
    ended = pool.finished(0.01)
seen = []
sys.setprofile(lambda frame, event, _: seen.append(event))
a_job("slow")
sys.setprofile(None)
print(ended[0][1].error_info.type, "call" in seen)
"""


def test_a_limit_leaves_nothing_behind_that_a_profiler_or_debugger_would_hang_on() -> None:
    """An exception that is set and taken back is looked for by the interpreter (up to 3.12) for ever."""
    found = subprocess.run(
        [sys.executable, "-c", _TRACED],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (found.stdout, found.stderr) == ("kafka.tasks.errors.SoftTimeLimit True\n", "")


# -- the log -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["inline", "threads", "asyncio"])
@pytest.mark.parametrize("is_coroutine", [False, True])
def test_what_a_job_logs_in_the_workers_own_process_has_its_name_and_id(
    name: str, is_coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def say() -> None:
        logging.getLogger("shop").warning("said")

    async def say_on_a_loop() -> None:
        say()

    bench = Bench(name)
    jobs = [bench.job(say_on_a_loop if is_coroutine else say) for _ in range(2)]
    try:
        bench.submit(jobs[0])
        bench.outcomes(1)
        bench.submit(jobs[1])
        bench.outcomes(1)
    finally:
        bench.stop(0.0)
    say()
    records = [record for record in caplog.records if record.name == "shop"]
    found = [(getattr(each, "job_name", None), getattr(each, "job_id", None)) for each in records]
    assert found == [*((job.envelope.name, job.envelope.id) for job in jobs), ("", "")]

"""Tests of ``kafka.tasks.pools``: what every pool does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, Context, Retry, SoftTimeLimit, Task
from kafka.tasks.delivery import Lease, Source
from kafka.tasks.outcome import Failed, Outcome, Succeeded
from kafka.tasks.pools import POOLS, Pool, make_pool
from kafka.tasks.pools.threads import ThreadPool
from kafka.tasks.runner import Job, run
from test.tasks.fakes import a_job

DEADLINE_S = 20.0


class Bench:
    """A pool, the app of its tasks, and how often it woke the loop."""

    def __init__(self, name: str, concurrency: int = 2) -> None:
        self.app = App("shop")
        self.wakes = 0
        self.pool: Pool = make_pool(name, run, concurrency, self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    def job(self, function: Callable[..., Any], *args: Any, **options: Any) -> Job:
        name = f"task{len(self.app.tasks)}"
        declare: Callable[[Callable[..., Any]], Task[..., Any]] = self.app.task(name=name, **options)
        task = declare(function)
        envelope = a_job(name, *args)
        lease = Lease(Source("q", "shop.q"), envelope.value, [], 1)
        return Job(lease, envelope, task, task.options.soft_timeout, task.options.timeout)

    def outcomes(self, count: int) -> dict[Job, Outcome]:
        found: dict[Job, Outcome] = {}
        until = time.monotonic() + DEADLINE_S
        while len(found) < count and time.monotonic() < until:
            due = self.pool.tick(time.monotonic())
            wait = 0.5 if due is None else min(0.5, max(0.0, due - time.monotonic()))
            found.update(self.pool.finished(wait + 0.001))
        assert len(found) == count
        return found


@pytest.fixture(params=sorted(POOLS))
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(request.param)
    yield bench
    bench.pool.stop(0)


@pytest.fixture
def threads() -> Iterator[Bench]:
    bench = Bench("threads")
    yield bench
    bench.pool.stop(5)


def test_every_job_comes_back_with_its_outcome(bench: Bench) -> None:
    bench.pool.depth = 64
    jobs = [bench.job(lambda n: n * n, n) for n in range(50)]
    for job in jobs:
        assert bench.pool.free_slots > 0
        bench.pool.submit(job)
    found = bench.outcomes(50)
    assert [found[job] for job in jobs] == [Succeeded(str(n * n).encode()) for n in range(50)]
    assert bench.pool.busy == 0
    assert bench.pool.statistics()["done"] == 50


def test_a_full_pool_has_no_free_slot(bench: Bench) -> None:
    gate = threading.Event()
    for _ in range(bench.pool.concurrency):
        bench.pool.submit(bench.job(gate.wait, DEADLINE_S))
    assert bench.pool.free_slots == 0
    gate.set()
    bench.outcomes(bench.pool.concurrency)
    assert bench.pool.free_slots == bench.pool.concurrency


def test_errors_are_outcomes_and_the_pool_goes_on(bench: Bench) -> None:
    def bad() -> None:
        raise SystemExit(1)

    bench.pool.depth = 10
    for _ in range(5):
        bench.pool.submit(bench.job(bad))
    assert all(isinstance(o, Failed) for o in bench.outcomes(5).values())
    job = bench.job(lambda: 1)
    bench.pool.submit(job)
    assert bench.outcomes(1) == {job: Succeeded(b"1")}


def test_jobs_that_have_not_started_can_be_taken_back(bench: Bench) -> None:
    bench.pool.depth = 10
    gate = threading.Event()
    jobs = [bench.job(gate.wait, DEADLINE_S) for _ in range(6)]
    for job in jobs:
        bench.pool.submit(job)
    if isinstance(bench.pool, ThreadPool):
        _until(lambda: sum(job.started_at is not None for job in jobs) == 2)
    back = bench.pool.recall()
    assert back == [job for job in jobs if job.started_at is None]
    assert len(back) >= 4
    gate.set()
    bench.outcomes(6 - len(back))
    assert bench.pool.busy == 0


def test_a_job_that_ends_wakes_the_loop(bench: Bench) -> None:
    bench.pool.submit(bench.job(lambda: 1))
    bench.outcomes(1)
    _until(lambda: bench.wakes >= 1)


def test_pools_are_made_by_name_and_later_ones_say_so() -> None:
    with pytest.raises(IllegalArgumentError, match="'prefork' is not in this release; available are inline, threads"):
        make_pool("prefork", run, 1, lambda: None)
    with pytest.raises(IllegalArgumentError, match="did you mean 'threads'"):
        make_pool("thread", run, 1, lambda: None)
    with pytest.raises(IllegalArgumentError, match="at least 1"):
        make_pool("threads", run, 0, lambda: None)


# -- threads only -----------------------------------------------------------------------------------------------------


def test_jobs_run_beside_one_another(threads: Bench) -> None:
    barrier = threading.Barrier(2)
    for _ in range(2):
        threads.pool.submit(threads.job(lambda: barrier.wait(DEADLINE_S) >= 0))
    assert list(threads.outcomes(2).values()) == [Succeeded(b"true")] * 2


def test_many_outcomes_wake_the_loop_once(threads: Bench) -> None:
    threads.pool.depth = 1000
    for _ in range(500):
        threads.pool.submit(threads.job(lambda: None))
    _until(lambda: threads.pool.statistics()["busy"] == 500 and threads.wakes >= 1)
    threads.outcomes(500)
    assert threads.wakes < 100


def test_the_soft_limit_is_an_exception_that_except_exception_does_not_eat(threads: Bench) -> None:
    def stubborn() -> str:
        try:
            while True:
                try:
                    time.sleep(0.001)
                except Exception:
                    return "eaten"
        except SoftTimeLimit:
            return "cleaned up"

    job = threads.job(stubborn, soft_timeout=0.05)
    threads.pool.submit(job)
    assert threads.outcomes(1) == {job: Succeeded(b'"cleaned up"')}
    assert threads.pool.statistics()["soft_limits"] == 1


def test_a_soft_limit_that_is_let_out_is_a_failure_that_a_policy_can_list(threads: Bench) -> None:
    def slow() -> None:
        while True:
            time.sleep(0.001)

    job = threads.job(slow, soft_timeout=0.05, retry=Retry(on=(SoftTimeLimit,)))
    threads.pool.submit(job)
    outcome = threads.outcomes(1)[job]
    assert isinstance(outcome, Failed)
    assert (outcome.fault.type, outcome.listed) == ("kafka.tasks.errors.SoftTimeLimit", True)


def test_at_the_hard_limit_the_job_ends_and_its_slot_is_free_again(threads: Bench) -> None:
    gate = threading.Event()
    stuck = [threads.job(gate.wait, DEADLINE_S, timeout=0.05) for _ in range(2)]
    for job in stuck:
        threads.pool.submit(job)
    found = threads.outcomes(2)
    assert {o.fault.type for o in found.values() if isinstance(o, Failed)} == {"TimeLimit"}
    assert all(job.cancelled for job in stuck)
    again = threads.job(lambda: 1)
    threads.pool.submit(again)
    assert threads.outcomes(1) == {again: Succeeded(b"1")}
    gate.set()
    _until(lambda: sum(t.name == "kafka-task" for t in threading.enumerate()) == 2)
    assert threads.pool.finished() == []
    assert threads.pool.statistics()["hard_limits"] == 2


def test_a_job_behind_a_slow_one_has_its_limit_from_its_own_start(threads: Bench) -> None:
    threads.pool.depth = 10
    first = [threads.job(lambda: time.sleep(0.2)) for _ in range(2)]
    last = threads.job(lambda: 1, timeout=0.15)
    for job in [*first, last]:
        threads.pool.submit(job)
    assert threads.outcomes(3)[last] == Succeeded(b"1")


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
    assert list(threads.outcomes(2).values()) == [Succeeded(b'"ended"')] * 2


def test_no_outcome_is_lost_when_limits_strike_as_jobs_end(threads: Bench) -> None:
    threads.pool.depth = 400
    jobs = [threads.job(lambda: time.sleep(0.001), soft_timeout=0.001, timeout=0.0012) for _ in range(300)]
    for job in jobs:
        threads.pool.submit(job)
    assert len(threads.outcomes(300)) == 300
    after = threads.job(lambda: sum(range(1000)))
    threads.pool.submit(after)
    assert threads.outcomes(1) == {after: Succeeded(b"499500")}
    assert threads.pool.finished() == []


def test_stop_names_the_jobs_that_never_finished() -> None:
    bench = Bench("threads", 1)
    bench.pool.depth = 5
    gate = threading.Event()
    jobs = [bench.job(gate.wait, DEADLINE_S) for _ in range(3)]
    for job in jobs:
        bench.pool.submit(job)
    _until(lambda: jobs[0].started_at is not None)
    assert set(bench.pool.stop(0.01)) == set(jobs)
    gate.set()


def _until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)

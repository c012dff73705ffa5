"""Tests of ``kafka.tasks.pools.asyncio_pool``: coroutines beside one another, their limits, and plain functions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

from kafka.tasks import App, Cancel, Context, Retry, SoftTimeLimit
from kafka.tasks.pools.asyncio_pool import AsyncioPool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, JobCancelled, JobSucceeded, Outcome
from test.support.waiting import until
from test.tasks.pools.test_pools import DEADLINE_S, FAR_S, Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench("asyncio", 3)
    yield bench
    bench.pool.stop(0)
    until(lambda: not any(thread.name == "kafka-asyncio" for thread in threading.enumerate()))


def submit(bench: Bench, *jobs: Job) -> None:
    for job in jobs:
        bench.pool.submit(job)


async def forever() -> None:
    await asyncio.Event().wait()


def fault_type(outcome: Outcome) -> str:
    assert isinstance(outcome, AttemptFailed)
    return outcome.error_info.type


def test_coroutines_run_beside_one_another_on_one_loop(bench: Bench) -> None:
    here: list[asyncio.AbstractEventLoop] = []
    all_here = asyncio.Event()

    async def meet(number: int) -> int:
        here.append(asyncio.get_running_loop())
        if len(here) == 3:
            all_here.set()
        await all_here.wait()
        return number

    jobs = [bench.job(meet, n) for n in range(3)]
    submit(bench, *jobs)
    found = bench.outcomes(3)
    assert [found[job] for job in jobs] == [JobSucceeded(b"0"), JobSucceeded(b"1"), JobSucceeded(b"2")]
    assert len(set(here)) == 1
    assert all(job.ran_s > 0 for job in jobs)


def test_no_more_run_at_once_than_there_are_slots(bench: Bench) -> None:
    bench.pool.set_depth(20)
    running, most = 0, 0

    async def count() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        while most < 3:  # the first ones stay until all slots are taken, however slowly the others are handed over
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        running -= 1

    submit(bench, *(bench.job(count) for _ in range(20)))
    bench.outcomes(20)
    assert most == 3
    assert bench.pool.free_slots == 20


def test_the_soft_limit_cancels_the_coroutine_and_is_a_failure_that_a_policy_can_list(bench: Bench) -> None:
    job = bench.job(forever, soft_timeout=0.02, retry=Retry(on=(SoftTimeLimit,)))
    submit(bench, job)
    outcome = bench.outcomes(1)[job]
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed) == ("kafka.tasks.errors.SoftTimeLimit", True)
    assert bench.pool.statistics()["soft_limits"] == 1


def test_a_coroutine_may_clean_up_at_its_soft_limit_and_end_well(bench: Bench) -> None:
    async def tidy() -> str:
        try:
            await forever()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
            return "tidied"
        return "never"

    job = bench.job(tidy, soft_timeout=0.02)
    submit(bench, job)
    assert bench.outcomes(1)[job] == JobSucceeded(b'"tidied"')


def test_a_cancellation_of_the_tasks_own_is_no_time_limit(bench: Bench) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    job = bench.job(give_up, soft_timeout=DEADLINE_S)
    submit(bench, job)
    assert fault_type(bench.outcomes(1)[job]).endswith("CancelledError")


def test_at_the_hard_limit_the_job_ends_and_its_slot_is_free_though_the_coroutine_goes_on(bench: Bench) -> None:
    outcomes: list[object] = []
    bench.app.success_handler(lambda job: outcomes.append(job.name))
    bench.app.error_handler(lambda *seen: outcomes.append(seen))
    ends = asyncio.Event()

    async def stubborn() -> str:
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    async def end_it() -> None:
        ends.set()

    jobs = [bench.job(stubborn, timeout=0.05) for _ in range(3)]
    submit(bench, *jobs)
    found = bench.outcomes(3)
    assert [fault_type(found[job]) for job in jobs] == ["TimeLimit"] * 3
    assert not any(outcome.handlers_called for outcome in found.values() if isinstance(outcome, AttemptFailed))
    assert all(job.cancelled for job in jobs)
    last = bench.job(end_it)
    submit(bench, last)
    assert bench.outcomes(1) == {last: JobSucceeded(b"null")}
    until(lambda: all(job.ran_s > 0.05 for job in jobs))
    assert outcomes == [last.task.name]  # of the others the worker tells, at their limit
    assert bench.pool.statistics()["hard_limits"] == 3
    assert bench.pool.finished() == []


def test_a_coroutine_that_blocks_the_loop_still_ends_at_its_hard_limit_for_the_outside(bench: Bench) -> None:
    gate = threading.Event()

    async def block() -> None:
        gate.wait(DEADLINE_S)

    job = bench.job(block, timeout=0.05)
    submit(bench, job)
    assert fault_type(bench.outcomes(1)[job]) == "TimeLimit"
    gate.set()


def test_a_job_behind_a_slow_one_has_its_limit_from_its_own_start(bench: Bench) -> None:
    bench.pool.set_depth(4)

    ends = asyncio.Event()

    async def slow() -> None:
        await ends.wait()

    async def quick() -> int:
        return 1

    first = [bench.job(slow) for _ in range(3)]
    last = bench.job(quick, timeout=FAR_S)
    submit(bench, *first, last)
    until(lambda: all(job.started_at is not None for job in first))
    bench.pool.tick(time.monotonic() + FAR_S)
    assert isinstance(bench.pool, AsyncioPool)
    bench.pool._loop.call_soon_threadsafe(ends.set)
    assert bench.outcomes(4)[last] == JobSucceeded(b"1")


def test_interrupt_cancels_what_runs_and_says_so(bench: Bench) -> None:
    started = threading.Semaphore(0)

    async def wait() -> None:
        started.release()
        await forever()

    jobs = [bench.job(wait) for _ in range(2)]
    submit(bench, *jobs)
    for _ in jobs:
        assert started.acquire(timeout=DEADLINE_S)
    bench.pool.interrupt()
    found = bench.outcomes(2)
    assert {fault_type(found[job]) for job in jobs} == {"kafka.tasks.errors.SoftTimeLimit"}
    assert all(job.cancelled for job in jobs)


def test_a_cancelled_job_that_is_to_be_ended_is_cancelled_where_it_waits_and_no_other(bench: Bench) -> None:
    started = threading.Semaphore(0)

    async def wait() -> None:
        started.release()
        await forever()

    jobs = [bench.job(wait) for _ in range(2)]
    submit(bench, *jobs)
    for _ in jobs:
        assert started.acquire(timeout=DEADLINE_S)
    jobs[0].cancel()
    bench.pool.cancel(jobs[0])
    bench.pool.terminate(jobs[0])
    assert fault_type(bench.outcomes(1)[jobs[0]]) == "kafka.tasks.errors.SoftTimeLimit"
    assert not jobs[1].cancelled
    bench.pool.terminate(jobs[0])
    bench.pool.interrupt()
    assert list(bench.outcomes(1)) == [jobs[1]]


def test_a_coroutine_that_is_cancelled_before_its_first_step_frees_its_slot(bench: Bench) -> None:
    assert isinstance(bench.pool, AsyncioPool)
    loop = bench.pool._loop
    gate = threading.Event()
    loop.call_soon_threadsafe(gate.wait, DEADLINE_S)  # the job's task is made and cancelled in one turn behind this
    job = bench.job(forever)
    submit(bench, job)
    pool = bench.pool
    loop.call_soon_threadsafe(lambda: pool._running[job].limit())
    gate.set()
    assert fault_type(bench.outcomes(1)[job]) == "kafka.tasks.errors.SoftTimeLimit"
    assert bench.pool.statistics()["busy"] == 0
    again = bench.job(lambda: 1)
    submit(bench, again)
    assert bench.outcomes(1) == {again: JobSucceeded(b"1")}


def test_what_is_abandoned_has_no_outcome_any_more(bench: Bench) -> None:
    started = threading.Event()

    async def wait() -> None:
        started.set()
        await forever()

    job = bench.job(wait)
    submit(bench, job)
    assert started.wait(DEADLINE_S)
    assert bench.pool.abandon() == [job]
    bench.pool.interrupt()
    bench.pool.stop(0)
    assert bench.pool.finished() == []


def test_a_stop_cancels_what_runs_and_closes_the_loop(bench: Bench) -> None:
    cleaned = threading.Event()
    started = threading.Event()

    async def wait() -> None:
        started.set()
        try:
            await forever()
        finally:
            cleaned.set()

    job = bench.job(wait)
    submit(bench, job)
    assert started.wait(DEADLINE_S)
    assert bench.pool.stop(0) == [job]
    assert cleaned.wait(DEADLINE_S)
    wakes = bench.wakes
    assert bench.pool.stop(0) == []
    assert bench.wakes == wakes


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_no_exception_of_a_coroutine_ends_the_loop(bench: Bench, error: type[BaseException]) -> None:
    async def bad() -> None:
        await asyncio.sleep(0)
        raise error

    async def good() -> int:
        return 1

    first, second = bench.job(bad), bench.job(good)
    submit(bench, first)
    assert fault_type(bench.outcomes(1)[first]) == error.__name__
    submit(bench, second)
    assert bench.outcomes(1) == {second: JobSucceeded(b"1")}


def test_a_task_that_stops_the_event_loop_ends_no_other(bench: Bench) -> None:
    stopped = threading.Event()

    async def stops() -> None:
        asyncio.get_running_loop().stop()
        stopped.set()

    async def waits() -> int:
        while not stopped.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        return 1

    first, second, third = bench.job(waits), bench.job(stops), bench.job(waits)
    submit(bench, first, second)
    assert bench.outcomes(2) == {first: JobSucceeded(b"1"), second: JobSucceeded(b"null")}
    submit(bench, third)
    assert bench.outcomes(1) == {third: JobSucceeded(b"1")}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_no_exit_of_what_a_coroutine_has_started_ends_the_loop(bench: Bench, error: type[BaseException]) -> None:
    async def part() -> None:
        raise error

    async def whole() -> None:
        await asyncio.gather(part())

    async def good() -> int:
        return 1

    first, second = bench.job(whole), bench.job(good)
    submit(bench, first)
    assert fault_type(bench.outcomes(1)[first]) == error.__name__
    submit(bench, second)
    assert bench.outcomes(1) == {second: JobSucceeded(b"1")}


def test_a_plain_function_runs_in_a_thread_of_its_own_and_blocks_no_coroutine(bench: Bench) -> None:
    gate = threading.Event()
    plain = bench.job(lambda: gate.wait(DEADLINE_S))

    async def open_it() -> None:
        gate.set()

    opener = bench.job(open_it)
    submit(bench, plain, opener)
    assert bench.outcomes(2)[plain] == JobSucceeded(b"true")


def test_a_plain_function_sees_its_soft_limit_in_its_context(bench: Bench) -> None:
    def polite(ctx: Context) -> str:
        until(lambda: ctx.cancelled)
        return "ended"

    job = bench.job(polite, bind=True, soft_timeout=0.02)
    submit(bench, job)
    assert bench.outcomes(1)[job] == JobSucceeded(b'"ended"')


def test_a_plain_function_that_does_not_end_is_let_go_at_its_hard_limit(bench: Bench) -> None:
    gate = threading.Event()
    job = bench.job(gate.wait, DEADLINE_S, timeout=0.05)
    submit(bench, job)
    assert fault_type(bench.outcomes(1)[job]) == "TimeLimit"
    gate.set()
    until(lambda: not any(thread.name == "kafka-task" for thread in threading.enumerate()))
    assert bench.pool.finished() == []


def test_a_coroutine_gets_its_context_and_may_cancel_its_job(bench: Bench) -> None:
    async def cancel(ctx: Context) -> None:
        raise Cancel(ctx.task_name)

    job = bench.job(cancel, bind=True)
    submit(bench, job)
    assert bench.outcomes(1)[job] == JobCancelled(job.task.name)


def test_more_slots_are_used_at_once_and_fewer_when_jobs_have_ended(bench: Bench) -> None:
    bench.pool.set_depth(10)
    submit(bench, *(bench.job(forever) for _ in range(5)))
    assert isinstance(bench.pool, AsyncioPool)
    pool = bench.pool
    until(lambda: len(pool._running) == 3)
    pool.grow(1)
    until(lambda: len(pool._running) == 4)
    pool.shrink(9)
    assert pool.concurrency == 1
    pool.recall()
    pool.interrupt()
    bench.outcomes(4)


def test_many_coroutines_are_handed_over_in_few_turns(bench: Bench) -> None:
    async def nothing() -> None: ...

    bench.pool.set_depth(1000)
    submit(bench, *(bench.job(nothing) for _ in range(500)))
    until(lambda: bench.wakes)
    bench.outcomes(500)
    assert bench.wakes < 400


def test_the_app_takes_coroutine_functions_as_tasks() -> None:
    app = App("shop")

    @app.task
    async def double(n: int) -> int:
        return 2 * n

    assert double.is_coroutine
    assert asyncio.run(double(4)) == 8

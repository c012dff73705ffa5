"""Jobs for later as their callers see them: delayed, cancelled in a race, retried, periodic."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kafka.tasks import CancelResult, Context, JobHandle, JobState, Retry
from test.conformance.test_tasks import Bench
from test.support import seeds
from test.support.waiting import until

RACES = 120
MANY_RACES = 10_000


@pytest.fixture
def bench(bootstrap: str, unique: Callable[[str], str]) -> Iterator[Bench]:
    made = Bench(bootstrap, unique("later"))
    yield made
    made.close()


def race(bench: Bench, count: int) -> None:
    """Cancel so many jobs at about the time when they start; each answer is what all readers see afterwards."""
    ran: list[int] = []

    @bench.app.task(name="note")
    def note(number: int) -> int:
        ran.append(number)
        return number

    bench.work(concurrency=4)
    rng = seeds.rng("cancel against start")
    assert note.using(delay=0.05).delay(-1).result(60) == -1  # the schedule has an owner

    async def cancel(job: JobHandle[int], at: float, turns: asyncio.Semaphore) -> CancelResult:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        async with turns:
            return await job.cancel_async(timeout=60)

    async def cancel_all() -> tuple[list[JobHandle[int]], list[CancelResult]]:
        turns, jobs, cancels = asyncio.Semaphore(50), [], []
        for number in range(count):
            delay = 0.3 + rng.random()
            jobs.append(await note.using(delay=delay).delay_async(number))
            at = time.monotonic() + delay + rng.uniform(-0.05, 0.08)
            cancels.append(asyncio.ensure_future(cancel(jobs[-1], at, turns)))
            if number % 100 == 99:
                await asyncio.sleep(0.5)
        return jobs, list(await asyncio.gather(*cancels))

    jobs, answers = asyncio.run(cancel_all())
    assert set(answers) == {CancelResult.CANCELLED, CancelResult.TOO_LATE}
    other = bench.another()
    for number, (job, answer) in enumerate(zip(jobs, answers, strict=True)):
        end = JobState.REVOKED if answer is CancelResult.CANCELLED else JobState.SUCCESS
        assert job.status() is end
        if number % 10 == 0:
            assert other.job(job.id).status() is end, "also from a bare id, elsewhere"
        assert answer or number in ran
    assert len(ran) == len(set(ran))


def test_races_of_cancel_and_start_have_one_true_answer_each(bench: Bench) -> None:
    race(bench, RACES)


@pytest.mark.deep("minutes; kept by the same test with fewer jobs")
@pytest.mark.timeout(1200)
def test_ten_thousand_races_of_cancel_and_start_have_one_true_answer_each(bench: Bench) -> None:
    race(bench, MANY_RACES)


def test_a_running_job_learns_of_its_end_within_two_seconds(bench: Bench) -> None:
    began, ended = threading.Event(), threading.Event()

    @bench.app.task(name="wait", bind=True)
    def wait(ctx: Context) -> None:
        began.set()
        until(lambda: ctx.cancelled, "ctx.cancelled")
        ended.set()

    bench.work(concurrency=1)
    job = wait.delay()
    assert began.wait(60)
    asked_at = time.monotonic()
    assert job.cancel() is CancelResult.CANCELLED
    assert ended.wait(10)
    assert time.monotonic() - asked_at < 2.0
    assert job.status() is JobState.REVOKED


def test_a_job_is_scheduled_for_every_reader_until_its_time_and_found_afterwards(bench: Bench) -> None:
    @bench.app.task(name="note")
    def note(number: int) -> int:
        return number

    bench.work(concurrency=1)
    assert note.using(delay=0.05).delay(0).result(60) == 0  # the schedule has an owner
    job, other = note.using(delay=4.0).delay(1), bench.another()
    bare = other.job(job.id)
    until(lambda: bare.status() is JobState.SCHEDULED, "the schedule has it")
    due_at = bare.due_at()
    assert due_at is not None
    assert due_at == job.due_at()
    assert (job.result(60), bare.result(60)) == (1, 1)
    appended = [record for record in bench.records(f"{bench.app.name}.results") if record.key == job.id.encode()]
    assert min(record.timestamp for record in appended) >= due_at.timestamp() * 1000, "never early"


def test_retries_with_back_off_go_through_the_schedule(bench: Bench) -> None:
    attempts: list[tuple[int, float]] = []

    @bench.app.task(name="flaky", bind=True, retry=Retry(max_attempts=3, backoff=lambda n: 0.3 * n, jitter=False))
    def flaky(ctx: Context) -> str:
        attempts.append((ctx.attempt, time.monotonic()))
        if ctx.attempt < 3:
            raise OSError("disk")
        return "done"

    bench.work(concurrency=1)
    assert flaky.delay().result(60) == "done"
    assert [attempt for attempt, _ in attempts] == [1, 2, 3]
    pauses = [later - earlier for (_, earlier), (_, later) in zip(attempts, attempts[1:], strict=False)]
    assert pauses[0] >= 0.29
    assert pauses[1] >= 0.59


def test_a_periodic_job_is_added_run_paused_and_removed(bench: Bench) -> None:
    @bench.app.task(name="tick")
    def tick() -> str:
        return "tick"

    bench.work(concurrency=1)
    schedule = bench.app.schedule
    assert schedule.add("often", tick, every=1, timeout=60) is not None
    until(lambda: len(ended(bench)) >= 2, "two times have come")
    schedule.pause("often")
    assert schedule.run_now("often").result(30) == "tick"
    (entry,) = schedule.list()
    assert (entry.name, entry.is_paused, entry.next) == ("often", True, None)
    schedule.remove("often")
    assert schedule.list() == []
    assert len(set(ended(bench))) == len(ended(bench))


def ended(bench: Bench) -> list[bytes]:
    """The ids of jobs that have ended."""
    return [record.key for record in bench.records(f"{bench.app.name}.results") if record.value == b'"tick"']

"""Tests of ``kafka.tasks.enqueued_jobs``: a run has succeeded when what it enqueued has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kafka.errors import KafkaTimeoutError
from kafka.tasks import App
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.enqueued_jobs import PRUNE_EVERY, EnqueuedJobs
from kafka.tasks.pools.runner import Job, run, run_async
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded, Outcome
from kafka.tasks.task import Task
from test.tasks.fakes import FakeBackend, FakeSent, a_job


def job_of(task: Task[..., Any]) -> Job:
    return Job(JobLease(JobSource("q", "shop.q"), b"", [], 1), a_job(task.name), task)


def ran(job: Job, how: str) -> Outcome:
    return run(job) if how == "thread" else asyncio.run(run_async(job, lambda: None))


@pytest.mark.parametrize("how", ["thread", "coroutine"])
def test_a_run_waits_for_what_it_has_enqueued(app: App, backend: FakeBackend, how: str) -> None:
    other = app.task(name="other")(lambda: None)

    async def coroutine() -> None:
        other.delay()
        await asyncio.sleep(0)
        other.delay()

    def function() -> None:
        other.delay()
        other.delay()

    job = job_of(app.task(name="f")(function if how == "thread" else coroutine))
    assert backend.flushes == 0
    assert isinstance(ran(job, how), JobSucceeded)
    assert backend.flushes == 1


@pytest.mark.parametrize("how", ["thread", "coroutine"])
def test_a_job_that_cannot_be_enqueued_is_the_error_of_the_run(app: App, backend: FakeBackend, how: str) -> None:
    other = app.task(name="other")(lambda: None)
    backend.next_sent = FakeSent(exception=KafkaTimeoutError("no broker"))

    async def coroutine() -> None:
        other.delay()

    job = job_of(app.task(name="f")(other.delay if how == "thread" else coroutine))
    outcome = ran(job, how)
    assert isinstance(outcome, AttemptFailed)
    assert outcome.error_info.type.endswith("KafkaTimeoutError") and "no broker" in outcome.error_info.text


def test_a_run_that_enqueues_nothing_or_fails_waits_for_nothing(app: App, backend: FakeBackend) -> None:
    other = app.task(name="other")(lambda: None)

    def fails() -> None:
        other.delay()
        raise ValueError

    assert isinstance(run(job_of(app.task(name="nothing")(lambda: 1))), JobSucceeded)
    assert isinstance(run(job_of(app.task(name="fails")(fails))), AttemptFailed)
    other.delay()  # nobody's run
    assert isinstance(run(job_of(app.task(name="again")(lambda: 1))), JobSucceeded)
    assert backend.flushes == 0


def test_the_limit_of_the_run_holds_while_it_waits(app: App, backend: FakeBackend) -> None:
    seen: list[str] = []

    class Window:
        disarm: Callable[[int], object] = abs

        def open(self) -> None:
            seen.append("open")

        def function_ended(self, error: BaseException | None) -> None:
            seen.append("ended")

        def close(self) -> None:
            seen.append("closed")

    backend.flush = lambda timeout: seen.append("flushed")  # type: ignore[method-assign]
    other = app.task(name="other")(lambda: None)
    run(job_of(app.task(name="f", store_result=False)(other.delay)), Window())
    assert seen == ["open", "ended", "flushed", "closed"]


def test_a_run_that_enqueues_millions_keeps_those_that_are_on_their_way(app: App, backend: FakeBackend) -> None:
    other = app.task(name="other")(lambda: None)
    enqueued = EnqueuedJobs()
    try:
        lost = backend.next_sent = FakeSent(is_done=False)
        for _ in range(5 * PRUNE_EVERY):
            other.delay()
        assert len(enqueued) <= PRUNE_EVERY + 1
        lost.is_done, lost.exception = True, KafkaTimeoutError("gone")
        with pytest.raises(KafkaTimeoutError, match="gone"):
            enqueued.wait_sent()
    finally:
        enqueued.end()

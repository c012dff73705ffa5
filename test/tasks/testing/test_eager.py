"""Tests of ``app.eager()``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from kafka.errors import IllegalStateError
from kafka.tasks import App, JobFailed, JobState, JobTimeout, Retry, Snooze, expo
from kafka.tasks.testing import eager

WAIT_S = 20.0


@pytest.fixture
def app() -> App:
    """An app whose brokers nothing must reach."""
    return App("shop", bootstrap_servers="127.0.0.1:1")


def test_delay_runs_the_job_with_all_its_attempts_and_takes_no_time(app: App) -> None:
    attempts: list[int] = []
    policy = Retry(max_attempts=3, on=(OSError,), backoff=expo(first=900))

    @app.task(retry=policy)
    def fail_twice(number: int) -> object:
        attempts.append(number)
        if len(attempts) == 1:
            return Snooze(3600)
        if len(attempts) < 4:
            raise OSError("disk")
        return {"number": (number,)}

    with app.eager():
        job = fail_twice.delay(7)
        assert (job.status(), job.result(), attempts) == (JobState.SUCCESS, {"number": (7,)}, [7] * 4)


def test_an_error_is_kept_for_the_handle(app: App) -> None:
    @app.task
    def divide(a: int, b: int) -> float:
        return a / b

    with app.eager():
        job = divide.delay(1, 0)
        with pytest.raises(JobFailed, match="ZeroDivisionError: division by zero"):
            job.result()


def test_what_a_job_enqueues_runs_after_it_and_before_delay_returns(app: App) -> None:
    order: list[str] = []

    @app.task
    def inner() -> None:
        order.append("inner")

    @app.task
    def outer() -> str:
        job = inner.delay()
        with pytest.raises(JobTimeout, match="it runs when the job that enqueued it has ended"):
            job.result()
        order.append("outer")
        return job.id

    with app.eager():
        job = outer.delay()
        order.append("returned")
        assert app.job(job.result()).status() is JobState.SUCCESS
    assert order == ["outer", "inner", "returned"]


def test_what_has_no_result_is_not_waited_for(app: App) -> None:
    @app.task(store_result=False)
    def nothing() -> None: ...

    with app.eager():
        job = app.job(nothing.delay().id)
        with pytest.raises(JobTimeout, match="has no result: it has store_result=False, or was not enqueued here"):
            job.result()


def test_tasks_of_a_console_are_accepted(app: App) -> None:
    def double(number: int) -> int:
        return 2 * number

    double.__module__ = "__main__"
    task = app.task(name="double")(double)
    with app.eager():
        assert task.delay(4).result() == 8
    with pytest.raises(Exception, match="__main__"):
        task.delay(4)


def test_it_holds_until_it_is_closed(app: App) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    eager_jobs = app.eager()
    assert (double.delay(1).result(), app.is_in_process) == (2, True)
    eager_jobs.close()
    eager_jobs.close()
    assert not app.is_in_process


def test_jobs_without_end_are_an_error(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "MOST_RUNS", 30)

    @app.task(name="again")
    def again() -> Snooze:
        return Snooze(1)

    with app.eager(), pytest.raises(IllegalStateError, match="more than 30 jobs have run, the last one") as caught:
        again.delay()
    assert str(caught.value).endswith("of task again: it seems that jobs enqueue others, snooze or retry without end")


@pytest.mark.filterwarnings("error")
def test_a_coroutine_is_refused_where_an_event_loop_runs(app: App) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    @app.task
    def plain() -> str:
        return "plain"

    async def main() -> int:
        with pytest.raises(IllegalStateError, match="double is an async def task, which app.eager.. cannot run where"):
            double.delay(4)
        assert plain.delay().result() == "plain"
        return (await asyncio.to_thread(double.delay, 4)).result()

    with app.eager():
        assert asyncio.run(main()) == 8
        assert double.delay(5).result() == 10


@pytest.mark.filterwarnings("error")
def test_a_hidden_coroutine_where_an_event_loop_runs_is_a_failure_in_one_line(app: App) -> None:
    async def nothing() -> None: ...

    @app.task
    def hidden() -> Coroutine[Any, Any, None]:
        return nothing()

    async def main() -> None:
        with pytest.raises(JobFailed, match="the coroutine .*nothing cannot run in a thread whose event loop runs"):
            hidden.delay().result()

    with app.eager():
        asyncio.run(main())


def test_a_job_may_wait_for_a_thread_that_enqueues(app: App) -> None:
    runs: list[str] = []

    @app.task
    def inner() -> None:
        runs.append("inner")

    @app.task
    def outer() -> bool:
        thread = threading.Thread(target=inner.delay, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        runs.append("outer")
        return thread.is_alive()

    with app.eager():
        assert outer.delay().result() is False
    assert runs == ["outer", "inner"]


def test_a_job_of_a_second_thread_is_run_by_the_first_and_waited_for(app: App) -> None:
    entered, enqueued = threading.Event(), threading.Event()
    runs: list[int] = []
    results: list[int] = []

    @app.task
    def hold() -> None:
        entered.set()
        assert enqueued.wait(WAIT_S)

    @app.task
    def note() -> int:
        runs.append(threading.get_ident())
        return 5

    def second() -> None:
        assert entered.wait(WAIT_S)
        job = note.delay()
        enqueued.set()
        results.append(job.result())

    with app.eager():
        thread = threading.Thread(target=second)
        thread.start()
        hold.delay()
        thread.join(WAIT_S)
    assert (results, len(runs)) == ([5], 1)

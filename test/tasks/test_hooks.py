"""Tests of ``kafka.tasks.hooks``: what handlers are told where the job ran. Killed jobs: ``test_worker_pools.py``."""

from __future__ import annotations

import asyncio
import pickle
from datetime import date
from typing import Any

import pytest

from kafka.tasks import App, Cancel, FinishedJob, Retry, Task, WorkerLost
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.payload import encode_call
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.pools.runner import Job, run, run_async
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded
from test.tasks.fakes import a_job


class Recorder:
    """An app whose handlers write down what they are told."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.successes: list[FinishedJob] = []
        self.errors: list[tuple[FinishedJob, int | None, Any]] = []
        self.app.success_handler(self.successes.append)
        self.app.error_handler(lambda job, kill_signal, exc_info: self.errors.append((job, kill_signal, exc_info)))

    def job(self, function: Any, *args: Any, **options: Any) -> Job:
        declare: Any = self.app.task(name="f", **options)
        task: Task[..., Any] = declare(function)
        return Job(JobLease(JobSource("q", "shop.q"), b"", [], 2), a_job("f", *args, attempt=3), task)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def test_success_handlers_run_where_the_job_ran(recorder: Recorder) -> None:
    job = recorder.job(lambda n: n, 5)
    assert run(job) == JobSucceeded(b"5")
    assert recorder.successes == [FinishedJob(job.envelope.id, "f", 3, 2, [5], {})]
    assert recorder.errors == []


def test_an_error_is_reported_with_its_traceback_also_when_another_attempt_follows(recorder: Recorder) -> None:
    def bad() -> None:
        raise OSError("disk")

    outcome = run(recorder.job(bad, retry=Retry()))
    assert isinstance(outcome, AttemptFailed)
    ((job, kill_signal, (kind, error, trace)),) = recorder.errors
    assert (job.name, kill_signal, kind, str(error)) == ("f", None, OSError, "disk")
    assert trace is error.__traceback__ is not None


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_tries_to_end_the_process_is_reported_as_an_error(recorder: Recorder, error: type[BaseException]) -> None:
    def bad() -> None:
        raise error

    run(recorder.job(bad))
    assert recorder.errors[0][2][0] is error


def test_arguments_that_cannot_be_read_are_an_error_without_them(recorder: Recorder) -> None:
    job = recorder.job(lambda: 1)
    job.envelope.value = b"\xff"
    run(job)
    ((seen, _, (kind, _, _)),) = recorder.errors
    assert (seen.args, kind) == (None, BadRecord)


def test_a_cancelled_job_is_neither_a_success_nor_an_error(recorder: Recorder) -> None:
    run(recorder.job(lambda: Cancel("no")))
    assert (recorder.successes, recorder.errors) == ([], [])


def test_coroutines_have_the_same_handlers(recorder: Recorder) -> None:
    async def f(n: int) -> int:
        if n:
            raise ValueError(n)
        return n

    asyncio.run(run_async(recorder.job(f, 0), lambda: None))
    asyncio.run(run_async(recorder.job(f, 1), lambda: None))
    assert (len(recorder.successes), len(recorder.errors)) == (1, 1)


@pytest.mark.parametrize("error", [ValueError("mail server"), SystemExit(3)])
def test_a_handler_that_fails_changes_nothing_and_the_next_one_is_called(
    recorder: Recorder, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    later: list[FinishedJob] = []

    @recorder.app.success_handler
    def bad(job: FinishedJob) -> None:
        raise error

    recorder.app.success_handler(later.append)
    assert run(recorder.job(lambda: 1)) == JobSucceeded(b"1")
    assert len(recorder.successes) == len(later) == 1
    assert "failed for job" in caplog.text


def test_the_error_handlers_task_calls_no_success_handler(recorder: Recorder) -> None:
    task = recorder.app.tasks[ERROR_TASK]
    lost = {"cause": "oom", "text": "gone", "signal": 9, "exit_code": None, "rss_bytes": 7}
    envelope = a_job(ERROR_TASK, "1" * 32, "f", 1, 2, encode_call("f", (date(2026, 1, 2),), {}), None, lost)
    assert isinstance(run(Job(JobLease(JobSource("", ""), b"", [], 1), envelope, task)), JobSucceeded)
    ((seen, kill_signal, (kind, error, _)),) = recorder.errors
    assert seen == FinishedJob("1" * 32, "f", 1, 2, [date(2026, 1, 2)], {})
    assert (kill_signal, kind) == (9, WorkerLost)
    assert (error.cause, error.exit_code, error.rss_bytes) == ("oom", None, 7)
    assert recorder.successes == []


def test_a_lost_worker_keeps_its_fields_over_a_pickle() -> None:
    error = pickle.loads(pickle.dumps(WorkerLost("gone", "exit", None, 3, 7)))
    assert (str(error), error.cause, error.exit_code, error.rss_bytes) == (str(WorkerLost("gone")), "exit", 3, 7)
    assert pickle.loads(pickle.dumps(WorkerLost("gone", peak_rss_bytes=9))).peak_rss_bytes == 9
    of_an_older_release = WorkerLost, ("gone", "exit", None, 3, 7)
    assert of_an_older_release[0](*of_an_older_release[1]).peak_rss_bytes is None

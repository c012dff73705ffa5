"""Tests of ``kafka.tasks.job``."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, JobFailed, JobHandle, JobRevoked, JobState, JobTimeout, JobUnknown, NoResult, Task
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, error_value, reason_value
from kafka.tasks.rules.outcome import ErrorInfo
from test.tasks.fakes import FakeBackend, FakeSent


@pytest.fixture
def job(app: App, backend: FakeBackend) -> JobHandle[int]:
    @app.task
    def f() -> int:
        return 1

    return f.delay()


def write(backend: FakeBackend, job_id: str, state: JobState, value: bytes = b"") -> None:
    backend.send_state(StateRecord(job_id, state, value=value))


def test_the_handle_that_enqueued_a_job_knows_that_it_is_queued(app: App, job: JobHandle[int]) -> None:
    assert job.status() is JobState.QUEUED
    assert app.job(job.id).status() is JobState.UNKNOWN


def test_a_result_is_what_the_task_returned(app: App, backend: FakeBackend, job: JobHandle[int]) -> None:
    write(backend, job.id, JobState.SUCCESS, b"42")
    assert job.result(timeout=1) == 42
    assert app.job(job.id).result() == 42
    assert job.wait(0)
    assert job.status() is JobState.SUCCESS


def test_a_failure_has_type_text_traceback_and_host(backend: FakeBackend, job: JobHandle[int]) -> None:
    write(backend, job.id, JobState.FAILURE, error_value(ErrorInfo("OSError", "disk full", "Trace"), "host1", 5))
    with pytest.raises(JobFailed, match="OSError: disk full") as caught:
        job.result()
    error = caught.value
    assert (error.type, error.text, error.traceback, error.host) == ("OSError", "disk full", "Trace", "host1")
    assert error.job_id == job.id


def test_a_failure_that_nobody_catches_shows_where_it_was_raised(
    backend: FakeBackend, job: JobHandle[int]
) -> None:
    trace = 'Traceback (most recent call last):\n  File "jobs.py", line 3, in f\nOSError: disk full\n'
    write(backend, job.id, JobState.FAILURE, error_value(ErrorInfo("OSError", "disk full", trace), "host1", 5))
    with pytest.raises(JobFailed) as caught:
        job.result()
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        shown = "".join(traceback.format_exception(error))
        assert f'RemoteTraceback: \n"""\n{trace}"""\n' in shown
        assert shown.endswith("JobFailed: OSError: disk full\n")
    assert JobFailed("OSError").__cause__ is None


def test_a_revoked_job_says_why(backend: FakeBackend, job: JobHandle[int]) -> None:
    write(backend, job.id, JobState.REVOKED, reason_value("expired", "h"))
    with pytest.raises(JobRevoked, match="expired"):
        job.result()


def test_a_job_that_has_not_ended_in_time_is_a_timeout(backend: FakeBackend, job: JobHandle[int]) -> None:
    with pytest.raises(JobTimeout, match="QUEUED at "):
        job.result(timeout=0)
    write(backend, job.id, JobState.STARTED)
    with pytest.raises(TimeoutError, match="STARTED"):
        job.result(timeout=0)
    assert not job.wait(0)


def test_a_bare_id_without_a_record_may_still_wait_in_its_queue(app: App, backend: FakeBackend) -> None:
    with pytest.raises(JobUnknown, match="no record of job .* yet: it is queued or running") as caught:
        app.job(backend.new_id()).result(timeout=0)
    assert "track_queued=True" in str(caught.value)
    assert "expired" not in str(caught.value)


@pytest.mark.parametrize("option", ["task", "call", "app", "name"])
def test_a_job_that_stores_no_result_is_not_waited_for(app: App, backend: FakeBackend, option: str) -> None:
    if option == "app":
        app = App("quiet", bootstrap_servers="fake://", store_result=False)
    declare: Any = app.task(store_result=False) if option in ("task", "name") else app.task
    task: Task[..., Any] = declare(_nothing)
    job: JobHandle[Any]
    if option == "name":
        job = app.send(task.name)
    else:
        job = task.using(store_result=False).delay() if option == "call" else task.delay()
    for wait in (job.result, job.wait):
        with pytest.raises(NoResult, match="has store_result=False, by its task or the call"):
            wait()
    assert backend.waits == []
    assert job.status() is JobState.QUEUED


def test_a_call_may_want_the_result_that_its_task_does_not_store(app: App, backend: FakeBackend) -> None:
    declare: Any = app.task(store_result=False)
    task: Task[..., Any] = declare(_nothing)
    for job in (task.using(store_result=True).delay(), app.send(task.name, store_result=True)):
        write(backend, job.id, JobState.SUCCESS, b"null")
        assert job.result(0) is None


def _nothing() -> None:
    """A task."""


def test_an_id_older_than_results_are_kept_is_not_waited_for(app: App, backend: FakeBackend) -> None:
    old = make_id(backend.clock.now_ms() - 2 * 86_400_000, 3, b"\0" * 8)
    with pytest.raises(JobUnknown, match="its result has expired"):
        app.job(old).result()
    assert backend.waits == []


def test_a_job_that_could_not_be_enqueued_raises_the_producers_error(app: App, backend: FakeBackend) -> None:
    @app.task
    def f() -> None: ...

    backend.next_sent = FakeSent(OSError("refused"))
    job = f.delay()
    for ask in (job.status, job.result, job.wait):
        with pytest.raises(OSError, match="refused"):
            ask()


def test_waiting_ends_when_the_job_turns_out_not_to_be_enqueued(app: App, backend: FakeBackend) -> None:
    @app.task
    def f() -> None: ...

    backend.next_sent = sent = FakeSent(is_done=False)

    def fail() -> None:
        sent.is_done, sent.exception = True, OSError("timed out")

    backend.on_wait = fail
    with pytest.raises(OSError, match="timed out"):
        f.delay().result()


@pytest.mark.parametrize("text", ["", "42", "g" * 32])
def test_what_is_no_id_is_refused(app: App, text: str) -> None:
    with pytest.raises(IllegalArgumentError):
        app.job(text)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True])
def test_a_timeout_that_cannot_be_is_refused(app: App, job: JobHandle[int], timeout: Any) -> None:
    waits: list[Callable[[Any], object]] = [job.result, job.wait, app.flush, app.batch, app.close]
    for wait in waits:
        with pytest.raises(IllegalArgumentError, match="timeout must be a number of seconds, at least 0, a timedelta"):
            wait(timeout)


@pytest.mark.parametrize("timeout", [None, timedelta(seconds=1), 1e300, float("inf"), 2])
def test_a_timeout_may_be_a_timedelta_or_without_end(
    app: App, backend: FakeBackend, job: JobHandle[int], timeout: Any
) -> None:
    write(backend, job.id, JobState.SUCCESS, b"42")
    assert job.result(timeout) == 42
    assert job.wait(timeout)
    app.flush(timeout)

"""Tests of ``kafka.tasks.job``."""

from __future__ import annotations

import asyncio
import pickle
import threading
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from kafka.errors import (
    IllegalArgumentError,
    KafkaTimeoutError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
)
from kafka.tasks import (
    App,
    JobFailed,
    JobHandle,
    JobRevoked,
    JobState,
    JobTimeout,
    JobUnknown,
    NoResult,
    Task,
    UnknownApp,
)
from kafka.tasks.errors import counted
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
    with pytest.raises(JobTimeout, match="QUEUED at .*, and the job stays enqueued$"):
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
    assert backend.waiters == {}
    assert job.status() is JobState.QUEUED


def test_a_call_may_want_the_result_that_its_task_does_not_store(app: App, backend: FakeBackend) -> None:
    declare: Any = app.task(store_result=False)
    task: Task[..., Any] = declare(_nothing)
    for job in (task.using(store_result=True).delay(), app.send(task.name, store_result=True)):
        write(backend, job.id, JobState.SUCCESS, b"null")
        assert job.result(0) is None


def _nothing() -> None:
    """A task."""


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_thread_that_waits_is_called_back(backend: FakeBackend, job: JobHandle[int], is_asked_for: bool) -> None:
    def end() -> None:
        backend.on_wait = lambda: None
        write(backend, job.id, JobState.SUCCESS, b"42")
        backend.wake(job.id, None if is_asked_for else backend.known(job.id))

    backend.on_wait = lambda: threading.Timer(0.01, end).start()
    assert job.result() == 42
    assert not any(backend.waiters.values())


def test_an_id_older_than_results_are_kept_is_not_waited_for(app: App, backend: FakeBackend) -> None:
    old = make_id(backend.clock.now_ms() - 2 * 86_400_000, 3, b"\0" * 8)
    with pytest.raises(JobUnknown, match="its result has expired"):
        app.job(old).result()
    assert not any(backend.waiters.values())


def test_a_job_that_could_not_be_enqueued_raises_the_producers_error(app: App, backend: FakeBackend) -> None:
    @app.task
    def f() -> None: ...

    backend.next_sent = FakeSent(OSError("refused"))
    job = f.delay()
    for ask in (job.result, job.wait):
        with pytest.raises(OSError, match="refused"):
            ask()
    assert job.status() is JobState.FAILURE
    assert isinstance(job.enqueue_error, OSError)


def test_a_job_is_pending_until_the_broker_has_acknowledged_it(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f")(lambda: None)
    backend.next_sent = sent = FakeSent(is_done=False)
    job = f.delay()
    backend.error = KafkaTimeoutError("no broker is asked about it")
    assert job.status() is JobState.PENDING
    assert not job.has_arrived
    backend.error = None
    with pytest.raises(JobTimeout, match="its state is PENDING at fake://"):
        job.result(0)
    sent.is_done = True
    assert job.status() is JobState.QUEUED
    assert job.has_arrived


@pytest.mark.parametrize("exception", [None, KafkaTimeoutError("no answer")])
def test_a_job_whose_acknowledgement_is_late_or_lost_has_the_state_of_its_record(
    app: App, backend: FakeBackend, exception: BaseException | None
) -> None:
    f = app.task(name="f")(lambda: None)
    backend.next_sent = FakeSent(exception, is_done=exception is not None)
    job = f.delay()
    write(backend, job.id, JobState.SUCCESS, b"1")
    assert job.status() is JobState.SUCCESS


def test_waiting_ends_when_the_job_turns_out_not_to_be_enqueued(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f")(lambda: None)
    backend.next_sent = sent = FakeSent(is_done=False)
    backend.on_wait = lambda: sent.fail(OSError("timed out"))
    with pytest.raises(OSError, match="timed out"):
        f.delay().result()
    backend.next_sent = sent = FakeSent(is_done=False)
    backend.on_wait = lambda: threading.Timer(0.01, sent.fail, [OSError("refused")]).start()
    with pytest.raises(OSError, match="refused"):
        f.delay().result()
    assert not any(backend.waiters.values())


@pytest.mark.parametrize("error", [KafkaTimeoutError("no offsets"), RequestTimedOutError("ListOffsets v11: no answer")])
def test_what_the_brokers_do_not_answer_in_time_is_a_timeout_with_the_clients_error(
    app: App, backend: FakeBackend, error: Exception
) -> None:
    job = app.job(backend.new_id())
    backend.error = error
    asks: list[Callable[[], object]] = [job.result, job.wait, job.status, lambda: asyncio.run(job.result_async())]
    for ask in asks:
        with pytest.raises(JobTimeout, match=f"the brokers at fake:// did not say.*{error.args[0]}") as caught:
            ask()
        assert caught.value.__cause__ is error
        assert "\n" not in str(caught.value)
    with pytest.raises(JobTimeout, match="within 10 s where"):
        job.status()
    with pytest.raises(JobTimeout, match="within 3 s where"):
        job.result(timeout=3)
    assert not any(backend.waiters.values())


def test_other_errors_of_the_client_are_its_own(app: App, backend: FakeBackend) -> None:
    backend.error = TopicAuthorizationFailedError("shop.results")
    with pytest.raises(TopicAuthorizationFailedError):
        app.job(backend.new_id()).result(timeout=3)


# -- handles as values -------------------------------------------------------------------------------------------------


def test_handles_of_one_job_are_equal_and_have_one_hash(app: App, backend: FakeBackend, job: JobHandle[int]) -> None:
    other = app.job(job.id)
    assert job == other and hash(job) == hash(other)
    assert job != app.job(backend.new_id())
    assert job != job.id
    assert len({job, other}) == 1


def test_a_pickled_handle_finds_the_app_of_its_name(app: App, backend: FakeBackend, job: JobHandle[int]) -> None:
    write(backend, job.id, JobState.SUCCESS, b"42")
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert pickle.loads(pickle.dumps(copy)) == job, "without having been used"
    assert copy.result(1) == 42
    quiet = pickle.loads(pickle.dumps(app.task(store_result=False, name="quiet")(_nothing).delay()))
    with pytest.raises(NoResult):
        quiet.result()


def test_a_pickled_handle_of_an_app_that_is_not_here_says_so_when_it_is_used(job: JobHandle[int]) -> None:
    copy = pickle.loads(pickle.dumps(job).replace(b"shop", b"ship"))
    assert copy == job
    for use in (copy.status, copy.result):
        with pytest.raises(UnknownApp, match="of the app 'ship', which this process does not have") as caught:
            use()
        assert "import the module that makes it" in str(caught.value)


# -- coroutines --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_connected", [False, True])
@pytest.mark.parametrize("is_asked_for", [False, True])
def test_a_coroutine_awaits_a_result_while_its_loop_goes_on(
    backend: FakeBackend, job: JobHandle[int], is_connected: bool, is_asked_for: bool
) -> None:
    backend.is_connected = is_connected
    watched = threading.Event()
    backend.on_wait = watched.set

    async def end() -> None:
        await asyncio.to_thread(watched.wait, 10)
        write(backend, job.id, JobState.SUCCESS, b"42")
        record = None if is_asked_for else backend.known(job.id)
        threading.Thread(target=backend.wake, args=(job.id, record)).start()

    async def main() -> int:
        ending = asyncio.ensure_future(end())
        found = await job
        await ending
        return found

    assert asyncio.run(main()) == 42
    assert asyncio.run(job.wait_async())
    assert not any(backend.waiters.values())


def test_a_coroutine_waits_no_longer_than_it_says(backend: FakeBackend, job: JobHandle[int]) -> None:
    with pytest.raises(JobTimeout, match="its state is QUEUED"):
        asyncio.run(job.result_async(timeout=0))
    assert not asyncio.run(job.wait_async(timedelta(0)))
    assert not any(backend.waiters.values())


def test_a_coroutine_hears_of_a_job_that_could_not_be_enqueued(app: App, backend: FakeBackend) -> None:
    f = app.task(name="f")(lambda: None)
    backend.next_sent = sent = FakeSent(is_done=False)
    backend.on_wait = lambda: threading.Timer(0.01, sent.fail, [OSError("refused")]).start()
    with pytest.raises(OSError, match="refused"):
        asyncio.run(f.delay().result_async())


def test_a_coroutine_that_is_cancelled_while_a_thread_asks_leaves_nothing_behind(
    backend: FakeBackend, job: JobHandle[int]
) -> None:
    asking, go_on = threading.Event(), threading.Event()

    def on_watch() -> None:
        asking.set()
        go_on.wait(10)

    backend.on_wait = on_watch

    async def main() -> None:
        waiting = asyncio.ensure_future(job.result_async())
        await asyncio.to_thread(asking.wait, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        go_on.set()

    asyncio.run(main())  # it joins the threads of to_thread
    assert not any(backend.waiters.values())


def test_one_of_something_is_singular() -> None:
    assert [counted(number, "job") for number in range(3)] == ["0 jobs", "1 job", "2 jobs"]
    assert [counted(number, "child", "children") for number in (1, 2)] == ["1 child", "2 children"]


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

"""Tests of ``kafka.tasks.job``: handles of jobs that are to start later; cancelling and rescheduling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError, KafkaConfigurationError, TopicAuthorizationFailedError
from kafka.tasks import App, CancelResult, JobHandle, JobRevoked, JobState, JobTimeout, JobUnknown, Task
from kafka.tasks import job as job_module
from kafka.tasks import waiting as waiting_module
from kafka.tasks.format.commands import CANCEL, LOOK, RESCHEDULE, Command
from kafka.tasks.format.job_id import make_id, time_of
from kafka.tasks.format.records import StateRecord, reason_value
from test.tasks.fakes import FakeBackend, FakeSent

HOUR_MS = 3_600_000
DAY_MS = 86_400_000


class Owner:
    """Answers commands with what the test says, by kind; what is not there gets no answer."""

    def __init__(self, backend: FakeBackend) -> None:
        self.answers: dict[str, object] = {}
        self.asked: list[Command] = []
        self.on_command: Callable[[Command], object] = lambda command: None
        backend.owner = self._answer

    def _answer(self, command: Command) -> object | None:
        self.asked.append(command)
        self.on_command(command)
        return self.answers.get(command.kind)

    @property
    def kinds(self) -> list[str]:
        return [command.kind for command in self.asked]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no answer does not wait for one."""
    monkeypatch.setattr(waiting_module, "LEAST_ASK_S", 0.0)
    monkeypatch.setattr(job_module, "LOOK_S", 0.0)


@pytest.fixture
def owner(backend: FakeBackend) -> Owner:
    return Owner(backend)


@pytest.fixture
def task(app: App) -> Task[[], int]:
    @app.task(name="f")
    def f() -> int:
        return 1

    return f


@pytest.fixture
def job(task: Task[[], int]) -> JobHandle[int]:
    """Enqueued for an hour later."""
    return task.using(delay=3600).delay()


def revoked(reason: str = "cancelled") -> dict[str, object]:
    return {"state": "REVOKED", "due": None, "detail": {"reason": reason, "host": "h"}}


# -- where it is -------------------------------------------------------------------------------------------------------


def test_the_handle_that_enqueued_a_job_says_scheduled_until_its_time_has_come(
    backend: FakeBackend, owner: Owner, job: JobHandle[int]
) -> None:
    assert job.status() is JobState.SCHEDULED
    backend.clock_of_test.advance(3600)
    assert job.status() is JobState.QUEUED
    assert owner.asked == []


def test_a_bare_id_asks_the_owner_while_its_time_has_not_come(
    app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int]
) -> None:
    bare = app.job(job.id)
    assert bare.status() is JobState.SCHEDULED, "no owner answers"
    for answer, state in (
        ({"state": "SCHEDULED", "due": 5}, JobState.SCHEDULED),
        ({"state": "QUEUED", "due": backend.clock.now_ms()}, JobState.QUEUED),
        ({"state": None, "due": None}, JobState.UNKNOWN),
        ({}, JobState.UNKNOWN),
        ({"state": ["a list"], "due": "soon"}, JobState.UNKNOWN),
        (revoked(), JobState.REVOKED),
    ):
        owner.answers[LOOK] = answer
        assert bare.status() is state
    asked = len(owner.asked)
    assert bare.status() is JobState.REVOKED
    assert len(owner.asked) == asked, "it has ended, and that is known now"


def test_a_bare_id_whose_time_has_come_is_where_the_log_says(
    app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int]
) -> None:
    backend.clock_of_test.advance(3601)
    assert app.job(job.id).status() is JobState.UNKNOWN
    backend.send_state(StateRecord(job.id, JobState.STARTED))
    assert app.job(job.id).status() is JobState.STARTED
    assert owner.asked == []


def test_between_two_attempts_the_owner_is_asked_too(
    app: App, backend: FakeBackend, owner: Owner, task: Task[[], int]
) -> None:
    due_ms = backend.clock.now_ms() + HOUR_MS
    for answer, state in (
        (None, JobState.RETRY),
        ({"state": "SCHEDULED", "due": due_ms}, JobState.RETRY),
        ({"state": None}, JobState.RETRY),
        (revoked(), JobState.REVOKED),
    ):
        job = task.delay()
        backend.send_state(StateRecord(job.id, JobState.RETRY, due_ms=due_ms))
        owner.answers[LOOK] = answer
        assert app.job(job.id).status() is state


def test_due_at_is_when_a_job_is_to_start(app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int]) -> None:
    expected = datetime.fromtimestamp(time_of(job.id) / 1000, timezone.utc)
    for handle in (job, app.job(job.id)):
        assert handle.due_at() == expected, "no owner answers"
    owner.answers[LOOK] = {"state": "SCHEDULED", "due": time_of(job.id) + 1000}
    for handle in (job, app.job(job.id)):
        found = handle.due_at()
        assert found == expected + timedelta(seconds=1)
        assert found is not None and found.tzinfo is timezone.utc
    owner.answers[LOOK] = {"state": "QUEUED", "due": backend.clock.now_ms()}
    assert job.due_at() is None
    owner.answers[LOOK] = revoked()
    assert job.due_at() is None


def test_due_at_of_a_job_that_does_not_wait_is_none(backend: FakeBackend, owner: Owner, task: Task[[], int]) -> None:
    job = task.delay()
    assert job.due_at() is None
    backend.send_state(StateRecord(job.id, JobState.STARTED))
    assert job.due_at() is None
    due_ms = backend.clock.now_ms() + 5_000
    backend.send_state(StateRecord(job.id, JobState.RETRY, due_ms=due_ms))
    assert job.due_at() == datetime.fromtimestamp(due_ms / 1000, timezone.utc)
    backend.send_state(StateRecord(job.id, JobState.SUCCESS))
    assert job.due_at() is None


# -- waiting for it ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("way", ["thread", "coroutine"])
def test_a_job_that_was_cancelled_before_its_time_is_not_waited_for(
    app: App, owner: Owner, job: JobHandle[int], is_bare: bool, way: str
) -> None:
    owner.answers[LOOK] = revoked()
    handle: JobHandle[Any] = app.job(job.id) if is_bare else job
    with pytest.raises(JobRevoked, match="cancelled"):
        handle.result() if way == "thread" else asyncio.run(handle.result_async())
    assert handle.wait()


def test_a_job_that_fails_before_its_time_has_its_error(app: App, owner: Owner, job: JobHandle[int]) -> None:
    owner.answers[LOOK] = {"state": "FAILURE", "due": None, "detail": {"type": "OSError", "text": "too large"}}
    with pytest.raises(job_module.JobFailed, match="OSError: too large"):
        app.job(job.id).result()


def test_a_result_of_a_job_that_was_sent_early_is_there_before_its_time(
    app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent_ms = backend.clock.now_ms()
    ended = StateRecord(job.id, JobState.SUCCESS, value=b"42")
    found = {None: None, sent_ms: ended}
    monkeypatch.setattr(backend, "find", lambda job_id, timeout, since_ms=None: found[since_ms])
    owner.answers[LOOK] = {"state": "QUEUED", "due": sent_ms}
    assert app.job(job.id).status() is JobState.SUCCESS


@pytest.mark.parametrize("is_bare", [False, True])
def test_who_waits_for_a_scheduled_job_hears_that_it_is_scheduled(app: App, job: JobHandle[int], is_bare: bool) -> None:
    handle: JobHandle[Any] = app.job(job.id) if is_bare else job
    for timeout in (0, 0.01):
        with pytest.raises(JobTimeout, match="its state is SCHEDULED.*, and the job starts at its time$"):
            handle.result(timeout)
    assert not handle.wait(0)


def test_who_waits_is_woken_by_the_end_of_the_job_though_the_owner_was_asked(
    backend: FakeBackend, owner: Owner, job: JobHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LOOK_AGAIN_S", 30.0)
    owner.answers[LOOK] = {"state": "SCHEDULED", "due": time_of(job.id)}
    waits: list[None] = []

    def end() -> None:
        backend.send_state(StateRecord(job.id, JobState.SUCCESS, value=b"42"))
        backend.wake(job.id, backend.known(job.id))

    def on_wait() -> None:
        waits.append(None)
        if len(waits) == 3:  # the first one says that it is scheduled, the second one is for the answer
            threading.Timer(0.01, end).start()

    backend.on_wait = on_wait
    assert job.result(20) == 42
    assert owner.kinds == [LOOK]


def test_who_waits_asks_the_owner_again_and_less_and_less_often(
    backend: FakeBackend, owner: Owner, job: JobHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "LOOK_AGAIN_S", 0.001)
    monkeypatch.setattr(job_module, "MOST_LOOK_AGAIN_S", 0.003)
    owner.answers[LOOK] = {"state": "SCHEDULED", "due": time_of(job.id)}
    waits: list[float | None] = []
    wait = JobHandle._wait

    def note(handle: JobHandle[int], timeout: float | None, *more: Any) -> Any:
        waits.append(timeout)
        return wait(handle, timeout, *more)

    monkeypatch.setattr(JobHandle, "_wait", note)

    def on_command(command: Command) -> None:
        if len(owner.asked) == 4:
            owner.answers[LOOK] = revoked()

    owner.on_command = on_command
    with pytest.raises(JobRevoked):
        job.result()
    assert owner.kinds == [LOOK] * 4
    assert waits == [None, 0.001, None, 0.002, None, 0.003, None]
    assert not any(backend.waiters.values())


def test_who_waits_for_what_begins_at_once_asks_no_owner(
    backend: FakeBackend, owner: Owner, task: Task[[], int]
) -> None:
    for job in (task.delay(), task.using(delay=0.9).delay()):
        backend.send_state(StateRecord(job.id, JobState.SUCCESS, value=b"1"))
        assert job.result() == 1
        other = task.using(delay=0.9).delay()
        assert not other.wait(0.01)
    assert owner.asked == []


# -- ids that are old --------------------------------------------------------------------------------------------------


def old_id(backend: FakeBackend) -> str:
    return make_id(backend.clock.now_ms() - 2 * DAY_MS, 3, b"\0" * 8)


def test_an_old_id_that_the_owner_knows_nothing_of_has_expired(app: App, backend: FakeBackend, owner: Owner) -> None:
    owner.answers[LOOK] = {"state": None, "due": None}
    for answer in ({"state": None}, None):
        owner.answers[LOOK] = answer
        with pytest.raises(JobUnknown, match="its result has expired, or it never had one"):
            app.job(old_id(backend)).result()
    assert not any(backend.waiters.values())


@pytest.mark.parametrize("error", [KafkaConfigurationError("no topic"), TopicAuthorizationFailedError("shop.commands")])
def test_who_cannot_ask_the_owner_has_what_the_log_says(
    app: App, backend: FakeBackend, job: JobHandle[int], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise error

    monkeypatch.setattr(backend, "schedule_partitions", fail)
    assert app.job(job.id).status() is JobState.SCHEDULED
    with pytest.raises(JobUnknown):
        app.job(old_id(backend)).result()
    with pytest.raises(type(error)):
        job.cancel()


def test_an_old_id_of_a_job_that_still_waits_has_not_expired(app: App, backend: FakeBackend, owner: Owner) -> None:
    """It was rescheduled, or waits for another attempt: the record that says so is older than results are kept."""
    owner.answers[LOOK] = {"state": "SCHEDULED", "due": backend.clock.now_ms() + HOUR_MS}
    bare = app.job(old_id(backend))
    assert bare.status() is JobState.SCHEDULED
    with pytest.raises(JobTimeout, match="its state is SCHEDULED"):
        bare.result(timeout=0)


@pytest.mark.parametrize("state", [JobState.RETRY, JobState.STARTED, JobState.QUEUED])
def test_an_old_id_with_a_record_is_waited_for(
    app: App, backend: FakeBackend, owner: Owner, state: JobState
) -> None:
    """Results are kept from the job's end on."""
    job_id = old_id(backend)
    backend.send_state(StateRecord(job_id, state))
    with pytest.raises(JobTimeout, match=f"its state is {state}"):
        app.job(job_id).result(timeout=0)
    assert owner.asked == []
    backend.send_state(StateRecord(job_id, JobState.SUCCESS, value=b"42"))
    assert app.job(job_id).result() == 42


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["thread", "coroutine"])
def test_a_job_that_waits_is_cancelled_and_everybody_here_knows(
    app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int], way: str
) -> None:
    owner.answers[CANCEL] = {"waiting": True}
    found = job.cancel() if way == "thread" else asyncio.run(job.cancel_async())
    assert found is CancelResult.CANCELLED
    assert found
    for handle in (job, app.job(job.id)):
        assert handle.status() is JobState.REVOKED
        with pytest.raises(JobRevoked, match="cancelled"):
            handle.result()
    assert [(each.kind, each.subject, each.is_terminating) for each in owner.asked] == [(CANCEL, job.id, False)]
    assert job.cancel() is CancelResult.CANCELLED, "again"


def test_a_job_that_does_not_wait_is_cancelled_when_its_first_end_says_so(
    backend: FakeBackend, owner: Owner, task: Task[[], int]
) -> None:
    owner.answers[CANCEL] = {"waiting": False}
    for state, value, expected in (
        (JobState.REVOKED, reason_value("cancelled", "h"), CancelResult.CANCELLED),
        (JobState.REVOKED, reason_value("expired", "h"), CancelResult.TOO_LATE),
        (JobState.SUCCESS, b"1", CancelResult.TOO_LATE),
        (JobState.FAILURE, b"{}", CancelResult.TOO_LATE),
    ):
        job = task.delay()
        owner.on_command = lambda command, state=state, value=value: backend.send_state(
            StateRecord(command.subject, state, value=value)
        )
        found = job.cancel(terminate=True)
        assert found is expected
        assert bool(found) is (expected is CancelResult.CANCELLED)
        assert owner.asked[-1].is_terminating


def test_a_job_that_has_ended_is_too_late_and_asks_for_nothing(
    app: App, backend: FakeBackend, owner: Owner, task: Task[[], int]
) -> None:
    job = task.delay()
    backend.send_state(StateRecord(job.id, JobState.SUCCESS, value=b"1"))
    for handle in (job, app.job(job.id)):
        assert handle.cancel() is CancelResult.TOO_LATE
    assert owner.asked == []
    assert job.result() == 1


def test_a_job_that_stores_no_result_can_be_cancelled(owner: Owner, task: Task[[], int]) -> None:
    owner.answers[CANCEL] = {"waiting": True}
    assert task.using(delay=60, store_result=False).delay().cancel()


def test_a_job_that_was_sent_early_and_has_ended_is_too_late(
    app: App, backend: FakeBackend, owner: Owner, job: JobHandle[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end lies in the log where nobody looks before the job's time: the owner says where."""
    sent_ms = backend.clock.now_ms()
    ended = StateRecord(job.id, JobState.SUCCESS, value=b"42")
    monkeypatch.setattr(backend, "find", lambda job_id, timeout, since_ms=None: ended if since_ms == sent_ms else None)
    owner.answers.update({CANCEL: {"waiting": False}, LOOK: {"state": "QUEUED", "due": sent_ms}})
    assert app.job(job.id).cancel() is CancelResult.TOO_LATE


def test_cancelling_without_an_owner_is_a_timeout_that_says_what_to_run(
    backend: FakeBackend, job: JobHandle[int]
) -> None:
    cancels: list[Callable[[], object]] = [
        lambda: job.cancel(timeout=0.01),
        lambda: asyncio.run(job.cancel_async(timeout=timedelta(milliseconds=10))),
    ]
    for cancel in cancels:
        with pytest.raises(JobTimeout, match=f"CANCEL of {job.id} within .*python -m kafka worker MODULE:APP"):
            cancel()
    assert job.status() is JobState.SCHEDULED
    assert not any(backend.waiters.values())


def test_a_cancelled_job_without_a_final_record_in_time_is_a_timeout(owner: Owner, task: Task[[], int]) -> None:
    owner.answers[CANCEL] = {"waiting": False}
    with pytest.raises(JobTimeout, match=r"is being cancelled, but has no final record after 0\.01 s"):
        task.delay().cancel(timeout=0.01)


def test_a_job_that_was_not_enqueued_raises_its_error_and_is_not_asked_for(
    backend: FakeBackend, owner: Owner, task: Task[[], int]
) -> None:
    backend.next_sent = FakeSent(OSError("refused"))
    job = task.using(delay=60).delay()
    asks: list[Callable[[], object]] = [job.cancel, lambda: job.reschedule(delay=5), job.due_at, job.result]
    for ask in asks:
        with pytest.raises(OSError, match="refused"):
            ask()
    assert owner.asked == []


@pytest.mark.parametrize("terminate", [None, 1, "yes"])
def test_terminate_is_true_or_false(owner: Owner, job: JobHandle[int], terminate: Any) -> None:
    with pytest.raises(IllegalArgumentError, match="terminate must be True or False"):
        job.cancel(terminate)
    assert owner.asked == []


# -- rescheduling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["thread", "coroutine"])
def test_a_job_gets_another_time(backend: FakeBackend, owner: Owner, job: JobHandle[int], way: str) -> None:
    now_ms = backend.clock.now_ms()
    now = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    owner.answers[RESCHEDULE] = {"rescheduled": True, "due": 1}
    for at, delay, due_ms in (
        (now + timedelta(hours=2), None, now_ms + 2 * HOUR_MS),
        (None, 90, now_ms + 90_000),
        (None, timedelta(days=1), now_ms + DAY_MS),
        (now - timedelta(days=9999), None, now_ms),
    ):
        if way == "thread":
            assert job.reschedule(at, delay=delay) is True
        else:
            assert asyncio.run(job.reschedule_async(at, delay=delay)) is True
        assert (owner.asked[-1].kind, owner.asked[-1].due_ms) == (RESCHEDULE, due_ms)


def test_a_job_that_does_not_wait_any_more_gets_none(owner: Owner, job: JobHandle[int]) -> None:
    owner.answers[RESCHEDULE] = {"rescheduled": False}
    assert job.reschedule(delay=5) is False
    owner.answers[RESCHEDULE] = {}
    assert job.reschedule(delay=5) is False


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "reschedule needs a time: either at=... or delay=..."),
        ({"at": datetime(2030, 1, 1, tzinfo=timezone.utc), "delay": 5}, "either at=... or delay=..."),
        ({"at": datetime(2030, 1, 1)}, "at needs a timezone, for example"),
        ({"at": 5}, "at must be a datetime with a timezone"),
        ({"at": datetime(9999, 1, 1, tzinfo=timezone.utc)}, "more than a century ahead"),
        ({"delay": 0}, "delay must be a number of seconds above 0"),
        ({"delay": -5}, "delay must be"),
        ({"delay": float("nan")}, "delay must be"),
        ({"delay": "5"}, "delay must be"),
        ({"delay": 5, "timeout": -1}, "timeout must be"),
    ],
)
def test_what_is_no_time_is_refused_and_nobody_is_asked(
    owner: Owner, job: JobHandle[int], arguments: Any, text: str
) -> None:
    for ask in (job.reschedule, lambda **given: asyncio.run(job.reschedule_async(**given))):
        with pytest.raises(IllegalArgumentError, match=text) as caught:
            ask(**arguments)
        assert "\n" not in str(caught.value)
    assert owner.asked == []

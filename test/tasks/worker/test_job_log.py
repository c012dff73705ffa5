"""Tests of ``kafka.tasks.worker.job_log`` and ``observer``: what the log has of jobs, over whole workers in memory."""

from __future__ import annotations

import logging

import pytest

from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks import App, Cancel, Retry
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.delivery.base import DeliveryEvents, JobLease, JobSource, OutgoingRecord, RecordKind
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.inline import InlinePool
from kafka.tasks.pools.runner import Job, run
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.worker.job_log import JobLog
from kafka.tasks.worker.observer import ending_of
from kafka.tasks.worker.worker import Worker
from test.tasks.fakes import FakeDelivery, FakePublisher, ManualPool, Queues, a_job, pass_time, settle

QUEUE = JobSource("mail", "shop.mail")
ERROR = AttemptFailed(ErrorInfo("OSError", "disk"))
LOGGER = "kafka.tasks.worker.job_log"


class World:
    """A worker with a log of jobs, on simulated time; its pool is inline, or ends jobs when a test says so."""

    def __init__(self, caplog: pytest.LogCaptureFixture, manual: bool = False, level: int = logging.INFO) -> None:
        caplog.set_level(level, LOGGER)
        self.caplog = caplog
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.queues = Queues(self.clock)
        self.app = App("shop", bootstrap_servers="fake://")
        self.log = JobLog(self.loop)
        app = self.app

        @app.task(name="mail.send", queue="mail")
        def send(number: int) -> int:
            return number

        four_seconds = Retry(max_attempts=2, backoff=lambda attempt: 4.0, jitter=False)

        @app.task(name="mail.retry", queue="mail", retry=four_seconds)
        def retry() -> None:
            raise OSError("disk\nmore")

        @app.task(name="mail.cancel", queue="mail")
        def cancel() -> None:
            raise Cancel("enough")

        self.pool = ManualPool(2, self._wake)
        pool = self.pool if manual else InlinePool(run, 1, self._wake)
        backend = WorkerBackend(self._open, 8, 4)
        self.worker = Worker(
            app.tasks, app.names, self.loop, self.now_ms, "h", backend, pool, WorkerOptions(), observers=[self.log]
        )
        self.worker.start()

    def _open(self, events: DeliveryEvents) -> FakeDelivery:
        publisher = FakePublisher(self.queues, self.loop)
        self.delivery = FakeDelivery(self.queues, self.loop, events, publisher, of=["mail"])
        return self.delivery

    def _wake(self) -> None:
        self.loop.call_soon_threadsafe(self.worker.finished)

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def put(self, name: str, *args: object, expires_ms: int | None = None) -> Envelope:
        envelope = a_job(name, *args, clock=self.clock, expires_ms=expires_ms)
        self.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE.topic, envelope.value, None, envelope.headers()))
        return envelope

    def end(self, job: Job, outcome: Outcome, ran_s: float) -> None:
        self.pool.end(job, outcome, ran_s)
        settle(self.loop)

    def lines(self) -> list[str]:
        """The new lines of the log of jobs."""
        settle(self.loop)
        found = [record.getMessage() for record in self.caplog.records if record.name == LOGGER]
        assert all(record.levelno == logging.INFO for record in self.caplog.records if record.name == LOGGER)
        self.caplog.clear()
        return found


def jobs_of(name: str, count: int) -> list[Job]:
    """Jobs that are with no worker."""
    lease = JobLease(QUEUE, b"", [], 1)
    app = App("shop", bootstrap_servers="fake://")

    @app.task(name=name)
    def task() -> None: ...

    return [Job(lease, a_job(name), app.tasks[name]) for _ in range(count)]


# -- one line each ----------------------------------------------------------------------------------------------------


def test_a_job_that_runs_is_received_and_succeeds_with_its_run_time(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    job = world.put("mail.send", 1)
    assert world.lines() == [f"mail.send {job.id} received"]
    world.end(world.pool.jobs[0], JobSucceeded(b"1"), 0.0123)
    assert world.lines() == [f"mail.send {job.id} succeeded in 0.012 s"]


def test_a_retry_has_its_attempt_and_error_and_the_last_failure_is_not_said_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(caplog)
    job = world.put("mail.retry")
    assert world.lines() == [
        f"mail.retry {job.id} received",
        f"mail.retry {job.id} will be retried in 4 s after attempt 1 of 2 (OSError: disk...)",
    ]
    pass_time(world.loop, world.clock, 4.0)
    assert world.lines() == [f"mail.retry {job.id} received"]


def test_a_job_that_is_to_be_started_later_says_when(caplog: pytest.LogCaptureFixture) -> None:
    log, envelope = JobLog(Loop.simulated(ManualClock())), a_job("mail.send", attempt=3)
    caplog.set_level(logging.INFO, LOGGER)
    for outcome in (JobSnoozed(90_000), JobRetried(61_500, "busy"), JobRetried(0)):
        decision = decide(outcome, JobHistory(attempt=3), JobPolicy(), 1000)
        log.on_decided("mail", envelope, outcome, decision, JobPolicy(), 1000)
    assert caplog.messages == [
        f"mail.send {envelope.id} will be started again in 90 s (snoozed)",
        f"mail.send {envelope.id} will be retried in 60.5 s after attempt 3 (RetryAt: busy)",
        f"mail.send {envelope.id} will be retried in 1 s after attempt 3 (RetryAt: )",
    ]


def test_jobs_that_end_without_a_result_say_why(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog)
    job = world.put("mail.cancel")
    assert world.lines() == [f"mail.cancel {job.id} received", f"mail.cancel {job.id} was cancelled (enough)"]
    job = world.put("mail.send", 1, expires_ms=world.now_ms())
    assert world.lines() == [f"mail.send {job.id} expired before it started"]


def test_a_running_job_whose_lock_is_lost_is_a_line_and_its_outcome_is_none(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    job = world.put("mail.send", 1)
    world.lines()
    (running,) = world.pool.jobs
    world.worker.lost([running.lease], "INVALID_RECORD_STATE")
    assert world.lines() == [f"mail.send {job.id} lost: INVALID_RECORD_STATE; another worker runs it"]
    world.end(running, JobSucceeded(b"1"), 0.01)
    assert world.lines() == []


def test_jobs_that_go_back_as_they_came_are_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = JobLog(Loop.simulated(ManualClock()))
    caplog.set_level(logging.INFO, LOGGER)
    for outcome in (NotStarted(), SuspectedCrash(), UnknownTask("mail.send", "not declared")):
        decision = decide(outcome, JobHistory(), JobPolicy(), 0)
        log.on_decided("mail", a_job("mail.send"), outcome, decision, JobPolicy(), 0)
    assert caplog.records == []


# -- counts instead ---------------------------------------------------------------------------------------------------


def test_above_a_hundred_lines_a_second_each_task_has_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog)
    for number in range(400):
        world.put("mail.send", number)
    for _ in range(3):
        world.put("mail.retry")
    written = world.lines()
    assert len(written) <= 100
    assert not any(" within " in line for line in written)
    pass_time(world.loop, world.clock, 1.0)
    first, second = world.lines()
    received = 400 - sum(line.endswith("received") for line in written)
    succeeded = 400 - sum("succeeded" in line for line in written)
    assert first.startswith(f"mail.send: {received} received, {succeeded} succeeded (mean ")
    assert first.endswith(" ms) within 1 s")
    assert second == "mail.retry: 3 received, 3 retried within 1 s"


def test_after_a_second_with_few_lines_they_are_written_one_by_one_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    log = world.log
    log.on_received(jobs_of("mail.send", 101))
    assert world.lines() == []
    pass_time(world.loop, world.clock, 1.0)
    assert world.lines() == ["mail.send: 101 received within 1 s"]
    log.on_received(jobs_of("mail.send", 100))
    assert world.lines() == [], "the second before had too many"
    pass_time(world.loop, world.clock, 1.0)
    assert world.lines() == ["mail.send: 100 received within 1 s"]
    assert len(jobs := jobs_of("mail.send", 100)) == 100
    log.on_received(jobs)
    assert world.lines() == [f"mail.send {job.envelope.id} received" for job in jobs]
    log.on_received(jobs_of("mail.send", 1))
    assert world.lines() == []
    pass_time(world.loop, world.clock, 1.0)
    assert world.lines() == ["mail.send: 1 received within 1 s"]


def test_a_quiet_second_with_counts_writes_no_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    world.log.on_received(jobs_of("mail.send", 101))
    pass_time(world.loop, world.clock, 3.0)
    assert world.lines() == ["mail.send: 101 received within 1 s"]


def test_counts_have_the_mean_run_time_and_all_endings(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    jobs = jobs_of("mail.send", 4213)
    for job in jobs:
        job.ran_s = 0.0008
    world.log.on_ran([(job, JobSucceeded(b"")) for job in jobs] + [(job, ERROR) for job in jobs_of("mail.send", 3)])
    world.log.on_locks_lost(jobs_of("mail.send", 2), "disconnected")
    for outcome in (JobCancelled("no"), JobExpired(), ChildLost("oom"), ERROR):
        decision = decide(outcome, JobHistory(), JobPolicy(), 0)
        world.log.on_decided("mail", a_job("mail.send"), outcome, decision, JobPolicy(), 0)
    pass_time(world.loop, world.clock, 1.0)
    assert world.lines() == [
        "mail.send: 4,213 succeeded (mean 0.8 ms), 1 failed, 1 revoked, 1 expired, 3 lost within 1 s"
    ]


def test_tasks_of_any_number_of_names_share_a_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    world.log.on_received([job for number in range(103) for job in jobs_of(f"task{number}", 1)])
    pass_time(world.loop, world.clock, 1.0)
    lines = world.lines()
    assert lines[99:] == ["task99: 1 received within 1 s", "other: 3 received within 1 s"]


def test_closing_writes_the_counts_that_are_left_and_none_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, manual=True)
    world.log.on_received(jobs_of("mail.send", 101))
    world.log.close()
    assert world.lines() == ["mail.send: 101 received within 1 s"]
    pass_time(world.loop, world.clock, 3.0)
    world.log.close()
    assert world.lines() == []


def test_nothing_is_counted_where_info_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    world = World(caplog, level=logging.WARNING)
    for number in range(200):
        world.put("mail.send", number)
    settle(world.loop)
    caplog.set_level(logging.INFO, LOGGER)
    pass_time(world.loop, world.clock, 2.0)
    assert world.lines() == []


# -- what an ending is called -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "history", "ending"),
    [
        (JobSucceeded(b""), JobHistory(), "succeeded"),
        (ERROR, JobHistory(attempt=1), "retried"),
        (ERROR, JobHistory(attempt=2), "failed"),
        (JobCancelled("no"), JobHistory(), "revoked"),
        (JobExpired(), JobHistory(), "expired"),
        (ChildLost("oom"), JobHistory(), "lost"),
        (ChildLost("oom"), JobHistory(crashes=2), "failed"),
        (ChildLost("stopped", counts=False), JobHistory(), None),
        (WorkerCrashed(ErrorInfo("WorkerLost")), JobHistory(crashes=3), "failed"),
        (UnknownTask("x", "not declared"), JobHistory(), None),
        (UnknownTask("x", "not declared"), JobHistory(unknown_since_ms=-86_400_000), "failed"),
        (JobSnoozed(1000), JobHistory(attempt=2), "snoozed"),
        (JobRetried(1000), JobHistory(attempt=1), "retried"),
        (JobRetried(1000), JobHistory(attempt=2), "failed"),
        (SuspectedCrash(), JobHistory(), None),
        (NotStarted(), JobHistory(), None),
    ],
)
def test_each_decision_is_one_ending(outcome: Outcome, history: JobHistory, ending: str | None) -> None:
    policy = JobPolicy(max_attempts=2)
    assert ending_of(outcome, decide(outcome, history, policy, 0)) == ending

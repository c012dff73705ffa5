"""Tests of ``kafka.tasks.worker.worker``: whole workers over a queue in memory, with a manual clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError
from kafka.future import Future
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks import App, Cancel, Retry, RetryAt, Snooze, expo
from kafka.tasks.backends.base import ScheduleMember, ScheduleSnapshot, WorkerBackend
from kafka.tasks.delivery.base import (
    Claim,
    ClaimKind,
    Ending,
    JobLease,
    JobSource,
    OutgoingRecord,
    RecordKind,
    SourceKind,
)
from kafka.tasks.delivery.finishing import MOVING_S
from kafka.tasks.delivery.memory import MemoryRecord
from kafka.tasks.format.commands import Command
from kafka.tasks.format.envelope import Envelope, dead_letter_of
from kafka.tasks.format.records import StateRecord
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.inline import InlinePool
from kafka.tasks.pools.runner import Job, run
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, ErrorInfo, JobCancelled, JobSucceeded, Outcome
from kafka.tasks.states import READY, JobState
from kafka.tasks.worker import source_buffers
from kafka.tasks.worker.leases import BUFFERED
from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS
from kafka.tasks.worker.worker import TURN_BYTES, TURN_LEASES, Worker, WorkerOptions, WorkerStage
from test.tasks.fakes import FakeDelivery, FakePublisher, ManualPool, Queues, a_job, pass_time, settle

QUEUE, DUE = "shop.default", "shop.default.due"
SUSPECT, DEAD = "shop.default.suspect", "shop.default.dead"
SUSPECTS = JobSource("default", SUSPECT, SourceKind.SUSPECT)
OK = JobSucceeded(b"1")


class Bench:
    """A clock, a loop, topics, and workers of one app."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.queues = Queues(self.clock)
        self.app = App("shop", bootstrap_servers="fake://")
        self.runs: list[int] = []
        app = self.app

        @app.task(name="note")
        def note(number: int) -> int:
            self.runs.append(number)
            return number

        @app.task(name="fail", retry=Retry(max_attempts=3, on=(OSError,)))
        def fail(number: int) -> None:
            self.runs.append(number)
            raise OSError("disk")

        @app.task(name="break")
        def break_() -> None:
            raise ValueError("no")

        @app.task(name="cancel")
        def cancel() -> None:
            raise Cancel("enough")

    def declare_flaky(self, retry: Retry) -> None:
        @self.app.task(name="flaky", retry=retry)
        def flaky(number: int) -> None:
            self.runs.append(number)
            raise OSError("disk")

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def put(self, name: str = "note", *args: Any, topic: str = QUEUE, **fields: Any) -> Envelope:
        envelope = a_job(name, *args, clock=self.clock, **fields)
        self.queues.append(OutgoingRecord(RecordKind.JOB, topic, envelope.value, None, envelope.headers()))
        return envelope

    def put_many(self, count: int) -> list[Envelope]:
        return [self.put("note", n) for n in range(count)]

    def puts(self) -> list[Command]:
        """What was put into the schedule."""
        return self.queues.puts(self.app.names)

    def states(self) -> list[StateRecord]:
        return self.queues.states(self.app.names)

    def final(self, job_id: str) -> JobState | None:
        return next((s.state for s in self.states() if s.id == job_id and s.state in READY), None)

    def dead(self) -> list[tuple[MemoryRecord, str]]:
        found = []
        for record in self.queues.topics[DEAD]:
            death = dead_letter_of(record.headers)
            assert death is not None
            found.append((record, death.cause))
        return found

    def settle(self) -> None:
        settle(self.loop)

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        pass_time(self.loop, self.clock, seconds, step)


class Told:
    """What the delivery tells a worker, as long as its process lives."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.came: list[int] = []
        """How many leases came at a time."""

    def leased(self, leases: list[JobLease]) -> None:
        self.came.append(len(leases))
        if not self._process.is_dead:
            self._process.worker.leased(leases)

    def lost(self, leases: list[JobLease], reason: str) -> None:
        if not self._process.is_dead:
            self._process.worker.lost(leases, reason)

    def replace_result(self, ending: Ending, record: OutgoingRecord) -> Ending:
        return self._process.worker.replace_result(ending, record)

    def failed(self, error: KafkaError) -> None:
        if not self._process.is_dead:
            self._process.worker.failed(error)

    def left(self) -> None:
        if not self._process.is_dead:
            self._process.worker.left()


class Process:
    """A worker with its delivery, publisher and pool; :meth:`kill` is kill -9."""

    def __init__(
        self,
        bench: Bench,
        concurrency: int = 2,
        inline: bool = False,
        queues: tuple[str, ...] = ("default",),
        options: WorkerOptions | None = None,
        ready: bool = True,
        stopped: bool = False,
        attributes_crashes: bool = False,
        paused: frozenset[str] = frozenset(),
        schedule: ScheduleMember | None = None,
    ) -> None:
        self.bench = bench
        self.left = 0
        self.is_dead = False
        self.told = Told(self)
        self.publisher = FakePublisher(bench.queues, bench.loop)
        self.delivery = FakeDelivery(
            bench.queues, bench.loop, self.told, self.publisher, bench.app.names, of=queues
        )
        self.manual = ManualPool(concurrency, self._wake)
        self.manual.ready = self.manual.ever_ready = ready
        self.manual.attributes_crashes = attributes_crashes
        pool: Pool = InlinePool(run, 1, self._wake) if inline else self.manual
        self.worker = Worker(
            bench.app.tasks,
            bench.app.names,
            bench.loop,
            bench.now_ms,
            "host1",
            WorkerBackend(
                lambda events: self.delivery, 8, 4, lambda on_paused: paused and on_paused(paused), schedule=schedule
            ),
            pool,
            options,
            self._left,
            random.Random(0),
        )
        if stopped:
            self.worker.stop()
        self.worker.start()

    def _left(self) -> None:
        self.left += 1

    def _wake(self) -> None:
        self.bench.loop.call_soon_threadsafe(self._finished)

    def _finished(self) -> None:
        if not self.is_dead:
            self.worker.finished()

    def end(self, job: Job | None = None, outcome: Outcome = OK, ran_s: float = 0.001) -> Job:
        job = job or self.manual.jobs[0]
        self.manual.end(job, outcome, ran_s)
        self.bench.settle()
        return job

    def kill(self) -> None:
        """The process is gone: nothing of it acts any more, and the broker sees its connection end."""
        self.is_dead = True
        if self.worker._timer is not None:
            self.worker._timer.cancel()
        self.publisher.is_stuck = True
        self.delivery.finishing.close()
        self.delivery.release_all()
        self.bench.settle()


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- the plain way ----------------------------------------------------------------------------------------------------


def test_each_job_runs_once_and_leaves_its_result(bench: Bench) -> None:
    jobs = bench.put_many(200)
    process = Process(bench, inline=True)
    bench.settle()
    assert sorted(bench.runs) == list(range(200))
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 200
    assert bench.queues.waiting(QUEUE) == []
    assert process.worker.statistics()["held"] == 0


def test_jobs_that_come_later_run_too(bench: Bench) -> None:
    Process(bench, inline=True)
    bench.settle()
    job = bench.put("note", 1)
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS


def test_nothing_is_accepted_before_its_result_is_durable(bench: Bench) -> None:
    process = Process(bench, inline=True)
    process.publisher.is_stuck = True
    bench.put("note", 1)
    bench.settle()
    assert bench.runs == [1]
    assert process.delivery.accepted == []
    process.publisher.advance()
    bench.settle()
    assert len(process.delivery.accepted) == 1


@pytest.mark.parametrize("slots", [2, 100])
def test_long_jobs_are_leased_one_for_each_slot(bench: Bench, slots: int) -> None:
    bench.put_many(10 * slots)
    process = Process(bench, concurrency=slots)
    bench.settle()
    for _ in range(3 * slots):
        process.end(ran_s=5.0)
        assert process.worker.statistics()["held"] == slots
    assert process.told.came == [slots] + [1] * 3 * slots


def test_short_jobs_are_leased_by_the_hundreds(bench: Bench) -> None:
    bench.put_many(2000)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.00002)
    assert process.worker.statistics()["held"] > 300
    assert process.worker.statistics()["held"] <= 1024


def test_short_jobs_are_leased_by_whole_batches(bench: Bench) -> None:
    """Callers send up to 64 jobs in a batch. Of one that is leased in two parts the broker sends all, twice."""
    bench.put_many(2000)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(1000):
        process.end(ran_s=0.00001)
    first, *others = process.told.came
    assert first == 2
    assert len(others) > 3
    assert {count % 64 for count in others} == {0}


def test_two_queues_share_the_slots(bench: Bench) -> None:
    for n in range(10):
        bench.put("note", n)
        bench.put("note", n, topic="shop.mail")
    process = Process(bench, concurrency=4, queues=("default", "mail"))
    bench.settle()
    assert {job.lease.source.queue for job in process.manual.jobs} == {"default", "mail"}


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_measured", [False, True])
def test_a_busy_queue_of_short_jobs_does_not_starve_another(bench: Bench, is_measured: bool) -> None:
    process = Process(bench, concurrency=2, queues=("default", "mail"))
    bench.settle()
    if is_measured:
        bench.put("note", 0, topic="shop.mail")
        bench.settle()
        process.end(ran_s=5.0)
    bench.put_many(700)
    bench.settle()
    for _ in range(100):
        process.end(ran_s=0.002)
    other = bench.put("note", -1, topic="shop.mail")
    bench.settle()
    for _ in range(400):
        if process.manual.jobs[0].envelope.id == other.id:
            break
        process.end(ran_s=0.002)
    assert process.manual.jobs[0].envelope.id == other.id


def test_all_attempts_count_and_the_last_failure_is_dead(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks")
    job = bench.put("fail", 7)
    worker = Process(bench, inline=True).worker
    bench.settle()
    assert (worker.counts["failed"], worker.counts["dead"]) == (3, 1)
    runs = [record.message.removeprefix(f"fail {job.id} ") for record in caplog.records if job.id in record.message]
    assert [run.partition(" (")[0] for run in runs] == ["failed permanently"]
    assert bench.runs == [7, 7, 7]
    assert [s.state for s in bench.states()] == [JobState.RETRY, JobState.RETRY, JobState.FAILURE]
    assert [s.attempt for s in bench.states()] == [1, 2, 3]
    ((record, cause),) = bench.dead()
    assert (cause, record.header("id"), record.header("attempt")) == ("attempts", job.id, "3")
    assert bench.queues.waiting(QUEUE) == []


def test_without_a_policy_an_error_ends_the_job_and_the_log_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    job = bench.put("break")
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.FAILURE
    assert [cause for _, cause in bench.dead()] == ["error"]
    (said,) = [record.message for record in caplog.records if "failed permanently" in record.message]
    line, _, trace = said.partition("\n")
    assert line.startswith(f"break {job.id} failed permanently (") and line.endswith(
        f"to the dead topic {DEAD}; cause error"
    )
    assert trace.startswith("Traceback (most recent call last):\n")
    assert f'File "{__file__}", line ' in trace and trace.endswith("ValueError: no")


def test_long_errors_are_cut_in_the_log_with_a_mark(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    lines = "\n".join(f"line {n} {'y' * 1000}" for n in range(50))
    process.end(outcome=AttemptFailed(ErrorInfo("ValueError", "x" * 600 + "\nmore", lines)))
    (said,) = [record.message for record in caplog.records if "failed permanently" in record.message]
    first, note, *trace = said.splitlines()
    assert f"(ValueError: {'x' * 500}...) and moves to" in first
    assert note == "... 30 lines omitted, the dead topic has all of them ..."
    assert [line[:8] for line in trace] == [f"line {n} " for n in range(30, 50)]
    assert all(line.endswith("yyy...") and len(line) == 503 for line in trace)


def test_a_result_that_its_topic_does_not_take_is_logged_counted_and_dead(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    job = bench.put("note", 1)
    process = Process(bench, inline=True)
    process.publisher.errors["shop.results"] = [MessageSizeTooLargeError()]
    bench.settle()
    assert bench.final(job.id) is JobState.FAILURE
    ((record, cause),) = bench.dead()
    assert (record.header("dead-type"), cause) == ("PayloadTooLarge", "error")
    assert "the result of task note is 1 bytes, more than the topic shop.results accepts" in caplog.text
    assert "raise that topic's max.message.bytes" in caplog.text
    counts = process.worker.counts
    assert (counts["done"], counts["failed"], counts["dead"], counts["unsettled"]) == (1, 1, 1, 0)
    assert process.worker.statistics()["held"] == 0


def test_a_retry_whose_state_is_too_large_for_its_topic_is_still_one(bench: Bench) -> None:
    job = bench.put("fail", 1)
    process = Process(bench)
    process.publisher.errors["shop.results"] = [MessageSizeTooLargeError()]
    bench.settle()
    process.end(outcome=AttemptFailed(ErrorInfo("OSError", "x" * 5000, "Trace")))
    (state,) = bench.states()
    assert (state.id, state.state) == (job.id, JobState.RETRY)
    assert (state.detail()["type"], state.detail()["text"], state.detail()["traceback"]) == (
        "OSError", "x" * 200 + "...", "",
    )  # fmt: skip
    process.end()
    assert bench.final(job.id) is JobState.SUCCESS


def test_done_are_the_jobs_that_have_ended_for_good_and_not_their_runs(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    bench.put("fail", 1)
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    for outcome in (AttemptFailed(ErrorInfo("OSError")), AttemptFailed(ErrorInfo("OSError")), ChildLost("oom", 9)):
        process.end(next(job for job in process.manual.jobs if job.task.name == "fail"), outcome)
    assert process.worker.counts["done"] == 0
    process.end(
        next(job for job in process.manual.jobs if job.task.name == "fail"), AttemptFailed(ErrorInfo("OSError"))
    )
    process.end()
    assert process.worker.counts["done"] == 2
    process.worker.stop()
    bench.settle()
    assert "worker stopped: 2 jobs done, 0 returned to their queues" in caplog.text


def test_an_outcome_that_cannot_be_written_fails_its_own_job_and_no_other(bench: Bench) -> None:
    first, second = bench.put_many(2)
    process = Process(bench)
    bench.settle()
    broken, whole = process.manual.jobs
    process.manual.end(broken, JobCancelled(object()), 0.001)  # type: ignore[arg-type]
    process.manual.end(whole, OK, 0.001)
    bench.settle()
    assert bench.final(broken.envelope.id) is JobState.FAILURE
    assert bench.final(whole.envelope.id) is JobState.SUCCESS
    assert {first.id, second.id} == {broken.envelope.id, whole.envelope.id}


def test_a_task_may_cancel_its_job(bench: Bench) -> None:
    job = bench.put("cancel")
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.REVOKED
    assert bench.dead() == []


def test_an_expired_job_is_revoked_and_does_not_run(bench: Bench) -> None:
    job = bench.put("note", 1, expires_ms=bench.now_ms() + 1000)
    bench.pass_time(2)
    Process(bench, inline=True)
    bench.settle()
    assert (bench.final(job.id), bench.runs) == (JobState.REVOKED, [])


@pytest.mark.parametrize(
    "record",
    [
        OutgoingRecord(RecordKind.JOB, QUEUE, b"hello"),
        OutgoingRecord(RecordKind.JOB, QUEUE, None),
        OutgoingRecord(RecordKind.JOB, QUEUE, b"{}", None, [("id", b"1" * 32)]),
        OutgoingRecord(RecordKind.JOB, QUEUE, b"{}", None, [("id", b"1" * 32), ("name", b"note")]),
    ],
)
def test_a_record_that_is_no_job_goes_to_the_dead_topic_and_the_worker_goes_on(
    bench: Bench, record: OutgoingRecord
) -> None:
    bench.queues.append(record)
    good = bench.put("note", 1)
    worker = Process(bench, inline=True).worker
    bench.settle()
    ((dead, cause),) = bench.dead()
    assert dead.value == record.value
    assert cause in ("no-job", "bad-id")
    assert (worker.counts["failed"], worker.counts["dead"]) == (0, 1)
    assert bench.final(good.id) is JobState.SUCCESS
    assert bench.queues.waiting(QUEUE) == []


def put_no_jobs(bench: Bench, count: int) -> None:
    for _ in range(count):
        bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, None))


def test_records_that_are_no_jobs_count_against_what_may_be_held_until_they_are_in_the_dead_topic(bench: Bench) -> None:
    put_no_jobs(bench, 5000)
    good = bench.put("note", 1)
    process = Process(bench, inline=True)
    process.publisher.is_stuck = True
    bench.settle()
    assert MAX_HELD_JOBS - 64 < process.worker.statistics()["held"] <= MAX_HELD_JOBS
    assert sum(process.publisher.sizes) <= MAX_HELD_JOBS
    process.publisher.advance()
    bench.settle()
    assert len(bench.dead()) == 5000
    assert bench.final(good.id) is JobState.SUCCESS


def test_records_that_are_no_jobs_are_leased_by_the_hundreds_without_a_measured_runtime(
    bench: Bench,
) -> None:
    put_no_jobs(bench, 5000)
    process = Process(bench)
    bench.settle()
    came = list(process.told.came)
    assert sum(came) == 5000
    assert came[:4] == [2, 4, 8, 16]
    assert len(came) < 30
    put_no_jobs(bench, 1)
    bench.put_many(10)
    bench.settle()
    assert len(process.manual.jobs) == 2  # those that may run are long until they are known to be short


@pytest.mark.parametrize("refused", [1, 100, 1000])
def test_records_that_are_no_jobs_keep_no_slot_idle(bench: Bench, refused: int) -> None:
    queues = ("default", "mail", "sms")
    process = Process(bench, concurrency=30, queues=queues)
    bench.put_many(20)
    bench.settle()
    put_no_jobs(bench, refused)
    bench.settle()
    for number in range(40):
        bench.put("note", number, topic=f"shop.{queues[number % 3]}")
    bench.settle()
    assert len(process.manual.jobs) == 30


def test_what_comes_at_once_is_looked_at_in_parts_and_a_stop_in_between_gives_the_rest_back(bench: Bench) -> None:
    process = Process(bench)
    source = JobSource("default", QUEUE)
    good = [bench.put("note", n) for n in range(2)]
    put_no_jobs(bench, 5 * TURN_LEASES)
    late = bench.put("note", 9)
    process.worker.stop()
    process.delivery.request(source, 10_000)  # it was under way
    process.delivery._look()
    process.delivery.request(source, 0)
    assert process.worker.statistics()["held"] == 5 * TURN_LEASES + 3
    assert sum(process.publisher.sizes) == TURN_LEASES
    bench.settle()
    assert process.left == 1
    assert len(bench.dead()) == 5 * TURN_LEASES
    waiting = bench.queues.waiting(DUE)
    assert {record.header("id") for record in waiting} == {each.id for each in (*good, late)}
    assert [record.header("clean") for record in waiting] == ["1"] * 3


def test_large_records_are_looked_at_fewer_at_a_time(bench: Bench) -> None:
    process = Process(bench)
    for _ in range(10):
        bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, bytes(TURN_BYTES // 2)))
    process.delivery.request(JobSource("default", QUEUE), 10)
    process.delivery._look()
    assert process.publisher.sizes == [2]
    bench.settle()
    assert len(bench.dead()) == 10


def test_nothing_more_is_leased_while_the_payloads_that_are_held_are_large(bench: Bench) -> None:
    bench.put_many(3)
    process = Process(bench, inline=True)
    bench.settle()
    process.publisher.is_stuck = True
    large = "x" * 200_000
    for _ in range(1000):
        bench.put("note", large)
    bench.settle()
    assert process.delivery.wants[JobSource("default", QUEUE)] == 0
    assert process.worker.statistics()["held"] < 1000 < MAX_HELD_JOBS
    process.publisher.advance()
    bench.settle()
    assert bench.queues.waiting(QUEUE) == []


def test_a_flood_of_records_that_are_no_jobs_is_some_lines_of_log_and_a_count(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    put_no_jobs(bench, 3000)
    process = Process(bench)
    bench.settle()
    assert len(caplog.records) < 20
    process.worker.stop()
    bench.settle()
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.startswith(f"suppressed {3000 - 10} similar lines") for line in lines)


def test_a_record_that_the_dead_topic_does_not_take_is_there_without_what_it_held(bench: Bench) -> None:
    bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, b"large", None, [("x", b"1")]))
    process = Process(bench)
    process.publisher.errors[DEAD] = [MessageSizeTooLargeError()]
    bench.settle()
    ((dead, cause),) = bench.dead()
    assert (dead.value, dead.header("x"), cause) == (None, None, "no-job")
    assert dead.header("dead-origin") == f"{QUEUE}:0:0"
    assert bench.queues.waiting(QUEUE) == []
    assert process.worker.counts["unsettled"] == 0


@pytest.mark.parametrize("name", ["x" * 251, "two\nlines"])
def test_a_record_of_a_task_that_nobody_can_have_is_no_job(
    bench: Bench, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    bench.put(name)
    Process(bench)
    bench.settle()
    assert [cause for _, cause in bench.dead()] == ["bad-name"]
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_a_payload_that_cannot_be_read_ends_as_a_failure(bench: Bench) -> None:
    job = bench.put("note", 1)
    bench.queues.topics[QUEUE][0].value = b"\xff"
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.FAILURE
    assert len(bench.dead()) == 1


def delays_s(bench: Bench) -> list[float]:
    """Of jobs that were put into the schedule: seconds from the append until they are due."""
    return [(put.due_ms - put.time_ms) / 1000 for put in bench.puts()]


def test_a_job_of_an_unknown_task_waits_in_the_schedule_with_growing_delays(bench: Bench) -> None:
    bench.put("new.task")
    process = Process(bench, inline=True)
    bench.pass_time(200)
    assert delays_s(bench)[:7] == [1, 2, 4, 8, 15, 30, 60]
    waited = bench.queues.topics[DUE]
    assert len({record.header("unknown-since") for record in waited}) == 1
    assert [record.header("unknown") for record in waited[:3]] == ["1", "2", "3"]
    assert [put.generation for put in bench.puts()[:3]] == [1, 2, 3]
    assert {record.deliveries for record in waited} == {1}
    assert (bench.dead(), bench.states(), process.worker.counts["locks_lost"]) == ([], [], 0)


def test_a_job_of_an_unknown_task_is_dead_after_the_time_that_the_app_allows(bench: Bench) -> None:
    job = bench.put("new.task")
    Process(bench, inline=True, options=WorkerOptions(unknown_ttl_s=60))
    bench.pass_time(55)
    assert bench.dead() == []
    bench.pass_time(40)
    ((record, cause),) = bench.dead()
    assert (cause, record.header("id")) == ("unknown-task", job.id)
    assert bench.final(job.id) is JobState.FAILURE


def test_producers_that_are_ten_minutes_ahead_of_the_workers_lose_no_job(bench: Bench) -> None:
    jobs = [bench.put("note", n) for n in range(50)]
    old = Process(bench, inline=True)
    old.worker._admission._tasks = {}
    bench.pass_time(600)
    assert bench.dead() == bench.states() == []
    Process(bench, inline=True)
    old.worker.stop()
    bench.pass_time(3)
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 50
    assert sorted(bench.runs) == list(range(50))


def test_a_job_that_needs_what_this_release_does_not_know_waits_like_one_of_an_unknown_task(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("note", 1, needs=("time-travel",))
    Process(bench, inline=True)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.admission"):
        bench.settle()
    (waiting,) = bench.queues.topics["shop.commands"]
    assert (bench.runs, waiting.header("needs"), waiting.header("unknown")) == ([], "time-travel", "1")
    assert "does not understand time-travel, which the job needs" in caplog.text


def test_an_unknown_task_is_reported_once_with_how_long_its_job_waits_and_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = bench.put("new.task"), bench.put("new.task")
    bench.put("other.task")
    Process(bench, inline=True)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.admission"):
        bench.pass_time(30)
    lines = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in lines] == ["cannot run task 'new.task'", "cannot run task 'other.task'"]
    assert f"job {first.id} waits for a worker that can, and fails after 24 h if there is none" in lines[0]
    assert "import the module that defines the task" in lines[0]


def test_names_of_unknown_tasks_do_not_fill_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(105):
        bench.put(f"new.task{number}")
    Process(bench, inline=True)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.admission"):
        bench.pass_time(3)
    assert len([record for record in caplog.records if "cannot run task" in record.getMessage()]) == 100


def test_a_suspect_of_an_unknown_task_keeps_its_crashes_and_is_charged_with_no_other(bench: Bench) -> None:
    job = bench.put("note", 1, topic=SUSPECT, crashes=2)
    old = Process(bench)
    old.worker._admission._tasks = {}
    bench.settle()
    (waiting,) = bench.queues.topics["shop.commands"]
    assert (waiting.header("crashes"), waiting.header("unknown")) == ("2", "1")
    old.worker.stop()
    Process(bench, inline=True)
    bench.pass_time(2)
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.queues.waiting(SUSPECT) == []


# -- jobs that are not due --------------------------------------------------------------------------------------------


def test_the_next_attempt_waits_for_the_back_off_of_the_policy(bench: Bench) -> None:
    """expo(first=4, factor=2): 4 s after the first failure, 8 s after the second (the specification's example)."""
    bench.declare_flaky(Retry(max_attempts=4, backoff=expo(first=4, factor=2, cap=900), jitter=False))
    job = bench.put("flaky", 1)
    Process(bench, inline=True)
    bench.pass_time(3.9, 0.1)
    assert bench.runs == [1]
    bench.pass_time(0.2, 0.1)
    assert bench.runs == [1, 1]
    bench.pass_time(7.7, 0.1)
    assert bench.runs == [1, 1]
    bench.pass_time(0.4, 0.1)
    assert bench.runs == [1, 1, 1]
    assert [record.header("attempt") for record in bench.queues.topics["shop.commands"]] == ["2", "3", "4"]
    due = [put.due_ms for put in bench.puts()]
    assert [(state.state, state.due_ms) for state in bench.states()] == [(JobState.RETRY, each) for each in due]
    bench.pass_time(17)
    assert (bench.runs, bench.final(job.id)) == ([1, 1, 1, 1], JobState.FAILURE)


def test_jitter_shortens_each_wait_by_up_to_a_half(bench: Bench) -> None:
    bench.declare_flaky(Retry(max_attempts=2, backoff=expo(first=8), jitter=True))
    for number in range(40):
        bench.put("flaky", number)
    Process(bench, inline=True)
    bench.settle()
    waits = delays_s(bench)
    assert len(waits) == 40
    assert all(4 <= wait <= 8 for wait in waits)
    assert len(set(waits)) > 20


def test_no_back_off_is_computed_for_a_job_that_has_no_attempt_left(bench: Bench) -> None:
    asked: list[int] = []

    def backoff(attempt: int) -> float:
        asked.append(attempt)
        return 1.0

    bench.declare_flaky(Retry(max_attempts=2, backoff=backoff))
    asked.clear()
    bench.put("flaky", 1, attempt=10**10)
    Process(bench, inline=True)
    bench.settle()
    assert ([cause for _, cause in bench.dead()], asked) == (["attempts"], [])


def test_a_back_off_that_raises_is_logged_and_the_job_is_retried(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    is_broken = False

    def backoff(attempt: int) -> float:
        return 1 / 0 if is_broken else 1.0

    bench.declare_flaky(Retry(max_attempts=2, backoff=backoff, jitter=False))
    is_broken = True
    bench.put("flaky", 1)
    Process(bench, inline=True)
    bench.settle()
    assert delays_s(bench) == [60]
    assert "the back-off of task flaky failed" in caplog.text


def test_a_task_may_have_itself_started_later_which_is_no_attempt(bench: Bench) -> None:
    @bench.app.task(name="poll")
    def poll() -> str:
        bench.runs.append(len(bench.runs))
        if len(bench.runs) < 3:
            raise Snooze(10)
        return "ready"

    job = bench.put("poll")
    Process(bench, inline=True)
    bench.pass_time(9)
    assert bench.runs == [0]
    bench.pass_time(12)
    assert bench.runs == [0, 1, 2]
    assert {record.header("attempt") for record in bench.queues.topics[DUE]} == {None}
    states = [(state.state, state.due_ms is not None) for state in bench.states()]
    assert states == [(JobState.SCHEDULED, True)] * 2 + [(JobState.SUCCESS, False)]
    assert bench.final(job.id) is JobState.SUCCESS


@pytest.mark.parametrize(("retry", "runs"), [(None, 3), (Retry(max_attempts=2), 2)])
def test_a_task_may_say_when_its_next_attempt_is_within_its_policy(
    bench: Bench, retry: Retry | None, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka.tasks.errors.time.time", bench.clock.time)

    @bench.app.task(name="limited", retry=retry)
    def limited() -> RetryAt | None:
        bench.runs.append(len(bench.runs))
        return RetryAt(bench.clock.time() + 5, "429") if len(bench.runs) < 3 else None

    job = bench.put("limited")
    Process(bench, inline=True)
    bench.pass_time(4)
    assert bench.runs == [0]
    bench.pass_time(9)
    assert len(bench.runs) == runs
    assert bench.final(job.id) is (JobState.SUCCESS if runs == 3 else JobState.FAILURE)
    retried = [state for state in bench.states() if state.state is JobState.RETRY]
    assert retried[0].detail()["text"] == "429"


@pytest.mark.parametrize("deliveries", [1, 2])
def test_a_job_that_is_leased_before_it_is_due_goes_to_the_schedule_and_is_no_suspect(
    bench: Bench, deliveries: int
) -> None:
    """An older release, or another program, has written it so."""
    job = bench.put("note", 1, topic=DUE, due_ms=bench.now_ms() + 100_000)
    bench.queues.topics[DUE][0].deliveries = deliveries - 1
    process = Process(bench, inline=True)
    bench.pass_time(99)
    assert (bench.runs, bench.queues.waiting(DUE), bench.states()) == ([], [], [])
    assert [(put.subject, put.due_ms, put.generation) for put in bench.puts()] == [
        (job.id, job.due_ms, 1)
    ]
    bench.pass_time(2)
    assert (bench.runs, bench.final(job.id)) == ([1], JobState.SUCCESS)
    assert bench.queues.topics[DUE][1].header("due") is None
    assert (bench.queues.topics[SUSPECT], process.worker.counts["given_back"]) == ([], 0)


def test_a_due_job_behind_many_that_are_not_is_found_though_all_slots_are_busy(bench: Bench) -> None:
    """What is not due takes no slot: each answer that brings nothing else is followed by a larger request."""
    for number in range(300):
        bench.put("note", number, topic=DUE, due_ms=bench.now_ms() + 600_000)
    due = bench.put("note", -1, topic=DUE)
    process = Process(bench, concurrency=1)
    bench.pass_time(5)
    assert [job.envelope.id for job in process.manual.jobs] == [due.id]


def test_a_worker_that_dies_between_its_put_and_its_accept_leaves_one_next_attempt(bench: Bench) -> None:
    bench.declare_flaky(Retry(max_attempts=3, backoff=expo(first=4), jitter=False))
    job = bench.put("flaky", 1)
    first = Process(bench)
    bench.settle()
    first.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    first.end(outcome=AttemptFailed(ErrorInfo("OSError", "disk")))
    assert [put.generation for put in bench.puts()] == [1]
    first.kill()
    second = Process(bench, concurrency=1)
    bench.settle()
    second.end(outcome=AttemptFailed(ErrorInfo("OSError", "disk")))
    assert [(put.generation, put.subject) for put in bench.puts()] == [(1, job.id)] * 2
    bench.pass_time(5)
    assert [(each.envelope.attempt, each.envelope.generation) for each in second.manual.jobs] == [(2, 1)]


def test_a_job_that_expires_while_it_waits_does_not_run(bench: Bench) -> None:
    job = bench.put("note", 1, topic=DUE, due_ms=bench.now_ms() + 20_000, expires_ms=bench.now_ms() + 10_000)
    Process(bench, inline=True)
    bench.pass_time(21)
    assert (bench.runs, bench.final(job.id)) == ([], JobState.REVOKED)


@pytest.mark.parametrize(("slots", "run_s"), [(1, 2), (1, 20), (1, 60), (4, 60)])
def test_a_due_job_behind_a_backlog_of_long_ones_starts_within_two_of_these(
    bench: Bench, slots: int, run_s: float
) -> None:
    """Both topics are asked for a job when a slot is free, and the answer with a long one may come first."""
    process = Process(bench, concurrency=slots)
    bench.put_many(200)
    bench.settle()
    due = bench.put("note", -1, topic=DUE)
    begun_at: dict[Job, float] = {}
    while due.id not in {job.envelope.id for job in begun_at}:
        now = bench.clock.monotonic()
        assert now <= 2 * run_s + 1
        for number, job in enumerate(process.manual.jobs[:slots]):
            begun_at.setdefault(job, now - (0.1 * run_s * number if not begun_at else 0))
        for job in [job for job in process.manual.jobs if begun_at.get(job, now) + run_s <= now]:
            process.end(job, ran_s=run_s)
        bench.pass_time(0.5)


def test_a_slot_is_kept_for_a_due_job_for_a_moment_only(bench: Bench) -> None:
    """Another worker may have it."""
    process = Process(bench, concurrency=1)
    bench.put_many(3)
    bench.settle()
    process.worker._buffers.on_given_back(JobSource("default", DUE, SourceKind.DUE))
    bench.pass_time(5)
    process.end(ran_s=5.0)
    assert process.manual.jobs == []
    bench.pass_time(0.3, 0.1)
    assert len(process.manual.jobs) == 1
    process.end(ran_s=5.0)
    assert len(process.manual.jobs) == 1, "it is not kept again"


def test_a_job_that_expires_in_a_buffer_behind_others_does_not_run(bench: Bench) -> None:
    process = Process(bench, concurrency=1)
    bench.put("note", 0)
    bench.settle()
    process.end(ran_s=0.1)  # of such jobs some are leased ahead, and wait here
    running = bench.put("note", 1)
    late = bench.put("note", 2, expires_ms=bench.now_ms() + 1000)
    next_one = bench.put("note", 3)
    bench.settle()
    assert process.worker.statistics()["held"] == 3
    bench.pass_time(1.2)
    process.end()
    assert [job.envelope.id for job in process.manual.jobs] == [next_one.id]
    assert (bench.final(running.id), bench.final(late.id)) == (JobState.SUCCESS, JobState.REVOKED)
    assert process.worker.counts["refused"] == 1
    process.end()
    assert process.worker.statistics()["held"] == 0


# -- workers that die -------------------------------------------------------------------------------------------------


def test_jobs_of_a_killed_worker_run_again_as_suspects(bench: Bench) -> None:
    jobs = bench.put_many(2)
    first = Process(bench, concurrency=2)
    bench.settle()
    assert len(first.manual.jobs) == 2
    first.kill()
    Process(bench, inline=True)
    bench.settle()
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 2
    assert len(bench.queues.topics[SUSPECT]) == 2
    assert bench.queues.waiting(SUSPECT) == []
    assert bench.dead() == []


def test_a_job_that_kills_its_workers_is_dead_after_the_crash_limit(bench: Bench) -> None:
    job = bench.put("note", 1)
    killed = 0
    for _ in range(10):
        process = Process(bench)
        bench.settle()
        if not process.manual.jobs:
            break
        process.kill()
        killed += 1
    assert killed == 4  # once unseen on the queue, three times counted among the suspects
    ((record, cause),) = bench.dead()
    assert (cause, record.header("crashes")) == ("crashes", "3")
    assert bench.final(job.id) is JobState.FAILURE
    assert bench.queues.waiting(SUSPECT) == []


def test_a_pool_in_the_workers_process_runs_one_suspect_at_a_time_of_each_queue(bench: Bench) -> None:
    for number in range(4):
        bench.put("note", number, topic=SUSPECT)
        bench.put("note", number, topic="shop.mail.suspect")
    process = Process(bench, concurrency=4, queues=("default", "mail"))
    bench.settle()
    for _ in range(4):
        assert sorted(job.lease.source.queue for job in process.manual.jobs) == ["default", "mail"]
        held = [record for topic in (SUSPECT, "shop.mail.suspect") for record in bench.queues.topics[topic]]
        assert sum(record.holder is not None for record in held) == 2
        process.end()
        process.end()
    assert len(bench.states()) == 8


def test_a_pool_of_processes_runs_suspects_like_other_jobs(bench: Bench) -> None:
    """The death of a child is attributed to the job that it ran, so none has to wait for another."""
    for number in range(9):
        bench.put("note", number, topic=SUSPECT, crashes=number % 2)
    process = Process(bench, concurrency=3, attributes_crashes=True)
    bench.settle()
    held = [record for record in bench.queues.topics[SUSPECT] if record.holder is not None]
    assert len(process.manual.jobs) == len(held) == 3
    while process.manual.jobs:
        process.end(ran_s=0.02)
    assert len(bench.states()) == 9


@pytest.mark.parametrize("concurrency", [2, 4, 9])
def test_a_job_that_kills_its_workers_takes_no_innocent_one_with_it(bench: Bench, concurrency: int) -> None:
    """All ran beside it when it killed first; after that no other suspect is held beside it."""
    killer = bench.put("note", 666)
    innocent = bench.put_many(concurrency - 1)
    first = Process(bench, concurrency)
    bench.settle()
    assert len(first.manual.jobs) == concurrency
    first.kill()
    for _ in range(4):
        process = Process(bench, concurrency)
        bench.settle()
        while process.manual.jobs and killer.id not in [job.envelope.id for job in process.manual.jobs]:
            process.end()
        if not process.manual.jobs:
            break
        held = [record for record in bench.queues.topics[SUSPECT] if record.holder is not None]
        assert len(held) == len(process.manual.jobs) == 1
        process.kill()
    bench.settle()
    Process(bench, inline=True)
    bench.settle()
    assert [(record.header("id"), cause) for record, cause in bench.dead()] == [(killer.id, "crashes")]
    assert [bench.final(job.id) for job in innocent] == [JobState.SUCCESS] * len(innocent)


@pytest.mark.parametrize("took_s", [0.02, 0.5])
def test_a_backlog_of_brief_jobs_lets_suspects_in(bench: Bench, took_s: float) -> None:
    """What is in the buffer takes each slot at once, so none is ever free."""
    bench.put_many(100)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=took_s)
    suspects = [bench.put("note", -n, topic=SUSPECT, crashes=n % 2) for n in range(4)]
    for _ in range(30):
        process.end(ran_s=took_s)
    assert [bench.final(job.id) for job in suspects] == [JobState.SUCCESS] * 4
    assert len(process.manual.jobs) == 2


def test_suspects_go_before_what_waits_in_buffer_and_pool(bench: Bench) -> None:
    bench.put_many(300)
    process = Process(bench, concurrency=2, attributes_crashes=True)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.001)  # now it is known that jobs are short, and the pool is filled ahead
    assert len(process.manual.jobs) > 10
    suspects = [bench.put("note", 1000 + n, topic=SUSPECT) for n in range(6)]
    bench.settle()
    assert len(process.manual.jobs) <= 2
    ended = [process.end(ran_s=0.001).envelope.id for _ in range(10)]
    assert set(ended) >= {envelope.id for envelope in suspects}
    bench.pass_time(0.5)
    process.end(ran_s=0.001)
    assert len(process.manual.jobs) > 10  # no more of them came: the pool is filled ahead again


def test_no_suspect_starts_before_the_broker_has_answered_what_made_it_one(bench: Bench) -> None:
    bench.put("note", 1)
    first = Process(bench)
    bench.settle()
    first.kill()
    second = Process(bench)
    second.delivery.is_mute = True
    bench.settle()
    assert len(bench.queues.waiting(SUSPECT)) == 1
    assert second.manual.jobs == []
    second.delivery.answer()
    bench.settle()
    assert len(second.manual.jobs) == 1


def test_a_move_that_the_broker_does_not_answer_holds_up_suspects_for_some_seconds_only(bench: Bench) -> None:
    bench.put("note", 1)
    first = Process(bench)
    bench.settle()
    first.kill()
    second = Process(bench)
    second.delivery.is_mute = True
    bench.settle()
    other = bench.put("note", 2)
    bench.settle()
    assert [job.envelope.id for job in second.manual.jobs] == [other.id]  # what is no suspect starts at once
    bench.pass_time(MOVING_S)
    second.delivery.look_soon()
    bench.settle()
    assert len(second.manual.jobs) == 2


def test_what_is_not_admitted_yet_is_given_back_with_its_partition(bench: Bench) -> None:
    """More leases have come than one turn of the loop admits."""
    process = Process(bench)
    worker = process.worker
    bench.put_many(3 * TURN_LEASES)
    process.delivery.request(JobSource("default", QUEUE), 10_000)
    process.delivery._look()
    leases = list(worker._leases._held)
    assert (len(leases), len(process.manual.jobs)) == (3 * TURN_LEASES, 2)
    worker.returning(leases)
    assert worker.counts["given_back"] == len(leases) - 2
    assert [job.lease for job in process.manual.jobs] == leases[:2]


def test_locks_that_turn_out_to_be_short_are_renewed_in_time(bench: Bench) -> None:
    process = Process(bench)
    process.delivery.lock_s = 3.0
    bench.put("note", 1)
    bench.settle()
    bench.pass_time(5.0)
    assert process.worker.counts["locks_lost"] == 0
    assert len(process.delivery.renewed) >= 4


def test_a_worker_that_is_stopped_before_it_starts_leaves_without_a_lease(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench, stopped=True)
    bench.settle()
    assert process.left == 1
    assert process.worker.counts["leased"] == 0


def test_a_worker_whose_group_cannot_be_joined_stops_and_says_why(bench: Bench) -> None:
    process = Process(bench)
    bench.put("note", 1)
    bench.settle()
    error = KafkaError("the group is a consumer group")
    process.worker.failed(error)
    process.worker.failed(KafkaError("and so is the other"))
    process.end()
    assert process.left == 1
    assert process.worker.error is error


def test_a_retry_of_a_suspect_keeps_its_crashes(bench: Bench) -> None:
    bench.put("fail", 1, topic=SUSPECT, crashes=2)
    process = Process(bench)
    bench.settle()
    process.end(outcome=AttemptFailed(ErrorInfo("OSError")))
    (record,) = bench.queues.topics[DUE]
    assert (record.header("attempt"), record.header("crashes")) == ("2", "2")


def test_a_killed_workers_buffer_is_started_again_within_two_seconds_of_work(bench: Bench) -> None:
    jobs = bench.put_many(700)
    first = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(5):
        first.end(ran_s=0.00002)
    held = first.worker.statistics()["held"]
    first.kill()
    Process(bench, inline=True)
    bench.settle()
    assert 200 < held <= 600
    assert all(bench.final(job.id) is JobState.SUCCESS for job in jobs)


# -- locks ------------------------------------------------------------------------------------------------------------


def test_running_jobs_are_renewed_every_third_of_the_lock(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(29.5)
    assert len(process.delivery.renewed) == 2
    process.end(ran_s=29.5)
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.queues.topics[QUEUE][0].deliveries == 1


def test_a_result_that_takes_long_to_write_is_renewed_too(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench, inline=True)
    process.publisher.is_stuck = True
    bench.settle()
    bench.pass_time(100)
    process.publisher.advance()
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.queues.topics[QUEUE][0].deliveries == 1


def test_a_lost_lock_cancels_the_job_and_drops_its_outcome(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    (running,) = process.manual.jobs
    process.worker.lost([running.lease], "SHARE_SESSION_NOT_FOUND")
    assert running.cancelled
    process.end(running)
    assert bench.final(job.id) is None
    assert process.delivery.accepted == []
    assert process.worker.counts["dropped"] == 1


def test_lost_locks_are_one_line_in_a_minute_however_many_brokers_go(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    for _ in range(3):
        lose_lock(process)
        bench.settle()
    assert process.worker.counts["locks_lost"] > 1
    assert len([line for line in caplog.messages if line.startswith("lost the acquisition locks")]) == 1


def test_what_is_lost_is_said_as_the_delivery_has_it(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        bench.put("note", number)
    process = Process(bench)
    bench.settle()
    leases = [job.lease for job in process.manual.jobs]
    leases[0].claim = Claim(ClaimKind.PARTITION)
    process.worker.lost(leases[:2], "because")
    assert [line for line in caplog.messages if line.startswith("lost")] == [
        "lost the partitions of 1 job (because); their next owners will run them",
        "lost the acquisition locks of 1 job (because); other workers will run them",
    ]


def test_a_zombies_result_does_not_appear(bench: Bench) -> None:
    job = bench.put("note", 1)
    zombie = Process(bench)
    bench.settle()
    (running,) = zombie.manual.jobs
    zombie.delivery.renew = lambda leases: None  # type: ignore[method-assign]
    zombie.manual.ready = False
    bench.pass_time(31)
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS
    zombie.worker.lost([running.lease], "lock timeout")
    zombie.end(running, AttemptFailed(ErrorInfo("OSError")))
    assert [s.state for s in bench.states()] == [JobState.SUCCESS]


def lose_lock(process: Process) -> None:
    """The broker lets go of what the first job has, and the worker is told; then the job's run here ends."""
    job = process.manual.jobs[0]
    job.lease.claim.token.holder = None
    process.worker.lost([job.lease], "the broker went away")
    process.end(job)


def test_locks_that_a_live_worker_loses_are_no_crashes_however_often(bench: Bench) -> None:
    envelope = bench.put("note", 1, topic=SUSPECT, crashes=2)
    process = Process(bench)
    bench.settle()
    for _ in range(5):
        assert [job.crashes for job in process.manual.jobs] == [2]
        lose_lock(process)
    process.end()
    assert bench.final(envelope.id) is JobState.SUCCESS
    # Written anew each time: another worker would take the deliveries for crashes, and the broker's limit counts them.
    assert [record.deliveries for record in bench.queues.topics[SUSPECT]] == [2, 2, 2, 2, 2, 1]
    assert bench.queues.waiting(SUSPECT) == []


def test_a_settlement_that_the_broker_does_not_take_is_no_crash(bench: Bench) -> None:
    bench.put("note", 1, topic=SUSPECT, crashes=2)
    process = Process(bench)
    bench.settle()
    (running,) = process.manual.jobs
    finishing = process.delivery.finishing
    plain = finishing._accept

    def let_go_first(leases: list[JobLease], answered: Callable[[], object] | None) -> None:
        finishing._accept = plain
        running.lease.claim.token.holder = None
        plain(leases, answered)

    finishing._accept = let_go_first
    process.end(running)
    (job,) = process.manual.jobs
    assert (job.crashes, job.lease.deliveries) == (2, 1)


def test_a_lock_that_ends_while_the_worker_stands_still_may_be_its_jobs_doing_and_counts(bench: Bench) -> None:
    bench.put("note", 1, topic=SUSPECT)
    process = Process(bench)
    bench.settle()
    bench.clock.advance(31)
    lose_lock(process)
    (job,) = process.manual.jobs
    assert (job.crashes, job.lease.deliveries) == (1, 2)


def test_a_lost_lock_counts_where_nobody_knows_of_it(bench: Bench) -> None:
    bench.put("note", 1, topic=SUSPECT)
    process = Process(bench)
    bench.settle()
    process.manual.ready = False  # it takes nothing more
    other = Process(bench)
    lose_lock(process)
    (job,) = other.manual.jobs
    assert (job.crashes, job.lease.deliveries) == (1, 2)


def test_buffered_jobs_that_wait_too_long_are_given_back(bench: Bench) -> None:
    bench.put_many(300)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.0001)
    process.manual.started_count = 2
    bench.pass_time(21)
    assert process.worker.counts["given_back"] > 250
    assert all(record.deliveries == 1 for record in bench.queues.topics[QUEUE])


def saturate(bench: Bench) -> Process:
    """A worker whose jobs were short so far, with long ones in all of its slots."""
    bench.put_many(8)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(8):
        process.end(ran_s=0.001)
    bench.put_many(2)
    bench.settle()
    assert len(process.manual.jobs) == 2
    return process


def test_a_worker_with_long_jobs_in_all_slots_leases_none_of_the_short_ones_that_come(bench: Bench) -> None:
    process = saturate(bench)
    bench.pass_time(0.2, 0.05)
    assert {source.kind: count for source, count in process.delivery.wants.items()}[SourceKind.MAIN] == 0
    jobs = bench.put_many(200)
    other = Process(bench, inline=True)
    bench.settle()
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 200
    assert (process.worker.counts["given_back"], other.worker.counts["given_back"]) == (0, 0)
    process.end()
    assert {source.kind: count for source, count in process.delivery.wants.items()}[SourceKind.MAIN] > 64


def test_what_was_leased_before_the_slots_were_taken_by_long_jobs_is_given_back_within_a_second(bench: Bench) -> None:
    process = saturate(bench)
    jobs = bench.put_many(200)  # before it shows that those that run are long
    bench.settle()
    process.manual.started_count = 2
    assert process.worker.statistics()["held"] > 64
    bench.pass_time(0.9, 0.1)
    other = Process(bench, inline=True)
    bench.settle()
    assert process.worker.counts["given_back"] > 64
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 200
    assert other.worker.counts["given_back"] == 0


def test_finished_code_does_not_run_again_because_its_result_cannot_be_written_for_minutes(bench: Bench) -> None:
    jobs = bench.put_many(3)
    process = Process(bench, inline=True)
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")] * 18
    bench.pass_time(110)
    assert bench.states() == []
    bench.pass_time(40)
    assert [bench.final(job.id) for job in jobs] == [JobState.SUCCESS] * 3
    assert sorted(bench.runs) == [0, 1, 2]
    assert [record.deliveries for record in bench.queues.topics[QUEUE]] == [1, 1, 1]
    assert (process.worker.counts["unsettled"], process.worker.statistics()["held"]) == (0, 0)


def test_a_suspect_whose_result_cannot_be_written_for_minutes_is_charged_with_no_crash(bench: Bench) -> None:
    job = bench.put("note", 1, topic=SUSPECT, crashes=2)
    process = Process(bench, inline=True)
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s") for _ in range(7)]
    bench.pass_time(100)
    assert bench.final(job.id) is None
    bench.pass_time(20)
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.runs == [1]
    assert [record.deliveries for record in bench.queues.topics[SUSPECT]] == [1]
    assert (process.worker.counts["unsettled"], process.worker.statistics()["held"]) == (0, 0)


def test_others_go_on_while_a_job_cannot_be_moved(bench: Bench) -> None:
    bench.put("new.task", topic=SUSPECT, crashes=1)
    process = Process(bench)
    process.publisher.errors["shop.commands"] = [KafkaTimeoutError("120 s")] * 4
    bench.pass_time(2)
    assert process.worker.statistics()["held"] == 1
    job = bench.put("note", 1)
    bench.settle()
    process.end()
    assert bench.final(job.id) is JobState.SUCCESS
    bench.pass_time(20)
    (first,) = bench.queues.topics[SUSPECT]
    assert (first.deliveries, first.is_done) == (1, True)
    assert bench.queues.topics[DUE][0].header("crashes") == "1"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (TopicAuthorizationFailedError("no"), "grant this worker WRITE on topic shop.default.due"),
        (MessageSizeTooLargeError(), "raise max.message.bytes of topic shop.default.due"),
    ],
)
def test_a_job_that_cannot_be_moved_is_kept_and_the_log_says_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture, error: KafkaError, remedy: str
) -> None:
    """The broker would drop it silently after as many deliveries as it allows."""
    job = bench.put("fail", 1)
    process = Process(bench, inline=True)
    process.publisher.errors[DUE] = [error] * 1000
    bench.pass_time(600)
    assert [record.deliveries for record in bench.queues.waiting(QUEUE)] == [1]
    assert (bench.runs, bench.final(job.id)) == ([1], None)
    lines = [record.getMessage() for record in caplog.records if "could not write" in record.getMessage()]
    assert all(remedy in line for line in lines)
    assert 1 <= len(lines) <= 60
    process.publisher.errors[DUE] = []
    bench.pass_time(31)
    assert bench.final(job.id) is JobState.FAILURE
    assert bench.runs == [1, 1, 1]


def test_a_worker_that_leaves_with_what_it_could_not_write_says_so(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put("note", 1)
    process = Process(bench)
    process.publisher.errors["shop.results"] = [TopicAuthorizationFailedError("no")] * 1000
    bench.settle()
    process.end()
    process.worker.stop()
    bench.pass_time(31)
    assert process.left == 1
    assert "stopping before the records of job shop.default:0:0 could be written" in caplog.text
    (waiting,) = bench.queues.waiting(QUEUE)
    assert waiting.holder is None


def test_a_worker_that_stops_writes_what_was_refused_again_at_once(bench: Bench) -> None:
    jobs = [bench.put("note", n, topic=SUSPECT) for n in range(2)]
    process = Process(bench, concurrency=2, attributes_crashes=True)
    bench.settle()
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s"), KafkaTimeoutError("120 s")]
    process.end()
    process.worker.stop()  # refused once more
    bench.settle()
    process.end()
    assert (process.left, bench.final(jobs[1].id)) == (0, JobState.SUCCESS)
    bench.pass_time(2.1, 0.1)
    assert (process.left, bench.final(jobs[0].id)) == (1, JobState.SUCCESS)


# -- stopping ---------------------------------------------------------------------------------------------------------


def shutdown(bench: Bench, jobs: int = 300) -> Process:
    bench.put_many(jobs)
    process = Process(bench, concurrency=2)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.0001)
    process.manual.started_count = 2
    return process


def test_a_stop_gives_back_what_has_not_started_and_finishes_what_has(bench: Bench) -> None:
    process = shutdown(bench)
    held = process.worker.statistics()["held"]
    process.worker.stop()
    bench.settle()
    assert process.worker.stage is WorkerStage.DRAINING
    assert process.worker.counts["given_back"] == held - 2
    assert [r.header("clean") for r in bench.queues.topics[DUE]] == ["1"] * (held - 2)
    assert process.left == 0
    process.end()
    process.end()
    assert (process.left, process.worker.stage, process.publisher.is_closed) == (1, WorkerStage.LEFT, True)
    assert len(bench.states()) == 6


def test_a_clean_stop_raises_no_suspicion(bench: Bench) -> None:
    process = shutdown(bench)
    process.worker.stop()
    bench.settle()
    process.end()
    process.end()
    Process(bench, inline=True)
    bench.settle()
    assert bench.queues.topics[SUSPECT] == []
    assert len({s.id for s in bench.states()}) == 300
    assert bench.queues.waiting(QUEUE) == []


def test_an_idle_worker_leaves_at_once(bench: Bench) -> None:
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    bench.settle()
    assert process.left == 1


def test_running_jobs_are_renewed_while_the_worker_drains(bench: Bench) -> None:
    process = shutdown(bench)
    process.worker.stop()
    bench.settle()
    before = len(process.delivery.renewed)
    bench.pass_time(20)
    assert len(process.delivery.renewed) > before


def test_after_the_grace_running_jobs_are_asked_to_end_and_run_elsewhere(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    bench.pass_time(21)
    (running,) = process.manual.interrupted
    assert running.cancelled
    process.end(running, AttemptFailed(ErrorInfo("kafka.tasks.errors.SoftTimeLimit"), listed=False))
    assert process.left == 1
    assert (bench.final(job.id), bench.dead()) == (None, [])
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.queues.topics[SUSPECT] == []


def test_jobs_that_do_not_end_are_given_back_and_the_worker_leaves(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    bench.pass_time(31)
    assert process.left == 1
    process.end(process.manual.jobs[0])
    assert bench.final(job.id) is None
    Process(bench, inline=True)
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS


def test_each_further_signal_goes_a_stage_further(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    stages: list[WorkerStage] = []
    for _ in range(3):
        process.worker.stop()
        stages.append(process.worker.stage)
    assert stages == [WorkerStage.DRAINING, WorkerStage.INTERRUPTING, WorkerStage.ABANDONING]
    bench.settle()
    assert process.left == 1
    process.worker.stop()
    assert process.left == 1


def test_a_worker_whose_broker_is_gone_leaves_all_the_same(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.publisher.is_stuck = True
    process.worker.stop()
    bench.pass_time(37)
    assert process.left == 1


def test_jobs_that_arrive_while_it_stops_are_given_back(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    late = bench.put("note", 2)
    process.delivery.request(JobSource("default", QUEUE), 1)
    bench.settle()
    assert late.id not in {job.envelope.id for job in process.manual.jobs}
    assert bench.queues.topics[DUE][-1].header("clean") == "1"


def test_a_worker_leaves_when_no_request_is_out_that_may_bring_jobs(bench: Bench) -> None:
    process = Process(bench)
    process.delivery.is_silent = True
    bench.settle()
    process.worker.stop()
    bench.settle()
    assert process.left == 0
    late = bench.put("note", 1, topic=SUSPECT)
    process.delivery.request(SUSPECTS, 1)  # it was under way
    bench.settle()
    assert process.left == 0
    assert process.delivery.drained is not None
    process.delivery.drained()
    bench.settle()
    assert process.left == 1
    (back,) = bench.queues.waiting(SUSPECT)
    assert (back.header("id"), back.header("clean"), back.deliveries) == (late.id, "1", 0)


def test_a_worker_whose_brokers_are_silent_leaves_when_its_time_is_over(bench: Bench) -> None:
    process = Process(bench)
    process.delivery.is_silent = True
    bench.settle()
    process.worker.stop()
    bench.pass_time(31)
    assert process.left == 1


def test_track_started_writes_a_record_at_the_start(bench: Bench) -> None:
    bench.put("note", 1)
    Process(bench, inline=True, options=WorkerOptions(track_started=True))
    bench.settle()
    assert [s.state for s in bench.states()] == [JobState.STARTED, JobState.SUCCESS]


def test_a_job_that_waits_in_the_pool_has_not_started(bench: Bench) -> None:
    process = Process(bench, options=WorkerOptions(track_started=True))
    bench.put_many(2)
    bench.settle()
    first, second = process.manual.jobs
    assert bench.states() == []
    process.manual.begin(first)
    bench.settle()
    assert [(s.id, s.state) for s in bench.states()] == [(first.envelope.id, JobState.STARTED)]
    process.manual.begin(second)
    process.end(first)
    assert [(s.id, s.state) for s in bench.states()[1:]] == [
        (second.envelope.id, JobState.STARTED),
        (first.envelope.id, JobState.SUCCESS),
    ]


def test_the_start_of_a_job_whose_lock_is_lost_is_not_recorded(bench: Bench) -> None:
    process = Process(bench, concurrency=1, options=WorkerOptions(track_started=True))
    bench.put("note", 1)
    bench.settle()
    (job,) = process.manual.jobs
    process.worker.lost([job.lease], "INVALID_RECORD_STATE")
    process.manual.begin(job)
    bench.settle()
    assert bench.states() == []


def waiting_behind_one(bench: Bench, count: int) -> Process:
    """A worker with one slot, a job in it, and so many behind that."""
    process = Process(bench, concurrency=1)
    bench.put("note", -1)
    bench.settle()
    process.end(ran_s=0.05)  # so more are leased than start
    bench.pass_time(0.25)  # later than the time from which renewals are counted
    bench.put_many(1 + count)
    bench.settle()
    assert (len(process.manual.jobs), process.manual.backlog) == (1, count)
    return process


@pytest.mark.parametrize("first", ["stop", "resize", "paused", "leased"])
def test_after_a_standstill_no_command_makes_the_worker_use_locks_that_have_ended(bench: Bench, first: str) -> None:
    """A signal, say, is handled before the timers."""
    process = waiting_behind_one(bench, 5)
    bench.clock.advance(40)
    if first == "stop":
        process.worker.stop()
    elif first == "resize":
        process.worker.resize(1)
    elif first == "paused":
        process.worker.paused(frozenset({"default"}))
    else:
        process.worker.leased([])
    assert process.worker.counts["locks_lost"] == 6
    assert len(process.manual.jobs) == 1
    bench.settle()
    assert bench.queues.topics[DUE] == []
    assert process.worker.counts["given_back"] == 0


def test_after_a_standstill_what_was_written_makes_the_worker_use_no_locks_that_have_ended(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = waiting_behind_one(bench, 5)
    monkeypatch.setattr(source_buffers, "MAX_HELD_JOBS", 6)  # so that it waits for what is written, to lease more
    process.publisher.is_stuck = True
    process.end(ran_s=0.05)
    (running,) = process.manual.jobs
    bench.clock.advance(40)
    process.manual.depth += 1  # a child has come up meanwhile, and its packet was read
    answer_at_once = SimpleNamespace(call_soon=lambda callback, *args: callback(*args))  # before the timers
    monkeypatch.setattr(process.publisher, "_loop", answer_at_once)
    process.publisher.advance()
    assert process.manual.jobs == [running]
    assert process.worker.counts["locks_lost"] == 5


def test_a_standstill_of_half_a_lock_ends_the_locks_of_what_has_waited_for_the_other_half(bench: Bench) -> None:
    process = waiting_behind_one(bench, 4)
    process.manual.become(ready=False)
    process.end(ran_s=0.05)
    bench.pass_time(19.5, 0.25)
    assert process.manual.backlog == 4, "leased after the last renewal"
    process.worker.finished()  # it has run until now
    bench.clock.advance(15)
    bench.settle()
    assert process.worker.counts["locks_lost"] == 4
    assert bench.queues.topics[DUE] == []


def test_what_is_given_back_at_a_renewal_is_renewed_with_it(bench: Bench) -> None:
    process = waiting_behind_one(bench, 4)
    process.manual.become(ready=False)
    process.end(ran_s=0.05)
    process.publisher.is_stuck = True
    while bench.clock.monotonic() < 45.0:
        bench.pass_time(0.25, 0.25)
        left_s = [each.locked_until - bench.clock.monotonic() for each in bench.queues.waiting(QUEUE)]
        assert min(left_s) >= process.delivery.lock_s / 3
    assert process.manual.backlog == 0
    assert process.worker.counts["given_back"] == 4


def test_jobs_whose_locks_are_lost_while_they_wait_are_no_backlog(bench: Bench) -> None:
    process = waiting_behind_one(bench, 5)
    waiting = [lease for lease in process.worker._leases._held if lease.stage == BUFFERED]
    process.worker.lost(waiting[:3], "gone")
    bench.settle()
    assert process.manual.backlog == 2


# -- whatever happens -------------------------------------------------------------------------------------------------


def assert_one_suspect_at_a_time(process: Process) -> None:
    """Beside a suspect that may kill the worker, no other is held: it would be charged with that."""
    assert process.worker._leases.unfinished_of[SUSPECTS] <= 1


@hypothesis_settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_whatever_dies_every_job_ends_with_one_result_or_is_dead(seed: int, count: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    jobs = [bench.put(rng.choice(["note", "fail", "break", "new.task"]), n) for n in range(count)]
    processes: list[Process] = []
    options = WorkerOptions(unknown_ttl_s=20)

    def start() -> None:
        processes.append(Process(bench, concurrency=rng.randint(1, 4), options=options))

    def kill() -> None:
        if processes:
            processes.pop(rng.randrange(len(processes))).kill()

    def stop() -> None:
        if processes:
            processes.pop(rng.randrange(len(processes))).worker.stop()

    def end_some() -> None:
        for process in processes:
            for job in list(process.manual.jobs):
                if rng.random() < 0.7:
                    bad = AttemptFailed(ErrorInfo("OSError"), rng.random() < 0.5)
                    outcome: Outcome = OK if job.envelope.name == "note" else bad
                    process.manual.end(job, outcome, rng.choice([0.0001, 0.01, 3.0]))

    def lose_some() -> None:
        for process in processes:
            held = [lease for lease in list(process.worker._leases._held) if rng.random() < 0.3]
            for lease in held:
                lease.claim.token.holder = None
            if rng.random() < 0.8:
                process.worker.lost(held, "the broker went away")

    def refuse() -> None:
        for process in processes:
            topic = rng.choice([DUE, SUSPECT, DEAD, "shop.results"])
            process.publisher.errors[topic] = [KafkaTimeoutError("120 s")] * rng.randint(1, 3)

    moves: list[Callable[[], Any]] = [
        start, kill, stop, end_some, end_some, end_some, lose_some, refuse, lambda: bench.pass_time(5, 2.5),
    ]  # fmt: skip
    for _ in range(rng.randint(3, 25)):
        rng.choice(moves)()
        bench.settle()
        for process in processes:
            assert_one_suspect_at_a_time(process)
    last = Process(bench, inline=True, options=options)
    for process in processes:
        process.kill()
    bench.pass_time(90, 2.5)
    assert [bench.queues.waiting(topic) for topic in (QUEUE, SUSPECT)] == [[], []]
    dead = {record.header("id") for record, _ in bench.dead()}
    for job in jobs:
        assert bench.final(job.id) is not None or job.id in dead
    assert last.worker.statistics()["held"] == 0


# -- the schedule -----------------------------------------------------------------------------------------------------


class Member:
    """A membership in the schedule's group, which is left when the test says so."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.left = Future[None]()

    def start(self) -> None:
        self.calls.append("start")

    def close(self) -> Future[None]:
        self.calls.append("close")
        return self.left

    def snapshot(self) -> ScheduleSnapshot:
        return ScheduleSnapshot((), 0, 0, 0, 0.0)


def test_a_worker_gives_the_schedule_up_when_it_begins_to_stop_and_leaves_after_that(bench: Bench) -> None:
    member = Member()
    process = Process(bench, schedule=member)
    bench.settle()
    assert member.calls == ["start"]
    process.worker.stop()
    bench.settle()
    assert (member.calls, process.left) == (["start", "close"], 0)
    member.left.success(None)
    bench.settle()
    assert process.left == 1


def test_a_worker_leaves_in_the_end_though_the_schedule_was_not_left(bench: Bench) -> None:
    process = Process(bench, schedule=Member())
    bench.settle()
    for _ in range(4):
        process.worker.stop()
    bench.settle()
    assert process.left == 1

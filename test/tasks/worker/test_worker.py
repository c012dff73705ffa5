"""Tests of ``kafka.tasks.worker.worker``: whole workers over a queue in memory, with a manual clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kafka.errors import KafkaError, KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks import App, Cancel, Retry
from kafka.tasks.backends.base import WorkerBackend
from kafka.tasks.delivery.base import JobLease, JobSource, OutgoingRecord
from kafka.tasks.format.envelope import Envelope, dead_letter_of
from kafka.tasks.format.records import StateRecord
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.inline import InlinePool
from kafka.tasks.pools.runner import Job, run
from kafka.tasks.rules.decide import LeaseVerdict
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, ErrorInfo, JobCancelled, JobSucceeded, Outcome
from kafka.tasks.states import READY, JobState
from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS
from kafka.tasks.worker.source_buffers import MOVING_S
from kafka.tasks.worker.worker import TURN_BYTES, TURN_LEASES, Worker, WorkerOptions, WorkerStage
from test.tasks.fakes import FakeDelivery, FakePublisher, ManualPool, Queues, Record, a_job, pass_time, settle

QUEUE, SUSPECT, DEAD = "shop.default", "shop.default.suspect", "shop.default.dead"
SUSPECTS = JobSource("default", SUSPECT, True)
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

    def now_ms(self) -> int:
        return int(self.clock.time() * 1000)

    def put(self, name: str = "note", *args: Any, topic: str = QUEUE, **fields: Any) -> Envelope:
        envelope = a_job(name, *args, clock=self.clock, **fields)
        self.queues.append(OutgoingRecord(topic, envelope.value, None, envelope.headers()))
        return envelope

    def put_many(self, count: int) -> list[Envelope]:
        return [self.put("note", n) for n in range(count)]

    def states(self) -> list[StateRecord]:
        return self.queues.states(self.app.names)

    def final(self, job_id: str) -> JobState | None:
        return next((s.state for s in self.states() if s.id == job_id and s.state in READY), None)

    def dead(self) -> list[tuple[Record, str]]:
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
    ) -> None:
        self.bench = bench
        self.left = 0
        self.is_dead = False
        self.worker = Worker(
            bench.app.tasks, bench.app.names, queues, bench.loop, bench.now_ms, "host1", options, self._left
        )
        self.told = Told(self)
        self.delivery = FakeDelivery(bench.queues, bench.loop, self.told)
        self.publisher = FakePublisher(bench.queues, bench.loop)
        self.manual = ManualPool(concurrency, self._wake)
        self.manual.ready = self.manual.ever_ready = ready
        pool: Pool = InlinePool(run, 1, self._wake) if inline else self.manual
        if stopped:
            self.worker.stop()
        self.worker.start(WorkerBackend(self.delivery, self.publisher, 8), pool)

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
    assert process.delivery.settled == []
    process.publisher.advance()
    bench.settle()
    assert [verdict for _, verdict in process.delivery.settled] == [LeaseVerdict.ACCEPT]


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


def test_all_attempts_count_and_the_last_failure_is_dead(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks")
    job = bench.put("fail", 7)
    worker = Process(bench, inline=True).worker
    bench.settle()
    assert (worker.counts["failed"], worker.counts["dead"]) == (3, 1)
    runs = [record.message.removeprefix(f"fail {job.id} ") for record in caplog.records if job.id in record.message]
    assert [run.partition(" (")[0] for run in runs] == [
        "will be retried after attempt 1 of 3", "will be retried after attempt 2 of 3", "failed permanently",
    ]  # fmt: skip
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
    assert all(line.endswith("yyy...") and len(line) == 303 for line in trace)


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
        OutgoingRecord(QUEUE, b"hello"),
        OutgoingRecord(QUEUE, None),
        OutgoingRecord(QUEUE, b"{}", None, [("id", b"1" * 32)]),
        OutgoingRecord(QUEUE, b"{}", None, [("id", b"1" * 32), ("name", b"note")]),
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
        bench.queues.append(OutgoingRecord(QUEUE, None))


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
    waiting = bench.queues.waiting(QUEUE)
    assert {record.header("id") for record in waiting} == {each.id for each in (*good, late)}
    assert [record.header("clean") for record in waiting] == ["1"] * 3


def test_large_records_are_looked_at_fewer_at_a_time(bench: Bench) -> None:
    process = Process(bench)
    for _ in range(10):
        bench.queues.append(OutgoingRecord(QUEUE, bytes(TURN_BYTES // 2)))
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
    bench.queues.append(OutgoingRecord(QUEUE, b"large", None, [("x", b"1")]))
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


def test_an_unknown_task_is_released_for_others_and_dead_after_its_deliveries(bench: Bench) -> None:
    job = bench.put("new.task")
    process = Process(bench, inline=True)
    bench.settle()
    assert bench.dead() == []
    bench.pass_time(30)
    verdicts = [verdict for _, verdict in process.delivery.settled]
    assert verdicts == [LeaseVerdict.RELEASE] * 3 + [LeaseVerdict.ACCEPT]
    assert [cause for _, cause in bench.dead()] == ["unknown-task"]
    assert bench.final(job.id) is JobState.FAILURE


def test_an_unknown_task_is_reported_once_with_how_long_its_job_waits_and_what_to_do(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = bench.put("new.task"), bench.put("new.task")
    bench.put("other.task")
    Process(bench, inline=True)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.admission"):
        bench.settle()
        lines = [record.getMessage() for record in caplog.records]
        assert [text.split(":")[0] for text in lines] == [
            "unknown task 'new.task'", "unknown task 'other.task'"
        ]  # fmt: skip
        assert f"job {first.id} waits for a worker that declares it" in lines[0]
        assert "fails in about 7 s if there is none; import the module" in lines[0]
        bench.pass_time(30)
    assert len([record for record in caplog.records if "unknown task" in record.getMessage()]) == 2


def test_names_of_unknown_tasks_do_not_fill_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(105):
        bench.put(f"new.task{number}")
    Process(bench, inline=True)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.admission"):
        bench.pass_time(3)
    assert len([record for record in caplog.records if "unknown task" in record.getMessage()]) == 100


def test_a_worker_that_knows_the_task_gets_what_another_released(bench: Bench) -> None:
    job = bench.put("note", 1)
    old = Process(bench, inline=True)
    note = bench.app.tasks.pop("note")
    bench.settle()
    bench.app.tasks["note"] = note
    old.worker._admission._tasks = {}
    Process(bench, inline=True)
    bench.pass_time(3)
    assert bench.final(job.id) is JobState.SUCCESS


def test_a_suspect_of_an_unknown_task_is_charged_with_no_crash_and_dead_after_as_many_hand_outs(bench: Bench) -> None:
    job = bench.put("new.task", topic=SUSPECT, crashes=2)
    workers = [Process(bench, inline=True) for _ in range(2)]
    bench.pass_time(5)
    assert bench.dead() == []
    bench.pass_time(5)
    ((record, cause),) = bench.dead()
    assert (cause, record.header("crashes"), record.header("unknown")) == ("unknown-task", "2", None)
    handed_out = bench.queues.topics[SUSPECT]
    assert [record.deliveries for record in handed_out] == [1, 1, 1, 1]
    assert [record.header("unknown") for record in handed_out] == [None, "1", "2", "3"]
    assert {verdict for each in workers for _, verdict in each.delivery.settled} == {LeaseVerdict.ACCEPT}
    assert bench.final(job.id) is JobState.FAILURE


def test_a_worker_that_knows_the_task_gets_the_suspect_as_it_was(bench: Bench) -> None:
    bench.put("note", 1, topic=SUSPECT, crashes=2)
    old = Process(bench)
    old.worker._admission._tasks = {}
    bench.settle()
    new = Process(bench)
    bench.pass_time(1.5)
    (job,) = new.manual.jobs
    assert job.crashes == 2


def test_a_suspect_of_an_unknown_task_is_not_held_beside_one_that_runs_alone(bench: Bench) -> None:
    bench.put("new.task", topic=SUSPECT)
    bench.put("note", 1, topic=SUSPECT, crashes=1)
    process = Process(bench)
    bench.settle()
    (alone,) = process.manual.jobs
    assert [r.offset for r in bench.queues.topics[SUSPECT] if r.holder is not None] == [alone.lease.offset]
    (back,) = bench.queues.topics[SUSPECT][2:]
    assert [back.header(name) for name in ("name", "unknown", "crashes", "clean")] == ["new.task", None, None, "1"]


def test_a_worker_that_stops_gives_back_the_suspect_that_it_does_not_know(bench: Bench) -> None:
    bench.put("new.task", topic=SUSPECT)
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    bench.settle()
    assert process.left == 1
    (back,) = bench.queues.waiting(SUSPECT)
    assert (back.deliveries, back.header("clean"), back.header("unknown")) == (0, "1", None)


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


def test_a_job_with_a_crash_behind_it_runs_alone(bench: Bench) -> None:
    bench.put("note", 1, topic=SUSPECT, crashes=1)
    bench.put_many(6)
    process = Process(bench, concurrency=2)
    bench.settle()
    seen_alone = False
    while process.manual.jobs:
        alone = [job for job in process.manual.jobs if job.crashes]
        if alone:
            assert process.manual.jobs == alone
            seen_alone = True
        process.end()
    assert seen_alone
    assert len(bench.states()) == 7


@pytest.mark.parametrize("concurrency", [2, 4, 9])
def test_a_job_that_kills_its_workers_takes_no_innocent_one_with_it(bench: Bench, concurrency: int) -> None:
    """All ran beside it when it killed first; after that each runs alone, and nothing is held beside it."""
    killer = bench.put("note", 666)
    innocent = bench.put_many(concurrency - 1)
    first = Process(bench, concurrency)
    bench.settle()
    assert len(first.manual.jobs) == concurrency
    first.kill()
    for number in range(4):
        process = Process(bench, concurrency)
        bench.settle()
        while process.manual.jobs and killer.id not in [job.envelope.id for job in process.manual.jobs]:
            process.end()
        if not process.manual.jobs:
            break
        held = [record for record in bench.queues.topics[SUSPECT] if record.holder is not None]
        assert len(held) == len(process.manual.jobs) == (1 if number else concurrency)
        process.kill()
    bench.settle()
    assert [(record.header("id"), cause) for record, cause in bench.dead()] == [(killer.id, "crashes")]
    assert [bench.final(job.id) for job in innocent] == [JobState.SUCCESS] * len(innocent)


def test_what_is_given_back_beside_a_suspect_with_a_crash_keeps_its_count(bench: Bench) -> None:
    bench.put("note", 0, topic=SUSPECT, crashes=1)
    bench.put("note", 1, topic=SUSPECT)
    bench.put("note", 2, topic=SUSPECT, crashes=2)
    process = Process(bench, concurrency=3)
    bench.settle()
    (alone,) = process.manual.jobs
    assert alone.crashes == 1
    back = [record for record in bench.queues.topics[SUSPECT] if record.offset > 2]
    assert [(record.header("crashes"), record.deliveries) for record in back] == [(None, 0), ("2", 0)]


def test_a_suspect_that_has_to_be_alone_does_not_keep_slots_idle_for_long(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench, concurrency=2)
    bench.settle()
    suspect = bench.put("note", 2, topic=SUSPECT, crashes=1)
    bench.settle()
    bench.put("note", 3)
    bench.pass_time(0.9, 0.1)
    assert len(process.manual.jobs) == 1  # it may end at any moment
    bench.pass_time(0.2, 0.1)
    assert [job.lease.source.suspect for job in process.manual.jobs] == [False, False]
    (back,) = bench.queues.waiting(SUSPECT)
    assert (back.header("crashes"), back.header("clean"), back.deliveries) == ("1", "1", 0)
    bench.pass_time(1.5)
    process.end()
    process.end()
    (alone,) = process.manual.jobs
    assert (alone.envelope.id, alone.crashes) == (suspect.id, 1)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_suspect_that_has_to_be_alone_runs_in_the_end_however_long_the_others_take(
    bench: Bench, workers: int
) -> None:
    bench.put_many(400)
    processes = [Process(bench, concurrency=2) for _ in range(workers)]
    bench.settle()
    bench.pass_time(5)
    for process in processes:
        process.end(ran_s=10.0)  # so that they do not end together
    suspect = bench.put("note", 2, topic=SUSPECT, crashes=2)
    since: dict[Job, float] = {}
    begun_at = bench.clock.monotonic()
    while bench.final(suspect.id) is None:
        now = bench.clock.monotonic()
        assert now < begun_at + 200
        for process in processes:
            for job in list(process.manual.jobs):
                if job.envelope.id == suspect.id:
                    assert process.manual.jobs == [job]
                    assert job.crashes == 2
                if now >= since.setdefault(job, now) + 10:
                    process.end(job, ran_s=10.0)
        bench.pass_time(0.5)
    done = len(bench.queues.states(bench.app.names))
    assert done > (bench.clock.monotonic() - begun_at) / 10 * 2 * workers * 0.5


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


def test_suspects_without_a_crash_share_the_pool_but_are_never_buffered(bench: Bench) -> None:
    for n in range(9):
        bench.put("note", n, topic=SUSPECT)
    process = Process(bench, concurrency=3)
    bench.settle()
    held = [r for r in bench.queues.topics[SUSPECT] if r.holder is not None]
    assert len(process.manual.jobs) == len(held) == 3


def test_suspects_go_before_what_waits_in_buffer_and_pool(bench: Bench) -> None:
    bench.put_many(300)
    process = Process(bench, concurrency=2)
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
    answers: list[Callable[[], object]] = []
    plain = second.delivery.settle

    def settle_late(
        leases: Sequence[JobLease], verdict: LeaseVerdict, answered: Callable[[], object] | None = None
    ) -> None:
        plain(leases, verdict)
        if answered is not None:
            answers.append(answered)

    second.delivery.settle = settle_late  # type: ignore[method-assign]
    bench.settle()
    assert len(bench.queues.waiting(SUSPECT)) == 1
    assert second.manual.jobs == []
    assert second.delivery.wants[JobSource("default", QUEUE)] == 0
    (answer,) = answers
    answer()
    bench.settle()
    assert len(second.manual.jobs) == 1


def test_a_move_that_nobody_answers_holds_up_the_worker_for_some_seconds_only(bench: Bench) -> None:
    bench.put("note", 1)
    first = Process(bench)
    bench.settle()
    first.kill()
    second = Process(bench)
    second.publisher.is_stuck = True
    bench.settle()
    assert second.worker._leases.moving == 1
    jobs = [bench.put("note", 2), bench.put("note", 3, topic=SUSPECT)]
    bench.settle()
    bench.pass_time(MOVING_S - 1)
    assert second.manual.jobs == []
    bench.pass_time(1)
    while second.manual.jobs:
        assert second.end().envelope.id == jobs.pop().id, "the suspect first"
    assert jobs == []
    bench.pass_time(1)
    second.publisher.advance()
    bench.settle()
    assert second.worker._leases.moving == 0
    assert len(second.manual.jobs) == 1, "the one that moved"


def test_locks_that_turn_out_to_be_short_are_renewed_in_time(bench: Bench) -> None:
    process = Process(bench)
    process.delivery.lock_s = 3.0
    bench.put("note", 1)
    bench.settle()
    bench.pass_time(5.0)
    assert process.worker.counts["locks_lost"] == 0
    assert len(process.delivery.take_renewable) >= 4


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
    (record,) = bench.queues.topics[QUEUE]
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
    bench.pass_time(300)
    assert 29 <= len(process.delivery.take_renewable) <= 31
    process.end(ran_s=300)
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
    assert process.delivery.settled == []
    assert process.worker.counts["dropped"] == 1


def test_a_zombies_result_does_not_appear(bench: Bench) -> None:
    job = bench.put("note", 1)
    zombie = Process(bench)
    bench.settle()
    (running,) = zombie.manual.jobs
    zombie.delivery.renew = lambda leases: None  # type: ignore[method-assign]
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
    job.lease.token.holder = None
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
    plain = process.delivery.settle

    def settle_late(
        leases: Sequence[JobLease], verdict: LeaseVerdict, answered: Callable[[], object] | None = None
    ) -> None:
        process.delivery.settle = plain  # type: ignore[method-assign]
        running.lease.token.holder = None
        plain(leases, verdict, answered)

    process.delivery.settle = settle_late  # type: ignore[method-assign]
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


def test_a_lease_whose_records_cannot_be_written_is_left_to_its_lock(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench, inline=True)
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    bench.settle()
    assert process.worker.counts["unsettled"] == 1
    bench.pass_time(31)
    bench.put("note", 2)
    bench.settle()
    assert bench.final(job.id) is JobState.SUCCESS


def test_a_suspect_whose_result_cannot_be_written_for_minutes_is_charged_with_no_crash(bench: Bench) -> None:
    job = bench.put("note", 1, topic=SUSPECT, crashes=2)
    process = Process(bench, inline=True)
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s") for _ in range(12)]
    bench.pass_time(110)
    assert bench.final(job.id) is None
    bench.pass_time(20)
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.runs == [1]
    assert [record.deliveries for record in bench.queues.topics[SUSPECT]] == [1]
    assert (process.worker.counts["unsettled"], process.worker.statistics()["held"]) == (0, 0)


def test_others_go_on_while_a_suspect_cannot_be_moved(bench: Bench) -> None:
    bench.put("new.task", topic=SUSPECT, crashes=1)
    process = Process(bench)
    process.publisher.errors[SUSPECT] = [KafkaTimeoutError("120 s")]
    bench.pass_time(2)
    assert process.worker.statistics()["held"] == 1
    job = bench.put("note", 1)
    bench.settle()
    process.end()
    assert bench.final(job.id) is JobState.SUCCESS
    bench.pass_time(9)
    first, moved = bench.queues.topics[SUSPECT]
    assert (first.deliveries, moved.header("crashes"), moved.header("unknown")) == (1, "1", "1")


def test_what_can_never_be_written_keeps_no_suspect_from_running_and_is_not_spared(bench: Bench) -> None:
    """A job that runs anew each time would do so for ever, without a crash to be charged with."""
    bench.put("note", 1, topic=SUSPECT, crashes=1)
    process = Process(bench)
    process.publisher.errors["shop.results"] = [TopicAuthorizationFailedError("no")]
    bench.settle()
    (ended,) = process.manual.jobs
    process.end(ended)
    assert (process.worker.counts["unsettled"], process.worker.statistics()["held"]) == (1, 0)
    ended.lease.token.holder = None
    process.worker.lost([ended.lease], "its lock has run out")
    process.delivery.look_soon()
    bench.settle()
    (again,) = process.manual.jobs
    assert (again.crashes, again.lease.deliveries) == (2, 2)


def test_a_worker_that_stops_writes_what_was_refused_again_at_once(bench: Bench) -> None:
    jobs = [bench.put("note", n, topic=SUSPECT) for n in range(2)]
    process = Process(bench, concurrency=2)
    bench.settle()
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s"), KafkaTimeoutError("120 s")]
    process.end()
    process.worker.stop()  # refused once more
    bench.settle()
    process.end()
    assert (process.left, bench.final(jobs[1].id)) == (0, JobState.SUCCESS)
    bench.pass_time(1.1, 0.1)
    assert (process.left, bench.final(jobs[0].id)) == (1, JobState.SUCCESS)


def test_jobs_that_nobody_knows_and_that_come_while_the_worker_stops_are_let_go_at_once(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    (running,) = process.manual.jobs
    process.worker.stop()
    bench.put("new.task")
    process.delivery.request(running.lease.source, 1)  # a poll that was under way
    bench.settle()
    _, released = bench.queues.waiting(QUEUE)
    assert (released.holder, released.deliveries) == (None, 1)


def test_no_suspect_runs_alone_beside_one_whose_result_is_not_written(bench: Bench) -> None:
    """Its crash would be charged to that one, too."""
    bench.put("note", 1, topic=SUSPECT)
    process = Process(bench)
    process.publisher.errors["shop.results"] = [KafkaTimeoutError("120 s")]
    bench.settle()
    process.end()
    killer = bench.put("note", 2, topic=SUSPECT, crashes=1)
    bench.settle()
    assert process.manual.jobs == []
    bench.pass_time(1.1)
    (back,) = bench.queues.topics[SUSPECT][2:]  # another worker may run it
    assert (back.header("id"), back.header("crashes"), back.holder) == (killer.id, "1", None)
    bench.pass_time(12)
    (alone,) = process.manual.jobs
    assert (alone.envelope.id, alone.crashes) == (killer.id, 1)


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
    assert [r.header("clean") for r in bench.queues.topics[QUEUE][300:]] == ["1"] * (held - 2)
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
    before = len(process.delivery.take_renewable)
    bench.pass_time(20)
    assert len(process.delivery.take_renewable) > before


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
    assert bench.queues.topics[QUEUE][-1].header("clean") == "1"


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


# -- whatever happens -------------------------------------------------------------------------------------------------


def assert_alone_is_alone(process: Process) -> None:
    """Beside a suspect that may kill the worker, no other is held: it would be charged with that."""
    running = [job.lease for job in process.manual.jobs if not job.lease.lost]
    if any(lease.source.suspect and lease.job.crashes for lease in running):
        held = [lease for lease in process.worker._leases._held if lease.source.suspect]
        assert len(running) == len(held) == 1


@hypothesis_settings(max_examples=150)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_whatever_dies_every_job_ends_with_one_result_or_is_dead(seed: int, count: int) -> None:
    rng = random.Random(seed)
    bench = Bench()
    jobs = [bench.put(rng.choice(["note", "fail", "break", "new.task"]), n) for n in range(count)]
    processes: list[Process] = []

    def start() -> None:
        processes.append(Process(bench, concurrency=rng.randint(1, 4)))

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
                lease.token.holder = None
            if rng.random() < 0.8:
                process.worker.lost(held, "the broker went away")

    def refuse() -> None:
        for process in processes:
            topic = rng.choice([QUEUE, SUSPECT, DEAD, "shop.results"])
            process.publisher.errors[topic] = [KafkaTimeoutError("120 s")] * rng.randint(1, 3)

    moves: list[Callable[[], Any]] = [
        start, kill, stop, end_some, end_some, end_some, lose_some, refuse, lambda: bench.pass_time(5, 2.5),
    ]  # fmt: skip
    for _ in range(rng.randint(3, 25)):
        rng.choice(moves)()
        bench.settle()
        for process in processes:
            assert_alone_is_alone(process)
    last = Process(bench, inline=True)
    for process in processes:
        process.kill()
    bench.pass_time(90, 2.5)
    assert bench.queues.waiting(QUEUE) == bench.queues.waiting(SUSPECT) == []
    dead = {record.header("id") for record, _ in bench.dead()}
    for job in jobs:
        assert bench.final(job.id) is not None or job.id in dead
    assert last.worker.statistics()["held"] == 0

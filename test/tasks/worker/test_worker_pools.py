"""Tests of ``kafka.tasks.worker.worker`` beside a pool of processes: children that die, do not come up, or are
killed."""

from __future__ import annotations

import logging
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from kafka.tasks import App, FinishedJob, WorkerLost
from kafka.tasks.delivery.base import JobSource, OutgoingRecord, RecordKind
from kafka.tasks.errors import PoolFailed, TimeLimit
from kafka.tasks.hooks import ERROR_TASK
from kafka.tasks.pools.base import Finished
from kafka.tasks.pools.runner import Job, run
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, ErrorInfo, JobSucceeded, LockLost, Outcome
from kafka.tasks.states import JobState
from kafka.tasks.worker.lost_jobs import MOST_ARGUMENTS
from kafka.tasks.worker.worker import WorkerOptions, WorkerStage
from test.tasks.fakes import a_job
from test.tasks.worker.test_worker import DEAD, DUE, QUEUE, SUSPECT, Bench, Process

CRASH = ChildLost("signal", signal.SIGSEGV, rss_bytes=50 << 20)
STOPPED = ChildLost("stopped", signal.SIGKILL, counts=False)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def states_of(bench: Bench, job_id: str) -> list[str]:
    return [state.state.name for state in bench.states() if state.id == job_id]


# -- children that die ------------------------------------------------------------------------------------------------


def test_a_job_that_kills_its_child_runs_again_and_is_dead_after_three_crashes(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    for crashes in range(3):
        assert process.manual.jobs[0].crashes == crashes
        process.end(outcome=CRASH)
    assert process.manual.jobs == []
    ((record, cause),) = bench.dead()
    assert (cause, record.header("crashes"), record.header("attempt")) == ("lost-signal", "3", None)
    assert states_of(bench, job.id) == ["RETRY", "RETRY", "FAILURE"]
    detail = bench.states()[-1].detail()
    assert detail["type"] == "WorkerLost"
    assert "signal 11 (SIGSEGV); last RSS 50 MiB" in detail["text"]
    assert (process.worker.counts["failed"], process.worker.counts["dead"]) == (3, 1)
    lines = [record.message for record in caplog.records if job.id in record.message]
    assert [line.partition(" (WorkerLost: ")[0].removeprefix(f"note {job.id} ") for line in lines] == [
        "will be retried after crash 1 of 3", "will be retried after crash 2 of 3", "failed permanently",
    ]  # fmt: skip
    assert bench.queues.topics[SUSPECT] == []


def test_jobs_beside_one_that_crashes_go_on(bench: Bench) -> None:
    bench.put_many(2)
    process = Process(bench)
    bench.settle()
    crashing, other = process.manual.jobs
    process.end(crashing, CRASH)
    assert other in process.manual.jobs
    process.end(other)
    assert bench.final(other.envelope.id) is JobState.SUCCESS
    assert len(process.manual.jobs) == 1


def test_the_crash_limit_is_the_apps(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench, options=WorkerOptions(crash_limit=1))
    bench.settle()
    process.end(outcome=ChildLost("oom", signal.SIGKILL))
    assert [cause for _, cause in bench.dead()] == ["lost-oom"]


def test_a_job_that_is_not_to_blame_for_its_childs_death_is_given_back(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.end(outcome=STOPPED)
    assert process.manual.jobs[0].crashes == 0
    process.end()
    assert states_of(bench, job.id) == ["SUCCESS"]


def test_the_outcome_of_a_child_whose_job_runs_elsewhere_is_dropped(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    (job,) = process.manual.jobs
    process.worker.lost([job.lease], "lock timeout")
    assert process.manual.cancelled == [job]
    process.end(job, CRASH)
    assert (bench.states(), bench.dead()) == ([], [])


def test_a_process_that_stood_still_drops_what_its_children_ended_meanwhile(bench: Bench) -> None:
    """SIGSTOP: the lock has run out, nobody has told the worker yet, and the first thing that it sees is a result."""
    bench.put("note", 1)
    zombie = Process(bench)
    bench.settle()
    (running,) = zombie.manual.jobs
    bench.clock.advance(31)
    zombie.manual._ended.append((running, JobSucceeded(b"2")))
    zombie.manual.jobs.clear()
    zombie.worker.finished()
    assert zombie.worker.counts["locks_lost"] == zombie.worker.counts["dropped"] == 1
    assert running.cancelled
    assert (bench.states(), zombie.delivery.accepted) == ([], [])


def test_a_job_that_a_child_gives_up_as_lost_is_settled_by_nobody(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.end(outcome=LockLost(), ran_s=0.0)
    assert (process.delivery.accepted, bench.states()) == ([], [])
    assert process.worker.statistics()["held"] == 0


# -- children that do not come up -------------------------------------------------------------------------------------


def test_nothing_is_leased_before_a_child_is_up(bench: Bench) -> None:
    bench.put_many(3)
    process = Process(bench, ready=False)
    bench.settle()
    assert process.worker.counts["leased"] == 0
    process.manual.become(ready=True)
    bench.settle()
    assert len(process.manual.jobs) == 2


def test_while_the_breaker_is_open_nothing_is_leased_and_what_waits_is_given_back(bench: Bench) -> None:
    bench.put_many(300)
    process = Process(bench)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.0001)
    process.manual.started_count = 2
    leased = process.worker.counts["leased"]
    assert leased > 100
    process.manual.become(ready=False, degraded="5 children in a row did not start: no memory")
    bench.settle()
    held = [record for record in bench.queues.topics[QUEUE] if record.holder is not None]
    assert len(held) == len(process.manual.jobs) == 2
    bench.pass_time(5)
    assert process.worker.counts["leased"] == leased
    assert process.worker.stage is WorkerStage.WORKING
    process.end()
    process.end()
    process.manual.become(ready=True)
    bench.settle()
    assert process.worker.counts["leased"] > leased


def test_a_running_job_of_a_degraded_pool_is_renewed_and_ends_well(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.manual.become(ready=False, degraded="no memory")
    bench.pass_time(40)
    process.end()
    assert bench.final(job.id) is JobState.SUCCESS
    assert bench.queues.topics[QUEUE][0].deliveries == 1


def test_a_pool_of_which_no_child_ever_came_up_ends_the_worker(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench, ready=False)
    bench.settle()
    process.manual.become(ready=False, degraded="importing shop.tasks failed: no module numpy")
    bench.settle()
    assert (process.left, process.worker.stage) == (1, WorkerStage.LEFT)
    assert isinstance(process.worker.error, PoolFailed)
    assert "no module numpy" in str(process.worker.error)
    assert process.worker.counts["leased"] == 0


def test_a_pool_that_once_ran_jobs_never_ends_the_worker(bench: Bench) -> None:
    process = Process(bench)
    for _ in range(3):
        process.manual.become(ready=False, degraded="no memory")
        bench.settle()
        process.manual.become(ready=True)
        bench.settle()
    assert (process.left, process.worker.error) == (0, None)


def test_children_that_come_up_while_the_worker_connects_are_seen_when_it_begins(bench: Bench) -> None:
    """The pool wakes its worker once, and again only after it was asked."""
    process = Process(bench)
    requested = 0

    def finished(timeout: float = 0.0) -> list[Finished]:
        nonlocal requested
        requested += 1
        return []

    process.manual.finished = finished  # type: ignore[method-assign]
    process.worker.start()
    assert requested == 1


# -- slots ------------------------------------------------------------------------------------------------------------


def test_the_pool_grows_and_shrinks_while_it_works(bench: Bench) -> None:
    bench.put_many(9)
    process = Process(bench)
    bench.settle()
    process.worker.resize(1)
    bench.settle()
    assert len(process.manual.jobs) == 3
    process.worker.resize(-2)
    for _ in range(3):
        process.end(ran_s=5.0)
    assert process.manual.concurrency == 1
    process.end(ran_s=5.0)
    assert len(process.manual.jobs) == 1


def test_a_pool_that_keeps_its_slots_is_not_reported_as_changed(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "kafka.tasks.worker.worker"):
        inline = Process(bench, inline=True)
        inline.worker.resize(1)
        manual = Process(bench, concurrency=1)
        manual.worker.resize(-1)
        manual.worker.resize(1)
    assert [record.getMessage() for record in caplog.records if "slot" in record.getMessage()] == [
        "pool size not changed (1 slot): this kind of pool has a fixed number of slots",
        "pool size not changed (1 slot): the last slot cannot be removed",
        "pool resized to 2 slots",
    ]


def test_the_pool_knows_how_many_jobs_wait(bench: Bench) -> None:
    bench.put_many(300)
    process = Process(bench)
    bench.settle()
    for _ in range(4):
        process.end(ran_s=0.001)
    assert process.manual.backlog > 50


def test_a_pool_that_may_grow_gets_one_more_long_job(bench: Bench) -> None:
    bench.put_many(9)
    process = Process(bench)
    bench.settle()
    assert process.manual.backlog == 0
    process.manual.may_grow = True
    process.end(ran_s=60.0)
    process.worker.tick()
    assert (len(process.manual.jobs), process.manual.backlog) == (2, 1)
    process.worker.resize(1)
    bench.settle()
    assert len(process.manual.jobs) == 3


# -- limits: the nearest wins -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "task", "worker", "app", "expected"),
    [
        ({}, {}, {}, {}, (None, None)),
        ({}, {}, {}, {"timeout": 9, "soft_timeout": 8}, (8, 9)),
        ({}, {}, {"timeout_s": 7.0}, {"timeout": 9}, (None, 7)),
        ({}, {"timeout": 5}, {"timeout_s": 7.0}, {"timeout": 9}, (None, 5)),
        ({"timeout": 3.0}, {"timeout": 5}, {"timeout_s": 7.0}, {"timeout": 9}, (None, 3)),
        ({"timeout": 3.0}, {}, {"soft_timeout_s": 2.0}, {}, (2, 3)),
        ({"timeout": 3.0}, {}, {"soft_timeout_s": 4.0}, {}, (None, 3)),
        ({"soft_timeout": 1.0}, {"timeout": 5, "soft_timeout": 2}, {"soft_timeout_s": 4.0}, {}, (1, 5)),
    ],
)
def test_the_limit_of_a_run_is_the_nearest_that_is_set(
    bench: Bench,
    call: Mapping[str, float],
    task: Mapping[str, Any],
    worker: Mapping[str, Any],
    app: Mapping[str, Any],
    expected: tuple[float | None, float | None],
) -> None:
    bench.app = App("shop", bootstrap_servers="fake://", **app)
    declare: Any = bench.app.task(name="limited", **task)
    declare(lambda: None)
    fields: dict[str, Any] = dict(call)
    bench.put("limited", **fields)
    process = Process(bench, options=WorkerOptions(**worker))
    bench.settle()
    (job,) = process.manual.jobs
    assert (job.soft_s, job.hard_s) == expected


# -- stopping ---------------------------------------------------------------------------------------------------------


def abandoning(bench: Bench) -> Process:
    bench.put("note", 1)
    process = Process(bench)
    process.manual.has_processes = True
    bench.settle()
    for _ in range(3):
        process.worker.stop()
    bench.settle()
    assert process.worker.stage is WorkerStage.ABANDONING
    return process


def test_a_job_is_not_given_back_before_its_child_is_dead(bench: Bench) -> None:
    process = abandoning(bench)
    assert (process.left, len(process.manual.abandoned)) == (0, 1)
    assert bench.queues.topics[QUEUE][0].holder is process.delivery
    process.end(process.manual.jobs[0], STOPPED)
    assert process.left == 1
    assert [record.header("clean") for record in bench.queues.waiting(DUE)] == ["1"]


@pytest.mark.parametrize("outcome", [ChildLost("signal", signal.SIGTERM), ChildLost("exit", exit_code=1)])
def test_a_child_that_dies_while_the_worker_kills_it_is_no_crash_of_its_job(bench: Bench, outcome: Outcome) -> None:
    process = abandoning(bench)
    process.end(process.manual.jobs[0], outcome)
    (record,) = bench.queues.waiting(DUE)
    assert (record.header("clean"), record.header("crashes")) == ("1", None)
    assert bench.states() == []


def test_a_child_that_cannot_be_killed_does_not_keep_the_worker(bench: Bench) -> None:
    process = abandoning(bench)
    bench.pass_time(6)
    assert process.left == 1


def test_leases_are_renewed_until_the_last_child_has_ended(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench, options=WorkerOptions(stop_grace_s=60, kill_grace_s=60))
    process.manual.has_processes = True
    process.delivery.lock_s = 3.0
    bench.settle()
    process.worker.stop()
    for _ in range(3):
        before = len(process.delivery.renewed)
        bench.pass_time(4)
        assert len(process.delivery.renewed) >= before + 3
        process.worker.stop()
    assert process.worker.counts["locks_lost"] == 0


def test_a_graceful_stop_stays_one_however_often_it_is_asked_for(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    for _ in range(5):
        process.worker.stop_gracefully()
    assert process.worker.stage is WorkerStage.DRAINING
    process.end()
    assert process.left == 1


def test_with_the_defaults_a_worker_leaves_within_the_grace_of_kubernetes(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    process.manual.has_processes = True
    bench.settle()
    process.worker.stop()
    bench.pass_time(26.5)  # about a second for SIGTERM and SIGKILL
    process.end(outcome=STOPPED)
    assert process.left == 1


# -- handlers of killed jobs ------------------------------------------------------------------------------------------


class Told:
    """What the error handler of a bench was told."""

    def __init__(self, bench: Bench) -> None:
        self.calls: list[tuple[FinishedJob, int | None, BaseException]] = []
        bench.app.error_handler(self._note)

    def _note(self, job: FinishedJob, kill_signal: int | None, exc_info: Any) -> None:
        assert exc_info[0] is type(exc_info[1])
        self.calls.append((job, kill_signal, exc_info[1]))


def the_handlers_job(process: Process) -> Job:
    (job,) = (job for job in process.manual.jobs if job.task.name == ERROR_TASK)
    return job


def test_the_error_handler_of_a_killed_job_runs_in_the_pool(bench: Bench) -> None:
    told = Told(bench)
    job = bench.put("note", 7)
    process = Process(bench)
    bench.settle()
    process.end(outcome=CRASH)
    handling = the_handlers_job(process)
    process.end(handling, run(handling))
    ((seen, kill_signal, error),) = told.calls
    assert (seen.id, seen.name, seen.args, seen.kwargs) == (job.id, "note", [7], {})
    assert kill_signal == signal.SIGSEGV
    assert isinstance(error, WorkerLost)
    assert (error.cause, error.signal, error.rss_bytes) == ("signal", 11, 50 << 20)
    assert process.worker.counts["done"] == 0  # the job runs again, and its handlers' is none of its own


def test_a_job_that_was_killed_at_its_hard_limit_is_reported_as_such(bench: Bench) -> None:
    told = Told(bench)
    bench.put("note", 7)
    process = Process(bench)
    bench.settle()
    error_info = ErrorInfo("TimeLimit", "it ran for longer than 1 s")
    process.end(outcome=AttemptFailed(error_info, kill_signal=signal.SIGKILL, handlers_called=False))
    handling = the_handlers_job(process)
    process.end(handling, run(handling))
    ((_, kill_signal, error),) = told.calls
    assert (kill_signal, type(error)) == (signal.SIGKILL, TimeLimit)
    assert bench.dead() != []


def test_a_job_that_was_given_up_at_its_hard_limit_is_reported_without_a_signal(bench: Bench) -> None:
    told = Told(bench)
    job = bench.put("note", 7)
    process = Process(bench)
    bench.settle()
    process.end(outcome=AttemptFailed(ErrorInfo("TimeLimit", "it ran for longer than 1 s"), handlers_called=False))
    handling = the_handlers_job(process)
    process.end(handling, run(handling))
    ((seen, kill_signal, error),) = told.calls
    assert (seen.id, seen.args, kill_signal) == (job.id, [7], None)
    assert (type(error), str(error)) == (TimeLimit, "it ran for longer than 1 s")


def test_the_arguments_of_a_large_payload_are_not_sent_around_again(bench: Bench) -> None:
    told = Told(bench)
    envelope = a_job("note", "x" * MOST_ARGUMENTS, clock=bench.clock)
    bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, envelope.value, None, envelope.headers()))
    process = Process(bench)
    bench.settle()
    process.end(outcome=CRASH)
    handling = the_handlers_job(process)
    assert len(handling.envelope.value) < 1000
    process.end(handling, run(handling))
    assert told.calls[0][0].args is None


def test_an_error_handler_that_kills_its_child_calls_no_handler(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    Told(bench)
    bench.put("note", 7)
    process = Process(bench)
    bench.settle()
    process.end(outcome=CRASH)
    process.end(the_handlers_job(process), CRASH)
    assert not any(job.task.name == ERROR_TASK for job in process.manual.jobs)
    assert "error handlers" in caplog.text


def test_a_worker_waits_for_error_handlers_before_it_leaves(bench: Bench) -> None:
    Told(bench)
    bench.put("note", 7)
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    process.end(outcome=CRASH)
    assert process.left == 0
    handling = the_handlers_job(process)
    process.end(handling, run(handling))
    assert process.left == 1


def test_a_worker_that_is_stopped_leaves_without_the_error_handlers(bench: Bench) -> None:
    Told(bench)
    bench.put("note", 7)
    process = Process(bench)
    process.manual.has_processes = True
    bench.settle()
    process.worker.stop()
    process.end(outcome=CRASH)
    for _ in range(2):
        process.worker.stop()
    bench.settle()
    assert process.left == 1


def test_without_an_error_handler_nothing_runs_after_a_crash(bench: Bench) -> None:
    bench.put("note", 7)
    process = Process(bench, options=WorkerOptions(crash_limit=1))
    bench.settle()
    process.end(outcome=CRASH)
    assert process.manual.jobs == []


def test_no_record_can_have_the_error_handlers_run(bench: Bench) -> None:
    told = Told(bench)
    bench.put(ERROR_TASK, {}, {})
    process = Process(bench, inline=True)
    bench.pass_time(30)
    assert told.calls == []
    assert [record.header("name") for record in bench.queues.topics[DEAD]] == [ERROR_TASK]
    assert process.delivery.wants[JobSource("default", QUEUE)] > 0

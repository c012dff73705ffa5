"""Tests of what a worker does with cancelled jobs: those that it has, in each stage, and those that come later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from kafka.tasks.delivery.base import OutgoingRecord, RecordKind
from kafka.tasks.delivery.memory import MemoryDelivery
from kafka.tasks.format.cancelled import CancelledJob, encode_cancelled
from kafka.tasks.format.commands import CANCEL, encode_command
from kafka.tasks.format.envelope import Envelope
from kafka.tasks.options import WorkerOptions
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, ErrorInfo, LockLost, Outcome
from kafka.tasks.states import JobState
from test.tasks.fakes import a_job
from test.tasks.worker.test_worker import DUE, OK, QUEUE, SUSPECT, Bench, Process

ERROR = AttemptFailed(ErrorInfo("OSError", "disk"))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def cancel(bench: Bench, *processes: Process, of: Sequence[Envelope], terminate: bool = False) -> None:
    """As the back end reports it."""
    for process in processes:
        process.worker.cancelled([CancelledJob(each.id, terminate) for each in of])
    bench.settle()


def is_written(bench: Bench, job: Envelope) -> bool:
    """Whether anything was written of a job besides the record that was leased."""
    records = [record for records in bench.queues.topics.values() for record in records]
    return sum(job.id.encode() in (record.key, dict(record.headers).get("id")) for record in records) > 1


@pytest.mark.parametrize(
    ("topic", "deliveries", "fields"),
    [
        (QUEUE, 1, {}),
        (QUEUE, 2, {}),
        (DUE, 1, {"attempt": 2}),
        (SUSPECT, 3, {"crashes": 2}),
        (DUE, 1, {"due_ms": 10**15}),
        (QUEUE, 1, {"expires_ms": 1}),
    ],
)
def test_a_cancelled_job_that_is_leased_later_is_accepted_and_does_not_run(
    bench: Bench, topic: str, deliveries: int, fields: dict[str, Any]
) -> None:
    """Whatever else would keep it from running: that it is REVOKED is written already."""
    process = Process(bench)
    job = a_job("note", 1, clock=bench.clock, **fields)
    cancel(bench, process, of=[job])
    bench.queues.append(OutgoingRecord(RecordKind.JOB, topic, job.value, None, job.headers()))
    record = bench.queues.topics[topic][-1]
    record.deliveries = deliveries - 1
    other = bench.put("note", 2)
    bench.settle()
    assert [each.envelope.id for each in process.manual.jobs] == [other.id]
    assert (record.is_done, is_written(bench, job)) == (True, False)
    counts = process.worker.counts
    assert (counts["cancelled"], counts["refused"], counts["dropped"]) == (1, 0, 0)


def test_a_task_that_is_unknown_here_is_cancelled_as_well(bench: Bench) -> None:
    process = Process(bench)
    job = a_job("new.task", clock=bench.clock)
    cancel(bench, process, of=[job])
    bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, job.value, None, job.headers()))
    bench.settle()
    assert (bench.puts(), bench.queues.waiting(QUEUE)) == ([], [])


def waiting_behind_two(bench: Bench) -> tuple[Process, list[Envelope]]:
    """A worker with two running jobs and three that wait behind them."""
    process = Process(bench, concurrency=2)
    bench.put("note", 0)
    bench.settle()
    process.end(ran_s=0.01)  # of such jobs more are leased than start
    jobs = bench.put_many(5)
    bench.settle()
    assert process.worker.statistics()["held"] == 5
    return process, jobs


def test_a_cancelled_job_that_waits_in_the_worker_does_not_start(bench: Bench) -> None:
    process, jobs = waiting_behind_two(bench)
    cancel(bench, process, of=[jobs[2], jobs[4]])
    assert process.worker.statistics()["held"] == 3
    for _ in range(3):
        process.end()
    assert [bench.final(job.id) for job in jobs] == [
        JobState.SUCCESS, JobState.SUCCESS, None, JobState.SUCCESS, None
    ]  # fmt: skip
    assert (bench.queues.waiting(QUEUE), process.worker.counts["cancelled"]) == ([], 2)
    assert not is_written(bench, jobs[2])
    assert not is_written(bench, jobs[4])


def test_a_cancelled_job_that_the_pool_has_and_has_not_begun_does_not_start(bench: Bench) -> None:
    process, jobs = waiting_behind_two(bench)
    process.manual.set_depth(5)
    process.worker.resize(1)
    process.worker.resize(-1)
    bench.settle()
    ahead = [each.envelope.id for each in process.manual.jobs]
    assert ahead == [job.id for job in jobs]
    cancel(bench, process, of=[jobs[3]])
    assert jobs[3].id not in [each.envelope.id for each in process.manual.jobs]
    assert process.manual.cancelled == []
    assert process.worker.counts["cancelled"] == 1


@pytest.mark.parametrize("outcome", [OK, ERROR, ChildLost("cancelled", 15), ChildLost("exit"), LockLost()])
@pytest.mark.parametrize("terminate", [False, True])
def test_a_cancelled_job_that_runs_learns_it_and_its_outcome_is_dropped(
    bench: Bench, outcome: Outcome, terminate: bool
) -> None:
    job = bench.put("fail", 1)
    process = Process(bench, attributes_crashes=True)
    bench.settle()
    (running,) = process.manual.jobs
    cancel(bench, process, of=[job], terminate=terminate)
    assert running.cancelled
    assert process.manual.cancelled == [running]
    assert process.manual.terminated == [running] * terminate
    assert [record.is_done for record in bench.queues.topics[QUEUE]] == [False], "its lease is kept while it runs"
    process.end(running, outcome)
    assert [record.is_done for record in bench.queues.topics[QUEUE]] == [True]
    assert not is_written(bench, job)
    counts = process.worker.counts
    assert {name: counts[name] for name in ("cancelled", "done", "failed", "dropped", "given_back", "dead")} == {
        "cancelled": 1, "done": 0, "failed": 0, "dropped": 0, "given_back": 0, "dead": 0
    }  # fmt: skip
    assert process.worker.statistics()["held"] == 0


def test_a_cancelled_job_that_runs_for_longer_than_its_lock_is_renewed(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    cancel(bench, process, of=[job])
    bench.pass_time(65)
    process.end()
    assert (process.worker.counts["locks_lost"], process.worker.counts["cancelled"]) == (0, 1)
    assert [record.deliveries for record in bench.queues.topics[QUEUE]] == [1]


def test_a_second_cancellation_may_end_what_the_first_one_has_not(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    (running,) = process.manual.jobs
    cancel(bench, process, of=[job])
    cancel(bench, process, of=[job], terminate=True)
    assert (process.manual.cancelled, process.manual.terminated) == ([running], [running])


def test_of_two_cancellations_at_once_the_one_that_ends_the_process_counts(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    process.worker.cancelled([CancelledJob(job.id, True), CancelledJob(job.id)])
    assert len(process.manual.terminated) == 1


def test_a_cancelled_job_whose_lock_is_lost_is_left_to_the_worker_that_gets_it(bench: Bench) -> None:
    job = bench.put("note", 1)
    first = Process(bench)
    bench.settle()
    (running,) = first.manual.jobs
    cancel(bench, first, of=[job])
    running.lease.claim.token.holder = None
    first.worker.lost([running.lease], "the broker went away")
    second = Process(bench)
    cancel(bench, second, of=[job])
    first.worker.stop()
    bench.settle()
    first.end(running)
    assert (first.worker.counts["dropped"], first.worker.counts["cancelled"]) == (1, 0)
    assert (second.worker.counts["cancelled"], second.manual.jobs) == (1, [])
    assert bench.queues.waiting(QUEUE) == []


def test_a_job_whose_worker_was_killed_does_not_run_again_when_it_is_cancelled(bench: Bench) -> None:
    job = bench.put("note", 1)
    first = Process(bench)
    bench.settle()
    cancel(bench, first, of=[job])
    first.kill()
    second = Process(bench)
    cancel(bench, second, of=[job])
    third = bench.put("note", 3)
    bench.settle()
    assert [each.envelope.id for each in second.manual.jobs] == [third.id]
    assert bench.queues.topics[SUSPECT] == []


@pytest.mark.parametrize("has_processes", [True, False])
def test_a_worker_that_stops_gives_no_cancelled_job_back(bench: Bench, has_processes: bool) -> None:
    job = bench.put("note", 1)
    process = Process(bench, options=WorkerOptions(stop_grace_s=1.0, kill_grace_s=1.0))
    process.manual.has_processes = has_processes
    bench.settle()
    (running,) = process.manual.jobs
    process.worker.stop()
    cancel(bench, process, of=[job])
    bench.pass_time(2.5)
    if has_processes:
        process.end(running, ChildLost("stopped"))
    bench.pass_time(1)
    assert process.left == 1
    assert (bench.queues.waiting(QUEUE), process.worker.counts["given_back"]) == ([], 0)
    assert not is_written(bench, job)


def test_a_worker_that_has_left_is_not_disturbed(bench: Bench) -> None:
    process = Process(bench)
    process.worker.stop()
    bench.settle()
    assert process.left == 1
    cancel(bench, process, of=[a_job("note", 1)])


def test_ids_of_other_queues_change_nothing(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    cancel(bench, process, of=[a_job("note", 1), a_job("note", 2)], terminate=True)
    process.end()
    assert bench.final(job.id) is JobState.SUCCESS


class Noted:
    """An observer of cancellations."""

    def __init__(self) -> None:
        self.cancelled: list[tuple[str, str, bool]] = []

    def on_cancelled(self, jobs: Sequence[tuple[str, Envelope]], is_running: bool) -> None:
        self.cancelled += [(queue, envelope.id, is_running) for queue, envelope in jobs]

    def __getattr__(self, name: str) -> Any:
        return lambda *about: None


def test_observers_learn_of_each_once(bench: Bench) -> None:
    process, jobs = waiting_behind_two(bench)
    noted = Noted()
    process.worker._observers = process.worker._admission._observers = (noted,)
    later = a_job("note", 9, clock=bench.clock)
    cancel(bench, process, of=[jobs[0], jobs[2], later])
    cancel(bench, process, of=[jobs[0]], terminate=True)
    bench.queues.append(OutgoingRecord(RecordKind.JOB, QUEUE, later.value, None, later.headers()))
    while process.manual.jobs:
        process.end()
    assert noted.cancelled == [
        ("default", jobs[2].id, False), ("default", jobs[0].id, True), ("default", later.id, False),
    ]  # fmt: skip


# -- in memory --------------------------------------------------------------------------------------------------------


def test_in_memory_a_cancellation_by_the_schedule_reaches_workers_that_run_and_those_that_start_later(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, second = bench.put("note", 1), bench.put("note", 2)
    process = Process(bench, concurrency=1)
    process.delivery.watch_cancelled(process.worker.cancelled)
    bench.settle()
    (running,) = process.manual.jobs
    for job in (first, second):
        key, value, headers = encode_command(CANCEL, job.id, request=a_job("x").id[:12] + "0000" + "5" * 16)
        bench.queues.append(OutgoingRecord(RecordKind.COMMAND, "shop.commands", value, key, headers, 0))
    bench.settle()
    assert running.cancelled
    assert [bench.final(job.id) for job in (first, second)] == [JobState.REVOKED] * 2
    process.kill()
    late = Process(bench)
    late.delivery.watch_cancelled(late.worker.cancelled)
    bench.settle()
    assert (late.manual.jobs, late.worker.counts["cancelled"], bench.queues.waiting(QUEUE)) == ([], 2, [])


def test_in_memory_a_worker_that_has_left_is_told_nothing(bench: Bench) -> None:
    told: list[Sequence[CancelledJob]] = []
    process = Process(bench)
    delivery: MemoryDelivery = process.delivery
    delivery.watch_cancelled(told.append)
    process.worker.stop()
    bench.settle()
    key, headers = encode_cancelled("1" * 32, False)
    bench.queues.append(OutgoingRecord(RecordKind.STATE, "shop.cancelled", b"", key, headers, 0))
    bench.queues.notify()
    bench.settle()
    assert told == []

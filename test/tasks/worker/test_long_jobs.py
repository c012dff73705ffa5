"""Tests of ``kafka.tasks.worker.long_jobs``: whole workers and a schedule in memory, with a manual clock.

The promises are those of docs/schedule.rst, "Long jobs".
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kafka.errors import KafkaTimeoutError
from kafka.tasks import Retry
from kafka.tasks.delivery.base import OutgoingRecord, PublishCallback
from kafka.tasks.format.commands import END, LEASE, RENEW, decode_command
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, JobSnoozed, JobSucceeded
from kafka.tasks.states import JobState
from kafka.tasks.worker.long_jobs import BLOCKING_RECORDS, LEASE_S
from kafka.tasks.worker.worker import WorkerOptions
from test.support import seeds
from test.support.rounds import ROUNDS
from test.tasks.worker.test_worker import DUE, QUEUE, Bench, Process

HOUR = 3600.0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def commands(bench: Bench) -> list[str]:
    records = bench.queues.topics[bench.app.names.commands]
    read = [decode_command(each.key, each.value, each.headers, each.time_ms) for each in records]
    return [command.kind for command in read if command is not None]


def test_a_job_of_ten_hours_is_settled_in_its_queue_and_ends_once(bench: Bench) -> None:
    long_one = bench.put("note", 1)
    process = Process(bench, concurrency=2)
    bench.settle()
    bench.pass_time(60.0)
    assert bench.queues.waiting(QUEUE) == [], "its record stands in no window any more"
    bench.pass_time(10 * HOUR, 10.0)
    assert [job.envelope.id for job in process.manual.jobs] == [long_one.id]
    assert not process.manual.jobs[0].cancelled
    process.end(ran_s=10 * HOUR)
    assert bench.final(long_one.id) is JobState.SUCCESS
    assert process.worker.statistics()["held"] == 0
    bench.pass_time(10 * LEASE_S, 10.0)
    assert bench.queues.topics[DUE] == [], "its lease has ended with it"
    assert commands(bench).count(LEASE) == commands(bench).count(END) == 1
    assert commands(bench).count(RENEW) == pytest.approx(10 * HOUR / 20, rel=0.1)


def test_a_short_job_is_not_handed_over(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(25.0)
    process.end(ran_s=25.0)
    assert commands(bench) == []
    assert len(process.delivery.accepted) == 1


def test_one_that_many_others_wait_behind_is_handed_over_after_a_second(bench: Bench) -> None:
    slow = bench.put("note", 0)
    process = Process(bench, concurrency=2)
    bench.settle()
    slow_job = process.manual.jobs[0]
    for _ in range(BLOCKING_RECORDS + 200):
        bench.put("note", 1)
        bench.settle()
        process.end(next(job for job in process.manual.jobs if job is not slow_job))
        bench.pass_time(0.002, 0.002)
    assert slow_job.lease.is_handed_off
    assert bench.queues.waiting(QUEUE) == []
    assert bench.clock.monotonic() < 20.0
    process.end(slow_job)
    assert bench.final(slow.id) is JobState.SUCCESS


def test_after_the_death_of_its_worker_it_starts_again_as_after_a_crash(bench: Bench) -> None:
    long_one = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(HOUR, 5.0)
    process.kill()
    other = Process(bench)
    bench.settle()
    assert other.manual.jobs == [], "its record was accepted: the broker delivers nothing again"
    bench.pass_time(LEASE_S + 1.0)
    (job,) = other.manual.jobs
    assert (job.envelope.id, job.crashes) == (long_one.id, 1)
    other.end(job)
    assert bench.final(long_one.id) is JobState.SUCCESS


def test_a_job_that_kills_its_workers_in_the_end_is_dead(bench: Bench) -> None:
    bench.put("note", 1)
    for _ in range(3):
        process = Process(bench)
        bench.settle()
        bench.pass_time(LEASE_S + 1.0)
        assert len(process.manual.jobs) == 1
        bench.pass_time(60.0)
        process.kill()
    Process(bench)
    bench.pass_time(LEASE_S + 1.0)
    assert [cause for _, cause in bench.dead()] == ["crashes"]


def test_a_worker_that_stood_still_for_longer_than_the_lease_drops_the_outcome(bench: Bench) -> None:
    long_one = bench.put("note", 1)
    process, other = Process(bench, concurrency=1), Process(bench, concurrency=1)
    bench.settle()
    bench.pass_time(60.0)
    slow, idle = (process, other) if process.manual.jobs else (other, process)
    (job,) = slow.manual.jobs
    slow.is_dead = True  # SIGSTOP: its timers and events do nothing
    if slow.worker._timer is not None:
        slow.worker._timer.cancel()
    bench.pass_time(LEASE_S + 1.0)
    (again,) = idle.manual.jobs
    slow.is_dead = False
    slow.end(job)
    assert job.cancelled
    assert bench.final(long_one.id) is None
    idle.end(again, JobSucceeded(b"2"))
    assert [state.value for state in bench.states() if state.state is JobState.SUCCESS] == [b"2"]


def test_a_lease_that_cannot_be_renewed_is_lost_before_the_schedule_starts_the_job_again(bench: Bench) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(60.0)
    (job,) = process.manual.jobs
    process.publisher.errors[bench.app.names.commands] = [KafkaTimeoutError("no answer")] * 100
    while not job.cancelled:
        bench.pass_time(0.5)
    assert bench.queues.topics[DUE] == []
    bench.pass_time(10.0)
    assert len(bench.queues.topics[DUE]) == 1


def test_where_the_schedule_cannot_be_written_to_the_lock_is_renewed_as_before(bench: Bench) -> None:
    long_one = bench.put("note", 1)
    process = Process(bench)
    process.publisher.errors[bench.app.names.commands] = [KafkaTimeoutError("no answer")] * 2000
    bench.settle()
    bench.pass_time(HOUR, 5.0)
    (job,) = process.manual.jobs
    assert not job.lease.is_handed_off
    process.end(job)
    assert bench.final(long_one.id) is JobState.SUCCESS
    assert len(process.delivery.accepted) == 1


def test_one_that_ends_while_it_is_handed_over_ends_its_lease(bench: Bench) -> None:
    long_one = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(29.0)
    process.publisher.is_stuck = True
    bench.pass_time(3.0)
    process.end()
    process.publisher.advance()
    bench.settle()
    bench.pass_time(2 * LEASE_S)
    assert bench.final(long_one.id) is JobState.SUCCESS
    assert bench.queues.topics[DUE] == []
    assert process.worker.statistics()["held"] == 0


def test_a_retry_replaces_the_lease(bench: Bench) -> None:
    bench.declare_flaky(Retry(max_attempts=2, backoff=lambda attempt: 600.0, jitter=False))
    job = bench.put("flaky", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(60.0)
    process.end(outcome=AttemptFailed(ErrorInfo("OSError", "disk")))
    assert process.worker.statistics()["held"] == 0
    bench.pass_time(595.0)
    assert process.manual.jobs == []
    bench.pass_time(6.0)
    (again,) = process.manual.jobs
    assert (again.envelope.id, again.envelope.attempt, again.crashes) == (job.id, 2, 0)
    process.end(again)
    bench.pass_time(3 * LEASE_S)
    assert len(bench.queues.topics[DUE]) == 1


@pytest.mark.parametrize("outcome", [JobSnoozed(5000), JobSucceeded(b"1")], ids=["snoozed", "done"])
def test_its_end_is_written_before_its_lease_is_over(bench: Bench, outcome: JobSucceeded | JobSnoozed) -> None:
    bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(42.0)
    process.publisher.errors[bench.app.names.results] = [KafkaTimeoutError("no answer")] * 3
    process.end(outcome=outcome)
    assert END not in commands(bench)
    bench.pass_time(12.0)
    assert len(bench.states()) == 1
    assert commands(bench).count(END) == isinstance(outcome, JobSucceeded)


def test_a_worker_that_stops_gives_a_long_job_back_and_ends_its_lease(bench: Bench) -> None:
    job = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(60.0)
    process.worker.stop()
    bench.pass_time(60.0)
    assert process.left == 1
    other = Process(bench)
    bench.settle()
    (again,) = other.manual.jobs
    assert (again.envelope.id, again.crashes, again.envelope.clean) == (job.id, 0, 1)
    other.end(again)
    bench.pass_time(3 * LEASE_S)
    assert len(bench.queues.topics[DUE]) == 1


@pytest.mark.parametrize(
    "count",
    [300, pytest.param(10_000, marks=[pytest.mark.deep("minutes; kept with 300"), pytest.mark.timeout(900)])],
)
def test_two_workers_that_are_killed_all_the_time_lose_no_job_beside_one_of_ten_minutes(
    bench: Bench, count: int
) -> None:
    """Each job has one visible end; a job may run more than once, as its worker was killed."""
    rng = seeds.rng("kills beside a long job")
    long_one = bench.put("note", 0)
    short = [bench.put("note", number) for number in range(count * ROUNDS)]
    workers = [Process(bench, concurrency=4, attributes_crashes=True, options=WorkerOptions(100)) for _ in range(2)]
    began: dict[str, float] = {}
    kills = 0
    while bench.final(long_one.id) is None or bench.queues.waiting(QUEUE) or bench.queues.waiting(DUE):
        bench.pass_time(2.0, 1.0)
        now = bench.clock.monotonic()
        for process in workers:
            for job in list(process.manual.jobs):
                job_id = job.envelope.id
                began.setdefault(job_id, now)
                if job_id != long_one.id:
                    process.end(job, ran_s=0.2)
                elif now - began[job_id] >= 600.0 and not job.cancelled:
                    process.end(job, ran_s=600.0)
        if rng.random() < 0.05 and now < 700.0:
            kills += 1
            victim = rng.randrange(2)
            workers[victim].kill()
            workers[victim] = Process(bench, concurrency=4, attributes_crashes=True, options=WorkerOptions(100))
        assert now < 3000.0 + count, "something waits for ever"
    assert kills > 5
    assert bench.dead() == []
    assert {bench.final(job.id) for job in [long_one, *short]} == {JobState.SUCCESS}


def test_an_attempt_that_fails_while_it_is_handed_over_is_tried_again(bench: Bench) -> None:
    """The command of the next attempt comes after the lease's, and before the one that ends the lease."""
    bench.declare_flaky(Retry(max_attempts=2, backoff=lambda attempt: 600.0, jitter=False))
    job = bench.put("flaky", 1)
    process = Process(bench)
    bench.settle()
    bench.pass_time(29.0)
    process.publisher.is_stuck = True
    bench.pass_time(3.0)
    process.end(outcome=AttemptFailed(ErrorInfo("OSError", "disk")))
    process.publisher.advance()
    bench.settle()
    bench.pass_time(620.0)
    (again,) = process.manual.jobs
    assert (again.envelope.id, again.envelope.attempt, again.crashes) == (job.id, 2, 0)
    process.end(again)
    bench.pass_time(3 * LEASE_S)
    assert len(bench.queues.topics[DUE]) == 1


@pytest.mark.parametrize("failed_ends", [0, 1, 3])
@pytest.mark.parametrize("runs_s", [40.0, HOUR])
def test_a_lease_whose_answer_was_lost_starts_the_job_neither_beside_nor_after_its_run(
    bench: Bench, failed_ends: int, runs_s: float
) -> None:
    """Whether the lease is ended at once or only by a later try."""
    long_one = bench.put("note", 1)
    process = Process(bench)
    bench.settle()
    publish = process.publisher.publish

    def lose_answer(records: Sequence[OutgoingRecord], done: PublishCallback) -> None:
        process.publisher.publish = publish  # type: ignore[method-assign]

        def answered(_: object) -> None:
            bench.loop.call_later(5.0, no_answer, done)

        publish(records, answered)

    def no_answer(done: PublishCallback) -> None:
        process.publisher.errors[bench.app.names.commands] = [KafkaTimeoutError("no answer")] * failed_ends
        done([KafkaTimeoutError("no answer")])

    process.publisher.publish = lose_answer  # type: ignore[method-assign]
    bench.pass_time(31.0)
    assert commands(bench)[0] == LEASE
    bench.pass_time(6.0)
    bench.pass_time(runs_s - 37.0, 3.0)
    (job,) = process.manual.jobs
    process.end(job)
    assert bench.final(long_one.id) is JobState.SUCCESS
    bench.pass_time(2 * LEASE_S, 5.0)
    assert bench.queues.topics[DUE] == []


@pytest.mark.parametrize("lock_s", [30.0, 300.0])
def test_leases_are_renewed_in_time_whatever_the_length_of_locks(bench: Bench, lock_s: float) -> None:
    bench.put("note", 1)
    process = Process(bench)
    process.delivery.lock_s = lock_s
    bench.settle()
    bench.pass_time(HOUR, 5.0)
    (job,) = process.manual.jobs
    assert job.lease.is_handed_off
    assert not job.lease.lost
    assert bench.queues.topics[DUE] == []

"""Tests of ``kafka.tasks.worker.source_buffers``: who starts next, and how much is asked for. Whole workers:
``test_worker.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka.tasks.delivery.base import JobLease, JobSource, SourceKind
from kafka.tasks.worker.leases import BUFFERED, FINISHING, RUNNING, Leases
from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS
from kafka.tasks.worker.source_buffers import MAX_HELD_BYTES, SourceBuffers


def sources_of(queue: str) -> tuple[JobSource, JobSource, JobSource]:
    return (
        JobSource(queue, f"shop.{queue}"),
        JobSource(queue, f"shop.{queue}.due", SourceKind.DUE),
        JobSource(queue, f"shop.{queue}.suspect", SourceKind.SUSPECT),
    )


MAIN, DUE, SUSPECTS = sources_of("a")


class Bench:
    """The buffers of some queues, with what they asked the delivery for; a pool of ``slots``."""

    def __init__(self, *queues: str, slots: int = 4, attributes_crashes: bool = True) -> None:
        self.requests: list[tuple[JobSource, int]] = []
        sources = [source for queue in queues or ("a",) for source in sources_of(queue)]
        delivery: Any = SimpleNamespace(
            sources=sources, lock_s=30.0, request=lambda source, count: self.requests.append((source, count))
        )
        self.pool: Any = SimpleNamespace(
            ready=True, degraded=None, concurrency=slots, busy=0, may_grow=False, attributes_crashes=attributes_crashes
        )
        self.leases = Leases()
        self.buffers = SourceBuffers(delivery, slots)
        self.started: list[str] = []

    def add(self, source: JobSource, name: str, leased_at: float = 0.0) -> JobLease:
        """A job that waits."""
        lease = JobLease(source, b"", [], 1)
        job: Any = SimpleNamespace(lease=lease, name=name)
        self.leases.add([lease], leased_at, 30.0)
        self.leases.set_stage(lease, BUFFERED)
        self.buffers[source].add(job)
        return lease

    def hold(self, source: JobSource, count: int, stage: int) -> None:
        """So many leases of a stage."""
        for _ in range(count):
            lease = JobLease(source, b"", [], 1)
            self.leases.add([lease], 0.0, 30.0)
            self.leases.set_stage(lease, stage)

    def start(self, most: int) -> list[str]:
        self.started.clear()

        def submit(job: Any) -> bool:
            self.started.append(job.name)
            return True

        self.buffers.start(most, submit)
        return self.started

    def request(self, submitted_at: list[float] | None = None, now: float = 100.0) -> dict[JobSource, int]:
        """What is asked for now, by source; only what has changed is."""
        self.requests.clear()
        self.buffers.request_jobs(self.pool, self.leases, submitted_at or [], now)
        assert len(self.requests) == len(dict(self.requests)), "once for each change"
        return dict(self.requests)


def test_suspects_start_first_then_due_jobs_then_what_was_enqueued() -> None:
    bench = Bench()
    for source, name in ((MAIN, "job"), (DUE, "due"), (SUSPECTS, "suspect")):
        for number in (1, 2):
            bench.add(source, f"{name} {number}")
    assert bench.buffers.has_waiting_suspects
    assert bench.buffers.buffered_count == 6
    assert bench.start(5) == ["suspect 1", "suspect 2", "due 1", "due 2", "job 1"]
    assert not bench.buffers.has_waiting_suspects
    assert bench.start(5) == ["job 2"]


def test_of_each_kind_every_queue_starts_as_many_and_what_one_has_not_the_others_get() -> None:
    bench = Bench("a", "b", "c")
    for queue, count in (("a", 9), ("b", 9), ("c", 1)):
        for number in range(count):
            bench.add(sources_of(queue)[0], f"{queue}{number}")
    bench.add(sources_of("c")[1], "due")
    assert bench.start(7) == ["due", "b0", "b1", "c0", "a0", "a1", "b2"]
    one_by_one = [bench.start(1)[0][0] for _ in range(8)]
    assert one_by_one.count("a") == one_by_one.count("b") == 4, "with one free slot at a time both have their turns"


def test_what_has_lost_its_lock_is_passed_over() -> None:
    bench = Bench()
    lost = bench.add(MAIN, "lost")
    bench.add(MAIN, "job")
    bench.leases.mark_lost(lost, True)
    assert bench.start(1) == ["job"]


def test_what_has_waited_longest_may_be_taken_out_and_all_may() -> None:
    bench = Bench()
    for source in (MAIN, DUE, SUSPECTS):
        for leased_at in (1.0, 2.0, 3.0):
            bench.add(source, f"{source.kind.value} {leased_at}", leased_at)
    older: list[Any] = list(bench.buffers.take_older(2.0))
    assert [job.name for job in older] == [
        "main 1.0", "main 2.0", "due 1.0", "due 2.0", "suspect 1.0", "suspect 2.0"
    ]  # fmt: skip
    others: list[Any] = bench.buffers.take_all()
    assert [job.name for job in others] == ["main 3.0", "due 3.0", "suspect 3.0"]
    assert bench.buffers.buffered_count == 0


def test_each_change_is_requested_once_and_anew_after_jobs_have_come() -> None:
    bench = Bench()
    assert bench.request() == {MAIN: 4, DUE: 4, SUSPECTS: 4}
    assert bench.request() == {}
    bench.buffers.on_leased(DUE)
    assert bench.request() == {DUE: 4}
    bench.buffers.stop_requesting()
    assert dict(bench.requests) == {DUE: 0, MAIN: 0, SUSPECTS: 0}


@pytest.mark.parametrize("change", [{"ready": False}, {"degraded": "no child comes up"}])
def test_a_pool_that_cannot_run_jobs_gets_none(change: dict[str, Any]) -> None:
    bench = Bench()
    bench.request()
    vars(bench.pool).update(change)
    assert bench.request() == {MAIN: 0, DUE: 0, SUSPECTS: 0}


def test_beside_much_room_for_jobs_one_batch_of_due_ones_is_asked_for() -> None:
    bench = Bench()
    bench.buffers[MAIN].runtime.observe(0.01, 100)
    # another worker starts 322 again within a second, at 0.1 ms and a fetch of 3 ms each: as whole batches of 64
    assert bench.request() == {MAIN: 384, DUE: 64, SUSPECTS: 8}
    assert bench.buffers[DUE].runtime is bench.buffers[MAIN].runtime


@pytest.mark.parametrize(
    # mean seconds of the jobs (None: not measured), busy slots of four, suspects held -> suspects to ask for
    ("mean_s", "busy", "held", "expected"),
    [
        (None, 0, 0, 4),
        (None, 3, 0, 1),
        (None, 4, 0, 0),
        (None, 4, 2, 0),
        (0.01, 4, 0, 8),
        (0.01, 4, 5, 3),
        (0.5, 0, 0, 4),
        (0.5, 4, 0, 1),
        (5.0, 4, 0, 0),
        (5.0, 2, 0, 2),
    ],
)
def test_no_more_suspects_are_leased_than_start_at_once(
    mean_s: float | None, busy: int, held: int, expected: int
) -> None:
    bench = Bench()
    bench.pool.busy = busy
    bench.hold(SUSPECTS, held, RUNNING)
    if mean_s is not None:
        bench.buffers[MAIN].runtime.observe(mean_s, 1)
    assert bench.request()[SUSPECTS] == expected


def test_one_that_waits_here_is_no_reason_for_another() -> None:
    bench = Bench()
    bench.pool.busy = 3
    bench.add(SUSPECTS, "suspect")
    assert bench.request()[SUSPECTS] == 0


@pytest.mark.parametrize(("stage", "room"), [(BUFFERED, 0), (RUNNING, 0), (FINISHING, 1)])
def test_a_pool_in_the_workers_process_has_one_suspect_of_each_queue(stage: int, room: int) -> None:
    bench = Bench("a", "b", attributes_crashes=False)
    (_, _, others) = sources_of("b")
    bench.hold(SUSPECTS, 1, stage)
    found = bench.request()
    assert (found[SUSPECTS], found[others]) == (room, 1)


def test_what_is_not_accepted_yet_takes_room_by_number_and_by_bytes() -> None:
    bench = Bench()
    bench.request()
    bench.hold(MAIN, MAX_HELD_JOBS - 3, FINISHING)
    assert bench.request() == {MAIN: 3, DUE: 3, SUSPECTS: 3}
    assert bench.buffers.waits_for_settlements
    large = Bench()
    lease = JobLease(MAIN, bytes(MAX_HELD_BYTES), [], 1)
    large.leases.add([lease], 0.0, 30.0)
    assert large.request() == {MAIN: 0, DUE: 0, SUSPECTS: 0}


def test_what_is_refused_takes_no_slot_and_each_answer_with_nothing_else_doubles_the_next() -> None:
    bench = Bench()
    for refused, most in ((0, 4), (4, 8), (8, 12), (5000, MAX_HELD_JOBS)):
        bench.buffers[MAIN].refused_count = refused
        assert bench.buffers[MAIN].most_held(30.0, 0) == most
    bench.add(MAIN, "job")
    assert bench.buffers[MAIN].most_held(30.0, 0) == 4


def test_all_slots_are_stuck_when_the_last_of_them_has_a_long_job() -> None:
    bench = Bench()
    bench.buffers[MAIN].runtime.observe(0.1, 10)  # ten milliseconds each: long after a tenth of a second
    bench.request([99.0, 99.0, 99.95], 100.0)
    assert bench.buffers.all_stuck_since == bench.buffers.next_look_at == float("inf")
    bench.request([99.0, 99.0, 99.0, 99.95], 100.0)
    assert bench.buffers.all_stuck_since == float("inf")
    assert bench.buffers.next_look_at == pytest.approx(100.05)
    bench.request([99.0, 99.0, 99.0, 99.95], 100.06)
    bench.request([99.0, 99.0, 99.0, 99.95], 100.9)
    assert (bench.buffers.all_stuck_since, bench.buffers.next_look_at) == (100.06, float("inf"))
    bench.request([99.0, 99.0, 99.0], 101.0)
    assert bench.buffers.all_stuck_since == float("inf")

"""Tests of ``kafka.tasks.worker.leases``: the sums follow from the stages, whatever happens."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import (
    BUFFERED,
    FINISHED,
    HELD,
    MAX_EXCUSED,
    MOVING,
    NEW,
    RUNNING,
    SETTLING,
    WAITING,
    Leases,
)
from test.tasks.fakes import a_job

UNFINISHED = (NEW, BUFFERED, WAITING, RUNNING)
STAGES = (BUFFERED, WAITING, RUNNING, SETTLING, MOVING, FINISHED, -1)
ENVELOPE = a_job("mail.send")
SOURCES = (JobSource("a", "shop.a"), JobSource("a", "shop.a.suspect", True))


def a_lease(source: JobSource = SOURCES[0], deliveries: int = 1, offset: int = 0) -> JobLease:
    lease = JobLease(source, b"{ }", [], deliveries, 0, offset)
    task: Any = None
    lease.job = Job(lease, ENVELOPE, task)
    return lease


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(STAGES))))
def test_the_sums_never_drift_from_the_stages(steps: list[tuple[int, int]]) -> None:
    leases = Leases()
    all_of_them = [a_lease(SOURCES[n % 2]) for n in range(8)]
    for lease in all_of_them:
        leases.add(lease, 0.0, 30.0)
    for number, stage in steps:
        lease = all_of_them[number]
        if stage < 0:
            leases.mark_lost(lease, True)
        elif lease.stage != FINISHED:
            leases.set_stage(lease, stage)
        here = [each for each in all_of_them if each.stage in UNFINISHED]
        assert leases.unfinished_count == len(here)
        assert leases.unfinished_suspects == sum(each.source.suspect for each in here)
        assert leases.unsettled_count == sum(each.stage in (SETTLING, MOVING) for each in all_of_them)
        assert leases.held_bytes == 3 * len(leases)
        assert leases.moving == sum(each.stage == MOVING for each in all_of_them)
        assert len(leases) == sum(each.stage != FINISHED and not each.lost for each in all_of_them)


def test_a_lock_that_is_lost_twice_is_lost_once() -> None:
    leases = Leases()
    lease = a_lease()
    leases.add(lease, 0.0, 30.0)
    leases.set_stage(lease, RUNNING)
    assert leases.mark_lost(lease, True)
    assert not leases.mark_lost(lease, True)
    assert lease.job.cancelled
    assert leases.unfinished_count == 1
    leases.set_stage(lease, FINISHED)
    assert leases.unfinished_count == 0


def test_of_a_suspect_it_is_remembered_which_deliveries_were_lost_here() -> None:
    leases = Leases()
    excused = []
    for deliveries, is_excused in ((1, True), (2, False), (3, True), (4, True)):
        lease = a_lease(SOURCES[1], deliveries)
        leases.add(lease, 0.0, 30.0)
        leases.set_stage(lease, FINISHED if deliveries == 3 else RUNNING)
        leases.mark_lost(lease, is_excused)
        excused.append(lease.excused)
    assert excused == [0, 1, 1, 2]
    job, again, other = a_lease(), a_lease(deliveries=2), a_lease(SOURCES[1], 2, offset=1)
    for lease in (job, again, other):
        leases.add(lease, 0.0, 30.0)
        leases.mark_lost(lease, True)
    assert [again.excused, other.excused] == [0, 0]


def test_a_delivery_that_the_broker_counts_anew_after_a_restart_was_not_lost_before_itself() -> None:
    """KIP-932: a delivery is durable only when it has ended, so a broker that restarts counts it again."""
    leases = Leases()
    lost, again, next_one = (a_lease(SOURCES[1], deliveries) for deliveries in (2, 2, 3))
    leases.add(lost, 0.0, 30.0)
    leases.mark_lost(lost, True)
    for lease in (again, next_one):
        leases.add(lease, 0.0, 30.0)
    assert (again.excused, next_one.excused) == (0, 1)


def test_only_the_last_lost_locks_are_remembered() -> None:
    leases = Leases()
    for offset in range(MAX_EXCUSED + 1):
        leases.mark_lost(a_lease(SOURCES[1], 1, offset), True)
    found = [a_lease(SOURCES[1], 2, offset) for offset in (0, 1, MAX_EXCUSED)]
    for lease in found:
        leases.add(lease, 0.0, 30.0)
    assert [lease.excused for lease in found] == [0, 1, 1]


def test_what_is_held_is_due_in_the_order_of_its_times_and_not_at_all_when_lost() -> None:
    leases = Leases()
    first, second, lost = (a_lease() for _ in range(3))
    for lease, until in ((second, 2.0), (first, 1.0), (lost, 1.5)):
        leases.add(lease, 0.0, 30.0)
        leases.hold(lease, until)
    leases.mark_lost(lost, True)
    assert {first.stage, second.stage} == {HELD}
    assert leases.due_at == 1.0
    assert leases.take_due(1.9) == [first]
    assert leases.take_held() == [second]
    assert leases.due_at == float("inf")


def test_suspects_may_be_taken_by_themselves_before_their_time() -> None:
    leases = Leases()
    job, suspect = a_lease(), a_lease(SOURCES[1])
    for lease, until in ((job, 2.0), (suspect, 1.0)):
        leases.add(lease, 0.0, 30.0)
        leases.hold(lease, until)
    assert leases.take_held(only_suspects=True) == [suspect]
    assert leases.due_at == 2.0
    assert leases.take_due(2.0) == [job]


def test_a_renewal_starts_each_lock_anew_but_those_of_the_buffer() -> None:
    leases = Leases()
    running, buffered, new = (a_lease() for _ in range(3))
    for lease, stage in ((running, RUNNING), (buffered, BUFFERED), (new, NEW)):
        leases.add(lease, 0.0, 30.0)
        leases.set_stage(lease, stage)
    assert leases.take_renewable(10.0, 30.0) == [running, new]
    assert leases.expired(30.0) == [buffered]
    assert leases.expired(40.0) == [running, buffered, new]


def test_what_each_stage_counts_as_and_what_a_lost_lock_makes_of_it() -> None:
    # stage -> unfinished, moving, settling; then lost: whether that changes anything, stage, whether the job is told
    expected = {
        NEW: (1, 0, 0, True, FINISHED, None),
        BUFFERED: (1, 0, 0, True, FINISHED, None),
        WAITING: (1, 0, 0, True, FINISHED, None),
        RUNNING: (1, 0, 0, True, RUNNING, True),
        SETTLING: (0, 0, 1, True, SETTLING, False),
        MOVING: (0, 1, 1, True, MOVING, False),
        HELD: (0, 0, 1, True, HELD, False),
        FINISHED: (0, 0, 0, False, FINISHED, None),
    }
    assert set(expected) == set(range(8))
    found = {}
    for stage in expected:
        leases, lease = Leases(), a_lease(SOURCES[1])
        sums = (leases.moving, leases.unfinished_count, leases.unfinished_suspects, leases.suspects, len(leases))
        assert sums == (0, 0, 0, 0, 0)
        leases.add(lease, 5.0, 30.0)
        assert (leases.suspects, lease.leased_at, lease.locked_until) == (1, 5.0, 35.0)
        leases.set_stage(lease, stage)
        assert leases.suspects == (stage != FINISHED)
        assert leases.running() == ([lease] if stage == RUNNING else [])
        counts = (leases.unfinished_count, leases.moving, leases.settling_count)
        is_change = leases.mark_lost(lease, False)
        assert (leases.suspects, len(leases)) == (0, 0)
        found[stage] = (*counts, is_change, lease.stage, lease.job.cancelled if lease.job else None)
    assert found == expected


def test_a_job_that_is_no_suspect_is_counted_as_none() -> None:
    leases, lease = Leases(), a_lease()
    leases.add(lease, 0.0, 30.0)
    leases.set_stage(lease, RUNNING)
    assert (leases.suspects, leases.unfinished_suspects, leases.unfinished_count) == (0, 0, 1)
    leases.set_stage(lease, FINISHED)
    assert (leases.suspects, leases.settling_count) == (0, 0)


def test_equal_times_are_due_in_the_order_of_the_holds_and_all_may_be_taken() -> None:
    leases = Leases()
    held = [a_lease(SOURCES[n % 2]) for n in range(4)]
    for lease in held:
        leases.add(lease, 0.0, 30.0)
        leases.hold(lease, 1.0)
    assert leases.take_due(0.9) == []
    assert leases.take_due(1.0) == held
    for lease in held:
        leases.hold(lease, 2.0)
    assert leases.take_held() == held
    assert MAX_EXCUSED == 1000

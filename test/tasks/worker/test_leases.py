"""Tests of ``kafka.tasks.worker.leases``: the sums follow from the stages, whatever happens."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.delivery.base import Claim, ClaimKind, JobLease, JobSource, SourceKind
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.leases import (
    BUFFERED,
    FINISHED,
    FINISHING,
    MAX_EXCUSED,
    NEW,
    RUNNING,
    Leases,
)
from test.tasks.fakes import a_job

UNFINISHED: Final = (NEW, BUFFERED, RUNNING)
LOSE: Final = -1
ENVELOPE: Final = a_job("mail.send")
SOURCES: Final = (
    JobSource("a", "shop.a"),
    JobSource("a", "shop.a.due", SourceKind.DUE),
    JobSource("a", "shop.a.suspect", SourceKind.SUSPECT),
)
JOBS, DUE, SUSPECTS = SOURCES


def a_lease(source: JobSource = JOBS, deliveries: int = 1, offset: int = 0) -> JobLease:
    lease = JobLease(source, b"{ }", [], deliveries, 0, offset)
    task: Any = None
    lease.job = Job(lease, ENVELOPE, task)
    return lease


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from((*range(5), LOSE)))))
def test_the_sums_never_drift_from_the_stages(steps: list[tuple[int, int]]) -> None:
    leases = Leases()
    all_of_them = [a_lease(SOURCES[n % 3]) for n in range(9)]
    leases.add(all_of_them, 0.0, 30.0)
    for number, stage in steps:
        lease = all_of_them[number]
        if stage == LOSE:
            leases.mark_lost(lease, True)
        elif lease.stage == FINISHED:
            continue
        elif stage == FINISHED:
            leases.finish([lease])
        elif stage != NEW:
            leases.set_stage(lease, stage)
        held = [each for each in all_of_them if each.stage != FINISHED and not each.lost]
        assert len(leases) == len(held)
        assert leases.held_bytes == 3 * len(held)
        unfinished = [each for each in all_of_them if each.stage in UNFINISHED]
        assert leases.unfinished_count == len(unfinished)
        assert leases.unfinished_of == {source: sum(each.source == source for each in unfinished) for source in SOURCES}
        assert leases.unsettled_count == sum(each.stage == FINISHING for each in all_of_them)
        assert leases.running() == [each for each in held if each.stage == RUNNING]


def test_a_lock_that_is_lost_twice_is_lost_once() -> None:
    leases = Leases()
    lease = a_lease()
    leases.add([lease], 0.0, 30.0)
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
        lease = a_lease(SUSPECTS, deliveries)
        leases.add([lease], 0.0, 30.0)
        leases.set_stage(lease, FINISHED if deliveries == 3 else RUNNING)
        leases.mark_lost(lease, is_excused)
        excused.append(lease.excused)
    assert excused == [0, 1, 1, 2]
    job, again, other = a_lease(), a_lease(deliveries=2), a_lease(SUSPECTS, 2, offset=1)
    for lease in (job, again, other):
        leases.add([lease], 0.0, 30.0)
        leases.mark_lost(lease, True)
    assert [again.excused, other.excused] == [0, 0]


def test_a_delivery_that_the_broker_counts_anew_after_a_restart_was_not_lost_before_itself() -> None:
    """KIP-932: a delivery is durable only when it has ended, so a broker that restarts counts it again."""
    leases = Leases()
    lost, again, next_one = (a_lease(SUSPECTS, deliveries) for deliveries in (2, 2, 3))
    leases.add([lost], 0.0, 30.0)
    leases.mark_lost(lost, True)
    for lease in (again, next_one):
        leases.add([lease], 0.0, 30.0)
    assert (again.excused, next_one.excused) == (0, 1)


@pytest.mark.parametrize(
    ("kind", "stages"),
    [
        (ClaimKind.SHARE_LOCK, [NEW, BUFFERED, RUNNING, FINISHING]),
        (ClaimKind.PARTITION, []),  # whose session is over, if any is, the group's member knows
    ],
)
def test_which_leases_a_worker_gives_up_that_stood_still(kind: ClaimKind, stages: list[int]) -> None:
    leases = Leases()
    held = [a_lease() for _ in range(FINISHED)]
    for stage, lease in enumerate(held):
        lease.claim = Claim(kind)
        leases.add([lease], 0.0, 10.0)
        leases.set_stage(lease, stage)
    assert leases.expired(9.0) == []
    assert [lease.stage for lease in leases.expired(10.0)] == stages


def test_only_the_last_lost_locks_are_remembered() -> None:
    leases = Leases()
    for offset in range(MAX_EXCUSED + 1):
        leases.mark_lost(a_lease(SUSPECTS, 1, offset), True)
    found = [a_lease(SUSPECTS, 2, offset) for offset in (0, 1, MAX_EXCUSED)]
    for lease in found:
        leases.add([lease], 0.0, 30.0)
    assert [lease.excused for lease in found] == [0, 1, 1]


def test_a_renewal_starts_each_lock_anew_but_those_of_the_buffer_and_of_what_was_handed_off() -> None:
    leases = Leases()
    of_stage = {stage: a_lease() for stage in (NEW, BUFFERED, RUNNING, FINISHING)}
    handed_off = a_lease()
    leases.add([*of_stage.values(), handed_off], 0.0, 30.0)
    leases.set_stage(handed_off, RUNNING)
    leases.hand_off(handed_off, 60.0)
    for stage, lease in of_stage.items():
        leases.set_stage(lease, stage)
    renewed = [of_stage[stage] for stage in (NEW, RUNNING, FINISHING)]
    assert leases.take_renewable(10.0, 30.0) == renewed
    assert leases.expired(29.9) == []
    assert leases.expired(30.0) == leases.expired(39.9) == [of_stage[BUFFERED]]
    assert leases.expired(40.0) == list(of_stage.values())
    assert leases.handed_off() == [handed_off]
    assert handed_off in leases.expired(60.0)
    leases.renewed([handed_off], 90.0)
    assert handed_off not in leases.expired(60.0)


@pytest.mark.parametrize(
    # stage -> unfinished, unsettled, whether it is running; then lost: the stage, whether the job is cancelled (None:
    # the lease has none any more), and what is unfinished and unsettled after that
    ("stage", "counts", "lost_stage", "is_cancelled", "lost_counts"),
    [
        (NEW, (1, 0, False), FINISHED, None, (0, 0)),
        (BUFFERED, (1, 0, False), FINISHED, None, (0, 0)),
        (RUNNING, (1, 0, True), RUNNING, True, (1, 0)),
        (FINISHING, (0, 1, False), FINISHING, False, (0, 1)),
    ],
)
def test_what_each_stage_counts_as_and_what_a_lost_lock_makes_of_it(
    stage: int, counts: tuple[int, int, bool], lost_stage: int, is_cancelled: bool | None, lost_counts: tuple[int, int]
) -> None:
    leases, lease = Leases(), a_lease(DUE)
    assert (len(leases), leases.unfinished_count, leases.unsettled_count, leases.held_bytes) == (0, 0, 0, 0)
    leases.add([lease], 5.0, 30.0)
    assert (lease.leased_at, lease.locked_until, leases.unfinished_of[DUE]) == (5.0, 35.0, 1)
    leases.set_stage(lease, stage)
    assert leases.unfinished_of == {DUE: counts[0]}
    assert (leases.unfinished_count, leases.unsettled_count, leases.running() == [lease]) == counts
    assert leases.mark_lost(lease, False)
    assert lease.lost
    assert (lease.stage, lease.job.cancelled if lease.job else None) == (lost_stage, is_cancelled)
    assert (leases.unfinished_count, leases.unsettled_count) == lost_counts
    assert leases.unfinished_of == {DUE: lost_counts[0]}
    assert (len(leases), leases.held_bytes, leases.running()) == (0, 0, [])


def test_a_lease_that_is_finished_has_no_job_and_its_lost_lock_is_news_to_none() -> None:
    leases, lease = Leases(), a_lease()
    leases.add([lease], 0.0, 30.0)
    leases.set_stage(lease, FINISHING)
    leases.finish([lease])
    assert (lease.stage, lease.job, len(leases), leases.unsettled_count) == (FINISHED, None, 0, 0)
    assert not leases.mark_lost(lease, True)


def test_only_what_comes_from_the_suspects_is_excused() -> None:
    assert MAX_EXCUSED == 1000
    leases = Leases()
    for source in SOURCES:
        first, again = a_lease(source), a_lease(source, 2)
        leases.add([first], 0.0, 30.0)
        leases.mark_lost(first, True)
        leases.add([again], 0.0, 30.0)
        assert again.excused == (source is SUSPECTS)

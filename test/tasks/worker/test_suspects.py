"""Tests of ``kafka.tasks.worker.suspects``: who starts, who waits, and how many are leased. That a job with crashes
behind it
runs alone is the rule in docs/tasks.rst, "When a worker dies"; the numbers of room and patience are the module's own.
"""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.worker.suspects import Suspects


def a_pool(busy: int = 0, concurrency: int = 4, free_slots: int = 1) -> Any:
    return SimpleNamespace(busy=busy, concurrency=concurrency, free_slots=free_slots)


def a_suspect(crashes: int = 0, lost: bool = False) -> Any:
    lease = JobLease(JobSource("q", "shop.q"), b"", [], 1)
    lease.lost = lost
    return SimpleNamespace(crashes=crashes, lease=lease)


def with_jobs(*crashes: int) -> Suspects:
    suspects = Suspects()
    for each in crashes:
        suspects.add(a_suspect(each), 100.0)
    return suspects


def test_a_suspect_starts_when_what_runs_beside_it_permits() -> None:
    # crashes, busy, free slots, held leases, jobs on the move -> starts, others may start
    expected = {
        (0, 0, 1, 1, False): (1, True),
        (0, 3, 1, 2, False): (1, True),
        (0, 4, 1, 5, False): (0, False),
        (0, 0, 0, 1, False): (0, False),
        (0, 0, 1, 1, True): (0, True),
        (1, 0, 1, 1, False): (1, False),
        (1, 1, 1, 1, False): (0, False),
        (1, 0, 1, 2, False): (0, False),
        (1, 0, 0, 1, False): (0, False),
    }
    found = {}
    for crashes, busy, free, held, moving in expected:
        started: list[Any] = []
        suspects = with_jobs(crashes)
        others = suspects.start(a_pool(busy, free_slots=free), held, moving, started.append)
        found[crashes, busy, free, held, moving] = (len(started), others)
    assert found == expected


def test_what_runs_alone_keeps_all_others_away_until_it_has_ended() -> None:
    suspects, job, next_one, gone = Suspects(), a_suspect(1), a_suspect(), a_suspect(lost=True)
    started: list[Any] = []
    for each in (gone, job, next_one):
        suspects.add(each, 0.0)
    assert suspects.has_isolated
    assert not suspects.start(a_pool(), 1, False, started.append)
    assert started == [job]
    assert (suspects.has_isolated, suspects.have_priority, suspects.room(a_pool(), None, 1)) == (True, True, 0)
    assert suspects.take_surplus() == [next_one]
    suspects.on_job_ended(next_one)
    assert suspects.has_isolated
    suspects.requeue(job)
    assert suspects.take_waiting() == [job]
    assert (suspects.has_isolated, suspects.have_priority) == (False, False)


def test_beside_one_that_will_run_alone_nothing_else_is_held() -> None:
    suspects, innocent, first, second = Suspects(), a_suspect(), a_suspect(1), a_suspect(2)
    suspects.add(innocent, 0.0)
    assert (suspects.take_surplus(), suspects.has_isolated, suspects.have_priority) == ([], False, True)
    suspects.add(first, 0.0)
    suspects.add(second, 0.0)
    assert suspects.take_surplus() == [innocent, second]
    assert suspects.take_waiting() == [first]


def test_more_are_expected_for_a_quarter_of_a_second_after_each() -> None:
    suspects = Suspects()
    assert [suspects.add(a_suspect(), now) for now in (10.0, 10.125, 10.25, 10.5)] == [True, False, False, True]
    assert [suspects.are_expected(now) for now in (10.5, 10.625, 10.75)] == [True, True, False]


def test_one_that_has_to_be_alone_waits_for_a_second_then_others_have_their_turn_then_for_two() -> None:
    suspects, busy = Suspects(), a_pool(2)
    job: Any = a_suspect(1)
    assert suspects.due_at(busy, 2) == inf
    suspects.add(job, 100.0)
    assert [suspects.due_at(a_pool(n), held) for n, held in ((0, 1), (0, 2), (1, 1))] == [inf, 101.0, 101.0]
    assert suspects.take_due(busy, 1, 100.9) is None
    assert suspects.take_due(busy, 1, 101.0) is job
    suspects.add(job, 101.5)
    assert suspects.due_at(busy, 1) == 101.5, "until 102 it is the turn of the others"
    assert suspects.take_due(busy, 1, 101.5) is job
    suspects.add(job, 102.0)
    assert suspects.due_at(busy, 1) == 104.0
    assert suspects.take_due(busy, 1, 104.0) is job
    suspects.add(job, 106.0)
    assert suspects.due_at(busy, 1) == 110.0
    suspects.take_waiting()
    suspects.start(busy, 0, False, lambda _: None)
    suspects.add(job, 120.0)
    assert suspects.due_at(busy, 1) == 124.0, "while others run its patience is kept"
    suspects.take_waiting()
    suspects.start(a_pool(), 0, False, lambda _: None)
    suspects.add(job, 130.0)
    assert suspects.due_at(busy, 1) == 131.0


def test_as_many_are_leased_as_start_at_once_and_twice_as_many_short_ones() -> None:
    # those that wait (crashes of each), busy of 4 slots, mean seconds, suspects that are here -> how many to lease
    expected = {
        ((), 1, None, 0): 3,
        ((), 4, None, 0): 0,
        ((), 5, None, 0): 0,
        ((), 4, 1.0, 0): 1,
        ((), 4, 1.01, 0): 0,
        ((), 2, 1.0, 0): 2,
        ((), 4, 0.01, 3): 5,
        ((), 4, 0.01, 9): 0,
        ((), 4, 0.011, 0): 1,
        ((0,), 1, None, 1): 0,
        ((0,), 1, 0.01, 1): 7,
        ((1,), 0, None, 1): 0,
    }
    found = {key: with_jobs(*key[0]).room(a_pool(key[1]), key[2], key[3]) for key in expected}
    assert found == expected


def test_after_one_with_a_crash_the_next_are_leased_one_by_one() -> None:
    suspects = with_jobs(1)
    suspects.take_waiting()
    rooms = [suspects.room(a_pool(busy), mean, 0) for busy, mean in ((0, None), (4, None), (5, None), (4, 0.01))]
    assert rooms == [1, 0, 0, 1]
    suspects = with_jobs(0, 1)
    suspects.take_due(a_pool(1), 2, 101.0)
    assert suspects.room(a_pool(), None, 1) == 0, "one waits"

"""Tests of ``kafka.tasks.worker.runtime_estimate``."""

from __future__ import annotations

import pytest

from kafka.tasks.worker.runtime_estimate import (
    MAX_HELD_JOBS,
    PRODUCER_BATCH_RECORDS,
    STUCK_FACTOR,
    STUCK_S,
    RuntimeEstimate,
)

LOCK = 30.0


def estimate_of(mean_s: float, slots: int = 4) -> RuntimeEstimate:
    runtime = RuntimeEstimate(slots)
    runtime.observe(mean_s * 100, 100)
    return runtime


def test_before_anything_is_measured_one_job_a_slot_is_held() -> None:
    runtime = RuntimeEstimate(4)
    assert (runtime.most_held(LOCK), runtime.depth()) == (4, 4)


def test_short_jobs_are_held_by_the_hundreds() -> None:
    runtime = estimate_of(20e-6)
    assert 300 < runtime.most_held(LOCK) <= MAX_HELD_JOBS
    assert runtime.depth() > 100


@pytest.mark.parametrize("mean_s", [0.5, 5.0, 600.0])
def test_long_jobs_are_one_for_each_slot(mean_s: float) -> None:
    runtime = estimate_of(mean_s)
    assert (runtime.most_held(LOCK), runtime.depth()) == (4, 4)


@pytest.mark.parametrize("mean_s", [1e-5, 1e-3, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("slots", [1, 4, 64])
def test_what_is_held_starts_within_a_third_of_the_lock(mean_s: float, slots: int) -> None:
    held = estimate_of(mean_s, slots).most_held(LOCK)
    assert held == slots or held * mean_s / slots <= LOCK / 3


@pytest.mark.parametrize("mean_s", [1e-5, 1e-3, 0.01, 0.05])
def test_a_killed_workers_jobs_can_be_started_one_by_one_within_a_second(mean_s: float) -> None:
    held = estimate_of(mean_s, 4).most_held(LOCK)
    assert held * (mean_s + 0.002) <= 1.0


def test_the_measure_follows_what_is_seen() -> None:
    runtime = estimate_of(0.0001)
    for _ in range(40):
        runtime.observe(1.0, 1)
    assert runtime.mean_s == pytest.approx(1.0, rel=0.01)


def test_many_jobs_at_once_weigh_more_than_one_and_no_more_than_fifty() -> None:
    def after(count: int) -> float | None:
        runtime = estimate_of(0.0)
        runtime.observe(1.0 * count, count)
        return runtime.mean_s

    assert after(1) == pytest.approx(0.2)
    assert after(2) == pytest.approx(0.36)  # as two that are observed one after the other
    assert after(1000) == after(50) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize(
    ("mean_s", "stuck_after_s"), [(None, 0.1), (1e-5, 0.1), (0.01, 0.1), (0.02, 0.2), (5.0, 50.0)]
)
def test_a_job_is_a_long_one_after_ten_times_the_mean_and_a_tenth_of_a_second(
    mean_s: float | None, stuck_after_s: float
) -> None:
    assert (STUCK_FACTOR, STUCK_S) == (10, 0.1)
    runtime = RuntimeEstimate(4) if mean_s is None else estimate_of(mean_s)
    assert runtime.stuck_after_s == pytest.approx(stuck_after_s)


def test_slots_that_long_jobs_take_count_for_nothing() -> None:
    runtime = estimate_of(0.0625, slots=8)
    lock_s = 0.75  # a third of it is four jobs for each slot; fifteen jobs are started again within a second
    assert [runtime.most_held(lock_s, stuck) for stuck in range(9)] == [15, 15, 15, 15, 15, 12, 8, 8, 8]
    assert RuntimeEstimate(8).most_held(lock_s, 3) == 8


@pytest.mark.parametrize("mean_s", [1e-5, 0.01, 5.0])
def test_with_all_slots_taken_by_long_jobs_nothing_is_held_beside_them(mean_s: float) -> None:
    assert estimate_of(mean_s).most_held(LOCK, stuck=4) == 4
    assert estimate_of(mean_s).most_held(LOCK, stuck=5) == 4


def test_short_jobs_are_held_by_more_than_a_batch_of_a_producer() -> None:
    assert estimate_of(1e-3).most_held(LOCK) >= 4 + PRODUCER_BATCH_RECORDS
    assert estimate_of(1e-6).most_held(LOCK) <= MAX_HELD_JOBS == 1024


def test_what_the_pool_has_at_once_lasts_until_the_loops_next_turn() -> None:
    # 25 ms of work for each slot beyond the running jobs, 256 jobs at most
    for mean_s, depth in ((0.001, 4 + 100), (0.025, 4 + 4), (0.2, 4), (1e-5, 4 + 256)):
        assert estimate_of(mean_s).depth() == depth

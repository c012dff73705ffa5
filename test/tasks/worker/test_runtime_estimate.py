"""Tests of ``kafka.tasks.worker.runtime_estimate``."""

from __future__ import annotations

import pytest

from kafka.tasks.worker.runtime_estimate import MAX_HELD_JOBS, RuntimeEstimate

LOCK = 30.0


def pace_of(mean_s: float, slots: int = 4) -> RuntimeEstimate:
    runtime = RuntimeEstimate(slots)
    runtime.observe(mean_s * 100, 100)
    return runtime


def test_before_anything_is_measured_one_job_a_slot_is_held() -> None:
    runtime = RuntimeEstimate(4)
    assert (runtime.most_held(LOCK), runtime.depth()) == (4, 4)


def test_short_jobs_are_held_by_the_hundreds() -> None:
    runtime = pace_of(20e-6)
    assert 300 < runtime.most_held(LOCK) <= MAX_HELD_JOBS
    assert runtime.depth() > 100


@pytest.mark.parametrize("mean_s", [0.5, 5.0, 600.0])
def test_long_jobs_are_one_for_each_slot(mean_s: float) -> None:
    runtime = pace_of(mean_s)
    assert (runtime.most_held(LOCK), runtime.depth()) == (4, 4)


@pytest.mark.parametrize("mean_s", [1e-5, 1e-3, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("slots", [1, 4, 64])
def test_what_is_held_starts_within_a_third_of_the_lock(mean_s: float, slots: int) -> None:
    held = pace_of(mean_s, slots).most_held(LOCK)
    assert held == slots or held * mean_s / slots <= LOCK / 3


@pytest.mark.parametrize("mean_s", [1e-5, 1e-3, 0.01, 0.05])
def test_a_killed_workers_jobs_can_be_started_one_by_one_within_a_second(mean_s: float) -> None:
    held = pace_of(mean_s, 4).most_held(LOCK)
    assert held * (mean_s + 0.002) <= 1.0


def test_the_measure_follows_what_is_seen() -> None:
    runtime = pace_of(0.0001)
    for _ in range(40):
        runtime.observe(1.0, 1)
    assert runtime.mean_s == pytest.approx(1.0, rel=0.01)

"""Tests of ``kafka.tasks.testing.clocks``."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks.testing import FakeClock
from kafka.tasks.testing.clocks import SkippingClock

NEW_YEAR = datetime(2030, 1, 1, tzinfo=timezone.utc)


def test_a_fake_clock_begins_where_it_is_said_and_moves_when_it_is_said() -> None:
    clock = FakeClock(NEW_YEAR)
    assert (clock.now(), clock.time()) == (NEW_YEAR, NEW_YEAR.timestamp())
    clock.advance(1.5)
    clock.advance(timedelta(minutes=2))
    assert clock.now() == NEW_YEAR + timedelta(seconds=121.5)
    assert FakeClock(NEW_YEAR.timestamp()).now() == NEW_YEAR


def test_without_a_start_it_begins_at_the_present_whole_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_800_000_000.9)
    assert FakeClock().time() == 1_800_000_000.0


def test_small_steps_add_up_exactly() -> None:
    clock = FakeClock(NEW_YEAR)
    for _ in range(10):
        clock.advance(0.1)
    assert clock.monotonic() == 1.0


@pytest.mark.parametrize("seconds", [-1, timedelta(seconds=-1), float("nan")])
def test_time_does_not_go_back(seconds: float | timedelta) -> None:
    with pytest.raises(IllegalArgumentError, match="time does not go back"):
        FakeClock().advance(seconds)


def test_a_start_without_a_time_zone_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match=r"FakeClock\(start\) needs a datetime with a time zone"):
        FakeClock(datetime(2030, 1, 1))  # noqa: DTZ001


def test_a_skipping_clock_goes_with_the_machines_and_ahead_by_what_it_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0, 1_800_000_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "time", lambda: now[1])
    clock = SkippingClock()
    clock.set(160.0)
    assert (clock.monotonic(), clock.time()) == (160.0, 1_800_000_060.0)
    clock.set(150.0)
    now[:] = [101.0, 1_800_000_001.0]
    assert (clock.monotonic(), clock.time()) == (161.0, 1_800_000_061.0)

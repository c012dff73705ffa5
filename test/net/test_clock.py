"""Clocks."""

from __future__ import annotations

import pytest

from kafka.net.clock import ManualClock, SystemClock


def test_manual_clock_moves_only_when_told():
    clock = ManualClock(monotonic=5.0, time=1000.0)
    assert (clock.monotonic(), clock.time()) == (5.0, 1000.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.time()) == (7.5, 1002.5)
    clock.set(10.0)
    assert (clock.monotonic(), clock.time()) == (10.0, 1005.0)


def test_step_of_the_wall_clock_leaves_monotonic_time_alone():
    clock = ManualClock()
    wall = clock.time()
    clock.step(-3600)
    assert clock.monotonic() == 0.0
    assert clock.time() == wall - 3600


def test_time_does_not_go_back():
    clock = ManualClock(monotonic=5.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="does not go back"):
        clock.set(4.0)


def test_system_clock_never_goes_back():
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()
    assert clock.time() > 1_600_000_000

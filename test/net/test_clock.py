"""Clocks."""

from __future__ import annotations

import contextlib

import pytest

from kafka.net.clock import AdjustableClock, ManualClock, SystemClock
from kafka.net.loop import Loop


def test_manual_clock_moves_only_when_a_test_moves_it():
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


def test_an_adjustable_clock_leaps_stands_and_goes_on_with_both_faces():
    base = ManualClock(monotonic=5.0, time=1000.0)
    clock = AdjustableClock(base)
    clock.advance(60)
    assert (clock.monotonic(), clock.time()) == (65.0, 1060.0)
    clock.freeze()
    clock.freeze()
    base.advance(7)
    assert (clock.monotonic(), clock.time(), clock.is_frozen) == (65.0, 1060.0, True)
    clock.advance(1)
    base.step(-500)
    assert (clock.monotonic(), clock.time()) == (66.0, 1061.0)
    clock.resume()
    clock.resume()
    base.advance(1)
    assert (clock.monotonic(), clock.is_frozen) == (67.0, False)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_what_is_ahead_of_a_clock_that_stands_comes_no_nearer():
    clock = AdjustableClock(ManualClock())
    assert clock.left_s(3.0) == 3.0
    clock.freeze()
    assert (clock.left_s(3.0), clock.left_s(0.0), clock.left_s(-1.0)) == (float("inf"), 0.0, 0.0)


def test_a_loop_sleeps_until_its_clock_goes_on():
    clock = AdjustableClock()
    with contextlib.closing(Loop(clock)) as loop:
        ran = []
        clock.freeze()
        loop.call_later(0.001, ran.append, "due")
        assert loop.run_once(0.02) == 0, "one sleep, not many"
        assert not ran
        clock.advance(0.001)
        loop.run_once(0)
        assert ran == ["due"]

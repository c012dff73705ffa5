"""An alarm goes off once, at the last instant that it was set to."""

from __future__ import annotations

from math import inf

from kafka.net.clock import ManualClock
from kafka.net.loop import DeadlineTimer, Loop


def test_only_the_last_instant_counts_and_infinity_is_never() -> None:
    clock = ManualClock()
    loop = Loop.simulated(clock)
    rang: list[float] = []
    alarm = DeadlineTimer(loop, lambda: rang.append(clock.monotonic()))
    for when in (5.0, 3.0, 3.0, 4.0):
        alarm.set(when)
    loop.run_until(lambda: rang, 10.0)
    assert rang == [4.0]
    alarm.set(6.0)
    alarm.set(inf)
    loop.run_until(lambda: len(rang) > 1, 10.0)
    assert rang == [4.0]
    alarm.set(clock.monotonic() + 1)
    loop.run_until(lambda: len(rang) > 1, 10.0)
    assert len(rang) == 2


def test_an_alarm_that_is_put_off_again_and_again_sets_one_timer() -> None:
    clock = ManualClock()
    loop = Loop.simulated(clock)
    rang: list[float] = []
    alarm = DeadlineTimer(loop, lambda: rang.append(clock.monotonic()))
    for number in range(1000):
        alarm.set(5.0 + number)
    assert loop._timers.stored_count == 1
    loop.run_until(lambda: rang, 2000.0)
    assert rang == [1004.0]

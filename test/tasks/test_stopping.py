"""Tests of ``kafka.tasks.stopping``."""

from __future__ import annotations

import math

from kafka.tasks.stopping import LEAVE_S, Stage, Stopping


def test_each_stage_lasts_as_long_as_was_said() -> None:
    stopping = Stopping(20, 5)
    assert stopping.ends_at == math.inf
    ends = []
    for now in (100.0, 120.0, 125.0, 130.0):
        assert stopping.go_on(now) is stopping.stage
        ends.append(stopping.ends_at)
    assert ends == [120.0, 125.0, 125.0 + LEAVE_S, math.inf]
    assert stopping.stage is Stage.LEAVING


def test_nothing_goes_further_than_leaving_by_wish() -> None:
    stopping = Stopping(20, 5)
    stopping.enter(Stage.LEAVING, 0.0)
    assert stopping.go_on(1.0) is None
    stopping.enter(Stage.LEFT, 2.0)
    assert stopping.go_on(3.0) is None
    assert stopping.stage is Stage.LEFT


def test_what_each_stage_allows() -> None:
    stopping = Stopping(20, 5)
    seen = []
    for stage in Stage:
        stopping.enter(stage, 0.0)
        seen.append((stopping.has_begun, stopping.interrupts, stopping.may_leave))
    assert seen == [
        (False, False, False),
        (True, False, True),
        (True, True, True),
        (True, True, True),
        (True, True, False),
        (True, True, False),
    ]

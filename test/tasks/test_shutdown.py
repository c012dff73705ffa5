"""Tests of ``kafka.tasks.shutdown``."""

from __future__ import annotations

import math

from kafka.tasks.shutdown import LEAVE_S, WorkerShutdown, WorkerStage


def test_each_stage_lasts_as_long_as_was_said() -> None:
    stopping = WorkerShutdown(20, 5)
    assert stopping.ends_at == math.inf
    ends = []
    for now in (100.0, 120.0, 125.0, 130.0):
        assert stopping.go_on(now) is stopping.stage
        ends.append(stopping.ends_at)
    assert ends == [120.0, 125.0, 125.0 + LEAVE_S, math.inf]
    assert stopping.stage is WorkerStage.LEAVING


def test_nothing_goes_further_than_leaving_by_wish() -> None:
    stopping = WorkerShutdown(20, 5)
    stopping.enter(WorkerStage.LEAVING, 0.0)
    assert stopping.go_on(1.0) is None
    stopping.enter(WorkerStage.LEFT, 2.0)
    assert stopping.go_on(3.0) is None
    assert stopping.stage is WorkerStage.LEFT


def test_what_each_stage_allows() -> None:
    stopping = WorkerShutdown(20, 5)
    seen = []
    for stage in WorkerStage:
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

"""Tests of ``kafka.tasks.worker.shutdown``."""

from __future__ import annotations

import math

from kafka.tasks.worker.shutdown import LEAVE_S, WorkerShutdown, WorkerStage


def test_each_stage_lasts_as_long_as_configured() -> None:
    shutdown = WorkerShutdown(20, 5)
    assert shutdown.ends_at == math.inf
    ends = []
    for now in (100.0, 120.0, 125.0, 130.0):
        assert shutdown.advance(now) is shutdown.stage
        ends.append(shutdown.ends_at)
    assert ends == [120.0, 125.0, 125.0 + LEAVE_S, math.inf]
    assert shutdown.stage is WorkerStage.LEAVING


def test_nothing_goes_further_than_leaving_by_wish() -> None:
    shutdown = WorkerShutdown(20, 5)
    shutdown.enter(WorkerStage.LEAVING, 0.0)
    assert shutdown.advance(1.0) is None
    shutdown.enter(WorkerStage.LEFT, 2.0)
    assert shutdown.advance(3.0) is None
    assert shutdown.stage is WorkerStage.LEFT


def test_what_each_stage_allows() -> None:
    shutdown = WorkerShutdown(20, 5)
    seen = []
    for stage in WorkerStage:
        shutdown.enter(stage, 0.0)
        seen.append((shutdown.has_begun, shutdown.is_interrupting, shutdown.may_leave))
    assert seen == [
        (False, False, False),
        (True, False, True),
        (True, True, True),
        (True, True, True),
        (True, True, False),
        (True, True, False),
    ]

"""Tests of ``kafka.tasks.worker.cancelled_jobs``: which ids are remembered, and for how long."""

from __future__ import annotations

import logging

import pytest

from kafka.tasks.format.cancelled import CancelledJob
from kafka.tasks.worker.cancelled_jobs import MAX_CANCELLED, CancelledJobs


def ids(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


def test_an_id_is_remembered_until_the_topic_has_lost_it() -> None:
    now = [1_000]
    cancelled = CancelledJobs(lambda: now[0])
    first, second, third = ids(1, 2, 3)
    cancelled.add([CancelledJob(first, kept_until_ms=1_500), CancelledJob(second, kept_until_ms=2_500)])
    assert (first in cancelled, second in cancelled, third in cancelled, len(cancelled)) == (True, True, False, 2)
    now[0] = 2_000
    cancelled.add([CancelledJob(third)])
    assert (first in cancelled, second in cancelled, third in cancelled) == (False, True, True)


def test_an_id_that_comes_again_is_remembered_from_then_on() -> None:
    now = [0]
    cancelled = CancelledJobs(lambda: now[0])
    first, second = ids(1, 2)
    cancelled.add([CancelledJob(first, kept_until_ms=10), CancelledJob(second, kept_until_ms=20)])
    cancelled.add([CancelledJob(first, True, kept_until_ms=30)])
    now[0] = 25
    cancelled.add([])
    assert (first in cancelled, second in cancelled) == (True, False)


def test_above_the_limit_the_oldest_are_dropped_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    cancelled = CancelledJobs(lambda: 0, most=3)
    with caplog.at_level(logging.WARNING, "kafka.tasks.worker.cancelled_jobs"):
        cancelled.add([CancelledJob(each) for each in ids(1, 2, 3)])
        assert caplog.records == []
        cancelled.add([CancelledJob(each) for each in ids(4, 5)])
    assert [each in cancelled for each in ids(1, 2, 3, 4, 5)] == [False, False, True, True, True]
    assert [record.getMessage() for record in caplog.records] == [
        "more than 3 jobs are cancelled; forgetting the oldest 2, which run if they are still in a queue"
    ]
    assert MAX_CANCELLED == 200_000

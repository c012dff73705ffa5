"""Tests of the soft limit where the exception of a signal would be lost: event loops, finalisers, others' coroutines.

``test_soft_limit.py`` walks the points of plain functions.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kafka.tasks.pools.limits import SOFT_REPEAT_S
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded
from test.tasks.pools.test_process_pools import Bench, Kind, a_pool, kinds
from test.tasks.pools.test_process_pools import _gone as gone
from test.tasks.pools.test_process_pools import _nothing_is_left_behind as _nothing_is_left_behind  # a fixture

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork"),
    pytest.mark.timeout(180),
]
SOFT_S = 0.05


def struck(bench: Bench, name: str) -> Any:
    """The value, or the fault's type, of a job that ends by its soft limit."""
    outcome = bench.outcome(bench.submit(name, soft=SOFT_S, hard=100.0))
    return outcome.value if isinstance(outcome, JobSucceeded) else getattr(outcome, "error_info", outcome)


@kinds
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("waits_on_a_loop", b'"struck where it waits"'),
        ("computes_in_a_coroutine", b'"struck where it computes"'),
        ("waits_for_another_that_computes", b'"struck where it waits"'),
        ("lives_in_finalisers", b'"struck"'),
    ],
)
def test_the_exception_is_raised_in_the_task_wherever_the_signal_comes(kind: Kind, name: str, value: bytes) -> None:
    with a_pool(kind=kind) as bench:
        for _ in range(3):
            assert struck(bench, name) == value
        assert bench.value(bench.submit("square", 3)) == b"9"


@pytest.mark.parametrize("name", ["turns_of_a_loop", "runs_a_loop_itself", "leaves_a_stubborn_one"])
def test_a_loop_of_events_does_not_swallow_it(name: str) -> None:
    with a_pool() as bench:
        for _ in range(10):
            assert struck(bench, name).type == "kafka.tasks.errors.SoftTimeLimit"
        assert bench.value(bench.submit("square", 3)) == b"9"
        assert bench.pool.statistics()["started"] == 1


def test_a_coroutine_that_deals_with_it_is_not_struck_again() -> None:
    with a_pool() as bench:
        began = time.monotonic()
        assert struck(bench, "cleans_up_for_long") == b'"cleaned up"'
        assert time.monotonic() - began > 2 * SOFT_REPEAT_S
        assert bench.pool.statistics()["soft_limits"] == 1


def test_a_stop_reaches_a_coroutine_without_limits() -> None:
    with a_pool() as bench:
        job = bench.submit("turns_of_a_loop")
        bench.until(lambda: bench.children[0].running() is not None)
        bench.pool.interrupt()
        outcome = bench.outcome(job)
        assert isinstance(outcome, AttemptFailed) and outcome.error_info.type.endswith("SoftTimeLimit")


@pytest.mark.skipif(sys.platform != "linux", reason="who leaves its session is found by Linux alone")
@pytest.mark.parametrize("how", ["limit", "stop"])
def test_processes_below_processes_in_sessions_of_their_own_end_too(tmp_path: Path, how: str) -> None:
    with a_pool(kill_grace=10.0) as bench:
        job = bench.submit("chain_of_sessions", str(tmp_path), hard=1.0 if how == "limit" else None)
        files = [tmp_path / str(level) for level in range(3)]
        bench.until(lambda: all(file.exists() and file.read_text() for file in files))
        pids = [int(file.read_text()) for file in files]
        if how == "limit":
            outcome = bench.outcome(job)
            assert isinstance(outcome, AttemptFailed)
            text = outcome.error_info.text
            assert text.startswith("it ran for longer than its timeout of 1 s, and its process was killed: signal 15")
            assert "SIGTERM" in text and "MiB" in text and "of CPU time" in text and "; process " in text
            bench.until(lambda: all(map(gone, pids)))
    assert all(map(gone, pids))


def test_a_worker_that_inherits_an_ignored_sigchld_still_learns_how_its_children_end() -> None:
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with a_pool() as bench:
            lost: Any = bench.outcome(bench.submit("end_process", 7))
            assert (lost.cause, lost.exit_code) == ("exit", 7)
    finally:
        signal.signal(signal.SIGCHLD, former)

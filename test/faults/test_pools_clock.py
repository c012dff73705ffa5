"""The wall clock of a worker and its children is stepped by an hour, either way, while they work: nothing notices.

Leases, limits and waits are on monotonic time; ids and expiries are on the broker's.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka.tasks import JobState
from test.faults.pool_jobs import make_app
from test.faults.pool_workers import PoolCrew, wait_for
from test.faults.stepped_clock import VARIABLE, Steps
from test.faults.test_pools_stopped import LOCK_MS
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.faults.test_pools_stopped import short_locks as short_locks
from test.support.process_table import needs_proc

pytestmark = [needs_proc, pytest.mark.timeout(180)]

HOUR_S = 3600.0
LIMITS = {"timeout": 1800.0, "soft_timeout": 900.0}
"""Of jobs that must not reach them: less than the step."""


def test_a_step_of_the_wall_clock_costs_no_job_no_lease_and_no_limit(
    short_locks: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(short_locks)
    steps = Steps(crew.directory / "clock")
    crew.module = "test.faults.stepped_clock"
    worker = crew.start("--concurrency", "3", **{VARIABLE: str(steps.path)})
    crew.works(4)
    held = crew.delay("hold", "at the end", 5, **LIMITS)
    crew.started(held)
    for seconds in (HOUR_S, -HOUR_S, 0.0):
        steps.to(seconds)
        stepped_at = time.monotonic()
        _nothing_expires_and_ids_are_right(crew)
        _work_lasts_no_hour(crew, f"healed after {seconds:g}")
        while time.monotonic() < stepped_at + 1.1 * LOCK_MS / 1000:  # leases are renewed meanwhile, or lost
            crew.works(4)
        assert abs(crew.result(crew.delay("wall")) - time.time() - seconds) < HOUR_S / 60
        assert len(worker.children()) == 3
    crew.opened("at the end")
    assert crew.result(held) == 5
    assert len(crew.starts(held)) == 1
    assert crew.states(held) == [JobState.SUCCESS]
    assert "lost the acquisition locks" not in worker.log()
    assert not worker.tracebacks_of_its_own()


def test_a_worker_that_starts_with_a_wrong_clock_lets_no_job_expire_too_soon(
    servers: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(servers)
    steps = Steps(crew.directory / "clock")
    steps.to(HOUR_S)
    crew.module = "test.faults.stepped_clock"
    waiting = crew.delay("ping", 7, expires=HOUR_S / 2)
    crew.start(**{VARIABLE: str(steps.path)})
    assert crew.result(waiting)[0] == 7


def _nothing_expires_and_ids_are_right(crew: PoolCrew) -> None:
    """Of the first jobs after the step, when nothing has told the new time."""
    assert crew.result(crew.delay("ping", 7, expires=HOUR_S / 2))[0] == 7
    following = crew.result(crew.delay("enqueue", 8))
    assert crew.result(crew.app.job(following))[0] == 8
    stranger = make_app(crew.app.name, crew.servers)  # has followed nothing, and has to look it up
    try:
        assert stranger.job(following).status() is JobState.SUCCESS
    finally:
        stranger.close()


def _work_lasts_no_hour(crew: PoolCrew, gate: str) -> None:
    """Limits come in their own time, and lost jobs are tried again: else these waits fail."""
    limited = [crew.delay("in_finally", soft_timeout=0.3), crew.delay("stubborn", "never", timeout=0.5)]
    lost = crew.delay("exit_while", gate)
    crew.started(lost)
    crew.opened(gate)
    crew.result(lost)
    for handle, kind in zip(limited, ("SoftTimeLimit", "TimeLimit"), strict=True):
        assert crew.failure(handle).type.endswith(kind)
    wait_for(lambda: len(crew.workers[0].children()) == 3, "as many children as before", crew)

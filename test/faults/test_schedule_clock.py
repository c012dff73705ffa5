"""Wrong clocks and the schedule: the clock of an owner is stepped by an hour, either way, and those of clients and
workers are three minutes off. Jobs start when the broker's clock says so, none early and none twice."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafka.tasks import JobHandle, JobState
from kafka.tasks.format.job_id import time_of
from test.faults.counted_jobs import read_topic
from test.faults.pool_workers import ROOT, PoolCrew
from test.faults.stepped_clock import VARIABLE, Steps
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support.process_table import needs_proc

pytestmark = [needs_proc, pytest.mark.timeout(180)]

HOUR_S = 3600.0
SKEW_S = 180.0
SOON_S = 1.5
LATE_S = 5.0
"""A job starts within this time after it is due. It takes a fifth of a second on a machine with nothing else to do."""

_ENQUEUE = """
import os, sys
from test.faults import stepped_clock
stepped_clock.install(os.environ[stepped_clock.VARIABLE])
from test.faults.pool_jobs import app
for number in range(5):
    print(app.tasks["ping"].using(delay=float(sys.argv[1])).delay(number).id)
app.close(30)
"""


def test_a_step_of_an_owner_s_clock_starts_nothing_early_late_or_twice(
    servers: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(servers)
    steps = Steps(crew.directory / "clock")
    crew.module = "test.faults.stepped_clock"
    crew.start("--schedule", **{VARIABLE: str(steps.path)})
    crew.works(2)
    waiting = crew.delay("ping", 1, delay=HOUR_S / 2)
    for seconds in (HOUR_S, 0.0, -HOUR_S, 0.0):
        before = crew.delay("ping", 2, delay=SOON_S)  # waits while the clock is stepped
        assert crew.result(crew.delay("ping", 3, delay=0.1))[0] == 3  # the owner has it
        steps.to(seconds)
        after = crew.delay("ping", 4, delay=SOON_S)
        for job in (before, after):
            assert crew.result(job)[0] in (2, 4)
            assert len(crew.starts(job)) == 1
        _started_in_time(crew, [before, after])
    assert waiting.status() is JobState.SCHEDULED
    assert crew.starts(waiting) == []


@pytest.mark.parametrize("skew_s", [SKEW_S, -SKEW_S])
def test_clocks_of_clients_and_workers_that_are_three_minutes_off_change_nothing(
    servers: str, pool_crew: Callable[[str], PoolCrew], skew_s: float
) -> None:
    crew = pool_crew(servers)
    ahead, behind = Steps(crew.directory / "ahead"), Steps(crew.directory / "behind")
    ahead.to(skew_s)
    behind.to(-skew_s)
    crew.module = "test.faults.stepped_clock"
    crew.start("--schedule", **{VARIABLE: str(ahead.path)})
    crew.works(2)
    enqueued = subprocess.run(
        [sys.executable, "-c", _ENQUEUE, str(SOON_S)],
        cwd=ROOT,
        env={**crew.environment, VARIABLE: str(behind.path)},
        check=True,
        capture_output=True,
        text=True,
    )
    jobs: list[JobHandle[Any]] = [crew.app.job(job_id) for job_id in enqueued.stdout.split()]
    assert len(jobs) == 5
    for job in jobs:
        crew.result(job)
        assert len(crew.starts(job)) == 1
    _started_in_time(crew, jobs)


def _started_in_time(crew: PoolCrew, jobs: list[JobHandle[Any]]) -> None:
    """Each result was written after its job was due, and not long after that, both by the broker's clock."""
    names = crew.app.names
    appended_ms = {
        record.key.decode(): record.timestamp
        for record in read_topic(crew.servers, names.results)
        if record.key is not None
    }
    for job in jobs:
        late_ms = appended_ms[job.id] - time_of(job.id)
        assert 0 <= late_ms < LATE_S * 1000, f"{job} ended {late_ms} ms after it was due\n{crew.logs()}"

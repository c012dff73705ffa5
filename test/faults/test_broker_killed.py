"""The embedded broker killed with -9 under load: nothing that it acknowledged is lost; clients and workers go on."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from kafka.testing import EmbeddedBroker
from test.faults.conftest import wait_until
from test.faults.counted_jobs import Crew


def _has_come_to(team: Crew, goal: int) -> bool:
    return team.starts_count() > goal


@pytest.mark.slow
def test_no_acknowledged_job_is_lost_when_the_broker_is_killed_and_comes_back(
    crew: Callable[[str, int], Crew], rounds: int
) -> None:
    with EmbeddedBroker() as broker:
        team = crew(broker.bootstrap, 4)
        team.start()
        team.start()
        work = team.app.tasks["work"]
        handles = [work.delay(0, 0.0)]
        assert handles[0].wait(30)
        for _ in range(rounds * 2):
            goal = team.starts_count() + 300
            for _ in range(1000):
                handles.append(work.delay(len(handles), 0.001))
            wait_until(functools.partial(_has_come_to, team, goal), "in the middle of the jobs", 60)
            broker.kill()
            for _ in range(200):
                handles.append(work.delay(len(handles), 0.001))
            broker.start()
        team.app.flush(60)
        for handle in handles:
            handle.raise_if_not_sent()
        assert [handle.result(90) for handle in handles] == list(range(len(handles))), team.logs()
        assert [worker.poll() for worker in team.workers] == [None, None], team.logs()

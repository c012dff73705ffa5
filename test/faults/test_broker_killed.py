"""The embedded broker killed with -9 under load: nothing that it acknowledged is lost; clients and workers go on."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
from collections.abc import Callable

import pytest

from kafka.broker.embedded import ensure_running
from kafka.testing import EmbeddedBroker
from test.faults.counted_jobs import Crew
from test.support.process_table import children_of
from test.support.waiting import until


def _children(pid: int) -> set[int]:
    return {child.pid for child in children_of(pid)}


@pytest.mark.slow
@pytest.mark.parametrize("pool", [pytest.param("threads", marks=pytest.mark.deep("kept with prefork")), "prefork"])
def test_no_acknowledged_job_is_lost_when_the_broker_is_killed_and_comes_back(
    crew: Callable[[str, int], Crew], rounds: int, pool: str
) -> None:
    with EmbeddedBroker() as broker:
        team = crew(broker.bootstrap, 4)
        team.start(pool=pool)
        team.start(pool=pool)
        work = team.app.tasks["work"]
        handles = [work.delay(0, 0.0)]
        assert handles[0].wait(30)
        count = 2 if pool == "prefork" else 0
        until(lambda: all(len(_children(worker.pid)) == count for worker in team.workers), "all children are up")
        before = {worker.pid: _children(worker.pid) for worker in team.workers}
        for _ in range(rounds * 2):
            goal = team.starts_count() + 300
            for _ in range(1000):
                handles.append(work.delay(len(handles), 0.001))
            until(functools.partial(team.has_come_to, goal), "in the middle of the jobs", within_s=60)
            broker.kill()
            for _ in range(200):
                handles.append(work.delay(len(handles), 0.001))
            broker.start()
        team.app.flush(60)
        for handle in handles:
            handle.raise_if_not_sent()
        assert [handle.result(90) for handle in handles] == list(range(len(handles))), team.logs()
        assert [worker.poll() for worker in team.workers] == [None, None], team.logs()
        assert {worker.pid: _children(worker.pid) for worker in team.workers} == before  # who is up stays


def test_a_killed_broker_of_a_directory_is_started_again_by_those_who_use_it(
    crew: Callable[[str, int], Crew], tmp_path: pathlib.Path
) -> None:
    team = crew(f"embedded:{tmp_path}", 2)
    team.start()
    work = team.app.tasks["work"]
    assert work.delay(0, 0.0).result(30) == 0
    broker = ensure_running(tmp_path)
    os.kill(broker.pid, signal.SIGKILL)
    handles = [work.delay(number, 0.0) for number in range(100)]
    assert [handle.result(60) for handle in handles] == list(range(100)), team.logs()
    assert ensure_running(tmp_path).pid != broker.pid
    assert [worker.poll() for worker in team.workers] == [None], team.logs()

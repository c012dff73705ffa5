"""Deploys: workers that are stopped and replaced while there is a backlog, and workers with other tasks than before."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable

import pytest

from kafka.tasks import JobState
from kafka.tasks.format.records import decode
from test.faults.counted_jobs import Crew, job_id_of, read_topic
from test.support.waiting import until

MakeCrew = Callable[[str, int], Crew]

JOBS = 300
RESTARTS = 4
"""Of a round: 1,500 jobs and 20 restarts in the deep tier, or as many more jobs as the restarts take."""
JOB_S = 0.05
BACKLOG = 150
"""So many jobs wait at least, as long as workers are restarted."""
MOST_WAIT_S = 10.0
"""A job that was given back starts again within this time, whatever was enqueued meanwhile."""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("pool", [pytest.param("threads", marks=pytest.mark.deep("kept with prefork")), "prefork"])
def test_jobs_run_once_through_rolling_restarts_and_those_given_back_before_newer_ones(
    servers: str, crew: MakeCrew, rounds: int, pool: str
) -> None:
    team = crew(servers, 4)
    team.warm_up(2, pool, JOB_S)
    before = team.starts_count()
    work = team.app.tasks["work"]
    handles = [work.delay(number, JOB_S) for number in range(rounds * JOBS)]

    def has_started_a_job(worker: int) -> bool:
        if len(handles) - (team.starts_count() - before) < BACKLOG:
            handles.extend([work.delay(len(handles) + each, JOB_S) for each in range(50)])
        return team.has_started_jobs(worker)

    for number in range(rounds * RESTARTS):
        team.workers[number].terminate()
        team.start(pool=pool)
        is_up = functools.partial(has_started_a_job, len(team.workers) - 1)
        until(is_up, "the newest worker runs jobs", shown=team.logs)
    assert [handle.result(60) for handle in handles] == list(range(len(handles))), team.logs()
    assert [worker.wait(30) for worker in team.workers[:-2]] == [0] * rounds * RESTARTS, team.logs()

    names = team.app.names
    assert team.count_moved(names.suspect("default"), names.dead("default")) == 0, team.logs()
    states = [decode(each.key, each.value, each.headers) for each in read_topic(servers, names.results)]
    ends = Counter(state.id for state in states if state is not None and state.state is JobState.SUCCESS)
    starts = team.starts()
    for handle in handles:
        assert (ends[handle.id], len(starts[handle.id])) == (1, 1), team.logs()

    started = [starts[handle.id][0].at for handle in handles]
    at = {handle.id: number for number, handle in enumerate(handles)}
    waits, overtaken = [], []
    for record in read_topic(servers, names.due("default")):
        number, given_back = at[job_id_of(record)], record.timestamp / 1000
        waits.append(started[number] - given_back)
        overtaken.append(sum(given_back < newer < started[number] for newer in started[number + 1 :]))
    most_s, most = max(waits, default=0.0), max(overtaken, default=0)
    print(f"{len(waits)} of {len(handles)} given back; waited {most_s:.2f} s at most, for {most} newer ones at most")
    assert team.count_moved(names.due("default")), "nothing was given back"  # settled records may be deleted already
    assert most_s < MOST_WAIT_S, team.logs()
    assert most < BACKLOG // 2, team.logs()


def test_jobs_of_a_new_task_run_within_their_delay_when_workers_that_have_it_replace_the_old_ones(
    servers: str, crew: MakeCrew
) -> None:
    team = crew(servers, 4)
    team.options = ("--schedule",)  # where jobs of an unknown task wait
    team.start(COUNTED_RELEASE="old")
    assert team.app.tasks["work"].delay(0, 0.0).wait(30), team.logs()
    handles = [team.app.tasks["later"].delay(number) for number in range(50)]
    topic = team.app.names.due("default")
    until(lambda: team.count_moved(topic) > 2 * len(handles), "the old worker has seen them twice", shown=team.logs)
    team.warm_up(1)
    team.workers[0].terminate()
    assert team.workers[0].wait(30) == 0, team.logs()
    # They wait in the schedule by then: for 8 s, or 15 where the old worker saw them once more.
    assert [handle.result(30) for handle in handles] == list(range(50)), team.logs()
    assert all(len(team.starts()[handle.id]) == 1 for handle in handles)
    assert team.count_moved(team.app.names.suspect("default")) == 0

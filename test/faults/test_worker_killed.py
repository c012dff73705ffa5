"""Workers killed with -9: no job is lost, and what they held starts again at once, not after their session."""

from __future__ import annotations

import functools
import signal
import time
from collections import defaultdict
from collections.abc import Callable

import pytest

from kafka.tasks import READY, JobFailed, JobState
from kafka.tasks.format.envelope import dead_letter_of
from kafka.tasks.format.records import decode
from test.faults.counted_jobs import Crew, job_id_of, read_topic
from test.support.waiting import until

MakeCrew = Callable[..., Crew]

both_deliveries = pytest.mark.parametrize(
    "delivery",
    ["share", pytest.param("group", marks=pytest.mark.deep("minutes; kept by test/faults/test_group_workers.py"))],
)

JOBS = 2000
KILLED_JOBS = 1000
KILLS = 4
"""Of a round: 5,000 jobs and 20 kills in the deep tier."""
WORKERS = 2
AGAIN_S = 10.0
"""Within this time after the kill the last of the killed worker's jobs has started again: a third of a lock. It takes
one or two seconds on a machine that has nothing else to do."""
A_LOCK_AND_MORE_S = 60.0
"""When a broker did not see a worker's end, its jobs are free when their locks have run out (30 s). That is rare, and
not what is tested where this is waited for: :data:`AGAIN_S` is."""


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [WORKERS, 5])
def test_every_job_ends_and_what_a_killed_worker_held_starts_again_before_its_locks_end(
    servers: str, crew: MakeCrew, partitions: int, rounds: int
) -> None:
    for _ in range(rounds):
        _kill_one_in_the_middle(servers, crew(servers, partitions))


def _kill_one_in_the_middle(servers: str, team: Crew) -> None:
    team.warm_up(WORKERS)
    before = team.starts_count()
    victim = team.workers[0]
    work = team.app.tasks["work"]
    handles = [work.delay(number, 0.002) for number in range(JOBS)]
    team.app.flush(60)
    until(lambda: team.starts_count() - before > JOBS // 4, "in the middle of the jobs")
    victim.kill()
    killed_at = time.time()
    for handle in handles:
        assert handle.wait(60), f"{handle} has no terminal record\n{team.logs()}"
    assert [handle.result(0) for handle in handles] == list(range(JOBS))

    records = read_topic(servers, team.app.names.suspect("default"))
    suspects = {job_id_of(record) for record in records}
    assert suspects, "the killed worker held nothing"

    def started_again() -> list[float]:
        starts = team.starts()
        times = [[start.at for start in starts[job] if start.pid != victim.pid] for job in suspects]
        return [min(each) for each in times if each]

    # Some had ended in the killed worker already, which only their leases did not say.
    until(lambda: len(started_again()) == len(suspects), "all that it held started again")
    again = started_again()
    last_s = max(again) - killed_at
    print(f"{last_s:.2f} s for the last of {len(suspects)}")
    assert last_s < AGAIN_S, f"{last_s:.2f} s for the last of {len(suspects)}\n{team.logs()}"
    team.close()


def test_long_jobs_of_a_killed_worker_start_again_on_an_idle_one(servers: str, crew: MakeCrew) -> None:
    team = crew(servers, 2)
    team.warm_up(WORKERS)
    work = team.app.tasks["work"]
    handles = [work.delay(number, 1.5) for number in range(2)]
    until(lambda: all(handle.id in team.starts() for handle in handles), "both run")
    victim_pid = team.starts()[handles[0].id][0].pid
    held = [handle for handle in handles if team.starts()[handle.id][0].pid == victim_pid]
    next(worker for worker in team.workers if worker.pid == victim_pid).kill()
    killed_at = time.time()
    assert [handle.result(45) for handle in handles] == [0, 1]
    starts = team.starts()
    assert max(starts[handle.id][-1].at for handle in held) - killed_at < AGAIN_S, team.logs()
    assert all(starts[handle.id][-1].pid != victim_pid for handle in held)


@pytest.mark.slow
@pytest.mark.timeout(240)
@both_deliveries
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_no_job_is_lost_and_none_is_settled_twice_whichever_worker_is_killed(
    servers: str, crew: MakeCrew, rounds: int, pool: str, delivery: str
) -> None:
    """Workers are killed one after the other under load, and new ones come. What the topics show when all have left:

    * each job has a terminal record, and readers see the first;
    * one that was settled starts nowhere again: each start but the last was in a worker that was killed, so the job was
      not settled by it, and a second terminal record is that of a worker killed before it could acknowledge the first;
    * a job is dead once, with the cause of its crashes, when that is its end, and never else.
    """
    team = crew(servers, 4, delivery)
    team.warm_up(2, pool)
    work = team.app.tasks["work"]
    before = team.starts_count()
    handles = [work.delay(number, 0.005) for number in range(rounds * KILLED_JOBS)]
    team.app.flush(30)
    kills = rounds * KILLS
    for number in range(kills):
        goal = before + (number + 1) * len(handles) // (kills + 2)
        until(functools.partial(team.has_come_to, goal), "on the way", shown=team.logs)
        team.workers[number].kill()
        team.start(pool=pool)
    for handle in handles:
        assert handle.wait(A_LOCK_AND_MORE_S), f"{handle} has no terminal record\n{team.logs()}"
    for worker in team.workers[kills:]:
        worker.terminate()
    assert [worker.wait(30) for worker in team.workers[kills:]] == [0] * 2, team.logs()

    names = team.app.names
    ends: dict[str, list[JobState]] = defaultdict(list)
    for topic in (names.results, names.late):
        for record in read_topic(servers, topic):
            state = decode(record.key, record.value, record.headers)
            if state is not None and state.state in READY:
                ends[state.id].append(state.state)
    deaths = defaultdict(list)
    for record in read_topic(servers, names.dead("default")):
        deaths[job_id_of(record)].append(dead_letter_of(record.headers))
    starts = team.starts()
    for number, handle in enumerate(handles):
        runs = sorted(starts[handle.id], key=lambda start: start.at)
        killed = [run for run in runs if run.worker < kills]
        told = f"{handle}: {runs}, {ends[handle.id]}, {deaths[handle.id]}"
        assert all(run in killed for run in runs[:-1]), f"{told}\n{team.logs()}"
        most = 1 if delivery == "group" else 1 + len(killed)  # a transaction has the result and the settlement, or none
        assert 1 <= len(ends[handle.id]) <= most, f"{told}\n{team.logs()}"
        if ends[handle.id][0] is JobState.SUCCESS:
            assert (handle.result(0), deaths[handle.id]) == (number, []), f"{told}\n{team.logs()}"
        else:
            (death,) = deaths[handle.id]
            assert death is not None
            assert (death.cause, runs) == ("crashes", killed), f"{told}\n{team.logs()}"
    again = sum(len(starts[handle.id]) > 1 for handle in handles)
    print(f"{kills} kills: {again} jobs ran again, {sum(map(len, ends.values())) - len(ends)} ended again")
    assert again, "no worker was killed while it ran a job"


@pytest.mark.timeout(300)  # of several locks, if it comes to that
@both_deliveries
def test_a_job_that_kills_its_workers_is_dead_after_the_crash_limit(
    servers: str, crew: MakeCrew, delivery: str
) -> None:
    team = crew(servers, 2, delivery)
    bad = team.app.tasks["kill_the_worker"].delay()
    team.app.flush(10)
    for number in range(4):  # the first time unseen on the queue itself, then three that count
        team.start()
        until(
            lambda: team.workers[-1].poll() is not None,
            f"the job has killed worker {number}",
            within_s=A_LOCK_AND_MORE_S,
            shown=lambda: f"{team.starts()}\n{team.logs()}",
        )
        assert team.workers[-1].returncode == -signal.SIGKILL, team.logs()
    team.start()
    with pytest.raises(JobFailed, match="3 workers died"):
        bad.result(A_LOCK_AND_MORE_S)
    (dead,) = until(lambda: read_topic(servers, team.app.names.dead("default")), "its dead record follows the result")
    death = dead_letter_of(dead.headers)
    assert death is not None
    assert (death.cause, death.type) == ("crashes", "WorkerLost")
    assert len(team.starts()[bad.id]) == 4, team.logs()


@both_deliveries
def test_a_worker_that_is_stopped_leaves_nothing_to_suspect(servers: str, crew: MakeCrew, delivery: str) -> None:
    team = crew(servers, 4, delivery)
    team.warm_up(WORKERS)
    work = team.app.tasks["work"]
    handles = [work.delay(number, 0.002) for number in range(JOBS // 2)]
    team.app.flush(30)
    before = team.starts_count()
    until(lambda: team.starts_count() > before + 100, "in the middle of the jobs")
    leaver = team.workers[0]
    leaver.terminate()
    assert leaver.wait(30) == 0, team.logs()
    assert [handle.result(60) for handle in handles] == list(range(JOBS // 2))
    starts = team.starts()
    assert all(len(starts[handle.id]) == 1 for handle in handles)
    assert read_topic(servers, team.app.names.suspect("default")) == []

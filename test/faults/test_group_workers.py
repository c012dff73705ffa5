"""Workers in consumer groups that are killed, stopped for longer than a session, and restarted: no job is lost, each
has one end that readers see, and jobs of a key begin in their order."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable

import pytest

from kafka import KafkaAdminClient
from kafka.tasks import READY, JobHandle, JobState
from kafka.tasks.delivery.consumer_group.delivery import SESSION_S
from kafka.tasks.format.offset_metadata import MOST_CHARACTERS
from kafka.tasks.format.records import decode
from test.faults.counted_jobs import Crew, Start, read_topic
from test.support.waiting import until

MakeCrew = Callable[..., Crew]

JOBS = 2000
"""Of a round: 10,000 in the deep tier."""
KEYS = 40
WITHIN_S = 120.0
TAKEN_OVER_S = 8.0
"""Within this time after a session jobs of a killed worker have started elsewhere: the first member's heartbeat that
hears of it, a rebalance, and the records are read."""


def enqueue(team: Crew, count: int, seconds: float) -> dict[str, list[JobHandle[int]]]:
    """Jobs of the ordered queue, by key."""
    append, handles = team.app.tasks["append"], defaultdict[str, list[JobHandle[int]]](list)
    for number in range(count // KEYS):
        for key in (f"key-{each}" for each in range(KEYS)):
            handles[key].append(append.using(key=key).delay(key, number, seconds))
    team.app.flush(60)
    return handles


def begin(team: Crew, workers: int, pool: str = "threads", concurrency: int = 8) -> None:
    """Start workers of the ordered queue, and come back when one has run a job."""
    team.queues = "ledger"
    for _ in range(workers):
        team.start(concurrency, pool)

    def have_run() -> bool:
        for handle in enqueue(team, 2 * KEYS, 0.0).values():
            assert all(each.wait(60) for each in handle), team.logs()
        return all(team.has_started_jobs(number) for number in range(workers))

    until(have_run, "all workers have partitions", within_s=60, shown=team.logs)


def check(team: Crew, servers: str, handles: dict[str, list[JobHandle[int]]]) -> dict[str, list[Start]]:
    """No job is lost, each has one end, and first starts of a key's jobs ascend. All starts, by job."""
    for of_key in handles.values():
        for handle in of_key:
            assert handle.wait(WITHIN_S), f"{handle} has no terminal record\n{team.logs()}"
        assert [handle.result(0) for handle in of_key] == list(range(len(of_key)))
    ends: dict[str, list[JobState]] = defaultdict(list)
    for topic in (team.app.names.results, team.app.names.late):
        for record in read_topic(servers, topic):
            state = decode(record.key, record.value, record.headers)
            if state is not None and state.state in READY:
                ends[state.id].append(state.state)
    starts = team.starts()
    for of_key in handles.values():
        for handle in of_key:
            assert ends[handle.id] == [JobState.SUCCESS], f"{handle}: {starts[handle.id]}\n{team.logs()}"
        first = [min(start.at for start in starts[handle.id]) for handle in of_key]
        assert first == sorted(first), f"{of_key[0]}...: {[starts[handle.id] for handle in of_key]}"
    ran = [len(starts[handle.id]) for of_key in handles.values() for handle in of_key]
    again = sum(count > 1 for count in ran)
    print(f"{len(ran)} jobs: none lost, each with one end, {again} ran again; {len(handles)} keys in order")
    return starts


@pytest.mark.deep("a minute; kept by test_a_worker_that_stood_still..., and the model of a partition")
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_workers_that_are_killed_lose_nothing_and_keys_stay_in_order(
    servers: str, crew: MakeCrew, rounds: int, pool: str
) -> None:
    team = crew(servers, 4, "group")
    begin(team, 2, pool)
    handles = enqueue(team, JOBS * rounds, 0.005)
    for victim in range(2):
        goal = (victim + 1) * JOBS * rounds // 4
        until(lambda goal=goal: team.has_come_to(goal), "on the way", within_s=WITHIN_S, shown=team.logs)  # type: ignore[misc]
        team.workers[victim].kill()
        killed_at = time.time()
        team.start(8, pool)
        before = team.starts_count()
        until(lambda before=before: team.has_come_to(before + 100), "others go on", within_s=WITHIN_S)  # type: ignore[misc]
    starts = check(team, servers, handles)
    again = sum(len(of_job) > 1 for of_job in starts.values())
    after = [start.at for of_job in starts.values() for start in of_job if start.at > killed_at]
    print(f"{min(after) - killed_at:.1f} s after the last kill the next job started")
    assert again, "no worker was killed while it ran a job"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_worker_that_stood_still_for_longer_than_its_session_settles_nothing(
    servers: str, crew: MakeCrew, rounds: int
) -> None:
    """It goes on when others have run its jobs: what it had under way is not committed, and it works on as a member."""
    team = crew(servers, 4, "group")
    begin(team, 2, concurrency=4)
    began_at, zombie = time.time(), team.workers[0]
    handles = enqueue(team, JOBS * rounds, 0.02)
    until(lambda: team.has_started_since(0, began_at), "it runs jobs", within_s=WITHIN_S, shown=team.logs)
    zombie.send_signal(signal.SIGSTOP)
    stopped_at = time.time()
    try:
        for of_key in handles.values():
            for handle in of_key:
                assert handle.wait(WITHIN_S), f"{handle} has no terminal record\n{team.logs()}"
        took_s = time.time() - stopped_at
    finally:
        zombie.send_signal(signal.SIGCONT)
    more = enqueue(team, 400, 0.005)
    starts = check(team, servers, handles)
    check(team, servers, more)
    again = [of_job for of_job in starts.values() if len({start.pid for start in of_job}) > 1]
    print(f"all had ended {took_s:.1f} s after SIGSTOP; {len(again)} jobs ran in both")
    assert again, "it ran nothing when it was stopped"
    assert took_s > SESSION_S - 2
    until(
        lambda: team.has_started_since(0, stopped_at + took_s),
        "it has partitions again",
        within_s=60,
        meanwhile=lambda: enqueue(team, KEYS, 0.0),
        shown=team.logs,
    )
    zombie.terminate()
    assert zombie.wait(30) == 0, team.logs()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_workers_that_are_restarted_in_turn_repeat_nothing(servers: str, crew: MakeCrew, rounds: int) -> None:
    team = crew(servers, 6, "group")
    begin(team, 3)
    handles, is_over = defaultdict[str, list[JobHandle[int]]](list), threading.Event()

    def keep_enqueueing() -> None:
        append = team.app.tasks["append"]
        for number in itertools.count():
            for key in (f"key-{each}" for each in range(KEYS)):
                handles[key].append(append.using(key=key).delay(key, number, 0.005))
            if is_over.wait(0.1) and number * KEYS > JOBS * rounds:
                return

    producer = threading.Thread(target=keep_enqueueing)
    producer.start()
    try:
        for number in range(3):
            team.start(8)
            until(
                lambda number=number: team.has_started_jobs(3 + number),  # type: ignore[misc]
                "the new worker has partitions", within_s=60, shown=team.logs,
            )  # fmt: skip
            team.workers[number].terminate()
            assert team.workers[number].wait(30) == 0, team.logs()
    finally:
        is_over.set()
        producer.join()
    starts = check(team, servers, handles)
    ids = {handle.id for of_key in handles.values() for handle in of_key}
    starts = {job_id: of_job for job_id, of_job in starts.items() if job_id in ids}
    assert all(len(of_job) == 1 for of_job in starts.values()), "nothing ran again"
    times = sorted(start.at for of_job in starts.values() for start in of_job)
    pause_s = max(later - earlier for earlier, later in itertools.pairwise(times))
    print(f"the longest time without a start: {pause_s:.2f} s")
    assert pause_s < 2.0
    assert read_topic(servers, team.app.names.suspect("ledger")) == []


@pytest.mark.deep("a minute; kept by test_a_worker_that_stood_still..., and the model of a partition")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_job_that_is_stuck_throughout_keeps_the_metadata_short(
    servers: str, crew: MakeCrew, rounds: int
) -> None:
    team = crew(servers, 1, "group")
    team.queues = "default"
    team.start(8)
    held = team.app.tasks["hold"].delay("gate")
    until(lambda: held.id in team.starts(), "it holds", within_s=60, shown=team.logs)
    work, group = team.app.tasks["work"], team.app.names.group("default")
    handles = [work.delay(number, 0.0) for number in range(JOBS * rounds)]
    longest = 0
    with KafkaAdminClient(bootstrap_servers=servers) as admin:

        def look() -> bool:
            nonlocal longest
            offsets = admin.list_group_offsets({group: None})[group].values()
            longest = max(longest, *(len(at.metadata) for at in offsets))
            return all(handle.wait(0) for handle in handles[-10:])

        until(look, "all others have ended", within_s=WITHIN_S, shown=team.logs)
        assert [handle.result(30) for handle in handles] == list(range(JOBS * rounds))
    team.workers[0].kill()
    team.start(8)
    team.open("gate")
    assert held.result(60) is None
    starts = team.starts()
    again = {handle.result(0): starts[handle.id] for handle in handles if len(starts[handle.id]) > 1}
    assert not again, f"what has ended runs again: {again}\n{team.logs()}"
    print(f"{len(handles)} jobs behind one that was stuck: none lost; {longest} characters at most")
    assert 0 < longest <= MOST_CHARACTERS

"""Workers with children that are told to stop, killed, or stopped in their tracks: no job is lost, no process is left.

Every start method has its own way of watching children, so the tests that are about that run for each, on the embedded
broker; what depends on leases runs on both brokers.
"""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kafka.tasks import JobHandle, JobState
from kafka.testing import EmbeddedBroker
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.support.apache_kafka import ApacheKafka
from test.support.process_table import needs_proc, process

pytestmark = [needs_proc, pytest.mark.timeout(180)]

KINDS = {
    "prefork": (2, ()),
    "prefork by forkserver": (3, ("--start-method", "forkserver")),
    "prefork by spawn": (2, ("--start-method", "spawn")),
    "fork": (2, ("--pool", "fork")),
    "fork by forkserver": (3, ("--pool", "fork", "--start-method", "forkserver")),
}
"""How children come to be -> the processes that a worker has at rest beside itself, and its flags."""

LOCK_MS = 5000
SHORT_LOCKS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": str(LOCK_MS),
}

MakeCrew = Callable[[str], PoolCrew]


@pytest.fixture
def pool_crew(tmp_path: pathlib.Path) -> Iterator[MakeCrew]:
    """``pool_crew(servers)``: an app of its own, without workers yet."""
    made: list[PoolCrew] = []

    def make(servers: str) -> PoolCrew:
        made.append(PoolCrew(tmp_path, servers))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(params=["embedded", "apache"])
def short_locks(request: pytest.FixtureRequest) -> Iterator[str]:
    """Either broker, with short locks."""
    if request.param == "embedded":
        with EmbeddedBroker(settings=SHORT_LOCKS) as broker:
            yield broker.bootstrap
    else:
        start: Callable[..., ApacheKafka] = request.getfixturevalue("start_apache_kafka")
        yield start(settings=SHORT_LOCKS).bootstrap


def ended(worker: PoolWorker, crew: PoolCrew, code: int = 0) -> None:
    """Wait until the worker has ended by itself; nothing of it is left."""
    wait_for(lambda: worker.process.poll() is not None, "the worker has ended", crew)
    assert worker.process.returncode == code, crew.logs()
    crew.gone(worker)


# -- every way to start children ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["prefork by forkserver", "prefork by spawn", "fork"])
def test_children_of_every_kind_can_die_and_be_limited_and_leave_nothing(
    embedded_broker_of_session: EmbeddedBroker, pool_crew: MakeCrew, kind: str
) -> None:
    crew = pool_crew(embedded_broker_of_session.bootstrap)
    at_rest, flags = KINDS[kind]
    worker = crew.start(*flags)
    crew.works(4)
    killed = crew.delay("hold", "killed", 5)
    os.kill(crew.started(killed), signal.SIGKILL)
    bad = crew.delay("exit_now", 4)
    assert "exit code 4" in crew.failure(bad).text
    assert crew.death(bad).cause == "lost-exit"
    crew.opened("killed")
    assert crew.result(killed) == 5
    assert len(crew.starts(killed)) == 2
    assert crew.failure(crew.delay("in_c", timeout=0.8)).type.endswith("TimeLimit")
    assert crew.failure(crew.delay("in_finally", soft_timeout=0.3)).type.endswith("SoftTimeLimit")
    daemons = crew.delay("leave_processes", None)
    pid = crew.result(daemons)
    if process(pid) is not None:  # a child that is kept
        os.kill(pid, signal.SIGKILL)
    crew.works(2)
    wait_for(lambda: len(worker.others()) == at_rest, f"no daemon is left: {worker.others()}", crew)
    worker.send(signal.SIGTERM)
    ended(worker, crew)


@pytest.mark.parametrize("kind", KINDS)
def test_when_a_worker_is_killed_its_children_and_theirs_are_gone(
    embedded_broker_of_session: EmbeddedBroker, pool_crew: MakeCrew, kind: str
) -> None:
    _kill_a_worker(pool_crew(embedded_broker_of_session.bootstrap), KINDS[kind][1])


def test_the_job_of_a_killed_worker_runs_elsewhere(servers: str, pool_crew: MakeCrew) -> None:
    crew = pool_crew(servers)
    busy = _kill_a_worker(crew)
    crew.start()
    crew.opened("elsewhere")
    assert crew.result(busy) == crew.started(busy, 2)
    assert len(crew.starts(busy)) == 2


def _kill_a_worker(crew: PoolCrew, flags: Sequence[str] = ()) -> JobHandle[Any]:
    """Kill one whose children are busy, and have children of their own; one of the jobs that it had."""
    worker = crew.start(*flags)
    busy, stuck = crew.delay("leave_process_of_the_group", "elsewhere"), crew.delay("in_c")
    crew.started(busy)
    crew.started(stuck)
    wait_for(lambda: len(worker.others()) >= 4, "two children, and two processes of the one's", crew)
    groups = {os.getpgid(each.pid) for each in worker.others()}
    assert os.getpgid(worker.pid) not in groups, "Ctrl-C and signals to the worker's group reach it alone"
    worker.process.kill()
    worker.process.wait()
    crew.gone(worker)  # no process of it ends by itself
    return busy


# -- told to stop ------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_stopped_ends_its_jobs_and_gives_back_the_others(
    servers: str, pool_crew: MakeCrew
) -> None:
    crew = pool_crew(servers)
    worker = crew.start()
    with crew.app.batch(30):
        running = [crew.delay("hold", "told", number) for number in range(2)]
        waiting = [crew.delay("ping", number) for number in range(20)]
    for handle in running:
        crew.started(handle)
    worker.send(signal.SIGHUP)
    wait_for(lambda: "DRAINING" in worker.log(), "it is draining", crew)
    worker.send(signal.SIGHUP)
    other = crew.start()
    for number, handle in enumerate(waiting):
        found, pid = crew.result(handle)
        assert found == number
        assert pid not in worker.children()
    crew.opened("told")
    ended(worker, crew)
    assert "INTERRUPTING" not in worker.log()
    for number, handle in enumerate(running):
        assert crew.result(handle) == number
        assert len(crew.starts(handle)) == 1
    assert other.process.poll() is None
    other.send(signal.SIGINT)
    ended(other, crew)


def test_the_second_signal_interrupts_and_the_third_kills_and_both_jobs_run_elsewhere(
    servers: str, pool_crew: MakeCrew
) -> None:
    crew = pool_crew(servers)
    worker = crew.start("--kill-grace", "30")
    polite, stubborn = crew.delay("hold", "third", 5), crew.delay("stubborn", "third")
    crew.started(polite)
    stubborn_pid = crew.started(stubborn)
    worker.send(signal.SIGTERM)
    wait_for(lambda: "DRAINING" in worker.log(), "it is draining", crew)
    worker.send(signal.SIGINT)  # another one: a second SIGTERM within a second of the first does nothing
    wait_for(lambda: "INTERRUPTING" in worker.log(), "it is interrupting", crew)
    crew.start()
    crew.started(polite, 2)
    assert stubborn_pid in worker.children()

    def is_abandoning() -> bool:
        worker.send(signal.SIGTERM)
        return "ABANDONING" in worker.log()

    wait_for(is_abandoning, "a second is over", crew)
    ended(worker, crew)
    crew.opened("third")
    assert crew.result(polite) == 5
    assert crew.result(stubborn) == "through the gate"
    for handle in (polite, stubborn):
        assert len(crew.starts(handle)) == 2
        assert crew.states(handle) == [JobState.SUCCESS]


# -- stopped in its tracks ---------------------------------------------------------------------------------------------


def test_the_job_of_a_worker_stopped_beyond_its_lock_runs_elsewhere_and_its_late_result_changes_nothing(
    short_locks: str, pool_crew: MakeCrew
) -> None:
    crew = pool_crew(short_locks)
    zombie = crew.start("--concurrency", "1")
    handle = crew.delay("hold", "late", 5)
    first = crew.started(handle)
    zombie.freeze()
    crew.start("--concurrency", "1")
    second = crew.started(handle, 2)
    crew.opened("late")  # the zombie's child ends its run, too
    assert crew.result(handle) == 5
    wait_for(lambda: first in crew.through(handle), "the first run has come to its end", crew)
    assert second in crew.through(handle)
    seen = crew.states(handle)
    zombie.thaw()
    wait_for(lambda: "lost the acquisition locks" in zombie.log(), "the zombie has seen that its lock is lost", crew)
    crew.works(4)
    assert crew.states(handle) == seen
    assert handle.status() is JobState.SUCCESS
    zombie.send(signal.SIGTERM)
    ended(zombie, crew)
    assert crew.states(handle) == seen

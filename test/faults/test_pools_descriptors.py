"""A worker that has run out of descriptors, and so of children: those that live go on, and it comes back by itself."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from kafka.tasks.pools.parent.supervision import FULL_CHANNEL_RETRY_S, MAX_FULL_CHANNEL
from kafka.testing import EmbeddedBroker
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.faults.test_pools_stopped import ended
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support.process_table import fds_of, needs_proc, zombies_of

pytestmark = [needs_proc, pytest.mark.timeout(180)]

IDLE_CPU_S = 1.0
"""Of the worker, while it waits for a while to start a child; an endless loop would take all of that time."""
LARGE_RESULT = 90_000
"""Bytes of a result that goes through a file, of a job that does not."""
LARGE = 200_000
"""Bytes that go through a file, and so need a descriptor."""


@contextlib.contextmanager
def descriptors_left(worker: PoolWorker, count: int) -> Iterator[None]:
    """It can open so many more, and no other, until the end."""
    soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    taken = fds_of(worker.pid)
    free = (number for number in range(soft) if number not in taken)
    for _ in range(count):
        next(free)
    resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (next(free), hard))
    try:
        yield
    finally:
        resource.prlimit(worker.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_without_descriptors_works_on_with_its_children_and_is_whole_again_when_it_has_some(
    servers: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(servers)
    worker = crew.start()
    crew.works(4)
    fds = worker.fds()
    first, second = sorted(worker.children())
    with descriptors_left(worker, 0):  # and the five that a dead child gives back; a new one takes seven
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: "next attempt in 2 s" in worker.log(), "three starts have failed", crew)
        assert worker.children() == {second}
        assert set(crew.works(6)) == {second}
        cpu_s = worker.cpu_s()
        wait_for(lambda: "next attempt in 4 s" in worker.log(), "one more has", crew)
        assert set(crew.works(6)) == {second}
        assert worker.cpu_s() - cpu_s < IDLE_CPU_S
    failures = [line for line in worker.log().splitlines() if "child failed to start" in line]
    assert 4 <= len(failures) <= 5
    for line in failures:
        assert "Too many open files" in line
    assert "Traceback" not in worker.log()
    wait_for(lambda: len(worker.children()) == 2, "it has two children again", crew)
    assert second in worker.children()
    crew.works(6)
    wait_for(lambda: not zombies_of(worker.pid), "no zombies", crew)
    wait_for(lambda: worker.fds() == fds, f"the descriptors {fds} as before: {worker.fds()}", crew)
    worker.send(signal.SIGTERM)
    ended(worker, crew)


def test_jobs_wait_for_a_worker_that_has_neither_children_nor_descriptors(
    servers: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(servers)
    worker = crew.start("--concurrency", "1")
    crew.works(4)
    held = crew.delay("hold", "children again", 5)
    pid = crew.started(held)
    fds = worker.fds()
    with descriptors_left(worker, 1):
        waiting = [crew.delay("ping", number) for number in range(4)]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: "next attempt in 2 s" in worker.log(), "three starts have failed", crew)
        assert not worker.children()
    crew.opened("children again")
    assert crew.result(held) == 5
    assert len(crew.starts(held)) == 2
    for number, handle in enumerate(waiting):
        assert crew.result(handle)[0] == number
        assert len(crew.starts(handle)) == 1
    wait_for(lambda: worker.fds() == fds, f"the descriptors {fds} as before: {worker.fds()}", crew)
    assert "Traceback" not in worker.log()


def test_a_large_job_waits_for_descriptors_and_costs_no_child(
    embedded_broker_of_session: EmbeddedBroker, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(embedded_broker_of_session.bootstrap)
    worker = crew.start("--concurrency", "1")
    crew.works(4)
    children = worker.children()
    with descriptors_left(worker, 0):
        large = crew.delay("length", "x" * LARGE)
        wait_for(lambda: "Too many open files" in worker.log(), "it cannot be written", crew)
        crew.works(8)  # nobody waits behind it
        # what takes nothing for so long is killed
        given_up_at = time.monotonic() + (MAX_FULL_CHANNEL + 2) * FULL_CHANNEL_RETRY_S
        while time.monotonic() < given_up_at:
            assert worker.children() == children
            time.sleep(0.05)
    assert crew.result(large) == LARGE
    assert worker.children() == children
    assert len(crew.starts(large)) == 1


def test_a_child_that_came_while_the_worker_was_kept_short_is_not_short_itself(
    embedded_broker_of_session: EmbeddedBroker, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(embedded_broker_of_session.bootstrap)
    worker = crew.start("--concurrency", "1")
    crew.works(1)
    (former,) = worker.children()
    limits = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    with descriptors_left(worker, 8):
        os.kill(former, signal.SIGKILL)
        wait_for(lambda: worker.children() - {former}, "there is another child", crew)
        crew.works(2)
        (present,) = worker.children()
        assert resource.prlimit(present, resource.RLIMIT_NOFILE) == limits


def test_large_results_need_no_descriptor_that_is_left(
    embedded_broker_of_session: EmbeddedBroker, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(embedded_broker_of_session.bootstrap)
    worker = crew.start()
    crew.works(4)
    children, fds = worker.children(), worker.fds()
    with descriptors_left(worker, 0):
        large = [crew.delay("double", "x" * each) for each in (LARGE_RESULT // 2, 3, LARGE_RESULT // 2)]
        for handle in large:
            assert set(crew.result(handle)) == {"x"}
            assert len(crew.starts(handle)) == 1
        crew.works(4)
    assert worker.children() == children
    wait_for(lambda: worker.fds() == fds, f"the descriptors {fds} as before: {worker.fds()}", crew)

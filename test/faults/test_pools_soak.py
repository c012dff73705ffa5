"""A worker that lives on while its children are killed, replaced, limited and crashed: nothing grows.

The short form is a few rounds; with ``KAFKA_TEST_ROUNDS=150`` it takes some ten minutes. Each round ends at rest and
is compared with the rounds after which the worker had settled.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

import pytest

from kafka.tasks import JobState
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.faults.test_pools_stopped import ended
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support import seeds
from test.support.process_table import memory_of, needs_proc, zombies_of

pytestmark = [needs_proc, pytest.mark.timeout(1800), pytest.mark.slow]

CHILDREN = 2
SETTLED = 2
"""Rounds until caches and buffers have their size."""
ROUNDS_EACH = 3
GROWTH_BYTES = 8 << 20
"""More than what the memory of results of so many jobs may take, less than a leak of a hundred bytes a job in the long
form."""


def test_a_soak_of_kills_and_restarts_leaves_descriptors_memory_and_zombies_as_they_were(
    servers: str, pool_crew: Callable[[str], PoolCrew], rounds: int
) -> None:
    crew = pool_crew(servers)
    worker = crew.start("--max-jobs-per-child", "40", "--concurrency", str(CHILDREN))
    chance = seeds.rng("soak of pools")
    settled: tuple[list[str], int] | None = None
    for number in range(SETTLED + ROUNDS_EACH * rounds):
        _one_round(crew, worker, chance, f"soak {number}")
        wait_for(
            lambda: len(worker.children()) == len(worker.others()) == CHILDREN and not zombies_of(worker.pid),
            "at rest",
            crew,
        )
        if settled is None:
            if number == SETTLED - 1:
                settled = worker.fds(), memory_of(worker.pid)
            continue
        fds, rss = settled
        wait_for(lambda fds=fds: worker.fds() == fds, f"the descriptors {fds} as before: {worker.fds()}", crew)
        grown = memory_of(worker.pid) - rss
        assert grown < GROWTH_BYTES, f"{grown:,} bytes more after round {number}"
    worker.send(signal.SIGTERM)
    ended(worker, crew)


def _one_round(crew: PoolCrew, worker: PoolWorker, chance: random.Random, gate: str) -> None:
    """Quick jobs, and among them one of each kind of trouble."""
    with crew.app.batch(30):
        quick = [crew.delay("noop", number) for number in range(150)]
        victim = crew.delay("hold", gate, 1)
        crash = crew.delay("exit_now", 1)
        limited = crew.delay("in_finally", soft_timeout=0.1)
        killed = crew.delay("in_c", timeout=0.2)
        daemons = crew.delay("leave_processes", None)
        quick += [crew.delay("noop", number) for number in range(150)]
    crew.started(victim)
    worker.kill_child(chance.choice(sorted(worker.children()) or [0]))
    worker.kill_child(crew.starts(victim)[-1])
    crew.opened(gate)
    for each in (*quick, victim, daemons):
        assert each.wait(60), crew.logs()
        assert each.status() is JobState.SUCCESS, crew.logs()
    for each in (crash, limited, killed):
        crew.failure(each)
    worker.kill_child(crew.result(daemons))

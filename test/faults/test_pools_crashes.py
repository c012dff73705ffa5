"""Jobs that kill their own child with -9, one after the other, between good ones: each has one end, nothing is left.

The short form has 42 crashes; ``KAFKA_TEST_ROUNDS=24`` makes it a thousand, in half a minute for each broker.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from kafka.tasks import JobState
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.faults.test_pools_stopped import ended
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support.process_table import memory_of, needs_proc, zombies_of

pytestmark = [needs_proc, pytest.mark.timeout(1800), pytest.mark.slow]

CHILDREN = 2
CRASHES_EACH = 3
"""Of a job, by the limit of crashes."""
ROUNDS_EACH = 14
GOOD = 20
"""Jobs around each bad one. They end the row of crashes that would slow the pool down."""
GROWTH_BYTES = 4 << 20
"""Of the worker, from the first tenth to the end."""


def test_a_thousand_crashes_leave_one_end_of_each_job_and_nothing_else(
    servers: str, pool_crew: Callable[[str], PoolCrew], rounds: int
) -> None:
    crew = pool_crew(servers)
    worker = crew.start("--concurrency", str(CHILDREN))
    crew.works(GOOD)
    total = ROUNDS_EACH * rounds
    settled: tuple[list[str], int] | None = None
    crashes = 0
    for number in range(total):
        crashes += _one_crash_after_the_other(crew)
        if settled is None and number >= total // 10:
            _at_rest(crew, worker)
            settled = worker.fds(), memory_of(worker.pid)
    assert settled is not None
    assert crashes == CRASHES_EACH * total
    fds, rss = settled
    _at_rest(crew, worker)
    wait_for(lambda: worker.fds() == fds, f"the descriptors {fds} as before: {worker.fds()}", crew)
    grown = memory_of(worker.pid) - rss
    assert grown < GROWTH_BYTES, f"{grown:,} bytes more after {crashes} crashes"
    assert "no jobs are leased until it can" not in worker.log()  # the breaker never opened
    assert "Traceback" not in worker.log()
    worker.send(signal.SIGTERM)
    ended(worker, crew)
    crew.ledger.read()
    for handle in crew.handles:  # all that was ever written: no end came behind its check
        assert len(crew.ledger.ends_of(handle.id)) == 1, handle


def _one_crash_after_the_other(crew: PoolCrew) -> int:
    """One job with all its crashes, and good ones; how many crashes that were."""
    with crew.app.batch(30):
        good = [crew.delay("noop", number) for number in range(GOOD // 2)]
        bad = crew.delay("signal_self", signal.SIGKILL)
        good += [crew.delay("noop", number) for number in range(GOOD // 2)]
    assert "signal 9 (SIGKILL)" in crew.failure(bad).text
    assert crew.states(bad) == [JobState.RETRY] * (CRASHES_EACH - 1) + [JobState.FAILURE]
    for handle in good:
        assert handle.wait(60), crew.logs()
    crew.check(good)
    starts = crew.starts(bad)
    assert len(set(starts)) == len(starts)
    return len(starts)


def _at_rest(crew: PoolCrew, worker: PoolWorker) -> None:
    wait_for(
        lambda: len(worker.children()) == len(worker.others()) == CHILDREN and not zombies_of(worker.pid),
        "two children and nothing else",
        crew,
    )

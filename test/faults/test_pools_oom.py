"""The kernel kills a child for want of memory, as it does in a container with a limit: the job is told so.

Worker and children share one control group, and the kernel takes the largest of them.
"""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator

import pytest

from test.faults.pool_workers import PoolCrew, wait_for
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support.control_groups import kills_of, memory_group
from test.support.process_table import needs_proc

pytestmark = [needs_proc, pytest.mark.timeout(180)]

LIMIT_BYTES = 128 << 20
"""A worker has 35 MiB, and a child 28, most of which it shares."""
BOMB_MIB = 1000


@pytest.fixture
def group() -> Iterator[pathlib.Path]:
    """A control group with a memory limit."""
    with memory_group(LIMIT_BYTES) as made:
        yield made


def test_a_job_for_which_the_kernel_kills_its_children_is_dead_with_that_cause_and_others_go_on(
    group: pathlib.Path, servers: str, pool_crew: Callable[[str], PoolCrew]
) -> None:
    crew = pool_crew(servers)
    worker = crew.start(POOL_GROUP=str(group))
    crew.works(4)
    beside = crew.delay("hold", "afterwards", 5)
    crew.started(beside)
    bomb = crew.delay("hoard", BOMB_MIB, None)
    failure = crew.failure(bomb)
    assert failure.type == "WorkerLost"
    assert "killed by the kernel's OOM killer" in failure.text
    assert crew.death(bomb).cause == "lost-oom"
    assert len(crew.starts(bomb)) == kills_of(group) == 3
    crew.opened("afterwards")
    assert crew.result(beside) == 5
    assert len(crew.starts(beside)) == 1
    # Each kill of the kernel's explains one death, and no other.
    victim = crew.delay("hold", "never", 5)
    for number in (1, 2, 3):
        os.kill(crew.started(victim, number), 9)
    crew.failure(victim)
    assert crew.death(victim).cause == "lost-signal"
    crew.works(4)
    wait_for(lambda: len(worker.children()) == len(worker.others()) == 2, "two children", crew)
    assert worker.process.poll() is None

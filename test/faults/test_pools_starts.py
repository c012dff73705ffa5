"""Children that do not come up, and children that die in a row: the worker waits longer each time, says why, and lives.

Only one that never had a child gives up, with exit code 3.
"""

from __future__ import annotations

import http.client
import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from kafka.testing import EmbeddedBroker
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.faults.test_pools_stopped import ended
from test.faults.test_pools_stopped import pool_crew as pool_crew  # a fixture
from test.support.ports import free_ports
from test.support.process_table import needs_proc

pytestmark = [needs_proc, pytest.mark.timeout(180)]

MakeCrew = Callable[[str], PoolCrew]

CRASHES = 15
"""In a row, which open the breaker."""
CRASHES_CPU_S = 3.0
"""The worker's whole CPU until then, its own imports included, which are most of it."""


def readiness(port: int) -> tuple[int, str]:
    """Status and text of ``/readyz``; (0, why) while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, str(error)
    finally:
        connection.close()


TOLD = {"raise": "the module cannot be imported", "exit": "the module says goodbye", "_exit": "exit code 7"}
"""What a module does as a child imports it -> what the worker says as it ends."""


@pytest.fixture
def import_crew(tmp_path: pathlib.Path) -> Iterator[Callable[[str, str], PoolCrew]]:
    """``import_crew(how, servers)``: a crew whose children have trouble with their module."""
    made: list[PoolCrew] = []

    def make(how: str, servers: str) -> PoolCrew:
        (tmp_path / how).mkdir()
        made.append(PoolCrew(tmp_path / how, servers))
        made[-1].environment["POOL_IMPORT"] = how
        return made[-1]

    yield make
    for each in made:
        each.close()


def _tells_why(answer: tuple[int, str]) -> bool:
    return answer[0] == 503 and "pool: " in answer[1]


def test_a_module_that_children_cannot_import_is_reported_and_ends_the_worker_with_code_three(
    servers: str, import_crew: Callable[[str, str], PoolCrew]
) -> None:
    (port,) = free_ports(1)
    workers: list[tuple[PoolCrew, PoolWorker, str]] = []
    for how, text in TOLD.items():
        crew = import_crew(how, servers)
        health = () if workers else ("--health-port", str(port))
        workers.append((crew, crew.start("--start-method", "spawn", "--concurrency", "1", *health), text))
    wait_for(lambda: _tells_why(readiness(port)), "it is not ready, and says why", workers[0][0])
    for crew, worker, text in workers:
        ended(worker, crew, 3)
        assert text in worker.log().strip().splitlines()[-1], crew.logs()
        assert "Traceback" not in worker.log()


def test_a_module_that_takes_long_is_waited_for(
    embedded_broker_of_session: EmbeddedBroker, import_crew: Callable[[str, str], PoolCrew]
) -> None:
    crew = import_crew("slow", embedded_broker_of_session.bootstrap)
    worker = crew.start("--start-method", "forkserver", "--concurrency", "1")
    crew.works()
    assert "importing" in worker.log()


def test_a_row_of_crashes_opens_the_breaker_costs_little_and_is_got_over(servers: str, pool_crew: MakeCrew) -> None:
    crew = pool_crew(servers)
    (port,) = free_ports(1)
    worker = crew.start("--health-port", str(port))
    crew.works()
    handles = [crew.delay("exit_while", "healed") for _ in range(2 * CRASHES)]
    wait_for(lambda: readiness(port)[0] == 503 and "in a row" in readiness(port)[1], "it is degraded", crew)
    crashes = sum(len(crew.starts(handle)) for handle in handles)
    assert CRASHES <= crashes <= CRASHES + 2
    assert worker.cpu_s() < CRASHES_CPU_S
    crew.opened("healed")
    before, at = worker.cpu_s(), time.monotonic()
    wait_for(lambda: sum(len(crew.starts(handle)) for handle in handles) > crashes, "another is tried", crew)
    assert time.monotonic() - at > 1.0
    assert worker.cpu_s() - before < 0.5
    for handle in handles:
        crew.result(handle)
    wait_for(lambda: readiness(port)[0] == 200, "it is ready again", crew)

"""What user code and the machine can do to the children of a pool: every job has one end, and nothing is left behind.

One worker with two children serves all tests of a broker, so each of them also shows that the worker has got over the
ones before. Whatever a test does, its jobs have exactly one visible terminal state, and a cause in the dead topic when
that is a failure (``PoolCrew.check``). The last tests look at what is left.
"""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import Iterator

import pytest

from kafka.tasks import JobState
from kafka.testing import EmbeddedBroker
from test.faults.pool_jobs import ERRORS, RESULTS, big_text
from test.faults.pool_workers import PoolCrew, PoolWorker, wait_for
from test.support.apache_kafka import ApacheKafka, require_apache_kafka
from test.support.either_broker import EITHER
from test.support.process_table import Idle, needs_proc, process, zombies_of

pytestmark = [needs_proc, pytest.mark.timeout(180)]

CHILDREN = 2
MEMORY = ("--max-memory-per-child", "200M,400M")
BIG = 10_000_000
MOST_CONNECTIONS = 10
"""Of a worker of one queue to one broker; more are a leak."""


@pytest.fixture(scope="module", params=EITHER)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Either broker, shared."""
    if request.param == "embedded":
        embedded: EmbeddedBroker = request.getfixturevalue("embedded_broker_of_session")
        return embedded.bootstrap
    require_apache_kafka()
    apache: ApacheKafka = request.getfixturevalue("_apache_kafka_of_session")
    return apache.bootstrap


@pytest.fixture(scope="module")
def crew(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolCrew]:
    """The app of these tests."""
    made = PoolCrew(pathlib.Path(tmp_path_factory.mktemp("pool")), bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def standing(crew: PoolCrew) -> tuple[PoolWorker, list[str]]:
    """The worker, and its descriptors when it had run its first jobs."""
    made = crew.start(*MEMORY)
    crew.works(4)
    at_rest(made)
    return made, made.fds()


@pytest.fixture
def worker(standing: tuple[PoolWorker, list[str]], crew: PoolCrew) -> Iterator[PoolWorker]:
    """The worker of all tests; works before, and after."""
    made = standing[0]
    assert made.process.poll() is None, f"it has ended\n{crew.logs()}"
    yield made
    crew.works()
    at_rest(made)


def at_rest(worker: PoolWorker) -> set[int]:
    """Wait until it has its two children and nothing else has come of it; these children."""
    wait_for(
        lambda: len(worker.children()) == len(worker.others()) == CHILDREN,
        f"{worker.pid} has {CHILDREN} children and no other process: {worker.children()}, {worker.others()}",
    )
    return worker.children()


# -- a child ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "arguments", "causes", "text"),
    [
        pytest.param("exit_now", (0,), {"lost-exit"}, "exit code 0", id="os._exit(0)"),
        pytest.param("exit_now", (3,), {"lost-exit"}, "exit code 3", id="os._exit(3)"),
        pytest.param("signal_self", (signal.SIGKILL,), {"lost-signal"}, "signal 9 (SIGKILL)", id="SIGKILL"),
        pytest.param("signal_self", (signal.SIGSEGV,), {"lost-signal"}, "signal 11 (SIGSEGV)", id="SIGSEGV"),
        pytest.param("close_channel", (None,), {"lost-exit", "lost-channel"}, "", id="closes its channel"),
        pytest.param("close_channel", ("never",), {"lost-channel"}, "channel", id="closes its channel and stays"),
    ],
)
def test_a_job_that_ends_its_process_is_dead_after_three_with_the_cause(
    crew: PoolCrew, worker: PoolWorker, task: str, arguments: tuple[object, ...], causes: set[str], text: str
) -> None:
    handle = crew.delay(task, *arguments)
    failure = crew.failure(handle)
    assert failure.type == "WorkerLost"
    assert text in failure.text
    assert crew.death(handle).cause in causes
    assert len(crew.starts(handle)) == 3
    assert len(set(crew.starts(handle))) == 3


def test_a_job_whose_child_is_killed_once_ends_well_in_another(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("hold", "killed once", 5)
    os.kill(crew.started(handle), signal.SIGKILL)
    crew.started(handle, 2)
    crew.opened("killed once")
    assert crew.result(handle) == 5
    assert crew.states(handle) == [JobState.RETRY, JobState.SUCCESS]
    assert len(crew.starts(handle)) == 2


def test_a_job_whose_children_are_killed_from_outside_is_dead_after_three(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("hold", "never", 5)
    for number in (1, 2, 3):
        os.kill(crew.started(handle, number), signal.SIGKILL)
    assert "signal 9 (SIGKILL)" in crew.failure(handle).text
    assert crew.death(handle).cause == "lost-signal"


def test_what_a_killed_child_had_not_begun_runs_elsewhere_and_no_crash_is_counted(
    crew: PoolCrew, worker: PoolWorker
) -> None:
    with crew.app.batch(30):
        short = [crew.delay("ping", number) for number in range(100)]
    for handle in short:  # so many short ones that the pool is filled ahead
        handle.wait(30)
    with crew.app.batch(30):
        blockers = [crew.delay("hold", "not begun", number) for number in range(CHILDREN)]
        waiting = [crew.delay("ping", number) for number in range(30)]
    pids = [crew.started(handle) for handle in blockers]
    for pid in set(pids):
        os.kill(pid, signal.SIGKILL)
    crew.opened("not begun")
    assert [crew.result(handle) for handle in blockers] == list(range(CHILDREN))
    for number, handle in enumerate(waiting):
        assert crew.result(handle)[0] == number
        assert len(crew.starts(handle)) == 1
        assert crew.states(handle) == [JobState.SUCCESS]


def test_a_result_that_was_written_before_the_kill_counts(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("hold", "written", 5)
    pid = crew.started(handle)
    is_idle = Idle(pid)
    worker.freeze()
    try:
        crew.opened("written")
        wait_for(lambda: crew.through(handle), "the job has come to its end")
        wait_for(is_idle, "the child has written its result")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: (found := process(pid)) is None or found.state == "Z", "the child is dead")
    finally:
        worker.thaw()
    assert crew.result(handle) == 5
    assert crew.starts(handle) == [pid]
    assert crew.states(handle) == [JobState.SUCCESS]


def test_a_child_killed_while_it_writes_ten_megabytes_leaves_a_whole_result_or_none(
    crew: PoolCrew, worker: PoolWorker
) -> None:
    for number in range(6):
        handle = crew.delay("big", BIG, 0.02 * number)
        assert crew.result(handle) == big_text(BIG)
        pids = crew.starts(handle)
        assert 1 <= len(pids) <= 2
        wait_for(lambda pid=pids[0]: pid not in worker.children(), "the first child is killed, sooner or later", crew)


# -- what it leaves behind ---------------------------------------------------------------------------------------------


def test_processes_and_daemons_that_a_task_left_end_with_its_child(crew: PoolCrew, worker: PoolWorker) -> None:
    pid = crew.result(crew.delay("leave_processes", None))
    wait_for(lambda: len(worker.others()) >= CHILDREN + 4, "four processes live beside the children")
    os.kill(pid, signal.SIGKILL)
    assert pid not in at_rest(worker)


def test_processes_and_daemons_of_a_job_end_with_it_at_its_hard_limit(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("leave_processes", "never", timeout=1.5)
    pid = crew.started(handle)
    assert crew.failure(handle).type.endswith("TimeLimit")
    assert pid not in at_rest(worker)


# -- what cannot be written --------------------------------------------------------------------------------------------


def test_results_and_errors_that_cannot_be_written_are_failures_and_cost_no_child(
    crew: PoolCrew, worker: PoolWorker
) -> None:
    children = at_rest(worker)
    errors = {kind: crew.delay("fail", kind) for kind in ERRORS}
    results = {kind: crew.delay("give", kind) for kind in RESULTS}
    deep = crew.delay("recurse")
    for kind, handle in errors.items():
        failure = crew.failure(handle)
        assert failure.type.rpartition(".")[2] == type(ERRORS[kind]()).__name__
        assert crew.death(handle).cause == "error"
    assert crew.failure(deep).type == "RecursionError"
    for kind, handle in results.items():
        failure = crew.failure(handle)
        assert failure.type == ("PayloadTooLarge" if kind == "too large" else "NotSerialisable"), kind
    assert at_rest(worker) == children


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_soft_limit_reaches_code_in_finally_and_in_except_exception(crew: PoolCrew, worker: PoolWorker) -> None:
    children = at_rest(worker)
    for task in ("in_finally", "in_except_exception"):
        handle = crew.delay(task, soft_timeout=0.3)
        assert crew.failure(handle).type.endswith("SoftTimeLimit")
    assert at_rest(worker) == children


def test_a_hard_limit_ends_c_code_and_what_lets_no_exception_out(crew: PoolCrew, worker: PoolWorker) -> None:
    handles = [crew.delay("in_c", soft_timeout=0.3, timeout=0.8)]
    handles.append(crew.delay("stubborn", "never", soft_timeout=0.3, timeout=0.8))
    for handle in handles:
        assert crew.failure(handle).type.endswith("TimeLimit")
        assert len(crew.starts(handle)) == 1


def test_a_child_that_is_stopped_past_its_hard_limit_is_killed(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("signal_self", signal.SIGSTOP, timeout=0.8)
    assert crew.failure(handle).type.endswith("TimeLimit")
    (pid,) = crew.starts(handle)
    assert pid not in at_rest(worker)


def test_a_job_above_the_hard_memory_limit_is_killed_and_one_above_the_soft_one_costs_its_child(
    crew: PoolCrew, worker: PoolWorker
) -> None:
    bomb = crew.delay("hoard", 500, "never")
    failure = crew.failure(bomb)
    assert "its memory limit" in failure.text
    assert "MiB" in failure.text
    assert crew.death(bomb).cause == "lost-memory"
    assert len(crew.starts(bomb)) == 3
    pid = crew.result(crew.delay("hoard", 240, None))
    wait_for(lambda: pid not in worker.children(), "the child that holds too much is replaced", crew)


# -- signals -----------------------------------------------------------------------------------------------------------


def test_ttin_adds_a_child_and_ttou_retires_one(crew: PoolCrew, worker: PoolWorker) -> None:
    before = at_rest(worker)
    worker.send(signal.SIGTTIN)
    wait_for(lambda: len(worker.children()) == CHILDREN + 1, "one more child", crew)
    crew.works(3)
    worker.send(signal.SIGTTOU)
    wait_for(lambda: len(worker.children()) == CHILDREN, "one child less", crew)
    assert len(worker.children() & before) >= 1


def test_usr1_writes_the_state_and_the_stacks_of_parent_and_children(crew: PoolCrew, worker: PoolWorker) -> None:
    handle = crew.delay("hold", "dumped", 1)
    pid = crew.started(handle)
    worker.send(signal.SIGUSR1)
    wait_for(lambda: worker.log().count("stacks of child") >= 2, "the stacks of both children", crew)
    wait_for(lambda: " in hold\n" in worker.log(), "the stack of the child that runs the job", crew)
    state, _, stacks = worker.log().partition("state of this worker: WORKING")[2].partition("stacks of child")
    assert " in serve\n" in stacks
    assert f"child {pid} " in state
    assert handle.id in state
    assert "run_forever" in state
    crew.opened("dumped")
    assert crew.result(handle) == 1
    assert crew.starts(handle) == [pid]


# -- at the end --------------------------------------------------------------------------------------------------------


def test_after_all_of_it_there_is_no_zombie_and_no_descriptor_more_than_at_first(
    crew: PoolCrew, worker: PoolWorker, standing: tuple[PoolWorker, list[str]]
) -> None:
    at_rest(worker)
    wait_for(lambda: not zombies_of(worker.pid), "all zombies are reaped", crew)
    at_first = standing[1]
    wait_for(lambda: worker.fds() == at_first, f"the descriptors {at_first} as at first: {worker.fds()}")
    wait_for(lambda: worker.connections() <= MOST_CONNECTIONS, "few connections")


def test_after_all_of_it_the_worker_stops_in_order_and_every_job_has_had_one_end(
    crew: PoolCrew, standing: tuple[PoolWorker, list[str]]
) -> None:
    worker = standing[0]
    worker.send(signal.SIGTERM)
    assert worker.process.wait(60) == 0, crew.logs()
    crew.gone(worker)
    crew.ledger.read()
    for handle in crew.handles:
        assert len(crew.ledger.ends_of(handle.id)) == 1, handle

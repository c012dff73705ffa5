"""Tests of ``kafka.tasks.pools.parent.launch`` and what it launches by: how children begin and end, by every start
method."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import pathlib
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.resolve import THREAD_NAME
from kafka.tasks import App
from kafka.tasks.pools import kernel
from kafka.tasks.pools.child import app_import, process_setup
from kafka.tasks.pools.child.job_loop import EXIT_BROKEN_CHANNEL
from kafka.tasks.pools.child.main import EXIT_APP_NOT_LOADED
from kafka.tasks.pools.child.process_setup import MARK
from kafka.tasks.pools.ipc import channel
from kafka.tasks.pools.ipc.processes import ChildPhase, ExitStatus, JobDone
from kafka.tasks.pools.parent import launch, launched_child
from kafka.tasks.pools.parent.launch import make_launcher
from kafka.tasks.pools.parent.orphans import Orphans
from kafka.tasks.pools.registry import registry_hash
from kafka.tasks.pools.settings import PoolSettings, start_methods
from kafka.tasks.rules.outcome import JobSucceeded
from test.support.waiting import until
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import DEADLINE_S, ChildProcesses, few_descriptors, is_running

METHODS = start_methods()
EXECUTED = [method for method in METHODS if method != "fork"]

each_method = pytest.mark.parametrize("method", METHODS)
each_executed = pytest.mark.parametrize("method", EXECUTED)


def _value(outcome: object) -> Any:
    assert isinstance(outcome, JobSucceeded), outcome
    return json.loads(outcome.value)


# -- lives ------------------------------------------------------------------------------------------------------------


@each_method
def test_children_of_every_method_run_jobs_and_end_in_order(method: str) -> None:
    with ChildProcesses(method) as processes:
        children = [processes.start(), processes.start()]
        pids = {_value(processes.run(child, tasks.pid)) for child in children}
        assert pids == {child.pid for child in children}
        assert os.getpid() not in pids
        for child in children:
            processes.give(child, tasks.add, 1, 2)
            child.retire()
            found, messages = processes.end_of(child)
            assert (found.code, found.signal, len(messages)) == (0, None, 1)
            assert found.max_rss_bytes is not None
            assert 1 << 22 < found.max_rss_bytes < 1 << 30
            assert found.cpu_s is not None
            assert 0 <= found.cpu_s < DEADLINE_S
            assert child.exited() == found


@each_method
def test_deaths_and_limits_work_by_every_method(method: str, tmp_path: pathlib.Path) -> None:
    with ChildProcesses(method) as processes:
        first, second = processes.start(), processes.start()
        processes.begin(first, tasks.spin)
        first.kill(signal.SIGTERM)
        assert processes.end_of(first)[0].signal == signal.SIGTERM
        processes.give(second, tasks.exit_at_once, 9)
        assert processes.end_of(second)[0].code == 9
        first.kill(signal.SIGKILL)  # nothing, whoever has that number now
        second.kill_group(signal.SIGKILL)
        child = processes.start()
        seq = processes.begin(child, tasks.finish_anyway, str(tmp_path / "began"))
        until((tmp_path / "began").exists)
        child.soft(seq)
        (done,) = processes.messages(child)
        assert isinstance(done, JobDone)
        assert _value(done.outcome) == "partial"


@each_method
def test_the_descriptor_of_the_end_becomes_readable(method: str) -> None:
    with ChildProcesses(method) as processes:
        child = processes.start()
        if child.pidfd is None:
            pytest.skip("this system has no pidfd")
        assert not select.select([child.pidfd], [], [], 0)[0]
        child.kill(signal.SIGKILL)
        assert select.select([child.pidfd], [], [], DEADLINE_S)[0]
        assert child.exited() is not None


@each_method
def test_payloads_pass_by_every_method(method: str) -> None:
    with ChildProcesses(method) as processes:
        child = processes.start()
        assert _value(processes.run(child, tasks.length, "x" * 10_000_000)) == 10_000_000
        assert len(_value(processes.run(child, tasks.repeat, "y", 10_000_000))) == 10_000_000


@each_method
def test_a_child_is_clean_by_every_method(method: str) -> None:
    with ChildProcesses(method) as processes:
        processes.start()
        found = _value(processes.run(processes.start(), tasks.surroundings))
        assert found["kinds"] == ["pipe", "socket", "socket"]
        del found["kinds"]
        assert set(map(str, found.values())) == {"True", "[]"}


@each_executed
def test_a_child_uses_the_servers_of_the_worker(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dataclasses.replace(tasks.app.settings, bootstrap_servers="elsewhere:9092")
    monkeypatch.setattr(tasks.app, "settings", settings)
    with ChildProcesses(method) as processes:
        assert _value(processes.run(processes.start(), tasks.servers)) == "elsewhere:9092"


@each_executed
def test_no_password_is_on_a_command_line(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = type(tasks.app.settings.client)({"sasl_plain_password": "s3cret"})
    monkeypatch.setattr(tasks.app, "settings", dataclasses.replace(tasks.app.settings, client=client))
    others = set(kernel.children_of(os.getpid()))
    with ChildProcesses(method) as processes:
        child = processes.start()
        for pid in {child.pid, *kernel.children_of(os.getpid())} - others:
            text = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() + pathlib.Path(f"/proc/{pid}/environ").read_bytes()
            assert b"s3cret" not in text


@pytest.mark.skipif("fork" not in METHODS, reason="no fork here")
@pytest.mark.filterwarnings("error")
def test_a_fork_beside_threads_warns_nobody_and_works() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(DEADLINE_S,))
    thread.start()
    try:
        with ChildProcesses("fork") as processes:
            assert _value(processes.run(processes.start(), tasks.add, 1, 2)) == 3
    finally:
        over.set()
        thread.join()


def test_a_fork_waits_for_a_name_that_is_being_looked_up() -> None:
    found = threading.Event()
    resolver = threading.Thread(target=found.wait, name=f"{THREAD_NAME}-host", daemon=True)
    resolver.start()
    threading.Timer(0.05, found.set).start()
    with ChildProcesses("fork") as processes:
        processes.start()
        assert not resolver.is_alive()


def test_a_fork_leaves_signals_and_collector_as_they_were() -> None:
    import gc

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with ChildProcesses("fork") as processes:
        processes.start()
        assert gc.isenabled()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked


def test_a_system_that_refuses_to_fork_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcesses("fork") as processes:
        before = len(process_setup.open_fds())
        with monkeypatch.context() as patch:
            patch.setattr(os, "fork", _refuse)
            with pytest.raises(OSError, match="too many"):
                processes.start()
        assert len(process_setup.open_fds()) == before
        assert _value(processes.run(processes.start(), tasks.add, 1, 2)) == 3


@each_method
def test_a_system_without_descriptors_leaves_nothing_behind(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcesses(method) as processes:
        processes.start()
        before = len(process_setup.open_fds())
        with monkeypatch.context() as patch:
            patch.setattr(channel, "SharedPage", _refuse)
            with pytest.raises(OSError, match="too many"):
                processes.start()
        assert len(process_setup.open_fds()) == before


def _refuse(*_: object) -> int:
    raise OSError(24, "too many open files")


# -- imports ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "how", "told"),
    [
        ("spawn", "test.tasks.pools.failing_app:app", "raise", "RuntimeError: no such database"),
        ("forkserver", "test.tasks.pools.failing_app:app", "exit", "SystemExit: 3"),
        ("spawn", "test.tasks.pools.children_app:nothing", "", "has no 'nothing'"),
        ("forkserver", "test.tasks.pools.nowhere:app", "", "there is no module 'test.tasks.pools.nowhere'"),
    ],
)
def test_an_app_that_can_not_be_loaded_is_reported_by_the_child_that_ends(
    method: str, path: str, how: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_FAILING_IMPORT", how)
    with ChildProcesses(method, path) as processes:
        for _ in range(2):
            child = processes.start(wait_up=False)
            found, messages = processes.end_of(child)
            assert messages == []
            assert found.code == EXIT_APP_NOT_LOADED
            assert told in processes.progress[-1]


@each_executed
def test_an_import_that_ends_the_process_is_a_child_that_never_was_up(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_TEST_FAILING_IMPORT", "exit at once")
    with ChildProcesses(method, "test.tasks.pools.failing_app:app") as processes:
        child = processes.start(wait_up=False)
        found, messages = processes.end_of(child)
        assert (found.signal, messages, child.page.phase) == (None, [], ChildPhase.BOOTING)
        assert found.code == (3 if method == "spawn" else None)  # it was the fork server that ended


@pytest.fixture
def slow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """As long as this file is there, ``slow_app`` is not imported to its end."""
    file = tmp_path / "slow"
    file.touch()
    monkeypatch.setenv("KAFKA_TEST_SLOW_IMPORT", str(file))
    return file


@each_executed
def test_a_child_whose_import_takes_too_long_can_be_given_up_and_the_next_one_comes(
    method: str, slow: pathlib.Path
) -> None:
    with ChildProcesses(method, "test.tasks.pools.slow_app:app") as processes:
        child = processes.start(wait_up=False)
        assert child.exited() is None
        child.dump()  # it could not bear that now
        child.kill(signal.SIGKILL)
        found, messages = processes.end_of(child)
        assert (found.code, messages, child.page.begun_seq) == (None, [], 0)
        slow.unlink()
        assert _value(processes.run(processes.start(), tasks.add, 1, 2)) == 3


@pytest.mark.skipif("forkserver" not in METHODS, reason="no fork server here")
def test_a_child_that_was_never_forked_is_given_up_without_a_look_at_other_children(slow: pathlib.Path) -> None:
    with ChildProcesses("forkserver", "test.tasks.pools.slow_app:app", process_per_job=True) as processes:
        with subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(120)"]) as living:
            dead = subprocess.Popen([sys.executable, "-S", "-c", "raise SystemExit(7)"])
            os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
            child = processes.start(wait_up=False)
            assert child.exited() is None
            child.kill_group(signal.SIGKILL)
            assert child.exited() == ExitStatus()
            assert dead.wait() == 7
            living.kill()
        slow.unlink()
        assert _value(processes.run(processes.start(), tasks.add, 1, 2)) == 3


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_there_is_no_group_of_a_child_that_was_never_forked(pid: int) -> None:
    with pytest.raises(ValueError, match="not the process group of a child"):
        launched_child.reap_group(pid, {})


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no child forks a process for a job")
def test_a_job_that_has_become_somebody_else_gets_no_signal_and_that_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("it is another user's now")

    with ChildProcesses("fork", process_per_job=True) as processes:
        child = processes.start()
        processes.begin(child, tasks.spin)
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
        child.kill(signal.SIGKILL)
        assert child.exited() is None


@each_executed
def test_jobs_may_be_sent_before_the_child_is_up(method: str, slow: pathlib.Path) -> None:
    with ChildProcesses(method, "test.tasks.pools.slow_app:app") as processes:
        child = processes.start(wait_up=False)
        processes.give(child, tasks.add, 2, 3)
        slow.unlink()
        _, done = processes.messages(child, 2)
        assert isinstance(done, JobDone)
        assert _value(done.outcome) == 5


def test_a_long_import_is_reported_now_and_then_and_not_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_import, "PROGRESS_S", 0.005)
    progress: list[str] = []
    with app_import.reporting_progress(progress.append, "shop:app"):
        until(lambda: len(progress) >= 2)
    count = len(progress)
    assert progress[0].startswith("importing shop:app for ")
    monkeypatch.setattr(app_import, "PROGRESS_S", DEADLINE_S)
    with app_import.reporting_progress(progress.append, "shop:app"):
        pass
    assert len(progress) == count


@each_executed
def test_parent_and_child_agree_about_their_tasks(method: str) -> None:
    with ChildProcesses(method) as processes:
        child = processes.launcher.start(99)
        processes.children.append(child)
        (up,) = processes.messages(child)
        assert up.registry_hash == registry_hash(tasks.app) == processes.launcher.registry_hash  # type: ignore[union-attr]
        assert up.generation == 99  # type: ignore[union-attr]


def test_another_set_of_tasks_has_another_hash() -> None:
    first, second = App("shop"), App("shop")
    first.task(name="a")(test_a_long_import_is_reported_now_and_then_and_not_afterwards)
    assert registry_hash(first) != registry_hash(second)
    second.task(name="a")(test_a_long_import_is_reported_now_and_then_and_not_afterwards)
    assert registry_hash(first) == registry_hash(second)


# -- the fork server --------------------------------------------------------------------------------------------------


@pytest.fixture
def served() -> Iterator[ChildProcesses]:
    if "forkserver" not in METHODS:
        pytest.skip("no fork server on this system")
    with ChildProcesses("forkserver") as processes:
        yield processes


def _server_pid(processes: ChildProcesses) -> int:
    return int(processes.launcher._server.pid)  # type: ignore[attr-defined]


def test_the_fork_server_has_neither_threads_nor_sockets_of_brokers(served: ChildProcesses) -> None:
    served.start()
    assert len(os.listdir(f"/proc/{_server_pid(served)}/task")) == 1


def test_children_of_a_dead_fork_server_go_on_and_their_ends_are_known(served: ChildProcesses) -> None:
    child, other = served.start(), served.start()
    server = _server_pid(served)
    os.kill(server, signal.SIGKILL)
    until(lambda: not is_running(server))
    assert _value(served.run(child, tasks.add, 1, 2)) == 3
    assert child.exited() is None
    child.kill(signal.SIGKILL)
    assert served.end_of(child)[0].signal == signal.SIGKILL
    third = served.start()
    assert _server_pid(served) != server
    assert _value(served.run(third, tasks.add, 1, 2)) == 3
    assert _value(served.run(other, tasks.add, 1, 2)) == 3


def test_a_child_of_a_dead_fork_server_keeps_no_loop_busy(served: ChildProcesses) -> None:
    child = served.start()
    watched = child.pidfd
    assert watched is not None
    os.kill(_server_pid(served), signal.SIGKILL)
    assert select.select([watched], [], [], DEADLINE_S)[0]
    assert child.exited() is None
    if hasattr(os, "pidfd_open"):
        assert not select.select([watched], [], [], 0)[0]


@pytest.mark.parametrize("room", range(10))
def test_a_start_for_want_of_descriptors_leaves_none_behind(served: ChildProcesses, room: int) -> None:
    served.start()
    before = len(process_setup.open_fds())
    with few_descriptors(room), pytest.raises(OSError, match="[Tt]oo many"):
        served.launcher.start(9)
    assert len(process_setup.open_fds()) == before


def test_a_process_that_has_no_group_of_its_own_yet_is_killed_alone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        kernel.send_signal(process.pid, signal.SIGKILL, group=True)
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_a_fork_that_cannot_become_a_child_does_not_go_on_as_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> channel.ChildChannel:
        raise OSError(12, "cannot allocate memory")

    with ChildProcesses("fork") as processes:
        monkeypatch.setattr(launch, "ChildChannel", fail)
        child = processes.start(wait_up=False)
        assert until(child.exited).code == EXIT_BROKEN_CHANNEL


# -- the worker's end -------------------------------------------------------------------------------------------------

WORKER = """
import sys, time, select
sys.path[:0] = {path!r}
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import ChildProcesses
with ChildProcesses({method!r}) as processes:
    idle, busy, in_c, parent = [processes.start() for _ in range(4)]
    processes.begin(busy, tasks.spin)
    processes.begin(in_c, tasks.c_loop)
    import json
    forked = json.loads(processes.run(parent, tasks.fork_one).value)
    print(idle.pid, busy.pid, in_c.pid, parent.pid, forked, flush=True)
    while True:
        time.sleep(60)
"""


@each_method
def test_when_the_worker_is_killed_all_that_it_has_started_is_gone(method: str) -> None:
    """None of it would end by itself."""
    code = WORKER.format(method=method, path=[path for path in sys.path if path])
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd())
    assert worker.stdout is not None
    pids = [int(pid) for pid in worker.stdout.readline().split()]
    assert len(pids) == 5
    pids += kernel.children_of(worker.pid)  # the fork server, too
    assert all(map(is_running, pids))
    worker.kill()
    worker.wait()
    worker.stdout.close()
    until(lambda: not any(map(is_running, pids)))


LONE_JOB = """
import sys, time
sys.path[:0] = {path!r}
from test.tasks.pools import children_app as tasks
from test.tasks.pools.child_processes import ChildProcesses
with ChildProcesses("fork", process_per_job=True) as processes:
    processes.begin(processes.start(), tasks.lead_a_session)
    while True:
        time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no child forks a process for a job")
def test_the_process_of_a_job_ends_with_the_worker_even_in_a_session_of_its_own() -> None:
    code = LONE_JOB.format(path=[path for path in sys.path if path])
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=os.getcwd()) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert is_running(pid)
        worker.kill()
    until(lambda: not is_running(pid))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_lifeline_may_have_a_number_that_select_does_not_take() -> None:
    """So have the children of a worker that has a thousand descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"no more than {hard} descriptors are allowed here")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
            lifeline, _ = os.pipe()
            process_setup.die_with_lifeline(fcntl.fcntl(lifeline, fcntl.F_DUPFD_CLOEXEC, 1100))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_child_that_begins_after_its_worker_has_died_ends_at_once() -> None:
    ends = channel.ParentChannel(1, shared=True)
    is_dead, dies = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()  # a lifeline kills the whole group, and this is the tests' own
            ends.close()
            os.close(dies)
            os.read(is_dead, 1)
            process_setup.die_with_lifeline(ends.for_child.lifeline)
        finally:
            os._exit(0)
    ends.for_child.close()
    os.close(ends._lifeline)
    ends._lifeline = -1
    os.close(dies)
    _, status = os.waitpid(pid, 0)
    os.close(is_dead)
    assert os.waitstatus_to_exitcode(status) in (1, -signal.SIGKILL)
    ends.close()


# -- orphans ----------------------------------------------------------------------------------------------------------


def test_programs_that_the_worker_itself_has_started_are_left_alone() -> None:
    kernel.adopt_orphans()
    code = "import time; time.sleep(600)"
    own = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    unmarked = {**os.environ, MARK: "1"}
    other = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env=unmarked)
    try:
        until(lambda: b"sleep" in pathlib.Path(f"/proc/{other.pid}/cmdline").read_bytes())
        until(lambda: b"sleep" in pathlib.Path(f"/proc/{own.pid}/cmdline").read_bytes())
        orphans = Orphans()
        assert orphans.kill_orphans() == []
        orphans.reap_zombies()
        assert own.poll() is None
    finally:
        for process in (own, other):
            process.kill()
            process.wait()


def test_a_broker_that_a_task_has_started_is_left_alone() -> None:
    marked = {**os.environ, MARK: str(os.getpid())}
    code = "import time; time.sleep(600)"
    broker = subprocess.Popen([sys.executable, "-c", code, "kafka", "broker"], start_new_session=True, env=marked)
    daemon = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, env=marked)
    try:
        for process in (broker, daemon):
            path = pathlib.Path(f"/proc/{process.pid}/cmdline")
            until(lambda path=path: b"sleep" in path.read_bytes())
        assert Orphans().kill_orphans() == [daemon.pid]
        daemon.wait()
        assert broker.poll() is None
    finally:
        for process in (broker, daemon):
            process.kill()
            process.wait()


# -- what can not be --------------------------------------------------------------------------------------------------


def test_a_method_that_needs_a_path_says_so() -> None:
    for method in EXECUTED:
        with pytest.raises(IllegalArgumentError, match="needs its path, MODULE:APP"):
            make_launcher(PoolSettings(app=tasks.app, start_method=method))
    with pytest.raises(IllegalArgumentError, match="needs the app"):
        make_launcher(PoolSettings(app_path="a:b", start_method="fork"))


def test_without_an_interpreter_no_child_can_be_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    with ChildProcesses("spawn") as processes:
        before = len(process_setup.open_fds())
        monkeypatch.setattr(sys, "executable", "")
        with pytest.raises(OSError, match="sys.executable is empty"):
            processes.start()
        assert len(process_setup.open_fds()) == before


def test_an_exit_that_somebody_else_has_reaped_is_an_exit_all_the_same() -> None:
    with ChildProcesses("fork") as processes:
        child = processes.start()
        child.kill(signal.SIGKILL)
        os.waitpid(child.pid, 0)
        assert processes.end_of(child)[0] == ExitStatus()

"""Tests of ``kafka.tasks.pools.child.process_per_job``: a process for each job, forked by a child that stays.

What the pools ``fork`` and ``prefork`` have in common is in ``test_process_pools.py``.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka.tasks.pools.child import process_per_job
from kafka.tasks.pools.child.job_loop import EXIT_BROKEN_CHANNEL
from kafka.tasks.pools.fork import ForkPool
from kafka.tasks.pools.parent.memory import sample_process
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost
from test.tasks.pools.test_process_pools import Bench, a_pool
from test.tasks.pools.test_process_pools import _gone as gone
from test.tasks.pools.test_process_pools import _nothing_is_left_behind as _nothing_is_left_behind  # a fixture

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the pool has a child for each job"),
    pytest.mark.timeout(180),
]
MIB = 1 << 20


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_each_job_has_a_process_of_its_own_and_the_children_stay(method: str) -> None:
    with a_pool(2, ForkPool, start_method=method) as bench:
        children = {child.pid for child in bench.children}
        bench.pool.set_depth(20)
        pids = [int(bench.value(job)) for job in [bench.submit("pid") for _ in range(30)]]
        assert len(set(pids)) == 30
        assert not children & set(pids)
        assert {child.pid for child in bench.children} == children
        assert bench.pool.statistics()["started"] == 2


def test_nothing_of_a_job_reaches_the_next_one() -> None:
    with a_pool(1, ForkPool) as bench:
        for number in range(3):
            assert bench.value(bench.submit("remember", number)) == b"[%d]" % number
        numbers = {bench.value(bench.submit("number")) for _ in range(5)}
        assert len(numbers) == 5


def test_what_a_job_leaves_behind_ends_before_the_next_one_runs(tmp_path: Path) -> None:
    with a_pool(1, ForkPool) as bench:
        bench.pool.set_depth(2)
        first = bench.submit("leave_and_return", str(tmp_path))
        next_one = bench.submit("pid")
        pid = int(bench.value(first))
        bench.value(next_one)
        left = [pid, *(int((tmp_path / name).read_text()) for name in ("group", "session"))]
        assert all(gone(each) for each in left)
        assert len(bench.children) == bench.pool.statistics()["started"] == 1


def test_a_broker_that_serves_others_too_is_left_alone() -> None:
    with a_pool(1, ForkPool) as bench:
        broker = int(bench.value(bench.submit("leave_a_broker")))
        try:
            assert bench.value(bench.submit("square", 2)) == b"4"
            assert not gone(broker)
        finally:
            os.kill(broker, signal.SIGKILL)
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert bench.pool.statistics()["started"] == 1


def test_a_job_that_has_closed_its_channel_is_lost_as_it_ends() -> None:
    with a_pool(1, ForkPool) as bench:
        lost = bench.outcome(bench.submit("close_and_return"))
        assert isinstance(lost, ChildLost)
        assert (lost.cause, lost.exit_code) == ("exit", EXIT_BROKEN_CHANNEL)
        assert bench.value(bench.submit("square", 2)) == b"4"


@pytest.mark.parametrize("whom", ["process", "group"])
def test_a_killed_process_loses_its_job_with_what_it_alone_has_used(tmp_path: Path, whom: str) -> None:
    with a_pool(1, ForkPool) as bench:
        child = bench.children[0].pid
        fresh = sample_process(child)
        assert fresh is not None
        bench.value(bench.submit("eat", 300 * MIB, 0.0))
        job = bench.submit("hold", str(tmp_path))
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        pid = int((tmp_path / job.envelope.id).read_text())
        (shown,) = bench.pool.children()
        assert shown.pid == pid != child
        if whom == "group":
            os.killpg(child, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGKILL)
        lost = bench.outcome(job)
        assert isinstance(lost, ChildLost)
        assert (lost.cause, lost.signal) == ("signal", signal.SIGKILL)
        assert lost.peak_rss_bytes is not None
        assert 4 * MIB < lost.peak_rss_bytes < fresh.rss_bytes + 150 * MIB
        assert gone(pid) and gone(child)
        assert bench.value(bench.submit("square", 2)) == b"4"


def test_when_the_child_is_killed_its_job_is_lost_once_its_process_is_gone(tmp_path: Path) -> None:
    with a_pool(1, ForkPool) as bench:
        for turn in range(5):
            folder = tmp_path / str(turn)
            folder.mkdir()
            job = bench.submit("hold", str(folder))
            bench.until(lambda: (folder / job.envelope.id).exists())  # noqa: B023
            pid = int((folder / job.envelope.id).read_text())
            os.kill(bench.children[0].pid, signal.SIGKILL)
            lost = bench.outcome(job)
            assert isinstance(lost, ChildLost)
            assert (lost.cause, lost.signal) == ("signal", signal.SIGKILL)
            assert gone(pid)


def test_a_stopped_process_of_a_job_is_seen() -> None:
    with a_pool(1, ForkPool) as bench:
        job = bench.submit("stop_itself")
        bench.until(lambda: bench.pool.children()[0].state == "stopped")
        os.kill(bench.pool.children()[0].pid, signal.SIGCONT)
        assert bench.value(job) == b'"continued"'


def test_a_stopped_process_is_killed_at_its_hard_limit() -> None:
    with a_pool(1, ForkPool, kill_grace=0.3) as bench:
        failed = bench.outcome(bench.submit("stop_itself", hard=2.0))
        assert isinstance(failed, AttemptFailed)
        assert (failed.error_info.type, failed.kill_signal) == ("TimeLimit", signal.SIGKILL)
        assert bench.value(bench.submit("square", 2)) == b"4"


def test_exit_functions_are_called_and_one_that_hangs_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with a_pool(1, ForkPool) as bench:
        bench.value(bench.submit("say_at_exit", str(tmp_path / "said")))
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert (tmp_path / "said").read_text() == "said"
    monkeypatch.setattr(process_per_job, "EXIT_FUNCTIONS_S", 1)
    with a_pool(1, ForkPool) as bench:
        pid = int(bench.value(bench.submit("hang_at_exit")))
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert gone(pid)
        assert bench.pool.statistics()["started"] == 1


def test_a_job_does_not_wait_behind_exit_functions_while_another_child_is_idle() -> None:
    with a_pool(2, ForkPool) as bench:
        pid = int(bench.value(bench.submit("hang_at_exit")))
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert pid in {child.handle.page.runner_pid for child in bench.children}


def test_a_task_that_signals_its_group_ends_well_and_costs_the_child() -> None:
    with a_pool(1, ForkPool) as bench:
        child = bench.children[0].pid
        assert bench.value(bench.submit("signal_group")) == b'"alive"'
        bench.until(lambda: bench.pool.statistics()["started"] == 2 and gone(child))
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert bench.pool.lost_by_cause() == {}


def test_a_job_for_which_no_process_can_be_forked_goes_to_another_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_full = tmp_path / "full"

    def fork() -> int:
        if is_full.exists():
            is_full.unlink()
            raise BlockingIOError("no more processes")
        return os.fork()

    monkeypatch.setattr(process_per_job, "os", SimpleNamespace(**{**vars(os), "fork": fork}))
    with a_pool(1, ForkPool) as bench:
        bench.value(bench.submit("pid"))
        is_full.touch()
        assert bench.value(bench.submit("square", 3)) == b"9"
        assert not is_full.exists()
        assert bench.pool.lost_by_cause() == {}
        assert bench.pool.statistics()["put_back"] == 1


def test_a_large_job_and_its_file_are_let_go_by_the_child() -> None:
    with a_pool(1, ForkPool) as bench:
        bench.value(bench.submit("pid"))
        child = bench.children[0].pid
        fds = sorted(os.listdir(f"/proc/{child}/fd"))
        for _ in range(3):
            assert bench.value(bench.submit("length", "x" * MIB)) == b"%d" % MIB
        bench.until(lambda: sorted(os.listdir(f"/proc/{child}/fd")) == fds)
        assert bench.pool.statistics()["started"] == 1


def test_the_stacks_are_those_of_the_process_of_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with a_pool(1, ForkPool) as bench:
        job = bench.submit("hold", str(tmp_path))
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        bench.pool.dump()
        bench.until(lambda: "in hold" in caplog.text)
        (tmp_path / "go").touch()
        bench.value(job)


def test_stop_ends_the_process_of_a_job_and_gives_it_back(tmp_path: Path) -> None:
    bench = Bench(1, ForkPool)
    job = bench.submit("hold", str(tmp_path))
    bench.until(lambda: (tmp_path / job.envelope.id).exists())
    pid = int((tmp_path / job.envelope.id).read_text())
    assert bench.pool.stop(0.0) == [job]
    assert gone(pid)
    bench.loop.close()


def test_a_worker_that_has_inherited_that_ends_of_children_are_ignored_has_jobs_all_the_same() -> None:
    former = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        bench = Bench(1, ForkPool)
    finally:
        signal.signal(signal.SIGCHLD, former)
    assert [bench.value(bench.submit("square", number)) for number in range(3)] == [b"0", b"1", b"4"]
    assert bench.pool.statistics()["started"] == 1
    bench.close()

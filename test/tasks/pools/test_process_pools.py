"""Tests of the pools ``prefork`` and ``fork`` with real processes: what their jobs and others may do to them.

The parent's decisions alone, over played children and a manual clock, are in ``test_supervision.py``.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafka.net.loop import Loop
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.format.payload import encode_value
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.fork import ForkPool
from kafka.tasks.pools.parent.child_process import ChildProcess
from kafka.tasks.pools.parent.memory import sample_process
from kafka.tasks.pools.prefork import PreforkPool
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobSucceeded, Outcome
from test.support import waiting
from test.tasks.fakes import a_job
from test.tasks.pools import process_jobs

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

Kind = type[PreforkPool]
kinds = pytest.mark.parametrize("kind", [PreforkPool, ForkPool], ids=["prefork", "fork"])
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the system has no /proc")


class Bench:
    """A pool on a loop of its own."""

    def __init__(self, concurrency: int = 1, kind: type[PreforkPool] = PreforkPool, **settings: Any) -> None:
        self.loop = Loop()
        self.wakes = 0
        self.ended: dict[Job, Outcome] = {}
        given = PoolSettings(concurrency, app=process_jobs.app, app_path=process_jobs.PATH, **settings)
        self.pool = kind(given, self._wake, self.loop)
        self.until(lambda: len(self.pool.supervision.available) == concurrency)

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def children(self) -> list[ChildProcess]:
        return list(self.pool.supervision.children.values())

    def job(self, name: str, *args: Any, soft: float | None = None, hard: float | None = None) -> Job:
        task = process_jobs.app.tasks[name]
        envelope = a_job(name, *args)
        return Job(JobLease(JobSource("q", "shop.q"), envelope.value, [], 1), envelope, task, soft, hard)

    def submit(self, name: str, *args: Any, soft: float | None = None, hard: float | None = None) -> Job:
        job = self.job(name, *args, soft=soft, hard=hard)
        self.until(lambda: self.pool.free_slots > 0)
        self.pool.submit(job)
        return job

    def turn(self, timeout_s: float = 0.01) -> None:
        self.loop.run_once(timeout_s)
        self.ended.update(self.pool.finished())

    def until(self, condition: Callable[[], object], text: str = "") -> None:
        waiting.until(condition, text, meanwhile=self.turn, shown=self.pool.children)

    def outcome(self, job: Job) -> Outcome:
        self.until(lambda: job in self.ended)
        return self.ended.pop(job)

    def value(self, job: Job) -> Any:
        outcome = self.outcome(job)
        assert isinstance(outcome, JobSucceeded), outcome
        return outcome.value

    def close(self) -> None:
        self.pool.stop(0.0)
        self.loop.close()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    """No process, no zombie, no descriptor, no thread that was not there before."""
    gc.collect()
    before = _own()
    yield
    gc.collect()
    waiting.eventually(lambda: _own() - before, set())


def _own() -> set[str]:
    found = {f"thread {thread.name}" for thread in threading.enumerate()}
    if os.path.exists("/proc/self/fd"):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                found |= {f"process {pid}" for pid in (task / "children").read_text().split()}
        for fd in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                target = os.readlink(fd)
                if not target.startswith("/proc/"):
                    found.add(f"descriptor {target}")
    return found


@contextlib.contextmanager
def a_pool(concurrency: int = 1, kind: type[PreforkPool] = PreforkPool, **settings: Any) -> Iterator[Bench]:
    bench = Bench(concurrency, kind, **settings)
    try:
        yield bench
    finally:
        bench.close()


@kinds
def test_a_job_under_a_former_name_of_its_task_runs_with_the_callers_headers(kind: Kind) -> None:
    with a_pool(kind=kind) as bench:
        for name in ("headers", "jobs.headers"):
            extra = (("traceparent", b"00-1"), ("empty", None), ("blob", b"\xff"))
            envelope = a_job(name, extra=extra)
            lease = JobLease(JobSource("q", "shop.q"), envelope.value, envelope.headers(), 1)
            job = Job(lease, envelope, process_jobs.app.tasks["headers"])
            bench.until(lambda: bench.pool.free_slots > 0)
            bench.pool.submit(job)
            assert json.loads(bench.value(job)) == ["traceparent=b'00-1'", "empty=b''", "blob=b'\\xff'"]


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_jobs_run_in_children_of_every_start_method(method: str) -> None:
    with a_pool(2, start_method=method) as bench:
        bench.pool.set_depth(40)
        jobs = [bench.submit("square", n) for n in range(30)]
        assert [bench.value(job) for job in jobs] == [str(n * n).encode() for n in range(30)]
        pids = {bench.value(bench.submit("pid")) for _ in range(4)}
        assert str(os.getpid()).encode() not in pids
        assert jobs[0].started_at is not None
        assert bench.pool.busy == 0


@kinds
def test_large_arguments_and_results_pass(kind: Kind, tmp_path: Path) -> None:
    with a_pool(kind=kind) as bench:
        assert bench.value(bench.submit("large", 10_000_000)) == encode_value("large", "x" * 10_000_000)
        folder = tmp_path / ("d" * 100)
        folder.mkdir()
        (folder / "go").touch()
        job = bench.submit("hold", str(folder) + "/" * 200_000)
        assert isinstance(bench.outcome(job), (JobSucceeded, AttemptFailed))


@kinds
def test_an_idle_child_takes_what_waits_behind_a_long_job(kind: Kind, tmp_path: Path) -> None:
    with a_pool(2, kind) as bench:
        bench.pool.set_depth(42)
        held = bench.submit("hold", str(tmp_path))
        bench.until(lambda: (tmp_path / held.envelope.id).exists())
        jobs = [bench.submit("square", n) for n in range(40)]
        for n, job in enumerate(jobs):
            assert bench.value(job) == str(n * n).encode()
        assert held not in bench.ended
        (tmp_path / "go").touch()
        bench.outcome(held)


@kinds
def test_recall_gives_back_all_that_did_not_begin_also_while_the_child_is_busy(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind) as bench:
        bench.pool.set_depth(100)
        held = bench.submit("hold", str(tmp_path))
        jobs = [bench.submit("square", n) for n in range(60)]
        bench.until(lambda: (tmp_path / held.envelope.id).exists())
        bench.until(lambda: len(bench.children[0].jobs) == 61)
        assert bench.pool.recall() == jobs
        assert bench.pool.busy == 1
        (tmp_path / "go").touch()
        bench.outcome(held)
        assert bench.pool.busy == 0
        assert bench.pool.finished() == []


def test_a_job_has_its_own_process_in_the_fork_pool() -> None:
    with a_pool(2, kind=ForkPool) as bench:
        pids = [bench.value(bench.submit("pid")) for _ in range(12)]
        assert len(set(pids)) == 12
        bench.until(lambda: bench.pool.busy == 0)
        assert bench.pool.lost_by_cause() == {}


# -- deaths ------------------------------------------------------------------------------------------------------------


@needs_proc
@kinds
def test_a_child_killed_before_it_began_costs_its_job_nothing(kind: Kind) -> None:
    with a_pool(1, kind) as bench:
        child = bench.children[0]
        os.kill(child.pid, signal.SIGSTOP)
        job = bench.submit("square", 3)
        bench.until(lambda: len(child.jobs) == 1)
        os.kill(child.pid, signal.SIGKILL)
        assert bench.value(job) == b"9"
        assert bench.pool.lost_by_cause() == {}
        assert bench.pool.statistics()["put_back"] == 1


@kinds
def test_a_child_killed_in_user_code_loses_its_job_with_the_signal_and_the_others_run(
    kind: Kind, tmp_path: Path
) -> None:
    with a_pool(1, kind) as bench:
        bench.pool.set_depth(11)
        held = bench.submit("hold", str(tmp_path))
        jobs = [bench.submit("square", n) for n in range(10)]
        bench.until(lambda: (tmp_path / held.envelope.id).exists())
        os.kill(bench.children[0].pid, signal.SIGKILL)
        lost = bench.outcome(held)
        assert isinstance(lost, ChildLost)
        assert (lost.cause, lost.signal, lost.counts) == ("signal", signal.SIGKILL, True)
        assert [bench.value(job) for job in jobs] == [str(n * n).encode() for n in range(10)]
        assert bench.pool.lost_by_cause() == {"signal": 1}


@kinds
def test_a_child_killed_anywhere_around_a_large_result_gives_it_whole_or_loses_its_job(kind: Kind) -> None:
    random = Random(7)
    whole = encode_value("large", "x" * 10_000_000)
    found = {"whole": 0, "lost": 0}
    with a_pool(1, kind) as bench:
        bench.outcome(bench.submit("large", 10_000_000))
        for turn in range(25):
            child = bench.children[-1]
            job = bench.submit("large", 10_000_000)
            bench.until(lambda: child.handle.page.begun_seq in child.jobs or job in bench.ended)  # noqa: B023
            pause_until = time.perf_counter() + random.uniform(0, 0.03) * (turn / 25)
            while time.perf_counter() < pause_until:
                pass
            os.kill(child.pid, signal.SIGKILL)
            outcome = bench.outcome(job)
            if isinstance(outcome, JobSucceeded):
                assert outcome.value == whole
                found["whole"] += 1
            else:
                assert isinstance(outcome, ChildLost) and outcome.cause == "signal"
                found["lost"] += 1
            bench.until(lambda: bench.pool.ready)
            bench.outcome(bench.submit("square", 1))
        assert found["lost"]


def test_a_result_that_was_written_before_the_kill_is_not_lost() -> None:
    with a_pool(1) as bench:
        child = bench.children[0]
        job = bench.submit("square", 5)
        bench.until(lambda: child.jobs or job in bench.ended)
        # without a turn of the loop: it is written, and not read
        waiting.until(lambda: child.handle.page.done_seq >= 1)
        os.kill(child.pid, signal.SIGKILL)
        assert bench.value(job) == b"25"
        assert bench.pool.lost_by_cause() == {}


def test_deaths_are_found_without_a_pidfd(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kafka.tasks.pools.kernel.pidfd_of", lambda pid: None)
    with a_pool(1) as bench:
        assert bench.children[0].handle.pidfd is None
        lost = bench.outcome(bench.submit("end_process", 3))
        assert isinstance(lost, ChildLost) and lost.exit_code == 3
        job = bench.submit("leave_processes", str(tmp_path))
        bench.until(lambda: (tmp_path / "session").exists())
        os.kill(bench.children[0].pid, signal.SIGKILL)
        lost = bench.outcome(job)
        assert isinstance(lost, ChildLost) and lost.signal == signal.SIGKILL
        assert bench.value(bench.submit("square", 2)) == b"4"
        left = [int((tmp_path / name).read_text()) for name in ("group", "session")]
        if sys.platform == "linux":
            bench.until(lambda: all(_gone(pid) for pid in left))


@pytest.mark.parametrize("code", [0, 3])
@kinds
def test_a_task_that_ends_its_process_is_lost_with_the_exit_code(kind: Kind, code: int) -> None:
    with a_pool(1, kind) as bench:
        lost = bench.outcome(bench.submit("end_process", code))
        assert isinstance(lost, ChildLost)
        assert (lost.cause, lost.exit_code, lost.signal) == ("exit", code, None)
        assert lost.peak_rss_bytes is not None and lost.peak_rss_bytes > 1 << 22
        assert bench.value(bench.submit("square", 2)) == b"4"


def test_a_task_that_closes_its_channel_is_killed() -> None:
    with a_pool(1) as bench:
        lost = bench.outcome(bench.submit("close_channel"))
        assert isinstance(lost, ChildLost)
        assert lost.cause in ("channel", "signal")  # the lifeline's end kills it at once where the kernel does that
        assert bench.value(bench.submit("square", 2)) == b"4"


@kinds
def test_many_crashes_in_a_row_keep_the_processor_idle_and_degrade_the_pool(
    kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "kafka.tasks.pools.parent.supervision")
    with a_pool(1, kind, breaker_failures=1) as bench:
        before, began = time.process_time(), time.monotonic()
        for _ in range(12):
            lost = bench.outcome(bench.submit("die_of", int(signal.SIGSEGV)))
            assert isinstance(lost, ChildLost) and lost.signal == signal.SIGSEGV
        bench.until(lambda: bench.pool.ready)
        took = time.monotonic() - began
        assert took > 0.9  # the last of them had to wait
        assert time.process_time() - before < 0.8 * took
        assert "the pool is degraded: 11 children died in a row" in caplog.text
        assert bench.value(bench.submit("square", 2)) == b"4"


# -- limits ------------------------------------------------------------------------------------------------------------


@kinds
def test_the_soft_limit_is_an_exception_in_the_task(kind: Kind) -> None:
    with a_pool(1, kind) as bench:
        job = bench.submit("tidy_up", soft=0.2)
        assert bench.value(job) == b'"tidied up"'
        failed = bench.outcome(bench.submit("sleep", 100, soft=0.2))
        assert isinstance(failed, AttemptFailed)
        assert failed.error_info.type.endswith("SoftTimeLimit")
        assert len(bench.pool.supervision.children) == 1
        assert bench.pool.statistics()["soft_limits"] == 2


@kinds
def test_the_hard_limit_ends_the_process_and_the_slot_is_free_again(kind: Kind) -> None:
    with a_pool(1, kind) as bench:
        child = bench.children[0].pid
        failed = bench.outcome(bench.submit("sleep", 100, hard=0.3))
        assert isinstance(failed, AttemptFailed)
        assert failed.error_info.type == "TimeLimit"
        assert _gone(child)
        assert bench.value(bench.submit("square", 2)) == b"4"
        assert bench.pool.lost_by_cause().get("time", 1) == 1


@kinds
def test_a_task_that_ignores_sigterm_is_killed_after_the_grace(kind: Kind) -> None:
    with a_pool(1, kind, kill_grace=0.3) as bench:
        failed = bench.outcome(bench.submit("ignore_sigterm", hard=0.5))
        assert isinstance(failed, AttemptFailed)
        assert (failed.error_info.type, failed.kill_signal) == ("TimeLimit", signal.SIGKILL)


@needs_proc
@kinds
def test_a_child_that_is_stopped_past_its_hard_limit_is_killed(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind, kill_grace=0.3) as bench:
        job = bench.submit("hold", str(tmp_path), hard=0.8)
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        os.kill(bench.children[0].pid, signal.SIGSTOP)
        failed = bench.outcome(job)
        assert isinstance(failed, AttemptFailed)
        assert (failed.error_info.type, failed.kill_signal) == ("TimeLimit", signal.SIGKILL)
        assert bench.value(bench.submit("square", 2)) == b"4"


def _above_fresh(more: int) -> int:
    """So many bytes above what a fork of this process, which may have grown in other tests, holds from the first."""
    own = sample_process(os.getpid())
    assert own is not None
    return own.rss_bytes + more


@needs_proc
@kinds
def test_a_child_above_the_hard_memory_limit_is_killed(kind: Kind) -> None:
    limit = _above_fresh(150 << 20)
    with a_pool(1, kind, max_memory_hard=limit) as bench:
        lost = bench.outcome(bench.submit("eat", 300 << 20, 100.0))
        assert isinstance(lost, ChildLost)
        assert lost.cause == "memory"
        assert lost.rss_bytes is not None and lost.rss_bytes > limit


@needs_proc
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_hard_memory_limit_below_the_size_of_a_fresh_child_degrades_the_pool_and_says_so(method: str) -> None:
    loop = Loop()
    settings = PoolSettings(
        1,
        app=process_jobs.app,
        app_path="test.tasks.pools.process_jobs:app",
        start_method=method,
        breaker_failures=2,
        max_memory_hard=2 << 20,
    )
    pool = PreforkPool(settings, lambda: None, loop)
    waiting.until(lambda: pool.degraded, meanwhile=lambda: loop.run_once(0.05))
    assert pool.degraded is not None
    assert "a new child uses" in pool.degraded
    assert "above max_memory_hard (2 MiB); raise HARD of --max-memory-per-child" in pool.degraded
    assert not pool.ever_ready and not pool.ready
    pool.stop(0.0)
    loop.close()


@needs_proc
def test_a_child_above_the_soft_memory_limit_is_replaced_after_its_job() -> None:
    with a_pool(1, max_memory_soft=_above_fresh(150 << 20)) as bench:
        old = bench.children[0].pid
        assert bench.value(bench.submit("eat", 300 << 20, 0.2)) == str(old).encode()
        bench.until(lambda: _gone(old))
        assert bench.value(bench.submit("pid")) != str(old).encode()
        assert bench.pool.lost_by_cause() == {}


@kinds
def test_a_cancelled_job_learns_it(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind) as bench:
        job = bench.submit("until_cancelled", str(tmp_path))
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        bench.pool.cancel(job)
        assert bench.value(job) == b'"cancelled"'


@kinds
def test_a_cancelled_job_that_does_not_end_is_ended_with_its_process(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind) as bench:
        child = bench.children[0].pid
        job = bench.submit("hold", str(tmp_path))
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        job.cancel()
        bench.pool.cancel(job)
        bench.pool.terminate(job)
        outcome = bench.outcome(job)
        assert isinstance(outcome, ChildLost)
        assert (outcome.cause, outcome.signal) == ("cancelled", signal.SIGTERM)
        assert _gone(child)
        assert bench.value(bench.submit("square", 2)) == b"4"


@kinds
def test_a_cancelled_job_that_ignores_sigterm_is_killed_after_the_grace(kind: Kind) -> None:
    with a_pool(1, kind, kill_grace=0.3) as bench:
        job = bench.submit("ignore_sigterm")
        bench.until(lambda: bench.children[0].running() is not None)
        bench.pool.cancel(job)
        bench.pool.terminate(job)
        outcome = bench.outcome(job)
        assert isinstance(outcome, ChildLost)
        assert outcome.cause == "cancelled"


@kinds
def test_interrupt_raises_the_soft_limit_in_what_runs(kind: Kind, tmp_path: Path) -> None:
    with a_pool(2, kind) as bench:
        files = [tmp_path / "a", tmp_path / "b"]
        jobs = [bench.submit("tidy_up", str(file)) for file in files]
        bench.until(lambda: all(file.exists() for file in files))
        bench.pool.interrupt()
        assert [bench.value(job) for job in jobs] == [b'"tidied up"'] * 2


# -- coming and going --------------------------------------------------------------------------------------------------


def test_children_are_replaced_after_their_jobs_and_none_is_lost() -> None:
    with a_pool(2, max_jobs_per_child=10) as bench:
        bench.pool.set_depth(20)
        jobs = [bench.submit("square", n) for n in range(200)]
        assert [bench.value(job) for job in jobs] == [str(n * n).encode() for n in range(200)]
        assert bench.pool.statistics()["replaced"] >= 12
        bench.until(lambda: len(bench.children) == 2)
        assert bench.pool.lost_by_cause() == {}


def test_the_pool_grows_and_shrinks() -> None:
    with a_pool(1) as bench:
        bench.pool.grow(2)
        bench.until(lambda: len(bench.pool.supervision.available) == 3)
        assert bench.pool.free_slots == 3
        bench.pool.shrink(2)
        bench.until(lambda: len(bench.children) == 1)
        assert bench.value(bench.submit("square", 2)) == b"4"


@kinds
def test_children_say_what_they_run(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind) as bench:
        job = bench.submit("hold", str(tmp_path))
        bench.until(lambda: (tmp_path / job.envelope.id).exists())
        bench.until(lambda: bench.pool.children()[0].rss_bytes is not None or not os.path.exists("/proc/self/stat"))
        (state,) = bench.pool.children()
        assert (state.state, state.job_id, state.job_name) == ("busy", job.envelope.id, "hold")
        assert state.pid == int((tmp_path / job.envelope.id).read_text())
        (tmp_path / "go").touch()
        bench.outcome(job)
        bench.until(lambda: bench.pool.children()[0].state == "idle")


@needs_proc
@kinds
def test_a_hard_limit_takes_the_processes_along_that_the_task_has_started(kind: Kind, tmp_path: Path) -> None:
    with a_pool(1, kind) as bench:
        job = bench.submit("leave_processes", str(tmp_path), hard=3.0)
        bench.until(lambda: (tmp_path / "session").exists())
        left = [int((tmp_path / name).read_text()) for name in ("group", "session")]
        failed = bench.outcome(job)
        assert isinstance(failed, AttemptFailed) and failed.error_info.type == "TimeLimit"
        bench.until(lambda: all(_gone(pid) for pid in left))


@kinds
def test_abandon_ends_what_runs_and_says_that_it_was_the_worker(kind: Kind) -> None:
    with a_pool(2, kind) as bench:
        jobs = [bench.submit("ignore_sigterm"), bench.submit("sleep", 100)]
        bench.until(lambda: all(child.running() is not None for child in bench.children))
        assert bench.pool.abandon() == []
        for job in jobs:
            lost = bench.outcome(job)
            assert isinstance(lost, ChildLost)
            assert (lost.cause, lost.counts) == ("stopped", False)
        assert bench.children == []


@kinds
def test_stop_waits_for_what_runs_and_names_what_did_not_end(kind: Kind, tmp_path: Path) -> None:
    bench = Bench(2, kind)
    bench.pool.set_depth(10)
    slow, stuck = bench.submit("sleep", 0.3), bench.submit("ignore_sigterm")
    bench.until(lambda: all(child.running() is not None for child in bench.children))
    more = [bench.submit("square", n) for n in range(4)]
    bench.turn()
    unfinished = bench.pool.stop(1.5)
    assert set(unfinished) == {stuck, *more}
    assert dict(bench.pool.finished()) == {slow: JobSucceeded(b'"slept"')}
    assert bench.pool.children() == []
    bench.loop.close()


def test_an_app_that_cannot_be_imported_degrades_the_pool_and_says_why(tmp_path: Path) -> None:
    loop = Loop()
    settings = PoolSettings(2, app_path="test.tasks.pools.no_such_module:app", start_method="spawn", breaker_failures=2)
    pool = PreforkPool(settings, lambda: None, loop)
    waiting.until(lambda: pool.degraded, meanwhile=lambda: loop.run_once(0.05))
    assert pool.degraded is not None
    assert "no_such_module" in pool.degraded
    assert not pool.ever_ready and not pool.ready
    assert pool.free_slots == 0
    pool.stop(0.0)
    loop.close()


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="only Linux has SCHED_BATCH")
@kinds
def test_a_child_that_is_woken_takes_no_core_from_the_worker(kind: type[PreforkPool]) -> None:
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    with a_pool(kind=kind) as bench:
        assert bench.value(bench.submit("policy")) == encode_value("policy", os.SCHED_BATCH)
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="only Linux has SCHED_IDLE")
def test_a_policy_that_was_chosen_for_the_worker_is_its_childrens_too() -> None:
    answer, say = os.pipe()
    pid = os.fork()  # one that took SCHED_IDLE may not be let out of it
    if not pid:
        try:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
            process_setup.use_batch_scheduling()
            os.write(say, bytes([os.sched_getscheduler(0)]))
        finally:
            os._exit(0)
    os.close(say)
    found = os.read(answer, 1)
    os.close(answer)
    os.waitpid(pid, 0)
    assert found == bytes([os.SCHED_IDLE])

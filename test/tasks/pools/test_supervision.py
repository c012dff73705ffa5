"""Tests of ``kafka.tasks.pools.prefork`` and ``supervision``: the parent's side, over children that the test plays."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks import App, Retry, TimeLimit
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.pools.fork import ForkPool
from kafka.tasks.pools.ipc.processes import (
    ChildMessage,
    ChildPhase,
    ChildProgress,
    ChildUp,
    ExitStatus,
    JobDone,
    JobStarted,
)
from kafka.tasks.pools.parent.child_process import ChildProcess
from kafka.tasks.pools.parent.deadlines import PoolDeadlines
from kafka.tasks.pools.parent.memory import OomCounter
from kafka.tasks.pools.parent.reaper import Reaper
from kafka.tasks.pools.parent.supervision import FULL_CHANNEL_RETRY_S, MOST_PROGRESS
from kafka.tasks.pools.prefork import PreforkPool
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, ErrorInfo, JobSucceeded, LockLost, Outcome
from test.tasks.fakes import a_job, pass_time, settle
from test.tasks.pools.fake_children import FakeChild, FakeLauncher

OK = JobSucceeded(b"1")


class Bench:
    """A pool on a simulated loop, and its children."""

    def __init__(
        self,
        concurrency: int = 2,
        plan: Callable[[FakeChild], object] = FakeChild.up,
        kind: type[PreforkPool] = PreforkPool,
        oom: OomCounter | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock(1000.0)
        self.loop = Loop.simulated(self.clock)
        self.launcher = FakeLauncher(self.clock.monotonic, plan)
        self.wakes = 0
        app = App("shop")

        @app.task(name="work", retry=Retry(max_attempts=3, on=(TimeLimit,)))
        def work() -> None: ...

        self.task = work
        self.pool = kind(
            PoolSettings(concurrency, **settings), self._wake, self.loop, self.launcher, Random(1),
            self.launcher.sample_process, oom or OomCounter(),
        )  # fmt: skip
        self.turn()

    def _wake(self) -> None:
        self.wakes += 1

    @property
    def children(self) -> list[FakeChild]:
        return self.launcher.alive

    def job(self, soft: float | None = None, hard: float | None = None, track_started: bool = False) -> Job:
        envelope = a_job("work")
        lease = JobLease(JobSource("q", "shop.q"), envelope.value, [], 1)
        return Job(lease, envelope, self.task, soft, hard, track_started=track_started)

    def submit(self, count: int = 1, soft: float | None = None, hard: float | None = None) -> list[Job]:
        jobs = [self.job(soft, hard) for _ in range(count)]
        for job in jobs:
            assert self.pool.free_slots > 0
            self.pool.submit(job)
        self.turn()
        return jobs

    def turn(self) -> None:
        for _ in range(50):
            before = self.launcher.children[-1:], len(self.launcher.alive)
            for kept in list(self.pool.supervision.children.values()):
                self.pool.supervision.read_messages(kept)
            settle(self.loop)
            if before == (self.launcher.children[-1:], len(self.launcher.alive)):
                return

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end - 1e-9:
            pass_time(self.loop, self.clock, min(step, end - self.clock.monotonic()), step)
            self.turn()

    def outcomes(self) -> dict[Job, Outcome]:
        return dict(self.pool.finished())


# -- handing out -------------------------------------------------------------------------------------------------------


def test_no_job_is_given_to_a_child_whose_last_process_still_ends_while_another_is_idle() -> None:
    bench = Bench(3, kind=ForkPool)
    first, second, third = bench.children
    first.page.runner_pid = second.page.runner_pid = 7
    bench.submit(1)
    assert [len(child.inbox) for child in (first, second, third)] == [0, 0, 1]


def test_a_job_behind_a_process_that_still_ends_goes_to_a_child_that_becomes_idle() -> None:
    bench = Bench(2, kind=ForkPool)
    ending, busy = bench.children
    bench.submit(2)
    busy.begin()
    ending.page.runner_pid = 7
    busy.end()
    bench.turn()
    assert (len(ending.inbox), len(busy.inbox)) == (0, 1)


def test_when_the_processes_of_all_still_end_a_job_goes_to_the_first_that_is_through() -> None:
    bench = Bench(2, kind=ForkPool)
    a, b = bench.children
    a.page.runner_pid = b.page.runner_pid = 7
    bench.submit(1)
    assert (len(a.inbox), len(b.inbox)) == (1, 0)
    b.page.runner_pid = 0
    bench.pass_time(1.5)
    assert (len(a.inbox), len(b.inbox)) == (0, 1)


def test_jobs_do_not_wait_behind_one_that_cannot_be_written(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(1)
    (child,) = bench.children
    bench.pool.set_depth(6)
    stuck, lost = bench.job(), bench.job()
    child.unwritable = {stuck, lost}
    for job in (stuck, lost):
        bench.pool.submit(job)
    others = bench.submit(3)
    bench.pass_time(5)
    assert [job for _, job in child.inbox] == others
    assert caplog.text.count("could not send") == 2
    bench.pool.cancel(lost)
    child.unwritable.clear()
    bench.pass_time(FULL_CHANNEL_RETRY_S + 0.5)
    assert [job for _, job in child.inbox] == [*others, stuck]
    child.run_all()
    bench.turn()
    assert set(bench.outcomes()) == {stuck, lost, *others}
    assert bench.pool.busy == 0


def test_what_cannot_be_written_is_given_back() -> None:
    bench = Bench(1)
    (child,) = bench.children
    bench.pool.set_depth(3)
    jobs = [bench.job() for _ in range(3)]
    child.unwritable = set(jobs[:2])
    for job in jobs:
        bench.pool.submit(job)
    bench.turn()
    assert bench.pool.recall() == [jobs[2], *jobs[:2]]
    assert bench.pool.busy == 0
    assert bench.pool.stop(0.0) == []


def test_an_idle_child_is_served_first_and_each_has_one_long_job() -> None:
    bench = Bench(2)
    a, b = bench.children
    jobs = bench.submit(2)
    assert (len(a.inbox), len(b.inbox)) == (1, 1)
    assert bench.pool.free_slots == 0
    b.begin()
    b.end()
    bench.turn()
    assert bench.outcomes() == {jobs[1]: OK}
    third = bench.submit(1)
    assert [job for _, job in b.inbox] == third


def test_short_jobs_are_written_ahead_evenly() -> None:
    bench = Bench(2)
    bench.pool.set_depth(20)
    bench.submit(20)
    assert [len(child.inbox) for child in bench.children] == [10, 10]


def test_fair_pools_give_only_to_idle_children() -> None:
    bench = Bench(2, prefetch=1)
    bench.pool.set_depth(20)
    bench.submit(20)
    assert [len(child.inbox) for child in bench.children] == [1, 1]
    bench.children[0].run_all()
    bench.turn()
    assert [len(child.inbox) for child in bench.children] == [1, 1]
    assert len(bench.outcomes()) == 1


def test_an_idle_child_takes_what_waits_behind_a_busy_one() -> None:
    bench = Bench(2)
    bench.pool.set_depth(8)
    jobs = bench.submit(8)
    a, b = bench.children
    a.begin()
    b.run_all()
    bench.turn()
    assert len(b.inbox) == 2  # half of the three behind the one that runs
    while b.inbox:
        b.run_all()
        bench.turn()
    assert not a.inbox
    assert set(bench.outcomes()) == set(jobs) - {a.begin()}


def test_a_full_channel_is_left_alone_until_its_child_reports() -> None:
    bench = Bench(1)
    child = bench.children[0]
    child.capacity = 3
    bench.pool.set_depth(5)
    jobs = bench.submit(5)
    assert len(child.inbox) == 3
    child.begin()
    child.end()
    bench.turn()
    assert len(child.inbox) == 3
    while child.inbox:
        child.run_all()
        bench.turn()
    assert list(bench.outcomes()) == jobs


def test_a_channel_that_takes_nothing_though_it_is_empty_is_tried_again_and_replaced_in_the_end() -> None:
    bench = Bench(1)
    child = bench.children[0]
    child.capacity = 0
    jobs = bench.submit(1)
    bench.pass_time(3)
    child.capacity = 1
    bench.pass_time(1.5)
    child.run_all()
    bench.turn()
    assert list(bench.outcomes()) == jobs
    child.capacity = 0
    jobs = bench.submit(1)
    bench.pass_time(12)
    assert not child.is_alive
    bench.children[0].run_all()
    bench.turn()
    assert bench.outcomes() == {jobs[0]: OK}


def test_jobs_wait_in_the_line_until_a_child_is_up() -> None:
    bench = Bench(1, plan=lambda child: None)
    assert not bench.pool.ready
    assert bench.pool.free_slots == 0
    woken = bench.wakes
    bench.children[0].up()
    bench.turn()
    assert bench.pool.ready
    assert bench.pool.free_slots == 1
    assert bench.wakes > woken


def test_recall_gives_back_all_that_was_not_received_in_order() -> None:
    bench = Bench(2)
    bench.pool.set_depth(300)
    jobs = bench.submit(300)
    began = {child.begin() for child in bench.children}
    back = bench.pool.recall()
    assert set(back) == set(jobs) - began
    assert bench.pool.busy == 2
    bench.pool.submit(back[0])
    for child in bench.children:
        child.run_all()
    bench.turn()
    assert set(bench.outcomes()) == began


# -- deaths ------------------------------------------------------------------------------------------------------------


def test_only_the_job_that_had_begun_is_lost_and_the_others_go_to_another_child_at_once() -> None:
    bench = Bench(2)
    bench.pool.set_depth(8)
    jobs = bench.submit(8)
    a, b = bench.children
    begun = a.begin()
    a.receive()  # received, and not begun
    a.die(signum=signal.SIGKILL)
    bench.turn()
    outcome = bench.outcomes()
    assert list(outcome) == [begun]
    lost = outcome[begun]
    assert isinstance(lost, ChildLost)
    assert (lost.cause, lost.signal, lost.exit_code, lost.counts) == ("signal", signal.SIGKILL, None, True)
    c = bench.children[-1]
    assert c not in (a, b)
    assert {job for _, job in (*b.inbox, *c.inbox)} == set(jobs) - {begun}
    for child in (b, c):
        child.run_all()
    bench.turn()
    assert set(bench.outcomes()) == set(jobs) - {begun}
    assert bench.pool.lost_by_cause() == {"signal": 1}
    assert bench.pool.statistics()["put_back"] == 3
    assert a.is_closed


@given(st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["receive", "begin", "end", "die"])), max_size=40))
def test_whenever_children_die_a_crash_is_that_of_the_job_that_had_begun_and_of_no_other(
    steps: list[tuple[int, str]],
) -> None:
    bench = Bench(2, prefetch=6)
    bench.pool.set_depth(12)
    jobs = bench.submit(12)
    begun: dict[int, Job] = {}
    expected: set[Job] = set()
    for number, step in steps:
        child = bench.children[number]
        running = begun.get(child.generation)
        if step == "receive" and child.inbox:
            child.receive()
        elif step == "begin" and running is None and (child.inbox or child.received):
            begun[child.generation] = child.begin()
        elif step == "end" and running is not None:
            child.end()
            del begun[child.generation]
        elif step == "die":
            child.die(signum=signal.SIGKILL)
            expected |= {running} if running is not None else set()
            bench.turn()
            bench.pass_time(60.0, 30.0)  # a row of crashes slows the starts down
    while sum(child.run_all() for child in bench.children):
        bench.turn()
    outcomes = bench.pool.finished()
    assert sorted(map(jobs.index, (job for job, _ in outcomes))) == list(range(12))
    lost = {job: outcome for job, outcome in outcomes if isinstance(outcome, ChildLost)}
    assert set(lost) == expected
    assert all(outcome.counts for outcome in lost.values())


def test_a_result_that_was_written_before_the_death_counts() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    child = bench.children[0]
    child.begin()
    child.end()
    child.die(signum=signal.SIGKILL)
    bench.turn()
    assert bench.outcomes() == {job: OK}
    assert bench.pool.lost_by_cause() == {}


def test_a_child_that_ends_its_process_in_a_job_loses_it_with_the_exit_code() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    bench.children[0].begin()
    bench.children[0].die(code=0, peak=300 << 20)
    bench.turn()
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost)
    assert (lost.cause, lost.exit_code) == ("exit", 0)
    assert (lost.rss_bytes, lost.peak_rss_bytes) == (None, 300 << 20)  # it has died before its first second was over


def test_a_start_is_reported_with_its_instant_also_of_a_job_that_its_child_did_not_survive() -> None:
    bench = Bench(1)
    bench.pool.set_depth(3)
    ended, lost, waiting = jobs = [bench.job(track_started=True) for _ in range(3)]
    for job in jobs:
        bench.pool.submit(job)
    bench.turn()
    (child,) = bench.children
    assert (bench.pool.finished(), bench.pool.started()) == ([], [])
    wakes = bench.wakes
    child.begin()
    bench.turn()
    assert bench.wakes == wakes + 1
    assert bench.pool.finished() == []
    assert (bench.pool.started(), ended.started_at) == ([ended], bench.clock.monotonic())
    child.end()
    child.begin()
    child.die(signum=signal.SIGKILL)
    bench.turn()
    assert set(bench.outcomes()) == {ended, lost}
    assert bench.pool.started() == [lost]
    assert waiting.started_at is None


def test_a_kernel_kill_for_memory_is_distinguished_from_a_signal(tmp_path: Any) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 0\noom_kill 4\n")
    bench = Bench(1, oom=OomCounter(events))
    (job,) = bench.submit(1)
    bench.children[0].begin()
    events.write_text("low 0\noom 1\noom_kill 5\n")
    bench.children[0].die(signum=signal.SIGKILL)
    bench.turn()
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost) and lost.cause == "oom"
    (second,) = bench.submit(1)
    bench.children[0].begin()
    bench.children[0].die(signum=signal.SIGKILL)
    bench.turn()
    lost = bench.outcomes()[second]
    assert isinstance(lost, ChildLost) and lost.cause == "signal"


def test_a_damaged_channel_ends_the_child_and_its_job() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    child = bench.children[0]
    child.begin()
    child.is_damaged = True
    bench.turn()
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost) and lost.cause == "channel"
    assert "checksum" in lost.detail
    assert bench.pool.ready


@pytest.mark.parametrize(
    "messages",
    [
        JobDone(999, JobSucceeded(b"1"), 0.0, 0.0),
        JobStarted(999, 0.0),
        JobStarted(1, 0.0),
        ChildUp(1, 1),
        ChildProgress("x"),
    ],
    ids=["done", "started", "started untracked", "up", "progress"],
)
def test_a_child_that_says_what_it_cannot_mean_is_ended_alone_with_one_line(
    messages: ChildMessage, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(2)
    jobs = bench.submit(2)
    liar, other = bench.children
    for child in (liar, other):
        child.begin()
    caplog.set_level(logging.INFO)
    for _ in range(100):
        liar.say(messages)
    bench.turn()
    assert (liar.is_alive, other.is_alive) == (False, True)
    other.end()
    bench.turn()
    outcomes = bench.outcomes()
    lost = outcomes[jobs[0]]
    assert isinstance(lost, ChildLost) and lost.cause == "channel"
    assert isinstance(outcomes[jobs[1]], JobSucceeded)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


def test_a_process_that_a_dead_child_left_behind_cannot_keep_the_parent_reading() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    (child,) = bench.children
    child.begin()
    said = 0

    def flood() -> list[ChildMessage]:
        nonlocal said
        said += 1
        assert said < 100
        return [JobDone(999, JobSucceeded(b"1"), 0.0, 0.0)]

    child.read_messages = flood  # type: ignore[method-assign]
    child.die(code=1)
    bench.turn()
    assert isinstance(bench.outcomes()[job], ChildLost)


def test_a_child_that_goes_on_talking_before_it_is_up_is_a_failed_start() -> None:
    def talk(child: FakeChild) -> None:
        for _ in range(MOST_PROGRESS + 1):
            child.say(ChildProgress("x" * 100_000))

    bench = Bench(1, plan=talk)
    bench.pass_time(0.5)
    assert "unexpected ChildProgress message" in bench.pool.supervision.breaker.last_error
    assert len(bench.pool.supervision.breaker.last_error) < 30_000


def test_a_child_that_closes_its_channel_and_lives_on_is_killed() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    child = bench.children[0]
    child.begin()
    child.messages_eof = True
    bench.turn()
    assert child.is_alive
    bench.pass_time(1.5)
    assert not child.is_alive
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost) and lost.cause == "channel"


def test_a_child_that_dies_while_idle_is_replaced_and_nothing_is_lost() -> None:
    bench = Bench(1)
    bench.children[0].die(signum=signal.SIGKILL)
    bench.turn()
    assert bench.pool.ready
    assert len(bench.launcher.children) == 2
    assert bench.pool.finished() == []


# -- limits ------------------------------------------------------------------------------------------------------------


def test_the_soft_limit_counts_from_the_start_of_the_job_and_is_repeated_each_second() -> None:
    bench = Bench(1)
    bench.submit(1, soft=2.0)
    child = bench.children[0]
    bench.pass_time(5)
    assert child.softened == []
    child.begin()
    bench.pass_time(1.5)
    assert child.softened == []
    bench.pass_time(3)
    assert child.softened == [1, 1, 1]  # the first may have come where nobody could catch what it raised
    child.end()
    bench.pass_time(5)
    assert len(child.softened) == 3
    assert bench.pool.statistics()["soft_limits"] == 1


def test_at_the_hard_limit_the_child_gets_sigterm_then_sigkill_and_the_job_has_failed() -> None:
    bench = Bench(1, kill_grace=3.0)
    bench.children[0].dies_of = {int(signal.SIGKILL)}
    (job,) = bench.submit(1, hard=2.0)
    child = bench.children[0]
    child.begin()
    bench.pass_time(2.5)
    assert child.signals == [signal.SIGTERM]
    assert bench.outcomes() == {}
    assert job.cancelled
    bench.pass_time(3)
    assert child.signals[:2] == [signal.SIGTERM, signal.SIGKILL]
    outcome = bench.outcomes()[job]
    assert isinstance(outcome, AttemptFailed)
    assert (outcome.error_info.type, outcome.listed, outcome.kill_signal) == ("TimeLimit", True, signal.SIGKILL)
    assert bench.pool.statistics()["hard_limits"] == 1
    assert bench.pool.ready
    assert bench.pool.lost_by_cause() == {"time": 1}


def test_a_job_that_fails_of_the_sigterm_has_failed_of_its_limit() -> None:
    bench = Bench(1)
    bench.children[0].dies_of = {int(signal.SIGKILL)}
    (job,) = bench.submit(1, hard=2.0)
    child = bench.children[0]
    child.begin()
    bench.pass_time(2.5)
    child.end(AttemptFailed(ErrorInfo("SystemExit", "")))
    bench.turn()
    outcome = bench.outcomes()[job]
    assert isinstance(outcome, AttemptFailed) and outcome.error_info.type == "TimeLimit"


def test_a_job_whose_result_is_being_written_has_ended_in_time() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1, hard=2.0)
    child = bench.children[0]
    child.begin()
    bench.pass_time(1.5)
    child.page.phase = int(ChildPhase.WRITING)
    bench.pass_time(3)
    child.end()
    bench.turn()
    assert bench.outcomes() == {job: OK}


def test_a_job_that_waits_behind_another_has_its_limit_from_its_own_start() -> None:
    bench = Bench(1)
    bench.pool.set_depth(2)
    first, second = bench.submit(1) + bench.submit(1, hard=1.0)
    child = bench.children[0]
    child.begin()
    bench.pass_time(5)
    child.end()
    child.begin()
    bench.pass_time(0.5)
    child.end()
    bench.turn()
    assert bench.outcomes() == {first: OK, second: OK}


def test_interrupt_reaches_running_jobs_through_flag_page_and_signal() -> None:
    bench = Bench(1)
    bench.pool.set_depth(2)
    jobs = bench.submit(2)
    child = bench.children[0]
    child.begin()
    bench.pool.interrupt()
    assert (jobs[0].cancelled, jobs[1].cancelled) == (True, False)
    assert child.page.cancelled == [1]
    assert child.softened == [1]
    bench.pass_time(1.5)
    assert child.softened == [1, 1]


def test_a_cancelled_job_that_no_child_has_received_never_runs() -> None:
    bench = Bench(1, prefetch=2)
    bench.pool.set_depth(3)
    running, sent, waiting = bench.submit(3)
    child = bench.children[0]
    child.begin()
    for job in (running, sent, waiting):
        bench.pool.cancel(job)
    assert child.page.cancelled == [1]
    child.end()
    child.run_all()
    bench.turn()
    assert bench.outcomes() == {running: OK, sent: LockLost(), waiting: LockLost()}
    assert bench.pool.busy == 0


def test_a_cancelled_job_that_a_child_has_received_and_not_begun_learns_it() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    (child,) = bench.children
    child.receive()
    ((seq, _),) = child.received
    bench.pool.cancel(job)
    assert child.page.cancelled == [seq]
    child.begin()
    child.end()
    bench.turn()
    assert bench.outcomes() == {job: OK}


def test_a_cancelled_job_that_comes_back_from_a_dead_child_never_runs() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    stopped = bench.children[0]
    stopped.receive()
    bench.launcher.stopped.add(stopped.pid)
    job.cancel()  # as the worker does, whose lock it was
    bench.pool.cancel(job)
    bench.pass_time(8)
    assert not stopped.is_alive
    assert bench.children[0].run_all() == 0
    assert bench.outcomes() == {job: LockLost()}
    assert bench.pool.busy == 0


def test_a_job_that_is_to_be_ended_takes_its_child_along_and_no_other_job() -> None:
    bench = Bench(1)
    bench.pool.set_depth(3)
    jobs = bench.submit(3)
    (child,) = bench.children
    child.begin()
    jobs[0].cancel()
    bench.pool.cancel(jobs[0])
    bench.pool.terminate(jobs[0])
    bench.turn()
    assert child.signals[0] == signal.SIGTERM
    outcome = bench.outcomes()[jobs[0]]
    assert isinstance(outcome, ChildLost)
    assert (outcome.cause, outcome.counts) == ("cancelled", True)
    (successor,) = bench.children
    assert successor.run_all() == 2
    bench.turn()
    assert bench.outcomes() == {jobs[1]: OK, jobs[2]: OK}
    assert bench.pool.lost_by_cause() == {"cancelled": 1}


def test_a_child_that_ignores_that_its_job_is_to_be_ended_is_killed_after_the_grace() -> None:
    bench = Bench(1, kill_grace=3.0)
    (job,) = bench.submit()
    (child,) = bench.children
    child.dies_of = {signal.SIGKILL}
    child.begin()
    bench.pool.cancel(job)
    bench.pool.terminate(job)
    bench.pool.terminate(job)
    bench.pass_time(2.5)
    assert child.signals == [signal.SIGTERM]
    bench.pass_time(1)
    assert child.signals[1] == signal.SIGKILL
    assert isinstance(bench.outcomes()[job], ChildLost)


def test_a_job_that_has_just_ended_when_it_is_to_be_ended_costs_no_child() -> None:
    bench = Bench(1)
    (job,) = bench.submit()
    (child,) = bench.children
    child.begin()
    child.end()
    bench.pool.cancel(job)
    bench.pool.terminate(job)
    bench.turn()
    assert (child.signals, bench.outcomes()) == ([], {job: OK})
    bench.pool.terminate(job)
    assert child.signals == []


def test_the_next_job_of_a_child_that_is_ended_for_the_last_one_is_not_to_blame() -> None:
    """The child has ended the cancelled job and begun another one before the signal came."""
    bench = Bench(1)
    bench.pool.set_depth(2)
    first, second = bench.submit(2)
    (child,) = bench.children
    child.dies_of = {signal.SIGKILL}
    child.begin()
    child.receive()
    first.cancel()
    bench.pool.cancel(first)
    bench.pool.terminate(first)
    child.end()
    child.begin()
    child.die(signum=signal.SIGTERM)
    bench.turn()
    found = bench.outcomes()
    lost = found.pop(second)
    assert found == {first: OK}
    assert isinstance(lost, ChildLost)
    assert not lost.counts


def test_a_job_that_a_child_has_received_and_not_begun_is_ended_with_it() -> None:
    bench = Bench(1)
    (job,) = bench.submit()
    (child,) = bench.children
    child.receive()
    job.cancel()
    bench.pool.cancel(job)
    bench.pool.terminate(job)
    bench.turn()
    assert child.signals[0] == signal.SIGTERM
    assert bench.outcomes() == {job: LockLost()}


def test_abandon_kills_what_runs_and_says_that_it_was_the_worker() -> None:
    bench = Bench(2)
    jobs = bench.submit(2)
    for child in bench.children:
        child.dies_of = {int(signal.SIGKILL)}
        child.begin()
    assert bench.pool.abandon() == []
    bench.turn()
    assert bench.outcomes() == {}
    bench.pass_time(1.5)
    outcomes = bench.outcomes()
    assert set(outcomes) == set(jobs)
    assert all(isinstance(o, ChildLost) and o.cause == "stopped" and not o.counts for o in outcomes.values())
    assert bench.children == []


def test_abandon_waits_for_no_grace_that_is_under_way() -> None:
    bench = Bench(1, kill_grace=300.0)
    (job,) = bench.submit(1, hard=5.0)
    (child,) = bench.children
    child.dies_of = {int(signal.SIGKILL)}
    child.begin()
    bench.pass_time(6)
    assert child.signals == [signal.SIGTERM]
    bench.pool.abandon()
    bench.pass_time(1.5)
    assert not child.is_alive
    assert isinstance(bench.outcomes()[job], AttemptFailed)


def test_an_error_in_one_exit_keeps_no_other_exit_from_being_seen(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(3)
    supervision = bench.pool.supervision
    on_exit = supervision.on_exit
    failed: list[ChildProcess] = []

    def fail_once(kept: ChildProcess, end: ExitStatus) -> None:
        if not failed:
            failed.append(kept)
            raise ValueError("not this time")
        on_exit(kept, end)

    setattr(supervision, "on_exit", fail_once)  # noqa: B010
    dead = bench.children
    for child in dead:
        child.die(signum=signal.SIGKILL)
    bench.pass_time(2)
    assert failed and "not this time" in caplog.text
    assert all(child.is_closed for child in dead)
    assert len(bench.children) == 3


def test_a_retired_child_has_its_time_to_flush_from_the_end_of_its_last_job() -> None:
    bench = Bench(1)
    bench.submit(1)
    (child,) = bench.children
    child.begin()
    (kept,) = bench.pool.supervision.children.values()
    bench.pool.supervision.retire(kept)
    bench.pass_time(4)
    child.is_retired = False  # its job ends, and it does not: it flushes
    child.end()
    bench.pass_time(4)
    assert child.is_alive
    bench.pass_time(2)
    assert not child.is_alive


def test_a_descriptor_that_is_no_pidfd_any_more_keeps_no_loop_busy() -> None:
    loop = Loop()
    readable, other = os.pipe()
    os.close(other)
    child: Any = FakeChild(1, loop.time)
    child.pidfd = readable
    kept = ChildProcess(child, loop.time(), None)
    bench = Bench(1)
    watch = Reaper({1: kept}, bench.pool.supervision, PoolDeadlines(loop), loop)
    watch.watch(kept)
    child.pidfd = None  # as when its fork server has died
    assert loop.run_once(0.0)
    loop.run_once(0.0)
    assert loop.run_once(0.0) == 0
    loop.close()
    os.close(readable)


def test_a_lost_job_does_not_report_the_memory_of_an_earlier_process() -> None:
    bench = Bench(1, kind=ForkPool)
    (child,) = bench.children
    bench.submit(1)
    child.begin()
    bench.pass_time(1.5)
    child.end()
    bench.turn()
    bench.outcomes()
    (job,) = bench.submit(1)
    child.begin()
    child.die(code=3)
    bench.turn()
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost)
    assert lost.rss_bytes is None


# -- stopped children --------------------------------------------------------------------------------------------------


def test_a_stopped_child_is_given_no_jobs_and_what_it_did_not_receive_goes_to_another() -> None:
    bench = Bench(2)
    a, b = bench.children
    jobs = bench.submit(2)
    bench.launcher.stopped.add(a.pid)
    bench.pass_time(1.5)
    assert not a.inbox
    b.run_all()
    bench.turn()
    b.run_all()
    bench.turn()
    assert set(bench.outcomes()) == set(jobs)
    assert {state.pid: state.state for state in bench.pool.children()}[a.pid] == "stopped"
    bench.launcher.stopped.clear()
    bench.pass_time(1.5)
    assert {state.pid: state.state for state in bench.pool.children()}[a.pid] == "idle"


def test_a_child_that_was_stopped_while_another_process_ran_its_job_is_seen_when_that_has_ended() -> None:
    bench = Bench(1, kind=ForkPool)
    (child,) = bench.children
    bench.submit(1)
    child.page.runner_pid = child.pid + 1  # a zombie afterwards, which the child does not reap
    child.begin()
    bench.launcher.stopped.add(child.pid)
    bench.pass_time(1.5)
    assert bench.pool.children()[0].state == "busy"
    child.end()
    bench.pass_time(1.5)
    assert bench.pool.children()[0].state == "stopped"


def test_a_stopped_child_whose_channel_was_full_is_given_jobs_again_when_it_is_continued() -> None:
    bench = Bench(1)
    bench.pool.set_depth(20)
    (child,) = bench.children
    child.capacity = 3
    bench.submit(5)
    assert len(child.inbox) == 3
    bench.launcher.stopped.add(child.pid)
    bench.pass_time(2)
    assert len(child.inbox) == 0
    bench.launcher.stopped.clear()
    bench.pass_time(2)
    assert len(child.inbox) == 3


def test_a_stopped_child_that_holds_a_job_which_it_did_not_begin_is_replaced() -> None:
    bench = Bench(1)
    (job,) = bench.submit(1)
    stopped = bench.children[0]
    stopped.receive()
    bench.launcher.stopped.add(stopped.pid)
    bench.pass_time(8)
    assert not stopped.is_alive
    bench.children[0].run_all()
    bench.turn()
    assert bench.outcomes() == {job: OK}


# -- starting ----------------------------------------------------------------------------------------------------------


def test_children_that_do_not_come_up_are_started_again_after_0_1_2_4_seconds() -> None:
    starts: list[int] = []

    def fail(child: FakeChild) -> None:
        starts.append(round(child._clock() - 1000))
        child.die(code=1)

    bench = Bench(1, plan=fail)
    bench.pass_time(300)
    assert starts[:11] == [0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_the_breaker_has_the_reason_and_a_child_that_starts_closes_it() -> None:
    bench = Bench(1, plan=lambda child: child.die(code=1), breaker_failures=4)
    assert bench.pool.degraded is None
    bench.pass_time(10)
    why = bench.pool.degraded
    assert why is not None and "child starts failed in a row" in why and "exit code 1" in why
    assert not bench.pool.ever_ready
    bench.launcher.plan = FakeChild.up
    bench.pass_time(70)
    assert bench.pool.degraded is None
    assert bench.pool.ready
    assert bench.pool.ever_ready


def test_a_system_that_refuses_processes_is_a_failed_start() -> None:
    def refuse(child: FakeChild) -> None:
        raise OSError("no more processes")

    bench = Bench(1, plan=refuse, breaker_failures=2)
    bench.pass_time(5)
    assert "no more processes" in str(bench.pool.degraded)


def test_a_child_that_is_not_up_in_time_is_killed_and_the_text_says_what_it_was_at() -> None:
    bench = Bench(1, plan=lambda child: child.say(ChildProgress("importing shop.tasks")), start_limit=10.0)
    bench.launcher.plan = FakeChild.up
    bench.pass_time(9)
    assert not bench.pool.ready
    bench.pass_time(2)
    assert bench.pool.ready
    why = bench.pool.supervision.breaker.last_error
    assert "did not start within 10 s" in why and "importing shop.tasks" in why


def test_what_a_failing_child_says_is_reported_once_and_the_last_failure_announces_no_next_try(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(child: FakeChild) -> None:
        child.say(ChildProgress("importing shop failed: ValueError: 2 errors\n  no module named shop\n"))
        child.die(code=69)

    with caplog.at_level(logging.INFO, "kafka.tasks.pools"):
        bench = Bench(1, plan=fail, breaker_failures=3)
        bench.pass_time(0.5)
        bench.pass_time(2)
    lines = [record.getMessage() for record in caplog.records if "no module named shop" in record.getMessage()]
    assert [text.partition("; next attempt ")[2] for text in lines[:3]] == ["now", "in 1 s", ""]
    assert all(text.startswith("child failed to start: exit code 69; ") for text in lines[:3])
    assert "ValueError: 2 errors no module named shop; next" in lines[0]
    assert "no module named shop" in str(bench.pool.degraded)
    assert "next attempt" not in str(bench.pool.degraded)


def test_what_a_slow_child_is_at_is_reported_while_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka.tasks.pools"):
        bench = Bench(1, plan=lambda child: child.say(ChildProgress("importing shop.tasks for 5 s")))
        bench.pass_time(2)
        (child,) = bench.children
        assert [record.getMessage() for record in caplog.records] == [
            f"child 1 (process {child.pid}): importing shop.tasks for 5 s"
        ]


def test_a_child_that_is_up_is_not_taken_for_slow_by_a_worker_that_is_late() -> None:
    bench = Bench(1, plan=lambda child: None, start_limit=10.0)
    (child,) = bench.children
    child.up()
    pass_time(bench.loop, bench.clock, 60.0, 60.0)  # the timers run, and nobody has read the messages
    bench.turn()
    assert child.is_alive
    assert bench.pool.ready


def test_a_child_of_another_release_is_refused() -> None:
    def start(child: FakeChild) -> None:
        child.say(ChildUp(child.pid, child.generation, "CPython 1.5.2, channel 1", "ours"))

    bench = Bench(1, plan=start)
    bench.pass_time(3)
    assert not bench.pool.ready
    assert "CPython 1.5.2" in bench.pool.supervision.breaker.last_error


def test_a_child_with_other_tasks_is_refused() -> None:
    bench = Bench(1, plan=lambda child: child.up("other"))
    bench.pass_time(3)
    assert not bench.pool.ready
    assert "restart the worker" in bench.pool.supervision.breaker.last_error


def test_a_refused_child_is_one_failed_start_and_no_other_is_tried_before_it_is_dead() -> None:
    def refused(child: FakeChild) -> None:
        child.dies_of = set()
        child.up("other")

    bench = Bench(1, plan=refused)
    for started in range(1, 4):
        bench.pass_time(5)
        assert len(bench.launcher.children) == started
        bench.children[0].die(signum=signal.SIGKILL)
        bench.turn()
        assert bench.pool.supervision.breaker.boot_failures == started


def test_a_thousand_crashes_in_a_row_slow_the_pool_down_and_degrade_it() -> None:
    bench = Bench(1)
    crashes = lost = 0
    started = bench.clock.monotonic()
    while crashes < 1000:
        if bench.pool.free_slots:
            bench.submit(1)
            bench.children[0].begin()
            bench.children[0].die(signum=signal.SIGSEGV)
            bench.turn()
            lost += sum(isinstance(outcome, ChildLost) for outcome in bench.outcomes().values())
            crashes += 1
        else:
            bench.pass_time(30, step=30)
    assert bench.clock.monotonic() - started > 900 * 59
    assert len(bench.launcher.children) <= 1002
    assert "died in a row" in str(bench.pool.degraded)
    assert lost == 1000
    bench.pass_time(61)
    assert bench.pool.degraded is None
    bench.submit(1)
    bench.children[0].run_all()
    bench.turn()
    assert bench.pool.supervision.breaker.crashes == 0


def test_a_few_crashes_are_answered_at_once() -> None:
    bench = Bench(1)
    for _ in range(10):
        bench.submit(1)
        bench.children[0].begin()
        bench.children[0].die(signum=signal.SIGSEGV)
        bench.turn()
        assert bench.pool.ready
        assert len(bench.outcomes()) == 1


# -- replacing ---------------------------------------------------------------------------------------------------------


def test_a_child_is_replaced_after_its_jobs_but_works_until_the_successor_is_up() -> None:
    bench = Bench(1, max_jobs_per_child=10)
    old = bench.children[0]
    bench.launcher.plan = lambda child: None
    count = 0
    while len(bench.launcher.children) == 1:
        bench.submit(1)
        count += old.run_all()
        bench.turn()
        bench.outcomes()
    assert 9 <= count <= 11
    while bench.pool.free_slots and count < 11:
        bench.submit(1)
        count += old.run_all()
        bench.turn()
        bench.outcomes()
    bench.submit(1)
    assert not old.inbox  # 11 is 10 and a tenth
    bench.launcher.children[1].up()
    bench.turn()
    assert not old.is_alive
    assert len(bench.launcher.children[1].inbox) == 1


def test_jitter_spreads_the_ends_of_children() -> None:
    bench = Bench(20, max_jobs_per_child=100)
    softs = {kept.quota.soft for kept in bench.pool.supervision.children.values() if kept.quota is not None}
    assert len(softs) > 5
    assert all(90 <= soft <= 110 for soft in softs)


def test_a_child_that_cannot_be_replaced_works_on() -> None:
    bench = Bench(1, max_jobs_per_child=1)
    old = bench.children[0]
    bench.launcher.plan = lambda child: child.die(code=1)
    for _ in range(5):
        bench.submit(1)
        assert old.run_all() == 1
        bench.turn()
        assert len(bench.outcomes()) == 1
    assert old.is_alive


def test_above_the_soft_memory_limit_a_child_is_replaced_after_its_job() -> None:
    bench = Bench(1, max_memory_soft=100 << 20)
    old = bench.children[0]
    (job,) = bench.submit(1)
    old.begin()
    bench.launcher.rss[old.pid] = 150 << 20
    bench.pass_time(1.5)
    assert len(bench.children) == 2
    assert old.is_retired
    old.end()
    bench.turn()
    assert bench.outcomes() == {job: OK}
    assert not old.is_alive
    assert len(bench.children) == 1


def test_a_child_that_has_had_no_job_is_not_replaced_for_its_memory_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(2, max_memory_soft=100 << 20)
    for child in bench.children:
        bench.launcher.rss[child.pid] = 150 << 20
    bench.pass_time(30)
    assert len(bench.launcher.children) == 2  # each successor would have held as much, and gone after a second
    said = [record.getMessage() for record in caplog.records if "before its first job" in record.getMessage()]
    assert said == [
        f"child 1 (process {bench.children[0].pid}) uses 150 MiB of memory before its first job, above max_memory_soft "
        "(100 MiB): each child will be replaced after its first job; raise SOFT of --max-memory-per-child"
    ]


def test_above_the_hard_memory_limit_a_child_is_killed_and_its_job_lost() -> None:
    bench = Bench(1, max_memory_soft=100 << 20, max_memory_hard=200 << 20)
    child = bench.children[0]
    (job,) = bench.submit(1)
    child.begin()
    bench.launcher.rss[child.pid] = 250 << 20
    bench.pass_time(1.5)
    lost = bench.outcomes()[job]
    assert isinstance(lost, ChildLost)
    assert (lost.cause, lost.signal, lost.rss_bytes) == ("memory", signal.SIGKILL, 250 << 20)
    assert "limit of 200 MiB" in lost.detail
    assert lost.counts
    assert bench.pool.ready


def test_what_the_last_job_has_left_in_memory_is_no_crash_of_the_next_one() -> None:
    bench = Bench(1, max_memory_hard=200 << 20)
    bench.pool.set_depth(2)
    child = bench.children[0]
    first, second = bench.submit(2)
    child.begin()
    bench.pass_time(0.5)
    bench.launcher.rss[child.pid] = 250 << 20
    child.end()
    child.begin()
    bench.turn()
    outcomes = bench.outcomes()
    lost = outcomes[second]
    assert outcomes[first] == OK
    assert isinstance(lost, ChildLost) and (lost.cause, lost.counts) == ("memory", False)


FRESH = "a new child uses 250 MiB, above max_memory_hard (200 MiB); raise HARD of --max-memory-per-child"


def test_fresh_children_above_the_hard_memory_limit_are_failed_starts_and_no_job_is_lost_with_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(2, plan=lambda child: None, max_memory_hard=200 << 20)

    def large(child: FakeChild) -> None:
        bench.launcher.rss[child.pid] = 250 << 20
        child.up("ours")

    bench.launcher.plan = large
    for child in bench.children:
        large(child)
    bench.turn()
    assert not bench.pool.ready and bench.pool.free_slots == 0
    assert f"child failed to start: {FRESH}; next attempt now" in caplog.text
    bench.pass_time(15)
    assert bench.pool.degraded is not None and FRESH in bench.pool.degraded
    assert not bench.pool.ever_ready  # so the worker ends with exit code 3
    assert len(bench.launcher.children) < 10
    bench.launcher.plan = FakeChild.up
    bench.pass_time(60)
    assert bench.pool.ready


def test_idle_children_that_grow_above_the_hard_memory_limit_by_themselves_are_replaced_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(1, max_memory_hard=200 << 20)
    for _ in range(600):
        for child in bench.children:
            bench.launcher.rss[child.pid] = 250 << 20
        bench.pass_time(1)
    assert len(bench.launcher.children) < 40
    assert FRESH in caplog.text


def test_a_death_is_logged_by_the_pool_when_no_job_is_lost_with_it_and_else_by_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench(1)
    idle = bench.children[0]
    idle.die(code=9)
    bench.turn()
    lines = [record.message for record in caplog.records if record.levelno >= logging.INFO]
    assert lines == [f"child 1 (process {idle.pid}) died: exit code 9"]
    bench.submit(1, hard=5)
    bench.children[0].begin()
    bench.pass_time(6)
    assert len(bench.outcomes()) == 1
    bench.submit(1)
    bench.children[0].begin()
    bench.children[0].die(code=9)
    bench.turn()
    assert [record.message for record in caplog.records if record.levelno >= logging.INFO] == lines


def test_the_pool_grows_and_shrinks_idle_children_first() -> None:
    bench = Bench(2)
    bench.pool.grow(2)
    bench.turn()
    assert bench.pool.concurrency == 4
    assert len(bench.children) == 4
    assert bench.pool.depth == 4
    jobs = bench.submit(2)
    busy = [child for child in bench.children if child.inbox]
    bench.pool.shrink(2)
    bench.turn()
    assert bench.children == busy
    bench.pool.shrink(5)
    assert bench.pool.concurrency == 1
    bench.turn()
    for _ in range(3):
        for child in bench.children:
            child.run_all()
        bench.turn()
    assert set(bench.outcomes()) == set(jobs)
    assert len(bench.children) == 1


def test_autoscale_follows_the_load() -> None:
    bench = Bench(1, autoscale=(1, 4))
    bench.pool.set_backlog(100)
    bench.submit(1)
    bench.children[0].begin()
    bench.pass_time(4.5)
    assert bench.pool.concurrency >= 2
    while bench.pool.free_slots:
        bench.submit(1)
    bench.pass_time(20)
    while bench.pool.free_slots:
        bench.submit(1)
    bench.pass_time(20)
    assert bench.pool.concurrency == 4
    bench.pool.set_backlog(0)
    for _ in range(8):
        for child in bench.children:
            child.run_all()
        bench.turn()
    bench.pass_time(200)
    assert bench.pool.concurrency == 1
    assert len(bench.children) == 1


def test_a_child_for_each_job_where_children_share_nothing() -> None:
    bench = Bench(2, kind=ForkPool, start_method="spawn")
    ran: list[FakeChild] = []
    for _ in range(10):
        jobs = bench.submit(2)
        for child in list(bench.children):
            if child.inbox:
                ran.append(child)
                assert child.run_all() == 1
        bench.turn()
        assert set(bench.outcomes()) == set(jobs)
    assert len(set(ran)) == 20
    assert len(bench.children) == 2


# -- telling and stopping ----------------------------------------------------------------------------------------------


def test_children_report_their_state() -> None:
    bench = Bench(2)
    (job,) = bench.submit(1)
    bench.children[0].begin()
    bench.pass_time(3)
    busy, idle = bench.pool.children()
    assert (busy.state, busy.job_id, busy.job_name, busy.age_s) == ("busy", job.envelope.id, "work", 3.0)
    assert busy.rss_bytes == 10 << 20
    assert (idle.state, idle.job_id, idle.age_s) == ("idle", None, None)


def test_write_stats_keep_their_words() -> None:
    bench = Bench(2)
    bench.pool.set_depth(4)
    bench.submit(4)
    bench.children[0].run_all()
    bench.turn()
    stats = bench.pool.human_write_stats()
    assert set(stats) == {"total", "avg", "all", "raw", "inqueues"}
    assert stats["inqueues"]["total"] == 2


def test_stop_ends_idle_children_and_gives_back_what_did_not_begin() -> None:
    bench = Bench(2)
    bench.pool.set_depth(6)
    jobs = bench.submit(6)
    assert set(bench.pool.stop(0)) == set(jobs)
    assert bench.children == []
    assert all(child.is_closed and child.swept for child in bench.launcher.children)
    assert bench.launcher.is_closed
    assert bench.pool.busy == 0


@pytest.mark.parametrize("state", ["booting", "up"])
def test_nothing_is_started_after_a_stop(state: str) -> None:
    bench = Bench(2, plan=FakeChild.up if state == "up" else lambda child: None)
    bench.pool.stop(0)
    count = len(bench.launcher.children)
    bench.pass_time(100, step=10)
    assert len(bench.launcher.children) == count
    assert bench.children == []

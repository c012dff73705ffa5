"""Tests of ``kafka.tasks.pools.child.soft_limit``: the soft limit is raised in user code, once, and nowhere else.

Where a signal is handled is chance in real life. Here a trace function stands for it: it calls the handler before the
n-th instruction of ours or of the task's in the run of a job, for every n there is.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

from kafka.tasks import App, SoftTimeLimit
from kafka.tasks.pools.child import process_setup, soft_limit
from kafka.tasks.pools.child.job_loop import ChildParameters, JobLoop
from kafka.tasks.pools.child.soft_limit import SOFT_SIGNAL, SoftLimitWindow
from kafka.tasks.pools.ipc.channel import ChildChannel, ParentChannel
from kafka.tasks.pools.ipc.processes import ChildPhase, JobDone
from kafka.tasks.pools.ipc.shared_page import SharedPage
from kafka.tasks.pools.job_logging import JobLogContext
from kafka.tasks.rules.outcome import AttemptFailed, JobSucceeded, Outcome
from test.tasks.pools.child_processes import a_call

APP = App("shop")
OURS = (__file__, os.path.dirname(os.path.dirname(soft_limit.__file__)))
"""Where instructions are counted: a traceback's text alone takes thousands elsewhere."""


@APP.task
def returns() -> str:
    found = "a"
    found += "b"
    return found


@APP.task
def raises() -> None:
    raise ValueError("its own")


@APP.task
def cleans_up() -> str:
    try:
        return "kept"
    finally:
        len("some cleaning")


class Stage:
    """A child's loop without the child: both ends of its channel are here."""

    def __init__(self) -> None:
        self.parent = ParentChannel(1, shared=True)
        self.ends = ChildChannel(1, self.parent.for_child, self.parent.page)
        self.page: SharedPage = self.parent.page
        self.window = SoftLimitWindow(self.page)
        self.job_loop = JobLoop(
            self.ends, APP, self.window, JobLogContext(), ChildParameters(os.getpid(), None, -1, 1024)
        )

    def run(
        self,
        seq: int,
        task: Any,
        strike_before: int | None = None,
        is_traced: bool = True,
        strike: Callable[[], object] | None = None,
    ) -> tuple[Outcome, int, bool, list[int]]:
        """Run one job. Strike before that instruction: outcome, instructions in all, whether it was struck, phases."""
        count = 0
        struck = False
        phases: list[int] = []

        def trace(frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
            nonlocal count, struck
            name = frame.f_code.co_filename
            if not name.startswith(OURS) or frame.f_code.co_name == "on_signal":
                return None  # the kernel does not interrupt a handler by its own signal either
            frame.f_trace_opcodes = True
            if event == "opcode":
                count += 1
                if count - 1 == strike_before:
                    if strike is None:
                        self.page.soft(seq)
                    phases.append(self.page.phase)
                    struck = True
                    try:
                        if strike is None:
                            self.window.on_signal(SOFT_SIGNAL, None)
                        else:
                            strike()
                    except BaseException:
                        sys.settrace(None)  # raising out of a trace function ends tracing anyway
                        raise
            return trace

        assert self.parent.send(seq, a_call(task))
        packet = self.ends.receive()
        assert packet is not None

        def serve() -> None:
            sys.settrace(trace)
            self.job_loop._run_one(packet)

        # In a thread of its own: an exception out of a trace function can leave the interpreter (3.11) with one that is
        # "being handled", for as long as the thread lives, and each later traceback would begin with that.
        if is_traced:
            with ThreadPoolExecutor(1) as thread:
                thread.submit(serve).result()
        else:
            self.job_loop._run_one(packet)
        messages = self.parent.read_messages()
        assert len(messages) == 1, "a job has one outcome"
        (done,) = messages
        assert isinstance(done, JobDone)
        assert done.seq == seq
        assert (self.page.phase, self.page.done_seq) == (ChildPhase.IDLE, seq)
        return done.outcome, count, struck, phases

    def close(self) -> None:
        self.ends.close()
        self.parent.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    before = len(process_setup.open_fds())
    stage = Stage()
    yield stage
    stage.close()
    assert len(process_setup.open_fds()) == before


def _is_soft(outcome: Outcome) -> bool:
    return isinstance(outcome, AttemptFailed) and outcome.error_info.type.endswith("SoftTimeLimit")


@pytest.mark.parametrize("task", [returns, raises, cleans_up], ids=lambda task: str(task.function.__name__))
def test_wherever_the_signal_is_handled_a_job_has_one_whole_outcome_and_the_next_is_not_struck(
    stage: Stage, task: Any
) -> None:
    own, _, _, _ = stage.run(1, task)
    assert not _is_soft(own)
    struck_in: set[int] = set()
    untouched_in: set[int] = set()
    seq = 1
    for at in itertools.count():
        seq += 1
        outcome, _, struck, phases = stage.run(seq, task, at)
        if not struck:
            assert at > 100
            break
        if _is_soft(outcome):
            struck_in.update(phases)
        else:
            assert outcome.error_info.text == "its own" if isinstance(outcome, AttemptFailed) else outcome == own
            untouched_in.update(phases)
        seq += 1
        following = stage.run(seq, returns, is_traced=False)[0]
        assert following == JobSucceeded(b'"ab"')
    assert ChildPhase.USER_CODE in struck_in  # and IDLE: too early, so it is raised as the window opens
    assert ChildPhase.WRITING not in struck_in, "the limit was raised while the result was written"
    assert ChildPhase.WRITING in untouched_in


class Struck(BaseException):
    """By the handler of an alarm that the task has armed."""


class Alarm:
    """The timer of a process, and a task's handler that raises."""

    def __init__(self) -> None:
        self.is_armed = False

    def disarm(self, seconds: int) -> None:
        self.is_armed = False

    def strike(self) -> None:
        if self.is_armed:
            self.is_armed = False
            raise Struck


alarm = Alarm()


@APP.task
def arms() -> str:
    alarm.is_armed = True
    return "kept"


@APP.task
def arms_and_raises() -> str:
    alarm.is_armed = True
    raise ValueError("its own")


@pytest.mark.parametrize("task", [arms, arms_and_raises], ids=lambda task: str(task.function.__name__))
def test_wherever_an_alarm_strikes_that_the_task_has_left_armed_the_job_has_one_whole_outcome(
    stage: Stage, task: Any
) -> None:
    stage.window.disarm = alarm.disarm
    own = stage.run(1, task)[0]
    others = 0
    for at in itertools.count():
        outcome, _, struck, phases = stage.run(2 + at, task, at, strike=alarm.strike)
        if not struck:
            break
        assert not alarm.is_armed
        if outcome != own and isinstance(outcome, AttemptFailed) and outcome.error_info.type.endswith("Struck"):
            others += 1
            assert phases == [ChildPhase.USER_CODE]
        elif isinstance(own, JobSucceeded):
            assert outcome == own
        else:
            assert isinstance(outcome, AttemptFailed) and outcome.error_info.text == "its own"
    assert others > 1
    assert stage.run(1000, returns, is_traced=False)[0] == JobSucceeded(b'"ab"')


def test_a_limit_that_passed_before_the_code_began_is_raised_as_it_begins(stage: Stage) -> None:
    stage.page.soft(3)
    outcome, _, _, _ = stage.run(3, returns)
    assert _is_soft(outcome)


def test_a_signal_for_another_job_is_nothing(stage: Stage) -> None:
    stage.page.soft(2)
    for seq in (1, 3):
        outcome, _, _, _ = stage.run(seq, returns)
        assert outcome == JobSucceeded(b'"ab"')


def test_one_job_is_struck_once() -> None:
    page = SharedPage()
    window = SoftLimitWindow(page)
    window.set_job(5)
    window.open()
    page.soft(5)
    with pytest.raises(SoftTimeLimit):
        window.on_signal(SOFT_SIGNAL, None)
    window.on_signal(SOFT_SIGNAL, None)
    window.close()
    window.on_signal(SOFT_SIGNAL, None)
    page.close()


def test_nothing_is_raised_in_a_loop_that_a_task_runs_itself_between_two_callbacks() -> None:
    """The one that the loop has just taken would be lost, and ``asyncio.run`` wait for its task for ever."""
    page = SharedPage()
    window = SoftLimitWindow(page)
    window.set_job(5)
    window.open()
    page.soft(5)
    turn = asyncio.BaseEventLoop._run_once.__code__
    points = 0

    def look(frame: FrameType, event: str, _: Any) -> None:
        nonlocal points
        if frame.f_code is turn and event in ("call", "c_return"):
            points += 1
            window.on_signal(SOFT_SIGNAL, frame)

    async def turns() -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return "done"

    sys.setprofile(look)
    try:
        assert asyncio.run(turns()) == "done"
    finally:
        sys.setprofile(None)
    assert points > 10
    with pytest.raises(SoftTimeLimit):
        window.on_signal(SOFT_SIGNAL, sys._getframe())
    page.close()


def test_an_idle_child_takes_no_notice() -> None:
    page = SharedPage()
    page.soft(5)
    SoftLimitWindow(page).on_signal(SOFT_SIGNAL, None)
    page.close()


def test_the_signal_interrupts_no_call_of_libraries_that_do_not_retry() -> None:
    page = SharedPage()
    former = signal.getsignal(SOFT_SIGNAL)
    try:
        SoftLimitWindow(page).install()
        assert callable(signal.getsignal(SOFT_SIGNAL))
    finally:
        signal.signal(SOFT_SIGNAL, former)
        page.close()

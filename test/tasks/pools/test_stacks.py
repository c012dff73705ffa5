"""Tests of ``kafka.tasks.pools.parent.stacks``: stacks of children come one after the other, each as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.tasks.pools.child.stack_writer import END
from kafka.tasks.pools.ipc.processes import ChildPhase
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.deadlines import PoolDeadlines
from kafka.tasks.pools.parent.stacks import CHECK_S, QUIET_S, SILENT_S, StackDumper, stacks_file
from test.tasks.fakes import pass_time
from test.tasks.pools.fake_children import FakeChild


class Desk:
    """Stacks of fake children, who write when the test says so."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.clock = ManualClock(1000.0)
        self.loop = Loop.simulated(self.clock)
        self.stacks = StackDumper(fd, PoolDeadlines(self.loop))

    def child(self, generation: int) -> ChildProcess:
        child = FakeChild(generation, self.clock.monotonic)
        child.page.phase = int(ChildPhase.IDLE)
        return ChildProcess(child, 0.0, None)

    def writes(self, text: bytes) -> None:
        os.write(self.fd, text)
        self.passes(CHECK_S)

    def passes(self, seconds: float) -> None:
        pass_time(self.loop, self.clock, seconds, CHECK_S)


@pytest.fixture
def desk() -> Iterator[Desk]:
    fd = stacks_file()
    yield Desk(fd)
    os.close(fd)


def dumps(*children: ChildProcess) -> list[int]:
    return [child.handle.dumps for child in children]  # type: ignore[attr-defined]


def test_the_next_child_is_asked_when_the_one_before_has_written_all(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = desk.child(1), desk.child(2)
    desk.stacks.request_dumps([one, two])
    desk.writes(b"Thread 1:\n  one begins\n")
    assert (dumps(one, two), caplog.messages) == ([1, 0], [])
    desk.writes(b"  one ends\n" + END)
    assert caplog.messages == [f"stacks of {one}:\nThread 1:\n  one begins\n  one ends"]
    desk.writes(b"Thread 1:\n  two\n" + END)
    assert caplog.messages[1:] == [f"stacks of {two}:\nThread 1:\n  two"]
    desk.passes(SILENT_S)
    assert (dumps(one, two), len(caplog.messages)) == ([1, 1], 2)


def test_one_in_c_code_writes_no_end_and_is_logged_when_nothing_more_comes(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk.child(1)
    desk.stacks.request_dumps([one])
    desk.writes(b"first")
    desk.passes(QUIET_S - 2 * CHECK_S)
    desk.writes(b" and last")
    desk.passes(QUIET_S - 2 * CHECK_S)
    assert caplog.messages == []
    desk.passes(2 * CHECK_S)
    assert caplog.messages == [f"stacks of {one}:\nfirst and last"]


def test_one_that_is_silent_starting_or_gone_does_not_hold_up_the_others(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    booting, silent, gone, last = (desk.child(number) for number in range(4))
    booting.handle.page.phase = int(ChildPhase.BOOTING)  # type: ignore[misc]
    gone.stage = ChildStage.GONE
    desk.stacks.request_dumps([booting, silent, gone, last])
    desk.passes(SILENT_S - 2 * CHECK_S)
    assert caplog.messages == [f"no stacks of {booting}: it is still starting"]
    desk.passes(4 * CHECK_S)
    desk.writes(b"here" + END)
    assert [message.partition(":")[0] for message in caplog.messages[1:]] == [
        f"no stacks of {silent}",
        f"no stacks of {gone}",
        f"stacks of {last}",
    ]


def test_one_that_is_in_the_line_is_not_asked_again(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    one, two = desk.child(1), desk.child(2)
    for _ in range(3):
        desk.stacks.request_dumps([one, two])
    desk.writes(b"one" + END)
    desk.writes(b"two" + END)
    assert (dumps(one, two), len(caplog.messages)) == ([1, 1], 2)
    desk.stacks.request_dumps([one])
    desk.writes(b"again" + END)
    assert caplog.messages[2] == f"stacks of {one}:\nagain"

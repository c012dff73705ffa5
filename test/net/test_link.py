"""One direction of a connection in memory, without the network around it."""

from __future__ import annotations

import pytest

from kafka.net.loop import Loop
from kafka.net.memory import WINDOW_BYTES, LinkConditions, Pipe


class End:
    """Where the pipe leads: takes what comes while it ``wants``."""

    def __init__(self) -> None:
        self.wants = True
        self.seen: list[object] = []
        self.pending: list[int] = []

    def may_receive(self) -> bool:
        return self.wants

    def call_handler(self, method: str, *args: bytes) -> None:
        self.seen.extend(args)

    def set_writers_pending(self, count: int) -> None:
        self.pending.append(count)

    def end(self, error: BaseException | None) -> None:
        self.seen.append(error)


@pytest.fixture
def pipe():
    return Pipe(Loop.simulated(), End())


def test_delay_is_a_number_or_a_function_of_the_size():
    assert LinkConditions(delay_s=0.5).delay_of(100) == 0.5
    assert LinkConditions(delay_s=lambda count: count / 10).delay_of(5) == 0.5


def test_end_comes_after_the_bytes_whatever_the_delays(pipe):
    pipe.link = LinkConditions(delay_s=lambda count: 1.0 if count else 0.0)
    error = ConnectionResetError()
    pipe.send(b"last")
    pipe.end(error)
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == [b"last", error]


def test_nothing_arrives_after_it_was_shut(pipe):
    pipe.send(b"under way")
    pipe.shut()
    pipe.send(b"late")
    pipe.end(ConnectionResetError())
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == []


def test_writer_is_told_of_what_exceeds_the_window(pipe):
    pipe.send(bytes(WINDOW_BYTES))
    pipe.send(bytes(5))
    pipe._loop.run_until(lambda: False)
    assert pipe._target.pending == [0, 5, 0]


def test_bytes_wait_for_a_target_that_wants_them(pipe):
    pipe._target.wants = False
    pipe.send(b"patience")
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == []
    pipe._target.wants = True
    pipe.arm()
    pipe._loop.run_until(lambda: False)
    assert pipe._target.seen == [b"patience"]

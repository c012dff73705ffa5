"""The wakeup pipe."""

from __future__ import annotations

import select
import threading

import pytest

from kafka.net.loop import WakeupPipe


@pytest.fixture
def pipe():
    pipe = WakeupPipe()
    yield pipe
    pipe.close()


def _is_readable(pipe: WakeupPipe) -> bool:
    return bool(select.select([pipe], [], [], 0)[0])


def test_thousand_wakeups_put_one_byte_in_flight(pipe):
    assert pipe.may_sleep()
    for _ in range(1000):
        pipe.wake()
    assert pipe.in_flight_bytes == 1
    pipe.awoke()
    assert pipe.in_flight_bytes == 0


def test_thousand_wakeups_from_many_threads_put_one_byte_in_flight(pipe):
    assert pipe.may_sleep()
    barrier = threading.Barrier(8)

    def wake() -> None:
        barrier.wait(30)
        for _ in range(125):
            pipe.wake()

    threads = [threading.Thread(target=wake) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert pipe.in_flight_bytes == 1


def test_loop_that_is_awake_is_told_without_a_byte(pipe):
    pipe.wake()
    assert pipe.in_flight_bytes == 0
    assert not pipe.may_sleep()
    pipe.awoke()
    assert pipe.may_sleep()


def test_each_sleep_can_be_ended_anew(pipe):
    for _ in range(3):
        assert pipe.may_sleep()
        assert not _is_readable(pipe)
        pipe.wake()
        assert _is_readable(pipe)
        pipe.awoke()


def test_full_pipe_is_no_error_and_is_drained_whole(pipe):
    with pytest.raises(BlockingIOError):
        while True:
            pipe._writer.send(b"x" * 4096)
    assert pipe.may_sleep()
    pipe.wake()
    pipe.awoke()
    assert not _is_readable(pipe)


def test_wakeup_after_close_does_nothing(pipe):
    pipe.close()
    pipe.wake()


def test_descriptors_are_not_inherited(pipe):
    assert not pipe._reader.get_inheritable()
    assert not pipe._writer.get_inheritable()


def test_a_signal_handler_may_wake_the_loop_that_it_broke_into(pipe: WakeupPipe) -> None:
    def interrupted() -> None:
        with pipe._lock:  # as inside may_sleep(), when a signal's handler runs
            pipe.wake()

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert not pipe.may_sleep()

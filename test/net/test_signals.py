"""Signals as events of the loop."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from kafka.net.loop import Loop

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals that one can send to oneself")


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


def test_signal_becomes_a_callback_on_the_loop(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1, signal.SIGUSR2)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == []
        assert loop.run_until(lambda: seen, 10)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert loop.run_until(lambda: len(seen) == 2, 10)
        assert seen == [signal.SIGUSR1, signal.SIGUSR2]
    finally:
        watch.close()


def test_signal_ends_the_loops_sleep(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGALRM)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        assert loop.run_until(lambda: seen, 10)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        watch.close()


def test_close_puts_the_former_handlers_back(loop):
    former = signal.getsignal(signal.SIGUSR1)
    watch = loop.watch_signals(lambda signum: None, signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) != former
    watch.close()
    watch.close()
    assert signal.getsignal(signal.SIGUSR1) == former
    assert signal.set_wakeup_fd(-1) == -1


def test_second_owner_of_the_wakeup_fd_is_refused_and_the_first_goes_on(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1)
    try:
        with pytest.raises(RuntimeError, match="watched already"):
            loop.watch_signals(lambda signum: None, signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert loop.run_until(lambda: seen, 10)
    finally:
        watch.close()


def test_other_threads_than_the_main_one_are_refused(loop):
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            loop.watch_signals(lambda signum: None, signal.SIGUSR1)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join(30)
    assert "main thread" in str(errors[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_has_the_former_handlers_and_tells_the_parent_nothing(loop):
    seen: list[int] = []
    watch = loop.watch_signals(seen.append, signal.SIGUSR1)
    try:
        child = os.fork()
        if child == 0:
            restored = signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
            os._exit(0 if restored else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        os.kill(os.getpid(), signal.SIGUSR1)
        assert loop.run_until(lambda: seen, 10)
        assert seen == [signal.SIGUSR1]
    finally:
        watch.close()

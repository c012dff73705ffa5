"""The future between threads, forks and signal handlers."""

from __future__ import annotations

import os
import threading
from math import inf

import pytest

from kafka import future as module
from kafka.future import Future


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_while_another_thread_completes_a_future_can_complete_its_own() -> None:
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with module._completion:
            held.set()
            free.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    child = os.fork()
    if not child:
        done = threading.Thread(target=lambda: Future[int]().success(1), daemon=True)
        done.start()
        done.join(30)
        os._exit(int(done.is_alive()))
    free.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_signal_handler_may_complete_a_future_while_another_is_being_completed() -> None:
    def interrupted() -> None:
        with module._completion:
            Future[int]().success(1)

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def test_an_endless_wait_is_a_wait() -> None:
    future: Future[int] = Future()
    timer = threading.Timer(0.01, future.success, [1])
    timer.start()
    assert future.wait(inf)

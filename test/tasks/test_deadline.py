"""Tests of ``kafka.tasks.deadline``."""

from __future__ import annotations

import threading

import pytest

from kafka.tasks import deadline as module
from kafka.tasks.deadline import Deadline, run_in_thread


def test_a_deadline_says_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    deadline = Deadline(3.0)
    assert (deadline.left_s(), deadline.timeout_s) == (3.0, 3.0)
    now[0] = 102.5
    assert deadline.left_s() == 0.5
    now[0] = 200.0
    assert deadline.left_s() == 0.0
    assert Deadline(None).left_s() is None


def test_what_runs_in_a_thread_returns_or_raises_to_all_that_wait() -> None:
    go_on = threading.Event()
    future = run_in_thread("kafka-test", lambda: (go_on.wait(10), threading.current_thread().name, 7))
    assert not future.wait(0)
    go_on.set()
    assert future.wait(10) and future.wait(10)
    assert future.result() == (True, "kafka-test", 7)
    failed = run_in_thread("kafka-test", lambda: int("x"))
    assert failed.wait(10)
    with pytest.raises(ValueError, match="invalid literal"):
        failed.result()

"""Tests of ``kafka.tasks.results.waiters``."""

from __future__ import annotations

import logging

import pytest

from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord
from kafka.tasks.results.waiters import JobWaiters
from kafka.tasks.states import JobState

ONE, TWO = make_id(1, 5, b"\1" * 8), make_id(1, 6, b"\2" * 8)
RECORDS = {ONE: StateRecord(ONE, JobState.SUCCESS), TWO: StateRecord(TWO, JobState.FAILURE)}


def test_all_callbacks_of_a_job_are_called_once_with_its_record() -> None:
    waiters = JobWaiters()
    calls: list[tuple[str, StateRecord | None]] = []
    waiters.add(ONE, lambda record: calls.append(("a", record)))
    waiters.add(ONE, lambda record: calls.append(("b", record)))
    waiters.add(TWO, lambda record: calls.append(("c", record)))
    for _ in range(2):
        waiters.end([ONE, ONE, "unknown"], RECORDS.get)
    assert calls == [("a", RECORDS[ONE]), ("b", RECORDS[ONE])]
    assert (ONE in waiters, TWO in waiters, bool(waiters)) == (False, True, True)
    waiters.end_all()
    assert calls[2:] == [("c", None)]
    assert not waiters


def test_a_callback_that_was_removed_is_not_called() -> None:
    waiters = JobWaiters()
    calls: list[StateRecord | None] = []
    waiters.add(ONE, calls.append)
    waiters.remove(ONE, print)
    assert ONE in waiters
    waiters.remove(ONE, calls.append)
    waiters.remove(ONE, calls.append)
    waiters.end([ONE], RECORDS.get)
    assert calls == []
    assert ONE not in waiters


def test_a_callback_that_fails_is_logged_and_keeps_no_other_from_being_called(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters = JobWaiters()
    calls: list[StateRecord | None] = []

    def fail(_: StateRecord | None) -> None:
        raise ValueError("no")

    waiters.add(ONE, fail)
    waiters.add(ONE, calls.append)
    with caplog.at_level(logging.ERROR):
        waiters.end([ONE], RECORDS.get)
    assert calls == [RECORDS[ONE]]
    assert [record.getMessage() for record in caplog.records] == [f"the callback of a waiter for job {ONE} failed"]


def test_something_is_done_only_while_no_job_of_a_partition_is_waited_for() -> None:
    waiters = JobWaiters()
    done: list[str] = []
    waiters.add(ONE, print)
    assert not waiters.run_if_none(5, lambda: done.append("5"))
    assert waiters.run_if_none(6, lambda: done.append("6"))
    assert done == ["6"]

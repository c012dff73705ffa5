"""Tests of ``kafka.tasks.app_schedule``: ``app.schedule``, over a schedule in memory.

The promises are those of docs/schedule.rst, "Periodic jobs" and "At run time".
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks import App, Task, TaskError
from kafka.tasks.errors import TaskInMain
from kafka.tasks.testing import FakeClock, TestingJobs

START = datetime(2026, 3, 1, tzinfo=timezone.utc)
ODD_NAMES = ["ein name", "ö", "a/b", "x" * 100, "@", "entry:e", "declared"]


class Shop:
    def __init__(self) -> None:
        self.app = App("shop", bootstrap_servers="127.0.0.1:1")
        self.ran: list[str] = []

        @self.app.task(name="note")
        def note(text: str = "") -> None:
            self.ran.append(text)

        self.note: Task[..., None] = note


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def jobs(shop: Shop) -> Iterator[TestingJobs]:
    with shop.app.testing(FakeClock(START)) as running:
        yield running


@pytest.mark.parametrize("name", ODD_NAMES)
def test_an_entry_of_any_name_is_listed_paused_run_and_removed(shop: Shop, jobs: TestingJobs, name: str) -> None:
    schedule = shop.app.schedule
    assert schedule.add(name, shop.note, every=60, args=("slot",)) == START + timedelta(minutes=1)
    assert [entry.name for entry in schedule.list()] == [name]
    schedule.pause(name)
    assert schedule.list()[0].is_paused
    schedule.run_now(name)
    assert jobs.advance(120) == 1
    assert schedule.resume(name) == START + timedelta(minutes=3)
    schedule.remove(name)
    assert schedule.list() == []


def test_thousands_of_entries_are_listed(shop: Shop, jobs: TestingJobs) -> None:
    names = [f"{number:04}" for number in range(1000)]
    for name in reversed(names):
        shop.app.schedule.add(name, shop.note, "@daily")
    assert [entry.name for entry in shop.app.schedule.list()] == names


def test_an_entry_says_its_next_times(shop: Shop, jobs: TestingJobs) -> None:
    anchor = datetime(2026, 1, 1, 0, 0, 0, 123_000, timezone.utc)
    shop.app.schedule.add("e", shop.note, every=0.1 + 1, anchor=anchor)
    shop.app.schedule.add("last", shop.note, every=timedelta(days=36_500))
    entry, last = shop.app.schedule.list()
    times = list(entry.upcoming(2000))
    assert {later - earlier for earlier, later in pairwise(times)} == {timedelta(seconds=1.1)}
    assert len(list(last.upcoming(1000))) == 80, "up to the year 9999"


def test_an_entry_that_never_runs_again_has_no_next_time(shop: Shop, jobs: TestingJobs) -> None:
    shop.app.schedule.add("e", shop.note, "0 0 1 1 *")
    (entry,) = shop.app.schedule.list()
    assert entry.next == datetime(2027, 1, 1, tzinfo=timezone.utc)
    shop.app.schedule.pause("e")
    (entry,) = shop.app.schedule.list()
    assert (entry.next, list(entry.upcoming(3))) == (None, [])


def test_a_task_of_main_is_refused_as_it_is_for_a_single_call() -> None:
    app = App("shop", bootstrap_servers="127.0.0.1:1")

    def report() -> None: ...

    report.__module__, report.__qualname__ = "__main__", "report"
    task = app.task(report)
    with pytest.raises(TaskInMain):
        app.schedule.add("e", task, every=60)


def test_what_cannot_be_is_said_where_it_is_written(shop: Shop, jobs: TestingJobs) -> None:
    schedule = shop.app.schedule
    with pytest.raises(IllegalArgumentError, match="or its name, not 'nothing'"):
        schedule.add("e", "nothing", every=60)
    with pytest.raises(IllegalArgumentError, match="one of them"):
        schedule.add("e", shop.note)
    with pytest.raises(IllegalArgumentError, match="name"):
        schedule.add("", shop.note, every=60)
    for change in (schedule.remove, schedule.pause, schedule.resume, schedule.run_now):
        with pytest.raises(TaskError, match="no periodic entry 'e'"):
            change("e")

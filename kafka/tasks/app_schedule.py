"""``app.schedule``: periodic entries at run time.

What the code declares (``@app.periodic``) can be paused, resumed and run; what was added here can be changed and
removed, too, and is kept like a job. All calls are answered by the owner of the entry's partition, and raise
:class:`kafka.tasks.JobTimeout` when there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.errors import IllegalArgumentError
from kafka.tasks.errors import TaskError
from kafka.tasks.format.commands import ADD, LIST, PAUSE, REMOVE, RESUME, RUN
from kafka.tasks.job import JobHandle
from kafka.tasks.periodic import define_entry, read_times
from kafka.tasks.requests import ask
from kafka.tasks.schedule.times import times_of
from kafka.tasks.settings import Seconds, optional_timeout
from kafka.tasks.start_time import LAST_MS, as_datetime, instant_ms
from kafka.tasks.task import Task

if TYPE_CHECKING:
    from kafka.tasks.app import App
    from kafka.tasks.backends.base import Backend

ANSWER_TIMEOUT_S = 10.0
"""How long a call waits for an owner of the schedule, unless the caller says otherwise."""


class PeriodicEntry(NamedTuple):
    """A periodic entry as it is now. ``times``: in words; ``source``: ``declared`` by code, or ``added`` at run time;
    ``passed``: its last time that is done with, ``next``: None while it is paused, and when it never runs again."""

    name: str
    task: str
    queue: str
    times: str
    missed: str
    source: str
    is_paused: bool
    passed: datetime
    next: datetime | None
    spec: Mapping[str, Any]

    def upcoming(self, count: int) -> Iterator[datetime]:
        """Its next times, at most so many, up to the year 9999."""
        times = times_of(self.spec)
        ms = None if self.next is None else instant_ms("next", self.next)
        for _ in range(count):
            if ms is None or ms > LAST_MS:
                return
            yield as_datetime(ms)
            ms = times.next_after(ms)


class Schedule:
    """See :attr:`kafka.tasks.App.schedule`. Calls block until an owner has answered, for ``timeout`` seconds at
    most."""

    def __init__(self, app: App) -> None:
        self._app = app

    def add(
        self,
        name: str,
        task: Task[..., Any] | str,
        cron: str | None = None,
        *,
        every: Seconds | None = None,
        anchor: datetime | None = None,
        tz: str | None = None,
        missed: str = "skip",
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        timeout: Seconds | None = ANSWER_TIMEOUT_S,
        **options: Any,
    ) -> datetime | None:
        """Add an entry, or change the one of this name that was added before; returns its next time.

        Times and ``missed`` as of :meth:`kafka.tasks.App.periodic`, ``options`` as of :meth:`kafka.tasks.Task.using`.
        :class:`kafka.tasks.TaskError` when the code declares an entry of this name, or no worker could run the task.
        """
        found = self._app.find_task(task) if isinstance(task, str) else task
        if not isinstance(found, Task) or found.app is not self._app:
            raise IllegalArgumentError(f"add() takes a task of the app {self._app.name!r}, or its name, not {task!r}")
        times = read_times(cron, every, anchor, tz)
        definition = define_entry(name, times, missed, found.using(**options), args, kwargs)
        definition = definition._replace(is_ordered=definition.queue in self._app.ordered_queues)
        found.check_call(tuple(args), dict(kwargs or {}))
        self._app.open_route(definition.queue)
        answer = self._ask(ADD, name, timeout, body=definition.to_bytes())
        return _when(answer.get("next"))

    def remove(self, name: str, *, timeout: Seconds | None = ANSWER_TIMEOUT_S) -> None:
        """Remove an entry that was added; :class:`kafka.tasks.TaskError` for one that there is not, or that the code
        declares."""
        self._ask(REMOVE, name, timeout)

    def pause(self, name: str, *, timeout: Seconds | None = ANSWER_TIMEOUT_S) -> None:
        """Make no jobs until it is resumed; times that pass meanwhile count as done."""
        self._ask(PAUSE, name, timeout)

    def resume(self, name: str, *, timeout: Seconds | None = ANSWER_TIMEOUT_S) -> datetime | None:
        """Make jobs again; returns the next time."""
        return _when(self._ask(RESUME, name, timeout).get("next"))

    def run_now(self, name: str, *, timeout: Seconds | None = ANSWER_TIMEOUT_S) -> JobHandle[Any]:
        """Make one job now, beside those of its times, also while it is paused."""
        return self._app.job(self._ask(RUN, name, timeout)["job"])

    def list(self, *, timeout: Seconds | None = ANSWER_TIMEOUT_S) -> list[PeriodicEntry]:
        """All entries by name."""
        backend, seconds = self._app.backend(), optional_timeout("timeout", timeout)
        found = [
            _entry(row)
            for partition in range(backend.schedule_partitions())
            for row in _rows(backend, partition, seconds)
        ]
        return sorted(found)

    def _ask(self, kind: str, name: str, timeout: Seconds | None, body: bytes = b"") -> dict[str, Any]:
        backend, seconds = self._app.backend(), optional_timeout("timeout", timeout)
        answer = ask(backend, kind, name, seconds, body=body)
        if "error" in answer:
            raise TaskError(answer["error"])
        return answer


def _rows(backend: Backend, partition: int, timeout: float | None) -> Iterator[dict[str, Any]]:
    """The entries of a partition; an answer has room for some hundred."""
    last = ""
    while True:
        answer = ask(backend, LIST, last, timeout, partition=partition)
        rows = answer["entries"]
        yield from rows
        if not answer.get("left_out"):
            return
        last = rows[-1]["name"]


def _entry(row: Mapping[str, Any]) -> PeriodicEntry:
    passed = _when(row["passed"])
    assert passed is not None
    return PeriodicEntry(
        row["name"],
        row["task"],
        row["queue"],
        _times_text(row["times"]),
        row["missed"],
        row["source"],
        row["paused"],
        passed,
        _when(row["next"]),
        row["times"],
    )


def _times_text(spec: Mapping[str, Any]) -> str:
    """Times in words."""
    if "cron" in spec:
        return f"{spec['cron']} {spec['tz']}"
    anchor = "" if not spec["anchor_ms"] else f" from {_when(spec['anchor_ms']):%Y-%m-%d %H:%M:%S} UTC"
    return f"every {spec['every_s']:g} s{anchor}"


def _when(ms: int | None) -> datetime | None:
    return None if ms is None else as_datetime(ms)

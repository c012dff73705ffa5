"""Jobs that a run of a task has enqueued: its success is reported only when the broker has all of them.

``delay`` returns before the broker has answered. A child that is killed just after it has written its outcome would
lose the records in flight: the job is in the state SUCCESS, but its next step never runs. So
:mod:`kafka.tasks.pools.runner` collects the handles that are made while the task's function runs (in its thread or
coroutine, of whatever app) and waits for them, as a part of the run: its limits hold, and a job that cannot be enqueued
is the run's error. A run that enqueues nothing pays for one context variable. A run that fails does not wait.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.tasks.job import JobHandle

PRUNE_EVERY = 1000
"""After so many more jobs those that have arrived are dropped from the list: a run may enqueue millions."""


class EnqueuedJobs:
    """Handles of one run: what the present context enqueues from now on, until :meth:`end`."""

    __slots__ = ("_handles", "_look_at", "_token")

    def __init__(self) -> None:
        self._handles: list[JobHandle[Any]] = []
        self._look_at = PRUNE_EVERY
        self._token = _current.set(self)

    def end(self) -> None:
        """Collect no more. In the same context."""
        _current.reset(self._token)

    def __bool__(self) -> bool:
        return bool(self._handles)

    def __len__(self) -> int:
        """The number of stored handles."""
        return len(self._handles)

    def add(self, handle: JobHandle[Any]) -> None:
        """Add a job that has no acknowledgement yet."""
        self._handles.append(handle)
        if len(self._handles) >= self._look_at:
            self._handles = [each for each in self._handles if not each.has_arrived]
            self._look_at = len(self._handles) + PRUNE_EVERY

    def wait_sent(self) -> None:
        """Wait until all are acknowledged; raise the first error."""
        handles, self._handles = self._handles, []
        for backend in {id(handle.backend): handle.backend for handle in handles}.values():
            backend.flush(None)
        for handle in handles:
            handle.raise_if_not_sent()


_current: ContextVar[EnqueuedJobs | None] = ContextVar("kafka_enqueued", default=None)


def add_to_current_run(handle: JobHandle[Any]) -> None:
    """Add an enqueued job to the current run, which waits for it."""
    run = _current.get()
    if run is not None:
        run.add(handle)

"""``ctx``: what a task declared with ``bind=True`` gets as its first argument.

It is made by the pool where the task runs and reads the job's state from there; it talks to no broker. ``touch``,
``progress`` and ``fencing_token`` come with the schedule.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.tasks.format.envelope import Header

_log = logging.getLogger("kafka.tasks.job")


def _never() -> bool:
    return False


class Context:
    """The run of one attempt, seen from inside the task."""

    __slots__ = ("_cancelled", "_extra", "attempt", "deliveries", "job_id", "task_name")

    def __init__(
        self,
        job_id: str,
        task_name: str,
        attempt: int = 1,
        deliveries: int = 1,
        cancelled: Callable[[], bool] = _never,
        extra: Sequence[Header] = (),
    ) -> None:
        self.job_id = job_id
        self.task_name = task_name
        self.attempt = attempt
        """1 for the first run; counts all attempts."""
        self.deliveries = deliveries
        """How often the broker has handed the present record out; no crash counter."""
        self._cancelled = cancelled
        self._extra = extra

    @property
    def headers(self) -> dict[str, bytes]:
        """The headers that the caller gave the job (``task.using(headers=...)``, or any other producer); a str arrives
        as UTF-8, and null as no bytes."""
        return {name: value or b"" for name, value in self._extra}

    @property
    def cancelled(self) -> bool:
        """The run is of no use any more: its lock is lost, its limit has passed, or the worker stops. A long task looks
        now and then, and ends; its outcome is dropped when the lock was lost.
        """
        return self._cancelled()

    @property
    def idempotency_key(self) -> str:
        """The same in all attempts and deliveries of a job, for outside systems that take one: the job id."""
        return self.job_id

    def log(self, message: str, *args: Any, level: int = logging.INFO) -> None:
        """Write a log line that carries the job's id and name."""
        _log.log(level, f"%s[%s] {message}", self.task_name, self.job_id, *args)

    def __repr__(self) -> str:
        return f"<Context {self.task_name} {self.job_id} attempt {self.attempt}>"

"""What a pool is: something that runs jobs and hands their outcomes back.

A pool belongs to the worker's loop thread: it alone calls these methods, and none of them blocks but ``stop``. A pool
calls ``wake`` (from any thread) when :meth:`Pool.finished` has something to give. It knows no broker, retry or topic. A
new pool is one module here, one row in ``kafka.tasks.pools.POOLS`` and the same tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from kafka.tasks.outcome import Outcome
from kafka.tasks.runner import Job

Run: TypeAlias = Callable[[Job], Outcome]
Wake: TypeAlias = Callable[[], None]
Finished: TypeAlias = "tuple[Job, Outcome]"


class Pool(Protocol):
    """Slots that run jobs."""

    concurrency: int
    """Jobs that run at once."""
    depth: int
    """Jobs that may be with the pool at once, running or next; at least ``concurrency``, set by the worker."""

    @property
    def free_slots(self) -> int:
        """How many more jobs it takes now."""

    @property
    def busy(self) -> int:
        """Jobs submitted and not handed back."""

    def submit(self, job: Job) -> None:
        """Take a job; only with a free slot."""

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        """Jobs that have ended since the last call; waits up to ``timeout`` seconds for the first."""

    def recall(self) -> list[Job]:
        """Take back the jobs that have not started."""

    def tick(self, now: float) -> float | None:
        """Enforce the limits that are due; when to call again (monotonic seconds), or None."""

    def interrupt(self) -> None:
        """Ask running jobs to end: ``cancelled`` is set, :class:`SoftTimeLimit` raised where that is possible."""

    def stop(self, grace: float) -> list[Job]:
        """Wait up to ``grace`` seconds for running jobs, then let go; the jobs that never finished."""

    def statistics(self) -> dict[str, int]:
        """Counts: ``concurrency busy done soft_limits hard_limits``."""

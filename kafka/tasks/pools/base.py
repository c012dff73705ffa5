"""The interface of pools, which run jobs and return their outcomes.

A pool belongs to the worker's loop thread: it alone calls these methods, and none of them blocks but ``stop``. A pool
calls ``wake`` (from any thread) when :meth:`Pool.finished` has outcomes, when :meth:`Pool.started` has jobs, or when it
can take jobs again. It knows no broker, retry or topic. A new pool is one module here, one row in
``kafka.tasks.pools.POOLS`` and the same tests.
:class:`SimplePool` has the answers of pools without processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import Outcome

Run: TypeAlias = Callable[[Job], Outcome]
Wake: TypeAlias = Callable[[], None]
Finished: TypeAlias = "tuple[Job, Outcome]"


@dataclass(frozen=True, slots=True)
class ChildSnapshot:
    """One child process as it is now. ``job_id``, ``job_name`` and ``age_s`` (of the run) only while it runs one.

    ``state`` is a value of :class:`kafka.tasks.pools.parent.supervision.ChildStage`; ``jobs`` counts those that it has
    ended; ``last_activity_s`` is how long ago it was last active. It travels as a part of
    :class:`kafka.tasks.health.snapshot.WorkerSnapshot`, whose rules hold for its fields, too.
    """

    pid: int
    generation: int = 0
    state: str = ""
    job_id: str | None = None
    job_name: str | None = None
    age_s: float | None = None
    rss_bytes: int | None = None
    jobs: int = 0
    last_activity_s: float = 0.0


class Pool(Protocol):
    """Slots that run jobs."""

    concurrency: int
    """Jobs that run at once."""
    attributes_crashes: bool
    """Whether a job that ends its process ends no other job: a child's death is attributed to the job that it ran."""

    @property
    def ready(self) -> bool:
        """Whether a job that is submitted now would be begun: a child is up, the breaker is closed."""

    @property
    def degraded(self) -> str | None:
        """Why the pool cannot run jobs for now, so that no more should be leased; None when it can or soon will."""

    @property
    def ever_ready(self) -> bool:
        """Whether it has ever been able to run jobs: a worker exits only if its pool never was."""

    @property
    def may_grow(self) -> bool:
        """Whether it would take more slots by itself if it knew of work for them (autoscale). The worker then leases
        one job more than there are slots, also of long ones, so that there is something to know of.
        """

    @property
    def free_slots(self) -> int:
        """How many more jobs it accepts now; 0 while no child is up."""

    @property
    def busy(self) -> int:
        """Jobs submitted and not handed back."""

    def set_depth(self, depth: int) -> None:
        """How many jobs may be with the pool at once, running or next; at least ``concurrency``, as at first."""

    def set_backlog(self, count: int) -> None:
        """How many jobs wait in the worker's own buffers; autoscale looks at it."""

    def submit(self, job: Job) -> None:
        """Take a job; only with a free slot."""

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        """Jobs that have ended since the last call; waits up to ``timeout`` seconds for the first."""

    def started(self) -> list[Job]:
        """Jobs with ``track_started`` that have begun since the last call, also those that have ended meanwhile: asked
        after :meth:`finished`, it has every such job that :meth:`finished` has returned.
        """

    def recall(self) -> list[Job]:
        """Take back the jobs that have not started, in the order in which they would have."""

    def tick(self, now: float) -> float | None:
        """Enforce the limits that are due; when to call again (monotonic seconds), or None."""

    def cancel(self, job: Job) -> None:
        """The result of this run will not be used (:meth:`Job.cancel` was called): inform its task."""

    def terminate(self, job: Job) -> None:
        """End this run, after :meth:`cancel`, as far as that can be: pools of processes kill its child as at a hard
        limit, and ``asyncio`` cancels the coroutine. No effect when it does not run any more.
        """

    def interrupt(self) -> None:
        """Ask running jobs to end: ``cancelled`` is set, :class:`SoftTimeLimit` raised where that is possible."""

    def abandon(self) -> list[Job]:
        """End what still runs by force, without waiting for it.

        Pools of processes return nothing: :meth:`finished` returns each job as ``ChildLost("stopped")`` when its child
        has ended. The others return the running jobs, which get no outcome and end with this process.
        """

    def stop(self, grace: float) -> list[Job]:
        """Wait up to ``grace`` seconds for running jobs, then close the pool; returns the jobs that did not finish."""

    def grow(self, count: int = 1) -> None:
        """Add ``count`` slots; ``concurrency`` is the new number."""

    def shrink(self, count: int = 1) -> None:
        """Remove ``count`` slots, idle ones first, but never the last one. Running jobs continue."""

    def children(self) -> list[ChildSnapshot]:
        """The child processes; empty where there are none."""

    def lost_by_cause(self) -> Mapping[str, int]:
        """How many jobs were lost with their child, by cause."""

    def dump(self) -> None:
        """Log the stacks of each child's threads, soon."""

    def statistics(self) -> dict[str, int]:
        """Counts: ``concurrency busy done soft_limits hard_limits``; pools of processes count more."""


class SimplePool:
    """The answers of a pool without child processes."""

    concurrency: int
    depth: int
    attributes_crashes = False
    ready = True
    degraded: str | None = None
    ever_ready = True
    may_grow = False

    def set_depth(self, depth: int) -> None:
        self.depth = depth

    def set_backlog(self, count: int) -> None:
        """Its size is fixed."""

    def abandon(self) -> list[Job]:
        """Threads cannot be killed; they end with this process."""
        return []

    def cancel(self, job: Job) -> None:
        """The task reads ``job.cancelled`` itself."""

    def terminate(self, job: Job) -> None:
        """No thread can be ended: the task reads ``job.cancelled`` itself."""

    def grow(self, count: int = 1) -> None:
        """The number of slots is fixed."""

    def shrink(self, count: int = 1) -> None:
        """The number of slots is fixed."""

    def children(self) -> list[ChildSnapshot]:
        return []

    def lost_by_cause(self) -> Mapping[str, int]:
        return {}

    def dump(self) -> None:
        """Without children there is nothing to log."""

"""What SIGUSR1 writes to the log: the worker's state, its jobs, its children, and the stacks of all its threads.

Those of the children follow (:mod:`kafka.tasks.pools.parent.stacks`). Nothing here changes anything, and a line that
cannot be made does not take the others with it.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Protocol

from kafka.tasks.errors import counted
from kafka.tasks.pools.base import Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.shutdown import WorkerStage

log = logging.getLogger(__name__)

MAX_JOBS = 50


class DumpedWorker(Protocol):
    """What is read of a :class:`kafka.tasks.worker.worker.Worker`."""

    @property
    def stage(self) -> WorkerStage:
        """How far its stop has come."""

    def statistics(self) -> dict[str, int]:
        """Its counts and the pool's."""

    def running(self) -> Sequence[Job]:
        """The jobs that are with the pool."""

    @property
    def pool(self) -> Pool:
        """Where its jobs run."""


def dump(worker: DumpedWorker | None, now: float) -> None:
    """Write it all to the log; ``now`` is monotonic seconds. None: the worker has not connected yet."""
    state = ["the worker has not started"] if worker is None else _state(worker, worker.pool, now)
    log.warning("%s", "\n".join([*state, *_stacks()]))
    if worker is not None:
        worker.pool.dump()


def _state(worker: DumpedWorker, pool: Pool, now: float) -> Iterator[str]:
    counts = ", ".join(f"{name} {count}" for name, count in worker.statistics().items())
    yield f"state of this worker: {worker.stage.name}; {counts}"
    if pool.degraded is not None:
        yield f"the pool cannot run jobs: {pool.degraded}"
    for child in pool.children():
        rss = "" if child.rss_bytes is None else f", {child.rss_bytes / 1_048_576:.0f} MiB"
        runs = "" if child.job_id is None else f", runs {child.job_name} {child.job_id} for {child.age_s or 0.0:.1f} s"
        ended = counted(child.jobs, "job")
        yield f"  child {child.pid} (generation {child.generation}): {child.state}, {ended} ended{rss}{runs}"
    begun = {child.job_id for child in pool.children()}  # reported above with their ages
    running = [job for job in worker.running() if job.envelope.id not in begun]
    for job in running[:MAX_JOBS]:
        age = "not started" if job.started_at is None else f"for {now - job.started_at:.1f} s"
        yield f"  {job!r}: {age}"
    if len(running) > MAX_JOBS:
        yield f"  and {counted(len(running) - MAX_JOBS, 'job')} more"


def _stacks() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}:"
        yield "".join(traceback.format_stack(frame)).rstrip()

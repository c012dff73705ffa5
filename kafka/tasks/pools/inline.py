"""Jobs run on the worker's own thread, one by one, between two turns of its loop.

For tests and for very short jobs only: while a job runs nothing else does, so leases are not renewed, limits cannot be
enforced and signals wait. A job whose start is reported begins in one turn and runs in the next.
"""

from __future__ import annotations

from collections import deque

from kafka.tasks.pools.base import Finished, Run, SimplePool, Wake
from kafka.tasks.pools.runner import Job


class InlinePool(SimplePool):
    """A pool of one slot that runs its job inside :meth:`finished`."""

    def __init__(self, run: Run, concurrency: int, wake: Wake) -> None:
        self.concurrency = 1
        self.depth = 1
        self._run = run
        self._wake = wake
        self._queue: deque[Job] = deque()
        self._begun: Job | None = None
        self._started: list[Job] = []
        self._done = 0

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self.busy)

    @property
    def busy(self) -> int:
        return len(self._queue) + (self._begun is not None)

    def submit(self, job: Job) -> None:
        self._queue.append(job)
        if len(self._queue) == 1:
            self._wake()

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        job, self._begun = self._begun, None
        if job is None:
            if not self._queue:
                return []
            job = self._queue.popleft()
            if job.track_started:
                self._begun = job
                self._started.append(job)
                self._wake()
                return []
        outcome = self._run(job)
        self._done += 1
        if self._queue:
            self._wake()
        return [(job, outcome)]

    def started(self) -> list[Job]:
        started, self._started = self._started, []
        return started

    def recall(self) -> list[Job]:
        jobs = list(self._queue)
        self._queue.clear()
        return jobs

    def tick(self, now: float) -> float | None:
        return None

    def interrupt(self) -> None:
        """Nothing runs while this is called."""

    def stop(self, grace: float) -> list[Job]:
        return [*([] if self._begun is None else [self._begun]), *self.recall()]

    def statistics(self) -> dict[str, int]:
        counts = {"concurrency": 1, "busy": self.busy, "done": self._done}
        return {**counts, "soft_limits": 0, "hard_limits": 0}

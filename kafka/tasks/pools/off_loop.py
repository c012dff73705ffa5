"""What the pools ``threads`` and ``asyncio`` share: their jobs run in other threads of the worker's process.

Outcomes come to the worker's thread through one deque, and it is woken once for all that it has not fetched yet. Starts
come through another one, of jobs with ``track_started`` only: limits are looked at when the first one could be due at
the earliest. How a job is run, interrupted and stopped is for the two themselves.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from kafka.tasks.pools.base import Finished, SimplePool, Wake
from kafka.tasks.pools.limits import timeout_outcome
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import LockLost, Outcome


class OffLoopPool(SimplePool):
    """A pool of ``concurrency`` slots. Its methods are for the worker's thread; :meth:`_report` and
    :meth:`_report_started` are for any.
    """

    def __init__(self, concurrency: int, wake: Wake) -> None:
        self.concurrency = concurrency
        self.depth = concurrency
        self._wake = wake
        self._done: deque[Finished] = deque()
        self._started: deque[Job] = deque()
        self._is_woken = False
        self._outcome_event = threading.Event()
        self._busy = 0
        self._check_at: float | None = None
        self._counts = {"done": 0, "soft_limits": 0, "hard_limits": 0}

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self._busy)

    @property
    def busy(self) -> int:
        return self._busy

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        self._is_woken = False
        self._outcome_event.clear()
        done = self._done
        if not done and timeout > 0:
            self._outcome_event.wait(timeout)
        ended: list[Finished] = []
        while done:
            ended.append(done.popleft())
        self._busy -= len(ended)
        self._counts["done"] += len(ended)
        return ended

    def started(self) -> list[Job]:
        return [self._started.popleft() for _ in range(len(self._started))]

    def tick(self, now: float) -> float | None:
        if self._check_at is not None and now >= self._check_at:
            self._check_at = min(self._enforce_limits(now), default=None)
        return self._check_at

    def statistics(self) -> dict[str, int]:
        return {"concurrency": self.concurrency, "busy": self._busy, **self._counts}

    def _report(self, job: Job, outcome: Outcome) -> None:
        """The job has ended; from any thread."""
        self._done.append((job, outcome))
        self._wake_worker()

    def _ends_with_lock(self, job: Job) -> bool:
        """Whether the job's lock is over before it begins, and report that; from any thread. After this process has
        stood still (SIGSTOP) a thread may take the next job before the worker's own finds out."""
        if 0.0 < job.lease.locked_until <= time.monotonic():
            self._report(job, LockLost())
            return True
        return False

    def _report_started(self, job: Job) -> None:
        """The job has begun: before its function is called; from any thread."""
        self._started.append(job)
        self._wake_worker()

    def _wake_worker(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._outcome_event.set()
            self._wake()

    # -- limits -------------------------------------------------------------------------------------------------------

    def _enforce_limits(self, now: float) -> list[float]:
        """Do what is due for the limits of the jobs; the times at which more may be."""
        raise NotImplementedError

    def _check_limits_within(self, limit: float) -> None:
        """See to it that ``tick`` looks no later than this limit of a job that starts right now."""
        at = time.monotonic() + limit
        self._check_at = at if self._check_at is None else min(at, self._check_at)

    def _time_out(self, job: Job, limit: float) -> None:
        """The job has run for too long: it has ended for the worker, whatever its task still does. Its error
        handlers are the worker's to call: where it runs they would come late, or never.
        """
        job.time_out(limit)
        self._counts["hard_limits"] += 1
        self._report(job, timeout_outcome(job))

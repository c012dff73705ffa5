"""Coroutine tasks (``async def``) beside one another on one event loop, in a thread of its own.

The thread is not the worker's, so a coroutine that blocks stops the other coroutines, but neither the renewal of leases
nor the worker's stop. A task that is a plain function runs in a thread of its own, so that an app may mix both; there
its limits are weaker than in the pool ``threads``, which is the one for such tasks.

* Soft limit, the worker's stop, and the end of a cancelled job: ``asyncio.Task.cancel()``. The coroutine sees
  ``CancelledError`` where it waits and may clean up; let out, it is a failure with ``SoftTimeLimit``. A plain function
  sees ``ctx.cancelled``.
* Hard limit: the worker sees the job end at once, and its slot is free; the coroutine is cancelled once more, and what
  it still does is dropped. Best effort, as a coroutine that never waits, or waits for more in its ``finally``, goes on.

Jobs and outcomes cross between the two threads by one deque each way; either side is woken once for all of them. A run
is ended by the thread that takes it out of ``_running`` first: the event loop, or the worker at its hard limit.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from functools import partial

from kafka.tasks.errors import SoftTimeLimit, TimeLimit
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.base import Finished, Run, Wake
from kafka.tasks.pools.off_loop import OffLoopPool
from kafka.tasks.pools.runner import Job, error_info_of, run_async
from kafka.tasks.rules.outcome import AttemptFailed, Outcome

log = logging.getLogger(__name__)

CLOSE_S = 2.0
"""How long the end of the event loop is waited for. One that is blocked ends with the process."""


def _no_wake() -> None:
    """The worker does not wait for outcomes any more."""


class _Run:
    """One job on the event loop. ``task`` is None while a plain function runs in its thread."""

    __slots__ = ("job", "limited_by", "slot_is_free", "task", "timer")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.task: asyncio.Task[None] | None = None
        self.limited_by: type[BaseException] | None = None
        self.slot_is_free = False
        self.timer: asyncio.TimerHandle | None = None

    def limit(self, by: type[BaseException] = SoftTimeLimit) -> None:
        """A limit, or the stop: on the event loop."""
        self.limited_by = by
        if self.task is None:
            self.job.cancel()
        else:
            self.task.cancel()


class AsyncioPool(OffLoopPool):
    """A pool of ``concurrency`` coroutines at once."""

    def __init__(self, run: Run, concurrency: int, wake: Wake) -> None:
        super().__init__(concurrency, wake)
        self._run_plain = run
        self._queue: deque[Job] = deque()
        self._is_start_scheduled = False
        self._running: dict[Job, _Run] = {}
        self._slots_in_use = 0
        self._limited: dict[Job, float] = {}
        self._is_stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="kafka-asyncio", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._busy += 1
        if job.hard_s is not None:
            self._limited[job] = job.hard_s
            self._check_limits_within(job.hard_s)
        self._queue.append(job)
        self._schedule_start()

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        ended = super().finished(timeout)
        for job, _ in ended:
            self._limited.pop(job, None)
        return ended

    def recall(self) -> list[Job]:
        jobs: list[Job] = []
        while self._queue:
            try:
                jobs.append(self._queue.popleft())
            except IndexError:  # the event loop was faster
                break
        for job in jobs:
            self._limited.pop(job, None)
        self._busy -= len(jobs)
        return jobs

    def terminate(self, job: Job) -> None:
        run = self._running.get(job)
        if run is not None:
            self._loop.call_soon_threadsafe(run.limit)

    def interrupt(self) -> None:
        for job, run in list(self._running.items()):
            job.cancel()
            self._loop.call_soon_threadsafe(run.limit)

    def abandon(self) -> list[Job]:
        return [job for job in list(self._running) if self._running.pop(job, None) is not None]

    def stop(self, grace: float) -> list[Job]:
        unfinished = self.recall()
        until = time.monotonic() + grace
        while self._running and time.monotonic() < until:
            self._outcome_event.clear()
            self._outcome_event.wait(min(0.05, max(0.0, until - time.monotonic())))
        unfinished += list(self._running)
        self._wake = _no_wake  # the worker's loop may be closed by the time when a coroutine ends
        self._is_stopping = True
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
        return unfinished

    def grow(self, count: int = 1) -> None:
        self.concurrency += count
        self.depth = max(self.depth, self.concurrency)
        self._schedule_start()

    def shrink(self, count: int = 1) -> None:
        self.concurrency = max(1, self.concurrency - count)

    # -- on the worker's thread ---------------------------------------------------------------------------------------

    def _schedule_start(self) -> None:
        """Have the event loop look for jobs to start."""
        if not self._is_start_scheduled:
            self._is_start_scheduled = True
            self._loop.call_soon_threadsafe(self._start_jobs)

    def _enforce_limits(self, now: float) -> list[float]:
        due: list[float] = []
        for job, limit in list(self._limited.items()):
            at = (now if job.started_at is None else job.started_at) + limit
            if now < at:
                due.append(at)
                continue
            del self._limited[job]
            run = self._running.pop(job, None)
            if run is not None:  # else it has just ended
                self._time_out(job, limit)
                self._loop.call_soon_threadsafe(self._abandon_run, run)
        return due

    # -- on the event loop --------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            while True:
                try:
                    loop.run_forever()
                    if self._is_stopping:
                        break
                    log.warning("a task stopped the event loop; restarting it")
                except (SystemExit, KeyboardInterrupt) as error:  # asyncio lets them out of whatever a coroutine starts
                    log.warning(
                        "ignoring %s raised on the event loop by something that a task started", type(error).__name__
                    )
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_S / 2))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _start_jobs(self) -> None:
        self._is_start_scheduled = False
        while self._slots_in_use < self.concurrency:
            try:
                job = self._queue.popleft()
            except IndexError:
                return
            if self._ends_with_lock(job):
                continue
            self._slots_in_use += 1
            run = self._running[job] = _Run(job)
            if job.task.is_coroutine:
                run.task = self._loop.create_task(self._work(run))
                run.task.add_done_callback(partial(self._task_has_ended, run))
            else:
                threading.Thread(target=self._work_plain, args=(run,), name="kafka-task", daemon=True).start()
            if job.soft_s is not None:
                run.timer = self._loop.call_later(job.soft_s, self._soft_limit, run)

    async def _work(self, run: _Run) -> None:
        if run.job.track_started:
            self._report_started(run.job)
        job_logging.set_current_job(run.job.envelope.id, run.job.envelope.name)
        self._ended(run, await run_async(run.job, lambda: run.limited_by))

    def _task_has_ended(self, run: _Run, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never gets to the end of :meth:`_work`."""
        error = SoftTimeLimit("cancelled before the task started") if task.cancelled() else task.exception()
        if error is not None:
            self._ended(run, AttemptFailed(error_info_of(error), run.job.task.retries(error)))

    def _work_plain(self, run: _Run) -> None:
        if run.job.track_started:
            self._report_started(run.job)
        outcome = self._run_plain(run.job)
        try:
            self._loop.call_soon_threadsafe(self._ended, run, outcome)
        except RuntimeError:  # the pool was stopped meanwhile
            self._running.pop(run.job, None)

    def _ended(self, run: _Run, outcome: Outcome) -> None:
        self._release_slot(run)
        if self._running.pop(run.job, None) is not None:
            self._report(run.job, outcome)
        self._start_jobs()

    def _soft_limit(self, run: _Run) -> None:
        if run.job in self._running:
            self._counts["soft_limits"] += 1
            run.limit()

    def _abandon_run(self, run: _Run) -> None:
        self._release_slot(run)
        run.limit(TimeLimit)
        self._start_jobs()

    def _release_slot(self, run: _Run) -> None:
        if not run.slot_is_free:
            run.slot_is_free = True
            if run.timer is not None:
                run.timer.cancel()
            self._slots_in_use -= 1

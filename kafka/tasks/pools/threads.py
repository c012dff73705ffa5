"""Jobs run in threads of the worker's process.

Hand-over is by the batch: jobs go through one C queue, outcomes through one deque, and the loop is woken once for all
outcomes that it has not fetched yet. The loop's thread keeps running beside the tasks, so leases are renewed; only a C
call that holds the GIL for longer than two thirds of the lock can starve it.

Limits are best effort, as threads cannot be killed. At the soft limit :class:`SoftTimeLimit` is raised inside the task
as an asynchronous exception, which a blocking C call sees only when it returns. At the hard limit the job ends at once
for the worker (its outcome is AttemptFailed with ``TimeLimit``), ``TimeLimit`` is raised inside the task, and another
thread takes the slot; whatever the old one still does, its result is dropped.

The dangerous moment is an exception that is raised as the task returns. So exceptions are only raised under the slot's
lock while ``slot.job`` is that job, and the thread leaves the job under the same lock and then meets what may still be
pending; ``_finish_job`` repeats itself when an exception is raised in it. No exception reaches a thread that has moved
on, and no outcome is lost.
"""

from __future__ import annotations

import ctypes
import threading
import time
from queue import Empty, SimpleQueue

from kafka.tasks.errors import SoftTimeLimit, TimeLimit
from kafka.tasks.pools.base import Run, Wake
from kafka.tasks.pools.limits import least_limit
from kafka.tasks.pools.off_loop import OffLoopPool
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import AttemptFailed, ErrorInfo, Outcome

_LIMITS = (SoftTimeLimit, TimeLimit)


class _Slot:
    """One thread and what it runs.

    ``job`` is written by the thread. ``has_raised`` (an exception was raised into the present job), ``timed_out`` and
    ``soft_limited_job`` (the job that got its soft limit) are written by the loop. ``lock`` guards the end of a job.
    """

    __slots__ = ("timed_out", "job", "lock", "has_raised", "thread", "soft_limited_job")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.lock = threading.Lock()
        self.has_raised = False
        self.timed_out = False
        self.soft_limited_job: Job | None = None
        self.thread: threading.Thread | None = None

    def raise_in_job(self, job: Job, error: type[BaseException], give_up: bool = False) -> bool:
        """Raise ``error`` inside ``job``; False when it does not run here any more."""
        with self.lock:
            if self.job is not job:
                return False
            self.has_raised = True
            if give_up:
                self.timed_out = True
                job.time_out(job.hard_s or 0.0)
            _raise_in(self.thread, error)
            return True


def _raise_in(thread: threading.Thread | None, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread soon, replacing a pending one."""
    if thread is not None and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))


class _PendingExceptionRaised(BaseException):
    """Replaces an exception that came too late."""


def _clear_pending_exception() -> None:
    """Have no exception pending in this thread when this returns.

    To set none (NULL) would be wrong: up to Python 3.12 the interpreter is notified that something is pending, finds
    nothing, and never forgets it. It looks again at each call from then on, and as soon as a profile
    or trace function (debuggers, coverage, cProfile) 3.11 does nothing else. So another one is set, and met.
    """
    try:
        _raise_in(threading.current_thread(), _PendingExceptionRaised)
        while True:
            pass
    except _PendingExceptionRaised:
        return


class ThreadPool(OffLoopPool):
    """A pool of ``concurrency`` threads."""

    def __init__(self, run: Run, concurrency: int, wake: Wake) -> None:
        super().__init__(concurrency, wake)
        self._run = run
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._least_limit_s: float | None = None
        self._slots = [self._start_thread() for _ in range(concurrency)]

    def submit(self, job: Job) -> None:
        self._busy += 1
        if job.soft_s is not None or job.hard_s is not None:
            least = least_limit(job)
            self._least_limit_s = least if self._least_limit_s is None else min(least, self._least_limit_s)
            self._check_limits_within(least)
        self._queue.put(job)

    def recall(self) -> list[Job]:
        jobs: list[Job] = []
        while not self._queue.empty():
            try:
                job = self._queue.get_nowait()
            except Empty:  # a thread was faster
                break
            if job is not None:
                jobs.append(job)
        self._busy -= len(jobs)
        return jobs

    def interrupt(self) -> None:
        for slot in self._slots:
            job = slot.job
            if job is not None:
                job.cancel()
                slot.raise_in_job(job, SoftTimeLimit)

    def abandon(self) -> list[Job]:
        running = [slot.job for slot in self._slots]
        return [job for job in running if job is not None]

    def stop(self, grace: float) -> list[Job]:
        unfinished = self.recall()
        for _ in self._slots:
            self._queue.put(None)
        until = time.monotonic() + grace
        for slot in self._slots:
            if slot.thread is not None:
                slot.thread.join(max(0.0, until - time.monotonic()))
        running = [slot.job for slot in self._slots]
        return unfinished + [job for job in running if job is not None]

    # -- the threads --------------------------------------------------------------------------------------------------

    def _start_thread(self) -> _Slot:
        slot = _Slot()
        slot.thread = threading.Thread(target=self._work, args=(slot,), name="kafka-task", daemon=True)
        slot.thread.start()
        return slot

    def _work(self, slot: _Slot) -> None:
        while not slot.timed_out:
            job = self._queue.get()
            if job is None:
                return
            if not self._ends_with_lock(job):
                self._run_one(slot, job)

    def _run_one(self, slot: _Slot, job: Job) -> None:
        outcome: Outcome | None = None
        late: BaseException = SoftTimeLimit()
        if job.track_started:
            self._report_started(job)  # before an exception may be raised in this thread
        slot.job = job
        try:
            outcome = self._run(job)
        except _LIMITS as error:
            late = error
        if self._finish_job(slot):
            return
        if outcome is None:
            error_info = ErrorInfo(
                type(late).__name__, "the time limit was reached outside the task's code, as it started or ended"
            )
            outcome = AttemptFailed(error_info, job.task.retries(late))
        self._report(job, outcome)

    @staticmethod
    def _finish_job(slot: _Slot) -> bool:
        """End the window in which exceptions are raised; returns whether the job was given up at its hard limit."""
        while True:
            try:
                with slot.lock:
                    slot.job = None
                if slot.has_raised:
                    _clear_pending_exception()
                    slot.has_raised = False
                return slot.timed_out
            except _LIMITS:
                continue

    # -- limits -------------------------------------------------------------------------------------------------------

    def _enforce_limits(self, now: float) -> list[float]:
        due: list[float] = []
        for index, slot in enumerate(self._slots):
            job = slot.job
            if job is not None:
                due += self._check_slot(index, slot, job, now)
        if self._busy and self._least_limit_s is not None:
            due.append(now + self._least_limit_s)
        else:
            self._least_limit_s = None
        return due

    def _check_slot(self, index: int, slot: _Slot, job: Job, now: float) -> list[float]:
        """Enforce a due limit of this running job; returns the times of later ones."""
        started_at = now if job.started_at is None else job.started_at
        due: list[float] = []
        if job.hard_s is not None:
            if now >= started_at + job.hard_s:
                if slot.raise_in_job(job, TimeLimit, give_up=True):
                    self._time_out(job, job.hard_s)
                    self._slots[index] = self._start_thread()
                return due
            due.append(started_at + job.hard_s)
        if job.soft_s is not None and slot.soft_limited_job is not job:
            if now >= started_at + job.soft_s:
                slot.soft_limited_job = job
                self._counts["soft_limits"] += slot.raise_in_job(job, SoftTimeLimit)
            else:
                due.append(started_at + job.soft_s)
        return due

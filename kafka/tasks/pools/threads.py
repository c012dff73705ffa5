"""Jobs run in threads of the worker's process.

Hand-over is by the batch: jobs go through one C queue, outcomes through one deque, and the loop is woken once for all
outcomes that it has not fetched yet. The loop's thread keeps running beside the tasks, so leases are renewed; only a C
call that holds the GIL for longer than two thirds of the lock can starve it.

Limits are best effort, as threads cannot be killed. At the soft limit :class:`SoftTimeLimit` is raised inside the task
as an asynchronous exception, which a blocking C call sees only when it returns. At the hard limit the job ends at once
for the outside (its outcome is Failed with ``TimeLimit``), ``TimeLimit`` is raised inside the task, and another thread
takes the slot; whatever the old one still does, its result is dropped.

The dangerous moment is an exception that strikes as the task returns. So exceptions are only raised under the slot's
lock while ``slot.job`` is that job, and the thread leaves the job under the same lock and then meets what may still be
pending; ``_leave`` repeats itself when it is struck. No exception reaches a thread that has moved on, and no outcome
is lost.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

from kafka.tasks.errors import SoftTimeLimit, TimeLimit
from kafka.tasks.outcome import Failed, Fault, Outcome
from kafka.tasks.pools.base import Finished, Run, SimplePool, Wake
from kafka.tasks.runner import Job

_LIMITS = (SoftTimeLimit, TimeLimit)


class _Slot:
    """One thread and what it runs.

    ``job`` is written by the thread. ``struck`` (an exception was raised into the present job), ``given_up`` and
    ``warned`` (the job that got its soft limit) are written by the loop. ``lock`` guards the end of a job.
    """

    __slots__ = ("given_up", "job", "lock", "struck", "thread", "warned")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.lock = threading.Lock()
        self.struck = False
        self.given_up = False
        self.warned: Job | None = None
        self.thread: threading.Thread | None = None

    def strike(self, job: Job, error: type[BaseException], give_up: bool = False) -> bool:
        """Raise ``error`` inside ``job``; False when it does not run here any more."""
        with self.lock:
            if self.job is not job:
                return False
            self.struck = True
            self.given_up = give_up
            _raise_in(self.thread, error)
            return True


def _raise_in(thread: threading.Thread | None, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread soon, instead of one that is still pending there."""
    if thread is not None and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))


class _Met(BaseException):
    """Takes the place of an exception that is not wanted any more."""


def _meet_what_is_pending() -> None:
    """Have no exception pending in this thread when this returns.

    To set none (NULL) would be wrong: up to Python 3.12 the interpreter is told that something is pending, finds
    nothing, and never forgets it. It looks again at each call from then on, and as soon as anybody sets a profile
    or trace function (debuggers, coverage, cProfile) 3.11 does nothing else. So another one is set, and met.
    """
    try:
        _raise_in(threading.current_thread(), _Met)
        while True:
            pass
    except _Met:
        return


class ThreadPool(SimplePool):
    """A pool of ``concurrency`` threads."""

    def __init__(self, run: Run, concurrency: int, wake: Wake) -> None:
        self.concurrency = concurrency
        self.depth = concurrency
        self._run = run
        self._wake = wake
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._done: deque[Finished] = deque()
        self._woken = False
        self._some_done = threading.Event()
        self._busy = 0
        self._check_at: float | None = None
        self._least_limit_s: float | None = None
        self._counts = {"done": 0, "soft_limits": 0, "hard_limits": 0}
        self._slots = [self._start() for _ in range(concurrency)]

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self._busy)

    @property
    def busy(self) -> int:
        return self._busy

    def submit(self, job: Job) -> None:
        self._busy += 1
        if job.soft_s is not None or job.hard_s is not None:
            self._note_limit(job)
        self._queue.put(job)

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        self._woken = False
        self._some_done.clear()
        done = self._done
        if not done and timeout > 0:
            self._some_done.wait(timeout)
        found: list[Finished] = []
        while done:
            found.append(done.popleft())
        self._busy -= len(found)
        self._counts["done"] += len(found)
        return found

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

    def tick(self, now: float) -> float | None:
        if self._check_at is None or now < self._check_at:
            return self._check_at
        due: list[float] = []
        for index, slot in enumerate(self._slots):
            job = slot.job
            if job is not None:
                due += self._enforce(index, slot, job, now)
        if self._busy and self._least_limit_s is not None:
            due.append(now + self._least_limit_s)
        else:
            self._least_limit_s = None
        self._check_at = min(due) if due else None
        return self._check_at

    def interrupt(self) -> None:
        for slot in self._slots:
            job = slot.job
            if job is not None:
                job.cancelled = True
                slot.strike(job, SoftTimeLimit)

    def abandon(self) -> list[Job]:
        running = [slot.job for slot in self._slots]
        return [job for job in running if job is not None]

    def stop(self, grace: float) -> list[Job]:
        never = self.recall()
        for _ in self._slots:
            self._queue.put(None)
        until = time.monotonic() + grace
        for slot in self._slots:
            if slot.thread is not None:
                slot.thread.join(max(0.0, until - time.monotonic()))
        running = [slot.job for slot in self._slots]
        return never + [job for job in running if job is not None]

    def statistics(self) -> dict[str, int]:
        return {"concurrency": self.concurrency, "busy": self._busy, **self._counts}

    # -- the threads --------------------------------------------------------------------------------------------------

    def _start(self) -> _Slot:
        slot = _Slot()
        slot.thread = threading.Thread(target=self._work, args=(slot,), name="kafka-task", daemon=True)
        slot.thread.start()
        return slot

    def _work(self, slot: _Slot) -> None:
        while not slot.given_up:
            job = self._queue.get()
            if job is None:
                return
            self._run_one(slot, job)

    def _run_one(self, slot: _Slot, job: Job) -> None:
        outcome: Outcome | None = None
        late: BaseException = SoftTimeLimit()
        slot.job = job
        try:
            outcome = self._run(job)
        except _LIMITS as error:
            late = error
        if self._leave(slot):
            return
        if outcome is None:
            fault = Fault(type(late).__name__, "the limit struck outside the task's own code, as it began or ended")
            outcome = Failed(fault, job.task.retries(late))
        self._done.append((job, outcome))
        if not self._woken:
            self._woken = True
            self._some_done.set()
            self._wake()

    @staticmethod
    def _leave(slot: _Slot) -> bool:
        """End the window in which exceptions are raised; whether the job was given up and ended without us."""
        while True:
            try:
                with slot.lock:
                    slot.job = None
                if slot.struck:
                    _meet_what_is_pending()
                    slot.struck = False
                return slot.given_up
            except _LIMITS:
                continue

    # -- limits -------------------------------------------------------------------------------------------------------

    def _note_limit(self, job: Job) -> None:
        """See to it that ``tick`` looks no later than the limit of a job that starts right now."""
        least = min(limit for limit in (job.soft_s, job.hard_s) if limit is not None)
        self._least_limit_s = least if self._least_limit_s is None else min(least, self._least_limit_s)
        check_at = time.monotonic() + least
        self._check_at = check_at if self._check_at is None else min(check_at, self._check_at)

    def _enforce(self, index: int, slot: _Slot, job: Job, now: float) -> list[float]:
        """Strike if a limit of this running job is due; the times of those that are still to come."""
        started_at = now if job.started_at is None else job.started_at
        due: list[float] = []
        if job.hard_s is not None:
            if now >= started_at + job.hard_s:
                if slot.strike(job, TimeLimit, give_up=True):
                    self._give_up(index, job, job.hard_s)
                return due
            due.append(started_at + job.hard_s)
        if job.soft_s is not None and slot.warned is not job:
            if now >= started_at + job.soft_s:
                slot.warned = job
                self._counts["soft_limits"] += slot.strike(job, SoftTimeLimit)
            else:
                due.append(started_at + job.soft_s)
        return due

    def _give_up(self, index: int, job: Job, limit: float) -> None:
        """The job has run for too long: it ends for the outside, and another thread takes the slot."""
        job.cancelled = True
        job.ran_s = limit
        self._counts["hard_limits"] += 1
        fault = Fault("TimeLimit", f"it ran for longer than its timeout of {limit:g} s")
        self._done.append((job, Failed(fault, job.task.retries(TimeLimit()))))
        self._slots[index] = self._start()
        self._some_done.set()
        self._wake()

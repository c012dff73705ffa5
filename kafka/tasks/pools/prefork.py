"""Jobs run in long-lived child processes: the queue of jobs, which child gets which, and their outcomes.

The children themselves are :mod:`kafka.tasks.pools.parent.supervision`'s; this module owns the queue of jobs that no
child has, and the outcomes that the worker has not fetched. A job is in one place: the queue, one child's table, or the
outcomes.

Dispatch. Idle children come first. While jobs are long each child has one (fair). When jobs are short, the worker gives
the pool more jobs than slots, and the pool writes them ahead into the children's channels, evenly: a child then goes
from one job to the next without a turn of the parent's loop. A job that a child has not received can be taken back from
its channel, even while the child is in C code, and an idle child gets half of the jobs that wait behind a busy one. So
no job waits behind a long one while a child is idle.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kafka.net.loop import Loop
from kafka.tasks.errors import counted
from kafka.tasks.pools.base import ChildSnapshot, Finished, Wake
from kafka.tasks.pools.ipc.processes import JobDone, JobStarted, Launcher
from kafka.tasks.pools.limits import StartedJob, timeout_outcome
from kafka.tasks.pools.parent.autoscaler import Autoscaler, PoolLoad
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.exit_reasons import TERM, ChildExit, KillReason
from kafka.tasks.pools.parent.memory import OomCounter, ProcessSample, sample_process
from kafka.tasks.pools.parent.pool_shutdown import poll_once, stop_children
from kafka.tasks.pools.parent.stacks import StackDumper
from kafka.tasks.pools.parent.statistics import WriteCounts, brief, human_write_stats
from kafka.tasks.pools.parent.supervision import FULL_CHANNEL_RETRY_S, Supervision
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import MOST_CONCURRENCY, PoolSettings
from kafka.tasks.rules.outcome import AttemptFailed, ChildLost, JobSucceeded, LockLost, Outcome

log = logging.getLogger(__name__)

MOST_AHEAD = 128
"""Jobs with one child at once when the number is left to the pool. A channel holds about 200 small ones."""

_PROCESS_ENDED = ", and its process was killed"


class PreforkPool:
    """A pool of ``settings.slots`` child processes. Without a ``loop`` things happen in :meth:`finished`."""

    attributes_crashes = True
    is_strict = False

    def __init__(
        self,
        settings: PoolSettings,
        wake: Wake,
        loop: Loop | None = None,
        launcher: Launcher | None = None,
        rng: Random | None = None,
        sample: Callable[[int], ProcessSample | None] = sample_process,
        oom: OomCounter | None = None,
    ) -> None:
        settings = self.settings_for(settings)
        self.concurrency = settings.slots
        self.depth = settings.slots
        self._backlog = 0
        self._settings = settings
        self._wake = wake
        self._loop = loop
        self._queue: deque[Job] = deque()
        self._started: list[Job] = []
        self._done: list[Finished] = []
        self._unfinished: list[Job] | None = None
        self._is_woken = False
        self._is_dispatch_due = False
        self._busy = 0
        self._seq = 0
        self._deferred: list[Job] = []
        """Jobs that could not be sent; they return to the queue after a delay, and do not delay others."""
        self._logged_deferred: set[Job] = set()
        """Jobs whose write error was logged and that could not be sent since."""
        self._counts = {"done": 0, "put_back": 0}
        self._reported_state = (False, False)
        self._is_per_job = settings.process_per_job
        self._load_of: Callable[[ChildProcess], int] = _load_and_process if settings.process_per_job else _load_of
        self._autoscaler = Autoscaler(*settings.autoscale) if settings.autoscale is not None else None
        if launcher is None:
            # Imported when needed: a launcher that was given does without it.
            from kafka.tasks.pools.parent.launch import make_launcher

            launcher = make_launcher(settings)
        self.supervision = Supervision(launcher, settings, self, loop, self.is_strict, rng, sample, oom)
        self._stacks = StackDumper(launcher.stacks_fd, self.supervision.deadlines)
        self.supervision.begin()

    @staticmethod
    def settings_for(given: PoolSettings) -> PoolSettings:
        """The settings that hold for this kind of pool."""
        return given

    # -- state ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self.supervision.available)

    @property
    def degraded(self) -> str | None:
        supervision = self.supervision
        return None if supervision.available else supervision.breaker.open_reason(supervision.deadlines.time())

    @property
    def ever_ready(self) -> bool:
        return self.supervision.breaker.ever_up

    @property
    def may_grow(self) -> bool:
        autoscale = self._settings.autoscale
        return autoscale is not None and self.concurrency < autoscale[1]

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self._busy) if self.supervision.available else 0

    @property
    def busy(self) -> int:
        return self._busy

    def children(self) -> list[ChildSnapshot]:
        now = self.supervision.deadlines.time()
        return [child.state(now) for child in self.supervision.children.values()]

    def lost_by_cause(self) -> Mapping[str, int]:
        return dict(self.supervision.lost_by_cause)

    def statistics(self) -> dict[str, int]:
        supervision = self.supervision
        counts = {"concurrency": self.concurrency, "busy": self._busy, **self._counts}
        return {**counts, "children": len(supervision.children), **supervision.counts, **supervision.monitor.counts}

    def human_write_stats(self) -> dict[str, Any]:
        """How evenly jobs were written to the current children, for logs."""
        children = self.supervision.children
        return human_write_stats(
            {number: WriteCounts(child.sent_count, len(child.jobs)) for number, child in children.items()}
        )

    # -- jobs in and out ----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        self._busy += 1
        self._queue.append(job)
        if not self._is_dispatch_due:
            self._dispatch_later()

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        self._is_woken = False
        if timeout > 0 and not self._done:
            self._dispatch()
            poll_once(self.supervision, timeout)
        if self._loop is None or timeout > 0:
            self._dispatch()
        done, self._done = self._done, []
        self._busy -= len(done)
        return done

    def started(self) -> list[Job]:
        started, self._started = self._started, []
        return started

    def recall(self) -> list[Job]:
        back: list[tuple[int, Job]] = []
        for child in self.supervision.children.values():
            back += child.recall_jobs()
            child.unblock()
        back.sort(key=lambda each: each[0])
        self._requeue_deferred()
        self._logged_deferred.clear()
        jobs = [job for _, job in back]
        jobs += self._queue
        self._queue.clear()
        self._busy -= len(jobs)
        return jobs

    def tick(self, now: float) -> float | None:
        """Deadlines are the loop's affair; without one they are looked at here."""
        if self._loop is None:
            self.supervision.deadlines.run_due()
        return None

    def interrupt(self) -> None:
        for child in self.supervision.children.values():
            self.supervision.monitor.interrupt(child)

    def cancel(self, job: Job) -> None:
        """One that no child has received never will run."""
        for child in self.supervision.children.values():
            seq = next((seq for seq, each in child.jobs.items() if each is job), None)
            if seq is None:
                continue
            if child.handle.page.begun_seq != seq:
                self.on_jobs_returned(child.recall_jobs())
            if seq in child.jobs:  # it runs, or is about to
                child.handle.page.cancel(seq)
                return
        self._requeue_deferred()
        if job in self._queue:
            self._queue.remove(job)
            self._logged_deferred.discard(job)
            self._done.append((job, LockLost()))
            self._wake_worker()

    def terminate(self, job: Job) -> None:
        supervision = self.supervision
        for child in list(supervision.children.values()):
            if not any(each is job for each in child.jobs.values()):
                continue
            supervision.read_messages(child)  # it may have ended, or be about to begin after one that has
            for seq, each in child.jobs.items():
                if each is job and child.stage is not ChildStage.KILLING:
                    supervision.kill(child, KillReason("cancelled", f"{job} was cancelled", seq), TERM)
                    break
            return

    def abandon(self) -> list[Job]:
        self.supervision.abandon()
        return []

    def stop(self, grace: float) -> list[Job]:
        """The outcomes of jobs that ended meanwhile are there for :meth:`finished`."""
        self._unfinished = self.recall()
        stop_children(self.supervision, grace, self._settings.kill_grace)
        unfinished = [*self._unfinished, *self._queue]
        for child in self.supervision.children.values():
            unfinished += child.jobs.values()
        self._queue.clear()
        self._busy = len(self._done)
        return unfinished

    def dump(self) -> None:
        self._stacks.request_dumps(self.supervision.children.values())

    # -- size -----------------------------------------------------------------------------------------------------

    def grow(self, count: int = 1) -> None:
        self._resize(self.concurrency + count)

    def shrink(self, count: int = 1) -> None:
        self._resize(self.concurrency - count)

    def set_depth(self, depth: int) -> None:
        self.depth = depth

    def set_backlog(self, count: int) -> None:
        self._backlog = count

    def _resize(self, slots: int) -> None:
        slots = min(max(1, slots), MOST_CONCURRENCY)
        if slots == self.concurrency:
            return
        log.info("resizing the pool from %d to %s", self.concurrency, counted(slots, "child", "children"))
        self.depth = slots if self.depth == self.concurrency else max(self.depth, slots)
        self.concurrency = slots
        self.supervision.resize(slots)
        self.on_children_changed()

    # -- dispatch --------------------------------------------------------------------------------------------------

    def _dispatch_later(self) -> None:
        """After the callbacks of this turn, so that all jobs of one turn are dealt out together."""
        if not self._is_dispatch_due and self._loop is not None:
            self._is_dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatch_due = False
        available = self.supervision.available
        if not available:
            return
        if self._queue:
            self._distribute(available)
        while not self._queue and len(available) > 1 and self._recall_from_busiest(available):
            before = len(self._queue)
            self._distribute(available)
            if len(self._queue) == before:
                break

    def _distribute(self, available: list[ChildProcess]) -> None:
        """Send jobs from the queue to the children, so that all have the same number, as far as there is room."""
        queue = self._queue
        room = self.supervision.room
        given = sum(len(child.jobs) for child in available)
        level = min(self._max_per_child(len(available)), -(-(given + len(queue)) // len(available)))
        for child in sorted(available, key=self._load_of):
            count = room(child, level)
            if count > 0:
                self._send_jobs(child, queue, min(count, len(queue)))
                if not queue:
                    return

    def _send_jobs(self, child: ChildProcess, queue: deque[Job], count: int) -> None:
        """Send up to so many from the front of the queue; those that cannot be sent now are deferred."""
        seq = self._seq
        while count and queue:
            job = queue[0]
            seq += 1
            try:
                if not child.send(seq, job):
                    if not child.jobs:
                        self.supervision.on_channel_full(child)
                    break
            except OSError as error:
                self._defer(child, error)
                continue
            count -= 1
            if self._logged_deferred:
                self._logged_deferred.discard(job)
            del queue[0]
            if job.soft_s is not None or job.hard_s is not None:
                self.supervision.monitor.on_limited_job(child, job)
        self._seq = seq

    def _defer(self, child: ChildProcess, error: OSError) -> None:
        job = self._queue.popleft()
        if job not in self._logged_deferred:
            self._logged_deferred.add(job)
            log.error("could not send %s to %s, retrying: %s", job, child, error)
        if not self._deferred:
            self.supervision.deadlines.after(FULL_CHANNEL_RETRY_S, self._requeue_deferred)
        self._deferred.append(job)

    def _requeue_deferred(self) -> None:
        if self._deferred:
            self._queue.extendleft(reversed(self._deferred))
            self._deferred.clear()
            self._dispatch_later()

    def _max_per_child(self, available: int) -> int:
        """Jobs with one child at once."""
        if self._settings.prefetch is not None:
            return self._settings.prefetch
        return min(MOST_AHEAD, max(1, -(-self.depth // available)))

    def _recall_from_busiest(self, available: list[ChildProcess]) -> bool:
        """Take back half of the jobs that wait with the busiest child, when another is idle; returns whether there were
        any."""
        if all(child.jobs or self.supervision.room(child, 1) <= 0 for child in available):
            return False
        waiting_count: Callable[[ChildProcess], int] = _waiting_count
        if self._is_per_job and any(
            self._load_of(child) == 0 and self.supervision.room(child, 1) > 0 for child in available
        ):
            waiting_count = _waiting_count_with_process
        busiest = max(available, key=waiting_count)
        waiting = waiting_count(busiest)
        if waiting < 1:
            return False
        back = busiest.recall_jobs(-(-waiting // 2))
        self._queue.extendleft(job for _, job in reversed(back))
        return bool(back)

    # -- callbacks of the supervision
    # -----------------------------------------------------------------------------------

    def on_jobs_started(self, child: ChildProcess, messages: Sequence[JobStarted]) -> None:
        """A start that no job waits for damages the channel, as in :meth:`on_jobs_done`."""
        for seq, started_at in messages:
            job = child.jobs.get(seq)
            if job is None or not job.track_started or job.started_at is not None:
                self.supervision.on_channel_damaged(child, f"it reported an unexpected start of job seq {seq}")
                break
            job.on_started(started_at)
            self._started.append(job)
        self._wake_worker()

    def on_jobs_done(self, child: ChildProcess, messages: Sequence[JobDone]) -> int:
        """Takes over the outcomes that a child reported and returns how many. A failure of the job for which the child
        is being killed at its hard time limit becomes a timeout; its success counts. An unknown sequence number
        damages the channel: what follows it cannot be trusted, and the child is killed."""
        jobs, done, reason = child.jobs, self._done, child.kill_reason
        before, unknown_seq = len(done), -1
        for seq, outcome, ran_s, started_at in messages:
            job = jobs.pop(seq, None)
            if job is None:
                unknown_seq = seq
                break
            job.on_started(started_at)
            job.on_ended(ran_s)
            is_too_long = reason is not None and reason.cause == "time" and reason.seq == seq
            if is_too_long and isinstance(outcome, AttemptFailed):
                outcome = timeout_outcome(job, _PROCESS_ENDED, handlers_called=True)
            done.append((job, outcome))
        count = len(done) - before
        self._counts["done"] += count
        if log.isEnabledFor(logging.DEBUG):
            for job, outcome in done[before:]:
                log.debug("%s: %s", job, brief(outcome.value if isinstance(outcome, JobSucceeded) else outcome))
        if unknown_seq >= 0:
            self.supervision.on_channel_damaged(child, f"it reported unknown job seq {unknown_seq}")
        self._wake_worker()
        self._dispatch_later()
        return count

    def on_jobs_returned(self, jobs: list[tuple[int, Job]]) -> None:
        """A job that was cancelled meanwhile does not run: another worker has it."""
        self._counts["put_back"] += len(jobs)
        cancelled = [job for _, job in jobs if job.cancelled]
        if cancelled:
            self._done += [(job, LockLost()) for job in cancelled]
            self._wake_worker()
        self._queue.extendleft(job for _, job in reversed(jobs) if not job.cancelled)
        self._dispatch_later()

    def on_job_lost(self, child: ChildProcess, running: StartedJob, death: ChildExit) -> None:
        job = running.job
        job.on_started(running.started_at)
        job.on_ended(max(0.0, self.supervision.deadlines.time() - running.started_at))
        if death.cause == "stopped" and self._unfinished is not None:
            self._unfinished.append(job)
            return
        rss_bytes = child.rss_bytes
        if self._is_per_job and child.sampled_at < running.started_at:
            rss_bytes = None  # that was the process of another job, or the child's own
        killed_seq = 0 if child.kill_reason is None else child.kill_reason.seq
        its_fault = running.seq == killed_seq or death.cause not in ("time", "memory", "stopped", "cancelled")
        is_time = death.cause == "time" and its_fault
        detail = f"process {child.pid}{'; ' if death.detail and not is_time else ''}{'' if is_time else death.detail}"
        lost = ChildLost(
            death.cause,
            death.signal,
            death.exit_code,
            rss_bytes,
            detail,
            its_fault,
            death.peak_rss_bytes,
            death.cpu_s,
        )
        outcome: Outcome = lost
        if is_time:
            outcome = timeout_outcome(job, f"{_PROCESS_ENDED}: {'; '.join(lost.facts())}", death.signal)
        self._done.append((job, outcome))
        self._counts["done"] += 1
        self._wake_worker()

    def on_children_changed(self) -> None:
        self._dispatch_later()
        state = (self.ready, self.degraded is not None)
        if state != self._reported_state or self.ready:
            self._reported_state = state
            self._wake_worker()

    def on_sample(self, now: float) -> None:
        if self._is_per_job:
            self._dispatch_later()  # the end of the process of a job is not reported
        if self._autoscaler is None:
            return
        busy = sum(bool(child.jobs) for child in self.supervision.available)
        waiting = self._busy - len(self._done) - busy + self._backlog
        target = self._autoscaler.target(now, PoolLoad(self.concurrency, busy, max(0, waiting)))
        self._resize(target)

    def _wake_worker(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._wake()


def _load_of(child: ChildProcess) -> int:
    return len(child.jobs)


def _waiting_count(child: ChildProcess) -> int:
    return len(child.jobs) - 1


# With a process for each job, that of the last one may still be busy with its exit functions: nothing begins meanwhile.


def _load_and_process(child: ChildProcess) -> int:
    return 2 * len(child.jobs) + (child.handle.page.runner_pid != 0)


def _waiting_count_with_process(child: ChildProcess) -> int:
    is_held_up = child.handle.page.runner_pid != 0 and child.running() is None
    return len(child.jobs) if is_held_up else len(child.jobs) - 1

"""Checks living children: their jobs' limits when one may be due, and memory and state once a second. It calls the
supervision (:class:`ChildActions`) for problems; it neither starts nor reaps children.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafka.tasks.pools.ipc.processes import ChildPhase
from kafka.tasks.pools.limits import LimitAction, timeout_text
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.deadlines import PoolDeadlines
from kafka.tasks.pools.parent.exit_reasons import KILL, TERM, KillReason
from kafka.tasks.pools.parent.memory import ProcessSample
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings

log = logging.getLogger(__name__)

SAMPLE_S = 1.0
"""Interval of the checks of memory and state of each child."""
SAMPLE_AGAIN_S = 0.1
"""After a job, a child with a memory limit is looked at again unless that was so short ago. A look is about 10 µs."""
BLAMELESS_S = 0.05
"""A job that had begun so shortly before is not to blame for what its child held as the last one ended."""
FROZEN_S = 5.0
"""A stopped child that has begun no job is replaced after that long: a job that it has received cannot be recalled."""


class ChildActions(Protocol):
    """The interface of the supervision to the monitor."""

    def read_messages(self, child: ChildProcess) -> None:
        """Read what the child has sent."""

    def kill(self, child: ChildProcess, kill_reason: KillReason, signum: int) -> None:
        """Kill it."""

    def replace(self, child: ChildProcess, why: str) -> None:
        """Start a successor."""

    def availability_changed(self, child: ChildProcess) -> None:
        """Its availability for jobs has changed."""


class ChildMonitor:
    """Monitors the children of one pool."""

    def __init__(
        self,
        settings: PoolSettings,
        actions: ChildActions,
        deadlines: PoolDeadlines,
        sample_process: Callable[[int], ProcessSample | None],
    ) -> None:
        self.counts = {"soft_limits": 0, "hard_limits": 0}
        self._actions = actions
        self._deadlines = deadlines
        self._sample_process = sample_process
        self._soft_bytes = settings.max_memory_soft
        self._hard_bytes = settings.max_memory_hard
        self._has_warned_of_boot_memory = False
        self._has_memory_limit = self._soft_bytes is not None or self._hard_bytes is not None

    # -- limits of time ------------------------------------------------------------------------------------------------

    def on_limited_job(self, child: ChildProcess, job: Job) -> None:
        """The child was given a job that has a limit."""
        if child.limits.add(job, self._deadlines.time()):
            self._schedule_check(child)

    def interrupt(self, child: ChildProcess) -> None:
        """Raise the soft limit in the job that it runs."""
        running = child.running()
        if running is not None:
            running.job.cancel()
            child.handle.page.cancel(running.seq)
            child.handle.soft(running.seq)
            child.limits.on_soft_limit(running.seq, self._deadlines.time())
            self._schedule_check(child)

    def _schedule_check(self, child: ChildProcess) -> None:
        at = child.limits.check_at
        child.set_check_timer(None if at is None else self._deadlines.at(at, partial(self._check, child)))

    def _check(self, child: ChildProcess) -> None:
        if child.stage in (ChildStage.KILLING, ChildStage.GONE):
            return
        self._actions.read_messages(child)  # it may have ended in time, and this process be late
        running = child.running()
        if child.handle.page.phase == ChildPhase.WRITING:
            running = None  # its code has ended, and what is left of its outcome is ours to read
        action = child.limits.check(self._deadlines.time(), running, child.jobs.values())
        if running is not None and action in (LimitAction.SOFT, LimitAction.AGAIN):
            self.counts["soft_limits"] += action is LimitAction.SOFT
            child.handle.soft(running.seq)
        elif running is not None and action is LimitAction.HARD:
            self.counts["hard_limits"] += 1
            running.job.cancel()
            self._actions.kill(child, KillReason("time", timeout_text(running.job), running.seq), TERM)
        self._schedule_check(child)

    # -- memory and state ----------------------------------------------------------------------------------------------

    def boot_refusal(self, child: ChildProcess) -> str:
        """Why a child that has just come up is none to be given jobs; empty when it is. Each job would be lost with it,
        and its successors would be no smaller.
        """
        if self._hard_bytes is None:
            return ""
        seen = self._sample_process(child.pid) if child.pid > 0 else None
        return self._boot_memory_error(seen.rss_bytes) if seen is not None and seen.rss_bytes > self._hard_bytes else ""

    def _boot_memory_error(self, rss: int) -> str:
        limit = _mib_text(self._hard_bytes or 0)
        size = _mib_text(rss)
        return f"a new child uses {size}, above max_memory_hard ({limit}); raise HARD of --max-memory-per-child"

    def after_job(self, child: ChildProcess) -> None:
        """A job of the child has ended: check its memory."""
        if self._has_memory_limit:
            now = self._deadlines.time()
            if now >= child.sampled_at + SAMPLE_AGAIN_S:
                self.sample(child, now, is_after_job=True)

    def sample(self, child: ChildProcess, now: float, is_after_job: bool = False) -> None:
        """Check memory and state."""
        running = child.running()
        pid = child.runner_pid if running is not None else child.pid  # that of the last job may be a zombie
        seen = self._sample_process(pid) if pid > 0 else None
        if seen is None:
            return
        rss = seen.rss_bytes
        child.on_sampled(rss, now)
        if child.stage not in (ChildStage.UP, ChildStage.RETIRING):
            return
        if self._hard_bytes is not None and rss > self._hard_bytes:
            text = f"it used {_mib_text(rss)} of memory, more than its limit of {_mib_text(self._hard_bytes)}"
            if not child.sent_count:
                text = self._boot_memory_error(rss)
            is_blameless = running is None or (is_after_job and now < running.started_at + BLAMELESS_S)
            seq = 0 if running is None or is_blameless else running.seq
            self._actions.kill(child, KillReason("memory", text, seq), KILL)
        elif self._soft_bytes is not None and rss > self._soft_bytes and pid == child.pid:
            # A process that the child has forked for its job ends with that anyway.
            if child.sent_count:
                text = f"it uses {_mib_text(rss)} of memory, above the soft limit of {_mib_text(self._soft_bytes)}"
                self._actions.replace(child, text)
            # its successor would hold no less, and the next one after a second
            elif not self._has_warned_of_boot_memory:
                self._has_warned_of_boot_memory = True
                log.warning(
                    "%s uses %s of memory before its first job, above max_memory_soft (%s): each child will be "
                    "replaced after its first job; raise SOFT of --max-memory-per-child",
                    child,
                    _mib_text(rss),
                    _mib_text(self._soft_bytes),
                )
        self._check_stopped(child, seen.is_stopped, now)

    def _check_stopped(self, child: ChildProcess, is_stopped: bool, now: float) -> None:
        # By the state in /proc/PID/stat: a heartbeat thread in each child would make every os.fork() of a task a
        # warning of Python 3.12.
        if not is_stopped:
            if child.stopped_at is not None:
                child.set_stopped(None)
                self._actions.availability_changed(child)
        elif child.stopped_at is None:
            child.set_stopped(now)
            log.warning("%s is stopped (SIGSTOP); it gets no jobs until it continues", child)
            self._actions.availability_changed(child)
        elif now >= child.stopped_at + FROZEN_S and child.running() is None:
            self._actions.kill(child, KillReason("frozen", f"it was stopped for {now - child.stopped_at:.0f} s"), KILL)


def _mib_text(size: int) -> str:
    return f"{size / 1048576:.0f} MiB"

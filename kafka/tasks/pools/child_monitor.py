"""Looks at living children: at their jobs' limits when one may be due, and once a second at memory and state.

It finds what is wrong and says so to whoever keeps the children (:class:`ChildActions`); it starts and buries nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from kafka.tasks.pools.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.deadlines import PoolDeadlines
from kafka.tasks.pools.exit_reasons import KILL, TERM, KillReason
from kafka.tasks.pools.limits import LimitAction, timeout_text
from kafka.tasks.pools.memory import ProcessSample
from kafka.tasks.pools.processes import ChildPhase
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.runner import Job

log = logging.getLogger(__name__)

SAMPLE_S = 1.0
"""Between two looks at memory and state of each child."""
SAMPLE_AGAIN_S = 0.1
"""After a job, a child with a memory limit is looked at again unless that was so short ago. A look is about 10 µs."""
BLAMELESS_S = 0.05
"""A job that had begun so shortly before is not to blame for what its child held as the last one ended."""
FROZEN_S = 5.0
"""A stopped child that has begun no job is replaced after that long: what it has received is with nobody else."""


class ChildActions(Protocol):
    """Who keeps the children."""

    def look(self, kept: ChildProcess) -> None:
        """Read what the child has sent."""

    def kill(self, kept: ChildProcess, doom: KillReason, signum: int) -> None:
        """Kill it."""

    def replace(self, kept: ChildProcess, why: str) -> None:
        """Start a successor."""

    def availability_changed(self, kept: ChildProcess) -> None:
        """It may be given jobs again, or not any more."""


class ChildMonitor:
    """The looks at the children of one pool."""

    def __init__(
        self,
        settings: PoolSettings,
        keeper: ChildActions,
        deadlines: PoolDeadlines,
        vitals: Callable[[int], ProcessSample | None],
    ) -> None:
        self.counts = {"soft_limits": 0, "hard_limits": 0}
        self._keeper = keeper
        self._deadlines = deadlines
        self._vitals = vitals
        self._soft = settings.max_memory_soft
        self._hard = settings.max_memory_hard
        self._has_told_of_fresh = False
        self._has_memory_limit = self._soft is not None or self._hard is not None

    # -- limits of time ------------------------------------------------------------------------------------------------

    def limited(self, kept: ChildProcess, job: Job) -> None:
        """The child was given a job that has a limit."""
        if kept.limits.note(job, self._deadlines.time()):
            self._look_later(kept)

    def interrupt(self, kept: ChildProcess) -> None:
        """Strike the job that it runs, as at its soft limit."""
        running = kept.running()
        if running is not None:
            running.job.cancelled = True
            kept.child.page.cancel(running.seq)
            kept.child.soft(running.seq)
            kept.limits.struck(running.seq, self._deadlines.time())
            self._look_later(kept)

    def _look_later(self, kept: ChildProcess) -> None:
        if kept.look_timer is not None:
            kept.look_timer.cancel()
        at = kept.limits.look_at
        kept.look_timer = None if at is None else self._deadlines.at(at, partial(self._look, kept))

    def _look(self, kept: ChildProcess) -> None:
        if kept.stage in (ChildStage.DOOMED, ChildStage.GONE):
            return
        self._keeper.look(kept)  # it may have ended in time, and this process be late
        running = kept.running()
        if kept.child.page.phase == ChildPhase.WRITING:
            running = None  # its code has ended, and what is left of its outcome is ours to read
        act = kept.limits.look(self._deadlines.time(), running, kept.jobs.values())
        if running is not None and act in (LimitAction.SOFT, LimitAction.AGAIN):
            self.counts["soft_limits"] += act is LimitAction.SOFT
            kept.child.soft(running.seq)
        elif running is not None and act is LimitAction.HARD:
            self.counts["hard_limits"] += 1
            running.job.cancelled = True
            kept.doomed_seq = running.seq
            self._keeper.kill(kept, KillReason("time", timeout_text(running.job)), TERM)
        self._look_later(kept)

    # -- memory and state ----------------------------------------------------------------------------------------------

    def refusal(self, kept: ChildProcess) -> str:
        """Why a child that has just come up is none to be given jobs; empty when it is. Each job would be lost with it,
        and its successors would be no smaller.
        """
        if self._hard is None:
            return ""
        seen = self._vitals(kept.pid) if kept.pid > 0 else None
        return self._too_large_fresh(seen.rss_bytes) if seen is not None and seen.rss_bytes > self._hard else ""

    def _too_large_fresh(self, rss: int) -> str:
        return f"a new child uses {_mib(rss)}, above the hard limit of {_mib(self._hard or 0)}; raise the limit"

    def after_job(self, kept: ChildProcess) -> None:
        """A job of the child has ended: here its memory counts, too."""
        if self._has_memory_limit:
            now = self._deadlines.time()
            if now >= kept.sampled_at + SAMPLE_AGAIN_S:
                self.sample(kept, now, is_after_job=True)

    def sample(self, kept: ChildProcess, now: float, is_after_job: bool = False) -> None:
        """Look at memory and state."""
        running = kept.running()
        pid = kept.runner_pid if running is not None else kept.pid  # that of the last job may be a zombie
        seen = self._vitals(pid) if pid > 0 else None
        if seen is None:
            return
        kept.rss_bytes = rss = seen.rss_bytes
        kept.sampled_at = now
        if kept.stage not in (ChildStage.UP, ChildStage.RETIRING):
            return
        if self._hard is not None and rss > self._hard:
            text = f"it used {_mib(rss)} of memory, more than its limit of {_mib(self._hard)}"
            if not kept.given:
                text = self._too_large_fresh(rss)
            if running is not None and not (is_after_job and now < running.started_at + BLAMELESS_S):
                kept.doomed_seq = running.seq
            self._keeper.kill(kept, KillReason("memory", text), KILL)
        elif self._soft is not None and rss > self._soft and pid == kept.pid:  # another one ends with its job anyway
            if kept.given:
                text = f"it uses {_mib(rss)} of memory, above the soft limit of {_mib(self._soft)}"
                self._keeper.replace(kept, text)
            elif not self._has_told_of_fresh:  # its successor would hold no less, and the next one after a second
                self._has_told_of_fresh = True
                log.warning(
                    "%s uses %s of memory before its first job, above the soft limit of %s: "
                    "each child will be replaced after its first job; raise the limit",
                    kept,
                    _mib(rss),
                    _mib(self._soft),
                )
        self._note_stop(kept, seen.is_stopped, now)

    def _note_stop(self, kept: ChildProcess, is_stopped: bool, now: float) -> None:
        if not is_stopped:
            if kept.stopped_at is not None:
                kept.stopped_at = None
                self._keeper.availability_changed(kept)
        elif kept.stopped_at is None:
            kept.stopped_at = now
            log.warning("%s is stopped (SIGSTOP); it gets no jobs until it continues", kept)
            self._keeper.availability_changed(kept)
        elif now >= kept.stopped_at + FROZEN_S and kept.running() is None:
            self._keeper.kill(kept, KillReason("frozen", f"it was stopped for {now - kept.stopped_at:.0f} s"), KILL)


def _mib(size: int) -> str:
    return f"{size / 1048576:.0f} MiB"

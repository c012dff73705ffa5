"""Jobs run in child processes that are kept: the line of jobs, who is given which, and what came of them.

The children themselves are :mod:`kafka.tasks.pools.supervision`'s; this module owns the line of jobs that no child has,
and the outcomes that the worker has not fetched. One job has one place: the line, one child's table, or the outcomes.

Handing out. An idle child is served first. While jobs are long each child has one (fair). When the worker wants more
jobs with the pool than there are slots, because they are short, they are written ahead into the children's channels,
evenly: a child then goes from one job to the next without the parent, which else needs a turn of its loop for each.
Nothing is committed by that: what a child has not received can be taken out of its channel again, even while it is
stuck in C code, and an idle child gets half of what waits behind a busy one. So no job waits behind a long one while
anybody is idle.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from kafka.net.loop import Loop
from kafka.tasks.outcome import AttemptFailed, ChildLost, JobSucceeded, LockLost, Outcome
from kafka.tasks.pools.autoscaler import Autoscaler, PoolLoad
from kafka.tasks.pools.base import ChildSnapshot, Finished, Wake
from kafka.tasks.pools.child_process import ChildProcess
from kafka.tasks.pools.exit_reasons import ChildExit
from kafka.tasks.pools.limits import StartedJob, timeout_outcome
from kafka.tasks.pools.memory import OomCounter, ProcessSample, sample_process
from kafka.tasks.pools.pool_shutdown import poll_once, stop_children
from kafka.tasks.pools.processes import JobDone, Launcher
from kafka.tasks.pools.settings import MOST_CONCURRENCY, PoolSettings
from kafka.tasks.pools.stacks import StackDumper
from kafka.tasks.pools.statistics import WriteCounts, brief, human_write_stats
from kafka.tasks.pools.supervision import FULL_CHANNEL_RETRY_S, Supervision
from kafka.tasks.runner import Job

log = logging.getLogger(__name__)

MOST_AHEAD = 128
"""Jobs with one child at once when the number is left to the pool. A channel holds about 200 small ones."""

_PROCESS_ENDED = ", and its process was killed"


class PreforkPool:
    """A pool of ``settings.slots`` child processes. Without a ``loop`` things happen in :meth:`finished`."""

    is_strict = False

    def __init__(
        self,
        settings: PoolSettings,
        wake: Wake,
        loop: Loop | None = None,
        launcher: Launcher | None = None,
        rng: Random | None = None,
        look: Callable[[int], ProcessSample | None] = sample_process,
        oom: OomCounter | None = None,
    ) -> None:
        settings = self.settings_for(settings)
        self.concurrency = settings.slots
        self.depth = settings.slots
        self.backlog = 0
        self._settings = settings
        self._wake = wake
        self._loop = loop
        self._line: deque[Job] = deque()
        self._done: list[Finished] = []
        self._never: list[Job] | None = None
        self._is_woken = False
        self._is_hand_out_due = False
        self._busy = 0
        self._seq = 0
        self._aside: list[Job] = []
        """Jobs that could not be written: back in the line after a while. Those behind them need not wait for that."""
        self._told_of: set[Job] = set()
        """Those of which the log has been told, and that could not be written since."""
        self._counts = {"done": 0, "put_back": 0}
        self._was = (False, False)
        self._is_per_job = settings.process_per_job
        self._load: Callable[[ChildProcess], int] = _load_and_process if settings.process_per_job else _load
        self._scaler = Autoscaler(*settings.autoscale) if settings.autoscale is not None else None
        if launcher is None:
            from kafka.tasks.pools.launch import make_launcher

            launcher = make_launcher(settings)
        self.supervision = Supervision(launcher, settings, self, loop, self.is_strict, rng, look, oom)
        self._stacks = StackDumper(launcher.stacks_fd, self.supervision.deadlines)
        self.supervision.begin()

    @staticmethod
    def settings_for(given: PoolSettings) -> PoolSettings:
        """The settings that hold for this kind of pool."""
        return given

    # -- how it is ----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self.supervision.takers)

    @property
    def degraded(self) -> str | None:
        supervision = self.supervision
        return None if supervision.takers else supervision.starts.open_because(supervision.deadlines.time())

    @property
    def ever_ready(self) -> bool:
        return self.supervision.starts.ever_up

    @property
    def may_grow(self) -> bool:
        autoscale = self._settings.autoscale
        return autoscale is not None and self.concurrency < autoscale[1]

    @property
    def free_slots(self) -> int:
        return max(0, self.depth - self._busy) if self.supervision.takers else 0

    @property
    def busy(self) -> int:
        return self._busy

    def children(self) -> list[ChildSnapshot]:
        now = self.supervision.deadlines.time()
        return [kept.state(now) for kept in self.supervision.children.values()]

    def lost_by_cause(self) -> Mapping[str, int]:
        return dict(self.supervision.lost_by_cause)

    def statistics(self) -> dict[str, int]:
        supervision = self.supervision
        counts = {"concurrency": self.concurrency, "busy": self._busy, **self._counts}
        return {**counts, "children": len(supervision.children), **supervision.counts, **supervision.inspection.counts}

    def human_write_stats(self) -> dict[str, Any]:
        """How evenly jobs were written to the children that are there now; for people."""
        children = self.supervision.children
        return human_write_stats({number: WriteCounts(kept.given, len(kept.jobs)) for number, kept in children.items()})

    # -- jobs in and out ----------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        self._busy += 1
        self._line.append(job)
        if not self._is_hand_out_due:
            self._hand_out_later()

    def finished(self, timeout: float = 0.0) -> list[Finished]:
        self._is_woken = False
        if timeout > 0 and not self._done:
            self._hand_out()
            poll_once(self.supervision, timeout)
        if self._loop is None or timeout > 0:
            self._hand_out()
        done, self._done = self._done, []
        self._busy -= len(done)
        return done

    def recall(self) -> list[Job]:
        back: list[tuple[int, Job]] = []
        for kept in self.supervision.children.values():
            back += kept.take_back()
            kept.is_blocked = False
        back.sort(key=lambda each: each[0])
        self._from_aside()
        self._told_of.clear()
        jobs = [job for _, job in back]
        jobs += self._line
        self._line.clear()
        self._busy -= len(jobs)
        return jobs

    def tick(self, now: float) -> float | None:
        """Deadlines are the loop's affair; without one they are looked at here."""
        if self._loop is None:
            self.supervision.deadlines.run_due()
        return None

    def interrupt(self) -> None:
        for kept in self.supervision.children.values():
            self.supervision.inspection.interrupt(kept)

    def cancel(self, job: Job) -> None:
        """One that no child has received never will run."""
        for kept in self.supervision.children.values():
            seq = next((seq for seq, each in kept.jobs.items() if each is job), None)
            if seq is None:
                continue
            if kept.child.page.begun_seq != seq:
                self.came_back(kept.take_back())
            if seq in kept.jobs:  # it runs, or is about to
                kept.child.page.cancel(seq)
                return
        self._from_aside()
        if job in self._line:
            self._line.remove(job)
            self._told_of.discard(job)
            self._done.append((job, LockLost()))
            self._tell()

    def abandon(self) -> list[Job]:
        self.supervision.abandon()
        return []

    def stop(self, grace: float) -> list[Job]:
        """The outcomes of jobs that ended meanwhile are there for :meth:`finished`."""
        self._never = self.recall()
        stop_children(self.supervision, grace, self._settings.kill_grace)
        never = [*self._never, *self._line]
        for kept in self.supervision.children.values():
            never += kept.jobs.values()
        self._line.clear()
        self._busy = len(self._done)
        return never

    def dump(self) -> None:
        self._stacks.ask(self.supervision.children.values())

    # -- how many -----------------------------------------------------------------------------------------------------

    def grow(self, count: int = 1) -> None:
        self._resize(self.concurrency + count)

    def shrink(self, count: int = 1) -> None:
        self._resize(self.concurrency - count)

    def _resize(self, slots: int) -> None:
        slots = min(max(1, slots), MOST_CONCURRENCY)
        if slots == self.concurrency:
            return
        log.info("resizing the pool from %d to %d children", self.concurrency, slots)
        self.depth = slots if self.depth == self.concurrency else max(self.depth, slots)
        self.concurrency = self.supervision.slots = slots
        self.supervision.change_later()  # this may be the callback of a descriptor: that of signals
        self.changed()

    # -- handing out --------------------------------------------------------------------------------------------------

    def _hand_out_later(self) -> None:
        """After the callbacks of this turn, so that all jobs of one turn are dealt out together."""
        if not self._is_hand_out_due and self._loop is not None:
            self._is_hand_out_due = True
            self._loop.call_soon(self._hand_out)

    def _hand_out(self) -> None:
        self._is_hand_out_due = False
        takers = self.supervision.takers
        if not takers:
            return
        if self._line:
            self._deal(takers)
        while not self._line and len(takers) > 1 and self._take_from_the_busiest(takers):
            before = len(self._line)
            self._deal(takers)
            if len(self._line) == before:
                break

    def _deal(self, takers: list[ChildProcess]) -> None:
        """Jobs from the line to the children, so that all have the same number, as far as there is room."""
        line = self._line
        room = self.supervision.room
        given = sum(len(kept.jobs) for kept in takers)
        level = min(self._most_each(len(takers)), -(-(given + len(line)) // len(takers)))
        for kept in sorted(takers, key=self._load):
            count = room(kept, level)
            if count > 0:
                self._give(kept, line, min(count, len(line)))
                if not line:
                    return

    def _give(self, kept: ChildProcess, line: deque[Job], count: int) -> None:
        send, jobs, seq = kept.child.send, kept.jobs, self._seq
        while count and line:
            job = line[0]
            seq += 1
            try:
                if not send(seq, job):
                    kept.is_blocked = True
            except OSError as error:  # no descriptor for the file of a large job, say: not the channel's fault
                self._put_aside(kept, error)
                continue
            if kept.is_blocked:
                if not jobs:
                    self.supervision.clogged(kept)
                break
            kept.clogged_count = 0
            count -= 1
            if self._told_of:
                self._told_of.discard(job)
            del line[0]
            jobs[seq] = job
            kept.given += 1
            if job.soft_s is not None or job.hard_s is not None:
                self.supervision.inspection.limited(kept, job)
        self._seq = seq

    def _put_aside(self, kept: ChildProcess, error: OSError) -> None:
        job = self._line.popleft()
        if job not in self._told_of:
            self._told_of.add(job)
            log.error("could not send %s to %s, retrying: %s", job, kept, error)
        if not self._aside:
            self.supervision.deadlines.after(FULL_CHANNEL_RETRY_S, self._from_aside)
        self._aside.append(job)

    def _from_aside(self) -> None:
        if self._aside:
            self._line.extendleft(reversed(self._aside))
            self._aside.clear()
            self._hand_out_later()

    def _most_each(self, takers: int) -> int:
        """Jobs with one child at once."""
        if self._settings.prefetch is not None:
            return self._settings.prefetch
        return min(MOST_AHEAD, max(1, -(-self.depth // takers)))

    def _take_from_the_busiest(self, takers: list[ChildProcess]) -> bool:
        """Half of what waits with the child that has most, when another is idle; whether there was something."""
        if all(kept.jobs or self.supervision.room(kept, 1) <= 0 for kept in takers):
            return False
        behind: Callable[[ChildProcess], int] = _behind
        if self._is_per_job and any(self._load(kept) == 0 and self.supervision.room(kept, 1) > 0 for kept in takers):
            behind = _behind_a_process
        busiest = max(takers, key=behind)
        waiting = behind(busiest)
        if waiting < 1:
            return False
        back = busiest.take_back(-(-waiting // 2))
        self._line.extendleft(job for _, job in reversed(back))
        return bool(back)

    # -- what the supervision tells -----------------------------------------------------------------------------------

    def ended(self, kept: ChildProcess, news: Sequence[JobDone]) -> int:
        jobs, done = kept.jobs, self._done
        before, strange = len(done), -1
        for seq, outcome, ran_s, started_at in news:
            job = jobs.pop(seq, None)
            if job is None:
                strange = seq
                break
            job.started_at = started_at
            job.ran_s = ran_s
            is_too_long = kept.doom is not None and kept.doom.cause == "time" and kept.doomed_seq == seq
            if is_too_long and isinstance(outcome, AttemptFailed):
                outcome = timeout_outcome(job, _PROCESS_ENDED, is_told=True)
            done.append((job, outcome))
        count = len(done) - before
        self._counts["done"] += count
        if log.isEnabledFor(logging.DEBUG):
            for job, outcome in done[before:]:
                log.debug("%s: %s", job, brief(outcome.value if isinstance(outcome, JobSucceeded) else outcome))
        if strange >= 0:
            self.supervision.damaged(kept, f"it reported unknown job seq {strange}")
        self._tell()
        self._hand_out_later()
        return count

    def came_back(self, jobs: list[tuple[int, Job]]) -> None:
        """One that was cancelled meanwhile never will run: somebody else runs it."""
        self._counts["put_back"] += len(jobs)
        cancelled = [job for _, job in jobs if job.cancelled]
        if cancelled:
            self._done += [(job, LockLost()) for job in cancelled]
            self._tell()
        self._line.extendleft(job for _, job in reversed(jobs) if not job.cancelled)
        self._hand_out_later()

    def lost(self, kept: ChildProcess, running: StartedJob, death: ChildExit) -> None:
        job = running.job
        job.started_at = running.started_at
        job.ran_s = max(0.0, self.supervision.deadlines.time() - running.started_at)
        if death.cause == "stopped" and self._never is not None:
            self._never.append(job)
            return
        rss_bytes = kept.rss_bytes
        if self._is_per_job and kept.sampled_at < running.started_at:
            rss_bytes = None  # that was the process of another job, or the child's own
        its_fault = running.seq == kept.doomed_seq or death.cause not in ("time", "memory", "stopped")
        is_time = death.cause == "time" and its_fault
        detail = f"process {kept.pid}{'; ' if death.detail and not is_time else ''}{'' if is_time else death.detail}"
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
        self._tell()

    def changed(self) -> None:
        self._hand_out_later()
        state = (self.ready, self.degraded is not None)
        if state != self._was or self.ready:
            self._was = state
            self._tell()

    def sampled(self, now: float) -> None:
        if self._is_per_job:
            self._hand_out_later()  # nobody tells when the process of a job has come to its end
        if self._scaler is None:
            return
        busy = sum(bool(kept.jobs) for kept in self.supervision.takers)
        waiting = self._busy - len(self._done) - busy + self.backlog
        target = self._scaler.target(now, PoolLoad(self.concurrency, busy, max(0, waiting)))
        self._resize(target)

    def _tell(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._wake()


def _load(kept: ChildProcess) -> int:
    return len(kept.jobs)


def _behind(kept: ChildProcess) -> int:
    return len(kept.jobs) - 1


# With a process for each job, that of the last one may still be busy with its exit functions: nothing begins meanwhile.


def _load_and_process(kept: ChildProcess) -> int:
    return 2 * len(kept.jobs) + (kept.child.page.runner_pid != 0)


def _behind_a_process(kept: ChildProcess) -> int:
    is_held_up = kept.child.page.runner_pid != 0 and kept.running() is None
    return len(kept.jobs) if is_held_up else len(kept.jobs) - 1

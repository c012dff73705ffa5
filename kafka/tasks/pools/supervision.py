"""Children from their start to their burial: who is started when, watched how, killed why, replaced by whom.

It owns the children of a pool. It hands out no job and keeps no outcome: whose jobs those are (:class:`PoolCallbacks`,
the pool) is told what ended, what came back and what was lost. It looks at living children through ``inspection``,
learns who has died from ``deathwatch``, and what is due or true is decided in pure modules: ``limits``, ``starts``,
``scaling``, ``deaths``.

Callbacks of descriptors only read and take notes; watches are made and ended, and children buried, by what runs after
all callbacks of the turn. A watch belongs to one :class:`ChildProcess`, so to one generation: a descriptor's number
that is given out again can never meet its forerunner's state.

The burial, in this order: read the news to their end (a finished result may be there), take back what was not received,
and only then ask the page which job had begun. That one is lost; all others go back into the line, without a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Protocol

from kafka.net.loop import Loop
from kafka.tasks.pools.child_monitor import SAMPLE_S, ChildMonitor
from kafka.tasks.pools.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.deadlines import Deadline, PoolDeadlines
from kafka.tasks.pools.exit_reasons import KILL, TERM, ChildExit, KillReason, child_exit, signal_name
from kafka.tasks.pools.limits import StartedJob
from kafka.tasks.pools.memory import OomCounter, ProcessSample, quota, sample_process
from kafka.tasks.pools.processes import ChannelDamaged, ChildProgress, ChildUp, ExitStatus, JobDone, Launcher
from kafka.tasks.pools.reaper import Reaper
from kafka.tasks.pools.registry import VERSIONS
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.pools.spawn_breaker import SpawnBreaker
from kafka.tasks.runner import Job

log = logging.getLogger(__name__)

MOST_PROGRESS = 1000
MOST_PROGRESS_TEXT = 10_000
"""What a child says before it is up: so often, and so many characters of each."""

PROGRESS_LOG_DELAY_S = 0.5
"""What a child says before it is up is told after that, unless it has ended: then they are a part of why."""
RETIRE_S = 5.0
"""A retired child without a job has so long to end."""
ABANDON_S = 1.0
"""Between SIGTERM and SIGKILL when the worker itself will not wait any longer."""
FULL_CHANNEL_RETRY_S = 1.0
"""A channel that takes no job although its child has none is tried again after that long."""
MAX_FULL_CHANNEL = 10
"""A channel that did not take a job so often is damaged."""
STARTS_PER_TURN = 16
"""Children started in one go; a fork takes about a millisecond, in which the loop does nothing else."""


class PoolCallbacks(Protocol):
    """Whose jobs the children run."""

    def ended(self, kept: ChildProcess, news: Sequence[JobDone]) -> int:
        """Results of that child were read. How many of them were of jobs that it had."""

    def came_back(self, jobs: list[tuple[int, Job]]) -> None:
        """These were with a child and were not begun: they are for others, before all that waits."""

    def lost(self, kept: ChildProcess, running: StartedJob, death: ChildExit) -> None:
        """The child is gone, and had begun this."""

    def changed(self) -> None:
        """Children came or went: there may be room, or readiness may have changed."""

    def sampled(self, now: float) -> None:
        """Once a second."""


class Supervision:
    """The children of one pool. ``slots`` is how many there should be; :meth:`maintain` brings it about.

    ``is_strict``: a child is never given more jobs than its quota, even when none can replace it.
    """

    def __init__(
        self,
        launcher: Launcher,
        settings: PoolSettings,
        owner: PoolCallbacks,
        loop: Loop | None,
        is_strict: bool = False,
        rng: Random | None = None,
        look: Callable[[int], ProcessSample | None] = sample_process,
        oom: OomCounter | None = None,
    ) -> None:
        self.slots = settings.slots
        self.is_strict = is_strict
        self.children: dict[int, ChildProcess] = {}
        """Generation -> child, in the order of starting, until it is buried."""
        self.takers: list[ChildProcess] = []
        """Those that may be given jobs."""
        self.starts = SpawnBreaker(settings.breaker_failures)
        self.counts = {"started": 0, "replaced": 0, "boot_failures": 0}
        self.lost_by_cause: dict[str, int] = {}
        self.is_closing = False
        """Nobody is started any more."""
        self.deadlines = PoolDeadlines(loop)
        self.inspection = ChildMonitor(settings, self, self.deadlines, look)
        self.deaths = Reaper(self.children, self, self.deadlines, loop)
        self._launcher = launcher
        self._settings = settings
        self._owner = owner
        self._loop = loop
        self._time = self.deadlines.time
        self._rng = rng or Random()
        self._oom = oom or OomCounter()
        self._generation = 0
        self._is_change_due = False
        self._next_maintenance: Deadline | None = None

    # -- how many -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the first children."""
        self.deadlines.after(SAMPLE_S, self._sample_all)
        self.deaths.begin()
        self.maintain()

    def maintain(self) -> None:
        """Start what is missing, as far as the back-off lets; retire what is too many."""
        if self.is_closing:
            return
        now = self._time()
        stages = [(kept.stage, kept.replace is not None) for kept in self.children.values()]
        # One that is killed before it was up is a failed start once it is dead, and what follows on that comes then.
        booting = sum(not kept.came_up for kept in self.children.values())
        staying = booting + stages.count((ChildStage.UP, False))
        for count in range(self.slots - staying):
            if self.starts.next_at > now or count == STARTS_PER_TURN:
                self._maintain_at(max(now, self.starts.next_at))
                break
            if self.starts.one_at_a_time and booting + count:
                break
            self._start(now)
        self._retire_surplus()

    def _retire_surplus(self) -> None:
        up = [kept for kept in self.children.values() if kept.stage is ChildStage.UP]
        surplus = len(up) - self.slots
        if surplus <= 0:
            return
        # Those that have a successor go first, then idle ones, then the youngest.
        up.sort(key=lambda kept: (kept.replace is None, len(kept.jobs), -kept.generation))
        for kept in up[:surplus]:
            self.retire(kept)

    def _maintain_at(self, when: float) -> None:
        if self._next_maintenance is not None:
            self._next_maintenance.cancel()
        self._next_maintenance = self.deadlines.at(when, self.maintain)

    def change_later(self) -> None:
        """Maintain, and tell the pool, after the callbacks of this turn."""
        if self._loop is None:
            self._change()
        elif not self._is_change_due:
            self._is_change_due = True
            self._loop.call_soon(self._change)

    def _change(self) -> None:
        self._is_change_due = False
        self.maintain()
        self._owner.changed()

    def availability_changed(self, kept: ChildProcess) -> None:
        """It may be given jobs again, or not any more: then what it has not received is for others."""
        self._list_takers()
        if kept not in self.takers:
            self._back(kept)
        self.change_later()

    def _list_takers(self) -> None:
        self.takers = [
            kept for kept in self.children.values() if kept.stage is ChildStage.UP and kept.stopped_at is None
        ]

    def room(self, kept: ChildProcess, level: int) -> int:
        """How many jobs the child may be given so that it has ``level`` of them."""
        if kept.is_blocked:
            return 0
        room = level - len(kept.jobs)
        if kept.quota is None or (self.starts.boot_failures and not self.is_strict):
            return room  # a child that cannot be replaced works on
        return min(room, kept.quota.most - kept.given)

    def clogged(self, kept: ChildProcess) -> None:
        """Its channel takes no job, and it has none: nothing that it reports would tell when to try again."""
        kept.clogged_count += 1
        if kept.clogged_count >= MAX_FULL_CHANNEL:
            self.kill(kept, KillReason("channel", "its channel is full although it has no jobs"), KILL)
        else:
            self.deadlines.after(FULL_CHANNEL_RETRY_S, partial(self._unblock, kept))

    def _unblock(self, kept: ChildProcess) -> None:
        kept.is_blocked = False
        self.change_later()

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self._generation += 1
        self.counts["started"] += 1
        try:
            child = self._launcher.start(self._generation)
        except OSError as error:
            self._boot_failed(now, now, f"could not start a process: {error}")
            return
        kept = ChildProcess(child, now, quota(self._settings.max_jobs_per_child, self._rng))
        self.children[kept.generation] = kept
        kept.stage_timer = self.deadlines.at(now + self._settings.start_limit, partial(self._too_slow, kept))
        if self._loop is not None and child.news_fd >= 0:
            kept.news_watch = self._loop.watch(child.news_fd, partial(self.look, kept))
        self.deaths.watch(kept)

    def _up(self, kept: ChildProcess, up: ChildUp) -> None:
        if kept.stage is not ChildStage.BOOTING:
            return
        ours = self._launcher.registry_hash
        text = ""
        if up.versions and up.versions != VERSIONS:
            text = f"it runs {up.versions} and the worker {VERSIONS}: the installation has changed, restart the worker"
        elif ours and up.registry_hash and up.registry_hash != ours:
            text = "its tasks differ from the worker's: the app's files have changed, restart the worker"
        if text or (text := self.inspection.refusal(kept)):
            self.kill(kept, KillReason("exit", text), KILL)
            return
        if kept.stage_timer is not None:
            kept.stage_timer.cancel()
        kept.stage = ChildStage.UP
        kept.came_up = True
        self.starts.up()
        self._list_takers()
        log.debug("%s is up: %s", kept, up.versions)
        self.change_later()

    def _too_slow(self, kept: ChildProcess) -> None:
        self.look(kept)  # it may be up, and this process be late: stopped and continued, say
        if kept.stage is not ChildStage.BOOTING:
            return
        busy_with = f" ({kept.progress})" if kept.progress else ""
        limit = self._settings.start_limit
        self.kill(kept, KillReason("time", f"it did not start within {limit:g} s{busy_with}"), KILL)

    def _boot_failed(self, now: float, started_at: float, why: str) -> None:
        self.counts["boot_failures"] += 1
        was_open = self.starts.open_because(now) is not None
        self.starts.boot_failed(now, started_at, why)
        wait = self.starts.next_at - now
        when = f"; next attempt {f'in {wait:.3g} s' if wait > 0 else 'now'}"
        if not self.starts.ever_up and self.starts.open_because(now) is not None:
            when = ""  # the worker gives up
        log.warning("child failed to start: %s%s", why, when)
        self._say_if_degraded(was_open, now)
        self._maintain_at(max(now, self.starts.next_at))
        self._owner.changed()

    def _crashed(self, kept: ChildProcess, death: ChildExit, running: StartedJob | None, now: float) -> None:
        if not death.is_ours:  # that was told before it was done
            level = _level(running)
            log.log(level, "%s died: %s%s", kept, death, "" if running is None else f"; it was running {running.job}")
        was_open = self.starts.open_because(now) is not None
        self.starts.crashed(now, str(death), now - kept.started_at)
        self._say_if_degraded(was_open, now)

    def _say_if_degraded(self, was_open: bool, now: float) -> None:
        why = self.starts.open_because(now)
        if why is not None and not was_open and not self.takers:
            log.debug("the pool is degraded: %s", why)  # for others the worker says what that means for it

    # -- what children tell -------------------------------------------------------------------------------------------

    def look(self, kept: ChildProcess) -> None:
        """Read what the child has sent."""
        done: list[JobDone] = []
        try:
            for news in kept.child.read_news():
                if type(news) is JobDone:
                    done.append(news)
                elif kept.came_up or kept.progress_count >= MOST_PROGRESS:
                    raise ChannelDamaged(f"unexpected {type(news).__name__} message")
                elif isinstance(news, ChildUp):
                    self._up(kept, news)
                elif isinstance(news, ChildProgress):
                    kept.progress = news.text[:MOST_PROGRESS_TEXT]
                    kept.progress_count += 1
                    self.deadlines.after(PROGRESS_LOG_DELAY_S, partial(self._tell_progress, kept, kept.progress))
        except ChannelDamaged as error:
            self.damaged(kept, str(error))
        if done:
            self.starts.worked()
            kept.is_blocked = False
            kept.ended += self._owner.ended(kept, done)
            if kept.stage is ChildStage.UP:
                self._after_jobs(kept)
            elif kept.stage is ChildStage.RETIRING and not kept.jobs:
                self._retired_later(kept)  # from now on, not from its retirement, it flushes what its tasks enqueued
        if kept.child.news_eof:
            self.deaths.suspect(kept)

    def damaged(self, kept: ChildProcess, why: str) -> None:
        """Nothing that the child says can be relied on any more."""
        self.kill(kept, KillReason("channel", why), KILL)
        self.deaths.suspect(kept)

    def _tell_progress(self, kept: ChildProcess, text: str) -> None:
        if kept.stage is ChildStage.BOOTING:  # else it is up, or these were its last words, which its end has told
            log.info("child %d (process %d): %s", kept.generation, kept.pid, text)

    def _after_jobs(self, kept: ChildProcess) -> None:
        if kept.quota is not None and kept.ended >= kept.quota.soft and kept.replace is None:
            self.replace(kept, f"it has run {kept.ended} jobs")
        self.inspection.after_job(kept)

    def _sample_all(self) -> None:
        self.deadlines.after(SAMPLE_S, self._sample_all)
        now = self._time()
        for kept in list(self.children.values()):
            self.inspection.sample(kept, now)
        self._oom.note()
        self._launcher.tidy()
        self._owner.sampled(now)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def replace(self, kept: ChildProcess, why: str) -> None:
        """Start a successor; the child works on until that is up."""
        if kept.replace is None and kept.stage is ChildStage.UP:
            kept.replace = why
            self.counts["replaced"] += 1
            log.log(logging.DEBUG if self.is_strict else logging.INFO, "replacing %s: %s", kept, why)
            self.change_later()

    def retire(self, kept: ChildProcess) -> None:
        """No more jobs for this child: it ends what it runs, and then itself."""
        if kept.stage is ChildStage.UP:
            kept.stage = ChildStage.RETIRING
            self._list_takers()
            self._back(kept)
            kept.child.retire()
            self._retired_later(kept)

    def _retired_later(self, kept: ChildProcess) -> None:
        if kept.stage_timer is not None:
            kept.stage_timer.cancel()
        kept.stage_timer = self.deadlines.after(RETIRE_S, partial(self._retired, kept))

    def _retired(self, kept: ChildProcess) -> None:
        if kept.stage is ChildStage.RETIRING:
            if kept.jobs:
                self._retired_later(kept)
            else:
                text = f"it did not end within {RETIRE_S:g} s after it was retired"
                self.kill(kept, KillReason("exit", text), KILL)

    def abandon(self, grace_s: float = ABANDON_S) -> None:
        """Kill everything, and start nobody any more."""
        self.is_closing = True
        for kept in list(self.children.values()):
            if kept.stage is not ChildStage.DOOMED:
                self.kill(kept, KillReason("stopped"), TERM, grace_s)
            elif kept.doom is not None:  # it may have the whole of kill_grace still
                self.deadlines.after(grace_s, partial(self.kill, kept, kept.doom, KILL))

    def kill(self, kept: ChildProcess, doom: KillReason, signum: int, grace_s: float | None = None) -> None:
        """Kill the child and its group: with SIGTERM first, and SIGKILL after a grace, or with SIGKILL."""
        if kept.stage is ChildStage.GONE:
            return
        if kept.stage is not ChildStage.DOOMED:
            if kept.came_up and doom.cause != "stopped":
                level = _level(kept.running())
                log.log(level, "killing %s with %s: %s", kept, signal_name(signum), doom.detail or doom.cause)
            kept.doom = doom
            kept.stage = ChildStage.DOOMED
            self._list_takers()
            self._back(kept)
        if kept.stage_timer is not None:
            kept.stage_timer.cancel()
        kept.child.kill_group(signum)
        if signum != KILL:
            grace_s = self._settings.kill_grace if grace_s is None else grace_s
            kept.stage_timer = self.deadlines.after(grace_s, partial(self.kill, kept, doom, KILL))
        self.change_later()

    def _back(self, kept: ChildProcess) -> None:
        back = kept.take_back()
        if back:
            self._owner.came_back(back)

    def bury(self, kept: ChildProcess, end: ExitStatus) -> None:
        """The process has ended."""
        self._read_to_the_end(kept)
        kept.end_watches()
        kept.end_timers()
        was_retiring = kept.stage is ChildStage.RETIRING
        kept.stage = ChildStage.GONE
        del self.children[kept.generation]
        self._list_takers()
        kept.child.kill_group(KILL)
        kept.child.sweep()
        back = kept.take_back()
        running = kept.running()
        back += [(seq, job) for seq, job in kept.jobs.items() if running is None or seq != running.seq]
        kept.jobs.clear()
        kept.child.close()
        oom_kills = self._oom.new_kills() if end.signal == KILL and kept.doom is None else 0
        death = child_exit(end.code, end.signal, kept.doom, oom_kills, was_retiring)
        death = replace(death, peak_rss_bytes=end.max_rss_bytes, cpu_s=end.cpu_s)
        now = self._time()
        if not kept.came_up:
            if not self.is_closing:
                said = f"; last message: {kept.progress}" if kept.progress and kept.doom is None else ""
                self._boot_failed(now, kept.started_at, f"{death}{said}")
        elif (kept.doom is None and not death.expected) or (death.cause == "memory" and not kept.given):
            self._crashed(kept, death, running, now)
        if back:
            back.sort(key=lambda each: each[0])
            self._owner.came_back(back)
        if running is not None:
            self.lost_by_cause[death.cause] = self.lost_by_cause.get(death.cause, 0) + 1
            self._owner.lost(kept, running, death)
        self.maintain()
        self._owner.changed()

    def _read_to_the_end(self, kept: ChildProcess) -> None:
        """All news of a dead child. A process that it left behind may hold the channel open: nothing new is the end."""
        ended = -1
        while ended != kept.ended and not kept.child.news_eof:
            ended = kept.ended
            self.look(kept)

    def close(self) -> None:
        """After the last burial."""
        self.is_closing = True
        self.deadlines.clear()
        self._launcher.tidy()
        self._launcher.close()


def _level(running: StartedJob | None) -> int:
    """Of a line about a child's end: when it has a job, the worker tells what becomes of that, and of its cause."""
    return logging.WARNING if running is None else logging.DEBUG

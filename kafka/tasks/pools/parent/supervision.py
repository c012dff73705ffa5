"""The life of children: when one is started, how it is watched, why it is killed or replaced, what follows its end.

It owns the children of a pool, but neither jobs nor outcomes: it calls the pool (:class:`PoolCallbacks`) with the jobs
that have ended, returned or were lost. ``child_monitor`` checks living children, ``reaper`` detects exits, and pure
modules decide: ``limits``, ``spawn_breaker``, ``autoscaler``.

Callbacks of descriptors only read and take notes; watches are made and ended, and ended children are handled, by what
runs after all callbacks of the turn. A watch belongs to one :class:`ChildProcess`, so to one generation: a
descriptor's number that is given out again can never meet its forerunner's state.

The end of a child is handled in this order: read its messages to their end (a finished result may be there), take back
what was not received, and only then ask the page which job had begun. That one is lost; all others return to the queue,
without a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Protocol

from kafka.net.loop import Loop
from kafka.tasks.errors import counted
from kafka.tasks.pools.ipc.processes import (
    ChannelDamaged,
    ChildProgress,
    ChildUp,
    ExitStatus,
    JobDone,
    JobStarted,
    Launcher,
)
from kafka.tasks.pools.limits import StartedJob
from kafka.tasks.pools.parent.child_monitor import SAMPLE_S, ChildMonitor
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.deadlines import Deadline, PoolDeadlines
from kafka.tasks.pools.parent.exit_reasons import KILL, TERM, ChildExit, KillReason, child_exit
from kafka.tasks.pools.parent.memory import OomCounter, ProcessSample, quota, sample_process
from kafka.tasks.pools.parent.reaper import Reaper
from kafka.tasks.pools.parent.spawn_breaker import SpawnBreaker
from kafka.tasks.pools.registry import VERSIONS
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings
from kafka.tasks.rules.outcome import signal_name

log = logging.getLogger(__name__)

MOST_PROGRESS = 1000
MOST_PROGRESS_TEXT = 10_000
"""Limits of a child's progress messages before it is up: their number, and characters of each."""

PROGRESS_LOG_DELAY_S = 0.5
"""A progress message is logged after that, unless the child has ended: then it is a part of the reason."""
RETIRE_S = 5.0
"""Time limit for the end of a retired child without a job."""
ABANDON_S = 1.0
"""Time between SIGTERM and SIGKILL when the worker itself stops."""
FULL_CHANNEL_RETRY_S = 1.0
"""Delay before another try of a channel that is full although its child has no job."""
MAX_FULL_CHANNEL = 10
"""Number of such failures after which a channel counts as damaged."""
STARTS_PER_TURN = 16
"""Children started in one go; a fork takes about a millisecond, in which the loop does nothing else."""


class PoolCallbacks(Protocol):
    """Callbacks of the supervision, implemented by the pool."""

    def on_jobs_started(self, child: ChildProcess, messages: Sequence[JobStarted]) -> None:
        """That child has begun these jobs."""

    def on_jobs_done(self, child: ChildProcess, messages: Sequence[JobDone]) -> int:
        """Results of that child were read. Returns how many were of its jobs."""

    def on_jobs_returned(self, jobs: list[tuple[int, Job]]) -> None:
        """These jobs were with a child and not begun: other children run them, before all waiting ones."""

    def on_job_lost(self, child: ChildProcess, running: StartedJob, death: ChildExit) -> None:
        """The child has ended, and had begun this job."""

    def on_children_changed(self) -> None:
        """Children started or ended: capacity or readiness may have changed."""

    def on_sample(self, now: float) -> None:
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
        sample: Callable[[int], ProcessSample | None] = sample_process,
        oom: OomCounter | None = None,
    ) -> None:
        self.slots = settings.slots
        self.is_strict = is_strict
        self.children: dict[int, ChildProcess] = {}
        """Generation -> child, in the order of starting, until it has ended."""
        self.available: list[ChildProcess] = []
        """Children that may be given jobs."""
        self.breaker = SpawnBreaker(settings.breaker_failures)
        self.counts = {"started": 0, "replaced": 0, "boot_failures": 0}
        self.lost_by_cause: dict[str, int] = {}
        self.is_closing = False
        """Whether no child is started any more."""
        self.deadlines = PoolDeadlines(loop)
        self.monitor = ChildMonitor(settings, self, self.deadlines, sample)
        self.reaper = Reaper(self.children, self, self.deadlines, loop)
        self._launcher = launcher
        self._settings = settings
        self._pool = owner
        self._loop = loop
        self._time = self.deadlines.time
        self._rng = rng or Random()
        self._oom = oom or OomCounter()
        self._generation = 0
        # A call of the change callback is scheduled: several changes in one turn of the loop are one.
        self._is_change_scheduled = False
        self._next_maintenance: Deadline | None = None

    # -- size -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the first children."""
        self.deadlines.after(SAMPLE_S, self._sample_all)
        self.reaper.begin()
        self.maintain()

    def resize(self, slots: int) -> None:
        """There should be so many children from now on."""
        self.slots = slots
        self.change_later()  # this may be the callback of a descriptor: that of signals

    def stop_starting(self) -> None:
        """Start no more children."""
        self.is_closing = True

    def maintain(self) -> None:
        """Start missing children, as the back-off allows; retire surplus ones."""
        if self.is_closing:
            return
        now = self._time()
        stages = [(child.stage, child.replace_reason is not None) for child in self.children.values()]
        # One that is killed before it was up is a failed start once it is dead, and what follows on that comes then.
        booting = sum(not child.came_up for child in self.children.values())
        staying = booting + stages.count((ChildStage.UP, False))
        for count in range(self.slots - staying):
            if self.breaker.next_at > now or count == STARTS_PER_TURN:
                self._maintain_at(max(now, self.breaker.next_at))
                break
            if self.breaker.one_at_a_time and booting + count:
                break
            self._start(now)
        self._retire_surplus()

    def _retire_surplus(self) -> None:
        up = [child for child in self.children.values() if child.stage is ChildStage.UP]
        surplus = len(up) - self.slots
        if surplus <= 0:
            return
        # Those that have a successor go first, then idle ones, then the youngest.
        up.sort(key=lambda child: (child.replace_reason is None, len(child.jobs), -child.generation))
        for child in up[:surplus]:
            self.retire(child)

    def _maintain_at(self, when: float) -> None:
        if self._next_maintenance is not None:
            self._next_maintenance.cancel()
        self._next_maintenance = self.deadlines.at(when, self.maintain)

    def change_later(self) -> None:
        """Maintain, and notify the pool, after the callbacks of this turn."""
        if self._loop is None:
            self._change()
        elif not self._is_change_scheduled:
            self._is_change_scheduled = True
            self._loop.call_soon(self._change)

    def _change(self) -> None:
        self._is_change_scheduled = False
        self.maintain()
        self._pool.on_children_changed()

    def availability_changed(self, child: ChildProcess) -> None:
        """It may be given jobs again, or not any more: then what it has not received is for others."""
        self._list_available()
        if child not in self.available:
            self._return_jobs(child)
        self.change_later()

    def _list_available(self) -> None:
        self.available = [
            child for child in self.children.values() if child.stage is ChildStage.UP and child.stopped_at is None
        ]

    def room(self, child: ChildProcess, level: int) -> int:
        """How many jobs the child may be given so that it has ``level`` of them."""
        if child.is_blocked:
            return 0
        room = level - len(child.jobs)
        if child.quota is None or (self.breaker.boot_failures and not self.is_strict):
            return room  # a child that cannot be replaced works on
        return min(room, child.quota.most - child.sent_count)

    def on_channel_full(self, child: ChildProcess) -> None:
        """Its channel is full although it has no job, so no report of the child shows when to try again."""
        if child.count_full_channel() >= MAX_FULL_CHANNEL:
            self.kill(child, KillReason("channel", "its channel is full although it has no jobs"), KILL)
        else:
            self.deadlines.after(FULL_CHANNEL_RETRY_S, partial(self._unblock, child))

    def _unblock(self, child: ChildProcess) -> None:
        child.unblock()
        self.change_later()

    # -- starting -----------------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        self._generation += 1
        self.counts["started"] += 1
        try:
            handle = self._launcher.start(self._generation)
        except OSError as error:
            self._on_boot_failure(now, now, f"could not start a process: {error}")
            return
        child = ChildProcess(handle, now, quota(self._settings.max_jobs_per_child, self._rng))
        self.children[child.generation] = child
        child.set_stage_timer(
            self.deadlines.at(now + self._settings.start_limit, partial(self._on_boot_timeout, child))
        )
        if self._loop is not None:
            child.watch_messages(self._loop, partial(self.read_messages, child))
        self.reaper.watch(child)

    def _up(self, child: ChildProcess, up: ChildUp) -> None:
        """A booted child may be given jobs, unless it differs from the worker (other versions or tasks: the
        installation or the app's files were changed meanwhile) or is above the hard memory limit already: then it is
        killed. A child that is being stopped is left alone."""
        if child.stage is not ChildStage.BOOTING:
            return
        ours = self._launcher.registry_hash
        text = ""
        if up.versions and up.versions != VERSIONS:
            text = f"it runs {up.versions} and the worker {VERSIONS}: the installation has changed, restart the worker"
        elif ours and up.registry_hash and up.registry_hash != ours:
            text = "its tasks differ from the worker's: the app's files have changed, restart the worker"
        if text or (text := self.monitor.boot_refusal(child)):
            self.kill(child, KillReason("exit", text), KILL)
            return
        child.on_up()
        self.breaker.on_child_up()
        self._list_available()
        log.debug("%s is up: %s", child, up.versions)
        self.change_later()

    def _on_boot_timeout(self, child: ChildProcess) -> None:
        self.read_messages(child)  # it may be up, and this process be late: stopped and continued, say
        if child.stage is not ChildStage.BOOTING:
            return
        busy_with = f" ({child.progress})" if child.progress else ""
        limit = self._settings.start_limit
        self.kill(child, KillReason("time", f"it did not start within {limit:g} s{busy_with}"), KILL)

    def _on_boot_failure(self, now: float, started_at: float, why: str) -> None:
        self.counts["boot_failures"] += 1
        was_open = self.breaker.open_reason(now) is not None
        self.breaker.on_boot_failure(now, started_at, why)
        wait = self.breaker.next_at - now
        when = f"; next attempt {f'in {wait:.3g} s' if wait > 0 else 'now'}"
        if not self.breaker.ever_up and self.breaker.open_reason(now) is not None:
            when = ""  # the worker gives up
        log.warning("child failed to start: %s%s", why, when)
        self._log_if_degraded(was_open, now)
        self._maintain_at(max(now, self.breaker.next_at))
        self._pool.on_children_changed()

    def _on_crash(self, child: ChildProcess, death: ChildExit, running: StartedJob | None, now: float) -> None:
        if not death.is_ours:  # logged when it was killed
            level = _level(running)
            log.log(level, "%s died: %s%s", child, death, "" if running is None else f"; it was running {running.job}")
        was_open = self.breaker.open_reason(now) is not None
        self.breaker.on_crash(now, str(death), now - child.started_at)
        self._log_if_degraded(was_open, now)

    def _log_if_degraded(self, was_open: bool, now: float) -> None:
        why = self.breaker.open_reason(now)
        if why is not None and not was_open and not self.available:
            log.debug("the pool is degraded: %s", why)  # for others the worker says what that means for it

    # -- messages of children
    # -------------------------------------------------------------------------------------------

    def read_messages(self, child: ChildProcess) -> None:
        """Read what the child has sent."""
        started: list[JobStarted] = []
        done: list[JobDone] = []
        try:
            for message in child.handle.read_messages():
                if type(message) is JobDone:
                    done.append(message)
                elif type(message) is JobStarted:
                    started.append(message)
                elif child.came_up or child.progress_count >= MOST_PROGRESS:
                    raise ChannelDamaged(f"unexpected {type(message).__name__} message")
                elif isinstance(message, ChildUp):
                    self._up(child, message)
                elif isinstance(message, ChildProgress):
                    child.add_progress(" ".join(message.text[:MOST_PROGRESS_TEXT].split()))
                    self.deadlines.after(PROGRESS_LOG_DELAY_S, partial(self._log_progress, child, child.progress))
        except ChannelDamaged as error:
            self.on_channel_damaged(child, str(error))
        if started:
            self._pool.on_jobs_started(child, started)
        if done:
            self.breaker.on_job_done()
            child.on_jobs_ended(self._pool.on_jobs_done(child, done))
            if child.stage is ChildStage.UP:
                self._after_jobs(child)
            elif child.stage is ChildStage.RETIRING and not child.jobs:
                self._retire_later(child)  # from now on, not from its retirement, it flushes what its tasks enqueued
        if child.handle.messages_eof:
            self.reaper.check_later(child)

    def on_channel_damaged(self, child: ChildProcess, why: str) -> None:
        """The channel cannot be used any more: kill the child."""
        self.kill(child, KillReason("channel", why), KILL)
        self.reaper.check_later(child)

    def _log_progress(self, child: ChildProcess, text: str) -> None:
        if child.stage is ChildStage.BOOTING:  # else it is up, or its end was logged with this text
            log.info("child %d (process %d): %s", child.generation, child.pid, text)

    def _after_jobs(self, child: ChildProcess) -> None:
        if child.quota is not None and child.ended_count >= child.quota.soft:
            self.replace(child, f"it has run {counted(child.ended_count, 'job')}")
        self.monitor.after_job(child)

    def _sample_all(self) -> None:
        self.deadlines.after(SAMPLE_S, self._sample_all)
        now = self._time()
        for child in list(self.children.values()):
            self.monitor.sample(child, now)
        self._oom.advance()
        self._launcher.reap_zombies()
        self._pool.on_sample(now)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def replace(self, child: ChildProcess, why: str) -> None:
        """Start a successor; the child works on until that is up."""
        if child.replace_reason is None and child.stage is ChildStage.UP:
            child.replace(why)
            self.counts["replaced"] += 1
            log.log(logging.DEBUG if self.is_strict else logging.INFO, "replacing %s: %s", child, why)
            self.change_later()

    def retire(self, child: ChildProcess) -> None:
        """Send no more jobs to this child; it ends after its current ones."""
        if child.stage is ChildStage.UP:
            child.on_retired()
            self._list_available()
            self._return_jobs(child)
            child.handle.retire()
            self._retire_later(child)

    def _retire_later(self, child: ChildProcess) -> None:
        child.set_stage_timer(self.deadlines.after(RETIRE_S, partial(self._retired, child)))

    def _retired(self, child: ChildProcess) -> None:
        if child.stage is ChildStage.RETIRING:
            if child.jobs:
                self._retire_later(child)
            else:
                text = f"it did not end within {RETIRE_S:g} s after it was retired"
                self.kill(child, KillReason("exit", text), KILL)

    def abandon(self, grace_s: float = ABANDON_S) -> None:
        """Kill all children, and start no more."""
        self.stop_starting()
        for child in list(self.children.values()):
            if child.stage is not ChildStage.KILLING:
                self.kill(child, KillReason("stopped"), TERM, grace_s)
            elif child.kill_reason is not None:  # it may have the whole of kill_grace still
                self.deadlines.after(grace_s, partial(self.kill, child, child.kill_reason, KILL))

    def kill(self, child: ChildProcess, kill_reason: KillReason, signum: int, grace_s: float | None = None) -> None:
        """Kill the child and its group: with SIGTERM first, and SIGKILL after a grace, or with SIGKILL."""
        if child.stage is ChildStage.GONE:
            return
        if child.stage is not ChildStage.KILLING:
            if child.came_up and kill_reason.cause != "stopped":
                level = _level(child.running())
                log.log(
                    level, "killing %s with %s: %s", child, signal_name(signum), kill_reason.detail or kill_reason.cause
                )
            child.on_killed(kill_reason)
            self._list_available()
            self._return_jobs(child)
        child.handle.kill_group(signum)
        timer: Deadline | None = None
        if signum != KILL:
            grace_s = self._settings.kill_grace if grace_s is None else grace_s
            timer = self.deadlines.after(grace_s, partial(self.kill, child, kill_reason, KILL))
        child.set_stage_timer(timer)
        self.change_later()

    def _return_jobs(self, child: ChildProcess) -> None:
        back = child.recall_jobs()
        if back:
            self._pool.on_jobs_returned(back)

    def on_exit(self, child: ChildProcess, end: ExitStatus) -> None:
        """The process has ended."""
        self._read_to_the_end(child)
        was_retiring = child.stage is ChildStage.RETIRING
        child.on_exit()
        del self.children[child.generation]
        self._list_available()
        child.handle.kill_group(KILL)
        child.handle.kill_orphans()
        running, others = child.take_jobs()
        child.handle.close()
        oom_kills = self._oom.new_kills() if end.signal == KILL and child.kill_reason is None else 0
        death = child_exit(end.code, end.signal, child.kill_reason, oom_kills, was_retiring)
        death = replace(death, peak_rss_bytes=end.max_rss_bytes, cpu_s=end.cpu_s)
        now = self._time()
        if not child.came_up:
            if not self.is_closing:
                is_shown = child.progress and child.kill_reason is None
                last_message = f"; last message: {child.progress}" if is_shown else ""
                self._on_boot_failure(now, child.started_at, f"{death}{last_message}")
        elif (child.kill_reason is None and not death.expected) or (death.cause == "memory" and not child.sent_count):
            self._on_crash(child, death, running, now)
        if others:
            self._pool.on_jobs_returned(others)
        if running is not None:
            self.lost_by_cause[death.cause] = self.lost_by_cause.get(death.cause, 0) + 1
            self._pool.on_job_lost(child, running, death)
        self.maintain()
        self._pool.on_children_changed()

    def _read_to_the_end(self, child: ChildProcess) -> None:
        """Read the remaining messages of a dead child. A process that it left behind may hold the channel open, so an
        empty read is the end."""
        ended = -1
        while ended != child.ended_count and not child.handle.messages_eof:
            ended = child.ended_count
            self.read_messages(child)

    def close(self) -> None:
        """Release everything; after the last child has ended."""
        self.stop_starting()
        self.deadlines.clear()
        self._launcher.reap_zombies()
        self._launcher.close()


def _level(running: StartedJob | None) -> int:
    """Of a line about a child's end: when it has a job, the worker logs what becomes of that, and its cause."""
    return logging.WARNING if running is None else logging.DEBUG

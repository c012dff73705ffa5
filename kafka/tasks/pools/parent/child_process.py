"""One child of a pool in the parent: its stage, its jobs, its last known state.

The table ``jobs`` (sequence number -> job, in the order of giving) is the only truth about which job is with this
child: a job is in it from the moment of giving until its result was read, it was taken back, or the child has ended.
:mod:`kafka.tasks.pools.parent.supervision` decides on the stage, the pool on the jobs; what they, the monitor and the
reaper change here, they change by a method.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from kafka.net.loop import Loop, Watch
from kafka.tasks.pools.base import ChildSnapshot
from kafka.tasks.pools.ipc.processes import ChildHandle
from kafka.tasks.pools.limits import ChildLimits, StartedJob
from kafka.tasks.pools.parent.deadlines import Deadline
from kafka.tasks.pools.parent.exit_reasons import KillReason
from kafka.tasks.pools.parent.memory import JobQuota
from kafka.tasks.pools.runner import Job


class ChildStage(Enum):
    """Where a child stands: BOOTING -> UP -> RETIRING (no more jobs) -> GONE; KILLING comes after any but GONE."""

    BOOTING = "booting"
    UP = "up"
    RETIRING = "retiring"
    KILLING = "dying"
    GONE = "gone"


class ChildProcess:
    """A child and what the parent knows of it.

    ``sent_count`` and ``ended_count`` count its jobs. ``replace_reason``: why another one is to take its place, after
    which it retires. ``kill_reason``: why it is being killed. ``stopped_at``: since when the kernel says that it is
    stopped. ``is_blocked``: its channel is full until it reports something. ``is_closed``: it has closed its end of the
    channel. ``progress`` is its last message before it was up.
    """

    __slots__ = (
        "_check_timer", "_exit_watch", "_full_channel_count", "_messages_watch", "_stage_timer", "came_up",
        "ended_count", "generation", "handle", "is_blocked", "is_closed", "jobs", "kill_reason", "limits", "progress",
        "progress_count", "quota", "replace_reason", "rss_bytes", "sampled_at", "sent_count", "stage", "started_at",
        "stopped_at",
    )  # fmt: skip

    def __init__(self, handle: ChildHandle, now: float, quota: JobQuota | None) -> None:
        self.handle = handle
        self.generation = handle.generation
        self.stage = ChildStage.BOOTING
        self.started_at = now
        self.quota = quota
        self.came_up = False
        # By sequence number, in the order of sending; the child runs them in this order.
        self.jobs: dict[int, Job] = {}
        self.sent_count = 0
        self.ended_count = 0
        self.limits = ChildLimits()
        self.replace_reason: str | None = None
        self.kill_reason: KillReason | None = None
        self.is_blocked = False
        self.is_closed = False
        self._full_channel_count = 0
        self.stopped_at: float | None = None
        self.rss_bytes: int | None = None
        self.sampled_at = now
        self.progress_count = 0
        self.progress = ""
        self._messages_watch: Watch | None = None
        self._exit_watch: Watch | None = None
        self._check_timer: Deadline | None = None
        self._stage_timer: Deadline | None = None

    @property
    def pid(self) -> int:
        """0 while its fork server has not forked it yet."""
        return self.handle.pid

    @property
    def runner_pid(self) -> int:
        """The process that runs its job: a fork of its own for that, or itself."""
        return self.handle.page.runner_pid or self.handle.pid

    def running(self) -> StartedJob | None:
        """The job that it has begun and whose result was not read, by its page."""
        page = self.handle.page
        begun = page.begun_seq
        job = self.jobs.get(begun)
        return None if job is None else StartedJob(begun, job, page.started_at)

    # -- its jobs -----------------------------------------------------------------------------------------------------

    def send(self, seq: int, job: Job) -> bool:
        """Send it a job, which is then in the table; False when its channel is full. OSError, such as for want of a
        descriptor for the file of a large job, is not the channel's fault.
        """
        if not self.handle.send(seq, job):
            self.is_blocked = True
            return False
        self._full_channel_count = 0
        self.jobs[seq] = job
        self.sent_count += 1
        return True

    def count_full_channel(self) -> int:
        """Its channel is full although it has no job: how often in a row."""
        self._full_channel_count += 1
        return self._full_channel_count

    def unblock(self) -> None:
        """Its channel may have room again."""
        self.is_blocked = False

    def on_jobs_ended(self, count: int) -> None:
        """It has reported the ends of so many of its jobs."""
        self.is_blocked = False
        self.ended_count += count

    def recall_jobs(self, most: int | None = None) -> list[tuple[int, Job]]:
        """Jobs that it had not received, from the front; they are not its own any more, and its channel has room."""
        if not self.jobs:
            return []
        taken = [(seq, self.jobs.pop(seq)) for seq in self.handle.recall(most) if seq in self.jobs]
        if taken:
            self.sent_count -= len(taken)
            self.is_blocked = False
        return taken

    def take_jobs(self) -> tuple[StartedJob | None, list[tuple[int, Job]]]:
        """Of a child that has ended: the job that it had begun, which is lost with it, and all others, in order."""
        others = self.recall_jobs()
        running = self.running()
        others += [(seq, job) for seq, job in self.jobs.items() if running is None or seq != running.seq]
        others.sort(key=lambda each: each[0])
        self.jobs.clear()
        return running, others

    # -- its stage ----------------------------------------------------------------------------------------------------

    def add_progress(self, text: str) -> None:
        """It has reported how far its start is."""
        self.progress = text
        self.progress_count += 1

    def on_up(self) -> None:
        """It takes jobs."""
        self.set_stage_timer(None)
        self.stage = ChildStage.UP
        self.came_up = True

    def replace(self, why: str) -> None:
        """Another one is to take its place."""
        self.replace_reason = why

    def on_retired(self) -> None:
        """It gets no more jobs, and ends after those that it has received."""
        self.stage = ChildStage.RETIRING

    def on_killed(self, kill_reason: KillReason) -> None:
        """It is being killed."""
        self.kill_reason = kill_reason
        self.stage = ChildStage.KILLING

    def on_exit(self) -> None:
        """Its process has ended. Its descriptors are still open."""
        self.close_watches()
        self.cancel_timers()
        self.stage = ChildStage.GONE

    # -- what is seen of it -------------------------------------------------------------------------------------------

    def on_sampled(self, rss_bytes: int, now: float) -> None:
        """Its memory was measured."""
        self.rss_bytes = rss_bytes
        self.sampled_at = now

    def set_stopped(self, at: float | None) -> None:
        """The kernel has stopped it, or (None) it runs again."""
        self.stopped_at = at

    def on_channel_closed(self) -> None:
        """It has closed its channel: an end that cannot be read away would be reported for ever."""
        self.is_closed = True
        if self._messages_watch is not None:
            self._messages_watch.close()

    def state(self, now: float) -> ChildSnapshot:
        """Its state for statistics and snapshots."""
        running = self.running() if self.stage is not ChildStage.BOOTING else None
        page = self.handle.page
        state_name = self.stage.value
        if self.stopped_at is not None:
            state_name = "stopped"
        elif self.stage is ChildStage.UP:
            state_name = "busy" if running is not None else "idle"
        active_at = max(page.heartbeat_at, self.started_at)
        return ChildSnapshot(
            self.runner_pid if running is not None else self.pid,
            self.generation,
            state_name,
            running.job.envelope.id if running is not None else None,
            running.job.envelope.name if running is not None else None,
            max(0.0, now - running.started_at) if running is not None else None,
            self.rss_bytes,
            self.ended_count,
            max(0.0, now - active_at),
        )

    # -- timers and watches -------------------------------------------------------------------------------------------

    def set_stage_timer(self, timer: Deadline | None) -> None:
        """The end of its time in the present stage, in place of the last one."""
        if self._stage_timer is not None:
            self._stage_timer.cancel()
        self._stage_timer = timer

    def set_check_timer(self, timer: Deadline | None) -> None:
        """The next look at its jobs' limits, in place of the last one."""
        if self._check_timer is not None:
            self._check_timer.cancel()
        self._check_timer = timer

    def cancel_timers(self) -> None:
        """Cancel both."""
        self.set_stage_timer(None)
        self.set_check_timer(None)

    def watch_messages(self, loop: Loop, callback: Callable[[], object]) -> None:
        """Have the loop report its messages."""
        if self.handle.messages_fd >= 0:
            self._messages_watch = loop.watch(self.handle.messages_fd, callback)

    def watch_exit(self, loop: Loop, callback: Callable[[], object]) -> None:
        """Have the loop report its end, where there is a pidfd."""
        if self.handle.pidfd is not None:
            self._exit_watch = loop.watch(self.handle.pidfd, callback)

    def close_stale_exit_watch(self) -> None:
        """When its fork server is gone, the pipe that stood for a pidfd is at its end."""
        if self._exit_watch is not None and self.handle.pidfd is None:
            self._exit_watch.close()

    def close_watches(self) -> None:
        """Stop watching its descriptors, before they are closed."""
        for watch in (self._messages_watch, self._exit_watch):
            if watch is not None:
                watch.close()
        self._messages_watch = self._exit_watch = None

    def __str__(self) -> str:
        return f"child {self.generation} (process {self.pid})"

    def __repr__(self) -> str:
        return f"<child {self.generation}, process {self.pid}, {self.stage.value}>"

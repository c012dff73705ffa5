"""One child of a pool in the parent: its stage, its jobs, its last known state.

The table ``jobs`` (sequence number -> job, in the order of giving) is the only truth about which job is with this
child: a job is in it from the moment of giving until its result was read, it was taken back, or the child has ended.
:mod:`kafka.tasks.pools.parent.supervision` moves the stage, the pool fills and empties the table.
"""

from __future__ import annotations

from enum import Enum

from kafka.net.loop import Watch
from kafka.tasks.pools.base import ChildSnapshot
from kafka.tasks.pools.ipc.processes import ChildHandle
from kafka.tasks.pools.limits import ChildLimits, StartedJob
from kafka.tasks.pools.parent.deadlines import Deadline
from kafka.tasks.pools.parent.exit_reasons import KillReason
from kafka.tasks.pools.parent.memory import JobQuota
from kafka.tasks.pools.runner import Job


class ChildStage(Enum):
    """Where a child stands: BOOTING -> UP -> RETIRING (no more jobs) -> GONE; DOOMED is killed, from anywhere."""

    BOOTING = "booting"
    UP = "up"
    RETIRING = "retiring"
    KILLING = "dying"
    GONE = "gone"


class ChildProcess:
    """A child and what the parent knows of it.

    ``sent_count`` and ``ended_count`` count its jobs. ``replace``: why another one is to take its place, after which
    it retires. ``kill_reason``: why it is being killed, and ``killed_seq`` the job for whose sake. ``stopped_at``:
    since when the kernel says that it is stopped. ``is_blocked``: its channel is full until it reports something;
    ``full_count``: how often that was so although it had no job. ``is_closed``: it has closed its end of the channel.
    """

    __slots__ = (
        "came_up",
        "handle",
        "full_count",
        "kill_reason",
        "killed_seq",
        "ended_count",
        "generation",
        "sent_count",
        "is_blocked",
        "is_closed",
        "jobs",
        "limits",
        "check_timer",
        "messages_watch",
        "pid_watch",
        "progress",
        "progress_count",
        "quota",
        "replace",
        "rss_bytes",
        "sampled_at",
        "stage",
        "stage_timer",
        "started_at",
        "stopped_at",
    )

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
        self.replace: str | None = None
        self.kill_reason: KillReason | None = None
        self.killed_seq = 0
        self.is_blocked = False
        self.is_closed = False
        self.full_count = 0
        self.stopped_at: float | None = None
        self.rss_bytes: int | None = None
        self.sampled_at = now
        self.progress_count = 0
        self.progress = ""
        self.messages_watch: Watch | None = None
        self.pid_watch: Watch | None = None
        self.check_timer: Deadline | None = None
        self.stage_timer: Deadline | None = None

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

    def recall_jobs(self, most: int | None = None) -> list[tuple[int, Job]]:
        """Jobs that it had not received, from the front; they are not its own any more, and its channel has room."""
        if not self.jobs:
            return []
        taken = [(seq, self.jobs.pop(seq)) for seq in self.handle.recall(most) if seq in self.jobs]
        if taken:
            self.sent_count -= len(taken)
            self.is_blocked = False
        return taken

    def state(self, now: float) -> ChildSnapshot:
        """Its state for statistics and snapshots."""
        running = self.running() if self.stage is not ChildStage.BOOTING else None
        page = self.handle.page
        word = self.stage.value
        if self.stopped_at is not None:
            word = "stopped"
        elif self.stage is ChildStage.UP:
            word = "busy" if running is not None else "idle"
        active_at = max(page.heartbeat_at, self.started_at)
        return ChildSnapshot(
            self.runner_pid if running is not None else self.pid,
            self.generation,
            word,
            running.job.envelope.id if running is not None else None,
            running.job.envelope.name if running is not None else None,
            max(0.0, now - running.started_at) if running is not None else None,
            self.rss_bytes,
            self.ended_count,
            max(0.0, now - active_at),
        )

    def cancel_timers(self) -> None:
        """Cancel its timers."""
        for timer in (self.check_timer, self.stage_timer):
            if timer is not None:
                timer.cancel()
        self.check_timer = self.stage_timer = None

    def close_watches(self) -> None:
        """Stop watching its descriptors, before they are closed."""
        for watch in (self.messages_watch, self.pid_watch):
            if watch is not None:
                watch.close()
        self.messages_watch = self.pid_watch = None

    def __str__(self) -> str:
        return f"child {self.generation} (process {self.pid})"

    def __repr__(self) -> str:
        return f"<child {self.generation}, process {self.pid}, {self.stage.value}>"

"""Interfaces of child processes and launchers for the supervision, and their values.

The one implementation starts real processes (:mod:`kafka.tasks.pools.parent.launch`); the tests have a fake in memory.
None of these methods blocks, and none raises because a process has ended: ``messages_eof``, ``pidfd`` and ``exited()``
show that, the fastest first.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import Outcome


class ChildPhase(IntEnum):
    """The state of a child, on its page."""

    BOOTING = 0
    IDLE = 1
    USER_CODE = 2
    WRITING = 3


class ExitStatus(NamedTuple):
    """How a process ended: exit code or signal (both None: unknown), and what it used.

    ``max_rss_bytes`` is the most that it held, or one of those that it had started and waited for. A process that is
    executed (``spawn``) has the peak of the worker in it, too: Linux counts what was there before.
    """

    code: int | None = None
    signal: int | None = None
    max_rss_bytes: int | None = None
    cpu_s: float | None = None


class ChildUp(NamedTuple):
    """The child has loaded the app and takes jobs."""

    pid: int
    generation: int
    versions: str = ""
    registry_hash: str = ""


class ChildProgress(NamedTuple):
    """The progress of a starting child, as text."""

    text: str


class JobStarted(NamedTuple):
    """A job with ``track_started`` is about to run. ``started_at``: monotonic seconds, which are the same in all
    processes of a machine."""

    seq: int
    started_at: float


class JobDone(NamedTuple):
    """A job has ended. ``started_at``: as in :class:`JobStarted`."""

    seq: int
    outcome: Outcome
    ran_s: float
    started_at: float


ChildMessage: TypeAlias = "ChildUp | ChildProgress | JobStarted | JobDone"


class ChannelDamaged(Exception):
    """A child sent malformed data and must be replaced."""


class ChildPage(Protocol):
    """The page of memory that parent and child share."""

    @property
    def phase(self) -> int:
        """A :class:`ChildPhase`."""

    @property
    def begun_seq(self) -> int:
        """The last job that was begun; 0 before the first."""

    @property
    def done_seq(self) -> int:
        """The last job whose result was written as a whole; equal to ``begun_seq`` between two jobs."""

    @property
    def started_at(self) -> float:
        """When ``begun_seq`` was begun (monotonic)."""

    @property
    def heartbeat_at(self) -> float:
        """When the child was last active (monotonic)."""

    @property
    def runner_pid(self) -> int:
        """The process that runs the job, where the child has forked one for it; 0: the child itself, or none."""

    @property
    def lost_usage(self) -> tuple[int, float] | None:
        """Peak memory and CPU seconds of the process that the child forked for the job with which it died."""

    def cancel(self, seq: int) -> None:
        """Set the job's ``cancelled``."""


class ChildHandle(Protocol):
    """A child process and the parent's ends of its channel."""

    pid: int
    generation: int
    page: ChildPage
    pidfd: int | None
    """Readable when the process has ended; None where the system has no pidfd."""
    messages_fd: int
    messages_eof: bool
    """Whether no more messages will be read: all were read and the child's end is closed, or the channel is damaged."""

    def send(self, seq: int, job: Job) -> bool:
        """Send a job; False when the channel is full. Also True when the child has ended: :meth:`recall` returns the
        job, or it was never begun.
        """

    def recall(self, most: int | None = None) -> list[int]:
        """Take back jobs that the child has not received, from the front."""

    def read_messages(self) -> list[ChildMessage]:
        """Read complete messages; :class:`ChannelDamaged` for malformed data."""

    def exited(self) -> ExitStatus | None:
        """The exit status, which also reaps the process; None while it runs. Later calls return the same."""

    def soft(self, seq: int) -> None:
        """Raise the soft limit in the job ``seq``, if that still runs."""

    def kill(self, signum: int) -> None:
        """Send a signal to the process alone."""

    def kill_group(self, signum: int) -> None:
        """Send a signal to the process and all that are in its group."""

    def kill_orphans(self) -> None:
        """Kill what the process left behind in other groups."""

    def dump(self) -> bool:
        """Have it write its threads' stacks to the file of :attr:`Launcher.stacks_fd`; False when it cannot yet."""

    def retire(self) -> None:
        """Send no more jobs; the child ends after those that it has received."""

    def close(self) -> None:
        """Close its descriptors, after the process has ended."""


class Launcher(Protocol):
    """Starts children."""

    registry_hash: str
    """Hash of the parent's tasks; a child with other tasks is refused. Empty: nothing to compare."""
    stacks_fd: int
    """The file that children write their stacks to (:mod:`kafka.tasks.pools.parent.stacks`)."""

    def start(self, generation: int) -> ChildHandle:
        """Start a process. OSError when the system refuses."""

    def reap_zombies(self) -> None:
        """Reap zombies that nothing else waits for."""

    def close(self) -> None:
        """End the launcher's own processes, after the last child."""

"""What the supervision uses of a child process and of its launcher: interfaces, and the values that pass.

The one implementation starts real processes (:mod:`kafka.tasks.pools.launch`); the tests have a fake in memory. None of
these methods blocks, and none raises because a process is gone: a death is found by ``messages_eof``, ``pidfd`` and
``exited()``, in that order of speed.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from kafka.tasks.outcome import Outcome
from kafka.tasks.runner import Job


class ChildPhase(IntEnum):
    """What a child says it is doing, on its page."""

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
    """What a child that is not up yet is busy with, for people."""

    text: str


class JobDone(NamedTuple):
    """A job has ended. ``started_at``: monotonic seconds, which are the same in all processes of a machine."""

    seq: int
    outcome: Outcome
    ran_s: float
    started_at: float


ChildMessage: TypeAlias = "ChildUp | ChildProgress | JobDone"


class ChannelDamaged(Exception):
    """What a child sent cannot be understood; it has to be replaced."""


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
        """Let the job see that it is cancelled."""


class ChildHandle(Protocol):
    """A child process and the parent's ends of its channel."""

    pid: int
    generation: int
    page: ChildPage
    pidfd: int | None
    """Readable when the process has ended; None where the system has no such thing."""
    messages_fd: int
    messages_eof: bool
    """Whether no more news will be read: the child's end is closed and all of them were, or they are damaged."""

    def send(self, seq: int, job: Job) -> bool:
        """Hand a job over; False when the channel takes no more for now. Also True when the child is gone: the job is
        then among those that :meth:`recall` gives or that were never begun.
        """

    def recall(self, most: int | None = None) -> list[int]:
        """Take back jobs that the child has not received, from the front."""

    def read_messages(self) -> list[ChildMessage]:
        """What has come as a whole; :class:`ChannelDamaged` for what cannot be."""

    def exited(self) -> ExitStatus | None:
        """How the process ended, which also reaps it; None while it lives. The same answer ever after."""

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
        """No more jobs: the child ends what it has received, and then itself."""

    def close(self) -> None:
        """Close everything of it here; after the process has ended."""


class Launcher(Protocol):
    """Starts children."""

    registry_hash: str
    """Of the parent's tasks; a child with other ones is refused. Empty: there is nothing to compare."""
    stacks_fd: int
    """The file that children write their stacks to (:mod:`kafka.tasks.pools.stacks`)."""

    def start(self, generation: int) -> ChildHandle:
        """A new process. OSError when the system refuses."""

    def reap_zombies(self) -> None:
        """Reap zombies that nothing else waits for."""

    def close(self) -> None:
        """End what the launcher itself runs, if anything; after the last child."""

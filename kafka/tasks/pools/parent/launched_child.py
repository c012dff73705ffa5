"""A child that was launched: the parent's ends of its channel, and how its exit is known.

:class:`LaunchedChild` is what the supervision gets: see :mod:`kafka.tasks.pools.ipc.processes` for what each method
means. Who started the process is behind a :class:`ProcessHandle`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Protocol

from kafka.tasks.pools import kernel
from kafka.tasks.pools.child.soft_limit import SOFT_SIGNAL
from kafka.tasks.pools.child.stack_writer import DUMP_SIGNAL
from kafka.tasks.pools.ipc.channel import ParentChannel
from kafka.tasks.pools.ipc.processes import ChildMessage, ChildPage, ChildPhase, ExitStatus
from kafka.tasks.pools.parent.exit_reasons import KILL
from kafka.tasks.pools.parent.orphans import Orphans

if hasattr(os, "wait4"):
    # wait4 imports it at its first call, after the kernel has reaped: a worker that has just run out of descriptors
    # would lose the exit of its child.
    import resource as resource

_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


class ProcessHandle(Protocol):
    """Where the exit of a process is known."""

    pid: int
    pidfd: int | None

    def exited(self) -> ExitStatus | None:
        """How it ended; None while it lives."""

    def signal(self, signum: int, group: bool = False) -> None:
        """Send a signal to it, or to its group; nothing when it has ended."""

    def close(self) -> None:
        """Let go of its descriptors."""


class LaunchedChild:
    """A child: the parent's ends of its channel, and the handle that knows its exit status."""

    def __init__(
        self, channel: ParentChannel, process: ProcessHandle, orphans: Orphans, process_per_job: bool = False
    ) -> None:
        self.generation = channel.generation
        self.page: ChildPage = channel.page
        self.messages_fd = channel.messages_fd
        self.pid = process.pid
        self.pidfd = process.pidfd
        self._channel = channel
        self._process = process
        self._orphans = orphans
        self._process_per_job = process_per_job
        self._exit: ExitStatus | None = None
        self._has_exited = False
        self._usage_by_pid: dict[int, tuple[int, float]] = {}
        self.messages_eof = False
        self._is_closed = False
        self.send, self.recall, self.retire = channel.send, channel.recall, channel.retire

    def read_messages(self) -> list[ChildMessage]:
        try:
            return self._channel.read_messages()
        finally:
            self.messages_eof = self._channel.messages_eof

    def exited(self) -> ExitStatus | None:
        if self._exit is not None:
            return self._exit
        status = self._process.exited()
        self.pid = self._process.pid
        self.pidfd = self._process.pidfd
        if status is not None and self._process_per_job and self.pid:
            self._has_exited = True
            if not reap_group(self.pid, self._usage_by_pid):
                self.pidfd = None  # it reports nothing more, and would be readable for ever
                return None
            usage = self.page.lost_usage or self._usage_by_pid.get(self.page.runner_pid)
            if usage is not None:
                status = status._replace(max_rss_bytes=usage[0], cpu_s=usage[1])
        self._exit = status
        return status

    def soft(self, seq: int) -> None:
        self._channel.page.soft(seq)
        self._signal_runner(SOFT_SIGNAL)

    def dump(self) -> bool:
        if self.page.phase == ChildPhase.BOOTING:  # it would die of the signal
            return False
        self._signal_runner(DUMP_SIGNAL)
        return True

    def _signal_runner(self, signum: int) -> None:
        """To the process that runs the job, which may be a fork of the child: then by a pidfd, since the page loses its
        number before it is reaped. Nothing when the child has ended: what its page says is of the past."""
        if self._has_exited:
            return
        pid = self.page.runner_pid
        if not pid:
            self._process.signal(signum)
            return
        pidfd = kernel.pidfd_of(pid)
        if pidfd is not None:
            try:
                if self.page.runner_pid == pid:
                    signal.pidfd_send_signal(pidfd, signum)
            except (ProcessLookupError, PermissionError):  # a job may have changed its user
                pass
            finally:
                os.close(pidfd)
        elif self.page.runner_pid == pid:
            kernel.send_signal(pid, signum)

    def kill(self, signum: int) -> None:
        self._signal_runner(signum)

    def kill_group(self, signum: int) -> None:
        self._process.signal(signum, group=True)

    def kill_orphans(self) -> None:
        self._orphans.kill_orphans()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._channel.close()
            self._process.close()

    def __repr__(self) -> str:
        return f"<child {self.generation}, process {self.pid}>"


class DirectChild:
    """A process that this one has started itself, or whose parent has ended, so that it is this one's child now."""

    def __init__(self, pid: int, orphans: Orphans) -> None:
        self.pid = pid
        self.pidfd = kernel.pidfd_of(pid)
        self._exit: ExitStatus | None = None
        self._orphans = orphans
        orphans.own.add(pid)

    def exited(self) -> ExitStatus | None:
        if self._exit is None:
            self._exit = reap(self.pid)
            if self._exit is not None:
                self._orphans.on_child_exit(self.pid)
        return self._exit

    def signal(self, signum: int, group: bool = False) -> None:
        if self._exit is None:  # afterwards the pid may be reused
            kernel.send_signal(self.pid, signum, group)

    def close(self) -> None:
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


def reap(pid: int) -> ExitStatus | None:
    """How the process ended; None while it lives. Its group ends with it: as long as it is not reaped, the group's
    id cannot be reused.
    """
    try:
        if hasattr(os, "waitid"):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            kernel.send_signal(pid, KILL, group=True)
        ended, status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:  # another part of the program has reaped it
        return ExitStatus()
    if not ended:
        return None
    return exit_status_of(status, usage.ru_maxrss, usage.ru_utime + usage.ru_stime)


def reap_group(pid: int, usages: dict[int, tuple[int, float]]) -> bool:
    """Whether no process is left of the group of a child that has ended. All of it had its SIGKILL, and what lives
    of it still has come to this process, the subreaper. ``usages``: peak memory and CPU seconds by pid are put
    there.

    ``kill`` of a group reaches child and job in any order: to report the exit before the group is empty could run a
    job twice at once.
    """
    if pid <= 1:  # wait4 would mean this process's own group, or all of its children
        raise ValueError(f"{pid} is not the process group of a child")
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, _, usage = os.wait4(-pid, os.WNOHANG)
            if not ended:
                return False
            usages[ended] = (usage.ru_maxrss * _MAX_RSS_UNIT, usage.ru_utime + usage.ru_stime)
    return True


def exit_status_of(status: int, max_rss: int, cpu_s: float) -> ExitStatus:
    """An exit status of ``wait4`` as a value."""
    code = os.waitstatus_to_exitcode(status)
    return ExitStatus(code if code >= 0 else None, -code if code < 0 else None, max_rss * _MAX_RSS_UNIT, cpu_s)

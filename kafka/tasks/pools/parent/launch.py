"""How children come to be: by fork of the worker, by spawn (a new interpreter), or through the fork server.

=============  ===========================================  ======================================================
method         for                                          price
=============  ===========================================  ======================================================
``fork``       the default on Linux: about 1 ms a child,    the worker must have no other threads: one that holds
               memory shared with the worker                a lock in the moment of the fork holds it for ever in
                                                            the child
``forkserver`` workers with threads: a process that has     one more process
               imported the app forks the children
``spawn``      macOS's default: a new interpreter that      an import of the app, and all its memory, for each child
               imports the app
=============  ===========================================  ======================================================

A launcher makes the channel, starts the process, and keeps nothing but what all its children share.
:class:`LaunchedChild` is what the supervision gets: see :mod:`kafka.tasks.pools.ipc.processes` for what each method
means. """

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from kafka.errors import IllegalArgumentError
from kafka.net.resolve import THREAD_NAME
from kafka.tasks.app import App
from kafka.tasks.pools import job_logging, kernel
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.main import ChildParameters, become_child, exit_after_block
from kafka.tasks.pools.child.soft_limit import SOFT_SIGNAL
from kafka.tasks.pools.ipc import large_payloads
from kafka.tasks.pools.ipc.channel import ChildChannel, ParentChannel
from kafka.tasks.pools.ipc.processes import ChildMessage, ChildPage, ChildPhase, ExitStatus, Launcher
from kafka.tasks.pools.ipc.shared_page import anonymous_file
from kafka.tasks.pools.parent.exit_reasons import KILL
from kafka.tasks.pools.parent.orphans import MARK, Orphans
from kafka.tasks.pools.parent.stacks import DUMP_SIGNAL, stacks_file
from kafka.tasks.pools.registry import registry_hash
from kafka.tasks.pools.runner import Job
from kafka.tasks.pools.settings import PoolSettings, check_start_method

log = logging.getLogger(__name__)

if hasattr(os, "wait4"):
    # wait4 imports it at its first call, after the kernel has reaped: a worker that has just run out of descriptors
    # would lose the exit of its child.
    import resource as resource

RESOLVE_S = 0.3
"""A fork waits so long for each look-up of a name that is under way."""

_MAX_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def make_launcher(settings: PoolSettings) -> Launcher:
    """The launcher for the start method of ``settings``; IllegalArgumentError when it cannot be used here."""
    method = check_start_method(settings.start_method)
    process_setup.stop_ignoring_sigchld()
    if method == "fork":
        if settings.app is None:
            raise IllegalArgumentError("the start method fork needs the app object")
        return ForkLauncher(settings.app, settings.process_per_job)
    if settings.app_path is None:
        raise IllegalArgumentError(
            f"the start method {method} loads the app in another process: it needs its path, MODULE:APP"
        )
    spec = spec_of(settings)
    if method == "spawn":
        return SpawnLauncher(spec, settings.app)
    from kafka.tasks.pools.parent.fork_server import ForkServerLauncher

    return ForkServerLauncher(spec, settings.app)


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
        self, ends: ParentChannel, reaper: ProcessHandle, orphans: Orphans, process_per_job: bool = False
    ) -> None:
        self.generation = ends.generation
        self.page: ChildPage = ends.page
        self.messages_fd = ends.messages_fd
        self.pid = reaper.pid
        self.pidfd = reaper.pidfd
        self._ends = ends
        self._reaper = reaper
        self._orphans = orphans
        self._process_per_job = process_per_job
        self._exit: ExitStatus | None = None
        self._has_ended = False
        self._usages: dict[int, tuple[int, float]] = {}
        self.messages_eof = False
        self._is_closed = False

    def send(self, seq: int, job: Job) -> bool:
        return self._ends.send(seq, job)

    def recall(self, most: int | None = None) -> list[int]:
        return self._ends.recall(most)

    def read_messages(self) -> list[ChildMessage]:
        try:
            return self._ends.read_messages()
        finally:
            self.messages_eof = self._ends.messages_eof

    def retire(self) -> None:
        self._ends.retire()

    def exited(self) -> ExitStatus | None:
        if self._exit is not None:
            return self._exit
        status = self._reaper.exited()
        self.pid = self._reaper.pid
        self.pidfd = self._reaper.pidfd
        if status is not None and self._process_per_job and self.pid:
            self._has_ended = True
            if not reap_group(self.pid, self._usages):
                self.pidfd = None  # it reports nothing more, and would be readable for ever
                return None
            usage = self.page.lost_usage or self._usages.get(self.page.runner_pid)
            if usage is not None:
                status = status._replace(max_rss_bytes=usage[0], cpu_s=usage[1])
        self._exit = status
        return status

    def soft(self, seq: int) -> None:
        self._ends.page.soft(seq)
        self._signal_runner(SOFT_SIGNAL)

    def dump(self) -> bool:
        if self.page.phase == ChildPhase.BOOTING:  # it would die of the signal
            return False
        self._signal_runner(DUMP_SIGNAL)
        return True

    def _signal_runner(self, signum: int) -> None:
        """To the process that runs the job, which may be a fork of the child: then by a pidfd, since the page loses its
        number before it is reaped. Nothing when the child has ended: what its page says is of the past."""
        if self._has_ended:
            return
        pid = self.page.runner_pid
        if not pid:
            self._reaper.signal(signum)
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
            send_signal(pid, signum)

    def kill(self, signum: int) -> None:
        self._signal_runner(signum)

    def kill_group(self, signum: int) -> None:
        self._reaper.signal(signum, group=True)

    def kill_orphans(self) -> None:
        self._orphans.kill_orphans()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._ends.close()
            self._reaper.close()

    def __repr__(self) -> str:
        return f"<child {self.generation}, process {self.pid}>"


class DirectChild:
    """The reaper of a process that this one has started itself, or has been given by the death of its parent."""

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
            send_signal(self.pid, signum, group)

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
            send_signal(pid, KILL, group=True)
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


def send_signal(pid: int, signum: int, group: bool = False) -> None:
    """Send a signal to a process or its group, if there is one. The process is not reaped yet: a group that does not
    exist is one that a fork has not made yet, and the process alone is meant.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            try:
                os.killpg(pid, signum)
                return
            except ProcessLookupError:
                pass
        os.kill(pid, signum)


def largest_outcome(app: App | None) -> int | None:
    """Bytes of the file that a child may pass; None: not known without the app."""
    return None if app is None else app.settings.max_payload_bytes + large_payloads.OVERHEAD_BYTES


class ForkLauncher:
    """Children are forks of this process. The collector runs once, so that their pages are shared for long."""

    def __init__(self, app: App, process_per_job: bool = False) -> None:
        self.registry_hash = ""
        """Empty: nothing to compare, a fork knows what this process knows."""
        self._app = app
        self._process_per_job = process_per_job
        self._descriptors = process_setup.descriptor_limit()
        self._orphans = Orphans()
        self._has_warned = False
        self.stacks_fd = stacks_file()
        self._spare = large_payloads.SpareDescriptor(largest_outcome(app))
        kernel.adopt_orphans()
        gc.collect()

    def start(self, generation: int) -> LaunchedChild:
        """Forks a child. No thread of the resolver may hold a lock over the fork, streams are flushed so that the
        child does not write their buffers again, the collector stays off so that shared pages are not touched, and
        signals are blocked until the child has its own handlers. OSError when the fork fails."""
        self._join_resolver_threads()
        ends = ParentChannel(generation, True, self._spare)
        job_logging.flush_streams()
        worker_pid = os.getpid()
        was_enabled = gc.isenabled()
        gc.disable()
        former = process_setup.block_signals()
        try:
            pid = _fork()
            if pid == 0:
                self._be_child(ends, worker_pid)
        except BaseException:
            ends.for_child.close()
            ends.close()
            raise
        finally:
            process_setup.unblock_signals(former)
            if was_enabled:
                gc.enable()
        ends.for_child.close()
        return LaunchedChild(ends, DirectChild(pid, self._orphans), self._orphans, self._process_per_job)

    def _be_child(self, ends: ParentChannel, worker_pid: int) -> NoReturn:
        with exit_after_block():
            child = ChildChannel(ends.generation, ends.for_child, ends.page)
            parameters = ChildParameters(
                worker_pid,
                worker_pid,
                self.stacks_fd,
                self._descriptors,
                True,
                self._process_per_job,
            )
            become_child(child, lambda: self._app, parameters)

    def _join_resolver_threads(self) -> None:
        """Those that look names up end soon. They are waited for: what the system's resolver has locked would stay so
        in a fork.
        """
        for thread in threading.enumerate():
            if thread.name.startswith(THREAD_NAME):
                thread.join(RESOLVE_S)
        if not self._has_warned and threading.active_count() > 1:
            self._has_warned = True
            names = ", ".join(thread.name for thread in threading.enumerate() if thread.ident != threading.get_ident())
            log.debug("forking while other threads run (%s); the start method forkserver avoids that", names)

    def reap_zombies(self) -> None:
        self._orphans.reap_zombies()

    def close(self) -> None:
        self._orphans.end()
        self._spare.release()
        os.close(self.stacks_fd)


def _fork() -> int:
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the launcher says that once
        return os.fork()


def spec_of(settings: PoolSettings) -> dict[str, Any]:
    """What a process that is not forked from this one has to know, as JSON can carry it."""
    spec: dict[str, Any] = {
        "app": settings.app_path,
        "directory": os.getcwd(),
        "path": sys.path,
        "process_per_job": settings.process_per_job,
        "descriptors": process_setup.descriptor_limit(),
        "worker_pid": os.getpid(),
        "logs": job_logging.logging_config(),
        "servers": None,
        "client": {},
    }
    if settings.app is not None:  # the command line may have changed it since it was loaded
        own = settings.app.settings
        spec["servers"] = own.bootstrap_servers
        spec["client"] = {name: value for name, value in own.client.items() if _is_plain(value)}
    return spec


def _is_plain(value: object) -> bool:
    """Whether JSON carries it; what it does not is from the app's declaration, and so in the child as well."""
    return value is None or isinstance(value, (str, int, float, bool))


class InterpreterStarter:
    """Starts Python processes that have a spec: in a file of its own, since it may hold passwords."""

    def __init__(self, spec: dict[str, Any]) -> None:
        data = json.dumps(spec).encode()
        self._fd = anonymous_file("kafka-spec", 0)
        os.pwrite(self._fd, data, 0)
        self._environment = {**os.environ, MARK: str(os.getpid())}

    def start(self, role: str, numbers: Sequence[int], fds: Sequence[int], title: str) -> int:
        """Start ``bootstrap.main(role, numbers)`` with these descriptors; its pid. OSError when that cannot be."""
        if not sys.executable:
            raise OSError("cannot start a child: sys.executable is empty")
        code = (
            f"import json,os,sys;spec=json.loads(os.pread({self._fd},1<<24,0));os.close({self._fd});"
            f"sys.path[:]=spec['path'];from kafka.tasks.pools.child.bootstrap import main;"
            f"main(spec,{role!r},{list(numbers)!r})"
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        process = subprocess.Popen(
            [sys.executable, *flags, "-c", code, f"kafka-{role}", title],
            stdin=subprocess.DEVNULL,
            pass_fds=(self._fd, *fds),
            env=self._environment,
            start_new_session=True,
        )
        process.returncode = 0  # it is reaped elsewhere, and Popen is not to look after it
        return process.pid

    def close(self) -> None:
        """Nothing is started any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SpawnLauncher:
    """Children are new interpreters that import the app."""

    def __init__(self, spec: dict[str, Any], app: App | None) -> None:
        self.registry_hash = registry_hash(app) if app is not None else ""
        self._title = str(spec["app"])
        self._executor = InterpreterStarter(spec)
        self._orphans = Orphans()
        self.stacks_fd = stacks_file()
        self._spare = large_payloads.SpareDescriptor(largest_outcome(app))
        kernel.adopt_orphans()

    def start(self, generation: int) -> LaunchedChild:
        ends = ParentChannel(generation, spare=self._spare)
        fds = ends.for_child
        try:
            shared = (self.stacks_fd, *fds)
            pid = self._executor.start("child", (generation, *shared), shared, self._title)
        except BaseException:
            ends.close()
            raise
        finally:
            fds.close()
        return LaunchedChild(ends, DirectChild(pid, self._orphans), self._orphans)

    def reap_zombies(self) -> None:
        self._orphans.reap_zombies()

    def close(self) -> None:
        self._orphans.end()
        self._executor.close()
        self._spare.release()
        os.close(self.stacks_fd)

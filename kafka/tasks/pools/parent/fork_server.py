"""The fork server: a process that has imported the app, has no threads and no sockets, and forks children on demand.

The children belong to it, so the worker cannot wait for them. For each child the worker passes, beside the child's ends
of the channel, one end of a pipe, on which the server writes two records: that the child was forked, with its pid, and
how it ended. The worker reads the other end where it would have a pidfd (:class:`ForkServerChild`). A record is ``kind
u8 | pid u32 | status i32 | peak RSS u64 | CPU seconds f64``.

Who outlives whom: the server ends when the worker does (its socket closes). When the server dies its children go on:
the worker is a subreaper, becomes their parent, and reaps them itself; the next start makes a new server. A child that
is given up while the server is still importing takes the server with it, since that import may never end.
"""

from __future__ import annotations

import array
import contextlib
import gc
import logging
import os
import select
import signal
import socket
import struct
from types import FrameType
from typing import Any, NoReturn

from kafka.tasks.app import App
from kafka.tasks.pools import kernel
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.main import ChildParameters, become_child, exit_after_block
from kafka.tasks.pools.ipc import large_payloads
from kafka.tasks.pools.ipc.channel import ChildChannel, ChildFds, ParentChannel
from kafka.tasks.pools.ipc.processes import ExitStatus
from kafka.tasks.pools.parent.exit_reasons import KILL
from kafka.tasks.pools.parent.launch import (
    DirectChild,
    InterpreterStarter,
    LaunchedChild,
    exit_status_of,
    largest_outcome,
    send_signal,
)
from kafka.tasks.pools.parent.orphans import Orphans
from kafka.tasks.pools.parent.stacks import stacks_file
from kafka.tasks.pools.registry import registry_hash

log = logging.getLogger(__name__)

FORKED, ENDED = 1, 2
RECORD = struct.Struct("<BIiQd")
_REQUEST = struct.Struct("<I")
_FDS = 5


# -- the worker's side ------------------------------------------------------------------------------------------------


class ForkServerLauncher:
    """Children come from the fork server, which is started with the launcher and again when it is gone."""

    def __init__(self, spec: dict[str, Any], app: App | None) -> None:
        self.registry_hash = registry_hash(app) if app is not None else ""
        self._title = str(spec["app"])
        self._process_per_job = bool(spec["process_per_job"])
        self._executor = InterpreterStarter(spec)
        self._orphans = Orphans()
        self._server: DirectChild | None = None
        self._socket: socket.socket | None = None
        self._ended: list[DirectChild] = []
        self.stacks_fd = stacks_file()
        self._spare = large_payloads.SpareDescriptor(largest_outcome(app))
        kernel.adopt_orphans()
        self._start_server()

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fds = (theirs.fileno(), self.stacks_fd)
            pid = self._executor.start("forkserver", fds, fds, self._title)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._server = DirectChild(pid, self._orphans)

    def start(self, generation: int) -> LaunchedChild:
        read_end, write_end = os.pipe()
        ends: ParentChannel | None = None
        try:
            os.set_blocking(read_end, False)
            ends = ParentChannel(generation, spare=self._spare)
            self._request_fork(generation, (*ends.for_child, write_end))
        except BaseException:
            os.close(read_end)
            if ends is not None:
                ends.close()
            raise
        finally:
            os.close(write_end)
            if ends is not None:
                ends.for_child.close()
        return LaunchedChild(ends, ForkServerChild(read_end, self), self._orphans, self._process_per_job)

    def _request_fork(self, generation: int, fds: tuple[int, ...]) -> None:
        for attempt in (1, 2):
            if self._server is None or self._server.exited() is not None:
                self._end_server()
                self._start_server()
            assert self._socket is not None
            try:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._socket.sendmsg([_REQUEST.pack(generation)], rights)
                return
            except BlockingIOError:
                raise OSError("the fork server does not respond") from None
            except OSError:
                if attempt == 2:
                    raise
                self._end_server()

    def discard_server(self) -> None:
        """It has not forked what it was asked for, and that is given up: the next start makes a new one."""
        self._end_server()

    def _end_server(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._server is not None:
            self._server.signal(KILL)
            self._ended.append(self._server)
            self._server = None

    def adopt_child(self, pid: int) -> DirectChild:
        """A child of a dead server, which is ours now."""
        return AdoptedChild(pid, self._orphans)

    @property
    def orphans(self) -> Orphans:
        """Of all its children."""
        return self._orphans

    def reap_zombies(self) -> None:
        self._orphans.reap_zombies()
        for server in list(self._ended):
            if server.exited() is not None:
                server.close()
                self._ended.remove(server)

    def close(self) -> None:
        self._end_server()
        for server in self._ended:
            if server.exited() is None:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(server.pid, 0)  # it has had its SIGKILL
            server.close()
        self._ended.clear()
        self._orphans.end()
        self._executor.close()
        self._spare.release()
        os.close(self.stacks_fd)


class AdoptedChild(DirectChild):
    """The reaper of a child whose server has died. A dying process closes its descriptors before its children get their
    new parent, so for a moment no process can wait for it.
    """

    def exited(self) -> ExitStatus | None:
        status = super().exited()
        if status == ExitStatus():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, 0)
                self._exit = None
                self._orphans.own.add(self.pid)
        return self._exit


class ForkServerChild:
    """The reaper of a child of the fork server. ``pid`` is 0 until it has been forked."""

    def __init__(self, fd: int, launcher: ForkServerLauncher) -> None:
        self.pid = 0
        self.pidfd: int | None = fd
        self._fd = fd
        self._launcher = launcher
        self._exit: ExitStatus | None = None
        self._adopted: DirectChild | None = None

    def exited(self) -> ExitStatus | None:
        while self._exit is None and self._adopted is None:
            try:
                record = os.read(self._fd, RECORD.size)
            except BlockingIOError:
                break
            if len(record) < RECORD.size:
                self._on_server_lost()
                break
            kind, self.pid, status, max_rss, cpu_s = RECORD.unpack(record)
            if kind == FORKED:
                self._launcher.orphans.own.add(self.pid)  # if the server dies, it comes to us, and is no orphan
            elif kind == ENDED:
                self._exit = exit_status_of(status, max_rss, cpu_s)
                self._launcher.orphans.on_child_exit(self.pid)
        if self._exit is None and self._adopted is not None:
            self._exit = self._adopted.exited()
        return self._exit

    def _on_server_lost(self) -> None:
        if not self.pid:
            self._exit = ExitStatus()
            return
        self._adopted = self._launcher.adopt_child(self.pid)
        if self._adopted.pidfd is not None:  # the pipe would be readable for ever; its number is being watched
            os.dup2(self._adopted.pidfd, self._fd, inheritable=False)
        self.pidfd = None

    def signal(self, signum: int, group: bool = False) -> None:
        self.exited()
        if self._exit is not None:
            return
        if not self.pid:
            if signum in (KILL, signal.SIGTERM):
                self._exit = ExitStatus()
                self._launcher.discard_server()
            return
        send_signal(self.pid, signum, group)

    def close(self) -> None:
        if self._adopted is not None:
            self._adopted.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.pidfd = None


# -- the server -------------------------------------------------------------------------------------------------------


def serve_forks(spec: dict[str, Any], control_fd: int, stacks_fd: int) -> NoReturn:
    """Import the app, then fork until the worker is gone. Signals are blocked by the caller."""
    from kafka.tasks.pools.child.bootstrap import load_app, reporting_progress

    for fd in (control_fd, stacks_fd):
        os.set_inheritable(fd, False)
    kernel.die_with_parent(signal.SIGKILL)
    if os.getppid() != spec["worker_pid"]:
        os._exit(1)
    failure = ""
    app: App | None = None
    try:
        with reporting_progress(log.info, spec["app"]):
            app = load_app(spec)
    except BaseException as error:
        failure = str(error) or repr(error)
    gc.collect()
    gc.disable()
    gc.freeze()
    _Server(spec, app, failure, socket.socket(fileno=control_fd), stacks_fd).run()
    os._exit(0)


class _Server:
    """``statuses``: pid of a child -> the pipe to the worker about it."""

    def __init__(
        self, spec: dict[str, Any], app: App | None, failure: str, control: socket.socket, stacks_fd: int
    ) -> None:
        self._spec = spec
        self._app = app
        self._failure = failure
        self._control = control
        self._stacks_fd = stacks_fd
        self._statuses: dict[int, int] = {}

    def run(self) -> None:
        """Fork and reap; back when the worker is gone, or when the app could not be loaded and the children have
        reported that."""
        waker, wakened = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(wakened, False)
        signal.signal(signal.SIGCHLD, _nothing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        process_setup.unblock_signals()
        while True:
            wait_s = 1.0 if self._failure and not self._statuses else None
            watched: list[Any] = [self._control, waker]
            readable, _, _ = select.select(watched, [], [], wait_s)
            if waker in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(waker, 4096)
            self._reap()
            if self._control in readable and not self._fork_one():
                return
            if not readable and self._failure:
                return

    def _fork_one(self) -> bool:
        """Forks a child for a request of the worker's, which comes with the child's descriptors and the pipe for its
        status. Signals are blocked over the fork, until the child has its own handlers. False when the worker has
        closed the socket or sends what is no request; a failed fork is logged, and the closed status pipe tells the
        worker."""
        try:
            request, ancillary, _, _ = self._control.recvmsg(
                _REQUEST.size, socket.CMSG_SPACE(_FDS * large_payloads.FD_BYTES)
            )
        except OSError:
            return False
        fds = large_payloads.received_fds(ancillary)
        if len(request) < _REQUEST.size or len(fds) != _FDS:
            large_payloads.close_all(fds)
            return False
        (generation,) = _REQUEST.unpack(request)
        *ends, status = fds
        former = process_setup.block_signals()
        try:
            pid = os.fork()
            if pid == 0:
                self._be_child(generation, ChildFds(*ends))
        except OSError as error:
            log.error("the fork server could not fork a child: %s", error)
            os.close(status)
        else:
            self._statuses[pid] = status
            _write_record(status, RECORD.pack(FORKED, pid, 0, 0, 0.0))
        finally:
            process_setup.unblock_signals(former)
        large_payloads.close_all(ends)
        return True

    def _be_child(self, generation: int, fds: ChildFds) -> NoReturn:
        with exit_after_block():
            spec = self._spec
            parameters = ChildParameters(
                spec["worker_pid"],
                None,
                self._stacks_fd,
                spec["descriptors"],
                False,
                spec["process_per_job"],
            )
            become_child(ChildChannel(generation, fds), self._loaded, parameters)

    def _loaded(self) -> App:
        if self._app is None:
            raise ImportError(self._failure)
        return self._app

    def _reap(self) -> None:
        for pid in list(self._statuses):
            try:
                if hasattr(os, "waitid"):
                    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                        continue
                    send_signal(pid, KILL, group=True)
                ended, status, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                ended, status, usage = pid, 0, None
            if ended:
                cpu_s = usage.ru_utime + usage.ru_stime if usage is not None else 0.0
                max_rss = usage.ru_maxrss if usage is not None else 0
                fd = self._statuses.pop(pid)
                _write_record(fd, RECORD.pack(ENDED, pid, status, max_rss, cpu_s))
                os.close(fd)


def _write_record(fd: int, record: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker wants to know no more
        os.write(fd, record)


def _nothing(signum: int, frame: FrameType | None) -> None:
    """A handler has to be there for the interpreter to write into the wakeup pipe."""

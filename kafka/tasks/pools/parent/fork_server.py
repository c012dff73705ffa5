"""Children from a fork server (:mod:`kafka.tasks.pools.child.fork_server`): the worker's side.

The children belong to the server, so the worker cannot wait for them. For each it passes one end of a pipe, on which
the server reports (:mod:`kafka.tasks.pools.ipc.fork_requests`). The worker reads the other end where it would have a
pidfd (:class:`ForkServerChild`).

Who outlives whom: the server ends when the worker does (its socket closes). When the server dies its children go on:
the worker is a subreaper, becomes their parent, and reaps them itself; the next start makes a new server. A child that
is given up while the server is still importing takes the server with it, since that import may never end.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import socket
from typing import Any

from kafka.tasks.app import App
from kafka.tasks.pools import kernel
from kafka.tasks.pools.ipc.channel import ParentChannel
from kafka.tasks.pools.ipc.fork_requests import ENDED, FORKED, RECORD, REQUEST
from kafka.tasks.pools.ipc.processes import ExitStatus
from kafka.tasks.pools.parent.exit_reasons import KILL
from kafka.tasks.pools.parent.interpreters import InterpreterLauncher
from kafka.tasks.pools.parent.launched_child import DirectChild, LaunchedChild, exit_status_of
from kafka.tasks.pools.parent.orphans import Orphans


class ForkServerLauncher(InterpreterLauncher):
    """Children come from the fork server, which is started with the launcher and again when it is gone."""

    def __init__(self, spec: dict[str, Any], app: App | None) -> None:
        super().__init__(spec, app)
        self._process_per_job = bool(spec["process_per_job"])
        self._server: DirectChild | None = None
        self._socket: socket.socket | None = None
        self._ended: list[DirectChild] = []
        self._start_server()

    def _start_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fds = (theirs.fileno(), self.stacks_fd)
            pid = self._starter.start("forkserver", fds, fds, self._title)
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
        channel: ParentChannel | None = None
        try:
            os.set_blocking(read_end, False)
            channel = ParentChannel(generation, spare_descriptor=self._spare_descriptor)
            self._request_fork(generation, (*channel.for_child, write_end))
        except BaseException:
            os.close(read_end)
            if channel is not None:
                channel.close()
            raise
        finally:
            os.close(write_end)
            if channel is not None:
                channel.for_child.close()
        return LaunchedChild(channel, ForkServerChild(read_end, self), self._orphans, self._process_per_job)

    def _request_fork(self, generation: int, fds: tuple[int, ...]) -> None:
        for attempt in (1, 2):
            if self._server is None or self._server.exited() is not None:
                self._end_server()
                self._start_server()
            assert self._socket is not None
            try:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
                self._socket.sendmsg([REQUEST.pack(generation)], rights)
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
        super().reap_zombies()
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
        super().close()


class AdoptedChild(DirectChild):
    """A child whose server has died. A dying process closes its descriptors before its children get their
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
    """A child of the fork server. ``pid`` is 0 until it has been forked."""

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
        kernel.send_signal(self.pid, signum, group)

    def close(self) -> None:
        if self._adopted is not None:
            self._adopted.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.pidfd = None

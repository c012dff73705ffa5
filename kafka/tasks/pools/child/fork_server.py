"""The fork server: a process that has imported the app, has no threads and no sockets, and forks children on demand.

The worker asks for a child, and is answered by two records about each, as :mod:`kafka.tasks.pools.ipc.fork_requests`
says; its side is :mod:`kafka.tasks.pools.parent.fork_server`. The server ends when the worker does: its socket closes.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import select
import signal
import socket
from types import FrameType
from typing import Any, NoReturn

from kafka.tasks.app import App
from kafka.tasks.pools import kernel
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.app_import import load_app, reporting_progress
from kafka.tasks.pools.child.job_loop import ChildParameters
from kafka.tasks.pools.child.main import become_child, exit_after_block
from kafka.tasks.pools.ipc import large_payloads
from kafka.tasks.pools.ipc.channel import ChildChannel, ChildFds
from kafka.tasks.pools.ipc.fork_requests import ENDED, FDS, FORKED, RECORD, REQUEST

log = logging.getLogger(__name__)


def serve_forks(spec: dict[str, Any], control_fd: int, stacks_fd: int) -> NoReturn:
    """Import the app, then fork until the worker is gone. Signals are blocked by the caller."""
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
        self._status_pipes: dict[int, int] = {}

    def run(self) -> None:
        """Fork and reap; back when the worker is gone, or when the app could not be loaded and the children have
        reported that."""
        wakeup_read, wakeup_write = os.pipe()
        os.set_blocking(wakeup_read, False)
        os.set_blocking(wakeup_write, False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        process_setup.unblock_signals()
        while True:
            wait_s = 1.0 if self._failure and not self._status_pipes else None
            watched: list[Any] = [self._control, wakeup_read]
            readable, _, _ = select.select(watched, [], [], wait_s)
            if wakeup_read in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(wakeup_read, 4096)
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
                REQUEST.size, socket.CMSG_SPACE(FDS * large_payloads.FD_BYTES)
            )
        except OSError:
            return False
        fds = large_payloads.received_fds(ancillary)
        if len(request) < REQUEST.size or len(fds) != FDS:
            large_payloads.close_all(fds)
            return False
        (generation,) = REQUEST.unpack(request)
        *channel_fds, status = fds
        former_mask = process_setup.block_signals()
        try:
            pid = os.fork()
            if pid == 0:
                self._run_as_child(generation, ChildFds(*channel_fds))
        except OSError as error:
            log.error("the fork server could not fork a child: %s", error)
            os.close(status)
        else:
            self._status_pipes[pid] = status
            _write_record(status, RECORD.pack(FORKED, pid, 0, 0, 0.0))
        finally:
            process_setup.unblock_signals(former_mask)
        large_payloads.close_all(channel_fds)
        return True

    def _run_as_child(self, generation: int, fds: ChildFds) -> NoReturn:
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
            become_child(ChildChannel(generation, fds), self._get_app, parameters)

    def _get_app(self) -> App:
        if self._app is None:
            raise ImportError(self._failure)
        return self._app

    def _reap(self) -> None:
        for pid in list(self._status_pipes):
            try:
                if hasattr(os, "waitid"):
                    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                        continue
                    kernel.send_signal(pid, signal.SIGKILL, group=True)
                ended, status, usage = os.wait4(pid, os.WNOHANG)
            except ChildProcessError:
                ended, status, usage = pid, 0, None
            if ended:
                cpu_s = usage.ru_utime + usage.ru_stime if usage is not None else 0.0
                max_rss = usage.ru_maxrss if usage is not None else 0
                fd = self._status_pipes.pop(pid)
                _write_record(fd, RECORD.pack(ENDED, pid, status, max_rss, cpu_s))
                os.close(fd)


def _write_record(fd: int, record: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker wants to know no more
        os.write(fd, record)


def _ignore_signal(signum: int, frame: FrameType | None) -> None:
    """A handler has to be there for the interpreter to write into the wakeup pipe."""

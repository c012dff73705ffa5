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

A launcher makes the channel, starts the process, and keeps nothing but what all its children share
(``base_launcher.py``). Here is that of ``fork``; ``interpreters.py`` has that of ``spawn``, ``fork_server.py`` the
third.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import warnings
from typing import NoReturn

from kafka.errors import IllegalArgumentError
from kafka.net.resolve import THREAD_NAME
from kafka.tasks.app import App
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.job_loop import ChildParameters
from kafka.tasks.pools.child.main import become_child, exit_after_block
from kafka.tasks.pools.ipc.channel import ChildChannel, ParentChannel
from kafka.tasks.pools.ipc.processes import Launcher
from kafka.tasks.pools.parent.base_launcher import BaseLauncher
from kafka.tasks.pools.parent.interpreters import SpawnLauncher, spec_of
from kafka.tasks.pools.parent.launched_child import DirectChild, LaunchedChild
from kafka.tasks.pools.settings import PoolSettings, check_start_method

log = logging.getLogger(__name__)

RESOLVE_S = 0.3
"""A fork waits so long for each look-up of a name that is under way."""


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


class ForkLauncher(BaseLauncher):
    """Children are forks of this process. The collector runs once, so that their pages are shared for long."""

    def __init__(self, app: App, process_per_job: bool = False) -> None:
        super().__init__(app)
        self._app = app
        self._process_per_job = process_per_job
        self._descriptors = process_setup.descriptor_limit()
        self._has_warned = False
        gc.collect()

    def start(self, generation: int) -> LaunchedChild:
        """Forks a child. No thread of the resolver may hold a lock over the fork, streams are flushed so that the
        child does not write their buffers again, the collector stays off so that shared pages are not touched, and
        signals are blocked until the child has its own handlers. OSError when the fork fails."""
        self._join_resolver_threads()
        channel = ParentChannel(generation, True, self._spare_descriptor)
        job_logging.flush_streams()
        worker_pid = os.getpid()
        was_enabled = gc.isenabled()
        gc.disable()
        former_mask = process_setup.block_signals()
        try:
            pid = _fork()
            if pid == 0:
                self._run_as_child(channel, worker_pid)
        except BaseException:
            channel.for_child.close()
            channel.close()
            raise
        finally:
            process_setup.unblock_signals(former_mask)
            if was_enabled:
                gc.enable()
        channel.for_child.close()
        return LaunchedChild(channel, DirectChild(pid, self._orphans), self._orphans, self._process_per_job)

    def _run_as_child(self, channel: ParentChannel, worker_pid: int) -> NoReturn:
        with exit_after_block():
            child = ChildChannel(channel.generation, channel.for_child, channel.page)
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


def _fork() -> int:
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: the launcher says that once
        return os.fork()

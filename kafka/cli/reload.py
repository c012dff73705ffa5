"""``python -m kafka worker MODULE:APP --reload``: a worker for development, restarted when the code changes.

:class:`Supervisor` is the state machine (changed files, signals and exits in; starts and signals out), :func:`run` its
process: it starts the worker as a child with the same command line, and looks at the files once per :data:`POLL_S`. It
imports none of the application's modules itself, so it outlives whatever their code does.

Watched are the ``.py`` files below the current directory, and those of the application's top-level package where that
is elsewhere; hidden directories, virtual environments and installed packages are left out.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, Protocol

log = logging.getLogger(__name__)

POLL_S: Final = 1.0

STOP_SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP")
FORWARDED_SIGNALS: Final = (*STOP_SIGNALS, "SIGUSR1", "SIGTTIN", "SIGTTOU")
"""Signals that the worker has a meaning for; the first three end the supervisor with it."""

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})

Snapshot = Mapping[str, tuple[int, int]]
"""Path of each file -> its time of modification in ns since the epoch, and its size in bytes."""


class Child(Protocol):
    """The worker's process, as far as it is needed here."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal, unless it has ended."""


class Supervisor:
    """Decides when the worker starts and stops. ``start`` starts a worker, ``look`` returns the files as they are."""

    def __init__(self, start: Callable[[], Child], look: Callable[[], Snapshot]) -> None:
        self.exit_code: int | None = None
        """What the supervisor exits with, once it does."""
        self._start = start
        self._look = look
        self._files: Snapshot = {}
        self._child: Child | None = None
        self._is_restarting = False
        self._is_stopping = False
        self._stop_signals: set[int] = set()

    def begin(self) -> None:
        """Start the first worker. The files are looked at before, so that no change is missed while it imports."""
        self._files = self._look()
        self._child = self._start()

    def on_poll(self) -> None:
        """Look for changed files, and restart the worker for them."""
        if self._is_stopping:
            return
        before, self._files = self._files, self._look()
        changed = _changed(before, self._files)
        if not changed:
            return
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        if self._child is None:
            log.info("%s%s changed: starting the worker", changed[0], more)
            self._child = self._start()
        elif not self._is_restarting:
            log.info("%s%s changed: restarting the worker", changed[0], more)
            self._is_restarting = True
            self._child.send_signal(signal.SIGTERM)

    def on_signal(self, signum: int) -> None:
        """Pass a signal on. Of a terminal's the worker gets two at once, which count as one."""
        if signal.Signals(signum).name in STOP_SIGNALS:
            self._is_stopping = True
            self._stop_signals.add(signum)
        if self._child is not None:
            self._child.send_signal(signum)
        elif self._is_stopping:
            self.exit_code = 0

    def on_exit(self, code: int) -> None:
        """The worker has ended, with this exit code; below 0: by that signal. One that a stop signal has ended was
        stopped: it had not come as far as its handlers."""
        self._child = None
        if -code in self._stop_signals:
            code = 0
        if self._is_stopping or (code == 0 and not self._is_restarting):
            self.exit_code = code if code >= 0 else 128 - code
        elif self._is_restarting:
            self._is_restarting = False
            self._files = self._look()
            self._child = self._start()
        else:
            how = f"exited with code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
            log.error("the worker %s; waiting for a change of a .py file to start it again", how)


def _changed(before: Snapshot, now: Snapshot) -> list[str]:
    """Files that are new, gone or different."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def find_roots(target: str, directory: str) -> list[str]:
    """Where the files to watch are for the app ``target`` (MODULE:APP): directories, or one file."""
    top = target.partition(":")[0].partition(".")[0]
    roots = [directory]
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        spec = None  # the worker says what is wrong with it
    if spec is not None:
        found = spec.submodule_search_locations or ([spec.origin] if spec.has_location and spec.origin else [])
        roots += [path for path in map(os.path.abspath, found) if not path.startswith(os.path.join(directory, ""))]
    return roots


def take_snapshot(roots: Iterable[str]) -> Snapshot:
    """The ``.py`` files in and below ``roots``."""
    found: dict[str, tuple[int, int]] = {}
    for root in roots:
        if root.endswith(".py"):
            _note(root, found)
        for where, directories, files in os.walk(root):
            directories[:] = [
                name
                for name in directories
                if name[0] != "." and name not in _SKIPPED and not os.path.exists(f"{where}/{name}/pyvenv.cfg")
            ]
            for name in files:
                if name.endswith(".py"):
                    _note(os.path.join(where, name), found)
    return found


def _note(path: str, found: dict[str, tuple[int, int]]) -> None:
    try:
        status = os.stat(path)
    except OSError:  # it went away meanwhile
        return
    found[path] = (status.st_mtime_ns, status.st_size)


def without_reload(command: Sequence[str]) -> list[str]:
    """A command line without ``--reload``, however abbreviated."""
    return [each for each in command if not (each.startswith("--r") and "--reload".startswith(each))]


def run(target: str) -> int:
    """Supervise a worker with the command line of this process until it is stopped; the exit code. ``target``:
    MODULE:APP."""
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)  # as the worker has it
    roots = find_roots(target, directory)
    command = [sys.executable, *without_reload(sys.orig_argv[1:])]
    events: SimpleQueue[Callable[[], None]] = SimpleQueue()  # whose put() a signal handler may call at any moment

    def start() -> Child:
        process = subprocess.Popen(command)
        threading.Thread(target=lambda: events.put(partial(supervisor.on_exit, process.wait())), daemon=True).start()
        return process

    supervisor = Supervisor(start, lambda: take_snapshot(roots))
    for name in FORWARDED_SIGNALS:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), lambda signum, _: events.put(partial(supervisor.on_signal, signum)))
    supervisor.begin()
    log.info("restarting the worker when a .py file in %s changes", ", ".join(roots))
    while supervisor.exit_code is None:
        try:
            events.get(timeout=POLL_S)()
        except Empty:
            supervisor.on_poll()
    return supervisor.exit_code

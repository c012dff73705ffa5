"""What signals do to ``python -m kafka worker`` and ``scheduler`` while they start: import their own modules and the
app, read settings.

    SIGTERM SIGHUP SIGINT    a line, and the process ends at once with exit code 0

and to a worker alone:

    SIGTTIN SIGTTOU          a line, and nothing more: there are no slots yet
    SIGUSR1                  the stacks of all threads

Their loop takes over later (a worker's: :mod:`kafka.tasks.worker.signals`), and puts these handlers back at its end:
after :meth:`StartupSignals.finish`, and in processes that were forked, they do what was there before them.

The handlers run between any two lines of the code that is imported, which may hold the locks of the logging and may
catch every exception. So they write to standard error themselves, in the form of the command's log, and raise nothing.
Light on purpose: it is loaded before all else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

from kafka.cli import LOG_FORMAT

_STOP: Final = frozenset({"SIGTERM", "SIGHUP", "SIGINT"})
_SIGNALS: Final = {
    "worker": (*sorted(_STOP), "SIGTTIN", "SIGTTOU", "SIGUSR1"),
    "scheduler": tuple(sorted(_STOP)),
}
"""By command: those that its loop knows, too."""

_STDERR: Final = 2


class StartupSignals:
    """A context in which the handlers are there; in the main thread only, and not for signals that are ignored, as
    ``nohup`` does."""

    def __init__(self, leave: Callable[[int], object] = os._exit) -> None:
        self._leave = leave
        self._command = "worker"
        self._former: dict[int, Any] = {}
        self._pid = 0
        self._is_finished = False
        self._is_leaving = False

    def of(self, command: str) -> StartupSignals:
        """The context for ``worker`` or ``scheduler``."""
        self._command = command
        return self

    def __enter__(self) -> StartupSignals:
        self._pid = os.getpid()
        self._is_finished = self._is_leaving = False
        if threading.current_thread() is threading.main_thread():
            for name in _SIGNALS[self._command]:
                number = getattr(signal, name, None)
                handler = None if number is None else signal.getsignal(number)
                if number is not None and handler not in (None, signal.SIG_IGN):
                    self._former[number] = handler
                    signal.signal(number, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            if signal.getsignal(number) == self._received:  # the app may have set its own
                signal.signal(number, handler)
        self._former = {}

    def finish(self) -> None:
        """It has started: from now on signals that come here do what they did before."""
        self._is_finished = True

    def _received(self, signum: int, frame: FrameType | None) -> None:
        if self._is_finished or os.getpid() != self._pid:
            self._pass_on(signum, frame)
            return
        name = signal.Signals(signum).name
        if name in _STOP:
            self._stop(name)
        elif name == "SIGUSR1":
            _write(logging.WARNING, "\n".join(["the worker has not started", *_stacks()]))
        else:
            _write(logging.INFO, f"received {name}: the worker is starting, and has no slots yet")

    def _stop(self, name: str) -> None:
        if not self._is_leaving:  # else the first signal is still at it: a pipe may be full
            self._is_leaving = True
            _write(logging.INFO, f"received {name}: the {self._command} is starting, and leaves at once")
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
        self._leave(0)

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        handler = self._former.get(signum, signal.SIG_DFL)
        if callable(handler):
            handler(signum, frame)
        else:
            signal.signal(signum, handler)
            os.kill(os.getpid(), signum)


startup_signals: Final = StartupSignals()
"""Those of this process."""


def _write(level: int, text: str) -> None:
    """A line of the log, or several."""
    if sys.__stderr__ is None:  # it was closed when Python started, and its number may be something else's
        return
    record = logging.LogRecord(__name__, level, __file__, 0, text, None, None)
    left = f"{logging.Formatter(LOG_FORMAT).format(record)}\n".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        while left:
            left = left[os.write(_STDERR, left) :]


def _stacks() -> Iterator[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}:"
        yield "".join(traceback.format_stack(frame)).rstrip()

"""Signals as events of the loop.

The Python handlers installed here do nothing at all: the interpreter's C handler writes the signal's number into a
socket (``signal.set_wakeup_fd``), the loop reads it and calls back at a clean point between two callbacks. So nothing
of ours is ever interrupted half way, and no lock can be held by the code that a signal broke into.

Made by :meth:`kafka.net.loop.Loop.watch_signals`. One at a time for each process, since the interpreter has one wakeup
fd. A child made by ``fork`` gets the former handlers back at once: its signals would reach the parent's loop otherwise.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.net.loop import Loop

_READ_BYTES = 4096

_active: SignalWatch | None = None
"""Whose socket the interpreter writes to."""


def _nothing(signum: int, frame: FrameType | None) -> None:
    """A handler has to be there for the interpreter to write the number."""


class SignalWatch:
    """Signals of this process, handed to ``callback(signum)`` on the loop, one call for each that was seen.

    ``signums`` get a do-nothing handler until :meth:`close`; when empty, whatever has a Python handler is reported.
    The kernel joins equal signals that are pending at once: after SIGCHLD reap all children, not one.

    RuntimeError: not the main thread, or another owner has the wakeup fd (an asyncio loop in the main thread has it).
    """

    def __init__(self, loop: Loop, callback: Callable[[int], object], signums: Iterable[int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("signals can be watched in the main thread only")
        self._callback = callback
        self._signums = frozenset(signums)
        self._former: dict[int, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if former_fd != -1:
            signal.set_wakeup_fd(former_fd)
            self._close_sockets()
            raise RuntimeError(f"signals are watched already (by the owner of wakeup fd {former_fd}); close that first")
        global _active
        _active = self
        try:
            self._watch = loop.watch(self._reader, on_readable=self._read)
            for signum in self._signums:
                self._former[signum] = signal.signal(signum, _nothing)
                if hasattr(signal, "siginterrupt"):  # libraries that do not retry after EINTR go undisturbed
                    signal.siginterrupt(signum, False)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Put the former handlers back. In the main thread; any number of times."""
        self._restore()
        if hasattr(self, "_watch"):
            self._watch.close()
        self._close_sockets()

    def _restore(self) -> None:
        global _active
        if _active is not self:
            return
        _active = None
        for signum, handler in self._former.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(-1)

    def _close_sockets(self) -> None:
        self._reader.close()
        self._writer.close()

    def _read(self) -> None:
        numbers = b""
        with contextlib.suppress(BlockingIOError):
            numbers = self._reader.recv(_READ_BYTES)
        for signum in numbers:
            if not self._signums or signum in self._signums:
                self._callback(signum)


def _after_fork_in_child() -> None:
    watch = _active
    if watch is not None:
        watch._restore()
        watch._close_sockets()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

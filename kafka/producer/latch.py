"""The lock that a producer's ``send`` takes for each record.

In plain Python that is a ``threading.Lock``, and what there is to it is done in C. Compiled, its ``acquire`` is one of
the dearest things in ``send``: it takes its arguments apart and reads the clock, 0.12 us of 1 us. But compiled code is
not interrupted between two of its own lines, as long as there is a global interpreter lock: to look at a flag and to
set it is one step, and only a thread that finds it set needs a real lock to sleep on.

    held   waiting        acquire: not held -> held; else wait at the gate, and look again
           └─ gate        release: not held; whoever waits is let through the gate, to look again
"""

from __future__ import annotations

import sys
import threading

from kafka._compiled import IS_COMPILED

_HAS_GIL = "free-threading" not in sys.version
"""By the build, and not by whether it is on now: it may be for a moment only, while a module is imported."""


class Latch:
    """A lock for one thread at a time, not reentrant. To be used by compiled code under the GIL alone; elsewhere it is
    no more than the lock that it holds."""

    __slots__ = ("_gate", "_is_held", "_is_plain", "_waiting")

    def __init__(self) -> None:
        self._is_plain = not (IS_COMPILED and _HAS_GIL)
        self._gate = threading.Lock()
        self._is_held = False
        self._waiting = 0
        if not self._is_plain:
            self._gate.acquire()

    def acquire(self) -> None:
        """Wait until nobody has it, and have it."""
        if self._is_plain:
            self._gate.acquire()
            return
        while self._is_held:
            self._waiting += 1
            try:
                self._gate.acquire()
            finally:  # also when Ctrl-C ended the wait: one that is let through in vain looks again
                self._waiting -= 1
        self._is_held = True

    def release(self) -> None:
        """Have it no more."""
        if self._is_plain:
            self._gate.release()
            return
        self._is_held = False
        if self._waiting and self._gate.locked():  # else one is on its way through
            self._gate.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

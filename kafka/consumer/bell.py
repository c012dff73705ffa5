"""What wakes the thread that waits for a consumer: an event that a signal handler may ring in whatever it broke into.

``threading.Event`` guards its flag with a lock that is not re-entrant: a handler that sets it, in the thread that is
just clearing it, would wait for itself. Here the flag is the lock, and each step is one call into C:

    silent   the lock is held        wait() waits for it
    rung     the lock is free        wait() takes it, which silences the bell again
"""

from __future__ import annotations

import contextlib
import threading


class Bell:
    """Rung by any thread or signal handler; one thread at a time waits for it. Ringing twice is ringing once."""

    __slots__ = ("_silence",)

    def __init__(self) -> None:
        self._silence = threading.Lock()
        self._silence.acquire()

    def ring(self) -> None:
        """Wake who waits, or else who waits next."""
        if self._silence.locked():
            with contextlib.suppress(RuntimeError):  # another was quicker
                self._silence.release()

    def silence(self) -> None:
        """Forget that it was rung: to be followed by a look at whatever it is rung for."""
        self._silence.acquire(False)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is rung, at most so long; whether it was. It is silent then."""
        return self._silence.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))

"""Who may be in a call of a consumer, and how the thread that waits in one is woken."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from types import TracebackType

from kafka.errors import IllegalStateError


class WakeupEvent:
    """An event that any thread or signal handler may set; one thread at a time waits for it.

    ``threading.Event`` guards its flag with a lock that is not re-entrant: a signal handler that sets it, in the thread
    that is just clearing it, would wait for itself. Here the flag is the lock, and each step is one call into C:

        clear   the lock is held        wait() waits for it
        set     the lock is free        wait() takes it, which clears the event again
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiter, or else the next one."""
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another was quicker
                self._lock.release()

    def clear(self) -> None:
        """To be followed by a look at whatever it is set for."""
        self._lock.acquire(False)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, at most so long; whether it was. It is clear then."""
        return self._lock.acquire(timeout=min(max(timeout_s, 0.0), threading.TIMEOUT_MAX))


class SingleThreadGuard:
    """Held while a call of the consumer runs: by one thread, any number of times. ``with`` refuses a second thread, as
    Java's ConcurrentModificationException does, where waiting would hide the mistake.

    ``on_exit``: called once, when the call under way has ended.
    """

    __slots__ = ("_depth", "_lock", "on_exit")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.on_exit: Callable[[], object] | None = None

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            raise IllegalStateError(
                "another thread is in a call of this consumer: it is for one thread at a time, but for wakeup() and "
                "close()"
            )
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        is_over = not self._depth
        self._lock.release()
        if is_over and self.on_exit is not None:
            self.run_on_exit()

    def call_on_exit(self, action: Callable[[], object]) -> None:
        """Have it called once, when the call under way has ended."""
        self.on_exit = action

    @property
    def is_held(self) -> bool:
        """A call is under way."""
        return self._depth > 0

    def run_on_exit(self) -> None:
        """Do what was put off, if it was not done yet."""
        on_exit, self.on_exit = self.on_exit, None
        if on_exit is not None:
            on_exit()

    def wait(self, timeout_s: float) -> bool:
        """Be the one to hold it, when the thread that does has left; whether it has in time. Then :meth:`leave`."""
        return self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    def leave(self) -> None:
        """After :meth:`wait`."""
        self._lock.release()

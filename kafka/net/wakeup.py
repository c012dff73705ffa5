"""The wakeup pipe: how another thread ends the loop's sleep.

One owner for the three facts (asleep, woken, a byte is in flight) and their lock. The loop asks
:meth:`WakeupPipe.may_sleep` before it blocks and calls :meth:`WakeupPipe.rise` after it; any thread calls
:meth:`WakeupPipe.wake`.

    awake --may_sleep()--> asleep --wake(): one byte--> asleep, woken --rise(): drain--> awake
    awake --wake(): no byte at all--> awake, woken: the next may_sleep() says no

A thousand calls of wake() cost one byte when the loop sleeps and none when it does not: whoever wakes has done its work
(appended to a queue) before, and the loop looks at the queue after it has cleared ``woken``.
"""

from __future__ import annotations

import contextlib
import socket
import threading

_DRAIN_BYTES = 4096


class WakeupFlag:
    """The part that a loop without descriptors needs: it never sleeps, so nobody has to be woken."""

    def __init__(self) -> None:
        self._is_woken = False

    @property
    def is_woken(self) -> bool:
        """Somebody called :meth:`wake` since the last :meth:`rise`."""
        return self._is_woken

    def wake(self) -> None:
        self._is_woken = True

    def may_sleep(self) -> bool:
        return not self._is_woken

    def rise(self) -> None:
        self._is_woken = False

    def close(self) -> None:
        self._is_woken = False


class WakeupPipe(WakeupFlag):
    """A non-blocking pair of sockets that never holds more than one byte of ours."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.RLock()  # a signal handler that wakes the loop may have broken into may_sleep()
        self._is_asleep = False
        self._has_byte = False
        self._is_closed = False

    def fileno(self) -> int:
        """The end to select on for reading."""
        return self._reader.fileno()

    @property
    def in_flight_bytes(self) -> int:
        """Bytes in the pipe now (looked at, not taken)."""
        try:
            return len(self._reader.recv(_DRAIN_BYTES, socket.MSG_PEEK))
        except BlockingIOError:
            return 0

    def wake(self) -> None:
        """End the sleep under way, or forbid the next one. From any thread; after :meth:`close` it does nothing."""
        if not self._is_woken:
            try:
                with self._lock:
                    self._wake_once()
            except BaseException:  # a signal handler raised in the middle: nobody may trust half a wake
                with self._lock:
                    self._is_woken = self._has_byte = True
                    if not self._is_closed:
                        with contextlib.suppress(BlockingIOError):
                            self._writer.send(b"\0")
                raise

    def _wake_once(self) -> None:
        if self._is_woken or self._is_closed:
            return
        self._is_woken = True
        if self._is_asleep and not self._has_byte:
            self._has_byte = True
            # When it is full there is something to read, which is all that is wanted.
            with contextlib.suppress(BlockingIOError):
                self._writer.send(b"\0")

    def may_sleep(self) -> bool:
        """Whether the loop may block now; when so, it counts as asleep until :meth:`rise`."""
        with self._lock:
            self._is_asleep = True  # first: a signal handler that wakes behind the next line sends its byte
            if self._is_woken:
                self._is_asleep = False
                return False
            return True

    def rise(self) -> None:
        """The loop is awake: drain the pipe whole and be ready for the next :meth:`wake`."""
        if not (self._is_asleep or self._is_woken):
            return
        with self._lock:
            self._is_asleep = False
            self._is_woken = False
            if self._has_byte:
                self._has_byte = False
                self._drain()

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._reader.recv(_DRAIN_BYTES)) == _DRAIN_BYTES:
                pass

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._reader.close()
            self._writer.close()

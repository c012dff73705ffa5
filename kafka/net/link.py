"""One direction of a connection in memory: when bytes arrive, in which pieces, and whether at all.

A :class:`Link` is what a test sets, one for each ordered pair of hosts; a :class:`Pipe` is what one connection has
under way in one direction. Who is connected with whom is ``memory.py``'s.

    queue: (instant, bytes) (instant, bytes) ... (instant, error)      instants never decrease; an error is the end
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kafka.net.loop import Loop

WINDOW_BYTES = 256 * 1024
"""Under way on one direction of a connection before ``pending_bytes`` begins to count."""


@dataclass(eq=False)
class Link:
    """One direction between two hosts. To be changed at any time; delay and loss count when the bytes are written."""

    delay_s: float | Callable[[int], float] = 0.0
    """Seconds on the way, or a function from the number of bytes to them. Never overtakes what was written before."""
    chunk_bytes: int | None = None
    """Deliver in pieces of at most so many bytes, each in a ``data_received()`` of its own."""
    is_lossy: bool = False
    """What is written vanishes, the end of a connection included; the connection itself stays."""
    is_held: bool = False
    """Nothing arrives and no connection is made. Lifted by :meth:`MemoryNetwork.heal`, which delivers what waited."""

    def delay_of(self, count: int) -> float:
        """Seconds that ``count`` bytes take, written now."""
        return self.delay_s(count) if callable(self.delay_s) else self.delay_s


class PipeEnd(Protocol):
    """Where a pipe leads."""

    def may_receive(self) -> bool: ...

    def call_handler(self, method: str, *args: bytes) -> None: ...

    def set_writers_pending(self, count: int) -> None: ...

    def end(self, error: BaseException | None) -> None: ...


class Pipe:
    """What is on its way to one end: (instant, bytes) in order, then perhaps the end."""

    def __init__(self, loop: Loop, target: PipeEnd) -> None:
        self.link = Link()
        self._loop = loop
        self._target = target
        self._queue: deque[tuple[float, bytes | OSError]] = deque()
        self._count_bytes = 0
        self._last_at = 0.0
        self._armed_at: float | None = None
        self._is_shut = False

    def send(self, data: bytes) -> None:
        """Put bytes on the way."""
        if self._is_shut or self.link.is_lossy:
            return
        self._count_bytes += len(data)
        self._put(data, self.link.delay_of(len(data)))
        self._report()

    def end(self, error: OSError) -> None:
        """Behind all bytes under way, the other end ends."""
        if not (self._is_shut or self.link.is_lossy):
            self._put(error, self.link.delay_of(0))

    def clear(self) -> None:
        """Lose what is under way."""
        self._queue.clear()
        self._count_bytes = 0

    def shut(self) -> None:
        """The target has ended: nothing arrives any more."""
        self._is_shut = True
        self.clear()

    def _put(self, what: bytes | OSError, delay_s: float) -> None:
        self._last_at = max(self._last_at, self._loop.time() + delay_s)
        self._queue.append((self._last_at, what))
        self.arm()

    def arm(self) -> None:
        """See to it that the head of the queue is delivered at its instant."""
        if not self._queue or not self._may_deliver():
            return
        at = self._queue[0][0]
        if self._armed_at is None or at < self._armed_at:
            self._armed_at = at
            self._loop.call_at(at, self._deliver, at)

    def _deliver(self, armed_at: float) -> None:
        if self._armed_at == armed_at:
            self._armed_at = None
        now = self._loop.time()
        stretch: list[bytes] = []
        end: OSError | None = None
        while self._queue and self._queue[0][0] <= now and end is None and self._may_deliver():
            what = self._queue.popleft()[1]
            if isinstance(what, bytes):
                stretch.append(what)
            else:
                end = what
        data = b"".join(stretch)
        size = self.link.chunk_bytes or len(data)
        position = 0
        while position < len(data) and self._may_deliver():
            self._count_bytes -= len(data[position : position + size])
            self._target.call_handler("data_received", data[position : position + size])
            position += size
        if self._is_shut:
            return
        if position < len(data) or (end is not None and not self._may_deliver()):
            # The handler paused between two pieces: the rest waits at the head.
            if end is not None:
                self._queue.appendleft((now, end))
            if position < len(data):
                self._queue.appendleft((now, data[position:]))
        elif end is not None:
            self._target.end(end)
        self._report()
        self.arm()

    def _may_deliver(self) -> bool:
        return not (self._is_shut or self.link.is_held) and self._target.may_receive()

    def _report(self) -> None:
        self._target.set_writers_pending(max(0, self._count_bytes - WINDOW_BYTES))

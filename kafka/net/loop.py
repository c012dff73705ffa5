"""The select loop: file descriptors, timers, and calls from other threads.

One thread owns a loop and calls everything on it; :meth:`Loop.call_soon_threadsafe` and :meth:`Loop.wakeup` alone may
be called from any other. Sleep and its end are :class:`WakeupPipe`'s, signals :class:`SignalWatch`'s; connections are
in ``tcp.py``, names in ``resolve.py``.

One turn (:meth:`Loop.run_once`):

    wait for descriptors, the next timer or a wakeup  ->  callbacks of descriptors  ->  due timers  ->  soon-callbacks

What a callback adds runs in the same turn or the next, but a turn always ends: timers and soon-callbacks are those that
were there when their part of the turn began. A callback may change any watch or timer, its own included; an event that
was reported for a watch which has been closed or narrowed since is dropped, so a descriptor that was closed and reused
inside a callback never gets an event of its predecessor.

A loop made by :meth:`Loop.simulated` has no descriptors and never sleeps: its clock jumps to the next timer.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import selectors
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from math import inf
from types import FrameType
from typing import Any, Generic, NoReturn, TypeVar

from kafka._native import mypyc_attr
from kafka.errors import Cancelled
from kafka.future import Future
from kafka.net.clock import Clock, ManualClock, SystemClock

# -- Timers ------------------------------------------------------------------------------------------------------------
# The heap of timers, and the queue of scheduled tasks on top of it.
#
# :class:`TimerHeap` orders items by a monotonic instant and serves the loop too. :class:`DelayedTaskQueue` speaks epoch
# seconds, remembers tasks by identity of value (they are hashable) and gives each a future. Neither runs or wakes
# anything: the owner asks when the next is due.
#
#     heap entry:  (when, number, timer)        number: order of adding, so ties are fair and timers are never compared
#     cancelled:   timer.item is None           left in the heap until it comes up, or until half of the heap is such


T = TypeVar("T")

NEVER_S = 9999999999
"""The result of :meth:`DelayedTaskQueue.next_at` when nothing is scheduled."""

GRAIN_S = 1e-6
"""Epoch seconds as a float are no finer than a quarter of a microsecond, so what is nearer than this is due."""

_COMPACT_FROM = 64
"""A smaller heap is not worth the cleaning."""


class Timer(Generic[T]):
    """One item in a heap. ``when`` is its instant, ``item`` is None once it was cancelled or has been run."""

    __slots__ = ("_heap", "item", "when")

    def __init__(self, when: float, item: T, heap: TimerHeap[T]) -> None:
        self.when = when
        self.item: T | None = item
        self._heap: TimerHeap[T] | None = heap

    @property
    def is_pending(self) -> bool:
        """Whether it was neither cancelled nor run."""
        return self.item is not None

    def take(self) -> T | None:
        """Take the item out to run it; None when the timer was cancelled."""
        item, self.item = self.item, None
        return item

    def cancel(self) -> None:
        """Cancel it: O(1), at any time, any number of times. The item is released at once."""
        self.item = None
        heap, self._heap = self._heap, None
        if heap is not None:
            heap._count_cancelled()


class TimerHeap(Generic[T]):
    """Items by monotonic instant; equal instants in the order of adding. ``len()`` does not count cancelled ones."""

    __slots__ = ("_cancelled_count", "_entries", "_number")

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Timer[T]]] = []
        self._number = 0
        self._cancelled_count = 0

    def __len__(self) -> int:
        return len(self._entries) - self._cancelled_count

    @property
    def stored_count(self) -> int:
        """Entries in memory, cancelled ones included: at most twice ``len()`` and a few."""
        return len(self._entries)

    def push(self, when: float, item: T) -> Timer[T]:
        """Add ``item`` (anything but None) for the instant ``when``; ValueError when that is not a number."""
        if when != when:
            raise ValueError("the instant of a timer is not a number")
        timer = Timer(when, item, self)
        self._number += 1
        heapq.heappush(self._entries, (when, self._number, timer))
        return timer

    def next_when(self) -> float | None:
        """The earliest instant, or None when there is nothing."""
        entries = self._entries
        while entries:
            when, _, timer = entries[0]
            if timer.item is not None:
                return when
            heapq.heappop(entries)
            self._cancelled_count -= 1
        return None

    def pop_due(self, now: float) -> Timer[T] | None:
        """Take out the earliest timer when it is due at ``now``; it can be cancelled still (its item is then None)."""
        when = self.next_when()
        if when is None or when > now:
            return None
        timer = heapq.heappop(self._entries)[2]
        timer._heap = None
        return timer

    def clear(self) -> None:
        """Cancel everything."""
        for _, _, timer in self._entries:
            timer.item = None
            timer._heap = None
        self._entries.clear()
        self._cancelled_count = 0

    def _count_cancelled(self) -> None:
        self._cancelled_count += 1
        entries = self._entries
        # Cleaning costs as much as the cancellations that led to it, so cancel() stays O(1) on average.
        if len(entries) >= _COMPACT_FROM and self._cancelled_count * 2 > len(entries):
            self._entries = [entry for entry in entries if entry[2].item is not None]
            heapq.heapify(self._entries)
            self._cancelled_count = 0


class DelayedTaskQueue:
    """Tasks that are to run at a time of the wall clock, each with a future.

    ``at`` is turned into a monotonic deadline when the task is added, so a later step of the wall clock neither fires
    nor delays it. ``clock``: the machine's by default. The caller of :meth:`pop_ready` runs the tasks and completes
    their futures.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._heap: TimerHeap[tuple[Hashable, Future[Any]]] = TimerHeap()
        self._timers: dict[Hashable, Timer[tuple[Hashable, Future[Any]]]] = {}
        self._offset_s: float | None = None

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, task: Hashable) -> bool:
        return task in self._timers

    def add(self, task: Hashable, at: float) -> Future[Any]:
        """Schedule ``task`` for ``at`` (epoch seconds). One already there is cancelled: its future fails."""
        future: Future[Any] = Future()
        timer = self._heap.push(at - self._wall_offset_s(), (task, future))
        former = self._timers.pop(task, None)
        self._timers[task] = timer
        if former is not None:
            _cancel(former, "the task was scheduled again")
        return future

    def remove(self, task: Hashable) -> None:
        """Unschedule ``task``: its future fails with :class:`~kafka.errors.Cancelled`. KeyError when it is not
        there."""
        _cancel(self._timers.pop(task), "the task was unscheduled")

    def cancel_all(self) -> None:
        """Unschedule everything, each as by :meth:`remove`."""
        for task in list(self._timers):
            self.remove(task)

    def next_at(self) -> float:
        """Seconds until the next task: 0 when one is due, 9999999999 when there is none."""
        when = self._heap.next_when()
        if when is None:
            return NEVER_S
        left_s = when - self._clock.monotonic()
        return left_s if left_s > GRAIN_S else 0

    def pop_ready(self) -> list[tuple[Any, Future[Any]]]:
        """Take out what is due: (task, future) in time order, ties in the order of adding."""
        now = self._clock.monotonic() + GRAIN_S
        ready: list[tuple[Any, Future[Any]]] = []
        while (timer := self._heap.pop_due(now)) is not None:
            if timer.item is not None:
                del self._timers[timer.item[0]]
                ready.append(timer.item)
        return ready

    def _wall_offset_s(self) -> float:
        """Epoch minus monotonic. The same until the wall clock is stepped: equal ``at`` must give equal deadlines.

        The two clocks cannot be read at one instant, and the thread may lose the processor between; the true offset
        lies in the interval that three readings give, and the known one is kept while it does so too.
        """
        before = self._clock.monotonic()
        wall = self._clock.time()
        after = self._clock.monotonic()
        known = self._offset_s
        if known is None or not wall - after - GRAIN_S <= known <= wall - before + GRAIN_S:
            self._offset_s = known = wall - before
        return known


def _cancel(timer: Timer[tuple[Hashable, Future[Any]]], why: str) -> None:
    item = timer.item
    timer.cancel()
    if item is not None:
        item[1].failure(Cancelled(why))


log = logging.getLogger(__name__)

Callback = Callable[..., object]
LoopTimer = Timer[tuple[Callback, tuple[object, ...]]]

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

_MAX_SLEEP_S = 86400.0
"""Longer sleeps overflow the milliseconds of some selectors."""

_CLOSED = -1

_fork_generation = 0
"""The number of forks between the first process and this one; a loop of another generation belongs to the parent."""


def _count_fork() -> None:
    global _fork_generation
    _fork_generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Watch:
    """A file descriptor under watch: the one owner of its entry in the selector."""

    __slots__ = ("_loop", "_on_readable", "_on_writable", "events", "fd", "fileobj")

    def __init__(self, loop: Loop, fileobj: Any, fd: int, on_readable: Callback | None, on_writable: Callback | None):
        self._loop = loop
        self._on_readable = on_readable
        self._on_writable = on_writable
        self.fileobj = fileobj
        self.fd = fd
        self.events = 0
        """The watched events, READ | WRITE; 0 for none, and after :meth:`close`."""

    def set(self, read: bool | None = None, write: bool | None = None) -> None:
        """Turn one side or both on or off; None leaves it. Without either, the selector does not know the descriptor.

        ValueError when a side without a callback is turned on; RuntimeError when closed.
        """
        if self.fd < 0:
            raise RuntimeError("the watch is closed")
        events = self.events
        if read is not None:
            events = events | READ if read else events & ~READ
        if write is not None:
            events = events | WRITE if write else events & ~WRITE
        if (events & READ and self._on_readable is None) or (events & WRITE and self._on_writable is None):
            raise ValueError("the watch has no callback for that")
        if events != self.events:
            self._loop._change_watch(self, events)

    def close(self) -> None:
        """Stop watching. To be called before the descriptor is closed; any number of times."""
        if self.fd >= 0:
            self._loop._drop_watch(self)
            self.fd = -1

    def _dispatch(self, mask: int) -> int:
        """Run the callbacks for ``mask`` that are still on; returns how many ran."""
        ran = 0
        for event, callback in ((READ, self._on_readable), (WRITE, self._on_writable)):
            if mask & event & self.events and callback is not None:
                ran += 1
                try:
                    callback()
                except Exception:
                    log.exception("an error in %r, called for descriptor %d", callback, self.fd)
        return ran


@mypyc_attr(allow_interpreted_subclasses=True)
class Loop:
    """A select loop over ``selectors``, with ``clock`` (default: the machine's) for its timers.

    Errors (``Exception``) of callbacks are logged and do not end the loop; ``KeyboardInterrupt`` and ``SystemExit``
    pass through, and the loop can go on after them. After a fork, everything but :meth:`close` raises RuntimeError in
    the child: descriptors, and on Linux the epoll set itself, are shared with the parent.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        selector: selectors.BaseSelector | None = None,
        manual: ManualClock | None = None,
    ) -> None:
        """``manual``: the clock of a simulated loop, which takes the place of both."""
        if manual is not None:
            clock = manual
        elif selector is None:
            selector = selectors.DefaultSelector()
        if clock is None:
            clock = SystemClock()
        self.clock = clock
        self.time: Callable[[], float] = clock.monotonic
        """Monotonic seconds."""
        self._left_s: Callable[[float], float] | None = getattr(clock, "left_s", None)
        """For a clock that may stand still; others need not be asked."""
        self._generation = _fork_generation
        self._manual = manual
        self._selector = selector
        self._wakeup = WakeupFlag()
        self._timers: TimerHeap[tuple[Callback, tuple[object, ...]]] = TimerHeap()
        self._due: deque[LoopTimer] = deque()
        self._ready: deque[tuple[Callback, tuple[object, ...]]] = deque()
        self._owner = threading.get_ident()
        self._is_running = False
        self._is_stopping = False
        if selector is not None:
            self._wakeup = pipe = WakeupPipe()
            selector.register(pipe, READ, None)

    @classmethod
    def simulated(cls, clock: ManualClock | None = None) -> Loop:
        """A loop without descriptors that lets ``clock`` jump from timer to timer instead of sleeping."""
        return cls(manual=clock or ManualClock())

    # -- handing work over ---------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callback, *args: object) -> None:
        """Run ``callback(*args)`` in this turn or the next, after earlier calls."""
        if self._generation != _fork_generation:
            self._refuse()
        self._ready.append((callback, args))

    def call_soon_threadsafe(self, callback: Callback, *args: object) -> None:
        """The same from any thread; ends the loop's sleep. RuntimeError when the loop is closed."""
        if self._generation != _fork_generation:
            self._refuse()
        self._ready.append((callback, args))
        self._wakeup.wake()

    def call_at(self, when: float, callback: Callback, *args: object) -> LoopTimer:
        """Run ``callback(*args)`` at the monotonic instant ``when``; equal instants run in the order of asking."""
        if self._generation != _fork_generation:
            self._refuse()
        return self._timers.push(when, (callback, args))

    def call_later(self, delay_s: float, callback: Callback, *args: object) -> LoopTimer:
        """Run ``callback(*args)`` after ``delay_s`` seconds."""
        return self.call_at(self.time() + delay_s, callback, *args)

    def wakeup(self) -> None:
        """End the sleep of the current turn, or of the next one, from any thread. Calls coalesce."""
        if self._generation == _fork_generation:
            self._wakeup.wake()

    def next_timer_at(self) -> float | None:
        """The monotonic instant of the earliest timer; None when there is none."""
        return self._timers.next_when()

    # -- descriptors ---------------------------------------------------------------------------------------------------

    def watch(self, fileobj: Any, on_readable: Callback | None = None, on_writable: Callback | None = None) -> Watch:
        """Call back while ``fileobj`` (a descriptor or what has ``fileno()``) is readable or writable.

        Level-triggered: a callback that leaves bytes there is called again. Sides with a callback start turned on. An
        error or hang-up counts as both. ValueError when the descriptor is watched already.
        """
        if self._generation != _fork_generation:
            self._refuse()
        if self._selector is None:
            raise RuntimeError("a simulated loop has no file descriptors")
        fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._check_not_watched(fd)
        watch = Watch(self, fileobj, fd, on_readable, on_writable)
        watch.set(read=on_readable is not None, write=on_writable is not None)
        return watch

    def watch_signals(self, callback: Callable[[int], object], *signums: int) -> SignalWatch:
        """Call ``callback(signum)`` on the loop for each of the signals, until the result is closed.

        In the main thread only, and one at a time: see :class:`SignalWatch`.
        """
        return SignalWatch(self, callback, signums)

    def _check_not_watched(self, fd: int) -> None:
        assert self._selector is not None
        key = self._selector.get_map().get(fd)
        if key is None:
            return
        former = key.data
        if isinstance(former, Watch) and not isinstance(former.fileobj, int) and former.fileobj.fileno() != fd:
            former.close()  # the file was closed, its watch was not, and the number was given out again
            return
        raise ValueError(f"descriptor {fd} is watched already")

    def _change_watch(self, watch: Watch, events: int) -> None:
        if self._generation != _fork_generation:
            self._refuse()
        assert self._selector is not None
        if not watch.events:
            self._selector.register(watch.fd, events, watch)
        elif not events:
            self._selector.unregister(watch.fd)
        else:
            self._selector.modify(watch.fd, events, watch)
        watch.events = events

    def _drop_watch(self, watch: Watch) -> None:
        if watch.events and self._generation == _fork_generation and self._selector is not None:
            self._selector.unregister(watch.fd)
        watch.events = 0

    # -- running -------------------------------------------------------------------------------------------------------

    def run_once(self, timeout_s: float | None = None, *, advance: bool = True) -> int:
        """One turn: wait for events for at most ``timeout_s`` (None: without limit), and handle them.

        Returns the number of callbacks run: 0 when the time was up or :meth:`wakeup` was called. A simulated loop moves
        its clock instead of waiting, unless ``advance`` is false; with neither timer nor limit it returns 0 at once.
        RuntimeError inside a callback of this loop.
        """
        if self._generation != _fork_generation:
            self._refuse()
        if self._is_running:
            raise RuntimeError("the loop is running already: this was called inside one of its callbacks")
        self._is_running = True
        self._owner = threading.get_ident()
        try:
            ran = 0
            if self._manual is None:
                for key, mask in self._select(timeout_s):
                    if key.data is not None:
                        ran += key.data._dispatch(mask)
            elif advance:
                self._pass_time(self._manual, timeout_s)
            return ran + self._run_timers() + self._run_ready()
        finally:
            self._is_running = False

    def run_until(self, done: Future[Any] | Callable[[], object], timeout_s: float | None = None) -> bool:
        """Run until the future is done or the predicate holds; False when ``timeout_s`` passed before.

        A simulated loop also returns False when it has neither timers nor callbacks left.
        """
        self._owner = threading.get_ident()  # now: completing the future asks whether another thread has to be woken
        if isinstance(done, Future):
            future = done
            future.add_both(self._wakeup_from_elsewhere)

            def is_done() -> object:
                return future.is_done
        else:
            is_done = done
        give_up_at = inf if timeout_s is None else self.time() + timeout_s
        while not is_done():
            left_s = give_up_at - self.time()
            ran = self.run_once(None if left_s == inf else max(left_s, 0.0))
            stuck = self._manual is not None and not (ran or self._ready or self._due or self._timers)
            if (stuck or left_s <= 0) and not is_done():
                return False
        return True

    def run_forever(self) -> None:
        """Run until :meth:`stop`."""
        self._is_stopping = False
        while not self._is_stopping:
            self.run_once()

    def stop(self) -> None:
        """Let :meth:`run_forever` return after this turn. On the loop's thread only."""
        self._is_stopping = True
        self._wakeup.wake()

    def _wakeup_from_elsewhere(self, _: object) -> None:
        if not self.in_loop_thread():
            self.wakeup()

    def in_loop_thread(self) -> bool:
        """Whether the caller is the thread that ran the loop last (before the first turn: that made it)."""
        return self._owner == threading.get_ident()

    @property
    def is_usable(self) -> bool:
        """Neither closed nor inherited through a fork."""
        return self._generation == _fork_generation

    def close(self) -> None:
        """Release everything; pending calls do not run any more. Also in a forked child, where it closes
        the child's copies of the descriptors and leaves the parent's loop alone. RuntimeError inside a callback.
        """
        if self._generation == _CLOSED:
            return
        if self._is_running and self._generation == _fork_generation:
            raise RuntimeError("a loop cannot be closed inside one of its callbacks: stop() it first")
        self._generation = _CLOSED
        self._timers.clear()
        self._due.clear()
        self._ready.clear()
        if self._selector is not None:
            self._selector.close()
        self._wakeup.close()

    def _refuse(self) -> NoReturn:
        if self._generation == _CLOSED:
            raise RuntimeError("the loop is closed")
        raise RuntimeError("the loop belongs to the parent process: after a fork, make a new one in the child")

    def _select(self, timeout_s: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        assert self._selector is not None
        if self._ready or self._due:
            timeout_s = 0.0
        else:
            timeout_s = _MAX_SLEEP_S if timeout_s is None else min(timeout_s, _MAX_SLEEP_S)
            when = self._timers.next_when()
            if when is not None:
                timeout_s = min(timeout_s, when - self.time() if self._left_s is None else self._left_s(when))
            if timeout_s > 0 and not self._wakeup.may_sleep():
                timeout_s = 0.0
        try:
            return self._selector.select(max(timeout_s, 0.0))
        finally:
            self._wakeup.awoke()

    def _pass_time(self, clock: ManualClock, timeout_s: float | None) -> None:
        woken = self._wakeup.is_woken
        self._wakeup.awoke()
        if self._ready or self._due or woken:
            return
        now = clock.monotonic()
        until = inf if timeout_s is None else now + max(timeout_s, 0.0)
        when = self._timers.next_when()
        if when is not None:
            until = min(until, when)
        if now < until < inf:
            clock.set(until)

    def _run_timers(self) -> int:
        due = self._due  # on the loop: callbacks that an interrupt left over run in the next turn
        now = self.time()
        while (timer := self._timers.pop_due(now)) is not None:
            due.append(timer)
        ran = 0
        while due:
            timer = due.popleft()
            item = timer.take()
            if item is not None:
                ran += 1
                try:
                    item[0](*item[1])
                except Exception:
                    log.exception("an error in %r, called by a timer", item[0])
        return ran

    def _run_ready(self) -> int:
        ready = self._ready
        count = len(ready)
        for _ in range(count):
            callback, args = ready.popleft()
            try:
                callback(*args)
            except Exception:
                log.exception("an error in %r", callback)
        return count


_DRAIN_BYTES = 4096
"""Of a wakeup pipe or a signal socket, in one call."""


class WakeupFlag:
    """The same for a loop without descriptors, which never sleeps."""

    def __init__(self) -> None:
        self._is_woken = False

    @property
    def is_woken(self) -> bool:
        """:meth:`wake` was called since the last :meth:`awoke`."""
        return self._is_woken

    def wake(self) -> None:
        self._is_woken = True

    def may_sleep(self) -> bool:
        return not self._is_woken

    def awoke(self) -> None:
        self._is_woken = False

    def close(self) -> None:
        self._is_woken = False


class WakeupPipe(WakeupFlag):
    """How another thread ends the loop's sleep: a non-blocking socket pair that holds at most one byte.

    One owner for the three facts (asleep, woken, a byte is in flight) and their lock. The loop calls :meth:`may_sleep`
    before it blocks and :meth:`awoke` after it; any thread calls :meth:`wake`::

        awake --may_sleep()--> asleep --wake(): one byte--> asleep, woken --awoke(): drain--> awake
        awake --wake(): no byte at all--> awake, woken: the next may_sleep() is False

    A thousand calls of wake() cost one byte when the loop sleeps and none when it does not: the caller of wake() has
    appended its work to a queue before, and the loop looks at the queue after it has cleared ``woken``.
    """

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
        """The end to watch for reading."""
        return self._reader.fileno()

    @property
    def in_flight_bytes(self) -> int:
        """The number of bytes in the pipe (peeked at)."""
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
            except BaseException:  # a signal handler raised in the middle: the state is unknown, so write the byte
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
            # A full socket is readable, which ends the sleep.
            with contextlib.suppress(BlockingIOError):
                self._writer.send(b"\0")

    def may_sleep(self) -> bool:
        """Whether the loop may block now; when so, it counts as asleep until :meth:`awoke`."""
        with self._lock:
            self._is_asleep = True  # first: a signal handler that wakes behind the next line sends its byte
            if self._is_woken:
                self._is_asleep = False
                return False
            return True

    def awoke(self) -> None:
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


_active: SignalWatch | None = None
"""The watch whose socket the interpreter writes to."""


def _do_nothing(signum: int, frame: FrameType | None) -> None:
    """A handler has to be there for the interpreter to write the number."""


class SignalWatch:
    """Signals of this process, handed to ``callback(signum)`` on the loop, one call for each that was seen.

    The Python handlers installed here do nothing: the interpreter's C handler writes the signal's number into a socket
    (``signal.set_wakeup_fd``), the loop reads it and calls back between two callbacks. So no callback is interrupted,
    and the code that a signal interrupts may hold any lock.

    Made by :meth:`Loop.watch_signals`. One at a time for each process, since the interpreter has one wakeup fd. A child
    made by ``fork`` gets the former handlers back at once: otherwise its signals would reach the parent's loop.

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
                self._former[signum] = signal.signal(signum, _do_nothing)
                if hasattr(signal, "siginterrupt"):  # for libraries that do not retry after EINTR
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
            numbers = self._reader.recv(_DRAIN_BYTES)
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


class DeadlineTimer:
    """One timer for an owner with a next deadline that moves: calls ``callback()`` once, at the instant of the last
    :meth:`set`. Setting the same instant or a later one costs nothing."""

    __slots__ = ("_callback", "_loop", "_timer", "_when")

    def __init__(self, loop: Loop, callback: Callable[[], object]) -> None:
        self._loop = loop
        self._callback = callback
        self._timer: LoopTimer | None = None
        self._when = inf

    def set(self, when: float) -> None:
        """Call back at ``when`` (the loop's clock, in seconds) instead of the instant set before; infinity: never."""
        self._when = when
        timer = self._timer
        if timer is not None:
            if timer.when <= when < inf:
                return  # when it fires it is set again: deadlines move on with every answer
            timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer) if when < inf else None

    def _on_timer(self) -> None:
        self._timer = None
        if self._when <= self._loop.time():
            self._when = inf
            self._callback()
        else:
            self._timer = self._loop.call_at(self._when, self._on_timer)

"""The select loop: file descriptors, timers, and calls handed over from other threads.

One thread owns a loop and calls everything on it; :meth:`Loop.call_soon_threadsafe` and :meth:`Loop.wakeup` alone may
be called from any other. It leaves connections to ``tcp.py``, names to ``resolve.py``, signals to ``signals.py``, the
sleep and its end to ``wakeup.py``, the order of timers to ``delayed.py``.

One turn (:meth:`Loop.run_once`):

    wait for descriptors, the next timer or a wakeup  ->  callbacks of descriptors  ->  due timers  ->  soon-callbacks

What a callback adds runs in the same turn or the next, but a turn always ends: timers and soon-callbacks are those that
were there when their part of the turn began. A callback may change any watch or timer, its own included; an event that
was reported for a watch which has been closed or narrowed since is dropped, so a descriptor that was closed and given
out again inside a callback never gets its forerunner's event.

A loop made by :meth:`Loop.simulated` has no descriptors and never sleeps: its clock jumps to the next timer.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, NoReturn

from kafka._native import mypyc_attr
from kafka.future import Future
from kafka.net.clock import Clock, ManualClock, SystemClock
from kafka.net.delayed import Timer, TimerHeap
from kafka.net.signals import SignalWatch
from kafka.net.wakeup import WakeupFlag, WakeupPipe

log = logging.getLogger(__name__)

Callback = Callable[..., object]
LoopTimer = Timer[tuple[Callback, tuple[object, ...]]]

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

_MAX_SLEEP_S = 86400.0
"""Longer sleeps overflow the milliseconds of some selectors."""

_CLOSED = -1

_fork_generation = 0
"""How many forks lie between the first process and this one: a loop of another generation is the parent's."""


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
        """What is waited for now: READ | WRITE; 0 while neither is, and for ever after :meth:`close`."""

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
        """Run the callbacks for ``mask`` that are still wanted; how many ran."""
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
        """Run ``callback(*args)`` in this turn or the next, after what was handed over before."""
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
        """From any thread: let the turn under way, or else the next one, end without sleep. Calls coalesce."""
        if self._generation == _fork_generation:
            self._wakeup.wake()

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

        In the main thread only, and one at a time: see :class:`kafka.net.signals.SignalWatch`.
        """
        return SignalWatch(self, callback, signums)

    def _check_not_watched(self, fd: int) -> None:
        assert self._selector is not None
        key = self._selector.get_map().get(fd)
        if key is None:
            return
        former = key.data
        if isinstance(former, Watch) and not isinstance(former.fileobj, int) and former.fileobj.fileno() != fd:
            former.close()  # somebody closed the file but not its watch, and the number was given out again
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
        """One turn: wait for something to do, for at most ``timeout_s`` (None: without limit), and do it.

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

        A simulated loop also gives up when nothing is left that could ever happen.
        """
        self._owner = threading.get_ident()  # now: who completes the future asks whether somebody else has to be woken
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
        """Let :meth:`run_forever` return after this turn. On the loop's thread (others hand it over)."""
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
        """Let go of everything; nothing that was handed over runs any more. Also in a forked child, where it closes
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
            self._wakeup.rise()

    def _pass_time(self, clock: ManualClock, timeout_s: float | None) -> None:
        woken = self._wakeup.is_woken
        self._wakeup.rise()
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
        due = self._due  # kept on the loop: what an interrupt leaves over runs in the next turn
        now = self.time()
        while (timer := self._timers.pop_due(now)) is not None:
            due.append(timer)
        ran = 0
        while due:
            timer = due.popleft()
            item = timer.item
            if item is not None:
                timer.item = None
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

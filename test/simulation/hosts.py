"""A machine in the world: a view of the one loop with a clock of its own, which can be paused.

While a host is paused nothing of it runs: what is due waits, and runs in its order when the host goes on. So a process
that was stopped (SIGSTOP), a virtual machine that was frozen or a callback that took long are seen by everybody else
as they are: silent, and then late. One that is never resumed has died without a word.

Monotonic clocks of two hosts differ by hours, so that code that compares them does not pass.
"""

from __future__ import annotations

from typing import Any

from kafka.net.loop import Callback, Loop, LoopTimer, TimerHeap


class HostClock:
    """The clock of one host over the world's. :meth:`step` sets its wall alone."""

    def __init__(self, base: Loop, ahead_s: float, wall_s: float) -> None:
        self._base = base
        self._ahead_s = ahead_s
        self._wall_s = wall_s

    def monotonic(self) -> float:
        return self._base.time() + self._ahead_s

    def time(self) -> float:
        return self._base.time() + self._wall_s

    def step(self, seconds: float) -> None:
        """Set the wall clock, forward or back."""
        self._wall_s += seconds


class HostLoop(Loop):
    """The world's loop as one host sees it."""

    def __init__(self, base: Loop, ahead_s: float = 0.0, wall_s: float = 1_700_000_000.0) -> None:
        # Not Loop's own: there is one loop, and this is a view of it.
        self._base = base
        self._ahead_s = ahead_s
        self._generation = base._generation
        self.clock = HostClock(base, ahead_s, wall_s)
        self.time = self.clock.monotonic
        self.is_paused = False
        self.is_over = False
        """The world has ended: what its objects still ask for when they are freed does not happen."""
        self._late_timers: list[LoopTimer] = []
        self._late: list[tuple[Callback, tuple[object, ...]]] = []

    def call_soon(self, callback: Callback, *args: object) -> None:
        if not self.is_over:
            self._base.call_soon(self._run, callback, args)

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Callback, *args: object) -> LoopTimer:
        if self.is_over:
            return LoopTimer(when, (callback, args), TimerHeap())
        cell: list[Any] = [callback, args, None]
        timer = cell[2] = self._base.call_at(when - self._ahead_s, self._fire, cell)
        timer.when = when
        return timer

    def wakeup(self) -> None:
        self._base.wakeup()

    def run_until(self, done: Any, timeout_s: float | None = None) -> bool:
        return self._base.run_until(done, timeout_s)

    def in_loop_thread(self) -> bool:
        return True

    def close(self) -> None:
        return

    def pause(self) -> None:
        """Nothing of this host runs until :meth:`resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Go on, with what was due meanwhile first."""
        if self.is_paused:
            self.is_paused = False
            timers, self._late_timers = self._late_timers, []
            late, self._late = self._late, []
            self._base._due.extend(timers)
            for callback, args in late:
                self._base.call_soon(self._run, callback, args)

    def _run(self, callback: Callback, args: tuple[object, ...]) -> None:
        if self.is_paused:
            self._late.append((callback, args))
        else:
            callback(*args)

    def _fire(self, cell: list[Any]) -> None:
        callback, args, timer = cell
        if self.is_paused:
            timer.item = (self._fire, (cell,))  # it can be cancelled still, by what runs before it
            self._late_timers.append(timer)
        else:
            callback(*args)

"""The soft limit inside a child: :class:`SoftTimeLimit` raised in user code, and nowhere else.

The parent writes the job's number on the page and sends a signal. The handler raises only while the window is open for
that very job: it opens just before the task's function is called and closes just after, so neither the encoding of the
result nor the writing of a frame nor the next job is ever interrupted. Raising closes the window: one exception per
job, and no second one inside the code that deals with the first.

The interpreter runs the handler between two bytecodes of the main thread. Where that is decides what happens (the tests
walk all of these points):

=====================================  ==========================================================
as the handler runs                    what happens
=====================================  ==========================================================
before the window opens                nothing; :meth:`SoftLimitWindow.open` looks at the page and raises
in the task's code                     raised there
in an event loop, or in another task   raised where the task's own coroutine waits, on the loop's next turn
   of it (a coroutine)
in a callback of a loop that the       nothing; the parent signals again after a second, since the loop would log the
   task's function runs itself         error and go on
between two of its callbacks           the same: a callback that the loop has taken and not called yet would be lost,
                                       and code that waits for it, as `asyncio.run` does at its end, would wait for ever
in a finaliser, whose errors Python    nothing more comes of that one (:func:`sys.unraisablehook`); as above
   drops
in C code that does not return         raised as it returns; the hard limit does not wait for that
as the function returns or raises      raised in ``runner.run``; the job ends with the soft limit
after the window is closed             nothing: the job had ended in time
=====================================  ==========================================================

What a task's own handler of an alarm raises is the task's, as long as it is raised there. When the function has ended,
the alarm is disarmed (:attr:`SoftLimitWindow.disarm`) by the first call that is made, and that is one of C: the
interpreter runs handlers before a function of Python and after one of C, so there is no place between, and what was to
come has come when that call is over. It still counts for the function: the run fails with it. Python 3.10 also runs
them as an ``except`` block begins: what is raised there leaves the run. The caller disarms in a ``try`` with
which a ``finally`` begins, the one handler of errors that 3.10 enters without a look at signals.
"""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from kafka.tasks.errors import SoftTimeLimit
from kafka.tasks.pools.ipc.shared_page import SharedPage
from kafka.tasks.pools.runner import InterruptibleCoroutine

SOFT_SIGNAL: int = getattr(signal, "SIGUSR1", 0)


SOFT_LIMIT_TEXT = "soft time limit reached, or the worker is stopping"


class SoftLimitWindow:
    """The window of one child. Implements :class:`kafka.tasks.pools.runner.SignalWindow`."""

    __slots__ = ("_former_hook", "_open_for", "_page", "_raised_for", "_exit_copy", "_seq", "disarm", "waiting")

    def __init__(self, page: SharedPage) -> None:
        self._page = page
        self._open_for = 0
        self._raised_for = 0
        """The job in which it was raised, while its window was open."""
        self._former_hook: Callable[[Any], object] = sys.unraisablehook
        self.waiting: InterruptibleCoroutine | None = None
        self.disarm: Callable[[int], object] = signal.alarm
        self._seq = 0
        self._exit_copy: Callable[[BaseException | None], NoReturn] | None = None

    def install(self) -> None:
        """Take the signal. In the main thread."""
        signal.signal(SOFT_SIGNAL, self.on_signal)
        signal.siginterrupt(SOFT_SIGNAL, False)
        self._former_hook, sys.unraisablehook = sys.unraisablehook, self._on_unraisable

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Raise, when it is for the job whose window is open."""
        seq = self._open_for
        if not seq or self._page.soft_seq != seq:
            return
        waiting = self.waiting
        if waiting is not None:
            if not waiting.is_running(frame):
                self._open_for = 0
                waiting.interrupt(SoftTimeLimit(SOFT_LIMIT_TEXT))
                return
        elif _is_in_loop(frame):
            return
        self._open_for = 0
        self._raised_for = seq
        raise SoftTimeLimit(SOFT_LIMIT_TEXT)

    def _on_unraisable(self, unraisable: Any) -> None:
        """Python drops an error that cannot be caught. When that was ours, another one may follow."""
        if self._raised_for and isinstance(unraisable.exc_value, SoftTimeLimit):
            self._open_for, self._raised_for = self._raised_for, 0
        else:
            self._former_hook(unraisable)

    def set_job(self, seq: int) -> None:
        """The job that :meth:`open` opens for; before it runs."""
        self._seq = seq

    def on_task_fork(self, exit_copy: Callable[[BaseException | None], NoReturn]) -> None:
        """This is a copy of the child that a task has forked: how it ends when the task's function has."""
        self._exit_copy = exit_copy

    def open(self) -> None:
        """From here on the soft limit may be raised in the job; at once, when its limit has passed already."""
        self._open_for = self._seq
        self.on_signal(0, None)

    def function_ended(self, error: BaseException | None) -> None:
        """The task's function has returned, or raised ``error``."""
        if self._exit_copy is not None:
            self._exit_copy(error)

    def close(self) -> None:
        """From here on it is not."""
        self._open_for = self._raised_for = 0


def _is_in_loop(frame: FrameType | None) -> bool:
    """Whether this is a callback of an event loop, and no coroutine in it: what it raises is logged there, and lost. Or
    the loop itself, between two of them."""
    base = sys.modules.get("asyncio.base_events")
    if base is None or frame is None or not hasattr(base, "BaseEventLoop"):  # that is so while it is being imported
        return False
    if frame.f_code is base.BaseEventLoop._run_once.__code__:
        return True
    callback = base.events.Handle._run.__code__
    while frame is not None and not frame.f_code.co_flags & inspect.CO_COROUTINE:
        if frame.f_code is callback:
            return True
        frame = frame.f_back
    return False

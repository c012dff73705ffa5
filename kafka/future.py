"""The future of kafka-python: a value or an exception that comes later, with callbacks.

Callbacks run in the thread that completes the future, in the order in which they were added; one added to a completed
future runs at once in the adding thread. An exception in a callback is logged and changes nothing else. Completing a
future twice is refused. :meth:`Future.wait` blocks a thread and is for users' threads only: on a loop's own thread it
would wait for itself.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

_completion = threading.RLock()
"""Guards the step from pending to done of every future: held for a few instructions, so one lock serves all. Reentrant,
since a signal handler that completes a future may have broken into just those instructions.
"""


def _renew_lock() -> None:
    """In a forked child: the thread that held the lock, if one did, is not there to let it go."""
    global _completion
    _completion = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Future(Generic[T]):
    """A result that is not there yet.

    ``is_done``, ``value`` and ``exception`` are plain attributes to look at; :meth:`success` and :meth:`failure` are
    called once, by the code that produces the result.
    """

    __slots__ = ("_callbacks", "exception", "is_done", "value", "__weakref__")

    error_on_callbacks = False
    """Raise the errors of callbacks instead of logging them (for tests)."""

    def __init__(self) -> None:
        self.is_done = False
        self.value: T | None = None
        self.exception: BaseException | None = None
        self._callbacks: list[tuple[bool | None, Callable[..., Any]]] | None = None

    def succeeded(self) -> bool:
        """Done, with a value."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """Done, with an exception."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """Failed with an error that says the same call may succeed later."""
        return bool(getattr(self.exception, "retriable", False))

    def success(self, value: T) -> Future[T]:
        """Complete with ``value``; an error when already done."""
        self._complete(value, None)
        return self

    def failure(self, error: BaseException | type[BaseException]) -> Future[T]:
        """Complete with an exception, or with an instance of an exception class; an error when already done."""
        self._complete(None, error() if isinstance(error, type) else error)
        return self

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``f(*args, value, **kwargs)`` on success."""
        self._add(True, _bind(f, args, kwargs))
        return self

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``f(*args, exception, **kwargs)`` on failure."""
        self._add(False, _bind(f, args, kwargs))
        return self

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[T]:
        """Call ``f`` with the value or with the exception, whichever comes."""
        bound = _bind(f, args, kwargs)
        self._add(None, bound)
        return self

    def chain(self, future: Future[T]) -> Future[T]:
        """Complete ``future`` with whatever completes this one."""
        self.add_callback(future.success)
        self.add_errback(future.failure)
        return self

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until done, for at most ``timeout`` seconds; whether it is done."""
        if not self.is_done:
            event = threading.Event()
            self._add(None, lambda _: event.set())
            event.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        return self.is_done

    def result(self) -> T:
        """The value of a done future, or its exception raised; an error when it is not done."""
        if not self.is_done:
            raise RuntimeError("the future is not done")
        if self.exception is not None:
            raise self.exception
        return self.value  # type: ignore[return-value]

    def __await__(self) -> Generator[Future[T], None, T]:
        if not self.is_done:
            yield self
        return self.result()

    def __repr__(self) -> str:
        state = "pending" if not self.is_done else f"failed {self.exception!r}" if self.exception else "done"
        return f"<{type(self).__name__} {state}>"

    def _add(self, on_success: bool | None, callback: Callable[..., Any]) -> None:
        with _completion:
            if not self.is_done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append((on_success, callback))
                return
        self._run([(on_success, callback)])

    def _complete(self, value: T | None, error: BaseException | None) -> None:
        with _completion:
            if self.is_done:
                raise RuntimeError("the future is done already")
            self.value = value
            self.exception = error
            self.is_done = True
            callbacks, self._callbacks = self._callbacks, None
        if callbacks:
            self._run(callbacks)

    def _run(self, callbacks: list[tuple[bool | None, Callable[..., Any]]]) -> None:
        ok = self.exception is None
        outcome: Any = self.value if ok else self.exception
        for on_success, callback in callbacks:
            if on_success is None or on_success is ok:
                try:
                    callback(outcome)
                except Exception:
                    if self.error_on_callbacks:
                        raise
                    log.exception("future callback raised; ignoring it")
                except BaseException:
                    # Outside the main thread this is no Ctrl-C: a callback called sys.exit(). That would
                    # end the loop's thread silently, and with it everything that others wait for.
                    if self.error_on_callbacks or threading.current_thread() is threading.main_thread():
                        raise
                    log.exception("future callback raised SystemExit or KeyboardInterrupt; ignoring it")


def _bind(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    if not callable(f):
        raise TypeError(f"a callback is a function, and not {f!r}")
    if not args and not kwargs:
        return f
    return lambda outcome: f(*args, outcome, **kwargs)

"""Ctrl-C and SIGTERM as exceptions at points where they can do no harm.

Raised at once they could strike between a process's start and the note that it was started, which would leave it behind
for ever; inside ``with interrupts.held():`` they therefore wait for the block's end. SIGINT becomes KeyboardInterrupt,
SIGTERM SystemExit with the exit code that shells give for it. In another thread than the main one, where no signal
arrives, all of this does nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

EXIT_TERMINATED: Final = 128 + signal.SIGTERM


class Interrupts:
    """Takes the two signals over between ``with`` and its end."""

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._holds = 0
        self._pending: int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                if signal.getsignal(signum) is not signal.SIG_IGN:  # as it is for commands that a script put aside
                    self._before[signum] = signal.signal(signum, self._arrived)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """What arrives within is raised at the end."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._maybe_raise()

    def _arrived(self, signum: int, frame: FrameType | None) -> None:
        self._pending = signum
        self._maybe_raise()

    def _maybe_raise(self) -> None:
        if self._pending is None or self._holds:
            return
        signum, self._pending = self._pending, None
        if signum == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(EXIT_TERMINATED)

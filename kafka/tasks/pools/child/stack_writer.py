"""Writes the stacks of this process's threads to a file when a signal comes.

In a handler of C (``faulthandler``), so that a child which never comes back to the interpreter does it, too: in many
small writes, and with no word for the end. That is written by the interpreter's own handler, which runs after it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
from functools import partial
from types import FrameType
from typing import Final

DUMP_SIGNAL: int = getattr(signal, "SIGUSR2", 0)
"""Has a child write the stacks of its threads."""

END: Final = b"\n.\n"
"""What follows the stacks."""


def write_on_signal(fd: int) -> None:
    """In a child, in its main thread: write the stacks of all threads to ``fd`` on :data:`DUMP_SIGNAL`."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        signal.signal(DUMP_SIGNAL, partial(_write_end, fd))
        signal.siginterrupt(DUMP_SIGNAL, False)
        faulthandler.register(DUMP_SIGNAL, file=fd, all_threads=True, chain=True)


def _write_end(fd: int, signum: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(fd, END)

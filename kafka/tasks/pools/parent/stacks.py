"""The stacks of children in the worker's log, one child after the other.

A child writes them in many small writes (:mod:`kafka.tasks.pools.child.stack_writer`). So children share a file of the
pool, with no name, and are asked one at a time; what one has written is logged as a whole. (Standard error for all at
once gave lines of two children and the worker inside one another.)

The end is known by ``END``. Where the handler that writes it does not run, in a long call of C code, the text is
complete when nothing was added for :data:`QUIET_S`.
"""

from __future__ import annotations

import fcntl
import logging
import os
from collections import deque
from collections.abc import Iterable

from kafka.tasks.pools.child.stack_writer import END
from kafka.tasks.pools.ipc.shared_page import anonymous_file
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.deadlines import PoolDeadlines

log = logging.getLogger(__name__)

CHECK_S = 0.01
QUIET_S = 0.5
SILENT_S = 2.0
"""A child that has written nothing for so long is stopped, or does not get the processor."""
MOST_BYTES = 1 << 20


def stacks_file() -> int:
    """A descriptor of the file: writes by any process are appended."""
    fd = anonymous_file("kafka-stacks", 0)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


class StackDumper:
    """Asks children for their stacks. ``fd``: the file that :func:`stacks_file` gave, and the children have."""

    def __init__(self, fd: int, deadlines: PoolDeadlines) -> None:
        self._fd = fd
        self._deadlines = deadlines
        self._queue: deque[ChildProcess] = deque()
        self._requested: ChildProcess | None = None
        self._size = 0
        self._grew_at = 0.0

    def request_dumps(self, children: Iterable[ChildProcess]) -> None:
        """Log the stacks of these, soon. Those that are in the line already are not asked twice."""
        self._queue += [child for child in children if child is not self._requested and child not in self._queue]
        if self._requested is None:
            self._request_next()

    def _request_next(self) -> None:
        self._requested = None
        while self._requested is None and self._queue:
            child = self._queue.popleft()
            os.ftruncate(self._fd, 0)
            if child.handle.dump():
                self._requested = child
                self._size = 0
                self._grew_at = self._deadlines.time()
                self._deadlines.after(CHECK_S, self._check)
            else:
                log.warning("no stacks of %s: it is still starting", child)

    def _check(self) -> None:
        child = self._requested
        if child is None:
            return
        now = self._deadlines.time()
        text = os.pread(self._fd, MOST_BYTES, 0)
        if len(text) > self._size:
            self._size = len(text)
            self._grew_at = now
        quiet = now - self._grew_at
        if text.endswith(END) or quiet >= (QUIET_S if text else SILENT_S) or child.stage is ChildStage.GONE:
            self._log_stacks(child, text)
            self._request_next()
        else:
            self._deadlines.after(CHECK_S, self._check)

    def _log_stacks(self, child: ChildProcess, text: bytes) -> None:
        if text:
            stacks = text.removesuffix(END).decode(errors="replace").rstrip()
            log.warning("stacks of %s:\n%s", child, stacks)
        else:
            log.warning("no stacks of %s: it is stopped, has ended, or gets no CPU time", child)

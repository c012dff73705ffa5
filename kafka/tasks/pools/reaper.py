"""Which children have ended: told by a pidfd, by the end of a channel, or found by asking.

A pidfd and the end of the news are reported by the loop; their callbacks only note the child
(:meth:`Reaper.suspect`), and :meth:`Reaper.settle` asks the system after all callbacks of the turn, where
descriptors may be closed. Where the system has no pidfd (macOS, some sandboxes) the end of the channel is followed by a
few questions, and everybody is asked each half second: a process that a task has left behind may hold the channel open
for ever. No handler of SIGCHLD: it would be a second owner of exit statuses, and others' libraries install theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kafka.net.loop import Loop
from kafka.tasks.pools.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.deadlines import PoolDeadlines
from kafka.tasks.pools.exit_reasons import KILL, KillReason
from kafka.tasks.pools.processes import ExitStatus

log = logging.getLogger(__name__)

POLL_S = 0.5
"""Between two questions whether children without a pidfd have ended."""
EOF_S = 1.0
"""A child whose channel is closed has so long to end by itself."""


class ExitHandler(Protocol):
    """Who buries."""

    def bury(self, kept: ChildProcess, end: ExitStatus) -> None:
        """The process has ended, and is reaped."""

    def kill(self, kept: ChildProcess, doom: KillReason, signum: int) -> None:
        """It has closed its channel and will not end."""


class Reaper:
    """Looks after the ends of ``children``."""

    def __init__(
        self, children: Mapping[int, ChildProcess], undertaker: ExitHandler, deadlines: PoolDeadlines, loop: Loop | None
    ) -> None:
        self._children = children
        self._undertaker = undertaker
        self._deadlines = deadlines
        self._loop = loop
        self._suspects: dict[ChildProcess, None] = {}

    def begin(self) -> None:
        """From now on, ask."""
        self._deadlines.after(POLL_S, self._poll)

    def watch(self, kept: ChildProcess) -> None:
        """Have the loop tell of the end of a new child."""
        if self._loop is not None and kept.child.pidfd is not None:
            kept.pid_watch = self._loop.watch(kept.child.pidfd, partial(self.suspect, kept))

    def suspect(self, kept: ChildProcess) -> None:
        """It may have ended: ask after the callbacks of this turn."""
        if not self._suspects and self._loop is not None:
            self._loop.call_soon(self.settle)
        self._suspects[kept] = None

    def settle_all(self) -> None:
        """Ask everybody, now."""
        self._suspects.update(dict.fromkeys(self._children.values()))
        self.settle()

    def settle(self) -> None:
        """Have those buried that have ended; look after those whose channel has."""
        while self._suspects:
            kept = next(iter(self._suspects))
            del self._suspects[kept]
            if kept.stage is ChildStage.GONE:
                continue
            end = kept.child.exited()
            if kept.pid_watch is not None and kept.child.pidfd is None:
                kept.pid_watch.close()  # its fork server is gone: the pipe that stood for a pidfd is at its end
            if end is not None:
                self._bury(kept, end)
            elif kept.child.news_eof and not kept.is_closed:
                kept.is_closed = True
                if kept.news_watch is not None:
                    kept.news_watch.close()  # an end that cannot be read away would be reported for ever
                self._deadlines.after(EOF_S, partial(self._closed, kept))
                if kept.child.pidfd is None:
                    self._ask_again(kept, EOF_S / 100)

    def _bury(self, kept: ChildProcess, end: ExitStatus) -> None:
        try:
            self._undertaker.bury(kept, end)
        except Exception:  # the other suspects must not wait for ever because of it
            log.exception("could not clean up after the end of %s", kept)

    def _ask_again(self, kept: ChildProcess, after_s: float) -> None:
        """Without a pidfd: has it ended now? A channel is closed a moment before its process can be reaped."""
        if kept.stage is not ChildStage.GONE and after_s < EOF_S:
            self.suspect(kept)
            self._deadlines.after(after_s, partial(self._ask_again, kept, 2 * after_s))

    def _closed(self, kept: ChildProcess) -> None:
        if kept.stage is not ChildStage.GONE:
            self._undertaker.kill(kept, KillReason("channel", "it closed its channel and did not end"), KILL)

    def _poll(self) -> None:
        self._deadlines.after(POLL_S, self._poll)
        for kept in self._children.values():
            if kept.child.pidfd is None and kept.child.exited() is not None:
                self.suspect(kept)

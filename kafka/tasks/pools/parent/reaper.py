"""Detects which children have ended: by a pidfd, by the end of a channel, or by polling.

A pidfd and the end of the messages are reported by the loop; their callbacks only note the child
(:meth:`Reaper.check_later`), and :meth:`Reaper.check` asks the system after all callbacks of the turn, where
descriptors may be closed. Where the system has no pidfd (macOS, some sandboxes) the end of the channel is followed by a
few polls, and all children are polled each half second: a process that a task has left behind may hold the channel open
for ever. No handler of SIGCHLD: it would be a second owner of exit statuses, and others' libraries install theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kafka.net.loop import Loop
from kafka.tasks.pools.ipc.processes import ExitStatus
from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.deadlines import PoolDeadlines
from kafka.tasks.pools.parent.exit_reasons import KILL, KillReason

log = logging.getLogger(__name__)

POLL_S = 0.5
"""Interval of polling children without a pidfd."""
EOF_S = 1.0
"""Time limit for the end of a child that has closed its channel."""


class ExitHandler(Protocol):
    """Callbacks of the supervision for ended children."""

    def on_exit(self, child: ChildProcess, end: ExitStatus) -> None:
        """The process has ended, and is reaped."""

    def kill(self, child: ChildProcess, kill_reason: KillReason, signum: int) -> None:
        """It has closed its channel and will not end."""


class Reaper:
    """Detects the ends of ``children``."""

    def __init__(
        self, children: Mapping[int, ChildProcess], handler: ExitHandler, deadlines: PoolDeadlines, loop: Loop | None
    ) -> None:
        self._children = children
        self._handler = handler
        self._deadlines = deadlines
        self._loop = loop
        self._to_check: dict[ChildProcess, None] = {}

    def begin(self) -> None:
        """From now on, ask."""
        self._deadlines.after(POLL_S, self._poll)

    def watch(self, child: ChildProcess) -> None:
        """Have the loop report the end of a new child."""
        if self._loop is not None:
            child.watch_exit(self._loop, partial(self.check_later, child))

    def check_later(self, child: ChildProcess) -> None:
        """It may have ended: check after the callbacks of this turn."""
        if not self._to_check and self._loop is not None:
            self._loop.call_soon(self.check)
        self._to_check[child] = None

    def check_all(self) -> None:
        """Check all children now."""
        self._to_check.update(dict.fromkeys(self._children.values()))
        self.check()

    def check(self) -> None:
        """Report ended children; those with a closed channel have EOF_S to end."""
        while self._to_check:
            child = next(iter(self._to_check))
            del self._to_check[child]
            if child.stage is ChildStage.GONE:
                continue
            end = child.handle.exited()
            child.close_stale_exit_watch()
            if end is not None:
                self._handle_exit(child, end)
            elif child.handle.messages_eof and not child.is_closed:
                child.on_channel_closed()
                self._deadlines.after(EOF_S, partial(self._kill_closed, child))
                if child.handle.pidfd is None:
                    self._check_again(child, EOF_S / 100)

    def _handle_exit(self, child: ChildProcess, end: ExitStatus) -> None:
        try:
            self._handler.on_exit(child, end)
        except Exception:  # the other children must not wait for ever because of it
            log.exception("could not clean up after the end of %s", child)

    def _check_again(self, child: ChildProcess, after_s: float) -> None:
        """Without a pidfd: has it ended now? A channel is closed a moment before its process can be reaped."""
        if child.stage is not ChildStage.GONE and after_s < EOF_S:
            self.check_later(child)
            self._deadlines.after(after_s, partial(self._check_again, child, 2 * after_s))

    def _kill_closed(self, child: ChildProcess) -> None:
        if child.stage is not ChildStage.GONE:
            self._handler.kill(child, KillReason("channel", "it closed its channel and did not end"), KILL)

    def _poll(self) -> None:
        self._deadlines.after(POLL_S, self._poll)
        for child in self._children.values():
            if child.handle.pidfd is None and child.handle.exited() is not None:
                self.check_later(child)

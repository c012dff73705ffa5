"""The end of a pool, which blocks: the loop does not run any more, so children are waited for here.

:func:`poll_once` is also what a pool without a loop waits with.
"""

from __future__ import annotations

import logging
import select
from typing import Any

from kafka.tasks.pools.parent.child_process import ChildProcess, ChildStage
from kafka.tasks.pools.parent.exit_reasons import KILL, KillReason
from kafka.tasks.pools.parent.supervision import ABANDON_S, RETIRE_S, Supervision

log = logging.getLogger(__name__)

REAP_S = 5.0
"""After SIGKILL, the kernel has so long: uninterruptible sleep can hold a process for any time."""


def poll_once(supervision: Supervision, timeout_s: float) -> None:
    """Wait up to ``timeout_s`` for a message, an exit or a deadline, and handle it."""
    deadlines = supervision.deadlines
    when = deadlines.next_at()
    if when is not None:
        timeout_s = min(timeout_s, max(0.0, when - deadlines.time()))
    poll: Any = select.poll()
    by_fd: dict[int, ChildProcess] = {}
    for child in supervision.children.values():
        handle = child.handle
        for fd in (-1 if handle.messages_eof else handle.messages_fd, handle.pidfd):
            if fd is not None and fd >= 0:
                by_fd[fd] = child
                poll.register(fd, select.POLLIN)
        if handle.pidfd is None:
            timeout_s = min(timeout_s, 0.01)
    for fd, _ in poll.poll(timeout_s * 1000 + 0.5 if by_fd else 0):
        supervision.read_messages(by_fd[fd])
    supervision.reaper.check_all()
    deadlines.run_due()


def stop_children(supervision: Supervision, grace_s: float, kill_grace_s: float) -> None:
    """End all children: idle ones at once, the others within the grace, by force after it."""
    supervision.stop_starting()
    for child in list(supervision.children.values()):
        if child.stage is ChildStage.BOOTING:
            supervision.kill(child, KillReason("stopped"), KILL)
        supervision.retire(child)
    _wait(supervision, max(grace_s, RETIRE_S), grace_s)  # what their tasks have enqueued is flushed meanwhile
    supervision.abandon(min(kill_grace_s, ABANDON_S))
    _wait(supervision, ABANDON_S, ABANDON_S)
    for child in list(supervision.children.values()):
        supervision.kill(child, child.kill_reason or KillReason("stopped"), KILL)
    _wait(supervision, REAP_S, REAP_S)
    for child in supervision.children.values():
        log.error("%s did not end after SIGKILL", child)
        child.close_watches()
        child.cancel_timers()
    supervision.close()


def _wait(supervision: Supervision, idle_s: float, busy_s: float) -> None:
    """Until all children are gone: for ``idle_s`` at most, ``busy_s`` while one still has jobs."""
    time = supervision.deadlines.time
    idle_until, busy_until = time() + idle_s, time() + busy_s
    while supervision.children:
        is_busy = any(child.jobs for child in supervision.children.values())
        left = (busy_until if is_busy else idle_until) - time()
        if left <= 0:
            return
        poll_once(supervision, min(left, 0.1))

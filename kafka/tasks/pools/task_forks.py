"""Copies of a process that a task makes by ``os.fork()``: the run goes on in both, and its end is the original's alone.

A copy that came back from the task's function would go on into the pool and the worker, which are there as well, with
their sockets and locks. So a run remembers how many forks lay behind its process as it began (:data:`fork_count`, a
number that only the hook of ``os.fork`` writes: to ask for the process's id is a system call for each job), and where
that has changed :func:`exit_forked_copy` ends the process. Runs in child processes have a way of their own, since the
channel has to be closed at once (:mod:`kafka.tasks.pools.child.main`).
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from kafka.tasks.task import JobEnqueuer

FLUSH_S = 4.0
"""A process that ends in order waits so long for what its tasks have enqueued."""

fork_count = 0
"""How many times a process was forked on the way from the one that imported this to the present one."""


def _after_fork_in_child() -> None:
    global fork_count
    fork_count += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def exit_forked_copy(error: BaseException | None, app: JobEnqueuer) -> NoReturn:
    """End as a process does whose main function has returned, or raised ``error``: handlers and outcome of the run are
    not the copy's. What it has enqueued is sent, by a connection of its own.
    """
    code = 0
    try:
        code = _exit_code(error)
        app.close(FLUSH_S)
    finally:
        from kafka.tasks.pools.job_logging import flush_streams  # it imports what imports this

        flush_streams()
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    """Python's own of a process that ends so; what it would print is printed."""
    if error is None:
        return 0
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 255
    print(error.code, file=sys.stderr)
    return 1

"""A child from its first line to its last: it cuts itself off from its parent, loads the app and runs the job loop.

It knows no broker, no limit and no other child. How it came to be is described in ``parent/launch.py``,
``process_setup.py`` and ``fork_server.py``; all of them end in :func:`become_child`, which does not return. It ends for
four reasons:

* the end of the jobs, after the last that it was sent: exit code 0;
* a channel that user code has closed or damaged: exit code :data:`EXIT_BROKEN_CHANNEL`;
* an app that cannot be loaded: its last message says why, exit code :data:`EXIT_APP_NOT_LOADED`;
* whatever user code does to it, or the worker by a signal.
"""

from __future__ import annotations

import atexit
import os
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.job_loop import EXIT_BROKEN_CHANNEL, ChildParameters, JobLoop, run_exit_functions
from kafka.tasks.pools.child.soft_limit import SoftLimitWindow
from kafka.tasks.pools.child.stack_writer import write_on_signal
from kafka.tasks.pools.ipc.channel import ChildChannel
from kafka.tasks.pools.ipc.processes import ChildUp
from kafka.tasks.pools.job_logging import JobLogContext, flush_streams, use_line_buffering
from kafka.tasks.pools.registry import VERSIONS, registry_hash

if TYPE_CHECKING:
    from kafka.tasks.app import App

EXIT_APP_NOT_LOADED = 69
"""Exit code of a child that could not load the app, after ``sysexits.h``: EX_UNAVAILABLE."""

_job_loop: JobLoop | None = None


def _after_fork_in_child() -> None:
    if _job_loop is not None:
        _job_loop.on_task_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class exit_after_block:  # noqa: N801
    """A block of a forked process that never ends: a copy of the parent that went on after an error, with all of its
    sockets, would be worse than any.
    """

    def __enter__(self) -> None:
        """It begins."""

    def __exit__(self, kind: object, error: object, trace: object) -> NoReturn:
        try:
            traceback.print_exc()
        finally:
            os._exit(EXIT_BROKEN_CHANNEL)


def become_child(channel: ChildChannel, load: Callable[[], App], parameters: ChildParameters) -> NoReturn:
    """Run as a child; does not return. The caller has blocked signals and disabled the garbage collector."""
    code = EXIT_BROKEN_CHANNEL
    try:
        code = _run_child(channel, load, parameters)
    except BaseException:
        traceback.print_exc()
    finally:
        flush_streams()
        os._exit(code)


def _run_child(channel: ChildChannel, load: Callable[[], App], parameters: ChildParameters) -> int:
    global _job_loop
    process_setup.isolate(channel.fds(), parameters.worker_pid, channel.lifeline, parameters.parent_pid)
    process_setup.redirect_stdin()
    process_setup.set_descriptor_limit(parameters.descriptors)
    process_setup.freeze_heap()
    atexit._clear()  # what the parent has registered is the parent's
    window = SoftLimitWindow(channel.page)
    window.install()
    write_on_signal(parameters.stacks_fd)
    use_line_buffering()
    process_setup.unblock_signals()
    try:
        app = load()
    except BaseException as error:
        channel.send_progress(str(error) or repr(error))
        return EXIT_APP_NOT_LOADED
    job_log = JobLogContext()
    job_log.install()
    loop_class = JobLoop
    if parameters.process_per_job:
        from kafka.tasks.pools.child.process_per_job import ForkingJobLoop as loop_class  # few want it
    _job_loop = loop_class(channel, app, window, job_log, parameters)
    tasks = "" if parameters.is_fork else registry_hash(app)
    channel.send_up(ChildUp(os.getpid(), channel.generation, VERSIONS, tasks))
    code = _job_loop.serve()
    if _job_loop.is_forked_copy:
        return 0
    run_exit_functions(app)
    return code

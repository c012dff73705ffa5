"""The first lines of a process that ``parent/interpreters.py`` executes: from a spec to a child, or a fork server."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from kafka.tasks.app import App
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.app_import import load_app, reporting_progress
from kafka.tasks.pools.child.job_loop import ChildParameters
from kafka.tasks.pools.child.main import become_child
from kafka.tasks.pools.ipc.channel import ChildChannel, ChildFds


def main(spec: dict[str, Any], role: str, arguments: Sequence[int]) -> NoReturn:
    """Be a ``child`` (arguments: its generation, the pool's file of stacks, its descriptors) or the ``forkserver``
    (arguments: its socket, the file of stacks).
    """
    process_setup.block_signals()
    job_logging.apply_logging_config(spec["logs"])
    if role == "forkserver":
        from kafka.tasks.pools.child.fork_server import serve_forks

        serve_forks(spec, *arguments)
    gc.disable()
    generation, stacks, *fds = arguments
    for fd in (stacks, *fds):
        os.set_inheritable(fd, False)
    channel = ChildChannel(generation, ChildFds(*fds))

    def load_reporting() -> App:
        with reporting_progress(channel.send_progress, spec["app"]):
            return load_app(spec)

    worker_pid = spec["worker_pid"]
    become_child(channel, load_reporting, ChildParameters(worker_pid, worker_pid, stacks, spec["descriptors"]))

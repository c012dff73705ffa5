"""The first lines of a process that ``launch.py`` or ``fork_server.py`` executes: from a spec to a child, or a fork
server.

The import of the app is the user's code and may take long; progress is reported every few seconds.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from kafka.tasks.app import App
from kafka.tasks.pools import job_logging
from kafka.tasks.pools.child import process_setup
from kafka.tasks.pools.child.main import ChildParameters, become_child
from kafka.tasks.pools.ipc.channel import ChildChannel, ChildFds
from kafka.tasks.worker.loader import load

PROGRESS_S = 5.0
"""An import that takes longer is reported, and again after each such interval."""


def main(spec: dict[str, Any], role: str, numbers: Sequence[int]) -> NoReturn:
    """Be a ``child`` (numbers: its generation, the pool's file of stacks, its descriptors) or the ``forkserver``
    (numbers: its socket, the file of stacks).
    """
    process_setup.block_signals()
    job_logging.apply_logging_config(spec["logs"])
    if role == "forkserver":
        from kafka.tasks.pools.parent.fork_server import serve_forks

        serve_forks(spec, *numbers)
    gc.disable()
    generation, stacks, *fds = numbers
    for fd in (stacks, *fds):
        os.set_inheritable(fd, False)
    ends = ChildChannel(generation, ChildFds(*fds))

    def loaded() -> App:
        with reporting_progress(ends.send_progress, spec["app"]):
            return load_app(spec)

    worker_pid = spec["worker_pid"]
    become_child(ends, loaded, ChildParameters(worker_pid, worker_pid, stacks, spec["descriptors"]))


def load_app(spec: dict[str, Any]) -> App:
    """The app of a spec, connected as the worker's is."""
    app = load(spec["app"], spec["directory"])
    if spec["servers"] is not None:
        app.connect_to(spec["servers"], **spec["client"])
    return app


@contextlib.contextmanager
def reporting_progress(tell: Callable[[str], object], what: str) -> Iterator[None]:
    """A block during which ``tell("importing ... for 5 s")`` is called now and then, in a thread that ends with it."""
    over = threading.Event()
    began_at = time.monotonic()

    def run() -> None:
        while not over.wait(PROGRESS_S):
            tell(f"importing {what} for {time.monotonic() - began_at:.0f} s")

    thread = threading.Thread(target=run, name="kafka-importing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

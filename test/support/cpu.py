"""What work costs, whatever else the machine and the process are doing.

Seconds on a clock depend on who else runs; the process's own depend on its other threads, and both on what all tests
before this one have left for the garbage collector to go through.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pathlib
import time
from types import TracebackType


class CpuTime:
    """``with CpuTime() as cpu: ...`` and then ``cpu.seconds``: of this thread, without garbage collection."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        self._collects = False

    def __enter__(self) -> CpuTime:
        self._collects = gc.isenabled()
        gc.disable()
        self._began = time.thread_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.thread_time() - self._began
        if self._collects:
            gc.enable()


class QueuedTime:
    """How long threads of this process's children, and of theirs, have been ready to run and had no processor, all
    together, since this was made; nothing where the system does not tell (it is Linux that does)."""

    def __init__(self) -> None:
        self._before = _queued_ns()

    def seconds(self) -> float:
        """Until now, of the threads that there are."""
        return sum(ns - self._before.get(thread, 0) for thread, ns in _queued_ns().items()) / 1e9


def _queued_ns() -> dict[str, int]:
    children: dict[int, list[int]] = {}
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            behind_the_name = status.read_text().rpartition(")")[2].split()
            children.setdefault(int(behind_the_name[1]), []).append(int(status.parent.name))
    found, waiting = {}, children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        for statistics in pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                found[str(statistics)] = int(statistics.read_text().split()[1])
    return found

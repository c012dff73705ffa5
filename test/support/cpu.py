"""What work costs, whatever else the machine and the process are doing.

Seconds on a clock depend on who else runs; the process's own depend on its other threads, and both on what all tests
before this one have left for the garbage collector to go through.
"""

from __future__ import annotations

import gc
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

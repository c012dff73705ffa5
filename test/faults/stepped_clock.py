"""``python -m test.faults.stepped_clock ...``: ``python -m kafka ...`` whose wall clock a test can step.

``time.time`` and ``time.time_ns`` are replaced before anything of ours is imported, so also what keeps a reference has
the new ones, and so have the children that the process forks. The step is eight bytes of a file that ``STEPPED_CLOCK``
names (:class:`Steps` writes them), which all of these processes have mapped: it comes to all of them in one moment.
"""

from __future__ import annotations

import mmap
import os
import pathlib
import runpy
import struct
import time
from typing import Final

VARIABLE: Final = "STEPPED_CLOCK"
_SECONDS: Final = struct.Struct("=d")


class Steps:
    """How far the clocks of these processes are from the machine's, in seconds."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        path.write_bytes(_SECONDS.pack(0.0))

    def to(self, seconds: float) -> None:
        """Step there. In place: a page that is mapped must not shrink."""
        with open(self.path, "r+b") as file:
            file.write(_SECONDS.pack(seconds))


def install(path: str) -> None:
    """Replace this process's wall clock."""
    with open(path, "rb") as file:
        page = mmap.mmap(file.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)
    true_time = time.time

    def stepped() -> float:
        return true_time() + float(_SECONDS.unpack_from(page)[0])

    time.time = stepped
    time.time_ns = lambda: int(stepped() * 1e9)


if __name__ == "__main__":
    install(os.environ[VARIABLE])
    runpy.run_module("kafka", run_name="__main__", alter_sys=True)

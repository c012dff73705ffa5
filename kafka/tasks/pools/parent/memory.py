"""What the system says of a child's memory: its present RSS and state, and whether the OOM killer has killed a process.

Present, never the peak: ``ru_maxrss`` of a process that holds 14 MB can say 321 MB, and a fork inherits it. All is read
from ``/proc`` and the control group (version 2); where they are missing the answers are None, and a memory limit is
refused (:mod:`kafka.tasks.pools.settings`).
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import NamedTuple

from kafka.tasks.pools.kernel import stat_fields

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

STOPPED = frozenset("Tt")
"""States of a process that a signal or a debugger holds."""


class ProcessSample(NamedTuple):
    """One look at a process: the kernel's letter for its state, and its RSS."""

    state: str
    rss_bytes: int

    @property
    def is_stopped(self) -> bool:
        return self.state in STOPPED


def sample_process(pid: int, proc: str = "/proc") -> ProcessSample | None:
    """A look at the process; None when it is gone, or the system has no ``/proc``. About 10 µs."""
    fields = stat_fields(pid, proc)
    if len(fields) < 22:
        return None
    return ProcessSample(fields[0].decode("ascii", "replace"), int(fields[21]) * _PAGE_BYTES)


class OomCounter:
    """How often the kernel has killed a process of our control group for want of memory."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path if path is not None else oom_file()
        self._older = self._newer = self._seen = 0
        self._older = self._newer = self._read()

    def advance(self) -> None:
        """A second has passed: what was counted two calls ago belongs to other deaths than the next."""
        self._older, self._newer = self._newer, self._read()

    def new_kills(self) -> int:
        """Kills of the last second or two that no death was blamed on; 0 where the system does not report them."""
        seen = self._read()
        kills = max(0, seen - self._older)
        if kills:
            self._older += 1  # each explains one death
            self._newer = max(self._newer, self._older)
        return kills

    def _read(self) -> int:
        if self._path is None:
            return 0
        try:
            lines = self._path.read_text().splitlines()
        except OSError:  # no descriptor for the moment, say: taken for 0, all kills ever would be new ones afterwards
            return self._seen
        self._seen = next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
        return self._seen


def oom_file(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The file of this process's control group with its line ``oom_kill N``; None where the system has none.

    ``memory.events`` of the one hierarchy (version 2), or ``memory.oom_control`` of the memory controller's own
    (version 1, also beside an empty version 2): cgroup-v2 and cgroup-v1/memory in the kernel's administration guide.
    """
    try:
        rows = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        return None
    files = {"": ("", "memory.events"), "memory": ("memory", "memory.oom_control")}
    for _, controllers, group in rows:
        for name in controllers.split(","):
            if name in files:
                hierarchy, file = files[name]
                path = root / hierarchy / group.lstrip("/") / file
                if path.exists():
                    return path
    return None


class JobQuota(NamedTuple):
    """Jobs of one child: from ``soft`` on it is to be replaced, more than ``most`` it is not given."""

    soft: int
    most: int


def quota(max_jobs: int | None, rng: Random) -> JobQuota | None:
    """``max_jobs`` with 10 % jitter, so that children that began together do not end together."""
    if max_jobs is None:
        return None
    spread = max_jobs // 10
    return JobQuota(rng.randint(max_jobs - spread, max_jobs + spread), max_jobs + spread)

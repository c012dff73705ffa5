"""What processes there are, from /proc: those of one worker are told by a variable in their environment.

A process inherits its environment from whoever started it, whatever becomes of parents, groups and sessions, so nothing
that a worker or its tasks have started is overlooked. Zombies have none; they are told by their parent.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Final, NamedTuple

import pytest

MARK: Final = "POOL_TEST_WORKER"

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc, which only Linux has")


class Process(NamedTuple):
    """One line of the table."""

    pid: int
    ppid: int
    state: str
    command: str
    cpu_s: float

    @property
    def arguments(self) -> str:
        """What it was called with; empty when it is gone."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                return file.read().decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            return ""


def process(pid: int) -> Process | None:
    """One process; None when there is no such."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            head, _, tail = file.read().decode("utf-8", "replace").rpartition(")")
    except OSError:
        return None
    fields = tail.split()
    ticks = os.sysconf("SC_CLK_TCK")
    cpu_s = (int(fields[11]) + int(fields[12])) / ticks
    return Process(pid, int(fields[1]), fields[0], head.partition("(")[2], cpu_s)


def processes() -> list[Process]:
    """All that can be seen."""
    found = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [each for each in found if each is not None]


def marked(mark: str) -> list[Process]:
    """Those that live and carry this mark in their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for each in processes():
        if each.state not in "ZX":
            try:
                with open(f"/proc/{each.pid}/environ", "rb") as file:
                    environment = file.read().split(b"\0")
            except OSError:
                continue
            if wanted in environment:
                found.append(each)
    return found


def children_of(pid: int) -> list[Process]:
    """Those whose parent it is, zombies included."""
    return [each for each in processes() if each.ppid == pid]


def zombies_of(pid: int) -> list[Process]:
    """Children that have ended and were not reaped."""
    return [each for each in children_of(pid) if each.state == "Z"]


class Idle:
    """Whether a process waits, and has done nothing for a while: ``idle()`` is asked again and again."""

    def __init__(self, pid: int, for_s: float = 0.3) -> None:
        self._pid = pid
        self._for_s = for_s
        self._switches = -1
        self._since = 0.0

    def __call__(self) -> bool:
        found = process(self._pid)
        switches, now = switches_of(self._pid), time.monotonic()
        if found is None or found.state != "S" or switches != self._switches:
            self._switches, self._since = switches, now
        return now - self._since >= self._for_s


def switches_of(pid: int) -> int:
    """How often it has given up its processor by itself."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("voluntary_ctxt_switches"):
                return int(line.split()[1])
    raise ValueError(f"no count of switches in status of {pid}")


def fds_of(pid: int) -> dict[int, str]:
    """Open descriptors, and what they are."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    return found


def tcp_inodes(pid: int) -> set[str]:
    """The inodes of all TCP sockets of the machine (of the process's name space)."""
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{name}") as file:
            found.update(line.split()[9] for line in list(file)[1:])
    return found


def memory_of(pid: int, row: str = "Rss") -> int:
    """Bytes, a row of ``smaps_rollup`` such as ``Pss``."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        for line in file:
            name, _, rest = line.partition(":")
            if name == row:
                return int(rest.split()[0]) * 1024
    raise ValueError(f"no {row} in smaps_rollup of {pid}")

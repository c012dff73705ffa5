"""The few calls of Linux that Python has no names for, and what stands for them elsewhere (False, or None); and what
is asked of other processes, or sent to them. None raises because such a process is gone.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


@lru_cache(maxsize=1)
def _libc() -> Any:
    import ctypes  # a few ms, and absent from some builds

    return ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int) -> bool:
    """Whether the kernel did it."""
    if sys.platform != "linux":
        return False
    try:
        return bool(_libc().prctl(option, value, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def die_with_parent(signum: int) -> bool:
    """Have the kernel send this process a signal when the *thread* that made it ends (so it has to be the loop's)."""
    return prctl(PR_SET_PDEATHSIG, signum)


def adopt_orphans() -> bool:
    """Become the parent of all descendants whose own parent ends (daemons, too), until this process ends."""
    return prctl(PR_SET_CHILD_SUBREAPER, 1)


def pidfd_of(pid: int) -> int | None:
    """A descriptor that is readable when the process has ended; None where that does not exist, or it is gone."""
    open_it: Callable[[int], int] | None = getattr(os, "pidfd_open", None)
    if open_it is None:
        return None
    with contextlib.suppress(OSError):
        return open_it(pid)
    return None


def stat_of(pid: int) -> tuple[str, int, int, int] | None:
    """State, parent, session and start of the environment of a process; None when it is gone or cannot be looked at."""
    fields = stat_fields(pid)
    if len(fields) < 48:
        return None
    return fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[47])


def stat_fields(pid: int, proc: str = "/proc") -> list[bytes]:
    """The fields of ``/proc/PID/stat`` from the state (proc(5)'s third) on; none when it is gone, or there is no /proc.
    About 10 us.
    """
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as file:
            text = file.read(4096)
    except OSError:
        return []
    return text[text.rfind(b")") + 1 :].split()  # the name stands in brackets and may hold anything, brackets too


def read_proc(pid: int, name: str) -> bytes:
    """A file of ``/proc/PID``; empty when the process is gone or may not be looked at."""
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_shared_broker(pid: int) -> bool:
    """Whether it is the broker of ``embedded:DIR``, which its first user has started."""
    words = read_proc(pid, "cmdline").split(b"\0")
    return b"broker" in words and b"kafka" in words


def send_signal(pid: int, signum: int, group: bool = False) -> None:
    """Send a signal to a process or its group, if there is one. The process is not reaped yet: a group that does not
    exist is one that a fork has not made yet, and the process alone is meant.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:
            try:
                os.killpg(pid, signum)
                return
            except ProcessLookupError:
                pass
        os.kill(pid, signum)


def children_of(pid: int) -> list[int]:
    """The processes whose parent is ``pid``, zombies included; none where there is no /proc."""
    pids: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        for thread in threads:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                pids += map(int, file.read().split())
        return pids
    except FileNotFoundError:
        pass
    except OSError:
        return []
    try:
        others = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for other in others:
        stat = stat_of(other)
        if stat is not None and stat[1] == pid:
            pids.append(other)
    return pids

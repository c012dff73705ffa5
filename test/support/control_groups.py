"""A control group of Linux with a limit of memory, for a test whose processes the kernel is to kill.

Not every machine lets a test have one. It takes the right to make groups; in version 2 also a group above that hands
the memory controller down and has no processes itself (the kernel's rule), as the root does and as those of systemd
do. Where there is none the test is skipped with the reason, in CI as well: that says nothing of us.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from test.support.waiting import until

ROOT: Final = pathlib.Path("/sys/fs/cgroup")
EMPTY_S: Final = 30.0


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[pathlib.Path]:
    """Its directory; a process belongs to it when its pid is written to ``cgroup.procs``. At the end all in it are
    killed, and it is removed. Skips the calling test where it cannot be had."""
    refusals: list[str] = []
    for parent in _parents():
        refusal = _refusal(parent)
        if not refusal:
            break
        refusals.append(refusal)
    else:
        why = "; ".join(refusals) or f"no memory controller at {ROOT}"
        pytest.skip(f"needs a control group with a memory limit: {why}")
    group = _new_below(parent)
    try:
        if _is_version_1(group):
            (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):  # a kernel without swap
                (group / "memory.memsw.limit_in_bytes").write_text(str(limit_bytes))
        else:
            (group / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap
                (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        _remove(group)


def kills_of(group: pathlib.Path) -> int:
    """How many processes of it the kernel has killed for want of memory."""
    name = "memory.oom_control" if _is_version_1(group) else "memory.events"
    rows = dict(line.split() for line in (group / name).read_text().splitlines())
    return int(rows["oom_kill"])


def _is_version_1(group: pathlib.Path) -> bool:
    """Each controller of version 1 has a tree of its own, and a group there no ``cgroup.controllers``."""
    return not (group / "cgroup.controllers").exists()


def _parents() -> list[pathlib.Path]:
    """Where a group might be made: below our own one, and beside it."""
    try:
        lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root = ROOT if (ROOT / "cgroup.controllers").exists() else ROOT / "memory"
    controller = "" if root == ROOT else "memory"
    rows = [line.split(":", 2) for line in lines]
    own = next((group for _, names, group in rows if controller in names.split(",")), None)
    if own is None or not root.exists():
        return []
    found = root / own.lstrip("/")
    # In version 1 a group below our own has our own's limits; one beside it would be free of them.
    return [found] if found == root or root != ROOT else [found, found.parent]


def _refusal(parent: pathlib.Path) -> str:
    """Why no group can be made below this one; empty when it can, with a process in it."""
    try:
        if not _is_version_1(parent):
            if "memory" not in (parent / "cgroup.controllers").read_text().split():
                return f"{parent} has no memory controller"
            if "memory" not in (parent / "cgroup.subtree_control").read_text().split():
                (parent / "cgroup.subtree_control").write_text("+memory")
        group = _new_below(parent)
        try:
            _move_one_into(group)
        finally:
            _remove(group)
    except OSError as error:
        return str(error)
    return ""


def _new_below(parent: pathlib.Path) -> pathlib.Path:
    group = parent / f"kafka-test-{uuid.uuid4().hex[:8]}"
    group.mkdir()
    return group


def _move_one_into(group: pathlib.Path) -> None:
    """OSError when that is not allowed."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            (group / "cgroup.procs").write_text(str(process.pid))
            limit = ("memory.limit_in_bytes", "-1") if _is_version_1(group) else ("memory.max", "max")
            (group / limit[0]).write_text(limit[1])
        finally:
            process.kill()


def _remove(group: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # Linux before 5.14 has no such file; what is in it has ended as a rule
        (group / "cgroup.kill").write_text("1")

    def is_removed() -> bool:
        with contextlib.suppress(OSError):  # the dead leave it a moment after they are reaped
            os.rmdir(group)
        return not group.exists()

    until(is_removed, f"{group} is removed", within_s=EMPTY_S)

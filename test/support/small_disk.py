"""A file system of a few kilobytes, for a test whose disk is to be full.

Not every machine lets a test mount one: it takes Linux and the right to mount (root, outside most containers). Where
there is none the test is skipped with the reason, in CI as well: that says nothing of us. What the test promises is
kept there by ``test/broker/test_full_disk.py``, whose system calls fail instead.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(path: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """A tmpfs mounted at ``path``, which is made and gone again at the end. Skips the calling test where it cannot be
    had."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("needs a small file system: there is no mount command")
    if done.returncode:
        pytest.skip(f"needs a small file system: {done.stderr.strip()}")
    try:
        yield SmallDisk(path)
    finally:
        # Lazily, since a process that the test started may have files open for a moment more.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


class SmallDisk:
    """One that is mounted. ``filler`` is a file that takes the free space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.filler = path / "filler"

    @property
    def free_bytes(self) -> int:
        return shutil.disk_usage(self.path).free

    def fill(self, leaving: int = 0) -> None:
        """Take all space but ``leaving`` bytes, which are whole pages."""
        with open(self.filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
            file.truncate(file.tell() - leaving)
        assert self.free_bytes == leaving

    def free(self) -> None:
        """Give the space back."""
        self.filler.unlink()

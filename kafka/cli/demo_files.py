"""Which files the demo takes: the text files under a path.

Regular files only, found without following links; nothing inside hidden directories or ``__pycache__`` (the path itself
may be in one: that was asked for); no file with a NUL byte in its first 8 KiB. What could not be looked at is told, not
left out in silence. What is done with the files is ``demo_tasks.py``'s.
"""

from __future__ import annotations

import os
import stat
from typing import Final, NamedTuple

LOOK_BYTES: Final = 8192
"""A NUL byte in so much of a file's beginning makes it no text."""

SKIPPED_DIRECTORIES: Final = frozenset({"__pycache__"})


class Found(NamedTuple):
    """Absolute paths in the order of their names, the size of the largest, and what could not be read (and why)."""

    files: list[str]
    largest_bytes: int
    unreadable: list[str]


def text_files(path: str) -> Found:
    """The text files under ``path``, which is a directory or one regular file. OSError when it is neither."""
    top = os.path.abspath(path)
    if not path or not os.path.isdir(top):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(f"{path} is neither a directory nor a regular file")
    files: list[str] = []
    unreadable: list[str] = []
    largest = 0
    for candidate in _candidates(top, unreadable):
        try:
            size = _size_if_text(candidate)
        except OSError as error:
            unreadable.append(f"{candidate}: {error.strerror or error}")
            continue
        if size is not None:
            files.append(candidate)
            largest = max(largest, size)
    return Found(files, largest, unreadable)


def _candidates(top: str, unreadable: list[str]) -> list[str]:
    """All that is not a directory under ``top``. An error of ``top`` itself is raised, of one below it noted."""
    if not os.path.isdir(top):
        return [os.path.realpath(top)]

    def failed(error: OSError) -> None:
        if error.filename == top:
            raise error
        unreadable.append(f"{error.filename}: {error.strerror or error}")

    found: list[str] = []
    for directory, names, files in os.walk(top, onerror=failed):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in SKIPPED_DIRECTORIES)
        found.extend(os.path.join(directory, name) for name in sorted(files))
    return found


def _size_if_text(path: str) -> int | None:
    """The size of a regular file of text, else None. A pipe is not opened: that would wait for a writer."""
    about = os.lstat(path)
    if not stat.S_ISREG(about.st_mode):
        return None
    with open(path, "rb") as file:
        return None if b"\0" in file.read(LOOK_BYTES) else about.st_size

"""Putting a compacted segment in the place of those that it was made of, so that a crash at any point does no harm.

    1  write            BASE.cleaned                    a crash here: removed at the next start
    2  sync it
    3  rename           BASE.cleaned -> BASE-NEXT.swap  from here on the new one holds
    4  set aside        the old segments with bases from BASE to NEXT (exclusive): .deleted
    5  rename           BASE-NEXT.swap -> BASE.log      a crash before: steps 4 and 5 are done at the next start
    6  write its seal                                   a crash before: it is scanned

Step 4 takes the seals first, because an old seal beside a new segment would describe other bytes. What was set aside
is removed at leisure. Knows names of files only; what is in them is ``cleaner.py``'s business.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable

log = logging.getLogger(__name__)

CLEANED = ".cleaned"
DELETED = ".deleted"
_SWAP = re.compile(r"(\d{20})-(\d{20})\.swap")
_OLD = re.compile(r"(\d{20})\.(?:seal|log)")


def cleaned_path(directory: str, base_offset: int) -> str:
    """What is being written."""
    return os.path.join(directory, f"{base_offset:020d}{CLEANED}")


def commit_swap(directory: str, base_offset: int, next_base: int) -> str:
    """Step 3; the file's new path. OSError."""
    path = os.path.join(directory, f"{base_offset:020d}-{next_base:020d}.swap")
    os.rename(cleaned_path(directory, base_offset), path)
    return path


def finish_swap(directory: str, swap_name: str, names: Iterable[str]) -> list[str]:
    """Steps 4 and 5, among the files with these names; the paths of what was set aside. OSError."""
    found = _SWAP.fullmatch(swap_name)
    if found is None:
        raise ValueError(f"{swap_name} is no swap")
    base, end = int(found[1]), int(found[2])
    old = [name for name in names if (match := _OLD.fullmatch(name)) and base <= int(match[1]) < end]
    aside: list[str] = []
    for name in sorted(old, key=lambda name: (not name.endswith(".seal"), name)):
        aside.append(os.path.join(directory, name + DELETED))
        os.rename(os.path.join(directory, name), aside[-1])
    os.rename(os.path.join(directory, swap_name), os.path.join(directory, f"{base:020d}.log"))
    return aside


def finish_swaps(directory: str, names: list[str]) -> None:
    """At the opening of a log: finish what was begun, remove what was not finished. ``names``: of the directory's
    files; OSError."""
    for name in names:
        path = os.path.join(directory, name)
        if name.endswith(CLEANED):
            log.info("removing %s, whose making was interrupted", path)
            os.unlink(path)
        elif _SWAP.fullmatch(name):
            log.info("putting %s in its place", path)
            finish_swap(directory, name, names)

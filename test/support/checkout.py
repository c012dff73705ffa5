"""What the tier selection knows of the checkout: its commit, and the files that changed.

The compiled tests run in a folder without ``kafka/`` and without ``.git``; ``without_sources.py`` writes the same facts
there, as :data:`FILE`. An unpacked source distribution has neither: there is no commit then, and no change.
"""

from __future__ import annotations

import functools
import json
import os
import pathlib
import subprocess
from typing import Final, NamedTuple

ROOT: Final = pathlib.Path(__file__).resolve().parent.parent.parent
FILE: Final = ROOT / "checkout.json"
SINCE: Final = "KAFKA_TEST_SINCE"


class Checkout(NamedTuple):
    """``changed``: paths relative to the root, with slashes."""

    commit: str
    changed: frozenset[str]


@functools.cache
def checkout() -> Checkout:
    """The commit, and the files that differ from the base: see :func:`_base`."""
    if FILE.exists():
        known = json.loads(FILE.read_text())
        return Checkout(known["commit"], frozenset(known["changed"]))
    commit = _git("rev-parse", "HEAD")
    if not commit:
        return Checkout("", frozenset())
    tracked = _git("diff", "--name-only", _base(), "--").splitlines()
    untracked = _git("ls-files", "--others", "--exclude-standard").splitlines()
    return Checkout(commit, frozenset(tracked + untracked))


def write(folder: pathlib.Path) -> None:
    """Write the facts for tests that run in ``folder``."""
    found = checkout()
    (folder / FILE.name).write_text(json.dumps({"commit": found.commit, "changed": sorted(found.changed)}))


def _base() -> str:
    """The revision that changes are counted from.

    ``KAFKA_TEST_SINCE`` where it is set; else the point where this branch left its upstream; else (a fresh clone: HEAD
    is the upstream's tip) the commit before HEAD.
    """
    given = os.environ.get(SINCE)
    if given:
        return given
    left_at = _git("merge-base", "HEAD", "@{upstream}")
    return left_at if left_at and left_at != _git("rev-parse", "HEAD") else "HEAD~1"


def _git(*arguments: str) -> str:
    """What git prints; nothing where git, or the repository, or the revision does not exist."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""

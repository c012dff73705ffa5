"""Copies what the tests need into a folder without ``kafka/``, so that the installed package is what they import.

    python test/support/without_sources.py FOLDER

Run by ``tox -e compiled``, whose package was compiled when it was installed: ``python -m pytest`` and ``python -m
kafka`` look into the current folder first, and at the root of the sources that is plain Python.
"""

from __future__ import annotations

import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main(folder: pathlib.Path) -> None:
    """Replace ``test`` and ``setup.cfg`` in ``folder`` by those of here, and write what git knows."""
    shutil.rmtree(folder / "test", ignore_errors=True)
    shutil.copytree(ROOT / "test", folder / "test", ignore=shutil.ignore_patterns("*.cpython-???.pyc"))
    shutil.copy(ROOT / "setup.cfg", folder / "setup.cfg")
    sys.path.insert(0, str(ROOT))  # this folder's `test`, not the standard library's
    from test.support import checkout

    checkout.write(folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

"""This project installed for a benchmark, in plain Python and compiled, each in a virtual environment of its own."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import venv

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

KINDS = {"plain": "1", "compiled": "0"}
"""Name -> what KAFKA_PURE is when it is built."""


class NotInstalled(Exception):
    """It cannot be had here; the text says why."""


def install(kind: str, folder: pathlib.Path) -> pathlib.Path:
    """The Python of an environment in ``folder`` that has the project, with the extras ``fast`` and ``compression``."""
    sources = folder / "sources"
    unwanted = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info", "*.so", "test", "docs")
    shutil.copytree(ROOT, sources, ignore=unwanted)  # builds leave files beside the sources
    home = folder / "venv"
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    done = subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{sources}[fast,compression]"],
        env={**os.environ, "KAFKA_PURE": KINDS[kind]},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotInstalled(" ".join(done.stderr.split())[-300:])
    return python

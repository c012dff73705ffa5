"""This project installed for a benchmark, in plain Python and compiled, each in a virtual environment of its own."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import venv
from collections.abc import Mapping
from typing import Any, NamedTuple

from test.support.peers import foreign_environment, run_to_end

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

KINDS = {"plain": "1", "compiled": "0"}
"""Name -> what KAFKA_PURE is when it is built."""

SCRIPTS = {"jobs.py": "bench_jobs.py", "drain.py": "drain.py", "latency.py": "latency.py"}
"""What an install runs for itself, and its name there."""


class NotInstalled(Exception):
    """It cannot be had here; the text says why."""


class Installed(NamedTuple):
    """The project in an environment, and a folder with the jobs and their callers."""

    kind: str
    python: pathlib.Path
    folder: pathlib.Path

    @classmethod
    def with_scripts(cls, kind: str, python: pathlib.Path, folder: pathlib.Path) -> Installed:
        """Copies the scripts into ``folder``."""
        for name, there in SCRIPTS.items():
            shutil.copy(pathlib.Path(__file__).with_name(name), folder / there)
        return cls(kind, python, folder)

    def run(self, *arguments: str, timeout_s: float, environment: Mapping[str, str] | None = None) -> Any:
        """The JSON value of the last line that a script prints."""
        environment = {**foreign_environment(), "PYTHONPATH": str(self.folder), **(environment or {})}
        printed = run_to_end([str(self.python), *arguments], environment, timeout_s, self.folder)
        return json.loads(printed.splitlines()[-1])


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

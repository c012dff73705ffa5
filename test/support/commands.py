"""Commands of ``python -m kafka`` as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

ROOT: Final = Path(__file__).resolve().parents[2]


@contextmanager
def started_command(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """The process, with ``folder`` as its directory, and its standard error; killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "kafka", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            yield process, process.stderr
        finally:
            process.kill()

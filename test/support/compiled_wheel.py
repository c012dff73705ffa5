"""Builds the package's wheel with the hot modules compiled, unless one of the same sources is there.

    python -m test.support.compiled_wheel FOLDER

Compiling takes minutes: ``tox -e wheel`` does it beside the checks that need no wheel, ``tox -e compiled`` installs the
result.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = ("build_kafka.py", "pyproject.toml", "setup.py", "README.rst", "kafka/**/*.py")


def digest() -> str:
    """A digest of all that goes into the wheel, of the Python that it is for, and of how it is compiled."""
    found = hashlib.sha256(f"{sys.version} {os.environ.get('KAFKA_OPT_LEVEL')}".encode())
    for path in sorted(path for pattern in SOURCES for path in ROOT.glob(pattern)):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def main(folder: pathlib.Path) -> None:
    """Leave one wheel in ``folder``."""
    note, wanted = folder / "digest", digest()
    if note.exists() and note.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "KAFKA_PURE": "0"}
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", "-w"]
    subprocess.run([*command, str(folder), str(ROOT)], env=environment, check=True)
    note.write_text(wanted)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))

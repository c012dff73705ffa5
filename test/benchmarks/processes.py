"""What a benchmark starts beside itself: brokers, workers, Redis."""

from __future__ import annotations

import pathlib
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

STOP_S = 40.0


def listens(port: int) -> bool:
    """Whether a process listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@contextmanager
def running(
    command: Sequence[str], folder: pathlib.Path, log: pathlib.Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process from its start to its sure end; what it says goes to the end of ``log``."""
    with open(log, "ab") as said:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
        )
    try:
        yield process
        assert process.poll() is None, f"{command[0]} has ended by itself\n{log.read_text()[-2000:]}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

"""The broker's process: its command line, the files that keep secrets off it, and its first words.

When it is started, killed and reaped is ``embedded.py``'s.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping

from kafka.broker import BrokerSecurity, open_private, prepare_directory, write_properties
from kafka.broker.embedded import EmbeddedBrokerError

START_TIMEOUT_S = 30.0


def launch(
    data_dir: str,
    log_path: str,
    *,
    port: int,
    control_fd: int,
    settings: Mapping[str, str],
    fsync: str,
    emulate: str,
    security: BrokerSecurity | None,
    arguments: Iterable[str],
) -> subprocess.Popen[bytes]:
    """Begin ``python -m kafka broker`` on the directory. What it says on stderr goes into ``log_path``.
    EmbeddedBrokerError for a directory that cannot be made or trusted (``broker/private_files.py``)."""
    try:
        prepare_directory(data_dir)
    except OSError as error:
        raise EmbeddedBrokerError(f"cannot use the data directory {data_dir}: {error.strerror or error}") from error
    command = [
        sys.executable, "-m", "kafka", "broker", "--data-dir", data_dir,
        "--port", str(port), "--fsync", fsync, "--log-level", "info", "--exit-with-stdin",
        "--control-fd", str(control_fd), "--emulate", emulate,
    ]  # fmt: skip
    command += ["--settings", _secret_file(data_dir, "broker.properties", write_properties(settings))]
    if security is not None:
        users = "".join(f"{name}:{password}\n" for name, password in security.users.items())
        if users:
            command += ["--users", _secret_file(data_dir, "users", users)]
    command += arguments
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    python_path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([root, *([python_path] if python_path else [])]),
    }
    with open(log_path, "ab", opener=open_private) as log_file:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log_file,
            env=environment,
            pass_fds=(control_fd,),
        )  # nothing is written to stdin: it ends with this process, whatever ends that, and so does the broker


def next_line(process: subprocess.Popen[bytes]) -> str:
    """The next line that it says; what there is of it when it has ended, or said nothing for long."""
    assert process.stdout is not None
    give_up_at = time.monotonic() + START_TIMEOUT_S
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n") and selector.select(max(0.0, give_up_at - time.monotonic())):
            byte = os.read(process.stdout.fileno(), 1)
            if not byte:
                break
            line += byte
    return line.decode().strip()


def port_of(place: str) -> int:
    """Of a text that ends with ``:PORT``."""
    return int(place.rpartition(":")[2])


def _secret_file(directory: str, name: str, text: str) -> str:
    """A file that only we can read: a command line is for everybody to see."""
    path = os.path.join(directory, name)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path

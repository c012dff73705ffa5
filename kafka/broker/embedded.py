"""``bootstrap_servers="embedded:DIR"``: one broker for a directory, shared by all processes that use it.

:func:`ensure_running` finds the broker of the directory or starts one, in a session of its own and without our standard
streams (its log is ``DIR/broker.log``). It runs as long as clients are connected, and ten seconds more. The protocol
between starters and brokers is in ``state_file.py``; ``private_files.py`` decides which directories are trusted. A
client is never sent to another machine, whatever the directory contains.

Only this module of the package is for others (``kafka.bootstrap``, tasks, tests). It imports nothing of the broker,
which runs in its own process.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import time
from typing import IO, Final, NamedTuple

from kafka.broker.private_files import open_private, prepare_directory
from kafka.broker.state_file import BrokerState, has_broker, read_state, starter_lock
from kafka.broker.write_errors import NO_ROOM, describe_free_space
from kafka.errors import KafkaError, KafkaTimeoutError

log = logging.getLogger(__name__)

IDLE_S: Final = 10.0
"""How long a broker that was started here runs after its last client."""

LOG_NAME: Final = "broker.log"
START_TIMEOUT_S: Final = 30.0

_POLL_S: Final = 0.01
_ANSWER_TIMEOUT_S: Final = 5.0
_PING: Final = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x00\xff\xff"
"""ApiVersions v0, correlation id 0, no client id, behind its length."""


class EmbeddedBrokerError(KafkaError):
    """The broker of a directory cannot be started."""


class RunningEmbeddedBroker(NamedTuple):
    """A broker that answers. It runs while a client is connected, and ten seconds more."""

    bootstrap: str
    pid: int
    data_dir: str


def ensure_running(
    data_dir: str, *, timeout_s: float = START_TIMEOUT_S, idle_s: float = IDLE_S, arguments: tuple[str, ...] = ()
) -> RunningEmbeddedBroker:
    """The broker of ``data_dir``, which is started when none is running. Blocks until it answers.

    ``idle_s`` and ``arguments`` (more options of ``python -m kafka broker``) count for a broker that is started now.
    Errors: :class:`EmbeddedBrokerError`, :class:`~kafka.errors.KafkaTimeoutError`.
    """
    path = os.path.abspath(os.path.expanduser(data_dir))
    deadline = time.monotonic() + timeout_s
    try:
        prepare_directory(path)
        with starter_lock(path, timeout_s) as held:
            if not held:
                raise KafkaTimeoutError(f"another process has been starting the broker of {path} for {timeout_s:g} s")
            state = _wait_for_answer(path, deadline) if has_broker(path) else None
            if state is not None:
                log.info("the embedded broker of %s is process %d at %s", path, state.pid, state.bootstrap)
            else:
                state = _start(path, deadline, idle_s, arguments)
                log.info("started the embedded broker of %s: process %d at %s", path, state.pid, state.bootstrap)
            return RunningEmbeddedBroker(state.bootstrap, state.pid, path)
    except OSError as error:
        file = f"{error.filename}: " if error.filename not in (None, path) else ""
        room = f" ({describe_free_space(path)})" if error.errno in NO_ROOM else ""
        raise EmbeddedBrokerError(f"no embedded broker in {path}: {file}{error.strerror or error}{room}") from error


def is_running(data_dir: str) -> bool:
    """Whether the broker of ``data_dir`` runs; starts and creates nothing."""
    return has_broker(os.path.abspath(os.path.expanduser(data_dir)))


def _start(path: str, deadline: float, idle_s: float, arguments: tuple[str, ...]) -> BrokerState:
    """Start the broker's process, and wait until it answers."""
    if not sys.executable:
        raise EmbeddedBrokerError("there is no Python interpreter to start the broker with (sys.executable is empty)")
    with open(os.path.join(path, LOG_NAME), "ab", opener=open_private) as log_file:
        # On a full disk this fails; the broker's own error would not reach the file.
        log_file.write(b"process %d starts the broker\n" % os.getpid())
        log_file.flush()
        log_start = log_file.tell()
        process = _spawn(path, log_file, idle_s, arguments)
    while True:
        state = read_state(path)
        if state is not None and state.pid == process.pid and _answers(state):
            _detach(process)
            return state
        code = process.poll()
        if code is not None:
            raise EmbeddedBrokerError(f"the broker of {path} ended with code {code}: {_last_line(path, log_start)}")
        if time.monotonic() >= deadline:
            process.kill()
            process.wait()
            raise KafkaTimeoutError(f"the broker of {path} did not answer in time; its log is {path}/{LOG_NAME}")
        time.sleep(_POLL_S)


def _spawn(path: str, log_file: IO[bytes], idle_s: float, arguments: tuple[str, ...]) -> subprocess.Popen[bytes]:
    """Start ``python -m kafka broker`` in a session of its own, with this package first in its path."""
    _reap()
    package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    python_path = os.environ.get("PYTHONPATH")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([package_root, *([python_path] if python_path else [])]),
    }
    command = [
        sys.executable, "-m", "kafka", "broker",
        "--data-dir", path, "--port", "0", "--exit-when-idle", f"{idle_s:g}", "--log-level", "info", *arguments,
    ]  # fmt: skip
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log_file,
        stderr=log_file,
        start_new_session=True,
        cwd=os.sep,
        env=environment,
    )


_children: Final[set[int]] = set()
"""Process ids of the brokers that this process has started and not reaped yet."""


def _detach(process: subprocess.Popen[bytes]) -> None:
    """Let the process go on without its ``Popen``, which would warn of a running process when it is deleted."""
    process.returncode = 0
    _children.add(process.pid)


def _reap() -> None:
    """Reap the brokers that have ended: of several started one after another, at most one remains a zombie."""
    for pid in list(_children):
        try:
            has_ended = os.waitpid(pid, os.WNOHANG)[0] == pid
        except ChildProcessError:  # after a fork it is the parent's child
            has_ended = True
        if has_ended:
            _children.discard(pid)


def _wait_for_answer(path: str, deadline: float) -> BrokerState | None:
    """The broker that has the directory's lock, as soon as it answers (it may still be starting); None when it has
    ended meanwhile."""
    while True:
        state = read_state(path)
        if state is not None and _answers(state):
            return state
        if not has_broker(path):
            return None
        if time.monotonic() >= deadline:
            who = f"process {state.pid} at {state.bootstrap}" if state is not None else "a process of an unknown port"
            raise KafkaTimeoutError(f"the broker of {path}, {who}, does not answer; is it stopped?")
        time.sleep(_POLL_S)


def _answers(state: BrokerState) -> bool:
    """Whether a broker answers there. Called under the starters' lock, so that the broker counts this client before it
    could shut down as idle."""
    if not state.is_loopback:
        raise EmbeddedBrokerError(
            f"the broker of this directory, process {state.pid}, listens at {state.bootstrap}, and embedded: connects "
            "to loopback addresses only: name that address in bootstrap_servers, or stop that broker"
        )
    try:
        with socket.create_connection((state.host, state.port), _ANSWER_TIMEOUT_S) as connection:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            connection.sendall(_PING)
            return len(connection.recv(4)) > 0
    except OSError:
        return False


def _last_line(path: str, start: int) -> str:
    with open(os.path.join(path, LOG_NAME), "rb", opener=open_private) as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it logged nothing ({describe_free_space(path)})"

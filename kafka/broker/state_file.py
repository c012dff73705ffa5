"""How processes find the broker of a data directory: its lock, its addresses, and the lock for starting it.

    DIR/.lock           held by the broker while it lives, whatever ends it (``log/log_directory.py``)
    DIR/broker.json     {"pid": 4711, "host": "127.0.0.1", "port": 9092, "listeners": {"SSL": "127.0.0.1:9093"}}; all
                        listeners; host and port are those of the PLAINTEXT one if there is one. Written atomically
                        when it listens, deleted when it shuts down; a killed broker's stays and is ignored, as
                        ``.lock`` is free
    DIR/embedded.lock   held while a broker is started, or is shut down for idleness

So two starters make one broker, and a broker never shuts down for idleness while a client is given its port. The files
are opened as in ``private_files.py``; a ``broker.json`` that a broker cannot have written is ignored. Imports little,
as clients' processes load it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kafka.broker.private_files import open_private

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none: there, two starters are not kept apart
    import fcntl

log = logging.getLogger(__name__)

DIRECTORY_LOCK_NAME: Final = ".lock"
STATE_NAME: Final = "broker.json"
STARTER_LOCK_NAME: Final = "embedded.lock"

MAX_STATE_BYTES: Final = 64 << 10
"""Enough for some hundreds of listeners; a longer ``broker.json`` is ignored."""

_POLL_S: Final = 0.02
_MAX_PID: Final = 2**31 - 1
_PLACE: Final = re.compile(r".*:([0-9]{1,5})")


class BrokerState(NamedTuple):
    """Where a broker listens."""

    pid: int
    host: str
    """An IP address that a client on this machine can connect to."""
    port: int
    listeners: Mapping[str, str] = {}
    """Name -> ``HOST:PORT``, as bound."""

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine and no other one that listens there."""
        return self.host == "::1" or self.host.startswith("127.")


def write_state(data_dir: str, state: BrokerState) -> None:
    """Say where the broker of this directory listens. OSError."""
    path = os.path.join(data_dir, STATE_NAME)
    temporary = f"{path}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8", opener=open_private) as file:
            json.dump(state._asdict(), file)
        os.replace(temporary, path)
    except OSError:
        for stale in (temporary, path):
            with contextlib.suppress(OSError):
                os.unlink(stale)
        raise


def read_state(data_dir: str) -> BrokerState | None:
    """What the last broker of this directory wrote, alive or not; None when there is no file, or one that no broker
    wrote."""
    path = os.path.join(data_dir, STATE_NAME)
    try:
        with open(path, "rb", opener=open_private) as file:
            return _parsed(file.read(MAX_STATE_BYTES + 1))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:  # nested too deeply
        log.debug("ignored %s: %s", path, error)
        return None


def _parsed(data: bytes) -> BrokerState:
    """ValueError, or RecursionError, for what :func:`write_state` cannot have written."""
    if len(data) > MAX_STATE_BYTES:
        raise ValueError(f"it is longer than {MAX_STATE_BYTES} bytes")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    host, listeners = found.get("host"), found.get("listeners", {})
    if not isinstance(host, str) or not _is_address(host):
        raise ValueError("host is no IP address")
    if not isinstance(listeners, dict):
        raise ValueError("listeners is no JSON object")
    for place in listeners.values():
        match = _PLACE.fullmatch(place) if isinstance(place, str) else None
        _checked("the port of a listener", int(match[1]) if match else None, 65535)
    return BrokerState(
        _checked("pid", found.get("pid"), _MAX_PID), host, _checked("port", found.get("port"), 65535), listeners
    )


def _checked(name: str, value: object, most: int) -> int:
    """An integer from 1 to ``most``, which ``True`` and ``1.0`` are not."""
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} is no integer from 1 to {most}")
    return value


def _is_address(text: str) -> bool:
    """Whether it is an IP address as a socket has it, and no name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return len(socket.inet_pton(family, text)) > 0
    return False


def remove_state(data_dir: str) -> None:
    """The broker has ended."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(data_dir, STATE_NAME))


def has_broker(data_dir: str) -> bool:
    """Whether a living process holds the directory."""
    if fcntl is None:
        return read_state(data_dir) is not None
    try:
        fd = open_private(os.path.join(data_dir, DIRECTORY_LOCK_NAME), os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


@contextlib.contextmanager
def starter_lock(data_dir: str, timeout_s: float) -> Iterator[bool]:
    """Hold ``embedded.lock``; whether it could be had within ``timeout_s``. OSError when there is no directory, or
    something else than a file of that name."""
    fd = open_private(os.path.join(data_dir, STARTER_LOCK_NAME), os.O_RDWR | os.O_CREAT)
    try:
        give_up_at = time.monotonic() + timeout_s
        while not (held := _try_lock(fd)) and time.monotonic() < give_up_at:
            time.sleep(_POLL_S)
        yield held
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

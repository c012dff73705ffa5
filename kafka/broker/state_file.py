"""How processes find the broker of a data directory: who holds it, where it listens, and who may start or end it.

    DIR/.lock           held by the broker while it lives, whatever ends it (``log/directory_lock.py``)
    DIR/broker.json     {"pid": 4711, "host": "127.0.0.1", "port": 9092, "listeners": {"SSL": "127.0.0.1:9093"}}; all
                        listeners; host and port are those of the PLAINTEXT one if there is one. Written at one stroke
                        when it listens, removed when it ends well; of a killed broker it stays, and counts for nothing
                        as ``.lock`` is free
    DIR/embedded.lock   held for the moment of starting a broker, or of ending one for idleness

So two starters make one broker, and a broker never ends for idleness under the hands of a client that has just been
told its port. Light on purpose: clients' processes load it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kafka.broker.private_files import open_private

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has none: there, two starters are not kept apart
    import fcntl

DIRECTORY_LOCK_NAME: Final = ".lock"
STATE_NAME: Final = "broker.json"
STARTER_LOCK_NAME: Final = "embedded.lock"

_POLL_S: Final = 0.02


class BrokerState(NamedTuple):
    """Where a broker listens. ``host`` is one that a client on this machine can connect to."""

    pid: int
    host: str
    port: int
    listeners: Mapping[str, str] = {}
    """Name -> ``HOST:PORT``, as bound."""

    @property
    def bootstrap(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
    """What the last broker of this directory wrote, alive or not; None when there is nothing that can be read."""
    try:
        with open(os.path.join(data_dir, STATE_NAME), encoding="utf-8", opener=open_private) as file:
            found = json.load(file)
        host, port = str(found["host"]), int(found["port"])
        listeners = {str(name): str(place) for name, place in dict(found.get("listeners", {})).items()}
        return BrokerState(int(found["pid"]), host, port, listeners)
    except (OSError, ValueError, KeyError, TypeError):
        return None


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

"""Hostile connections to a broker, until the process is ended: ``python -m test.hostile.attack PORT SEED``.

Each sends one case after another (``generator.py``), chosen by chance, of up to 100 kB, and reads what is answered;
what waits is left with its connection. Names come from a few texts, so that what the broker keeps on purpose (topics,
groups, transactional ids) has an end. Requests that would take away what honest clients use are not sent.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
from typing import Final

from kafka.broker.emulation import LATEST, EmulatedRelease, find_release
from kafka.broker.registry import HANDLERS
from kafka.protocol.framing import encode_request
from test.hostile.generator import Case, cases

CONNECTIONS: Final = 4
SIZES: Final = (100, 1_000, 10_000, 100_000)
SALTS: Final = tuple(f"z{number}y" for number in range(8))
ANSWER_S: Final = 2.0
LEFT_OUT: Final = frozenset({"AlterConfigs", "IncrementalAlterConfigs", "UpdateFeatures"})
"""An administrator may make any setting what it likes, ``max.connections`` among them."""


def attack(port: int, rng: random.Random, chosen: list[Case]) -> None:
    """One connection after another, for ever."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), ANSWER_S) as connection:
            while True:
                case = rng.choice(chosen)
                request = case.make(rng.choice(SIZES), rng.choice(SALTS))
                connection.sendall(b"".join(encode_request(request, case.version, 1, "hostile")))
                _read(connection)


def _read(connection: socket.socket) -> None:
    """One answer; OSError when none comes."""
    left = int.from_bytes(_some(connection, 4), "big")
    while left > 0:
        left -= len(_some(connection, min(left, 1 << 16)))


def _some(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size)
    if not data:
        raise ConnectionError("the broker has hung up")
    return data


def main() -> None:
    port, seed = map(int, sys.argv[1:])
    apis = EmulatedRelease(find_release(LATEST), HANDLERS).apis()
    chosen = [case for case in cases(apis) if case.api not in LEFT_OUT]
    threads = [
        threading.Thread(target=attack, args=(port, random.Random(seed + number), chosen), daemon=True)
        for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()

"""TCP ports of this machine for what a test starts."""

from __future__ import annotations

import contextlib
import pathlib
import random
import socket

_LOWEST = 20_000
_chance = random.SystemRandom()
"""Others are seeded alike in all processes of a test run."""


def free_ports(count: int) -> list[int]:
    """So many ports on which nobody listens, all different.

    They are below those that the system gives to whoever asks for any: a Java program takes seconds until it listens,
    and until then the system would give one of its own to another process.
    """
    lowest_given = _lowest_given()
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            port = _chance.randrange(_LOWEST, lowest_given) if lowest_given - _LOWEST > 1000 else 0
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):  # somebody has it
                one.bind(("127.0.0.1", port))
                found.append(int(one.getsockname()[1]))
        return found


def _lowest_given() -> int:
    """The first of the ports that the system gives by itself; 0 where it does not tell."""
    try:
        return int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 0

"""Which bootstrap servers there are, found anew before each round where that may change.

Three kinds: a list that stands (nothing to find: names are looked up at every attempt to connect anyway); servers that
may move, such as ``embedded:DIR``; and with ``client_dns_lookup="resolve_canonical_bootstrap_servers_only"`` (KIP-235)
the canonical names of all addresses of the servers.

Finding may block, so it happens in a thread of its own, which ends with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.resolve import canonical_names, parse_servers

Servers = Sequence[tuple[str, int]]
FindServers = Callable[[], "Future[Servers]"]
"""Looks up the servers without blocking; the future is completed on the loop."""


def find_in_thread(loop: Loop, find: Callable[[], Servers]) -> Future[Servers]:
    """``find()``, which may block, in a thread; its outcome on the loop."""
    found: Future[Servers] = Future()

    def work() -> None:
        try:
            done: Callable[[Any], object] = found.success
            outcome: Any = find()
        except Exception as error:
            done, outcome = found.failure, error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(done, outcome)

    threading.Thread(target=work, name="kafka-servers", daemon=True).start()
    return found


def server_finder(
    loop: Loop, servers: Servers, resolve_servers: Callable[[], Sequence[str]] | None, is_canonical: bool
) -> FindServers | None:
    """How to find the servers; None when they stand as they are."""

    def present() -> Servers:
        return servers if resolve_servers is None else parse_servers(resolve_servers())

    if is_canonical:
        return lambda: find_in_thread(loop, lambda: canonical_servers(present()))
    return None if resolve_servers is None else lambda: find_in_thread(loop, present)


def canonical_servers(servers: Servers) -> Servers:
    """Each server's name replaced by those of its addresses. OSError when none of the servers has an address."""
    found: list[tuple[str, int]] = []
    errors: list[OSError] = []
    for host, port in servers:
        try:
            found += [(name, port) for name in canonical_names(host)]
        except OSError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return list(dict.fromkeys(found))

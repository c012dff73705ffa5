"""``bootstrap_servers``: ``host:port`` stays as it is, ``embedded:DIR`` becomes the address of that directory's broker.

Clients and broker never import each other, and still ``KafkaProducer(bootstrap_servers="embedded:DIR")`` has to start
a broker. So the one line where the two meet is here, between them: public clients resolve their setting through this
module before they make a ``KafkaClient``, which itself only ever sees hosts and ports. It reaches the broker through
one public function (``kafka.broker.embedded.ensure_running``), imported when there is an ``embedded:`` to resolve, and
that loads no broker into the client's process either. The alternative, a registry of schemes that the broker package
fills, would need an import of the broker first, which is the same line in a less visible place.

Resolving blocks (a new broker takes some tenths of a second), so it belongs into a constructor, never on a loop. It is
to be done again when all connections are lost: a broker that was killed comes back at its old port if that is free,
but comes back only when a client asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence

SCHEME = "embedded:"


def is_embedded(server: str) -> bool:
    """Whether an entry of ``bootstrap_servers`` names a directory."""
    return server.startswith(SCHEME)


def resolve_bootstrap(servers: str | Sequence[str]) -> list[str]:
    """``bootstrap_servers`` (a string with commas, or several) as a list of ``host:port``; starts brokers as needed.

    A path with a comma in it needs the form of several. Errors: those of ``ensure_running``
    (EmbeddedBrokerError, KafkaTimeoutError); IllegalArgumentError for an ``embedded:`` without a directory.
    """
    if isinstance(servers, str):
        servers = [part.strip() for part in servers.split(",") if part.strip()]
    return [_resolve(server) if is_embedded(server) else server for server in servers]


def _resolve(server: str) -> str:
    from kafka.broker.embedded import ensure_running
    from kafka.errors import IllegalArgumentError

    directory = server[len(SCHEME) :]
    if not directory:
        raise IllegalArgumentError("embedded: needs a directory, as in embedded:.kafka")
    return ensure_running(directory).bootstrap

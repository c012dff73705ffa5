"""A connected :class:`KafkaClient` for an app's settings, and the settings of the clients that live on it.

All clients of a process's side (app or worker) share one KafkaClient, so everything that is "how to reach the brokers"
is said once, here. ``embedded:DIR`` becomes the address of that directory's broker, which is started if need be.
"""

from __future__ import annotations

import math
from typing import Any

from kafka.broker.embedded import ensure_running
from kafka.client import IoThread, KafkaClient
from kafka.errors import AuthenticationError, KafkaConfigurationError, KafkaError, NoBrokersAvailable
from kafka.tasks.format.topics import HEADROOM_BYTES
from kafka.tasks.pools import make_loop
from kafka.tasks.settings import EMBEDDED, Settings

SCHEME = "kafka://"

RECONNECT_MAX_S = 5.0
"""Between attempts to connect. With the clients' own 30 s a worker idled for 21 s after an outage of 28 s was over."""
RETRY_MAX_S = 0.4
"""Between two looks at the metadata while a partition has no leader. With the clients' own second, jobs waited for most
of one after the new leader was there."""

BACKGROUND = "background"
"""The lane of what no job waits for. A broker answers the requests of a connection one after another, and keeps some of
these for seconds when a broker is lost: an owner's transaction or a commit behind them would wait as long."""


def connect(settings: Settings, loop: Any) -> KafkaClient:
    """A client on ``loop`` that is connected to a broker. Blocks, driving the loop.

    Errors: ``NoBrokersAvailable``; those of :func:`kafka.broker.embedded.ensure_running`.
    """
    servers = settings.bootstrap_servers
    is_embedded = servers.startswith(EMBEDDED)
    client = KafkaClient(
        loop=loop,
        all_topics=False,
        allow_auto_create_topics=False,
        bootstrap_servers=servers_of(servers),
        # Where no connection is left, the directory's broker has ended: it is started again.
        resolve_servers=(lambda: servers_of(servers)) if is_embedded else None,
        request_timeout_ms=_ms(settings.request_timeout),
        **{
            "reconnect_backoff_max_ms": _ms(RECONNECT_MAX_S),
            "retry_backoff_max_ms": _ms(RETRY_MAX_S),
            **settings.client,
        },
    )
    try:
        client.api_ranges(timeout=settings.connect_timeout)
    except AuthenticationError:  # it says all there is to say
        client.close()
        raise
    except KafkaError as error:
        client.close()
        reason = error.args[0] if error.args else type(error).__name__
        raise NoBrokersAvailable(
            f"no broker available: {reason}; check that one is running at bootstrap_servers (--bootstrap-server)"
        ) from error
    except BaseException:
        client.close()
        raise
    return client


def connect_in_thread(settings: Settings, name: str) -> IoThread:
    """A client that is connected to a broker, on a loop and in a thread of its own. Blocks; errors as of
    ``connect``."""
    loop = make_loop()
    try:
        client = connect(settings, loop)
    except BaseException:
        loop.close()
        raise
    return IoThread(name, client=client)


def last_connect_error(client: KafkaClient) -> str | None:
    """The last error when no broker is connected ("": not known); None when one is."""
    connections = client.connections()
    if any(each.connected() for each in connections):
        return None
    failed = [each for each in connections if each.last_error is not None]
    if not failed:
        return ""
    error = max(failed, key=lambda each: each.failures).last_error
    return str(error.args[0]) if isinstance(error, KafkaError) and error.args else str(error)


def producer_configs(settings: Settings, *, linger_s: float, batch_bytes: int, batch_records: int) -> dict[str, Any]:
    """Settings of a KafkaProducer of the queue; ``batch_records`` 0: no limit."""
    return {
        "acks": "all",
        "linger_ms": _ms(linger_s),
        "batch_size": batch_bytes,
        "batch_max_records": batch_records,
        "compression_type": settings.compression,
        "max_request_size": max(1_048_576, settings.max_payload_bytes + HEADROOM_BYTES),
        "request_timeout_ms": _ms(settings.request_timeout),
    }


def servers_of(given: str) -> list[str]:
    """``host:port,...``, ``kafka://host:port,...`` or ``embedded:DIR`` as a list of ``host:port``."""
    if not given.startswith(EMBEDDED):
        return [server.strip() for server in given.removeprefix(SCHEME).split(",")]
    directory = given.removeprefix(EMBEDDED)
    if not directory:
        raise KafkaConfigurationError(
            "bootstrap_servers='embedded:' has no directory; use for example 'embedded:.kafka'"
        )
    return [ensure_running(directory).bootstrap]


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)

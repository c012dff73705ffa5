"""The select-loop client: the core's machines and dialogues, driven over ``net``.

::

    kafka_client.py   KafkaClient: the public face; request(), run(); by_hand.py poll() and what goes with it
    connection.py     BrokerConnection: one connection to one node; link.py its settings, requests and owner
    outbox.py         the requests of a connection that are not in flight
    greeting.py       finding out what a broker speaks, on a fresh connection
    nodes.py          all connections; which node has least to do
    router.py         from a target to a connection
    bootstrap.py      reaching the first broker; servers.py which servers there are for that
    check_version.py  asking one server what it speaks
    refresh.py        keeping the cluster's metadata fresh, and when the brokers that it tells are not believed
    cluster.py        ClusterMetadata: what is known of brokers, topics and leaders; snapshot.py one state of that
    throttle.py       how long brokers made the client wait
    driver.py         runs dialogues
    io_thread.py      Host: a client on a loop of its own in a thread, or on a loop that the user runs
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.client.cluster import ClusterMetadata
    from kafka.client.connection import BrokerConnection
    from kafka.client.io_thread import ClientHost, IoThread, SharedLoopHost, make_host
    from kafka.client.kafka_client import KafkaClient
    from kafka.core.versions import ApiRanges

_HOME = {
    "ApiRanges": "kafka.core.versions",
    "BrokerConnection": "kafka.client.connection",
    "ClusterMetadata": "kafka.client.cluster",
    "ClientHost": "kafka.client.io_thread",
    "IoThread": "kafka.client.io_thread",
    "KafkaClient": "kafka.client.kafka_client",
    "SharedLoopHost": "kafka.client.io_thread",
    "make_host": "kafka.client.io_thread",
}

__all__ = [
    "ApiRanges",
    "BrokerConnection",
    "ClientHost",
    "ClusterMetadata",
    "IoThread",
    "KafkaClient",
    "SharedLoopHost",
    "make_host",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'kafka.client' has no attribute {name!r}")
    return getattr(import_module(home), name)

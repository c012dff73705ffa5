"""The select-loop client: the core's machines and dialogues, driven over ``net``.

::

    kafka_client.py   KafkaClient: the public methods; run(), poll()
    router.py         request(): from a target to a connection; all connections of a client
    connection.py     BrokerConnection: one connection to one node, and the requests handed to it
    handshake.py      SASL and ApiVersions on a new transport; renewal of SASL sessions
    security.py       TLS and SASL from the settings; OAUTHBEARER tokens
    bootstrap.py      connecting to the first broker
    cluster.py        ClusterMetadata: brokers, topics and leaders, and their refresh
    check_version.py  which API versions a broker has
    driver.py         runs dialogues
    io_thread.py      ClientHost: a client on a loop of its own in a thread, or on a loop that the user runs
    metrics.py        what all kinds of clients measure
    telemetry.py      pushing metrics to brokers (KIP-714)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.client.cluster import ClusterMetadata
    from kafka.client.connection import BrokerConnection
    from kafka.client.io_thread import ClientHost, IoThread, SharedLoopHost, make_host
    from kafka.client.kafka_client import KafkaClient
    from kafka.core.connection import ApiRanges

_HOME = {
    "ApiRanges": "kafka.core.connection",
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

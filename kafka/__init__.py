"""A Kafka client for Python whose select loop also carries background jobs to broker-backed queues.

The public names are here, and each is imported when it is first used (PEP 562), so that ``import kafka`` costs nothing
to speak of and a worker loads no more than it runs. A new public name is a line in :data:`_HOME`, one under
``TYPE_CHECKING`` for type checkers and editors, and one in ``__all__``; ``test/test_public_api.py`` compares the three.
Modules are attributes, too (:data:`_MODULES`), and ``import`` finds the modules that only kafka-python has
(``_older_paths.py``).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafka._version import __version__

if TYPE_CHECKING:
    from kafka._compiled import is_compiled
    from kafka.admin import KafkaAdminClient, OffsetSpec
    from kafka.client.cluster import ClusterMetadata
    from kafka.client.connection import BrokerConnection
    from kafka.client.kafka_client import KafkaClient
    from kafka.consumer import ConsumerRebalanceListener, ConsumerRecord, KafkaConsumer, SubscriptionPattern
    from kafka.net.loop import DelayedTaskQueue
    from kafka.producer import KafkaProducer
    from kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
    from kafka.share import AcknowledgeType, KafkaShareConsumer, ShareRecord
    from kafka.structs import (
        BrokerMetadata,
        ConsumerGroupMetadata,
        IsolationLevel,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        TopicPartition,
        TopicPartitionReplica,
    )

_HOME = {
    "AcknowledgeType": "kafka.share",
    "BrokerConnection": "kafka.client.connection",
    "BrokerMetadata": "kafka.structs",
    "ClusterMetadata": "kafka.client.cluster",
    "ConsumerGroupMetadata": "kafka.structs",
    "ConsumerRebalanceListener": "kafka.consumer",
    "ConsumerRecord": "kafka.consumer",
    "DefaultSerializer": "kafka.serializer",
    "DelayedTaskQueue": "kafka.net.loop",
    "Deserializer": "kafka.serializer",
    "IsolationLevel": "kafka.structs",
    "JsonSerializer": "kafka.serializer",
    "KafkaAdminClient": "kafka.admin",
    "KafkaClient": "kafka.client.kafka_client",
    "KafkaConsumer": "kafka.consumer",
    "KafkaProducer": "kafka.producer",
    "KafkaShareConsumer": "kafka.share",
    "OffsetAndMetadata": "kafka.structs",
    "OffsetAndTimestamp": "kafka.structs",
    "OffsetSpec": "kafka.admin",
    "Serializer": "kafka.serializer",
    "ShareRecord": "kafka.share",
    "SubscriptionPattern": "kafka.consumer",
    "TopicPartition": "kafka.structs",
    "TopicPartitionReplica": "kafka.structs",
    "is_compiled": "kafka._compiled",
}
"""Public name -> the module that it is imported from on first use."""

_MODULES = frozenset(
    [
        "admin", "client", "client_async", "cluster", "codec", "conn", "consumer", "coordinator", "errors", "future",
        "metrics", "net", "oauth", "partitioner", "producer", "protocol", "sasl", "serializer", "share", "structs",
        "tasks", "testing", "version",
    ]
)  # fmt: skip
"""Modules that are there after a plain ``import kafka``: ``kafka.admin.NewTopic`` is what people write."""

__all__ = [
    "AcknowledgeType",
    "BrokerConnection",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "DefaultSerializer",
    "DelayedTaskQueue",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaClient",
    "KafkaConsumer",
    "KafkaProducer",
    "KafkaShareConsumer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "Serializer",
    "ShareRecord",
    "SubscriptionPattern",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
    "is_compiled",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is not None:
        value = getattr(import_module(home), name)
        globals()[name] = value  # from now on without this function
        return value
    if name in _MODULES:
        return import_module(f"kafka.{name}")
    raise AttributeError(f"module 'kafka' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _OlderPaths:
    """The last finder on ``sys.meta_path``: asked for modules of this package that are not there as files."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("kafka."):
            return None
        return import_module("kafka._older_paths").find_spec(name)


sys.meta_path.append(_OlderPaths)
import_module("kafka._name_clash").warn_of_clash(__file__)

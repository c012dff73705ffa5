"""Where programs for kafka-python 2 and 3 import from, and this package has no file: the table, and what reads it.

``from kafka.producer.kafka import KafkaProducer`` gives the class that ``kafka`` itself has: such a module is made of
its row when it is first imported (the finder that asks is in ``kafka/__init__.py``). To add a path: a row, and nothing
else. A row has only what this package has, so there is no ``kafka.metrics.stats.Avg`` here. Type checkers do not see
these modules; ``kafka`` and its real modules are typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

PATHS: Final[Mapping[str, Mapping[str, str]]] = {
    "kafka.admin.acl_resource": {
        "ACL": "kafka.admin",
        "ACLFilter": "kafka.admin",
        "ACLOperation": "kafka.admin",
        "ACLPermissionType": "kafka.admin",
        "ACLResourcePatternType": "kafka.admin",
        "ResourcePattern": "kafka.admin",
        "ResourcePatternFilter": "kafka.admin",
        "ResourceType": "kafka.admin",
    },
    "kafka.admin.config_resource": {"ConfigResource": "kafka.admin", "ConfigResourceType": "kafka.admin"},
    "kafka.admin.new_partitions": {"NewPartitions": "kafka.admin"},
    "kafka.admin.new_topic": {"NewTopic": "kafka.admin"},
    "kafka.client_async": {"KafkaClient": "kafka"},
    "kafka.cluster": {"ClusterMetadata": "kafka"},
    "kafka.conn": {"BrokerConnection": "kafka"},
    "kafka.consumer.fetcher": {"ConsumerRecord": "kafka"},
    "kafka.consumer.group": {"KafkaConsumer": "kafka"},
    "kafka.consumer.subscription_state": {
        "ConsumerRebalanceListener": "kafka",
        "OffsetAndMetadata": "kafka",
        "TopicPartition": "kafka",
    },
    "kafka.metrics.kafka_metric": {"KafkaMetric": "kafka.metrics"},
    "kafka.metrics.metric_name": {"MetricName": "kafka.metrics"},
    "kafka.metrics.metrics_reporter": {"AbstractMetricsReporter": "kafka.metrics"},
    "kafka.net.sasl": {"AbstractTokenProvider": "kafka.sasl"},
    "kafka.net.sasl.oauth": {"AbstractTokenProvider": "kafka.sasl"},
    "kafka.oauth": {"AbstractTokenProvider": "kafka.sasl"},
    "kafka.oauth.abstract": {"AbstractTokenProvider": "kafka.sasl"},
    "kafka.producer.future": {"FutureRecordMetadata": "kafka.producer", "RecordMetadata": "kafka.producer"},
    "kafka.producer.kafka": {"KafkaProducer": "kafka"},
    "kafka.protocol.admin": {"ElectionType": "kafka.admin"},
    "kafka.protocol.consumer": {
        "IsolationLevel": "kafka",
        "OffsetSpec": "kafka",
        "OffsetTimestamp": "kafka.admin",
    },
    "kafka.version": {"__version__": "kafka"},
}
"""Module -> its names, and the module that each is in. One above others is a package."""


def find_spec(name: str) -> ModuleSpec | None:
    """How to make the module ``name``; None when it is not in the table."""
    if name not in PATHS:
        return None
    is_package = any(other.startswith(name + ".") for other in PATHS)
    return ModuleSpec(name, _Loader(), origin=__file__, is_package=is_package)


class _Loader(Loader):
    """Makes a module of its row."""

    def create_module(self, spec: ModuleSpec) -> None:
        """As usual."""

    def exec_module(self, module: ModuleType) -> None:
        names = PATHS[module.__name__]
        homes = sorted({f"``{home}``" for home in names.values()})
        module.__doc__ = f"A place of kafka-python: what is here is {' and '.join(homes)}'s."
        module.__dict__.update({name: getattr(import_module(home), name) for name, home in names.items()})
        module.__dict__["__all__"] = list(names)

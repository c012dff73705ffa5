"""The admin client, what it takes, and the same calls as dialogues for a loop."""

from __future__ import annotations

from kafka.admin import dialogues
from kafka.admin.client import KafkaAdminClient
from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    NewPartitions,
    NewTopic,
)

__all__ = [
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "KafkaAdminClient",
    "NewPartitions",
    "NewTopic",
    "dialogues",
]

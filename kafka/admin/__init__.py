"""The admin client, what it takes, and the same calls as dialogues for a loop."""

from __future__ import annotations

from kafka.admin import dialogues
from kafka.admin.client import KafkaAdminClient
from kafka.core.admin.group_values import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp
from kafka.core.admin.share_groups import SharePartitionOffset
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
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "SharePartitionOffset",
    "dialogues",
]

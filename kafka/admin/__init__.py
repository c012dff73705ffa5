"""The admin client, what it takes, and the same calls as dialogues for a loop."""

from __future__ import annotations

from kafka.admin import dialogues
from kafka.admin.client import KafkaAdminClient
from kafka.admin.credentials import UserScramCredentialUpsertion
from kafka.core.admin.acl_values import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.core.admin.features import UpdateFeatureType
from kafka.core.admin.group_values import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp
from kafka.core.admin.scram import ScramMechanism, UserScramCredentialDeletion
from kafka.core.admin.share_groups import SharePartitionOffset
from kafka.core.admin.transaction_values import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.core.admin.values import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    ElectionType,
    NewPartitions,
    NewTopic,
)

__all__ = [
    "ACL",
    "ACLFilter",
    "ACLOperation",
    "ACLPermissionType",
    "ACLResourcePatternType",
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "ElectionType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerState",
    "ResourcePattern",
    "ResourcePatternFilter",
    "ResourceType",
    "ScramMechanism",
    "SharePartitionOffset",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
    "UpdateFeatureType",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "dialogues",
]

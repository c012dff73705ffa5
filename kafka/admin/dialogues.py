"""The admin client's calls as dialogues, for who has a KafkaClient on a loop: ``client.run(create_topics(...))``."""

from __future__ import annotations

from kafka.core.admin.cluster import describe_cluster
from kafka.core.admin.configs import alter_configs, describe_configs
from kafka.core.admin.group_offsets import (
    alter_group_offsets,
    delete_group_offsets,
    list_group_offsets,
    reset_group_offsets,
)
from kafka.core.admin.groups import (
    delete_groups,
    describe_groups,
    describe_share_groups,
    list_groups,
    remove_group_members,
)
from kafka.core.admin.share_groups import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    list_share_group_offsets,
)
from kafka.core.admin.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topics,
    list_topics,
    wait_for_topics,
)

__all__ = [
    "alter_configs",
    "alter_group_offsets",
    "alter_share_group_offsets",
    "create_partitions",
    "create_topics",
    "delete_group_offsets",
    "delete_groups",
    "delete_records",
    "delete_share_group_offsets",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_groups",
    "describe_share_groups",
    "describe_topics",
    "list_group_offsets",
    "list_groups",
    "list_share_group_offsets",
    "list_topics",
    "remove_group_members",
    "reset_group_offsets",
    "wait_for_topics",
]

"""The admin client's calls as dialogues, for who has a KafkaClient on a loop: ``client.run(create_topics(...))``."""

from __future__ import annotations

from kafka.core.admin.cluster import delete_groups, describe_cluster, list_groups
from kafka.core.admin.configs import alter_configs, describe_configs
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
    "create_partitions",
    "create_topics",
    "delete_groups",
    "delete_records",
    "delete_topics",
    "describe_cluster",
    "describe_configs",
    "describe_topics",
    "list_groups",
    "list_topics",
    "wait_for_topics",
]

"""The admin client's calls as dialogues, for users who want a future or have a KafkaClient on a loop:
``admin.run(create_topics(..., backoff=admin.retry_backoff))``, ``client.run(...)``.

They take what the methods take, the options by name, and besides:

``backoff``    the waits between attempts: ``retry_backoff`` of the client
``timeout_s``  the time for all attempts, in place of ``timeout_ms``
``node_id``    in place of ``group_coordinator_id``: the node to ask, if it is known
``attempts``   1 for a caller who must not undo what others have done since an answer was lost: then whatever keeps the
               one request from its answer is raised
``leader_of``  the leader of a partition as the client knows it: ``KafkaClient.cluster.leader_for_partition``
``now_ms``     the present time in ms since the epoch
``software``   our name and version: ``KafkaClient.software``
"""

from __future__ import annotations

from kafka.core.admin.acls import create_acls, delete_acls, describe_acls
from kafka.core.admin.cluster import (
    alter_replica_log_dirs,
    describe_cluster,
    describe_log_dirs,
    describe_metadata_quorum,
)
from kafka.core.admin.configs import alter_configs, describe_configs, list_config_resources, reset_configs
from kafka.core.admin.features import describe_features, update_features
from kafka.core.admin.groups import (
    alter_group_offsets,
    alter_share_group_offsets,
    delete_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_groups,
    describe_share_groups,
    list_group_offsets,
    list_groups,
    list_partition_offsets,
    list_share_group_offsets,
    remove_group_members,
    reset_group_offsets,
    share_group_offsets,
)
from kafka.core.admin.scram import alter_user_scram_credentials, describe_user_scram_credentials
from kafka.core.admin.topics import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_topic_partitions,
    describe_topics,
    elect_leaders,
    list_partition_reassignments,
    list_topics,
    wait_for_topics,
)
from kafka.core.admin.transactions import (
    abort_transaction,
    describe_producers,
    describe_transactions,
    find_hanging_transactions,
    list_transactions,
)

__all__ = [
    "abort_transaction",
    "alter_configs",
    "alter_group_offsets",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "alter_share_group_offsets",
    "alter_user_scram_credentials",
    "create_acls",
    "create_partitions",
    "create_topics",
    "delete_acls",
    "delete_group_offsets",
    "delete_groups",
    "delete_records",
    "delete_share_group_offsets",
    "delete_topics",
    "describe_acls",
    "describe_cluster",
    "describe_configs",
    "describe_features",
    "describe_groups",
    "describe_log_dirs",
    "describe_metadata_quorum",
    "describe_producers",
    "describe_share_groups",
    "describe_topic_partitions",
    "describe_topics",
    "describe_transactions",
    "describe_user_scram_credentials",
    "elect_leaders",
    "find_hanging_transactions",
    "list_config_resources",
    "list_group_offsets",
    "list_groups",
    "list_partition_offsets",
    "list_partition_reassignments",
    "list_share_group_offsets",
    "list_topics",
    "list_transactions",
    "remove_group_members",
    "reset_configs",
    "reset_group_offsets",
    "share_group_offsets",
    "update_features",
    "wait_for_topics",
]

"""The admin client's calls about where partitions are, about brokers' directories and the controllers, about what has
settings, under kafka-python's names. Each runs a dialogue of ``core/admin`` and waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka.admin import dialogues
from kafka.admin.running import Running
from kafka.core.admin.configs import as_texts
from kafka.core.admin.topics import Partitions
from kafka.core.admin.values import ConfigResource, ConfigResourceType, ElectionType
from kafka.errors import BrokerResponseError
from kafka.structs import TopicPartition, TopicPartitionReplica


class ClusterCalls(Running):
    """Replicas, leaders, directories, controllers, and what has settings. ``topic_partitions`` is ``{topic:
    numbers}``, or a list of TopicPartition or of topics' names; None means all."""

    # -- replicas and leaders ------------------------------------------------------------------------------------------

    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> dict[TopicPartition, type[BrokerResponseError] | None]:
        """Let partitions move to these brokers, the preferred leader first; None calls a move off. ``{partition: error
        class}``, None where the move has begun. Raises the error of the request. Since 2.4."""
        limits = self._limits_within(timeout_ms)
        return self._run(dialogues.alter_partition_reassignments(reassignments, **limits))

    def list_partition_reassignments(
        self, topic_partitions: Partitions | None = None, timeout_ms: float | None = None
    ) -> dict[TopicPartition, dict[str, list[int]]]:
        """The moves that are under way: ``{partition: {"replicas", "adding_replicas", "removing_replicas"}}``, each a
        list of brokers' ids. Since 2.4."""
        limits = self._limits_within(timeout_ms)
        return self._run(dialogues.list_partition_reassignments(topic_partitions, **limits))

    def elect_leaders(
        self,
        election_type: ElectionType | int | str,
        topic_partitions: Partitions | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Elect leaders: ``{"error_code", "replica_election_results": [{"topic", "partition_result": [{"partition_id",
        "error_code", "error_message"}]}]}``. Raises the first error unless ``raise_errors`` is False, and never that no
        election was needed (84). Since 2.2; an :class:`ElectionType` other than PREFERRED since 2.4."""
        return self._run(
            dialogues.elect_leaders(
                election_type, topic_partitions, raise_errors=raise_errors, **self._limits_within(timeout_ms)
            )
        )

    def describe_topic_partitions(
        self,
        topics: Iterable[str] | None = None,
        response_partition_limit: int = 2000,
        cursor: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A page of topics with their partitions, and with the replicas that may be elected (KIP-966): ``{"topics":
        [...], "next_cursor"}``. ``next_cursor``, None on the last page, is the ``cursor`` of the next. No topics: of
        all. Since 3.8."""
        return self._run(dialogues.describe_topic_partitions(topics, response_partition_limit, cursor, **self._limits))

    # -- directories ---------------------------------------------------------------------------------------------------

    def describe_log_dirs(
        self, topic_partitions: Partitions | None = None, brokers: Iterable[int] | None = None
    ) -> list[dict[str, Any]]:
        """The directories of all or these brokers, and what partitions take there, in bytes: ``[{"broker", "log_dirs":
        [{"error_code", "log_dir", "topics": [{"name", "partitions": [{"partition_index", "partition_size",
        "offset_lag", "is_future_key"}]}], "total_bytes", "usable_bytes", "is_cordoned"}]}]``. Since 1.0."""
        return self._run(dialogues.describe_log_dirs(topic_partitions, brokers, **self._limits))

    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica | tuple[str, int, int], str]
    ) -> dict[TopicPartitionReplica, type[BrokerResponseError]]:
        """Let replicas move to another directory of their broker, by its absolute path: ``{replica: error class}``,
        NoError where the move has begun. Since 1.0."""
        return self._run(dialogues.alter_replica_log_dirs(replica_assignments, **self._limits))

    # -- controllers ---------------------------------------------------------------------------------------------------

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """The controllers and how far they have come: ``{"topics": [{"topic_name", "partitions": [{"partition_index",
        "error", "leader_id", "leader_epoch", "high_watermark", "current_voters", "observers"}]}], "nodes"}``. Brokers
        with KRaft, since 3.3."""
        return self._run(dialogues.describe_metadata_quorum(**self._limits))

    # -- settings ------------------------------------------------------------------------------------------------------

    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str | int] | None = None
    ) -> dict[str, list[str]]:
        """What has settings, of all or these types: ``{"topic": [NAME], "group": [NAME]}``. Since 4.1; client metrics
        alone since 3.7."""
        return self._run(dialogues.list_config_resources(resource_types, **self._limits))

    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Let settings fall back to their defaults: those that a resource names as ``configs``, or all that were set
        for it. Returns ``{"topic": {NAME: "OK"}}``; raises the first error, and with ``raise_on_unknown``
        IllegalArgumentError for a name that is none of a setting that can be altered. ``incremental`` False, and before
        2.3: everything is replaced by what was set without these."""
        return as_texts(
            self._run(
                dialogues.reset_configs(
                    config_resources,
                    validate_only=validate_only,
                    raise_on_unknown=raise_on_unknown,
                    incremental=incremental,
                    **self._limits,
                )
            )
        )

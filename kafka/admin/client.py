"""KafkaAdminClient: topics, settings, groups, the cluster. Each call runs a dialogue of ``core/admin`` and waits for
it.

Results and names are those of kafka-python 3; what kafka-python 2 names otherwise stands in a section of its own.
``topic_partitions`` is ``{topic: numbers}``, or a list of TopicPartition or of topics' names; None means all.
``group_coordinator_id``: the node to ask, if it is known.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.admin import dialogues
from kafka.admin.credentials import UserScramCredentialUpsertion
from kafka.client import ClientHost, KafkaClient, make_host
from kafka.client.metrics import ClientMetrics
from kafka.client.telemetry import HasTelemetry
from kafka.config import as_given, defaults, resolve
from kafka.core.admin.acls import ACL, ACLFilter
from kafka.core.admin.configs import Described, as_texts
from kafka.core.admin.features import BrokerVersionData, FeatureUpdates, request_api_versions
from kafka.core.admin.groups import SharePartitionOffset
from kafka.core.admin.scram import UserScramCredentialDeletion, text_of
from kafka.core.admin.topics import MorePartitions, NewTopics, Partitions
from kafka.core.admin.values import (
    AbortTransactionSpec,
    ConfigFilterType,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    GroupState,
    GroupType,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    PartitionProducerState,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from kafka.core.dialogue import Dialogue, refresh_metadata
from kafka.core.group.assignors.strategy import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.core.versions import ApiRanges
from kafka.errors import (
    BrokerResponseError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaError,
    NoError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.net.loop import Loop
from kafka.protocol.api_key import ApiKey
from kafka.structs import (
    GroupInformation,
    IsolationLevel,
    MemberInformation,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    TopicPartitionReplica,
)
from kafka.validation import is_integer, is_number

T = TypeVar("T")

MAX_TIMEOUT_MS: Final = 2**31 - 1
"""What a request can say."""


def timeout_seconds(timeout_ms: float | None, default_s: float) -> float:
    """``timeout_ms`` in seconds: a number, MAX_TIMEOUT_MS at most; the default for None and, as in kafka-python, for 0.
    IllegalArgumentError."""
    if timeout_ms is None:
        return default_s
    if not is_number(timeout_ms) or not timeout_ms >= 0:
        raise IllegalArgumentError(f"timeout_ms={timeout_ms!r}: a number of milliseconds, 0 or more")
    return min(timeout_ms, MAX_TIMEOUT_MS) / 1000 or default_s


Specs = Mapping[str, "Iterable[TopicPartition] | None"] | Iterable[str] | str
"""Groups, each with the partitions that are meant (None: all); names alone mean all."""


def _specs(given: Specs) -> Mapping[str, Iterable[TopicPartition] | None]:
    if isinstance(given, str):
        found: Mapping[str, Iterable[TopicPartition] | None] = {given: None}
    else:
        found = given if isinstance(given, Mapping) else dict.fromkeys(given)
    if not found:
        raise IllegalArgumentError("group_specs: no groups")
    return found


def _information(group_id: str, group: dict[str, Any]) -> GroupInformation:
    """DescribeGroups' or ConsumerGroupDescribe's entry of one group in the shape of kafka-python 2. Groups of the
    consumer group protocol (KIP-848) have their type and assignor where classic ones have the protocol's type and
    name."""
    members = [
        MemberInformation(
            member["member_id"],
            member["client_id"],
            member["client_host"],
            _metadata(member),
            _assignment(member),
        )
        for member in group["members"]
    ]
    return GroupInformation(
        0,
        group_id,
        group["group_state"],
        group.get("protocol_type", group.get("group_type", "")),
        group.get("protocol_data", group.get("assignor_name", "")),
        members,
        group.get("authorized_operations"),
    )


def _metadata(member: dict[str, Any]) -> Any:
    told = member.get("member_metadata")
    if told is None:  # no classic group
        told = {"topics": member["subscribed_topic_names"], "user_data": None}
    if not isinstance(told, dict):
        return told
    return ConsumerProtocolMemberMetadata.of(MemberSubscription(tuple(told["topics"]), told["user_data"]))


def _assignment(member: dict[str, Any]) -> Any:
    told = member.get("member_assignment")
    if told is None:
        topics = member["assignment"]["topic_partitions"]
        pairs = [(topic["topic_name"], topic["partitions"]) for topic in topics]
    elif isinstance(told, dict):
        pairs = [(topic["topic"], topic["partitions"]) for topic in told["assigned_partitions"]]
    else:
        return told
    partitions = tuple(TopicPartition(topic, number) for topic, numbers in pairs for number in numbers)
    return ConsumerProtocolMemberAssignment.of(MemberAssignment(partitions))


class KafkaAdminClient(HasTelemetry):
    """Administers a cluster. Any thread. ``configs``: see the reference of settings.

    Results are plain dictionaries with the field names of Kafka's messages. Errors in answers are raised as the class
    of their code. No call creates a topic but :meth:`create_topics`. With ``loop`` or ``client`` it lives there; on
    that loop's own thread the calls below are refused with IllegalStateError, and :meth:`run` takes the same dialogues
    (``kafka.admin.dialogues``) without waiting.
    """

    DEFAULT_CONFIG: Final = defaults("admin")
    """All settings with their defaults."""

    def __init__(self, *, loop: Loop | None = None, client: KafkaClient | None = None, **configs: Any) -> None:
        settings = {**resolve("admin", configs), "allow_auto_create_topics": False}
        self._config = as_given(settings, configs)
        self._timeout_s: float = settings["request_timeout_ms"] / 1000
        self._is_closed = False
        self._host: ClientHost = make_host("admin client", settings, loop, client)
        self._metrics = (
            ClientMetrics(self._host.client, settings, "admin-client") if settings["metrics_enabled"] else None
        )
        metrics = self._metrics
        self._begin_telemetry(self._host, settings, metrics.raw if metrics is not None else dict)

    # -- topics --------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: NewTopics,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics: NewTopic, names, or ``{name: {"num_partitions", "replication_factor", "assignments",
        "configs"}}``. Returns ``{"topics": [{"name", "topic_id", "error_code", ...}]}``; raises the first error unless
        ``raise_errors`` is False. ``wait_for_metadata``: until every partition has a leader."""
        result = self._run(
            dialogues.create_topics(
                new_topics,
                **self._limits_within(timeout_ms),
                validate_only=validate_only,
                raise_errors=raise_errors,
            )
        )
        if wait_for_metadata and not validate_only:
            self.wait_for_topics([topic["name"] for topic in result["topics"] if not topic["error_code"]])
        return result

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10000) -> None:
        """Until each partition of the topics has a leader; KafkaTimeoutError after ``timeout_ms``, with what was
        missing."""
        self._run(dialogues.wait_for_topics(topic_names, timeout_s=timeout_seconds(timeout_ms, self._timeout_s)))

    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics by name or id (2.8): ``{"topics": [{"name", "topic_id", "error_code", ...}]}``. Raises the
        first error (UnknownTopicOrPartitionError, ...) unless ``raise_errors`` is False; KafkaTimeoutError after
        ``timeout_ms`` (None: ``request_timeout_ms``)."""
        return self._run(
            dialogues.delete_topics(
                topics, **self._limits_within(timeout_ms), raise_errors=raise_errors
            )
        )

    def create_partitions(
        self,
        topic_partitions: MorePartitions,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> dict[str, Any]:
        """Give topics more partitions: ``{topic: total count}``, or for brokers of one's choice NewPartitions or
        ``{"count": total, "assignments": [[broker id], ...]}``, a list for each new partition. Returns ``{"results":
        [{"name", "error_code", "error_message"}]}``; raises the first error (InvalidPartitionsError, ...) unless
        ``raise_errors`` is False, and KafkaTimeoutError after ``timeout_ms`` (None: ``request_timeout_ms``)."""
        return self._run(
            dialogues.create_partitions(
                topic_partitions,
                **self._limits_within(timeout_ms),
                validate_only=validate_only,
                raise_errors=raise_errors,
            )
        )

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete what lies before an offset (-1: all): ``{partition: {"low_watermark", ...}}``.
        UnknownTopicOrPartitionError, before anything is deleted, when one is not there. ``partition_leader_id`` means
        nothing: each request goes to the partition's leader."""
        return self._run(
            dialogues.delete_records(records_to_delete, **self._limits_within(timeout_ms))
        )

    def list_topics(self) -> list[str]:
        """The names of all topics."""
        return self._run(dialogues.list_topics(**self._limits))

    def describe_topics(self, topics: Sequence[str | UUID] | None = None) -> list[dict[str, Any]]:
        """Topics with their partitions; all of them for None: ``[{"name", "topic_id", "error_code", "is_internal",
        "partitions", "authorized_operations"}]``. ``topic_id`` is a text; None where there is none (before 2.8). A
        missing one has ``error_code`` 3."""
        return self._run(dialogues.describe_topics(topics, **self._limits))

    # -- settings ------------------------------------------------------------------------------------------------------

    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = ConfigFilterType.MODIFIED,
    ) -> Described:
        """Settings as ``{"topic": {NAME: {SETTING: {"value", "config_source", ...}}}}``. By default only those that
        were set explicitly; "all": the defaults, too."""
        return self._run(
            dialogues.describe_configs(
                config_resources,
                **self._limits,
                include_synonyms=include_synonyms,
                config_filter=config_filter,
            )
        )

    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> dict[str, dict[str, str]]:
        """Change the settings that are named: ``{name: value}``, where None deletes, and ``(operation, value)`` is for
        an AlterConfigOp. ``incremental`` False, and before 2.3: everything is replaced by what was set with these, and
        an operation other than SET is IllegalArgumentError.

        Returns ``{"topic": {NAME: "OK"}}``; raises the first error. Without ``raise_on_unknown`` a setting that the
        broker refuses is no exception, but the error's text in place of "OK".
        """
        return as_texts(
            self._run(
                dialogues.alter_configs(
                    config_resources,
                    **self._limits,
                    validate_only=validate_only,
                    raise_on_unknown=raise_on_unknown,
                    incremental=incremental,
                )
            )
        )

    # -- cluster -------------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> dict[str, Any]:
        """``{"cluster_id", "controller_id", "brokers": [{"broker_id", "host", "port", "rack", "is_fenced"}],
        "authorized_operations"}``."""
        return self._run(dialogues.describe_cluster(**self._limits))

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, Any]:
        """All settings as they are in force, by name: a copy. ``bootstrap_servers`` as they were given."""
        return dict(self._config)

    def metrics(self, raw: bool = False) -> dict[Any, Any]:
        """What was measured, as ``{group: {name: number}}``; ``raw``: the metrics themselves, as ``{MetricName:
        KafkaMetric}``. Empty with ``metrics_enabled=False``. See ``kafka/client/metrics.py``."""
        if self._metrics is None:
            return {}
        return self._metrics.raw() if raw else self._metrics.by_group()

    def close(self) -> None:
        """Let go of the connections. Any number of times."""
        if not self._is_closed:
            self._is_closed = True
            self._end_telemetry()
            if self._metrics is not None:
                self._metrics.close()
            self._host.close()

    def __enter__(self) -> KafkaAdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- groups
    # ----------------------------------------------------------------------------------------------------------

    def list_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """All groups: ``[{"group_id", "protocol_type", "group_state", "group_type"}]``. Filters take names in any case:
        states such as "stable" (2.6), types "classic", "consumer", "share" (3.8)."""
        return self._run(
            dialogues.list_groups(broker_ids, states_filter or (), types_filter or (), **self._limits)
        )

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Groups of any type: ``{group: {"group_id", "group_state", "group_type", "members", "error", ...}}``, where
        ``error`` is None or a text. The other fields are those of DescribeGroups, ConsumerGroupDescribe or
        ShareGroupDescribe; the metadata and assignments of consumers in classic groups are decoded."""
        return self._run(
            dialogues.describe_groups(
                group_ids,
                node_id=group_coordinator_id,
                include_authorized_operations=include_authorized_operations,
                **self._limits,
            )
        )

    def list_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets: ``{group: {partition: OffsetAndMetadata}}``. Takes names of groups, or ``{group:
        partitions}``, None for all. Raises the first error."""
        return self._run(dialogues.list_group_offsets(_specs(group_specs), **self._limits))

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Commit offsets for a group without members: ``{partition: error class}``, NoError where it went well."""
        return self._run(
            dialogues.alter_group_offsets(group_id, offsets, node_id=group_coordinator_id, **self._limits)
        )

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Commit what an OffsetSpec, an OffsetTimestamp or a plain offset means, brought into the partition's range,
        for a group without members: ``{partition: {"error": class, "offset"}}``."""
        return self._run(
            dialogues.reset_group_offsets(
                group_id,
                offset_specs,
                self._host.client.cluster.leader_for_partition,
                node_id=group_coordinator_id,
                **self._limits,
            )
        )

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Forget committed offsets: ``{partition: error class}`` (GroupSubscribedToTopicError). Raises the group's
        error (GroupIdNotFoundError). Since 2.4."""
        return self._run(
            dialogues.delete_group_offsets(group_id, partitions, node_id=group_coordinator_id, **self._limits)
        )

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete empty groups of any type: ``{group: "OK"}``, or the name of the error's class ("NonEmptyGroupError",
        "GroupIdNotFoundError")."""
        found = self._run(dialogues.delete_groups(group_ids, node_id=group_coordinator_id, **self._limits))
        return {group: "OK" if error is NoError else error.__name__ for group, error in found.items()}

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, type[BrokerResponseError]]:
        """Make members leave a classic group: ``{member id or instance id: error class}``. Raises the group's error."""
        return self._run(
            dialogues.remove_group_members(group_id, members, node_id=group_coordinator_id, **self._limits)
        )

    # -- share groups --------------------------------------------------------------------------------------------------

    def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Share groups alone: as :meth:`describe_groups`; what is none has its ``error``."""
        return self._run(
            dialogues.describe_share_groups(
                group_ids, include_authorized_operations=include_authorized_operations, **self._limits
            )
        )

    def list_share_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where share groups stand: ``{group: {partition: SharePartitionOffset(start_offset, lag, leader_epoch)}}``
        (KIP-1226). Takes what :meth:`list_group_offsets` takes. Raises the first error."""
        return self._run(dialogues.list_share_group_offsets(_specs(group_specs), **self._limits))

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, type[BrokerResponseError]]:
        """Let an empty share group begin at other offsets: ``{partition: error class}``. Raises the group's error
        (NonEmptyGroupError)."""
        return self._run(dialogues.alter_share_group_offsets(group_id, offsets, **self._limits))

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> dict[str, type[BrokerResponseError]]:
        """Let an empty share group forget topics: ``{topic: error class}``. Raises the group's error."""
        return self._run(dialogues.delete_share_group_offsets(group_id, topics, **self._limits))

    # -- groups, by kafka-python 2's names
    # -------------------------------------------------------------------------------

    def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """``[(group, protocol type)]``. kafka-python 2's; :meth:`list_groups` returns more."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupInformation]:
        """Groups as GroupInformation with MemberInformation. Raises the first error. kafka-python 2's;
        :meth:`describe_groups` returns more for groups that are not classic."""
        found = self.describe_groups(group_ids, group_coordinator_id, include_authorized_operations)
        for group_id, group in found.items():
            if group["error"] is not None and group["group_state"] != "Dead":
                raise KafkaError(f"group {group_id}: {group['error']}")
        return [_information(group_id, group) for group_id, group in found.items()]

    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of one group, all or of ``partitions``. kafka-python 2's; :meth:`list_group_offsets` takes
        several groups."""
        specs = {group_id: partitions}
        return self._run(dialogues.list_group_offsets(specs, node_id=group_coordinator_id, **self._limits))[group_id]

    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, type[BrokerResponseError]]]:
        """``[(group, error class)]``, NoError where it went well. kafka-python 2's; see :meth:`delete_groups`."""
        found = self._run(dialogues.delete_groups(group_ids, node_id=group_coordinator_id, **self._limits))
        return list(found.items())

    # -- replicas, directories, controllers
    # ------------------------------------------------------------------------------

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

    # -- access rules and users
    # ------------------------------------------------------------------------------------------

    def create_acls(self, acls: Iterable[ACL]) -> dict[str, list[Any]]:
        """Make rules: ``{"succeeded": [ACL], "failed": [error class]}``, in the order of ``acls``; a rule that is there
        already succeeds. What failed is what ``succeeded`` lacks; ``run(dialogues.create_acls(acls,
        backoff=admin.retry_backoff))`` tells the error of each, with the broker's text. Brokers need an authorizer
        (SecurityDisabledError) and, for a while, do not know of a rule that was just made. Since 0.11; patterns 2.0,
        rules about users 3.3."""
        found = self._run(dialogues.create_acls(acls, **self._limits))
        return {
            "succeeded": [acl for acl, error in found if isinstance(error, NoError)],
            "failed": [type(error) for _, error in found if not isinstance(error, NoError)],
        }

    def describe_acls(self, acl_filter: ACLFilter) -> tuple[list[ACL], type[NoError]]:
        """The rules that a filter matches, and NoError. Raises the broker's error: SecurityDisabledError,
        ClusterAuthorizationFailedError."""
        return self._run(dialogues.describe_acls(acl_filter, **self._limits)), NoError

    def delete_acls(
        self, acl_filters: Iterable[ACLFilter]
    ) -> list[tuple[ACLFilter, list[ACL], type[BrokerResponseError]]]:
        """Remove the rules that each filter matches: ``[(filter, [removed ACL], error class)]``, NoError where it went
        well; a rule that could not be removed is not in the list, and its error is the filter's. Not tried again when
        the answer was lost: KafkaConnectionError or RequestTimedOutError, and the rules may have been removed."""
        found = self._run(dialogues.delete_acls(acl_filters, **self._limits))
        return [(each, removed, type(error)) for each, removed, error in found]

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> dict[str, dict[str, Any]]:
        """SCRAM users: ``{user: {"error": None or a text, "credential_infos": [{"mechanism": ScramMechanism,
        "iterations"}]}}``, of all users when none is named; never their credentials. KIP-554, since 2.7."""
        return self._run(dialogues.describe_user_scram_credentials(users, **self._limits))

    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> dict[str, str | None]:
        """Give users credentials, and take some: ``{user: None, or the broker's text}``. A user may be named once in a
        call. Instead of the password its salted form is sent, which is enough to log in: use TLS. KIP-554, since
        2.7."""
        found = self._run(dialogues.alter_user_scram_credentials(alterations, **self._limits))
        return {user: text_of(error) for user, error in found.items()}

    # -- producers and transactions
    # --------------------------------------------------------------------------------------

    def list_transactions(
        self,
        broker_ids: Sequence[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """The transactional ids that each broker coordinates: ``{broker: [TransactionListing]}``; all brokers for None.

        Filters: ids of producers; states such as "ongoing"; transactions that were begun more than so many ms ago
        (3.8, KIP-994); ids that match a whole regular expression (4.1, KIP-1152). IncompatibleBrokerVersion before 3.0,
        UnsupportedVersionError for a state that a broker does not know.
        """
        return self._run(
            dialogues.list_transactions(
                broker_ids,
                producer_id_filters,
                state_filters,
                duration_filter_ms,
                transactional_id_pattern,
                **self._limits,
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """What coordinators know: ``{transactional id: TransactionDescription}``. Raises the first error
        (TransactionalIdNotFoundError). IncompatibleBrokerVersion before 3.0."""
        return self._run(dialogues.describe_transactions(transactional_ids, **self._limits))

    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, PartitionProducerState]:
        """What partitions remember of their producers: ``{partition: PartitionProducerState}``. Asks their leaders, or
        the replica ``broker_id`` of all of them. Raises the first error. IncompatibleBrokerVersion before 2.8."""
        return self._run(dialogues.describe_producers(partitions, broker_id, **self._limits))

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort a producer's transaction in one partition, by ``AbortTransactionSpec(partition, producer_id,
        producer_epoch)``, whatever its coordinator says: for one that hangs, as readers of committed records wait for
        its end. Its coordinator is not informed. InvalidProducerEpochError for an epoch older than the partition's,
        ClusterAuthorizationFailedError.

        The producer's next transaction is not touched: before a further try the partition is asked whether this one is
        still there. Where it cannot be asked (brokers before 2.8; topics that may not be read), and the answer was
        lost, the error says that the outcome is not known. After a KafkaTimeoutError, too, look before you call again.
        """
        self._run(dialogues.abort_transaction(spec, **self._limits))

    def find_hanging_transactions(
        self, broker_ids: Sequence[int] | None = None, max_transaction_timeout_ms: float = 900_000
    ) -> list[dict[str, Any]]:
        """Hanging transactions: ``[{"transactional_id", "producer_id", "producer_epoch", "state",
        "age_ms", "coordinator_id", "topic_partitions"}]``.

        Those that are still open at their coordinators five minutes after the longest time that one may have
        (``transaction.max.timeout.ms`` of the brokers): leave these to them, as they may be about to commit. And those
        that are open in a partition, with nothing written for so long, of which no coordinator knows:
        ``transactional_id`` is None, ``state`` "Unknown" and ``coordinator_id`` -1 where the producer is not known
        either, and only these may be aborted without a further look. ``broker_ids``: what these brokers coordinate and
        lead. Partitions that have no leader now, or may not be read, are left out, and logged. KafkaTimeoutError while
        a coordinator that may know of one cannot be asked. This computer's clock should be right, and the user allowed
        to describe all transactional ids. IncompatibleBrokerVersion before 3.0.
        """
        return self._run(
            dialogues.find_hanging_transactions(
                broker_ids, max_transaction_timeout_ms, now_ms=time.time() * 1000, **self._limits
            )
        )

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset that each OffsetSpec means, or the first that is not older than a time in ms since the epoch:
        ``{partition: OffsetAndTimestamp}``; offset -1: there is none.

        READ_COMMITTED: nothing behind the first open transaction counts. Raises the first error
        (UnknownTopicOrPartitionError). UnsupportedVersionError: brokers are too old for this OffsetSpec.
        """
        return self._run(
            dialogues.list_partition_offsets(
                topic_partition_specs, isolation_level, **self._limits_within(timeout_ms)
            )
        )

    # -- features and versions
    # -------------------------------------------------------------------------------------------

    def describe_features(self, send_request_to_controller: bool = False) -> dict[str, dict[str, Any]]:
        """``{feature: {"supported": (least, most), "finalized": (least, most), "finalized_epoch"}}``; the last two for
        what the cluster has finalized, the epoch None where the response has none. Any broker, or the controller.
        KIP-584, since 2.7 (2.4 answers without features); IncompatibleBrokerVersion before."""
        return self._run(
            dialogues.describe_features(
                software=self._host.client.software,
                send_request_to_controller=send_request_to_controller,
                **self._limits,
            )
        )

    def update_features(
        self, feature_updates: FeatureUpdates, validate_only: bool = False, timeout_ms: float | None = 60000
    ) -> dict[str, str]:
        """Change levels: ``{feature: level}`` for an upgrade, or ``{feature: (type, level)}`` with an
        UpdateFeatureType, its name or its number; level 0 removes the feature. ``timeout_ms``: None for
        ``request_timeout_ms``.

        Returns ``{feature: "OK" or the error's text}``. An error of the whole request is raised, and since 4.0 that is
        every one (InvalidUpdateVersionError). KIP-584, since 2.7; ``validate_only`` since 3.3.
        """
        found = self._run(
            dialogues.update_features(feature_updates, validate_only=validate_only, **self._limits_within(timeout_ms))
        )
        return {name: "OK" if isinstance(error, NoError) else str(error) for name, error in found.items()}

    def api_versions(self) -> dict[ApiKey, tuple[int, int]]:
        """What a broker of the cluster speaks, whichever is asked: ``{ApiKey: (lowest, highest version)}``. Of brokers
        before 0.10, which have no ApiVersions, what their release is known to speak."""
        ranges = self._run(self._ranges_of(None)).ranges
        return {ApiKey(key): versions for key, versions in ranges.items()}

    def get_broker_version_data(self, broker_id: int) -> BrokerVersionData:
        """What this broker speaks and the release that it looks like: ``api_versions``, ``broker_version`` ((4, 3)),
        ``broker_version_str``, ``api_version(request)``. UnknownBrokerIdError for one that is not in the cluster."""
        if not is_integer(broker_id):
            raise IllegalArgumentError(f"broker_id={broker_id!r}: a broker's number")
        return BrokerVersionData(self._run(self._ranges_of(broker_id)))

    def _ranges_of(self, broker_id: int | None) -> Dialogue[ApiRanges]:
        client = self._host.client

        def find() -> Dialogue[None]:
            if broker_id is None or client.cluster.broker_metadata(broker_id) is not None:
                return
            yield from refresh_metadata()
            if client.cluster.broker_metadata(broker_id) is None:
                raise UnknownBrokerIdError(f"node {broker_id}: not in the cluster's metadata")

        yield from retrying(find, what="looking for the broker", **self._limits)
        target = AnyNode() if broker_id is None else broker_id
        try:
            return (yield from request_api_versions(target, software=client.software, **self._limits))
        except IncompatibleBrokerVersion:
            return client.api_ranges()  # from its greeting: one of such a cluster is as good as another

    # -- running dialogues
    # -----------------------------------------------------------------------------------------------

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Run a dialogue (``kafka.admin.dialogues``) and return its future. From any thread."""
        run: Any = self._host.client.run
        future: Future[T] = self._host.submit(run, dialogue)
        return future

    @property
    def retry_backoff(self) -> Backoff:
        """What dialogues take as ``backoff``: the waits between attempts, from ``retry_backoff_ms`` on."""
        return self._host.client.retry_backoff

    @property
    def _limits(self) -> dict[str, Any]:
        """What every dialogue takes."""
        return {"backoff": self.retry_backoff, "timeout_s": self._timeout_s}

    def _limits_within(self, timeout_ms: float | None) -> dict[str, Any]:
        """The same for a call that was given a time of its own; None or 0: as any other."""
        return {**self._limits, "timeout_s": timeout_seconds(timeout_ms, self._timeout_s)}

    def _run(self, dialogue: Dialogue[T]) -> T:
        run: Any = self._host.client.run
        value: T = self._host.call(run, dialogue)
        return value

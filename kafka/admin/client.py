"""KafkaAdminClient: topics, settings, groups, the cluster. Each call runs a dialogue of ``core/admin`` and waits for
it. Most methods are made by :func:`blocking` from the dialogue of their name.

Results and names are those of kafka-python 3; what kafka-python 2 names otherwise stands in a section of its own.
``topic_partitions`` is ``{topic: numbers}``, or a list of TopicPartition or of topics' names; None means all.
``group_coordinator_id``: the node to ask, if it is known.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias, TypeVar, overload
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
from kafka.core.connection import ApiRanges
from kafka.core.dialogue import Dialogue, refresh_metadata
from kafka.core.group.assignors.strategy import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
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

P = ParamSpec("P")
R = TypeVar("R")
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


# -- methods made from dialogues --------------------------------------------------------------------------------------

Result: TypeAlias = "T | None"
"""What a method that :func:`blocking` makes returns: a T. Its declaration, which has no body, returns None."""

Declaration: TypeAlias = "Callable[Concatenate[KafkaAdminClient, P], T | None]"
Method: TypeAlias = "Callable[Concatenate[KafkaAdminClient, P], T]"

_PARAMETERS: Final[Mapping[str, str]] = {"group_coordinator_id": "node_id"}
"""Parameter of methods -> that of dialogues, where the names differ."""

_SUPPLIED: Final[Mapping[str, Callable[[KafkaAdminClient], Any]]] = {
    "backoff": lambda admin: admin.retry_backoff,
    "timeout_s": lambda admin: admin._timeout_s,
    "software": lambda admin: admin._host.client.software,
    "leader_of": lambda admin: admin._host.client.cluster.leader_for_partition,
    "now_ms": lambda admin: time.time() * 1000,
}
"""Parameter of dialogues that methods lack -> what the client passes for it."""


@overload
def blocking(dialogue: Callable[..., Dialogue[T]]) -> Callable[[Declaration[P, T]], Method[P, T]]: ...


@overload
def blocking(
    dialogue: Callable[..., Dialogue[T]], result: Callable[[T], R]
) -> Callable[[Declaration[P, R]], Method[P, R]]: ...


def blocking(dialogue: Callable[..., Dialogue[Any]], result: Callable[[Any], Any] = lambda found: found) -> Any:
    """Make the method that runs ``dialogue``, waits, and returns its result, through ``result``.

    It is made from a declaration without a body, which has the method's parameters and the type of its result. They
    are passed by name (:data:`_PARAMETERS`); ``timeout_ms`` as ``timeout_s``. What the dialogue takes besides comes
    from the client (:data:`_SUPPLIED`). Without a docstring the declaration has the dialogue's.
    """
    taken = inspect.signature(dialogue).parameters

    def make(declaration: Any) -> Any:
        returned: str = declaration.__annotations__["return"]
        if returned.startswith("Result["):
            declaration.__annotations__["return"] = returned.removeprefix("Result[")[:-1]
        signature = inspect.signature(declaration)

        @wraps(declaration)
        def method(*args: Any, **kwargs: Any) -> Any:
            declaration(*args, **kwargs)  # TypeError for other arguments than it has
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = {_PARAMETERS.get(name, name): value for name, value in bound.arguments.items()}
            admin: KafkaAdminClient = given.pop("self")
            passed = {name: supply(admin) for name, supply in _SUPPLIED.items() if name in taken}
            if "timeout_ms" in given:
                passed["timeout_s"] = timeout_seconds(given.pop("timeout_ms"), admin._timeout_s)
            return result(admin._run(dialogue(**given, **passed)))

        method.__annotations__ = declaration.__annotations__  # wraps() of Python 3.14 leaves texts out
        method.__doc__ = declaration.__doc__ or dialogue.__doc__
        return method

    return make


def _made_acls(found: Iterable[tuple[ACL, BrokerResponseError]]) -> dict[str, list[Any]]:
    return {
        "succeeded": [acl for acl, error in found if isinstance(error, NoError)],
        "failed": [type(error) for _, error in found if not isinstance(error, NoError)],
    }


# -- arguments and results ---------------------------------------------------------------------------------------------

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
        MemberInformation(each["member_id"], each["client_id"], each["client_host"], _metadata(each), _assignment(each))
        for each in group["members"]
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
    of their code; KafkaTimeoutError after ``timeout_ms``, for which None is ``request_timeout_ms``. No call creates a
    topic but :meth:`create_topics`. With ``loop`` or ``client`` it lives there; on that loop's own thread the calls
    below are refused with IllegalStateError, and :meth:`run` takes the same dialogues (``kafka.admin.dialogues``)
    without waiting.
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
        limits = self._limits(timeout_ms)
        creating = dialogues.create_topics(new_topics, **limits, validate_only=validate_only, raise_errors=raise_errors)
        result = self._run(creating)
        if wait_for_metadata and not validate_only:
            self.wait_for_topics([topic["name"] for topic in result["topics"] if not topic["error_code"]])
        return result

    @blocking(dialogues.wait_for_topics)
    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: float = 10000) -> None: ...

    @blocking(dialogues.delete_topics)
    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: float | None = None, raise_errors: bool = True
    ) -> Result[dict[str, Any]]: ...

    @blocking(dialogues.create_partitions)
    def create_partitions(
        self,
        topic_partitions: MorePartitions,
        timeout_ms: float | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> Result[dict[str, Any]]: ...

    def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: float | None = None,
        partition_leader_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Delete what lies before an offset (-1: all): ``{partition: {"low_watermark", ...}}``.
        UnknownTopicOrPartitionError, before anything is deleted, when one is not there. ``partition_leader_id`` means
        nothing: each request goes to the partition's leader."""
        return self._run(dialogues.delete_records(records_to_delete, **self._limits(timeout_ms)))

    @blocking(dialogues.list_topics)
    def list_topics(self) -> Result[list[str]]: ...

    @blocking(dialogues.describe_topics)
    def describe_topics(self, topics: Sequence[str | UUID] | None = None) -> Result[list[dict[str, Any]]]: ...

    # -- settings ------------------------------------------------------------------------------------------------------

    @blocking(dialogues.describe_configs)
    def describe_configs(
        self,
        config_resources: Iterable[ConfigResource],
        include_synonyms: bool = False,
        config_filter: ConfigFilterType | str = ConfigFilterType.MODIFIED,
    ) -> Result[Described]: ...

    @blocking(dialogues.alter_configs, as_texts)
    def alter_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> Result[dict[str, dict[str, str]]]:
        """Change the settings that are named: ``{name: value}``, where None deletes, and ``(operation, value)`` is for
        an AlterConfigOp. ``incremental`` False, and before 2.3: everything is replaced by what was set with these, and
        an operation other than SET is IllegalArgumentError.

        Returns ``{"topic": {NAME: "OK"}}``; raises the first error. Without ``raise_on_unknown`` a setting that the
        broker refuses is no exception, but the error's text in place of "OK".
        """

    @blocking(dialogues.list_config_resources)
    def list_config_resources(
        self, resource_types: Iterable[ConfigResourceType | str | int] | None = None
    ) -> Result[dict[str, list[str]]]: ...

    @blocking(dialogues.reset_configs, as_texts)
    def reset_configs(
        self,
        config_resources: Iterable[ConfigResource],
        validate_only: bool = False,
        raise_on_unknown: bool = True,
        incremental: bool | None = None,
    ) -> Result[dict[str, dict[str, str]]]:
        """Let settings fall back to their defaults: those that a resource names as ``configs``, or all that were set
        for it. Returns ``{"topic": {NAME: "OK"}}``; raises the first error, and with ``raise_on_unknown``
        IllegalArgumentError for a name that is none of a setting that can be altered. ``incremental`` False, and before
        2.3: everything is replaced by what was set without these."""

    # -- cluster -------------------------------------------------------------------------------------------------------

    @blocking(dialogues.describe_cluster)
    def describe_cluster(self) -> Result[dict[str, Any]]: ...

    @blocking(dialogues.describe_metadata_quorum)
    def describe_metadata_quorum(self) -> Result[dict[str, Any]]: ...

    # -- groups --------------------------------------------------------------------------------------------------------

    @blocking(dialogues.list_groups)
    def list_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> Result[list[dict[str, Any]]]: ...

    @blocking(dialogues.describe_groups)
    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> Result[dict[str, dict[str, Any]]]: ...

    def list_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets: ``{group: {partition: OffsetAndMetadata}}``. Takes names of groups, or ``{group:
        partitions}``, None for all. Raises the first error."""
        return self._run(dialogues.list_group_offsets(_specs(group_specs), **self._limits()))

    @blocking(dialogues.alter_group_offsets)
    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> Result[dict[TopicPartition, type[BrokerResponseError]]]: ...

    @blocking(dialogues.reset_group_offsets)
    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> Result[dict[TopicPartition, dict[str, Any]]]: ...

    @blocking(dialogues.delete_group_offsets)
    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> Result[dict[TopicPartition, type[BrokerResponseError]]]: ...

    @blocking(
        dialogues.delete_groups,
        lambda found: {group: "OK" if error is NoError else error.__name__ for group, error in found.items()},
    )
    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> Result[dict[str, str]]:
        """Delete empty groups of any type: ``{group: "OK"}``, or the name of the error's class ("NonEmptyGroupError",
        "GroupIdNotFoundError")."""

    @blocking(dialogues.remove_group_members)
    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> Result[dict[str, type[BrokerResponseError]]]: ...

    # -- share groups --------------------------------------------------------------------------------------------------

    @blocking(dialogues.describe_share_groups)
    def describe_share_groups(
        self, group_ids: Iterable[str], include_authorized_operations: bool = False
    ) -> Result[dict[str, dict[str, Any]]]: ...

    def list_share_group_offsets(self, group_specs: Specs) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where share groups stand: ``{group: {partition: SharePartitionOffset(start_offset, lag, leader_epoch)}}``
        (KIP-1226). Takes what :meth:`list_group_offsets` takes. Raises the first error."""
        return self._run(dialogues.list_share_group_offsets(_specs(group_specs), **self._limits()))

    @blocking(dialogues.alter_share_group_offsets)
    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> Result[dict[TopicPartition, type[BrokerResponseError]]]: ...

    @blocking(dialogues.delete_share_group_offsets)
    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str]
    ) -> Result[dict[str, type[BrokerResponseError]]]: ...

    # -- groups, by kafka-python 2's names -----------------------------------------------------------------------------

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
        return self._run(dialogues.list_group_offsets(specs, node_id=group_coordinator_id, **self._limits()))[group_id]

    @blocking(dialogues.delete_groups, lambda found: list(found.items()))
    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> Result[list[tuple[str, type[BrokerResponseError]]]]:
        """``[(group, error class)]``, NoError where it went well. kafka-python 2's; see :meth:`delete_groups`."""

    # -- replicas and leaders ------------------------------------------------------------------------------------------

    @blocking(dialogues.alter_partition_reassignments)
    def alter_partition_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: float | None = None
    ) -> Result[dict[TopicPartition, type[BrokerResponseError] | None]]: ...

    @blocking(dialogues.list_partition_reassignments)
    def list_partition_reassignments(
        self, topic_partitions: Partitions | None = None, timeout_ms: float | None = None
    ) -> Result[dict[TopicPartition, dict[str, list[int]]]]: ...

    @blocking(dialogues.elect_leaders)
    def elect_leaders(
        self,
        election_type: ElectionType | int | str,
        topic_partitions: Partitions | None = None,
        timeout_ms: float | None = None,
        raise_errors: bool = True,
    ) -> Result[dict[str, Any]]: ...

    @blocking(dialogues.describe_topic_partitions)
    def describe_topic_partitions(
        self,
        topics: Iterable[str] | None = None,
        response_partition_limit: int = 2000,
        cursor: Mapping[str, Any] | None = None,
    ) -> Result[dict[str, Any]]: ...

    # -- directories ---------------------------------------------------------------------------------------------------

    @blocking(dialogues.describe_log_dirs)
    def describe_log_dirs(
        self, topic_partitions: Partitions | None = None, brokers: Iterable[int] | None = None
    ) -> Result[list[dict[str, Any]]]: ...

    @blocking(dialogues.alter_replica_log_dirs)
    def alter_replica_log_dirs(
        self, replica_assignments: Mapping[TopicPartitionReplica | tuple[str, int, int], str]
    ) -> Result[dict[TopicPartitionReplica, type[BrokerResponseError]]]: ...

    # -- access rules and users ----------------------------------------------------------------------------------------

    @blocking(dialogues.create_acls, _made_acls)
    def create_acls(self, acls: Iterable[ACL]) -> Result[dict[str, list[Any]]]:
        """Make rules: ``{"succeeded": [ACL], "failed": [error class]}``, in the order of ``acls``; a rule that is there
        already succeeds. What failed is what ``succeeded`` lacks; ``run(dialogues.create_acls(acls,
        backoff=admin.retry_backoff))`` tells the error of each, with the broker's text. Brokers need an authorizer
        (SecurityDisabledError) and, for a while, do not know of a rule that was just made. Since 0.11; patterns 2.0,
        rules about users 3.3."""

    @blocking(dialogues.describe_acls, lambda found: (found, NoError))
    def describe_acls(self, acl_filter: ACLFilter) -> Result[tuple[list[ACL], type[NoError]]]:
        """The rules that a filter matches, and NoError. Raises the broker's error: SecurityDisabledError,
        ClusterAuthorizationFailedError."""

    @blocking(
        dialogues.delete_acls, lambda found: [(each, removed, type(error)) for each, removed, error in found]
    )
    def delete_acls(
        self, acl_filters: Iterable[ACLFilter]
    ) -> Result[list[tuple[ACLFilter, list[ACL], type[BrokerResponseError]]]]:
        """Remove the rules that each filter matches: ``[(filter, [removed ACL], error class)]``, NoError where it went
        well; a rule that could not be removed is not in the list, and its error is the filter's. Not tried again when
        the answer was lost: KafkaConnectionError or RequestTimedOutError, and the rules may have been removed."""

    @blocking(dialogues.describe_user_scram_credentials)
    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Result[dict[str, dict[str, Any]]]: ...

    @blocking(
        dialogues.alter_user_scram_credentials,
        lambda found: {user: text_of(error) for user, error in found.items()},
    )
    def alter_user_scram_credentials(
        self, alterations: Iterable[UserScramCredentialDeletion | UserScramCredentialUpsertion]
    ) -> Result[dict[str, str | None]]:
        """Give users credentials, and take some: ``{user: None, or the broker's text}``. A user may be named once in a
        call. Instead of the password its salted form is sent, which is enough to log in: use TLS. KIP-554, since
        2.7."""

    # -- producers and transactions ------------------------------------------------------------------------------------

    @blocking(dialogues.list_transactions)
    def list_transactions(
        self,
        broker_ids: Sequence[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: float | None = None,
        transactional_id_pattern: str | None = None,
    ) -> Result[dict[int, list[TransactionListing]]]: ...

    @blocking(dialogues.describe_transactions)
    def describe_transactions(self, transactional_ids: Iterable[str]) -> Result[dict[str, TransactionDescription]]: ...

    @blocking(dialogues.describe_producers)
    def describe_producers(
        self, partitions: Iterable[TopicPartition], broker_id: int | None = None
    ) -> Result[dict[TopicPartition, PartitionProducerState]]: ...

    @blocking(dialogues.abort_transaction)
    def abort_transaction(self, spec: AbortTransactionSpec) -> None: ...

    @blocking(dialogues.find_hanging_transactions)
    def find_hanging_transactions(
        self, broker_ids: Sequence[int] | None = None, max_transaction_timeout_ms: float = 900_000
    ) -> Result[list[dict[str, Any]]]: ...

    @blocking(dialogues.list_partition_offsets)
    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> Result[dict[TopicPartition, OffsetAndTimestamp]]: ...

    # -- features and versions -----------------------------------------------------------------------------------------

    @blocking(dialogues.describe_features)
    def describe_features(self, send_request_to_controller: bool = False) -> Result[dict[str, dict[str, Any]]]: ...

    @blocking(
        dialogues.update_features,
        lambda found: {name: "OK" if isinstance(error, NoError) else str(error) for name, error in found.items()},
    )
    def update_features(
        self, feature_updates: FeatureUpdates, validate_only: bool = False, timeout_ms: float | None = 60000
    ) -> Result[dict[str, str]]:
        """Change levels: ``{feature: level}`` for an upgrade, or ``{feature: (type, level)}`` with an
        UpdateFeatureType, its name or its number; level 0 removes the feature. ``timeout_ms``: None for
        ``request_timeout_ms``.

        Returns ``{feature: "OK" or the error's text}``. An error of the whole request is raised, and since 4.0 that is
        every one (InvalidUpdateVersionError). KIP-584, since 2.7; ``validate_only`` since 3.3.
        """

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

        yield from retrying(find, what="looking for the broker", **self._limits())
        target = AnyNode() if broker_id is None else broker_id
        try:
            return (yield from request_api_versions(target, software=client.software, **self._limits()))
        except IncompatibleBrokerVersion:
            return client.api_ranges()  # from its greeting: one of such a cluster is as good as another

    # -- running dialogues ---------------------------------------------------------------------------------------------

    def run(self, dialogue: Dialogue[T]) -> Future[T]:
        """Run a dialogue (``kafka.admin.dialogues``) and return its future. From any thread."""
        run: Any = self._host.client.run
        future: Future[T] = self._host.submit(run, dialogue)
        return future

    @property
    def retry_backoff(self) -> Backoff:
        """What dialogues take as ``backoff``: the waits between attempts, from ``retry_backoff_ms`` on."""
        return self._host.client.retry_backoff

    def _limits(self, timeout_ms: float | None = None) -> dict[str, Any]:
        """What every dialogue takes. ``timeout_ms`` None or 0: ``request_timeout_ms``."""
        return {"backoff": self.retry_backoff, "timeout_s": timeout_seconds(timeout_ms, self._timeout_s)}

    def _run(self, dialogue: Dialogue[T]) -> T:
        run: Any = self._host.client.run
        value: T = self._host.call(run, dialogue)
        return value

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

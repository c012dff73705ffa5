"""Dialogues about topics, their partitions and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from kafka.core.admin.responses import (
    AdminApi,
    each_partition,
    in_all,
    in_each,
    operations_of,
    raise_first,
    raise_transient,
    request_api,
    time_left,
    to_dict,
    topics_as,
)
from kafka.core.admin.values import ConfigSourceType, ElectionType, NewPartitions, NewTopic, kind_of
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, now, refresh_metadata, send, sleep, within
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode, Leader
from kafka.errors import (
    BrokerResponseError,
    Cancelled,
    ElectionNotNeededError,
    IllegalArgumentError,
    KafkaError,
    KafkaTimeoutError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from kafka.protocol.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
)
from kafka.structs import TopicPartition
from kafka.validation import is_integer, list_of, mapping_of, numbers_of, partition_of

NewTopics = Mapping[str, Mapping[str, Any]] | Iterable[NewTopic | str]
"""A list of NewTopic or names, or ``{name: {"num_partitions", "replication_factor", "assignments", "configs"}}``."""

Partitions = Mapping[str, Iterable[int]] | Iterable[TopicPartition | str]
"""``{topic: numbers}``, a list of partitions, or of names of topics, which mean all of theirs."""

MorePartitions = Mapping[str, NewPartitions | int | Mapping[str, Any]]
"""``{topic: total count}``, NewPartitions, or ``{"count": total, "assignments": [[broker id]]}``."""

_NO_CREATION_SINCE: Final = 4
_OPERATIONS_SINCE: Final = 8
_IDS_SINCE: Final = 6

_CREATE_TOPICS: Final = AdminApi("creating topics", in_each("topics", "topic {0.name}"))
_DELETE_TOPICS: Final = AdminApi("deleting topics", in_each("responses", "topic {0.name}"))
_CREATE_PARTITIONS: Final = AdminApi("creating partitions", in_each("results", "topic {0.name}"))
_DELETE_RECORDS: Final = AdminApi(
    "deleting records",
    lambda answer: [
        (each.error_code, None, f"{partition.topic}-{partition.partition}")
        for partition, each in each_partition(answer.topics)
    ],
)
_DESCRIBE_TOPIC_PARTITIONS: Final = AdminApi("describing topics", target=AnyNode(), release="3.8, with KRaft")
_ALTER_REASSIGNMENTS: Final = AdminApi("moving partitions", in_all("moves of partitions"), release="2.4")
_LIST_REASSIGNMENTS: Final = AdminApi("listing moves of partitions", in_all("moves of partitions"), release="2.4")
_ELECT_LEADERS: Final = AdminApi(
    "electing leaders",
    lambda answer: [
        *(
            (one.error_code, one.error_message, f"partition {result.topic}-{one.partition_id}")
            for result in answer.replica_election_results
            for one in result.partition_result
        ),
        (answer.error_code, None, "election of leaders"),
    ],
    release="2.2",
)
_ELECT_ANY: Final = _ELECT_LEADERS._replace(release="2.4, for unclean elections")


def create_topics(
    new_topics: NewTopics,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Dialogue[dict[str, Any]]:
    """Create topics: ``{"topics": [{"name", "topic_id", "error_code", ...}]}``, with ``configs``, the settings as
    ``{name: {...}}``, where the broker returns them (2.4).

    With ``raise_errors`` the first error is raised (TopicAlreadyExistsError, InvalidPartitionsError, ...).
    """
    topics = [_creatable(topic) for topic in _as_new_topics(new_topics)]
    if not topics:
        raise IllegalArgumentError("create_topics: no topics")
    request = CreateTopicsRequest(topics=topics, timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    answer = yield from request_api(_CREATE_TOPICS, request, backoff, timeout_s, raise_errors=raise_errors)
    topics_made = [to_dict(topic) for topic in answer.topics]
    for topic in topics_made:
        configs = topic.pop("configs")
        for config in configs or ():
            config["config_source"] = ConfigSourceType.of(config["config_source"]).name
        if configs:
            topic["configs"] = {config.pop("name"): config for config in configs}
    return {"topics": topics_made}


def delete_topics(
    topics: Iterable[str | UUID], *, backoff: Backoff, timeout_s: float = 30.0, raise_errors: bool = True
) -> Dialogue[dict[str, Any]]:
    """Delete topics by name or, since 2.8, by id: ``{"topics": [{"name", "topic_id", "error_code", ...}]}``.

    With ``raise_errors`` the first error is raised (UnknownTopicOrPartitionError, UnknownTopicIdError,
    TopicDeletionDisabledError, ...).
    """
    wanted = list_of(topics, "topics", "a list of names or ids, not one")

    def build(version: int) -> DeleteTopicsRequest:
        if version < _IDS_SINCE:
            return DeleteTopicsRequest(topic_names=[str(topic) for topic in wanted], timeout_ms=int(timeout_s * 1000))
        states = [
            DeleteTopicsRequest.DeleteTopicState(topic_id=topic)
            if isinstance(topic, UUID)
            else DeleteTopicsRequest.DeleteTopicState(name=topic)
            for topic in wanted
        ]
        return DeleteTopicsRequest(topics=states, timeout_ms=int(timeout_s * 1000))

    least = _IDS_SINCE if any(isinstance(topic, UUID) for topic in wanted) else None
    request = ByVersion(DeleteTopicsRequest, build)
    answer = yield from request_api(
        _DELETE_TOPICS, request, backoff, timeout_s, raise_errors=raise_errors, min_version=least
    )
    return {"topics": [to_dict(topic) for topic in answer.responses]}


def create_partitions(
    topic_partitions: MorePartitions,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Dialogue[dict[str, Any]]:
    """Give topics more partitions: ``{topic: total count}``, or for brokers of one's choice NewPartitions or
    ``{"count": total, "assignments": [[broker id], ...]}``, a list for each new partition. Returns ``{"results":
    [{"name", "error_code", "error_message"}]}``.

    With ``raise_errors`` the first error is raised (UnknownTopicOrPartitionError; InvalidPartitionsError for no more
    than there are; InvalidReplicationAssignmentError).
    """
    message = CreatePartitionsRequest
    topics = []
    for name, wanted in mapping_of(topic_partitions, "topic_partitions", "{topic: total count} is needed").items():
        new = _new_partitions(name, wanted)
        assignments = [message.CreatePartitionsAssignment(broker_ids=list(ids)) for ids in new.new_assignments or ()]
        topics.append(
            message.CreatePartitionsTopic(name=name, count=new.total_count, assignments=assignments or None)
        )
    request = message(topics=topics, timeout_ms=int(timeout_s * 1000), validate_only=validate_only)
    return to_dict((yield from request_api(_CREATE_PARTITIONS, request, backoff, timeout_s, raise_errors=raise_errors)))


def delete_records(
    records_to_delete: Mapping[TopicPartition, int], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, dict[str, Any]]]:
    """Delete what lies before an offset (-1: everything): ``{partition: {"low_watermark", "error_code", ...}}``.

    Raises the first error; UnknownTopicOrPartitionError before anything is deleted. Source: KIP-107.
    """
    form = "{TopicPartition: offset} is needed"
    given = mapping_of(records_to_delete, "records_to_delete", form)
    wanted = {partition_of(each, "records_to_delete"): offset for each, offset in given.items()}
    give_up_at = (yield from now()) + timeout_s
    yield from check_partitions(wanted, backoff=backoff, timeout_s=timeout_s)
    message = DeleteRecordsRequest
    found: dict[TopicPartition, dict[str, Any]] = {}
    for partition, offset in wanted.items():
        records = message.DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topic = message.DeleteRecordsTopic(name=partition.topic, partitions=[records])
        left_s = yield from time_left(give_up_at)
        request = message(topics=[topic], timeout_ms=int(left_s * 1000))
        api = _DELETE_RECORDS._replace(target=Leader(partition))
        answer = yield from request_api(api, request, backoff, left_s)
        found[partition] = to_dict(answer.topics[0].partitions[0])
    return found


def describe_topics(
    topics: Sequence[str | UUID] | None = None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[list[dict[str, Any]]]:
    """Topics with their partitions; all of them for None: ``[{"name", "topic_id", "error_code", "is_internal",
    "partitions", "authorized_operations"}]``. Creates none; a missing one has ``error_code`` 3. ``topic_id`` is a text,
    None where there is none (before 2.8); ``authorized_operations`` has names, and is None before 2.3."""
    wanted = None if topics is None else list_of(topics, "topics", "a list of names or ids, not one")
    answer = yield from retrying(
        lambda: metadata_of(wanted, with_operations=True),
        what="describing topics",
        backoff=backoff,
        timeout_s=timeout_s,
    )
    described = [to_dict(topic) for topic in answer.topics]
    for topic in described:
        topic["authorized_operations"] = operations_of(topic.pop("topic_authorized_operations"))
    return described


def check_partitions(
    partitions: Iterable[TopicPartition], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[None]:
    """UnknownTopicOrPartitionError unless all are there. To be asked before anything that goes to leaders: looking for
    the leader of a topic that is not there may create it, on a client that others use, too."""
    wanted = list(partitions)
    names = sorted({partition.topic for partition in wanted})

    def attempt() -> Dialogue[MetadataResponse]:
        answer = yield from metadata_of(names)
        raise_transient((topic.error_code, None, f"topic {topic.name}") for topic in answer.topics)
        return answer

    answer = yield from retrying(attempt, what="looking for partitions", backoff=backoff, timeout_s=timeout_s)
    there = {(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions}
    missing = [f"{topic}-{number}" for topic, number in wanted if (topic, number) not in there]
    unknown = UnknownTopicOrPartitionError.errno
    raise_first((each.error_code, None, f"topic {each.name}") for each in answer.topics if each.error_code != unknown)
    if missing:
        raise UnknownTopicOrPartitionError(f"there is no {', no '.join(missing)}")


def partitions_of(
    given: Partitions | None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[str, list[int]]]:
    """``{topic: numbers}`` of what a user has given; of all topics for None. Only names alone are looked up:
    UnknownTopicOrPartitionError for one that is not there. IllegalArgumentError for what is none of :data:`Partitions`.
    """
    what = "topic_partitions"
    if isinstance(given, Mapping):
        form = "a list of partitions' numbers"
        return {topic: numbers_of(numbers, f"{what}: {topic}", form) for topic, numbers in given.items()}
    if isinstance(given, TopicPartition):
        raise IllegalArgumentError(f"{what}={given!r}: a list of partitions, not one")
    wanted = None if given is None else list_of(given, what, "a list of topics, not one text")
    names = None if wanted is None else [topic for topic in wanted if isinstance(topic, str)]
    found = by_topic(partition_of(one, what) for one in wanted or () if not isinstance(one, str))
    if names or names is None:
        for topic in (yield from describe_topics(names, backoff=backoff, timeout_s=timeout_s)):
            if names is not None:
                raise_first([(topic["error_code"], None, f"topic {topic['name']}")])
            found[topic["name"]] = sorted(one["partition_index"] for one in topic["partitions"])
    return found


def describe_topic_partitions(
    topics: Iterable[str] | None = None,
    response_partition_limit: int = 2000,
    cursor: Mapping[str, Any] | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[str, Any]]:
    """A page of topics (None or none: of all), in the order of their names: ``{"topics": [{"error_code", "name",
    "topic_id", "is_internal", "partitions": [...], "topic_authorized_operations", "authorized_operations"}],
    "next_cursor": {"topic_name", "partition_index"}}``. ``next_cursor``, None on the last page, is the ``cursor`` of
    the next. A partition has ``eligible_leader_replicas`` and ``last_known_elr``, too. A topic that is not there has
    ``error_code`` 3.

    Source: KIP-966; brokers with KRaft since 3.8.
    """
    if isinstance(topics, (str, bytes)):
        raise IllegalArgumentError(f"topics={topics!r}: a list of names, not one text")
    message = DescribeTopicPartitionsRequest
    start = None
    try:
        if cursor is not None:
            start = message.Cursor(topic_name=cursor["topic_name"], partition_index=cursor["partition_index"])
    except (KeyError, TypeError):
        raise IllegalArgumentError(f"cursor={cursor!r}: the next_cursor of the page before") from None
    request = message(
        topics=[message.TopicRequest(name=name) for name in topics or ()],
        response_partition_limit=response_partition_limit,
        cursor=start,
    )
    found = to_dict((yield from request_api(_DESCRIBE_TOPIC_PARTITIONS, request, backoff, timeout_s)))
    for topic in found["topics"]:
        topic["authorized_operations"] = operations_of(topic["topic_authorized_operations"])
    return {name: found[name] for name in ("topics", "next_cursor")}


def _new_partitions(topic: str, given: NewPartitions | int | Mapping[str, Any]) -> NewPartitions:
    if isinstance(given, NewPartitions):
        return given
    if isinstance(given, Mapping) and "count" in given:
        return NewPartitions(given["count"], given.get("assignments"))
    if is_integer(given):
        return NewPartitions(given)
    raise IllegalArgumentError(
        f'{topic}: {given!r}: the total count of partitions, or {{"count": total, "assignments": [[broker id]]}}'
    )


def list_topics(*, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[list[str]]:
    """The names of all topics."""
    answer = yield from retrying(
        lambda: metadata_of(None), what="listing the topics", backoff=backoff, timeout_s=timeout_s
    )
    return [topic.name for topic in answer.topics if topic.name is not None]


def wait_for_topics(topic_names: Iterable[str], *, timeout_s: float = 10.0) -> Dialogue[None]:
    """Until each partition of the topics has a leader: a broker learns of a new topic a moment after its creation.

    KafkaTimeoutError, with what was missing, when the time is over.
    """
    names = list_of(topic_names, "topic_names", "a list of names, not one text")
    if not names:
        return
    give_up_at = (yield from now()) + timeout_s
    reason = ""
    while True:
        try:
            answer = yield from within(give_up_at, metadata_of(names))
            reason = ""
            for topic in answer.topics:
                code = topic.error_code or next((p.error_code for p in topic.partitions if p.error_code), 0)
                if code:
                    reason = f"{topic.name}: {for_code(code).__name__}"
                elif not topic.partitions or any(p.leader_id < 0 for p in topic.partitions):
                    reason = f"{topic.name}: not every partition has a leader"
            if not reason:
                yield from refresh_metadata(names)
                return
        except KafkaError as error:
            if not error.retriable or isinstance(error, Cancelled):
                raise
            if not reason or (yield from time_left(give_up_at)):  # a last look that was cut short proves nothing
                reason = str(error)
        if not (yield from time_left(give_up_at)):
            raise KafkaTimeoutError(f"topics are not ready after {timeout_s:g} s: {reason}")
        yield from sleep(0.05)


def metadata_of(topics: Sequence[str | UUID] | None, *, with_operations: bool = False) -> Dialogue[MetadataResponse]:
    """The cluster's metadata with these topics, all of them for None. Tries nothing twice, and never creates a topic: a
    broker whose version lacks that is asked for all of them."""
    spoken = _NO_CREATION_SINCE

    def build(version: int) -> MetadataRequest:
        nonlocal spoken
        spoken = version
        wanted: list[MetadataRequest.MetadataRequestTopic] | None
        if topics is None or version < _NO_CREATION_SINCE:
            wanted = None if version >= 1 else []
        else:
            wanted = [
                MetadataRequest.MetadataRequestTopic(topic_id=topic, name=None)
                if isinstance(topic, UUID)
                else MetadataRequest.MetadataRequestTopic(name=topic)
                for topic in topics
            ]
        request = MetadataRequest(topics=wanted)
        if version >= _NO_CREATION_SINCE:
            request.allow_auto_topic_creation = False
        if version >= _OPERATIONS_SINCE:
            request.include_topic_authorized_operations = with_operations
        return request

    by_id = topics is not None and any(isinstance(topic, UUID) for topic in topics)
    answer = yield from send(AnyNode(), ByVersion(MetadataRequest, build), min_version=12 if by_id else None)
    if topics is not None and spoken < _NO_CREATION_SINCE:
        there = {topic.name: topic for topic in answer.topics}
        unknown = UnknownTopicOrPartitionError.errno
        answer.topics = [
            there.get(name) or MetadataResponse.MetadataResponseTopic(error_code=unknown, name=name, partitions=[])
            for name in map(str, topics)
        ]
    return answer


def _as_new_topics(given: NewTopics) -> list[NewTopic]:
    if isinstance(given, Mapping):
        return [
            NewTopic(
                name,
                options.get("num_partitions", -1),
                options.get("replication_factor", -1),
                options.get("assignments"),
                options.get("configs"),
            )
            for name, options in given.items()
        ]
    topics = list_of(given, "new_topics", "a list of NewTopic or names, not one")
    return [topic if isinstance(topic, NewTopic) else NewTopic(topic) for topic in topics]


def _creatable(topic: NewTopic) -> CreateTopicsRequest.CreatableTopic:
    by_hand = bool(topic.replica_assignments)
    return CreateTopicsRequest.CreatableTopic(
        name=topic.name,
        num_partitions=-1 if by_hand else topic.num_partitions,
        replication_factor=-1 if by_hand else topic.replication_factor,
        assignments=[
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.replica_assignments.items()
        ],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=name, value=None if value is None else str(value))
            for name, value in topic.topic_configs.items()
        ],
    )


# Dialogues about where partitions are: moves to other brokers (KIP-455), and elections of leaders (KIP-183, KIP-460).
#
# All of them are the controller's. A move goes on behind its answer: ``list_partition_reassignments`` shows how far.


def alter_partition_reassignments(
    reassignments: Mapping[TopicPartition, Sequence[int] | None], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, type[BrokerResponseError] | None]]:
    """Let partitions move to these brokers, the preferred leader first; None calls a move off. ``{partition: error
    class}``, None where the move has begun (InvalidReplicationAssignmentError, UnknownTopicOrPartitionError,
    NoReassignmentInProgressError; None, too, when an answer before was lost, which may have been that it was called
    off).

    Raises the error of the request (ClusterAuthorizationFailedError). Source: KIP-455; brokers since 2.4.
    """
    wanted = {}
    for key, given in mapping_of(reassignments, "reassignments", "{TopicPartition: [broker id]} is needed").items():
        partition = partition_of(key, "reassignments")
        name = f"{partition.topic}-{partition.partition}: brokers"
        form = "a list of their ids, at least one; None calls a move off"
        wanted[partition] = None if given is None else numbers_of(given, name, form)
        if wanted[partition] == []:
            raise IllegalArgumentError(f"{name}={given!r}: {form}")
    if not wanted:
        return {}
    message = AlterPartitionReassignmentsRequest

    def move_of(partition: TopicPartition) -> AlterPartitionReassignmentsRequest.ReassignablePartition:
        return message.ReassignablePartition(partition_index=partition.partition, replicas=wanted[partition])

    topics = topics_as(message.ReassignableTopic, by_topic(wanted), move_of)
    request = message(timeout_ms=int(timeout_s * 1000), topics=topics)
    lost: list[KafkaError] = []
    answer = yield from request_api(_ALTER_REASSIGNMENTS, request, backoff, timeout_s, lost=lost)
    found: dict[TopicPartition, type[BrokerResponseError] | None] = {}
    for partition, each in each_partition(answer.responses):
        error = for_code(each.error_code)
        is_over = lost and error is NoReassignmentInProgressError and wanted.get(partition) is None
        found[partition] = error if each.error_code and not is_over else None
    return found


def list_partition_reassignments(
    topic_partitions: Partitions | None = None, *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[dict[TopicPartition, dict[str, list[int]]]]:
    """The moves that are under way, among these partitions or (None) all: ``{partition: {"replicas",
    "adding_replicas", "removing_replicas"}}``, each a list of brokers' ids. ``replicas`` has those that come and go,
    too. A partition that is not there moves nowhere.

    Raises the error of the request. Source: KIP-455; brokers since 2.4.
    """
    give_up_at = (yield from now()) + timeout_s
    message = ListPartitionReassignmentsRequest
    topics = None
    if topic_partitions is not None:
        wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
        topics = topics_as(message.ListPartitionReassignmentsTopics, wanted)
    left_s = yield from time_left(give_up_at)
    request = message(timeout_ms=int(left_s * 1000), topics=topics)
    answer = yield from request_api(_LIST_REASSIGNMENTS, request, backoff, left_s)
    return {
        partition: {name: list(getattr(each, name)) for name in ("replicas", "adding_replicas", "removing_replicas")}
        for partition, each in each_partition(answer.topics)
    }


def elect_leaders(
    election_type: ElectionType | int | str,
    topic_partitions: Partitions | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    raise_errors: bool = True,
) -> Dialogue[dict[str, Any]]:
    """Elect leaders of these partitions or (None) of all: ``{"error_code", "replica_election_results": [{"topic",
    "partition_result": [{"partition_id", "error_code", "error_message"}]}]}``.

    With ``raise_errors`` the first error is raised (PreferredLeaderNotAvailableError,
    EligibleLeadersNotAvailableError), but not ElectionNotNeededError: the leader was the right one. Source: KIP-183,
    brokers since 2.2; unclean elections KIP-460, since 2.4.
    """
    kind = kind_of(ElectionType, election_type, "election_type")
    give_up_at = (yield from now()) + timeout_s
    wanted = yield from partitions_of(topic_partitions, backoff=backoff, timeout_s=timeout_s)
    if not wanted:
        return {"error_code": 0, "replica_election_results": []}
    api, least = (_ELECT_LEADERS, None) if kind is ElectionType.PREFERRED else (_ELECT_ANY, 1)
    left_s = yield from time_left(give_up_at)
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=topics_as(ElectLeadersRequest.TopicPartitions, wanted),
        timeout_ms=int(left_s * 1000),
    )
    answer = yield from request_api(api, request, backoff, left_s, raise_errors=False, min_version=least)
    if raise_errors:
        passed_over: set[type[BrokerResponseError]] = {ElectionNotNeededError}
        if topic_partitions is None:
            passed_over.add(UnknownTopicOrPartitionError)  # deleted since all were listed
        raise_first(entry for entry in api.entries(answer) if for_code(entry[0]) not in passed_over)
    found = to_dict(answer)
    return {name: found[name] for name in ("error_code", "replica_election_results")}

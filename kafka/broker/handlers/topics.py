"""Topics and partitions: CreateTopics, DeleteTopics, CreatePartitions (KIP-195), DeleteRecords (KIP-107), and the
requests of leader election and reassignment, which are checked and find nothing to do: one broker leads every
partition.

All are complete when they are answered, whatever the timeout. DeleteRecords moves the log start offset, for share
groups too, and deletes the segments below it.

Different from Apache Kafka 4.3.0: one broker, so a replication factor other than 1 (or -1) is refused (38), as there.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from kafka.broker.config import TOPIC_SETTINGS, check_topic_settings, list_of
from kafka.broker.error_responses import answer_each, error_code, error_text, failed
from kafka.broker.handlers.configs import topic_value
from kafka.broker.log import Topic
from kafka.broker.registry import PartitionRef, RequestContext, handles
from kafka.broker.topics import (
    INTERNAL_TOPICS,
    MAX_PARTITIONS_PER_REQUEST,
    check_new_topic,
    check_replicas,
    create_topic,
)
from kafka.errors import (
    BrokerResponseError,
    ElectionNotNeededError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    UnknownError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_CreateResult = CreateTopicsResponse.CreatableTopicResult
_GrowResult = CreatePartitionsResponse.CreatePartitionsTopicResult
_DeleteResult = DeleteTopicsResponse.DeletableTopicResult


@handles(CreateTopicsRequest)
def create_topics(broker: Broker, call: RequestContext[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.request
    count_of = Counter(wanted.name for wanted in request.topics)
    total = sum(_partitions_asked_for(broker, wanted) for wanted in request.topics)
    if total > MAX_PARTITIONS_PER_REQUEST:
        excessive = PolicyViolationError("Excessively large number of partitions per request.")
        topics = [failed(_CreateResult, excessive, name=wanted.name, configs=[]) for wanted in request.topics]
        return CreateTopicsResponse(topics=topics)
    once = sum(1 for count in count_of.values() if count == 1)
    made = []

    def create(wanted: CreateTopicsRequest.CreatableTopic) -> _CreateResult:
        if count_of[wanted.name] > 1:
            raise InvalidRequestError("Duplicate topic name.")
        if total + once > MAX_PARTITIONS_PER_REQUEST:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        result = _create(broker, wanted, request.validate_only)
        if not request.validate_only:
            made.append(wanted.name)
        return result

    results = answer_each(
        {one.name: one for one in request.topics}.values(),  # one answer for each name
        create,
        lambda wanted, error: failed(_CreateResult, error, name=wanted.name, configs=[]),
    )
    if made:
        broker.topics_changed(made)
    return CreateTopicsResponse(topics=results)


def _create(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic, validate_only: bool) -> _CreateResult:
    """Checks name, settings and partitions, in Kafka's order, and creates the topic unless ``validate_only``. The
    result has all settings in force, with their sources (KIP-525)."""
    check_new_topic(broker.metadata, wanted.name)
    settings: dict[str, str] = {}
    for setting in wanted.configs:
        if setting.value is None:
            raise InvalidConfigurationError(f"Null value not supported for topic configs: {setting.name}")
        settings[setting.name] = setting.value
    check_topic_settings(settings)
    partitions = _partition_count(broker, wanted)
    if validate_only:
        topic = Topic(wanted.name, broker.ids.new_topic_id(), partitions)
    else:
        topic = create_topic(broker.metadata, broker.ids, wanted.name, partitions, settings)
    shown = {name: topic_value(broker, settings, name) for name in TOPIC_SETTINGS}
    return _CreateResult(
        name=wanted.name,
        topic_id=topic.topic_id,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(name=name, value=found.value, config_source=found.source)
            for name, found in shown.items()
        ],
    )


def _partitions_asked_for(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    return broker.config.number("num.partitions") if wanted.num_partitions == -1 else wanted.num_partitions


def _partition_count(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic) -> int:
    if wanted.assignments:
        _check_assignments(broker, wanted)
        return len(wanted.assignments)
    if wanted.replication_factor == 0 or wanted.replication_factor < -1:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if wanted.num_partitions == 0 or wanted.num_partitions < -1:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    if wanted.replication_factor > 1:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {wanted.replication_factor} time(s): The target replication factor of "
            f"{wanted.replication_factor} cannot be reached because only 1 broker(s) are registered or some brokers "
            "have all their log directories cordoned."
        )
    return broker.config.number("num.partitions") if wanted.num_partitions == -1 else wanted.num_partitions


def _check_assignments(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic) -> None:
    if wanted.replication_factor != -1:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if wanted.num_partitions != -1:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    for assignment in wanted.assignments:
        check_replicas(broker.config.node_id, assignment.broker_ids)
    if sorted(one.partition_index for one in wanted.assignments) != list(range(len(wanted.assignments))):
        raise InvalidReplicationAssignmentError("partitions should be a consecutive 0-based integer sequence")


@handles(DeleteTopicsRequest)
def delete_topics(broker: Broker, call: RequestContext[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    """Each topic by itself, by name, or by id since version 6 (KIP-516). A name that the request has twice is refused
    once. What depends on topics (groups, offsets) is informed once for all of them."""
    request = call.request
    if call.version < 6:
        wanted = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]
    else:
        wanted = request.topics
    gone = []
    count_of = Counter(one.name for one in wanted if one.name is not None)

    def delete(one: DeleteTopicsRequest.DeleteTopicState) -> _DeleteResult:
        if one.name is not None and count_of[one.name] > 1:
            raise InvalidRequestError("Duplicate topic name.")
        topic = _topic_to_delete(broker, one)
        _delete_topic(broker, topic)
        gone.append(topic.name)
        return _DeleteResult(name=topic.name, topic_id=topic.topic_id)

    responses = answer_each(
        {(one.name, one.topic_id): one for one in wanted}.values(),
        delete,
        lambda one, error: failed(_DeleteResult, error, name=one.name, topic_id=one.topic_id),
    )
    if gone:
        broker.topics_changed(gone)
    return DeleteTopicsResponse(responses=responses)


def _topic_to_delete(broker: Broker, wanted: DeleteTopicsRequest.DeleteTopicState) -> Topic:
    if wanted.name is None:
        if wanted.topic_id == ZERO_UUID:
            raise InvalidRequestError("Neither topic name nor id were specified.")
        topic = broker.metadata.topic_by_id(wanted.topic_id)
        if topic is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return topic
    if wanted.topic_id != ZERO_UUID:
        raise InvalidRequestError("You may not specify both topic name and topic id.")
    topic = broker.metadata.topic(wanted.name)
    if topic is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return topic


def _delete_topic(broker: Broker, topic: Topic) -> None:
    for log in broker.logs.open_logs(topic):
        broker.purgatory.notify(log)
    broker.logs.delete_topic(topic.name)
    broker.state.on_topic_deleted(topic.name)
    broker.offsets.topic_deleted(topic.name)
    broker.share.topic_deleted(topic.topic_id)
    broker.sessions.drop_partitions((topic.topic_id, number) for number in range(topic.partitions))


# -- partitions and records -------------------------------------------------------------------------------------------


TO_THE_END = -1

_DeletedRecords = DeleteRecordsResponse.DeleteRecordsPartitionResult


@handles(CreatePartitionsRequest)
def create_partitions(broker: Broker, call: RequestContext[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    request = call.request
    count_of = Counter(wanted.name for wanted in request.topics)
    more = 0
    grown = []

    def grow(wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> _GrowResult:
        nonlocal more
        if count_of[wanted.name] > 1:
            raise InvalidRequestError("Duplicate topic name.")
        more += _check_growth(broker, wanted)
        if more > MAX_PARTITIONS_PER_REQUEST:
            raise UnknownError("more partitions than one request can make")  # -1: Kafka's answer
        if not request.validate_only:
            broker.metadata.grow_topic(wanted.name, wanted.count)
            grown.append(wanted.name)
        return _GrowResult(name=wanted.name)

    results = answer_each(
        {one.name: one for one in request.topics}.values(),  # one answer for each name
        grow,
        lambda one, error: failed(_GrowResult, error, name=one.name, error_message=error_text(error) or None),
    )
    if grown:
        broker.topics_changed(grown)
    return CreatePartitionsResponse(results=results)


def _check_growth(broker: Broker, wanted: CreatePartitionsRequest.CreatePartitionsTopic) -> int:
    """How many partitions are to be added."""
    topic = broker.topic(wanted.name)
    if wanted.count == topic.partitions:
        raise InvalidPartitionsError(f"Topic already has {topic.partitions} partition(s).")
    if wanted.count < topic.partitions:
        raise InvalidPartitionsError(
            f"The topic {wanted.name} currently has {topic.partitions} partition(s); {wanted.count} would not be an "
            "increase."
        )
    more = wanted.count - topic.partitions
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            raise InvalidReplicationAssignmentError(
                f"Attempted to add {more} additional partition(s), but only {len(wanted.assignments)} assignment(s) "
                "were specified."
            )
        for assignment in wanted.assignments:
            check_replicas(broker.config.node_id, assignment.broker_ids)
    return more


def _named_partitions(request: DeleteRecordsRequest) -> list[PartitionRef]:
    return [(topic.name, one.partition_index) for topic in request.topics for one in topic.partitions]


@handles(DeleteRecordsRequest, opens=_named_partitions)
def delete_records(broker: Broker, call: RequestContext[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    wanted: dict[str, dict[int, int]] = {}  # of a partition that is named twice the last counts
    for topic in call.request.topics:
        for one in topic.partitions:
            wanted.setdefault(topic.name, {})[one.partition_index] = one.offset
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponse.DeleteRecordsTopicResult(
                name=name,
                partitions=answer_each(
                    offsets.items(),
                    partial(_delete_records, broker, name),
                    lambda one, error: failed(_DeletedRecords, error, partition_index=one[0], low_watermark=-1),
                ),
            )
            for name, offsets in wanted.items()
        ],
    )


def _delete_records(broker: Broker, name: str, wanted: tuple[int, int]) -> _DeletedRecords:
    """Raises one partition's log start offset. ``wanted``: its number, and the offset (-1: to the end). Not of internal
    topics, nor where ``cleanup.policy`` is compact alone."""
    number, offset = wanted
    topic = broker.topic(name)
    log = broker.logs.log(topic, number)
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"{name} is the broker's own")
    policy = list_of(broker.topic_setting(topic, "cleanup.policy"))
    if "compact" in policy and "delete" not in policy:
        raise PolicyViolationError(f"{name} is compacted, so its records cannot be deleted")
    if offset == TO_THE_END:
        offset = log.end_offset
    if offset < 0:
        raise OffsetOutOfRangeError(f"{log.name} has no offset {offset}")
    start = log.delete_before(offset)
    broker.log_start_moved(topic, number, start)
    return _DeletedRecords(partition_index=number, low_watermark=start)


# -- leaders and reassignments ----------------------------------------------------------------------------------------


PREFERRED, UNCLEAN = 0, 1
_ELECTION_TYPES: Final = (PREFERRED, UNCLEAN)

_ElectionResult = ElectLeadersResponse.ReplicaElectionResult


@handles(ElectLeadersRequest)
def elect_leaders(broker: Broker, call: RequestContext[ElectLeadersRequest]) -> ElectLeadersResponse:
    request = call.request
    is_unknown = request.election_type not in _ELECTION_TYPES
    if request.topic_partitions is None:
        results = (
            [] if is_unknown else [_ElectionResult(topic=topic.name, partition_result=[]) for topic in broker.metadata]
        )
    else:
        results = [
            _ElectionResult(
                topic=asked.topic,
                partition_result=[_elect(broker, asked.topic, one, request.election_type) for one in asked.partitions],
            )
            for asked in request.topic_partitions
        ]
    asks_for_some = request.topic_partitions is None or bool(results)
    code = error_code(InvalidRequestError) if is_unknown and call.version >= 1 and asks_for_some else 0
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _elect(broker: Broker, name: str, number: int, kind: int) -> ElectLeadersResponse.PartitionResult:
    topic = broker.metadata.topic(name)
    error: BrokerResponseError
    if kind not in _ELECTION_TYPES:
        error = InvalidRequestError(f"Unknown election type {kind}")
    elif topic is None:
        error = UnknownTopicOrPartitionError(f"No such topic as {name}")
    elif not 0 <= number < topic.partitions:
        error = UnknownTopicOrPartitionError(f"No such partition as {name}-{number}")
    else:
        error = ElectionNotNeededError("Leader election not needed for topic partition.")
    return failed(ElectLeadersResponse.PartitionResult, error, partition_id=number)


@handles(AlterPartitionReassignmentsRequest)
def alter_partition_reassignments(
    broker: Broker, call: RequestContext[AlterPartitionReassignmentsRequest]
) -> AlterPartitionReassignmentsResponse:
    request = call.request
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change or not request.topics,
        error_message=None if request.topics else "",
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name,
                partitions=answer_each(
                    topic.partitions,
                    partial(_reassign, broker, topic.name),
                    lambda one, error: failed(_Reassigned, error, partition_index=one.partition_index),
                ),
            )
            for topic in request.topics
        ],
    )


_Reassigned = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


def _reassign(
    broker: Broker, name: str, wanted: AlterPartitionReassignmentsRequest.ReassignablePartition
) -> _Reassigned:
    """A single broker has nothing to move: replicas other than itself are refused, and there is never a reassignment
    to cancel."""
    number = wanted.partition_index
    topic = broker.metadata.topic(name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {name}.")
    if not 0 <= number < topic.partitions:
        raise UnknownTopicOrPartitionError(f"Unable to find partition {name}:{number}.")
    if wanted.replicas is None:
        code = error_code(NoReassignmentInProgressError)
        return _Reassigned(partition_index=number, error_code=code, error_message=None)
    check_replicas(broker.config.node_id, wanted.replicas)
    return _Reassigned(partition_index=number, error_message=None)


@handles(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    broker: Broker, call: RequestContext[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None, topics=[])

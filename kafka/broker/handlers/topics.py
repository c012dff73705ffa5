"""CreateTopics and DeleteTopics. Both are done when they are answered, whatever the timeout.

Different from Apache Kafka 4.3.0: one broker, so a replication factor other than 1 (or -1) is refused (38), as there.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafka.broker.codes import error_code, error_text
from kafka.broker.handlers.configs import topic_value
from kafka.broker.log import Topic
from kafka.broker.registry import Call, handles
from kafka.broker.settings import TOPIC_SETTINGS, check_topic_settings
from kafka.broker.topics import MAX_PARTITIONS_PER_REQUEST, check_new_topic, check_replicas, create_topic
from kafka.errors import (
    BrokerResponseError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    PolicyViolationError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.topics import CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_Result = CreateTopicsResponse.CreatableTopicResult
_DeleteResult = DeleteTopicsResponse.DeletableTopicResult


@handles(CreateTopicsRequest, versions=(0, 7))
def create_topics(broker: Broker, call: Call[CreateTopicsRequest]) -> CreateTopicsResponse:
    request = call.request
    count_of = Counter(wanted.name for wanted in request.topics)
    total = sum(_partitions_asked_for(broker, wanted) for wanted in request.topics)
    if total > MAX_PARTITIONS_PER_REQUEST:
        excessive = PolicyViolationError("Excessively large number of partitions per request.")
        return CreateTopicsResponse(topics=[_refused(wanted.name, excessive) for wanted in request.topics])
    once = sum(1 for count in count_of.values() if count == 1)
    results = []
    made = []
    for wanted in {one.name: one for one in request.topics}.values():  # one answer for each name
        try:
            if count_of[wanted.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            if total + once > MAX_PARTITIONS_PER_REQUEST:
                raise PolicyViolationError("Unable to perform excessively large batch operation.")
            results.append(_create(broker, wanted, request.validate_only))
            if not request.validate_only:
                made.append(wanted.name)
        except BrokerResponseError as error:
            results.append(_refused(wanted.name, error))
    if made:
        broker.topics_changed(made)
    return CreateTopicsResponse(topics=results)


def _refused(name: str, error: BrokerResponseError) -> _Result:
    return _Result(name=name, error_code=error_code(error), error_message=error_text(error), configs=[])


def _create(broker: Broker, wanted: CreateTopicsRequest.CreatableTopic, validate_only: bool) -> _Result:
    check_new_topic(broker, wanted.name)
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
        topic = create_topic(broker, wanted.name, partitions, settings)
    shown = {name: topic_value(broker, settings, name) for name in TOPIC_SETTINGS}
    return _Result(
        name=wanted.name,
        topic_id=topic.topic_id,
        error_code=0,
        error_message=None,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=name, value=found.value, config_source=found.source
            )
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
        raise InvalidRequestError(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    for assignment in wanted.assignments:
        check_replicas(broker, assignment.broker_ids)
    if sorted(one.partition_index for one in wanted.assignments) != list(range(len(wanted.assignments))):
        raise InvalidReplicationAssignmentError("partitions should be a consecutive 0-based integer sequence")


@handles(DeleteTopicsRequest, versions=(0, 6))
def delete_topics(broker: Broker, call: Call[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    request = call.request
    if call.version < 6:
        wanted = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names]
    else:
        wanted = request.topics
    responses = []
    gone = []
    count_of = Counter(one.name for one in wanted if one.name is not None)
    for one in {(one.name, one.topic_id): one for one in wanted}.values():
        try:
            if one.name is not None and count_of[one.name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            topic = _topic_to_delete(broker, one)
            _delete(broker, topic)
            gone.append(topic.name)
            responses.append(_DeleteResult(name=topic.name, topic_id=topic.topic_id, error_code=0))
        except BrokerResponseError as error:
            responses.append(
                _DeleteResult(
                    name=one.name if one.name is not None or call.version >= 6 else "",
                    topic_id=one.topic_id,
                    error_code=error_code(error),
                    error_message=error_text(error),
                )
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


def _delete(broker: Broker, topic: Topic) -> None:
    for log in broker.logs.opened(topic):
        broker.purgatory.touch(log)
    broker.logs.delete_topic(topic.name)
    broker.state.deleted(topic.name)
    broker.offsets.topic_deleted(topic.name)
    broker.share.topic_deleted(topic.topic_id)
    broker.sessions.drop_partitions((topic.topic_id, number) for number in range(topic.partitions))

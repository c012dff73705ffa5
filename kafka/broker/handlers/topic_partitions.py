"""DescribeTopicPartitions (KIP-966): topics in the order of their names, as many partitions as one answer may have.

Where the answer stops short, its cursor says where the next request begins.

Different from Apache Kafka 4.3.0: nothing that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.codes import error_code
from kafka.broker.log import Topic
from kafka.broker.operations import ALL_TOPIC_OPERATIONS
from kafka.broker.registry import Call, handles
from kafka.broker.topics import INTERNAL_TOPICS, check_topic_name
from kafka.errors import BrokerResponseError, InvalidRequestError, UnknownError, UnknownTopicOrPartitionError
from kafka.protocol.topics import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest, versions=(0, 0))
def describe_topic_partitions(
    broker: Broker, call: Call[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    request = call.request
    named = [topic.name for topic in request.topics]
    cursor = request.cursor
    fault = _fault(named, cursor)
    if fault is not None:
        code = error_code(fault)
        refused = [_Topic(error_code=code, name=name, topic_id=ZERO_UUID, partitions=[]) for name in named]
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=refused)
    names = sorted(set(named) if named else {topic.name for topic in broker.metadata})
    left = max(1, min(request.response_partition_limit, broker.config.number("max.request.partition.size.limit")))
    topics: list[_Topic] = []
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            return _answer(topics, _Cursor(topic_name=name, partition_index=0))
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        topic = broker.metadata.topic(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        end = min(topic.partitions, first + left)
        topics.append(_described(broker, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partitions:
            return _answer(topics, _Cursor(topic_name=name, partition_index=end))
    return _answer(topics, None)


def _fault(
    named: list[str], cursor: DescribeTopicPartitionsRequest.Cursor | None
) -> type[BrokerResponseError] | None:
    if cursor is None:
        return UnknownError if "" in named else None
    if cursor.partition_index < 0 or (named and cursor.topic_name not in named):
        return InvalidRequestError
    return None


def _answer(topics: list[_Topic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=cursor)


def _missing(name: str) -> _Topic:
    code = error_code(UnknownTopicOrPartitionError)
    try:
        check_topic_name(name)
    except BrokerResponseError as error:
        code = error_code(error)
    return _Topic(
        error_code=code, name=name, topic_id=ZERO_UUID, partitions=[], topic_authorized_operations=ALL_TOPIC_OPERATIONS
    )


def _described(broker: Broker, topic: Topic, numbers: range) -> _Topic:
    node_id = broker.config.node_id
    return _Topic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _Partition(
                error_code=0,
                partition_index=number,
                leader_id=node_id,
                leader_epoch=broker.ids.leader_epoch(topic, number),
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for number in numbers
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )

"""Metadata: this broker, its topics, their partitions, all of which it leads.

A topic that is missing is made when the request allows it and ``auto.create.topics.enable`` says so, with the broker's
``num.partitions``. As in Apache Kafka, the answer that makes it still says UNKNOWN_TOPIC_OR_PARTITION (3), and the next
one has it.

Different from Apache Kafka 4.3.0: leader epochs stay 0; no authorizer, so everybody may do everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.broker import error_code
from kafka.broker.log import Topic
from kafka.broker.operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.broker.topics import check_topic_name, create_topic
from kafka.errors import BrokerResponseError, UnknownTopicIdError, UnknownTopicOrPartitionError
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(MetadataRequest, versions=(0, 13))
def metadata(broker: Broker, call: Call[MetadataRequest]) -> MetadataResponse:
    request = call.request
    node_id = broker.config.node_id
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_describe(topic, node_id) for topic in broker.metadata]
    else:
        made: list[str] = []
        asked = {(wanted.topic_id, wanted.name): wanted for wanted in request.topics}  # each once
        topics = [
            _by_id(broker, wanted, node_id)
            if wanted.topic_id != ZERO_UUID
            else _by_name(broker, wanted.name or "", node_id, request.allow_auto_topic_creation, made)
            for wanted in asked.values()
        ]
        if made:
            broker.topics_changed(made)
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = 0 if topic.error_code else ALL_TOPIC_OPERATIONS
    host, port = broker.endpoint(call.connection)
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port)],
        cluster_id=broker.cluster_id,
        controller_id=node_id,
        topics=topics,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _by_id(
    broker: Broker, wanted: MetadataRequest.MetadataRequestTopic, node_id: int
) -> MetadataResponse.MetadataResponseTopic:
    topic = broker.metadata.topic_by_id(wanted.topic_id)
    if topic is None:
        return MetadataResponse.MetadataResponseTopic(
            error_code=int(UnknownTopicIdError.errno or 0), name=None, topic_id=wanted.topic_id, partitions=[]
        )
    return _describe(topic, node_id)


def _by_name(
    broker: Broker, name: str, node_id: int, may_create: bool, made: list[str]
) -> MetadataResponse.MetadataResponseTopic:
    topic = broker.metadata.topic(name)
    if topic is not None and name not in made:
        return _describe(topic, node_id)
    code = int(UnknownTopicOrPartitionError.errno or 0)
    try:
        check_topic_name(name)
        if topic is None and may_create and broker.config.flag("auto.create.topics.enable"):
            create_topic(broker, name, broker.config.number("num.partitions"))
            made.append(name)
    except BrokerResponseError as error:
        code = error_code(error)
    return MetadataResponse.MetadataResponseTopic(error_code=code, name=name, partitions=[])


def _describe(topic: Topic, node_id: int) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=node_id,
                leader_epoch=0,
                replica_nodes=[node_id],
                isr_nodes=[node_id],
            )
            for number in range(topic.partitions)
        ],
    )

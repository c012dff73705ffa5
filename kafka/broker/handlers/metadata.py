"""Metadata: this broker, its topics, their partitions, all of which it leads.

A topic that is missing is made when the request allows it and ``auto.create.topics.enable`` says so, with the broker's
``num.partitions``. As in Apache Kafka, the answer that makes it still says UNKNOWN_TOPIC_OR_PARTITION (3), and the next
one has it. One request makes :data:`MOST_MADE` at most; clients ask again, and that makes the next ones.

Leader epochs go up by two with each start of the broker, as those of a lone Apache Kafka do.

Different from Apache Kafka 4.3.0: no authorizer, so everybody may do everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.log import Topic
from kafka.broker.operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.broker.topics import INTERNAL_TOPICS, check_topic_name, create_topic
from kafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    UnknownError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_UNKNOWN_ID: Final = error_code(UnknownTopicIdError)
MOST_MADE: Final = 500
"""Topics that one request makes: some tens of ms."""
IDS_SINCE = 12
"""The first version that may ask for topics by their ids; versions 10 and 11 only show them."""


@handles(MetadataRequest, versions=(0, 13))
def metadata(broker: Broker, call: Call[MetadataRequest]) -> MetadataResponse:
    request = call.request
    node_id = broker.config.node_id
    fault = _fault(call)
    if fault:
        return _refused(request, fault)
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_describe(broker, topic) for topic in broker.metadata]
    else:
        topics = _asked_for(broker, request)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != _UNKNOWN_ID:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    host, port = broker.endpoint(call.connection)
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port)],
        cluster_id=broker.ids.cluster_id,
        controller_id=node_id,
        topics=topics,
        cluster_authorized_operations=ALL_CLUSTER_OPERATIONS
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


def _fault(call: Call[MetadataRequest]) -> int:
    """The error code of a request that names a topic in no way that its version has, as measured; 0 when it is well."""
    for wanted in call.request.topics or ():
        if call.version < IDS_SINCE and (wanted.name is None or wanted.topic_id != ZERO_UUID):
            return error_code(InvalidRequestError)
        if wanted.name is None and wanted.topic_id == ZERO_UUID:
            return error_code(UnknownError)
    return 0


def _refused(request: MetadataRequest, code: int) -> MetadataResponse:
    topics = [
        MetadataResponse.MetadataResponseTopic(
            error_code=code, name=wanted.name or "", topic_id=wanted.topic_id, partitions=[]
        )
        for wanted in request.topics or ()
    ]
    return MetadataResponse(brokers=[], topics=topics, error_code=code)


def _asked_for(broker: Broker, request: MetadataRequest) -> list[MetadataResponse.MetadataResponseTopic]:
    """Each topic once. Where one is asked for by its id, those that have no id are left out; ids that nobody knows come
    first, topics that are missing last."""
    wanted = request.topics or []
    ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID)
    if ids:
        found = {topic_id: broker.metadata.topic_by_id(topic_id) for topic_id in ids}
        unknown = [
            MetadataResponse.MetadataResponseTopic(error_code=_UNKNOWN_ID, name=None, topic_id=one, partitions=[])
            for one, topic in found.items()
            if topic is None
        ]
        return unknown + [_describe(broker, topic) for topic in found.values() if topic is not None]
    names = dict.fromkeys(one.name or "" for one in wanted)
    there = [topic for topic in map(broker.metadata.topic, names) if topic is not None]
    missing = [name for name in names if broker.metadata.topic(name) is None]
    described = [_describe(broker, topic) for topic in there]
    made: list[str] = []
    described += [_missing(broker, name, request.allow_auto_topic_creation, made) for name in missing]
    if made:
        broker.topics_changed(made)
    return described


def _missing(
    broker: Broker, name: str, may_create: bool, made: list[str]
) -> MetadataResponse.MetadataResponseTopic:
    code = error_code(UnknownTopicOrPartitionError)
    try:
        check_topic_name(name)
        if may_create and len(made) < MOST_MADE and broker.config.flag("auto.create.topics.enable"):
            if name in INTERNAL_TOPICS:
                broker.state.topic(name).ensure()
            else:
                create_topic(broker, name, broker.config.number("num.partitions"))
            made.append(name)
    except BrokerResponseError as error:
        code = error_code(error)
    return MetadataResponse.MetadataResponseTopic(
        error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )


def _describe(broker: Broker, topic: Topic) -> MetadataResponse.MetadataResponseTopic:
    nodes = [broker.config.node_id]
    return MetadataResponse.MetadataResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                error_code=0,
                partition_index=number,
                leader_id=nodes[0],
                leader_epoch=broker.ids.leader_epoch(topic, number),
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for number in range(topic.partitions)
        ],
    )

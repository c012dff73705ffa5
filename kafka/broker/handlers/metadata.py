"""What a client asks for first: ApiVersions (KIP-35, 511, 584), Metadata, DescribeTopicPartitions (KIP-966) and
FindCoordinator. This broker leads every partition and coordinates everything.

ApiVersions lists the requests of the release that is played, as far as there are handlers; the features are that
release's, too, except those whose APIs are not served. A version that the release lacks never comes this far
(:mod:`kafka.broker.emulation`).

Metadata creates a missing topic when the request allows it and ``auto.create.topics.enable`` is set, with the broker's
``num.partitions``. As in Apache Kafka, the response that creates it still says UNKNOWN_TOPIC_OR_PARTITION (3), and the
next one has it. One request creates :data:`MOST_MADE` at most; clients ask again, and that creates the next ones.
Leader epochs go up by two with each start of the broker, as those of a lone Apache Kafka do.

FindCoordinator creates the internal topic of a coordinator's state when a client first asks for that coordinator.

Different from Apache Kafka 4.3.0: no APIs of streams groups (88, 89) and of brokers' share state (83 to 87), and no
``streams.version`` while those of streams are missing; no authorizer, so every client may do everything; the internal
topic exists at once, so the first FindCoordinator is never answered with COORDINATOR_NOT_AVAILABLE (15).
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final
from uuid import UUID

from kafka.broker.error_responses import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    answer_each,
    error_code,
    failed,
    operations,
)
from kafka.broker.log import Topic
from kafka.broker.registry import RequestContext, handles
from kafka.broker.state.state_topic import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafka.broker.topics import INTERNAL_TOPICS, check_topic_name, create_topic
from kafka.errors import (
    BrokerResponseError,
    InvalidRequestError,
    KafkaStorageError,
    UnknownError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse
from kafka.protocol.topics import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_MetadataTopic = MetadataResponse.MetadataResponseTopic

_UNKNOWN_TOPIC_ID: Final = error_code(UnknownTopicIdError)
MOST_MADE: Final = 500
"""Topics that one request makes: some tens of ms."""
IDS_SINCE = 12
"""The first version that may ask for topics by their ids; versions 10 and 11 only show them."""


@handles(MetadataRequest)
def metadata(broker: Broker, call: RequestContext[MetadataRequest]) -> MetadataResponse:
    """All topics for null (in version 0: for an empty list), none for an empty list, else those named, which may be
    created."""
    request = call.request
    node_id = broker.config.node_id
    fault = _request_error(call)
    if fault:
        named = [(wanted.name or "", wanted.topic_id) for wanted in request.topics or ()]
        topics = [failed(_MetadataTopic, fault, name=name, topic_id=topic_id) for name, topic_id in named]
        return failed(MetadataResponse, fault, topics=topics)
    if request.topics is None or (call.version == 0 and not request.topics):
        topics = [_described_topic(broker, topic) for topic in broker.metadata]
    else:
        topics = _requested_topics(broker, request)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != _UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    host, port = broker.endpoint(call.connection)
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=node_id, host=host, port=port)],
        cluster_id=broker.ids.cluster_id,
        controller_id=node_id,
        topics=topics,
        cluster_authorized_operations=operations(request.include_cluster_authorized_operations, ALL_CLUSTER_OPERATIONS),
    )


def _request_error(call: RequestContext[MetadataRequest]) -> int:
    """The error code of a request that names a topic in no way that its version has, as measured; 0 when it is well."""
    for wanted in call.request.topics or ():
        if call.version < IDS_SINCE and (wanted.name is None or wanted.topic_id != ZERO_UUID):
            return error_code(InvalidRequestError)
        if wanted.name is None and wanted.topic_id == ZERO_UUID:
            return error_code(UnknownError)
    return 0


def _requested_topics(broker: Broker, request: MetadataRequest) -> list[_MetadataTopic]:
    """Each topic once. Where one is asked for by its id, those that have no id are left out; unknown ids come
    first, topics that are missing last."""
    wanted = request.topics or []
    ids = dict.fromkeys(one.topic_id for one in wanted if one.topic_id != ZERO_UUID)
    if ids:
        found = {topic_id: broker.metadata.topic_by_id(topic_id) for topic_id in ids}
        unknown = [
            failed(_MetadataTopic, _UNKNOWN_TOPIC_ID, name=None, topic_id=one)
            for one, topic in found.items()
            if topic is None
        ]
        return unknown + [_described_topic(broker, topic) for topic in found.values() if topic is not None]
    names = dict.fromkeys(one.name or "" for one in wanted)
    there = [topic for topic in map(broker.metadata.topic, names) if topic is not None]
    missing = [name for name in names if broker.metadata.topic(name) is None]
    described = [_described_topic(broker, topic) for topic in there]
    made: list[str] = []
    described += [_create_or_report_missing(broker, name, request.allow_auto_topic_creation, made) for name in missing]
    if made:
        broker.topics_changed(made)
    return described


def _create_or_report_missing(broker: Broker, name: str, may_create: bool, made: list[str]) -> _MetadataTopic:
    code = error_code(UnknownTopicOrPartitionError)
    try:
        check_topic_name(name)
        if may_create and len(made) < MOST_MADE and broker.config.flag("auto.create.topics.enable"):
            if name in INTERNAL_TOPICS:
                broker.state.topic(name).ensure()
            else:
                create_topic(broker.metadata, broker.ids, name, broker.config.number("num.partitions"))
            made.append(name)
    except BrokerResponseError as error:
        code = error_code(error)
    return failed(_MetadataTopic, code, name=name, is_internal=name in INTERNAL_TOPICS)


def _described_topic(broker: Broker, topic: Topic) -> _MetadataTopic:
    nodes = [broker.config.node_id]
    return _MetadataTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponse.MetadataResponsePartition(
                partition_index=number,
                leader_id=nodes[0],
                leader_epoch=broker.ids.leader_epoch(topic, number),
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for number in range(topic.partitions)
        ],
    )


# -- ApiVersions ------------------------------------------------------------------------------------------------------


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, call: RequestContext[ApiVersionsRequest]) -> ApiVersionsResponse:
    if call.version >= 3:
        for text in (call.request.client_software_name, call.request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise InvalidRequestError("")
        call.connection.set_software(call.request.client_software_name, call.request.client_software_version)
    release = broker.release
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=row.key, min_version=row.least, max_version=row.most)
            for row in release.apis()
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, least, most in release.supported_features()
            if least or call.version >= 4  # a minimum of 0 broke clients before version 4 (KAFKA-17011)
        ],
        finalized_features_epoch=broker.features.epoch,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in broker.features.finalized().items()
        ],
    )


# -- DescribeTopicPartitions ------------------------------------------------------------------------------------------


_DescribedTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_DescribedPartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
_Cursor = DescribeTopicPartitionsResponse.Cursor


@handles(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    broker: Broker, call: RequestContext[DescribeTopicPartitionsRequest]
) -> DescribeTopicPartitionsResponse:
    """Topics in order of their names, from the cursor on and up to the partition limit; ``next_cursor`` is where the
    next page begins (KIP-966). A wrong cursor refuses all named topics."""
    request = call.request
    named = [topic.name for topic in request.topics]
    cursor = request.cursor
    fault = error_code(_cursor_error(named, cursor))
    if fault:
        return DescribeTopicPartitionsResponse(topics=[failed(_DescribedTopic, fault, name=name) for name in named])
    names = sorted(set(named) if named else {topic.name for topic in broker.metadata})
    left = max(1, min(request.response_partition_limit, broker.config.number("max.request.partition.size.limit")))
    topics: list[_DescribedTopic] = []
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        if left == 0:
            return _page(topics, _Cursor(topic_name=name, partition_index=0))
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        topic = broker.metadata.topic(name)
        if topic is None:
            topics.append(_missing_topic(name))
            continue
        end = min(topic.partitions, first + left)
        topics.append(_described_partitions(broker, topic, range(first, end)))
        left -= max(0, end - first)
        if end < topic.partitions:
            return _page(topics, _Cursor(topic_name=name, partition_index=end))
    return _page(topics, None)


def _cursor_error(
    named: list[str], cursor: DescribeTopicPartitionsRequest.Cursor | None
) -> type[BrokerResponseError] | None:
    if cursor is None:
        return UnknownError if "" in named else None
    if cursor.partition_index < 0 or (named and cursor.topic_name not in named):
        return InvalidRequestError
    return None


def _page(topics: list[_DescribedTopic], cursor: _Cursor | None) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=cursor)


def _missing_topic(name: str) -> _DescribedTopic:
    code = error_code(UnknownTopicOrPartitionError)
    try:
        check_topic_name(name)
    except BrokerResponseError as error:
        code = error_code(error)
    return failed(_DescribedTopic, code, name=name, topic_authorized_operations=ALL_TOPIC_OPERATIONS)


def _described_partitions(broker: Broker, topic: Topic, numbers: range) -> _DescribedTopic:
    node_id = broker.config.node_id
    return _DescribedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            _DescribedPartition(
                partition_index=number,
                leader_id=node_id,
                leader_epoch=broker.ids.leader_epoch(topic, number),
                replica_nodes=[node_id],
                isr_nodes=[node_id],
                # Empty, not null: with a single replica, always in sync, there are none.
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=[],
            )
            for number in numbers
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


# -- FindCoordinator --------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)

GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1
SHARE_COORDINATOR: Final = 2

STATE_TOPICS: Final = {
    GROUP_COORDINATOR: CONSUMER_OFFSETS,
    TRANSACTION_COORDINATOR: TRANSACTION_STATE,
    SHARE_COORDINATOR: SHARE_GROUP_STATE,
}
"""Key type -> the topic of the coordinator's state."""

_Coordinator = FindCoordinatorResponse.Coordinator

NO_SUCH_KIND: Final = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


@handles(FindCoordinatorRequest)
def find_coordinator(broker: Broker, call: RequestContext[FindCoordinatorRequest]) -> FindCoordinatorResponse:
    """This broker for each key; versions before 4 have one key, and its error is the response's (KIP-699)."""
    request = call.request
    host, port = broker.endpoint(call.connection)
    node_id = broker.config.node_id
    if call.version < 4:
        try:
            _check_coordinator_key(broker, request.key, request.key_type, call.version)
        except InvalidRequestError as error:
            return failed(FindCoordinatorResponse, error, node_id=-1, port=-1)
        return FindCoordinatorResponse(error_message="NONE", node_id=node_id, host=host, port=port)

    def find(key: str) -> _Coordinator:
        _check_coordinator_key(broker, key, request.key_type, call.version)
        return _Coordinator(key=key, node_id=node_id, host=host, port=port, error_message="")

    return FindCoordinatorResponse(
        coordinators=answer_each(
            request.coordinator_keys, find, lambda key, error: failed(_Coordinator, error, key=key, node_id=-1, port=-1)
        )
    )


def _check_coordinator_key(broker: Broker, key: str, key_type: int, version: int) -> None:
    """Create the state topic of the key's coordinator. InvalidRequestError, with Kafka's text, for a key that has
    none."""
    if key_type not in STATE_TOPICS or (key_type == SHARE_COORDINATOR and version < 6):
        raise InvalidRequestError(NO_SUCH_KIND)
    if key_type == SHARE_COORDINATOR:
        parts = key.rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not parts[2].isdigit() or not _is_topic_id(parts[1]):
            raise InvalidRequestError("")
    try:
        broker.state.topic(STATE_TOPICS[key_type]).ensure()
    except KafkaStorageError as error:
        # The write has its line in the log already (``write_errors.py``), and clients ask again and again.
        log.debug("cannot create the state topic %s, its coordinator cannot write: %s", STATE_TOPICS[key_type], error)


def _is_topic_id(text: str) -> bool:
    """Kafka writes ids as 22 characters of base64url."""
    if len(text) == 22:
        return True
    try:
        UUID(text)
    except ValueError:
        return False
    return True

"""ShareGroupHeartbeat, ShareGroupDescribe, and share groups' offsets: Describe, Alter, Delete (KIP-932, KIP-1226).

The start offset that is told is the one that was written last, with an acknowledgement.

Different from Apache Kafka 4.3.0: partitions that are new to a group are assigned with the answer to the heartbeat that
names them, not with the next one; with several partitions who gets which may differ; a group that nobody is in does not
wait for the assignment interval; offsets of a partition that a topic does not have are told with error 3 (there the
request is not answered); racks are noted and not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from kafka.broker.codes import error_code, error_text
from kafka.broker.handlers.heartbeats import answered, refused
from kafka.broker.handlers.refused_first import refused_first
from kafka.broker.log import Topic
from kafka.broker.operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.broker.share.group import ASSIGNOR, ShareGroup, check_heartbeat
from kafka.broker.topics import by_topic
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kafka.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

Partition = tuple[UUID, int]


@handles(ShareGroupHeartbeatRequest, versions=(1, 1))
def share_group_heartbeat(broker: Broker, call: Call[ShareGroupHeartbeatRequest]) -> ShareGroupHeartbeatResponse:
    request = call.request
    group_id = request.group_id
    try:
        check_heartbeat(  # before the group is looked for, as in Kafka
            group_id, request.member_id, request.member_epoch, request.subscribed_topic_names, request.rack_id
        )
        if group_id in broker.groups.groups:
            raise GroupIdNotFoundError(f"Group {group_id} is not a share group.")
        group = broker.share.groups.get(group_id)
        known = set(request.subscribed_topic_names or ())
        if group is not None:
            known |= group.subscribed_topics()
        answer = broker.share.heartbeat(
            group_id,
            request.member_id,
            request.member_epoch,
            topics=request.subscribed_topic_names,
            rack_id=request.rack_id,
            client_id=call.client_id or "",
            client_host="/" + call.connection.host,
            metadata=broker.topic_infos(known),
            now=call.now,
        )
    except BrokerResponseError as error:
        return refused(ShareGroupHeartbeatResponse, error)
    return answered(
        ShareGroupHeartbeatResponse,
        request.member_id,
        answer.member_epoch,
        answer.heartbeat_interval_ms,
        answer.assignment,
    )


@handles(ShareGroupDescribeRequest, versions=(1, 1))
def share_group_describe(broker: Broker, call: Call[ShareGroupDescribeRequest]) -> ShareGroupDescribeResponse:
    groups = []
    for group_id in call.request.group_ids:
        try:
            group = broker.share.describe(group_id)
            groups.append(_describe(broker, group, call.request.include_authorized_operations))
        except BrokerResponseError as error:
            groups.append(
                ShareGroupDescribeResponse.DescribedGroup(
                    error_code=error_code(error),
                    error_message=error_text(error),
                    group_id=group_id,
                    group_state="",
                    group_epoch=0,
                    assignment_epoch=0,
                    assignor_name="",
                    members=[],
                )
            )
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _describe(
    broker: Broker, group: ShareGroup, with_operations: bool
) -> ShareGroupDescribeResponse.DescribedGroup:
    return ShareGroupDescribeResponse.DescribedGroup(
        error_code=0,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        authorized_operations=ALL_GROUP_OPERATIONS if with_operations else NOT_ASKED,
        members=[
            ShareGroupDescribeResponse.Member(
                member_id=member.member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.subscription),
                assignment=ShareGroupDescribeResponse.Assignment(
                    topic_partitions=[
                        ShareGroupDescribeResponse.TopicPartitions(
                            topic_id=topic_id, topic_name=topic.name, partitions=numbers
                        )
                        for topic_id, numbers in by_topic(member.assignment).items()
                        if (topic := broker.metadata.topic_by_id(topic_id)) is not None
                    ]
                ),
            )
            for member in group.members.values()
        ],
    )


# -- offsets ---------------------------------------------------------------------------------------------------------

_Altered = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition
_Offset = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition


@handles(DescribeShareGroupOffsetsRequest, versions=(0, 1))
def describe_share_group_offsets(
    broker: Broker, call: Call[DescribeShareGroupOffsetsRequest]
) -> DescribeShareGroupOffsetsResponse:
    groups = []
    for wanted in call.request.groups:
        code, text = 0, None
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = []
        try:
            topics = _group_offsets(broker, wanted)
        except BrokerResponseError as error:
            code, text = error_code(error), error_text(error)
        groups.append(
            DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup(
                group_id=wanted.group_id, topics=topics, error_code=code, error_message=text
            )
        )
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


def _group_offsets(
    broker: Broker, wanted: DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
) -> list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]:
    asked: dict[str, dict[int, None]] = {}
    unknown: list[tuple[str, list[int]]] = []
    if wanted.topics is None:
        for topic_id, number in broker.share.initialized(wanted.group_id):
            topic = broker.metadata.topic_by_id(topic_id)
            if topic is not None:
                asked.setdefault(topic.name, {})[number] = None
    else:
        for one in wanted.topics:
            if broker.metadata.topic(one.topic_name) is None:
                unknown.append((one.topic_name, list(one.partitions)))
                continue
            if not wanted.group_id or not one.partitions:  # as in Kafka
                raise UnknownError("offsets of a topic in no group, or of no partition")
            asked.setdefault(one.topic_name, {}).update(dict.fromkeys(one.partitions))
    return [
        DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=known.topic_id if (known := broker.metadata.topic(name)) is not None else ZERO_UUID,
            partitions=[_offset(broker, wanted.group_id, known, number) for number in numbers],
        )
        for name, numbers in (*asked.items(), *unknown)
    ]


def _offset(broker: Broker, group_id: str, topic: Topic | None, number: int) -> _Offset:
    if topic is None:  # no error, as in Kafka
        return _Offset(partition_index=number, start_offset=-1, leader_epoch=0, error_code=0)
    if not 0 <= number < topic.partitions:
        return _Offset(
            partition_index=number,
            start_offset=-1,
            leader_epoch=0,
            error_code=error_code(UnknownTopicOrPartitionError),
            error_message=UnknownTopicOrPartitionError.message,
        )
    start = broker.share.start_offset(group_id, topic.topic_id, number)
    if start is None:
        return _Offset(partition_index=number, start_offset=-1, leader_epoch=0, error_code=0)
    loaded = broker.share.loaded(group_id, topic.topic_id, number)
    done = loaded.delivery_complete_count if loaded is not None else 0
    position = loaded.start_offset if loaded is not None else start
    lag = -1 if start == -1 else broker.logs.log(topic, number).end_offset - position - done
    lag = (lag + 2**63) % 2**64 - 2**63  # an offset may be set to any number, and Apache Kafka's lag wraps around
    return _Offset(partition_index=number, start_offset=start, leader_epoch=0, lag=lag, error_code=0)


@handles(AlterShareGroupOffsetsRequest, versions=(0, 0))
def alter_share_group_offsets(
    broker: Broker, call: Call[AlterShareGroupOffsetsRequest]
) -> AlterShareGroupOffsetsResponse:
    request = call.request
    group = broker.share.groups.get(request.group_id)
    try:
        if not request.group_id:
            raise InvalidGroupIdError("")
        if request.group_id in broker.groups.groups:
            raise GroupIdNotFoundError(f"Group {request.group_id} is not a share group.")
        if group is not None and group.members:
            raise NonEmptyGroupError(f"The group {request.group_id} is not empty.")
        _check_numbers(broker, request)
    except BrokerResponseError as error:
        return AlterShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=error_code(error), error_message=error_text(error), responses=[]
        )
    refused: dict[str, list[_Altered]] = {}
    answered: dict[str, list[_Altered]] = {}
    last = {(topic.topic_name, one.partition_index): one for topic in request.topics for one in topic.partitions}
    for wanted in request.topics:
        topic = broker.metadata.topic(wanted.topic_name)
        if topic is not None:
            answered.setdefault(topic.name, [])
        for one in wanted.partitions:
            code = 0
            try:
                if topic is None or not 0 <= one.partition_index < topic.partitions:
                    raise UnknownTopicOrPartitionError("")
                if one is last[wanted.topic_name, one.partition_index]:  # of a partition named twice the last counts
                    broker.share.alter_offset(
                        request.group_id, topic.topic_id, one.partition_index, one.start_offset
                    )
            except BrokerResponseError as error:
                code = error_code(error)
            rows = refused if topic is None else answered
            rows.setdefault(wanted.topic_name, []).append(
                _Altered(partition_index=one.partition_index, error_code=code)
            )
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=0,
        responses=[
            AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=known.topic_id if (known := broker.metadata.topic(name)) is not None else ZERO_UUID,
                partitions=partitions,
            )
            for name, partitions in refused_first(refused, answered.items())
        ],
    )


def _check_numbers(broker: Broker, request: AlterShareGroupOffsetsRequest) -> None:
    """One number below 0 fails the request, as in Kafka."""
    for wanted in request.topics:
        if broker.metadata.topic(wanted.topic_name) is not None:
            for one in wanted.partitions:
                if one.partition_index < 0:
                    raise UnknownError(f"{wanted.topic_name} has no partition {one.partition_index}")


@handles(DeleteShareGroupOffsetsRequest, versions=(0, 0))
def delete_share_group_offsets(
    broker: Broker, call: Call[DeleteShareGroupOffsetsRequest]
) -> DeleteShareGroupOffsetsResponse:
    request = call.request
    responses = []
    try:
        if broker.share.describe(request.group_id).members:
            raise NonEmptyGroupError(f"The group {request.group_id} is not empty.")
        known = {topic_id for topic_id, _ in broker.share.initialized(request.group_id)}
        for name in dict.fromkeys(wanted.topic_name for wanted in request.topics):
            topic = broker.metadata.topic(name)
            if topic is not None and topic.topic_id not in known:
                topic = None  # nothing to delete
            if topic is not None:
                broker.share.delete_offsets(request.group_id, topic.topic_id)
            code = 0 if topic is not None else error_code(UnknownTopicOrPartitionError)
            responses.append(
                DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name,
                    topic_id=topic.topic_id if topic is not None else ZERO_UUID,
                    error_code=code,
                )
            )
    except BrokerResponseError as error:
        return DeleteShareGroupOffsetsResponse(
            throttle_time_ms=0, error_code=error_code(error), error_message=error_text(error), responses=[]
        )
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=0, responses=responses)

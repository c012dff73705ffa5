"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the new protocol (KIP-848, KIP-1251).

A new group has its assignment in the answer to the first heartbeat; members of a regular expression in that to the
second. Groups of classic members are taken over and given back (``group.consumer.migration.policy``).

Different from Apache Kafka 4.3.0: of regular expressions the rare classes of Unicode are refused, and so are very large
ones (``regex.py`` and ``regex_syntax.py`` in ``kafka/broker/groups`` tell the limits); where members are subscribed to
different topics, ``uniform`` gives as many partitions to each, but perhaps others; racks are noted and not used;
members are listed in the order of their joining.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code, error_text
from kafka.broker.groups.consumer_group import ConsumerGroup, Heartbeat
from kafka.broker.groups.consumer_member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH, Partition
from kafka.broker.groups.group_settings import consumer_settings
from kafka.broker.handlers.heartbeats import answered, refused
from kafka.broker.operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.broker.topics import by_topic
from kafka.errors import (
    BrokerResponseError,
    InvalidGroupIdError,
    InvalidRequestError,
    KafkaStorageError,
    NotCoordinatorError,
    UnsupportedAssignorError,
)
from kafka.protocol.consumer_group import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

FIRST_WITH_IDS_BY_CLIENTS: Final = 1

CONSUMER_MEMBER, CLASSIC_MEMBER = 1, 0
"""Member types of ConsumerGroupDescribe."""


@handles(ConsumerGroupHeartbeatRequest, versions=(0, 1))
def consumer_group_heartbeat(
    broker: Broker, call: Call[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    request = call.request
    try:
        _check(broker, call)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            answer = broker.groups.consumer_leave(
                request.group_id, request.member_id, request.instance_id, request.member_epoch, call.now
            )
        else:
            answer = broker.groups.heartbeat(request.group_id, _heartbeat(broker, call), call.now)
    except KafkaStorageError:
        return refused(ConsumerGroupHeartbeatResponse, NotCoordinatorError(""))
    except BrokerResponseError as error:
        return refused(ConsumerGroupHeartbeatResponse, error)
    return answered(
        ConsumerGroupHeartbeatResponse, answer.member_id, answer.epoch, answer.heartbeat_interval_ms, answer.assignment
    )


def _heartbeat(broker: Broker, call: Call[ConsumerGroupHeartbeatRequest]) -> Heartbeat:
    request = call.request
    owned = request.topic_partitions
    return Heartbeat(
        request.member_id or broker.groups.new_consumer_member_id(),
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        call.client_id or "",
        f"/{call.connection.host}",
        request.rebalance_timeout_ms,
        None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
        request.subscribed_topic_regex,
        request.server_assignor,
        None if owned is None else frozenset((one.topic_id, number) for one in owned for number in one.partitions),
    )


def _check(broker: Broker, call: Call[ConsumerGroupHeartbeatRequest]) -> None:
    """Raise what is wrong with a request whatever the group is."""
    request = call.request
    may_lack_id = call.version < FIRST_WITH_IDS_BY_CLIENTS and request.member_epoch in (JOIN_EPOCH, STATIC_LEAVE_EPOCH)
    for name, text in (
        ("GroupId", request.group_id),
        ("MemberId", "by the broker" if may_lack_id else request.member_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise InvalidRequestError(f"{name} can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise InvalidRequestError("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise InvalidRequestError("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    known = consumer_settings(broker.config.value, {}).assignors
    if request.server_assignor is not None and request.server_assignor not in known:
        raise UnsupportedAssignorError(
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(known)}."
        )


@handles(ConsumerGroupDescribeRequest, versions=(0, 1))
def consumer_group_describe(
    broker: Broker, call: Call[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    operations = ALL_GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in call.request.group_ids:
        try:
            if not group_id:
                raise InvalidGroupIdError("")
            groups.append(_describe(broker, broker.groups.consumer(group_id), operations))
        except BrokerResponseError as error:
            groups.append(
                ConsumerGroupDescribeResponse.DescribedGroup(
                    error_code=error_code(error),
                    error_message=error_text(error) or None,
                    group_id=group_id,
                    group_state="",
                    group_epoch=0,
                    assignment_epoch=0,
                    assignor_name="",
                    members=[],
                )
            )
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _describe(
    broker: Broker, group: ConsumerGroup, operations: int
) -> ConsumerGroupDescribeResponse.DescribedGroup:
    return ConsumerGroupDescribeResponse.DescribedGroup(
        error_code=0,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.picture.epoch,
        assignment_epoch=group.picture.assignment_epoch,
        assignor_name=group.assignor,
        authorized_operations=operations,
        members=[
            ConsumerGroupDescribeResponse.Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=sorted(member.topics),
                subscribed_topic_regex=member.regex,
                assignment=_assignment(broker, member.holds()),
                target_assignment=_assignment(broker, group.picture.target.get(member.member_id, frozenset())),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def _assignment(broker: Broker, partitions: Iterable[Partition]) -> ConsumerGroupDescribeResponse.Assignment:
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=numbers
            )
            for topic_id, numbers in by_topic(partitions).items()
            if (topic := broker.metadata.topic_by_id(topic_id)) is not None
        ]
    )

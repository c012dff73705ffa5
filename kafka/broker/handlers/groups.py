"""Consumer groups: the classic protocol (KIP-62, 345, 394, 559, 814), the consumer group protocol (KIP-848, KIP-1251),
and the requests about groups of every type, share groups included (ListGroups, DeleteGroups).

Classic groups: a member whose JoinGroup or SyncGroup waits stays in the group when its connection ends, as in Kafka;
its session timeout decides. Consumer groups: the first heartbeat of a new group already returns its assignment;
members that subscribe with a regular expression get theirs with the second. Groups of classic members are converted and
converted back (``group.consumer.migration.policy``).

Different from Apache Kafka 4.3.0: a second JoinGroup or SyncGroup of a member that waits completes the first with
REBALANCE_IN_PROGRESS (27), where there it is never answered; regular expressions need the extra ``re2``, and very large
ones are refused (``regex.py`` in ``kafka/broker/groups`` has the limits);
where members are subscribed to different topics, ``uniform`` gives as many partitions to each, but perhaps others;
racks are stored and not used; there are no streams groups; groups are listed in the order of their creation, members
in the order of their joining.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from kafka.broker.error_responses import (
    ALL_GROUP_OPERATIONS,
    answer_each,
    coordinator_error,
    error_code,
    error_text,
    failed,
    operations,
)
from kafka.broker.group_settings import consumer_settings
from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicJoinRequest,
    ClassicState,
    ClassicSyncRequest,
    JoinGroupResult,
    SyncGroupResult,
)
from kafka.broker.groups.consumer_group import ConsumerGroup, ConsumerHeartbeat
from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import PendingResponse
from kafka.broker.topics import TopicIdPartition, by_topic
from kafka.errors import (
    BrokerResponseError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaStorageError,
    UnsupportedAssignorError,
)
from kafka.protocol.constants import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kafka.protocol.consumer_protocol import PROTOCOL_TYPE
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.protocol.share import ShareGroupHeartbeatResponse

_Deleted = DeleteGroupsResponse.DeletableGroupResult
_Listed = ListGroupsResponse.ListedGroup


@handles(ListGroupsRequest)
def list_groups(broker: Broker, call: RequestContext[ListGroupsRequest]) -> ListGroupsResponse:
    states = {state.lower() for state in call.request.states_filter}
    types = {kind.lower() for kind in call.request.types_filter}
    return ListGroupsResponse(
        groups=[
            group
            for group in _all_groups(broker)
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ],
    )


def _all_groups(broker: Broker) -> list[_Listed]:
    found = []
    for name, group in broker.groups.groups.items():
        if isinstance(group, ClassicGroup):
            protocol, state = group.protocol_type or "", group.state.value
        else:
            protocol, state = PROTOCOL_TYPE, group.state
        found.append(_Listed(group_id=name, protocol_type=protocol, group_state=state, group_type=group.kind))
    found += [
        _Listed(group_id=name, protocol_type="share", group_state=group.state, group_type="share")
        for name, group in broker.share.groups.items()
    ]
    return found


@handles(DeleteGroupsRequest)
def delete_groups(broker: Broker, call: RequestContext[DeleteGroupsRequest]) -> DeleteGroupsResponse:
    def delete(name: str) -> _Deleted:
        if name in broker.share.groups:
            broker.share.delete(name)
            broker.sessions.drop_group(name)
        else:
            broker.groups.delete(name)
        return _Deleted(group_id=name)

    return DeleteGroupsResponse(
        results=answer_each(
            dict.fromkeys(call.request.groups_names),
            delete,
            lambda name, error: failed(_Deleted, coordinator_error(error), group_id=name),
        )
    )


# -- classic groups ---------------------------------------------------------------------------------------------------


FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_KNOWN_IDS: Final = 4
FIRST_WITH_SKIPPING: Final = 9
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_SYNC_WITH_PROTOCOL: Final = 5
FIRST_LEAVE_OF_SEVERAL: Final = 3
FIRST_DESCRIBE_WITH_ERRORS: Final = 6

_DescribedClassicGroup = DescribeGroupsResponse.DescribedGroup


@handles(JoinGroupRequest)
def join_group(broker: Broker, call: RequestContext[JoinGroupRequest]) -> PendingResponse:
    """Answered when the group's join phase ends, or with an error at once. Versions before 1 have no rebalance
    timeout: the session timeout stands for it. Version 4 on requires a second JoinGroup with the member id (KIP-394);
    version 9 on may let a static leader skip the assignment (KIP-814)."""
    request = call.request
    reply = PendingResponse()

    def done(answer: JoinGroupResult) -> None:
        broker.complete(reply, call, _join_response(answer, call.version))

    low, high = (broker.config.number(f"group.{word}.session.timeout.ms") for word in ("min", "max"))
    if not request.group_id:
        done(JoinGroupResult(InvalidGroupIdError, request.member_id))
    elif not low <= request.session_timeout_ms <= high:
        done(JoinGroupResult(InvalidSessionTimeoutError, request.member_id))
    else:
        has_timeout = call.version >= FIRST_WITH_REBALANCE_TIMEOUT
        wanted = ClassicJoinRequest(
            request.member_id,
            request.group_instance_id,
            call.client_id or "",
            f"/{call.connection.host}",
            request.protocol_type,
            tuple((one.name, bytes(one.metadata)) for one in request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
            call.version >= FIRST_WITH_KNOWN_IDS,
            call.version >= FIRST_WITH_SKIPPING,
        )
        broker.groups.join(request.group_id, wanted, done, call.now)
    return reply


def _join_response(answer: JoinGroupResult, version: int) -> JoinGroupResponse:
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=error_code(answer.error),
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name="" if name is None and version < FIRST_WITH_NULL_PROTOCOL else name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in answer.members
        ],
    )


@handles(SyncGroupRequest)
def sync_group(broker: Broker, call: RequestContext[SyncGroupRequest]) -> PendingResponse:
    request = call.request
    reply = PendingResponse()

    def done(answer: SyncGroupResult) -> None:
        response = SyncGroupResponse(
            error_code=error_code(answer.error),
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )
        broker.complete(reply, call, response)

    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    # Apache Kafka 4.3.0 checks this before the group's name, too.
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and not has_protocol:
        done(SyncGroupResult(InconsistentGroupProtocolError))
    elif not request.group_id:
        done(SyncGroupResult(InvalidGroupIdError))
    else:
        wanted = ClassicSyncRequest(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {one.member_id: bytes(one.assignment) for one in request.assignments},
        )
        broker.groups.sync(request.group_id, wanted, done, call.now)
    return reply


@handles(HeartbeatRequest)
def heartbeat(broker: Broker, call: RequestContext[HeartbeatRequest]) -> HeartbeatResponse:
    request = call.request
    if not request.group_id:
        raise InvalidGroupIdError("")
    broker.groups.classic_heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, call.now
    )
    return HeartbeatResponse()


@handles(LeaveGroupRequest)
def leave_group(broker: Broker, call: RequestContext[LeaveGroupRequest]) -> LeaveGroupResponse:
    """Version 3 on (KIP-345): several members, with an error for each; before, one member, whose error is the
    response's."""
    request = call.request
    if not request.group_id:
        raise InvalidGroupIdError("")
    is_one = call.version < FIRST_LEAVE_OF_SEVERAL
    members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)] if is_one else request.members
    leaving = [(member.member_id, member.group_instance_id) for member in members]
    errors = broker.groups.leave(request.group_id, leaving, call.now)
    if is_one:
        return LeaveGroupResponse(error_code=error_code(errors[0]))
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error_code(error)
            )
            for member, error in zip(members, errors, strict=True)
        ],
    )


@handles(DescribeGroupsRequest)
def describe_groups(broker: Broker, call: RequestContext[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    """Classic groups. A group that does not exist, or is of another type, is Dead, with GROUP_ID_NOT_FOUND (69) since
    version 6 (KIP-1043)."""
    allowed = operations(call.request.include_authorized_operations, ALL_GROUP_OPERATIONS)

    def dead(group_id: str, error: BrokerResponseError) -> _DescribedClassicGroup:
        state = ClassicState.DEAD.value
        if call.version >= FIRST_DESCRIBE_WITH_ERRORS:
            return failed(_DescribedClassicGroup, error, group_id=group_id, group_state=state)
        return failed(_DescribedClassicGroup, 0, group_id=group_id, group_state=state, authorized_operations=allowed)

    return DescribeGroupsResponse(
        groups=answer_each(
            call.request.groups, lambda name: _described_classic_group(broker.groups.classic(name), allowed), dead
        )
    )


def _described_classic_group(group: ClassicGroup, allowed: int) -> _DescribedClassicGroup:
    """Members' metadata is shown while the group is Stable, so that all members agree on the protocol."""
    protocol = group.protocol_name if group.state is ClassicState.STABLE else None
    return _DescribedClassicGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=b"" if protocol is None else member.metadata(protocol),
                member_assignment=member.assignment,
            )
            for member in group.in_kafka_order()
        ],
        authorized_operations=allowed,
    )


# -- consumer groups --------------------------------------------------------------------------------------------------


FIRST_WITH_IDS_BY_CLIENTS: Final = 1

CONSUMER_MEMBER, CLASSIC_MEMBER = 1, 0
"""Member types of ConsumerGroupDescribe."""

_DescribedConsumerGroup = ConsumerGroupDescribeResponse.DescribedGroup


@handles(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    broker: Broker, call: RequestContext[ConsumerGroupHeartbeatRequest]
) -> ConsumerGroupHeartbeatResponse:
    request = call.request
    _check_consumer_heartbeat(broker, call)
    try:
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            answer = broker.groups.consumer_leave(
                request.group_id, request.member_id, request.instance_id, request.member_epoch, call.now
            )
        else:
            answer = broker.groups.heartbeat(request.group_id, _consumer_heartbeat(broker, call), call.now)
    except KafkaStorageError as error:
        raise coordinator_error(error) from None
    return heartbeat_response(
        ConsumerGroupHeartbeatResponse, answer.member_id, answer.epoch, answer.heartbeat_interval_ms, answer.assignment
    )


def _consumer_heartbeat(broker: Broker, call: RequestContext[ConsumerGroupHeartbeatRequest]) -> ConsumerHeartbeat:
    request = call.request
    owned = request.topic_partitions
    return ConsumerHeartbeat(
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


def _check_consumer_heartbeat(broker: Broker, call: RequestContext[ConsumerGroupHeartbeatRequest]) -> None:
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


@handles(ConsumerGroupDescribeRequest)
def consumer_group_describe(
    broker: Broker, call: RequestContext[ConsumerGroupDescribeRequest]
) -> ConsumerGroupDescribeResponse:
    """Consumer groups (KIP-848); each group has an error of its own."""
    allowed = operations(call.request.include_authorized_operations, ALL_GROUP_OPERATIONS)

    def describe(group_id: str) -> _DescribedConsumerGroup:
        if not group_id:
            raise InvalidGroupIdError("")
        return _described_consumer_group(broker, broker.groups.consumer(group_id), allowed)

    return ConsumerGroupDescribeResponse(
        groups=answer_each(
            call.request.group_ids,
            describe,
            lambda group_id, error: failed(
                _DescribedConsumerGroup, error, group_id=group_id, error_message=error_text(error) or None
            ),
        )
    )


def _described_consumer_group(broker: Broker, group: ConsumerGroup, allowed: int) -> _DescribedConsumerGroup:
    """As of the durable state; a classic member of a group under migration has the member type 0."""
    kind, targets = ConsumerGroupDescribeResponse, group.durable.target
    return _DescribedConsumerGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.durable.epoch,
        assignment_epoch=group.durable.assignment_epoch,
        assignor_name=group.assignor,
        authorized_operations=allowed,
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
                assignment=described_assignment(broker, kind, member.holds()),
                target_assignment=described_assignment(broker, kind, targets.get(member.member_id, ())),
                member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
            )
            for member in group.members.values()
        ],
    )


def described_assignment(broker: Broker, kind: Any, partitions: Iterable[TopicIdPartition]) -> Any:
    """An assignment as ``kind`` has it: ConsumerGroupDescribeResponse or ShareGroupDescribeResponse."""
    return kind.Assignment(
        topic_partitions=[
            kind.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=numbers)
            for topic_id, numbers in by_topic(partitions).items()
            # A deleted topic may still be in the assignment.
            if (topic := broker.metadata.topic_by_id(topic_id)) is not None
        ]
    )


# -- responses to heartbeats ------------------------------------------------------------------------------------------


_Response = TypeVar("_Response", ConsumerGroupHeartbeatResponse, "ShareGroupHeartbeatResponse")


def heartbeat_response(
    kind: type[_Response],
    member_id: str,
    epoch: int,
    interval_ms: int,
    assigned: Collection[tuple[UUID, int]] | None,
) -> _Response:
    """The answer to a member. ``assigned``: its partitions, or None when they are not sent again."""
    assignment = None
    if assigned is not None:
        assignment = kind.Assignment(
            topic_partitions=[
                kind.TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in by_topic(assigned).items()
            ]
        )
    return kind(member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms, assignment=assignment)

"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups: the classic protocol (KIP-62, 345, 394, 559, 814).

A member that waits in a join or a sync keeps its place when its connection ends, as in Kafka; its session does the
rest.

Different from Apache Kafka 4.3.0: a second join or sync of a member that waits ends the first with
REBALANCE_IN_PROGRESS (27), where there it is never answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.classic_member import Join, JoinAnswer, Sync, SyncAnswer
from kafka.broker.groups.states import ClassicState
from kafka.broker.operations import ALL_GROUP_OPERATIONS, NOT_ASKED
from kafka.broker.registry import Call, handles
from kafka.broker.reply import Reply
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
)
from kafka.protocol.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

FIRST_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_WITH_KNOWN_IDS: Final = 4
FIRST_WITH_SKIPPING: Final = 9
FIRST_WITH_NULL_PROTOCOL: Final = 7
FIRST_SYNC_WITH_PROTOCOL: Final = 5
FIRST_LEAVE_OF_SEVERAL: Final = 3
FIRST_DESCRIBE_WITH_ERRORS: Final = 6



@handles(JoinGroupRequest, versions=(0, 9))
def join_group(broker: Broker, call: Call[JoinGroupRequest]) -> Reply:
    request = call.request
    reply = Reply()

    def done(answer: JoinAnswer) -> None:
        broker.complete(reply, call, _join_response(answer, call.version))

    low, high = (broker.config.number(f"group.{word}.session.timeout.ms") for word in ("min", "max"))
    if not request.group_id:
        done(JoinAnswer(InvalidGroupIdError, request.member_id))
    elif not low <= request.session_timeout_ms <= high:
        done(JoinAnswer(InvalidSessionTimeoutError, request.member_id))
    else:
        has_timeout = call.version >= FIRST_WITH_REBALANCE_TIMEOUT
        wanted = Join(
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
            request.reason,
        )
        broker.groups.join(request.group_id, wanted, done, call.now)
    return reply


def _join_response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
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


@handles(SyncGroupRequest, versions=(0, 5))
def sync_group(broker: Broker, call: Call[SyncGroupRequest]) -> Reply:
    request = call.request
    reply = Reply()

    def done(answer: SyncAnswer) -> None:
        response = SyncGroupResponse(
            error_code=error_code(answer.error),
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignment=answer.assignment,
        )
        broker.complete(reply, call, response)

    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if call.version >= FIRST_SYNC_WITH_PROTOCOL and not has_protocol:
        done(SyncAnswer(InconsistentGroupProtocolError))
    elif not request.group_id:
        done(SyncAnswer(InvalidGroupIdError))
    else:
        wanted = Sync(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {one.member_id: bytes(one.assignment) for one in request.assignments},
        )
        broker.groups.sync(request.group_id, wanted, done, call.now)
    return reply


@handles(HeartbeatRequest, versions=(0, 4))
def heartbeat(broker: Broker, call: Call[HeartbeatRequest]) -> HeartbeatResponse:
    request = call.request
    code = 0
    try:
        if not request.group_id:
            raise InvalidGroupIdError("")
        broker.groups.classic_heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id, call.now
        )
    except BrokerResponseError as error:
        code = error_code(error)
    return HeartbeatResponse(error_code=code)


@handles(LeaveGroupRequest, versions=(0, 5))
def leave_group(broker: Broker, call: Call[LeaveGroupRequest]) -> LeaveGroupResponse:
    request = call.request
    if not request.group_id:
        return LeaveGroupResponse(error_code=error_code(InvalidGroupIdError))
    is_one = call.version < FIRST_LEAVE_OF_SEVERAL
    members = [LeaveGroupRequest.MemberIdentity(member_id=request.member_id)] if is_one else request.members
    try:
        leaving = [(member.member_id, member.group_instance_id) for member in members]
        errors = broker.groups.leave(request.group_id, leaving, call.now)
    except BrokerResponseError as error:
        return LeaveGroupResponse(error_code=error_code(error))
    if is_one:
        return LeaveGroupResponse(error_code=error_code(errors[0]))
    return LeaveGroupResponse(
        error_code=0,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error_code(error)
            )
            for member, error in zip(members, errors, strict=True)
        ],
    )


@handles(DescribeGroupsRequest, versions=(0, 6))
def describe_groups(broker: Broker, call: Call[DescribeGroupsRequest]) -> DescribeGroupsResponse:
    operations = ALL_GROUP_OPERATIONS if call.request.include_authorized_operations else NOT_ASKED
    groups = []
    for group_id in call.request.groups:
        try:
            groups.append(_describe(broker.groups.classic(group_id), operations))
        except GroupIdNotFoundError as error:
            has_error = call.version >= FIRST_DESCRIBE_WITH_ERRORS
            groups.append(
                DescribeGroupsResponse.DescribedGroup(
                    error_code=error_code(GroupIdNotFoundError) if has_error else 0,
                    error_message=str(error.args[0]) if has_error else None,
                    group_id=group_id,
                    group_state=ClassicState.DEAD.value,
                    protocol_type="",
                    protocol_data="",
                    members=[],
                    authorized_operations=NOT_ASKED if has_error else operations,
                )
            )
    return DescribeGroupsResponse(groups=groups)


def _describe(group: ClassicGroup, operations: int) -> DescribeGroupsResponse.DescribedGroup:
    """What members said is shown while everybody agrees on the protocol."""
    protocol = group.protocol_name if group.state is ClassicState.STABLE else None
    return DescribeGroupsResponse.DescribedGroup(
        error_code=0,
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
            for member in group.in_order()
        ],
        authorized_operations=operations,
    )

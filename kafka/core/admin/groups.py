"""Dialogues about groups of all types: which there are, what they are, their members, their end.

A group is of one type (classic, consumer, share), and each type has a describing API of its own, which does not know
the others' groups. So what one API does not know is asked of the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.core.admin.answers import raise_first, raise_transient
from kafka.core.admin.cluster import broker_ids_of_the_cluster
from kafka.core.admin.coordinators import at_coordinator, at_coordinators
from kafka.core.admin.group_values import GroupState, GroupType, MemberToRemove, texts
from kafka.core.admin.plain import operations_of, to_dict
from kafka.core.dialogue import All, ByVersion, Dialogue, Send, send
from kafka.core.group.protocol import read_assignment, read_subscription
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaProtocolError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.consumer_group import ConsumerGroupDescribeRequest
from kafka.protocol.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
)
from kafka.protocol.share import ShareGroupDescribeRequest
from kafka.structs import TopicPartition

Group = dict[str, Any]
"""A group as its describing API tells it, with ``error`` (None or a text) in place of the error code."""

_BATCHED_LEAVE_SINCE: Final = 3
_REASONS_SINCE: Final = 5
_OPERATIONS_SINCE: Final = 3


# -- which there are --------------------------------------------------------------------------------------------------


def list_groups(
    broker_ids: Sequence[int] | None = None,
    states_filter: Iterable[GroupState | str] = (),
    types_filter: Iterable[GroupType | str] = (),
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[list[dict[str, Any]]]:
    """All groups: ``[{"group_id", "protocol_type", "group_state", "group_type"}]``. Each broker lists those that it
    coordinates, so all are asked. States since 2.6 (KIP-518), types since 3.8 (KIP-848)."""
    states, types = texts(GroupState, states_filter), texts(GroupType, types_filter)
    least = 5 if types else 4 if states else None
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    def attempt() -> Dialogue[list[dict[str, Any]]]:
        asked = broker_ids
        if asked is None:
            asked = yield from broker_ids_of_the_cluster()
        answers: list[Any] = yield All([Send(broker, request, min_version=least) for broker in asked])
        found = []
        for broker, answer in zip(asked, answers, strict=True):
            raise_first([(answer.error_code, None, f"list_groups at node {broker}")])
            found += [to_dict(group) for group in answer.groups]
        return found

    return (yield from retrying(attempt, what="listing the groups", backoff=backoff, timeout_s=timeout_s))


# -- what they are ----------------------------------------------------------------------------------------------------


class _Describing(NamedTuple):
    """One API that describes groups of one type. ``polish`` turns its answer into what users get."""

    type: GroupType
    request: Callable[[list[str], bool], Any]
    polish: Callable[[Group], None]


def _of_classic(group_ids: list[str], operations: bool) -> ByVersion[Any]:
    def build(version: int) -> DescribeGroupsRequest:
        wanted = operations and version >= _OPERATIONS_SINCE
        return DescribeGroupsRequest(groups=group_ids, include_authorized_operations=wanted)

    return ByVersion(DescribeGroupsRequest, build)


def _decode_members(group: Group) -> None:
    """The classic protocol's members, if they are consumers: what they told one another, as dictionaries."""
    for member in group["members"]:
        for name, read in (("member_metadata", _subscription), ("member_assignment", _assignment)):
            data = member[name] = bytes(member[name])
            if data and group["protocol_type"] == "consumer":
                with contextlib.suppress(KafkaProtocolError):  # another client's own is left as it is
                    member[name] = read(data)


def _subscription(data: bytes) -> dict[str, Any]:
    found = read_subscription(data)
    return {
        "topics": list(found.topics),
        "user_data": found.user_data,
        "owned_partitions": _topics(found.owned),
        "generation_id": found.generation,
        "rack_id": found.rack or None,
    }


def _assignment(data: bytes) -> dict[str, Any]:
    found = read_assignment(data)
    return {"assigned_partitions": _topics(found.partitions), "user_data": found.user_data}


def _topics(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]


def _nothing(group: Group) -> None:
    pass


_CLASSIC: Final = _Describing(GroupType.CLASSIC, _of_classic, _decode_members)
_CONSUMER: Final = _Describing(
    GroupType.CONSUMER,
    lambda ids, operations: ConsumerGroupDescribeRequest(group_ids=ids, include_authorized_operations=operations),
    _nothing,
)
SHARE: Final = _Describing(
    GroupType.SHARE,
    lambda ids, operations: ShareGroupDescribeRequest(group_ids=ids, include_authorized_operations=operations),
    _nothing,
)
_ALL: Final = (_CLASSIC, _CONSUMER, SHARE)


def describe_groups(
    group_ids: Iterable[str],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    include_authorized_operations: bool = False,
) -> Dialogue[dict[str, Group]]:
    """Groups of any type: ``{group: {"group_id", "group_state", "group_type", "members", "error", ...}}``.

    Classic ones have ``protocol_type``, ``protocol_data`` and members with ``member_metadata`` and
    ``member_assignment``; those of KIP-848 and KIP-932 have ``group_epoch``, ``assignment_epoch``, ``assignor_name``
    and members with ``subscribed_topic_names``, ``assignment`` and so on. A group that is not there is "Dead", with the
    broker's error if it told one.
    """
    return (yield from _describe(group_ids, _ALL, backoff, timeout_s, node_id, include_authorized_operations))


def describe_share_groups(
    group_ids: Iterable[str],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    include_authorized_operations: bool = False,
) -> Dialogue[dict[str, Group]]:
    """The same for share groups alone (KIP-932). IncompatibleBrokerVersion before 4.1."""
    return (yield from _describe(group_ids, (SHARE,), backoff, timeout_s, node_id, include_authorized_operations))


def _describe(
    group_ids: Iterable[str],
    apis: Sequence[_Describing],
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None,
    operations: bool,
) -> Dialogue[dict[str, Group]]:
    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, Group | BrokerResponseError]]:
        found: dict[str, Group | BrokerResponseError] = {}
        left = list(groups)
        for api in apis:
            try:
                answer = yield from send(node, api.request(left, operations))
            except IncompatibleBrokerVersion:
                if len(apis) == 1:
                    raise
                continue  # it has no such groups
            for described in answer.groups:
                error = for_code(described.error_code)(getattr(described, "error_message", "") or "")
                group = _group(described, api, error)
                is_first = described.group_id not in found
                if described.error_code and not _is_unknown(error):
                    found[described.group_id] = error if error.retriable else group
                elif is_first or not described.error_code:
                    found[described.group_id] = group
            left = [each for each in left if each not in found or _is_of_no_type(found[each])]
            if not left:
                break
        return found

    answers = yield from at_coordinators(
        group_ids, ask, what="describing groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {
        group: {"group_id": group, "group_state": "Unknown", "members": [], "error": str(answer)}
        if isinstance(answer, BrokerResponseError)
        else answer
        for group, answer in answers.items()
    }


def _group(described: Any, api: _Describing, error: BrokerResponseError) -> Group:
    group = to_dict(described)
    code = group.pop("error_code")
    group.pop("error_message", None)
    group["error"] = str(error) if code else None
    group["group_type"] = api.type.value
    group["authorized_operations"] = operations_of(group["authorized_operations"])
    if code:
        group["group_state"] = group["group_state"] or "Dead"
    else:
        api.polish(group)
    return group


def _is_unknown(error: BrokerResponseError) -> bool:
    """This API does not know the group; another may."""
    return isinstance(error, (GroupIdNotFoundError, UnsupportedVersionError))


def _is_of_no_type(answer: Group | BrokerResponseError) -> bool:
    """Before version 6, DescribeGroups says "Dead" of groups that it does not know."""
    if isinstance(answer, BrokerResponseError):
        return False
    return answer["group_state"] == "Dead" and not answer["members"]


# -- members, and the end ---------------------------------------------------------------------------------------------


def remove_group_members(
    group_id: str,
    members: Iterable[MemberToRemove],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, type[BrokerResponseError]]]:
    """Make members of a classic group leave it: ``{member id or instance id: error class}`` (NoError: done).

    Raises the group's error. Before 2.3 members leave one by one, and static ones cannot be named (KIP-345).
    """
    wanted = list(members)
    for member in wanted:
        if not (member.member_id or member.group_instance_id):
            raise IllegalArgumentError(f"{member!r}: a member_id or a group_instance_id is needed")

    def build(version: int) -> LeaveGroupRequest:
        identities = [
            LeaveGroupRequest.MemberIdentity(
                member_id=member.member_id or "",
                group_instance_id=member.group_instance_id,
                reason=member.reason if version >= _REASONS_SINCE else None,
            )
            for member in wanted
        ]
        return LeaveGroupRequest(group_id=group_id, members=identities)

    def ask(node: int) -> Dialogue[dict[str, type[BrokerResponseError]]]:
        try:
            answer = yield from send(node, ByVersion(LeaveGroupRequest, build), min_version=_BATCHED_LEAVE_SINCE)
        except IncompatibleBrokerVersion:
            return (yield from _one_by_one(node))
        raise_first([(answer.error_code, None, f"group {group_id}")])
        return {
            each.member_id or each.group_instance_id or "": for_code(each.error_code) for each in answer.members
        }

    def _one_by_one(node: int) -> Dialogue[dict[str, type[BrokerResponseError]]]:
        found: dict[str, type[BrokerResponseError]] = {}
        for member in wanted:
            if not member.member_id or member.group_instance_id is not None:
                raise UnsupportedVersionError(f"{member!r}: brokers before 2.3 know members by member_id alone")
            request = LeaveGroupRequest(group_id=group_id, member_id=member.member_id)
            answer: LeaveGroupResponse = yield from send(node, request, max_version=_BATCHED_LEAVE_SINCE - 1)
            raise_transient([(answer.error_code, None, f"group {group_id}")])
            found[member.member_id] = for_code(answer.error_code)
        return found

    if not wanted:
        return {}
    what = f"removing members of group {group_id}"
    return (yield from at_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id))


def delete_groups(
    group_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0, node_id: int | None = None
) -> Dialogue[dict[str, type[BrokerResponseError]]]:
    """Delete empty groups of any type: ``{group: error class}`` (NoError: done; NonEmptyGroupError,
    GroupIdNotFoundError)."""

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, BrokerResponseError]]:
        answer = yield from send(node, DeleteGroupsRequest(groups_names=list(groups)))
        return {result.group_id: for_code(result.error_code)() for result in answer.results}

    found = yield from at_coordinators(
        group_ids, ask, what="deleting groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {group: type(error) for group, error in found.items() if isinstance(error, BrokerResponseError)}

"""Dialogues about groups of all types: which there are, what they are, their members, their end.

A group is of one type (classic, consumer, share), and each type has a describing API of its own, which does not know
the others' groups. So what one API does not know is asked of the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, TypeVar

from kafka.core.admin.cluster import request_each_broker
from kafka.core.admin.responses import (
    each_partition,
    in_all,
    operations_of,
    raise_first,
    raise_transient,
    result_of,
    to_dict,
    topics_as,
)
from kafka.core.admin.routing import (
    request_coordinator,
    request_coordinators,
    request_leaders,
    result_or_raise,
    results_or_raise,
)
from kafka.core.admin.topics import check_partitions
from kafka.core.admin.values import GroupState, GroupType, MemberToRemove, OffsetSpec, OffsetTimestamp, texts
from kafka.core.connection import ByVersion
from kafka.core.consume.offsets import LeaderOf, list_offsets, offsets_request, read_offsets
from kafka.core.dialogue import Dialogue, RefreshMetadata, send
from kafka.core.group.protocol import read_assignment, read_subscription
from kafka.core.partitions import by_topic
from kafka.core.retry import Backoff, retrying
from kafka.errors import (
    BrokerResponseError,
    GroupIdNotFoundError,
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    KafkaProtocolError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
)
from kafka.protocol.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.share import (
    AlterShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
)
from kafka.structs import IsolationLevel, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kafka.validation import is_integer, list_of, mapping_of, partition_of, partitions_of
from kafka.wire.message import Request, Response, Struct

Group = dict[str, Any]
"""A group as in its Describe response, with ``error`` (None or a text) in place of the error code."""

_BATCHED_LEAVE_SINCE: Final = 3
_REASONS_SINCE: Final = 5

S = TypeVar("S", bound=Struct)


# -- which there are --------------------------------------------------------------------------------------------------


def list_groups(
    broker_ids: Sequence[int] | None = None,
    states_filter: Iterable[GroupState | str] | None = None,
    types_filter: Iterable[GroupType | str] | None = None,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[list[dict[str, Any]]]:
    """All groups: ``[{"group_id", "protocol_type", "group_state", "group_type"}]``. Each broker lists those that it
    coordinates, so all are asked. Filters take names in any case: states such as "stable" (2.6, KIP-518), types
    "classic", "consumer", "share" (3.8, KIP-848)."""
    given_states = list_of(states_filter or (), "states_filter", "a list of states is needed")
    given_types = list_of(types_filter or (), "types_filter", "a list of types is needed")
    states, types = texts(GroupState, given_states), texts(GroupType, given_types)
    least = 5 if types else 4 if states else None
    request = ListGroupsRequest(states_filter=states, types_filter=types)

    def attempt() -> Dialogue[list[dict[str, Any]]]:
        found = []
        for broker, answer in (yield from request_each_broker(broker_ids, request, least)):
            raise_first([(answer.error_code, None, f"list_groups at node {broker}")])
            found += [to_dict(group) for group in answer.groups]
        return found

    return (yield from retrying(attempt, what="listing the groups", backoff=backoff, timeout_s=timeout_s))


# -- what they are ----------------------------------------------------------------------------------------------------


_DESCRIBE_REQUESTS: Final[Mapping[GroupType, type[Request[Any]]]] = {
    GroupType.CLASSIC: DescribeGroupsRequest,
    GroupType.CONSUMER: ConsumerGroupDescribeRequest,
    GroupType.SHARE: ShareGroupDescribeRequest,
}
"""The API that describes groups of a type. The first field of its request has their ids."""
_OF_ANOTHER_TYPE: Final = (GroupIdNotFoundError, UnsupportedVersionError)
"""The API does not know the group; another may."""


def _decode_members(group: Group) -> None:
    """The classic protocol's members, if they are consumers: their metadata and assignments, as dictionaries."""
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
        "owned_partitions": _topics_as_dicts(found.owned),
        "generation_id": found.generation,
        "rack_id": found.rack or None,
    }


def _assignment(data: bytes) -> dict[str, Any]:
    found = read_assignment(data)
    return {"assigned_partitions": _topics_as_dicts(found.partitions), "user_data": found.user_data}


def _topics_as_dicts(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()]


def describe_groups(
    group_ids: Iterable[str],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    include_authorized_operations: bool = False,
) -> Dialogue[dict[str, Group]]:
    """Groups of any type: ``{group: {"group_id", "group_state", "group_type", "members", "error", ...}}``, where
    ``error`` is None or a text. The other fields are those of DescribeGroups, ConsumerGroupDescribe or
    ShareGroupDescribe.

    Classic ones have ``protocol_type``, ``protocol_data`` and members with ``member_metadata`` and
    ``member_assignment``, which are decoded if they are consumers'; those of KIP-848 and KIP-932 have ``group_epoch``,
    ``assignment_epoch``, ``assignor_name`` and members with ``subscribed_topic_names``, ``assignment`` and so on. A
    group that is not there is "Dead", with the broker's error if there was one.
    """
    apis = _DESCRIBE_REQUESTS
    return (yield from _describe_groups(group_ids, apis, backoff, timeout_s, node_id, include_authorized_operations))


def describe_share_groups(
    group_ids: Iterable[str],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    include_authorized_operations: bool = False,
) -> Dialogue[dict[str, Group]]:
    """Share groups alone (KIP-932), as by :func:`describe_groups`; what is none has its ``error``.
    IncompatibleBrokerVersion before 4.1."""
    apis = {GroupType.SHARE: _DESCRIBE_REQUESTS[GroupType.SHARE]}
    return (yield from _describe_groups(group_ids, apis, backoff, timeout_s, node_id, include_authorized_operations))


def _describe_groups(
    group_ids: Iterable[str],
    apis: Mapping[GroupType, type[Request[Any]]],
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None,
    operations: bool,
) -> Dialogue[dict[str, Group]]:
    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, Group | BrokerResponseError]]:
        found: dict[str, Group | BrokerResponseError] = {}
        left = list(groups)
        for kind, message in apis.items():
            try:
                answer: Any = yield from send(node, _describe_request(message, left, operations))
            except IncompatibleBrokerVersion:
                if len(apis) == 1:
                    raise
                continue  # it has no such groups
            for described in answer.groups:
                error = for_code(described.error_code)(getattr(described, "error_message", "") or "")
                group = _group(described, kind, error)
                is_first = described.group_id not in found
                if described.error_code and not isinstance(error, _OF_ANOTHER_TYPE):
                    found[described.group_id] = error if error.retriable else group
                elif is_first or not described.error_code:
                    found[described.group_id] = group
            left = [each for each in left if each not in found or _is_of_no_type(found[each])]
            if not left:
                break
        return found

    answers = yield from request_coordinators(
        group_ids, ask, what="describing groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {
        group: {"group_id": group, "group_state": "Unknown", "members": [], "error": str(answer)}
        if isinstance(answer, BrokerResponseError)
        else answer
        for group, answer in answers.items()
    }


def _describe_request(message: type[Request[Any]], group_ids: list[str], operations: bool) -> Any:
    ids, name = message.fields
    is_in = message.fields[name].present

    def build(version: int) -> Any:
        return message(**{ids: group_ids, name: operations and is_in(version)})

    return build(message.max_version) if is_in(message.min_version) else ByVersion(message, build)


def _group(described: Any, kind: GroupType, error: BrokerResponseError) -> Group:
    group = to_dict(described)
    code = group.pop("error_code")
    group.pop("error_message", None)
    group["error"] = str(error) if code else None
    group["group_type"] = kind.value
    group["authorized_operations"] = operations_of(group["authorized_operations"])
    if code:
        group["group_state"] = group["group_state"] or "Dead"
    elif kind is GroupType.CLASSIC:
        _decode_members(group)
    return group


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
    wanted = list_of(members, "members", "a list of MemberToRemove is needed")
    for member in wanted:
        if not isinstance(member, MemberToRemove):
            raise IllegalArgumentError(f"members: {member!r}: a MemberToRemove is needed")
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
        return {each.member_id or each.group_instance_id or "": for_code(each.error_code) for each in answer.members}

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
    return (
        yield from request_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id)
    )


def delete_groups(
    group_ids: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0, node_id: int | None = None
) -> Dialogue[dict[str, type[BrokerResponseError]]]:
    """Delete empty groups of any type: ``{group: error class}`` (NoError: done; NonEmptyGroupError,
    GroupIdNotFoundError)."""

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, BrokerResponseError]]:
        answer = yield from send(node, DeleteGroupsRequest(groups_names=list(groups)))
        return {result.group_id: for_code(result.error_code)() for result in answer.results}

    found = yield from request_coordinators(
        group_ids, ask, what="deleting groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {group: type(error) for group, error in found.items() if isinstance(error, BrokerResponseError)}


# Dialogues about the offsets that groups have committed: read, set, moved to a place, forgotten.
#
# Share groups keep theirs in another way (below). Names of topics are spoken, never ids, so that a topic
# that is gone can still be named: OffsetFetch and OffsetCommit up to version 9.


Offsets = dict[TopicPartition, OffsetAndMetadata]
Errors = dict[TopicPartition, type[BrokerResponseError]]
"""NoError where it went well."""

_MAX_VERSION: Final = 9
"""Later ones name topics by their ids."""
_STABLE_SINCE: Final = 7
_SEVERAL_GROUPS_SINCE: Final = 8
_ALL_SINCE: Final = 2


def list_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    require_stable: bool = False,
) -> Dialogue[dict[str, Offsets]]:
    """Committed offsets: ``{group: {partition: OffsetAndMetadata}}``; all of a group for None, else of the partitions
    (offset -1: none committed). One request for each coordinator since 3.0 (KIP-709). ``require_stable``: wait until no
    transaction is about to commit another one (KIP-447; since 2.5). Raises the first error."""
    wanted = {
        group: None if parts is None else partitions_of(parts, f"partitions of {group}")
        for group, parts in group_specs.items()
    }
    message = OffsetFetchRequest

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, Offsets | BrokerResponseError]]:
        """One request for all groups of a coordinator, or, before 3.0, one for each group."""
        try:
            request = message(
                groups=[
                    message.OffsetFetchRequestGroup(
                        group_id=group, topics=_topics_as(message.OffsetFetchRequestTopics, wanted[group])
                    )
                    for group in groups
                ],
                require_stable=require_stable,
            )
            answer = yield from send(node, request, min_version=_SEVERAL_GROUPS_SINCE, max_version=_MAX_VERSION)
            return {each.group_id: _offsets(each) for each in answer.groups}
        except IncompatibleBrokerVersion:
            pass
        found: dict[str, Offsets | BrokerResponseError] = {}
        for group in groups:
            topics = _topics_as(message.OffsetFetchRequestTopic, wanted[group])

            def build(version: int, group: str = group, topics: Any = topics) -> OffsetFetchRequest:
                return message(group_id=group, topics=topics, require_stable=version >= _STABLE_SINCE)

            of_one: OffsetFetchResponse = yield from send(
                node,
                ByVersion(message, build) if require_stable else message(group_id=group, topics=topics),
                min_version=1 if wanted[group] is not None else _ALL_SINCE,
                max_version=_SEVERAL_GROUPS_SINCE - 1,
            )
            found[group] = _offsets(of_one)
        return found

    answers = yield from request_coordinators(
        wanted, ask, what="listing offsets of groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    return {group: result_or_raise(answer, group) for group, answer in answers.items()}


def alter_group_offsets(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[Errors]:
    """Commit offsets for a group without members: ``{partition: error class}``, NoError where it went well
    (UnknownMemberIdError: the group has some)."""
    if not offsets:
        return {}
    topics = topics_as(
        OffsetCommitRequest.OffsetCommitRequestTopic,
        by_topic(offsets),
        lambda partition: _committed(partition.partition, offsets[partition]),
    )
    request = OffsetCommitRequest(group_id=group_id, topics=topics)

    def ask(node: int) -> Dialogue[Errors]:
        answer = yield from send(node, request, max_version=_MAX_VERSION)
        raise_transient((each.error_code, None, f"group {group_id}") for _, each in each_partition(answer.topics))
        return _errors_of(answer)

    what = f"altering offsets of group {group_id}"
    return (
        yield from request_coordinator(group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id)
    )


def reset_group_offsets(
    group_id: str,
    offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
    leader_of: LeaderOf,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[TopicPartition, dict[str, Any]]]:
    """Commit the offsets that are meant, for a group without members: ``{partition: {"error": class, "offset"}}``.

    An OffsetSpec or OffsetTimestamp is looked up; a plain number is an offset. Each is brought into the partition's
    range: what is before the start becomes the start, what is behind the end, or not there, the end. The text that was
    committed before stays.
    """
    specs = dict(offset_specs)
    if not specs:
        return {}
    for partition, spec in specs.items():
        if not is_integer(spec):
            raise IllegalArgumentError(f"{partition}: {spec!r}: an OffsetSpec, an OffsetTimestamp or an offset")
    yield from check_partitions(specs, backoff=backoff, timeout_s=timeout_s)
    yield RefreshMetadata(sorted({partition.topic for partition in specs}))
    for partition in specs:
        if leader_of(partition) is None:
            raise UnknownTopicOrPartitionError(f"{partition.topic}-{partition.partition}")
    before = yield from list_group_offsets(
        {group_id: list(specs)}, backoff=backoff, timeout_s=timeout_s, node_id=node_id
    )
    looked_up = {
        partition: int(spec) for partition, spec in specs.items() if isinstance(spec, (OffsetSpec, OffsetTimestamp))
    }
    look_up = partial(list_offsets, leader_of=leader_of, timeout_s=timeout_s, backoff=backoff)
    starts = yield from look_up(dict.fromkeys(specs, int(OffsetSpec.EARLIEST)))
    ends = yield from look_up(dict.fromkeys(specs, int(OffsetSpec.LATEST)))
    meant = yield from look_up(looked_up)
    reset: Offsets = {}
    for partition, spec in specs.items():
        offset = meant[partition].offset if partition in meant else int(spec)
        start, end = starts[partition].offset, ends[partition].offset
        text = before[group_id][partition].metadata if partition in before[group_id] else ""
        reset[partition] = OffsetAndMetadata(end if not 0 <= offset <= end else max(offset, start), text, -1)
    errors = yield from alter_group_offsets(group_id, reset, backoff=backoff, timeout_s=timeout_s, node_id=node_id)
    return {partition: {"error": error, "offset": reset[partition].offset} for partition, error in errors.items()}


def delete_group_offsets(
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[Errors]:
    """Forget committed offsets (KIP-496, 2.4): ``{partition: error class}`` (GroupSubscribedToTopicError: a member
    reads the topic). Raises the group's error (GroupIdNotFoundError, NonEmptyGroupError)."""
    wanted = partitions_of(partitions, "partitions")
    if not wanted:
        return {}
    message = OffsetDeleteRequest
    topics = topics_as(
        message.OffsetDeleteRequestTopic,
        by_topic(wanted),
        lambda partition: message.OffsetDeleteRequestPartition(partition_index=partition.partition),
    )
    request = message(group_id=group_id, topics=topics)
    return (yield from _request_of_group(request, "deleting offsets of group", backoff, timeout_s, node_id))


def _errors_of(answer: Response) -> Errors:
    """The errors of partitions in a response whose last field has the topics."""
    *_, topics = answer.fields
    return {partition: for_code(each.error_code) for partition, each in each_partition(getattr(answer, topics))}


def _request_of_group(
    request: Any,
    doing: str,
    backoff: Backoff,
    timeout_s: float,
    node_id: int | None,
    attempts: float = inf,
    read: Callable[[Any], dict[Any, type[BrokerResponseError]]] = _errors_of,
) -> Dialogue[dict[Any, type[BrokerResponseError]]]:
    """What ``read`` finds in the response of the coordinator of the request's group. Raises the group's error."""
    group_id, what = request.group_id, f"{doing} {request.group_id}"

    def ask(node: int) -> Dialogue[dict[Any, type[BrokerResponseError]]]:
        answer: Any = yield from send(node, request)
        raise_first(in_all(f"group {group_id}")(answer))
        return read(answer)

    return (
        yield from request_coordinator(
            group_id, ask, what=what, backoff=backoff, timeout_s=timeout_s, node_id=node_id, attempts=attempts
        )
    )


def _offsets(
    answer: OffsetFetchResponse | OffsetFetchResponse.OffsetFetchResponseGroup,
) -> Offsets | BrokerResponseError:
    if answer.error_code:
        return for_code(answer.error_code)("")
    found: Offsets = {}
    for partition, each in each_partition(answer.topics):
        if each.error_code:
            return for_code(each.error_code)(f"{partition.topic}-{partition.partition}")
        found[partition] = OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch)
    return found


def _topics_as(kind: type[S], partitions: Iterable[TopicPartition] | None) -> list[S] | None:
    return None if partitions is None else topics_as(kind, by_topic(partitions))


def _committed(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequest.OffsetCommitRequestPartition:
    if offset.offset < 0:
        raise IllegalArgumentError(f"{offset}: an offset is at least 0; to forget one, delete_group_offsets()")
    return OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


# A dialogue that looks up offsets of partitions by what they are, or by time.


def list_partition_offsets(
    topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
    isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
) -> Dialogue[dict[TopicPartition, OffsetAndTimestamp]]:
    """The offset that each OffsetSpec means, or the first that is not older than a time in ms since the epoch:
    ``{partition: OffsetAndTimestamp}``. ``offset`` is -1 when there is none, ``timestamp`` for what is no record,
    ``leader_epoch`` where it is not told.

    READ_COMMITTED: nothing behind the first open transaction counts (KIP-98). Raises the first error
    (UnknownTopicOrPartitionError). UnsupportedVersionError: the brokers do not know this OffsetSpec, or (before
    0.10.1) times.
    """
    form = "{TopicPartition: OffsetSpec or time in ms} is needed"
    given = mapping_of(topic_partition_specs, "topic_partition_specs", form)
    specs = {partition_of(partition, "topic_partition_specs"): spec for partition, spec in given.items()}
    known = {int(spec) for spec in OffsetSpec}
    for partition, spec in specs.items():
        if not is_integer(spec):
            raise IllegalArgumentError(f"{partition}: {spec!r}: an OffsetSpec, or a time in ms, is needed")
        if spec < 0 and spec not in known:
            raise IllegalArgumentError(f"{partition}: {spec!r}: no OffsetSpec has that number, and no time is negative")
    try:
        read_committed = IsolationLevel.of(isolation_level) is IsolationLevel.READ_COMMITTED
    except ValueError as error:
        raise IllegalArgumentError(f"isolation_level={isolation_level!r}: {error}") from None

    def build(partitions: Sequence[TopicPartition]) -> ByVersion[Any]:
        return offsets_request({partition: int(specs[partition]) for partition in partitions}, read_committed)

    found = yield from request_leaders(
        specs, build, read_offsets, what="listing offsets", backoff=backoff, timeout_s=timeout_s
    )
    return {partition: OffsetAndTimestamp(*each) for partition, each in results_or_raise(found).items()}


# Dialogues about where share groups stand: the first offset of each partition that is not done (KIP-932, KIP-1226).
#
# Describing and deleting a share group is as for others (above).


class SharePartitionOffset(NamedTuple):
    """Where a share group stands in a partition. ``start_offset``: the first record that is not done, -1 when the group
    has not begun; ``lag``: how many records are not done, -1 when the broker does not report it (before 4.2)."""

    start_offset: int
    lag: int = -1
    leader_epoch: int = -1


ShareOffsets = dict[TopicPartition, SharePartitionOffset]


def list_share_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, ShareOffsets]]:
    """``{group: {partition: SharePartitionOffset}}``; of all partitions for None. Raises the first error."""
    answers = yield from share_group_offsets(group_specs, backoff=backoff, timeout_s=timeout_s, node_id=node_id)
    return {group: result_or_raise(answer, group) for group, answer in answers.items()}


def share_group_offsets(
    group_specs: Mapping[str, Iterable[TopicPartition] | None],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
) -> Dialogue[dict[str, ShareOffsets | BrokerResponseError]]:
    """As :func:`list_share_group_offsets`, each group's error in the place of its offsets."""
    wanted = {group: None if parts is None else list(parts) for group, parts in group_specs.items()}
    message = DescribeShareGroupOffsetsRequest

    def ask(node: int, groups: Sequence[str]) -> Dialogue[Mapping[str, ShareOffsets | BrokerResponseError]]:
        # A group that does not exist is answered with no topics and no error (seen on 4.3.0).
        answer = yield from send(
            node,
            message(
                groups=[
                    message.DescribeShareGroupOffsetsRequestGroup(
                        group_id=group,
                        topics=_topics_as(message.DescribeShareGroupOffsetsRequestTopic, wanted[group]),
                    )
                    for group in groups
                ]
            ),
        )
        found: dict[str, ShareOffsets | BrokerResponseError] = {}
        for group in answer.groups:
            parts = list(each_partition(group.topics))
            try:
                raise_first(
                    (part.error_code, part.error_message, f"{partition.topic}-{partition.partition}")
                    for partition, part in parts
                )
            except BrokerResponseError as error:
                found[group.group_id] = error
            else:
                found[group.group_id] = {
                    partition: SharePartitionOffset(part.start_offset, part.lag, part.leader_epoch)
                    for partition, part in parts
                }
            if group.error_code:
                found[group.group_id] = result_of(group.error_code, group.error_message)
        return found

    return (
        yield from request_coordinators(
            wanted, ask, what="listing offsets of share groups", backoff=backoff, timeout_s=timeout_s, node_id=node_id
        )
    )


def alter_share_group_offsets(
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    backoff: Backoff,
    timeout_s: float = 30.0,
    node_id: int | None = None,
    attempts: float = inf,
) -> Dialogue[Errors]:
    """Let an empty share group begin at other offsets: ``{partition: error class}`` (NoError: done).

    Raises the group's error (NonEmptyGroupError, GroupIdNotFoundError).
    """
    if not offsets:
        return {}
    for partition, offset in offsets.items():
        if not isinstance(offset, int) or offset < 0:
            raise IllegalArgumentError(f"{partition}: {offset!r}: an offset is a number, at least 0")
    message = AlterShareGroupOffsetsRequest
    topics = topics_as(
        message.AlterShareGroupOffsetsRequestTopic,
        by_topic(offsets),
        lambda partition: message.AlterShareGroupOffsetsRequestPartition(
            partition_index=partition.partition, start_offset=offsets[partition]
        ),
    )
    request = message(group_id=group_id, topics=topics)
    doing = "altering offsets of share group"
    return (yield from _request_of_group(request, doing, backoff, timeout_s, node_id, attempts))


def delete_share_group_offsets(
    group_id: str, topics: Iterable[str], *, backoff: Backoff, timeout_s: float = 30.0, node_id: int | None = None
) -> Dialogue[dict[str, type[BrokerResponseError]]]:
    """Let an empty share group forget topics: ``{topic: error class}``. Raises the group's error."""
    wanted = list(topics)
    if isinstance(topics, str) or not all(isinstance(topic, str) for topic in wanted):
        raise IllegalArgumentError(f"topics={topics!r}: a list of names; share groups forget whole topics")
    if not wanted:
        return {}
    message = DeleteShareGroupOffsetsRequest
    gone = [message.DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in wanted]
    request = message(group_id=group_id, topics=gone)

    def read(answer: DeleteShareGroupOffsetsResponse) -> dict[str, type[BrokerResponseError]]:
        return {topic.topic_name: for_code(topic.error_code) for topic in answer.responses}

    doing = "deleting offsets of share group"
    return (yield from _request_of_group(request, doing, backoff, timeout_s, node_id, read=read))

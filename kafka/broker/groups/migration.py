"""A group changes its type while it is in use (KIP-848, ``group.consumer.migration.policy``).

    classic ──a member of the consumer protocol joins──> consumer       every member continues with what it had;
                                                                        epoch = generation
    consumer ──the last member of the consumer protocol leaves,         classic members are left: they join again
              classic ones stay──────────────────────────> classic

An empty group changes with the first member of the other type, whatever the policy. The functions here are pure: they
compute what the new group holds; the coordinator writes it.

While a consumer group has members that speak the classic protocol, an epoch is a generation to them, and they have to
join again (REBALANCE_IN_PROGRESS) where a consumer member would get its next assignment in a heartbeat. Such a member
joins at once, without waiting for others, never leads, and fetches its reconciled assignment with SyncGroup; its
subscription names the partitions that it owns. The classic members alone decide which protocols are supported.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from kafka.broker.groups.classic_group import (
    ClassicGroup,
    ClassicJoinRequest,
    ClassicMember,
    ClassicSyncRequest,
    JoinGroupResult,
    Protocols,
    SyncGroupResult,
)
from kafka.broker.groups.consumer_group import (
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    DurableGroupState,
    metadata_hash,
)
from kafka.broker.groups.timers import GroupTimeout
from kafka.broker.topics import TopicIdPartition, TopicsImage, by_topic
from kafka.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)
from kafka.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    deserialize,
    deserialize_version,
    serialize,
)

UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})


def check_upgrade(group: ClassicGroup, policy: str, max_size: int) -> None:
    """GroupIdNotFoundError (69) where a consumer member may not convert this classic group."""
    if policy.lower() not in UPGRADING:
        why = "online upgrade is disabled"
    elif not group.is_of_consumers:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > max_size:
        why = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise GroupIdNotFoundError(f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.")


def upgraded(group: ClassicGroup, topics: TopicsImage) -> DurableGroupState:
    """The same group as a consumer group. GroupIdNotFoundError (69) for members that cannot be read."""
    members: dict[str, ConsumerMember] = {}
    try:
        for one in group.members.values():
            data = one.metadata(group.protocol_name) or one.protocols[0][1]
            said = deserialize(ConsumerProtocolSubscription, data, null_is_empty=True)
            had = _read_assignment(one.assignment)
            members[one.member_id] = ConsumerMember(
                one.member_id,
                one.instance_id,
                said.rack_id or None,
                one.client_id,
                one.client_host,
                frozenset(said.topics),
                rebalance_timeout_ms=one.rebalance_timeout_ms,
                classic=ClassicMemberMetadata(one.session_timeout_ms, one.protocols),
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned=dict.fromkeys(_known_partitions(had, topics), group.generation),
            )
    except KafkaProtocolError:
        raise GroupIdNotFoundError(
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol "
            "is malformed."
        ) from None
    subscribed = {name for member in members.values() for name in member.topics}
    return DurableGroupState(
        group.generation,
        metadata_hash(topics.infos(subscribed)),
        group.generation,
        0,
        members,
        {member_id: frozenset(member.assigned) for member_id, member in members.items()},
    )


def can_downgrade(
    group: ConsumerGroup, leaving: Collection[str], policy: str, max_size: int, *, replaced: bool = False
) -> bool:
    """Whether without these members the group is one of classic members. ``replaced``: a classic one takes the place of
    the one that leaves."""
    rest = [member for member in group.members.values() if member.member_id not in leaving]
    return (
        len(rest) < len(group.members)
        and (bool(rest) or replaced)
        and all(member.classic is not None for member in rest)
        and policy.lower() in DOWNGRADING
        and len(rest) + replaced <= max_size
    )


def downgrade(group: ConsumerGroup, leaving: Collection[str], into: Callable[[], ClassicGroup]) -> ClassicGroup:
    """The same group without some members as a classic one, with the assignments that were the target. ``into`` makes
    an empty one that is stable."""
    classic = into()
    members = [
        ClassicMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            PROTOCOL_TYPE,
            member.classic.protocols,
            member.classic.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        for member in group.members.values()
        if member.member_id not in leaving and member.classic is not None
    ]
    classic.adopt_members(members, group.epoch)
    classic.set_assignments(
        {one.member_id: _classic_assignment(group, one.member_id, one, classic.protocol_name) for one in members}
    )
    return classic


def _classic_assignment(group: ConsumerGroup, member_id: str, member: ClassicMember, protocol: str | None) -> bytes:
    try:
        version = deserialize_version(member.metadata(protocol))
    except KafkaProtocolError:
        version = 0
    return _write_assignment(group.durable.target.get(member_id, frozenset()), group.topics, version)


# -- the bytes of the classic protocol ---------------------------------------------------------------------------------


def _read_assignment(data: bytes) -> list[ConsumerProtocolAssignment.TopicPartition]:
    """Nothing for no bytes. KafkaProtocolError for bytes that are none."""
    if not data:
        return []
    return deserialize(ConsumerProtocolAssignment, data, null_is_empty=True).assigned_partitions


def _write_assignment(partitions: Iterable[TopicIdPartition], topics: TopicsImage, version: int) -> bytes:
    """An assignment without user data, of the topics that exist."""
    assigned = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=numbers)
        for topic_id, numbers in by_topic(partitions).items()
        if (name := topics.name_of(topic_id)) is not None
    ]
    return serialize(ConsumerProtocolAssignment(assigned_partitions=assigned), version)


def _known_partitions(
    named: Sequence[ConsumerProtocolAssignment.TopicPartition | ConsumerProtocolSubscription.TopicPartition],
    topics: TopicsImage,
) -> list[TopicIdPartition]:
    """The partitions of the named topics that exist."""
    infos = topics.infos([one.topic for one in named])
    return [(infos[one.topic].topic_id, number) for one in named if one.topic in infos for number in one.partitions]


# -- classic members of a consumer group -------------------------------------------------------------------------------


def classic_join(group: ConsumerGroup, request: ClassicJoinRequest, new_member_id: str, now: float) -> JoinGroupResult:
    """A JoinGroup request. ``new_member_id``: for a member that has none yet. Errors are raised."""
    member_id = request.member_id or new_member_id
    group.check_group_size(member_id)
    if not supports(group, request.protocol_type, request.protocols):
        raise InconsistentGroupProtocolError(f"Member {member_id}'s protocols are not supported.")
    if not request.member_id and request.instance_id is None and request.needs_known_id:
        return JoinGroupResult(MemberIdRequiredError, member_id)
    try:
        said = deserialize(ConsumerProtocolSubscription, request.protocols[0][1], null_is_empty=True)
    except KafkaProtocolError as error:
        raise UnknownError(str(error)) from None
    member = _find_joining_member(group, request, member_id)
    updated = member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=said.rack_id or member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
    )
    after = group.update_member(member, updated, set(_known_partitions(said.owned_partitions, group.topics)), now)
    timers = group.timers
    timers.cancel(GroupTimeout.MEMBER_JOIN, member_id)
    timers.cancel(GroupTimeout.REVOKE, member_id)
    timers.set(GroupTimeout.SESSION, member_id, now + request.session_timeout_ms / 1000)
    timers.set(GroupTimeout.MEMBER_SYNC, member_id, now + request.rebalance_timeout_ms / 1000)
    return JoinGroupResult(None, member_id, after.epoch, PROTOCOL_TYPE, request.protocols[0][0])


def _find_joining_member(group: ConsumerGroup, request: ClassicJoinRequest, member_id: str) -> ConsumerMember:
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return group.find_static(request.instance_id, member_id)
    there = group.static_member(request.instance_id)
    return ConsumerMember(member_id) if there is None else group.replace_static(there, member_id)


def supports(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a member with these protocols has one that all classic members here have."""
    others = [{name for name, _ in one.classic.protocols} for one in group.members.values() if one.classic is not None]
    return protocol_type == PROTOCOL_TYPE and any(all(name in names for names in others) for name, _ in protocols)


def classic_sync(group: ConsumerGroup, request: ClassicSyncRequest, now: float) -> SyncGroupResult:
    """A SyncGroup request; the assignments in it are ignored. Errors are raised."""
    member, classic = _member(group, request.member_id, request.instance_id)
    _check_generation(member, request.generation)
    name = classic.protocols[0][0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, name):
        raise InconsistentGroupProtocolError(f"the group's protocol is {PROTOCOL_TYPE}, the member's {name}")
    if group.epoch > member.epoch and member.state is not ConsumerMemberState.UNREVOKED_PARTITIONS:
        _schedule_rejoin_timeout(group, member, now)
        raise RebalanceInProgressError(f"member {member.member_id} has to join again")
    group.timers.cancel(GroupTimeout.MEMBER_SYNC, member.member_id)
    _renew_session(group, member, classic, now)
    data = _write_assignment(member.assigned, group.topics, deserialize_version(classic.protocols[0][1]))
    return SyncGroupResult(None, request.protocol_type, request.protocol_name, data)


def classic_heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float
) -> None:
    """A Heartbeat request. RebalanceInProgressError (27): the member has an assignment to fetch or partitions to
    revoke."""
    member, classic = _member(group, member_id, instance_id)
    _check_generation(member, generation)
    _renew_session(group, member, classic, now)
    waits = member.state is ConsumerMemberState.UNRELEASED_PARTITIONS
    if (
        member.epoch < group.epoch
        or member.state is ConsumerMemberState.UNREVOKED_PARTITIONS
        or (waits and not _waits_for_others(group, member))
    ):
        _schedule_rejoin_timeout(group, member, now)
        raise RebalanceInProgressError(f"member {member_id} has to join again")


def find_leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
    """The id of the member that a LeaveGroup request means, of either protocol: tools take members out with it."""
    if instance_id is None:
        return group.member(member_id).member_id
    found = group.static_member(instance_id)
    if found is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    return group.find_static(instance_id, member_id).member_id if member_id else found.member_id


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMemberMetadata]:
    member = group.find_leaving_member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGenerationError(f"member {member.member_id} is at epoch {member.epoch}, not {generation}")


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    target = group.durable.target.get(member.member_id, frozenset())
    return any(one not in member.assigned and group.is_held(one) for one in target)


def _schedule_rejoin_timeout(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    group.timers.set_if_none(GroupTimeout.MEMBER_JOIN, member.member_id, now + member.rebalance_timeout_ms / 1000)


def _renew_session(group: ConsumerGroup, member: ConsumerMember, classic: ClassicMemberMetadata, now: float) -> None:
    group.timers.set(GroupTimeout.SESSION, member.member_id, now + classic.session_timeout_ms / 1000)

"""Members of a group of the new protocol that speak the classic one, while the group's consumers are changed over.

To such a member an epoch is a generation, and it is told to join again (REBALANCE_IN_PROGRESS) where a member of the
new protocol would be told its next assignment. It joins at once, without waiting for others, leads nothing, and fetches
with SyncGroup what its reconciliation has come to; its subscription names what it owns. Answers come at once, too: the
functions here return them. Which protocols there are to choose from is decided by the classic members alone.
"""

from __future__ import annotations

from kafka.broker.groups.classic_member import Join, JoinAnswer, Protocols, Sync, SyncAnswer
from kafka.broker.groups.consumer_group import ConsumerGroup
from kafka.broker.groups.consumer_member import ClassicSide, ConsumerMember, Partition
from kafka.broker.groups.embedded_protocol import (
    PROTOCOL_TYPE,
    read_subscription,
    read_version,
    write_assignment,
)
from kafka.broker.groups.states import MemberState
from kafka.broker.groups.timers import Timeout
from kafka.broker.topics import by_topic
from kafka.errors import (
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownError,
    UnknownMemberIdError,
)


def join(group: ConsumerGroup, wanted: Join, new_member_id: str, now: float) -> JoinAnswer:
    """A JoinGroup request. ``new_member_id``: for a member that has none yet. Errors are raised."""
    member_id = wanted.member_id or new_member_id
    group.check_room(member_id)
    if not supports(group, wanted.protocol_type, wanted.protocols):
        raise InconsistentGroupProtocolError(f"Member {member_id}'s protocols are not supported.")
    if not wanted.member_id and wanted.instance_id is None and wanted.needs_known_id:
        return JoinAnswer(MemberIdRequiredError, member_id)
    try:
        said = read_subscription(wanted.protocols[0][1])
    except KafkaProtocolError as error:
        raise UnknownError(str(error)) from None
    member = _find(group, wanted, member_id)
    updated = member._replace(
        instance_id=member.instance_id if wanted.instance_id is None else wanted.instance_id,
        rack_id=member.rack_id if said.rack_id is None else said.rack_id,
        client_id=wanted.client_id,
        client_host=wanted.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=wanted.rebalance_timeout_ms,
        classic=ClassicSide(wanted.session_timeout_ms, wanted.protocols),
    )
    infos = group.topics.infos(said.owned)
    owned: set[Partition] = {
        (infos[topic].topic_id, number) for topic, numbers in said.owned.items() if topic in infos for number in numbers
    }
    after = group.step(member, updated, owned, now)
    timers = group.timers
    timers.cancel(Timeout.MEMBER_JOIN, member_id)
    timers.cancel(Timeout.REVOKE, member_id)
    timers.set(Timeout.SESSION, member_id, now + wanted.session_timeout_ms / 1000)
    timers.set(Timeout.MEMBER_SYNC, member_id, now + wanted.rebalance_timeout_ms / 1000)
    return JoinAnswer(None, member_id, after.epoch, PROTOCOL_TYPE, wanted.protocols[0][0])


def _find(group: ConsumerGroup, wanted: Join, member_id: str) -> ConsumerMember:
    if wanted.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if wanted.member_id:
        return group.find_static(wanted.instance_id, member_id)
    there = group.static_member(wanted.instance_id)
    return ConsumerMember(member_id) if there is None else group.replace_static(there, member_id)


def supports(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a member with these protocols has one that all classic members here have."""
    others = [{name for name, _ in one.classic.protocols} for one in group.members.values() if one.classic is not None]
    return protocol_type == PROTOCOL_TYPE and any(all(name in names for names in others) for name, _ in protocols)


def sync(group: ConsumerGroup, wanted: Sync, now: float) -> SyncAnswer:
    """A SyncGroup request; what is assigned in it is nobody's business. Errors are raised."""
    member, classic = _member(group, wanted.member_id, wanted.instance_id)
    _check_generation(member, wanted.generation)
    name = classic.protocols[0][0]
    if wanted.protocol_type not in (None, PROTOCOL_TYPE) or wanted.protocol_name not in (None, name):
        raise InconsistentGroupProtocolError(f"the group's protocol is {PROTOCOL_TYPE}, the member's {name}")
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _call_to_join(group, member, now)
        raise RebalanceInProgressError(f"member {member.member_id} has to join again")
    group.timers.cancel(Timeout.MEMBER_SYNC, member.member_id)
    _renew_session(group, member, classic, now)
    partitions = {
        topic: numbers
        for topic_id, numbers in by_topic(member.assigned).items()
        if (topic := group.topics.name_of(topic_id)) is not None
    }
    data = write_assignment(partitions, read_version(classic.protocols[0][1]))
    return SyncAnswer(None, wanted.protocol_type, wanted.protocol_name, data)


def heartbeat(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, now: float) -> None:
    """A Heartbeat request. RebalanceInProgressError (27): there is something to fetch or to let go."""
    member, classic = _member(group, member_id, instance_id)
    _check_generation(member, generation)
    _renew_session(group, member, classic, now)
    waits = member.state is MemberState.UNRELEASED_PARTITIONS
    if (
        member.epoch < group.epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (waits and not _waits_for_others(group, member))
    ):
        _call_to_join(group, member, now)
        raise RebalanceInProgressError(f"member {member_id} has to join again")


def leaver(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str:
    """The id of the member that a LeaveGroup request means, of either protocol: tools take members out with it."""
    if instance_id is None:
        return group.member(member_id).member_id
    found = group.static_member(instance_id)
    if found is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    return group.find_static(instance_id, member_id).member_id if member_id else found.member_id


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[ConsumerMember, ClassicSide]:
    member = group.leaver(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGenerationError(f"member {member.member_id} is at epoch {member.epoch}, not {generation}")


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    target = group.picture.target.get(member.member_id, frozenset())
    return any(one not in member.assigned and group.is_held(one) for one in target)


def _call_to_join(group: ConsumerGroup, member: ConsumerMember, now: float) -> None:
    group.timers.set_if_none(Timeout.MEMBER_JOIN, member.member_id, now + member.rebalance_timeout_ms / 1000)


def _renew_session(group: ConsumerGroup, member: ConsumerMember, classic: ClassicSide, now: float) -> None:
    group.timers.set(Timeout.SESSION, member.member_id, now + classic.session_timeout_ms / 1000)

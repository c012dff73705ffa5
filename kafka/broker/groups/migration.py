"""A group changes its protocol while it is in use (KIP-848, ``group.consumer.migration.policy``).

    classic ──a consumer of the new protocol joins──> consumer      every member goes on with what it had; epoch =
                                                                    generation
    consumer ──the last consumer of the new protocol leaves,        what is left are classic members: they join again
              classic ones stay──────────────────────────> classic

An empty group changes with the first member of the other kind, whatever the policy. Pure: here is only what the new
group holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kafka.broker.groups.classic_group import ClassicGroup
from kafka.broker.groups.classic_member import ClassicMember
from kafka.broker.groups.consumer_group import ConsumerGroup
from kafka.broker.groups.consumer_member import ClassicSide, ConsumerMember
from kafka.broker.groups.consumer_target import Topics
from kafka.broker.groups.embedded_protocol import (
    PROTOCOL_TYPE,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from kafka.broker.groups.picture import Picture, metadata_hash
from kafka.broker.topics import by_topic
from kafka.errors import GroupIdNotFoundError, KafkaProtocolError

UPGRADING: Final = frozenset({"upgrade", "bidirectional"})
DOWNGRADING: Final = frozenset({"downgrade", "bidirectional"})


def check_upgrade(group: ClassicGroup, policy: str, max_size: int) -> None:
    """GroupIdNotFoundError (69) where a consumer of the new protocol may not change this classic group."""
    if policy.lower() not in UPGRADING:
        why = "online upgrade is disabled"
    elif not group.is_of_consumers:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > max_size:
        why = "the group size exceeds the consumer group maximum size"
    else:
        return
    raise GroupIdNotFoundError(f"Cannot upgrade classic group {group.group_id} to consumer group because {why}.")


def upgraded(group: ClassicGroup, topics: Topics) -> Picture:
    """The same group as one of the new protocol. GroupIdNotFoundError (69) for members that cannot be read."""
    members: dict[str, ConsumerMember] = {}
    try:
        for one in group.members.values():
            said = read_subscription(one.metadata(group.protocol_name) or one.protocols[0][1])
            had = read_assignment(one.assignment)
            infos = topics.infos(had)
            members[one.member_id] = ConsumerMember(
                one.member_id,
                one.instance_id,
                said.rack_id,
                one.client_id,
                one.client_host,
                frozenset(said.topics),
                rebalance_timeout_ms=one.rebalance_timeout_ms,
                classic=ClassicSide(one.session_timeout_ms, one.protocols),
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned={
                    (infos[topic].topic_id, number): group.generation
                    for topic, numbers in had.items()
                    if topic in infos
                    for number in numbers
                },
            )
    except KafkaProtocolError:
        raise GroupIdNotFoundError(
            f"Cannot upgrade classic group {group.group_id} to consumer group because the embedded consumer protocol "
            "is malformed."
        ) from None
    subscribed = {name for member in members.values() for name in member.topics}
    return Picture(
        group.generation,
        metadata_hash(topics.infos(subscribed)),
        group.generation,
        0,
        members,
        {member_id: frozenset(member.assigned) for member_id, member in members.items()},
    )


def may_downgrade(
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
    for member in group.members.values():
        if member.member_id in leaving or member.classic is None:
            continue
        classic.put(
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
        )
    classic.generation = group.epoch
    classic.select_protocol()
    for member_id, one in classic.members.items():
        one.assignment = _assignment(group, member_id, one, classic.protocol_name)
    return classic


def _assignment(group: ConsumerGroup, member_id: str, member: ClassicMember, protocol: str | None) -> bytes:
    target: Mapping[str, list[int]] = {
        name: numbers
        for topic_id, numbers in by_topic(group.picture.target.get(member_id, frozenset())).items()
        if (name := group.topics.name_of(topic_id)) is not None
    }
    try:
        version = read_version(member.metadata(protocol))
    except KafkaProtocolError:
        version = 0
    return write_assignment(target, version)

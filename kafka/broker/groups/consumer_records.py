"""Groups of the new protocol as records of ``__consumer_offsets``, in Kafka's own form, and groups from such records.

    ConsumerGroupMemberMetadata            what a member said of itself
    ConsumerGroupMetadata                  the group's epoch
    ConsumerGroupRegularExpression         the topics of a regular expression
    ConsumerGroupTargetAssignment*         the target: its epoch, each member's part
    ConsumerGroupCurrentMemberAssignment   what a member has

One change of a group is one batch of these: of what a :class:`~kafka.broker.groups.picture.Picture` holds, that which
differs from what was written last (:func:`changes`). So no method of the group has to remember what it must write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kafka.broker.groups.classic_records import Entry
from kafka.broker.groups.consumer_member import ClassicSide, ConsumerMember, Owned, Partition
from kafka.broker.groups.picture import FIRST_EPOCH, Picture, ResolvedRegex
from kafka.broker.groups.states import MemberState
from kafka.broker.state.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from kafka.broker.state.record_codec import decode_value, encode_key, encode_value
from kafka.broker.topics import by_topic

_Member = ConsumerGroupMemberMetadataValue
_Current = ConsumerGroupCurrentMemberAssignmentValue
_Target = ConsumerGroupTargetAssignmentMemberValue

_KNOWN_STATES: Final = {int(state) for state in MemberState}


def changes(group_id: str, old: Picture, new: Picture) -> list[Entry]:
    """The records that lead from the one to the other. The ends of what is gone come first, so that no partition has
    two owners at any record."""
    found: list[Entry] = []
    if old is new:
        return found
    gone: list[str] = []
    others: list[ConsumerMember] = []
    if old.members is not new.members:
        gone = [member_id for member_id in old.members if member_id not in new.members]
        others = [one for one in new.members.values() if old.members.get(one.member_id) is not one]
    found += [(_current_key(group_id, one), None) for one in gone]
    found += [(_target_key(group_id, one), None) for one in gone if one in old.target]
    found += [(_member_key(group_id, one), None) for one in gone]
    for member in others:
        was = old.members.get(member.member_id)
        if was is None or _said(was) != _said(member):
            found.append((_member_key(group_id, member.member_id), encode_value(_member_value(member), 0)))
    for text, resolved in new.regexes.items():
        if old.regexes.get(text) != resolved:
            found.append((_regex_key(group_id, text), encode_value(_regex_value(resolved), 0)))
    found += [(_regex_key(group_id, text), None) for text in old.regexes if text not in new.regexes]
    if (old.epoch, old.metadata_hash) != (new.epoch, new.metadata_hash):
        value = ConsumerGroupMetadataValue(epoch=new.epoch, metadata_hash=new.metadata_hash)
        found.append((_group_key(group_id), encode_value(value, 0)))
    for member_id, target in new.target.items() if old.target is not new.target else ():
        if member_id in new.members and old.target.get(member_id, frozenset()) != target:
            found.append((_target_key(group_id, member_id), encode_value(_target_value(target), 0)))
    if (old.assignment_epoch, old.assigned_at_ms) != (new.assignment_epoch, new.assigned_at_ms):
        metadata = ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=new.assignment_epoch, assignment_timestamp=new.assigned_at_ms
        )
        found.append((_target_epoch_key(group_id), encode_value(metadata, 0)))
    # Who lets go before who takes: read in this order, no partition is with two members.
    changed = [one for one in others if _has(old.members.get(one.member_id)) != _has(one)]
    changed.sort(key=lambda one: len(one.holds().difference(_holds(old.members.get(one.member_id)))))
    found += [(_current_key(group_id, one.member_id), encode_value(_current_value(one), 0)) for one in changed]
    return found


def tombstones(group_id: str, old: Picture) -> list[Entry]:
    """The end of a group, in Kafka's order."""
    keys = [_current_key(group_id, one) for one in old.members]
    keys += [_target_key(group_id, one) for one in old.members]
    keys.append(_target_epoch_key(group_id))
    keys += [_member_key(group_id, one) for one in old.members]
    keys += [_regex_key(group_id, text) for text in old.regexes]
    keys.append(encode_key(ConsumerGroupPartitionMetadataKey(group_id=group_id)))
    keys.append(_group_key(group_id))
    return [(key, None) for key in keys]


class PictureBuilder:
    """A picture from records, fed in their order."""

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.current: dict[str, bytes] = {}
        self.target: dict[str, frozenset[Partition]] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.is_there = False

    def feed(self, key: Any, value: bytes | None) -> None:
        """One record. ``key``: decoded."""
        if isinstance(key, ConsumerGroupMemberMetadataKey):
            self._member(key.member_id, value)
        elif isinstance(key, ConsumerGroupMetadataKey):
            self._group(value)
        elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
            found = decode_value(ConsumerGroupTargetAssignmentMetadataValue, value) if value is not None else None
            self.assignment_epoch = found.assignment_epoch if found is not None else FIRST_EPOCH
            self.assigned_at_ms = found.assignment_timestamp if found is not None else 0
        elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
            if value is None:
                self.target.pop(key.member_id, None)
            else:
                self.target[key.member_id] = frozenset(
                    (one.topic_id, number)
                    for one in decode_value(_Target, value).topic_partitions
                    for number in one.partitions
                )
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if value is None:
                self.current.pop(key.member_id, None)
            else:
                self.current[key.member_id] = value
        elif isinstance(key, ConsumerGroupRegularExpressionKey):
            self._regex(key.regular_expression, value)

    def _member(self, member_id: str, value: bytes | None) -> None:
        if value is None:
            self.members.pop(member_id, None)
            return
        self.is_there = True
        self.members.pop(member_id, None)
        self.members[member_id] = _member_of(member_id, decode_value(_Member, value))

    def _group(self, value: bytes | None) -> None:
        self.is_there = value is not None
        if value is None:
            self.epoch, self.metadata_hash = FIRST_EPOCH, 0
        else:
            found = decode_value(ConsumerGroupMetadataValue, value)
            self.epoch, self.metadata_hash = found.epoch, found.metadata_hash

    def _regex(self, text: str, value: bytes | None) -> None:
        if value is None:
            self.regexes.pop(text, None)
        else:
            found = decode_value(ConsumerGroupRegularExpressionValue, value)
            self.regexes[text] = ResolvedRegex(frozenset(found.topics), found.timestamp)

    def picture(self) -> Picture:
        """What the records say."""
        members = {
            member_id: _with_current(member, decode_value(_Current, self.current[member_id]))
            if member_id in self.current
            else member
            for member_id, member in self.members.items()
        }
        return Picture(
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assigned_at_ms,
            members,
            self.target,
            self.regexes,
        )


def _said(member: ConsumerMember) -> tuple[Any, ...]:
    return member[1:10]


def _has(member: ConsumerMember | None) -> tuple[Any, ...] | None:
    return None if member is None else member[10:]


def _holds(member: ConsumerMember | None) -> set[Partition]:
    return set() if member is None else member.holds()


def _member_value(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        protocol = _Member.ClassicProtocol
        classic = _Member.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[protocol(name=name, metadata=data) for name, data in member.classic.protocols],
        )
    return _Member(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def _member_of(member_id: str, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.server_assignor,
        value.rebalance_timeout_ms,
        None
        if classic is None
        else ClassicSide(
            classic.session_timeout_ms, tuple((one.name, bytes(one.metadata)) for one in classic.supported_protocols)
        ),
    )


def _current_value(member: ConsumerMember) -> ConsumerGroupCurrentMemberAssignmentValue:
    return _Current(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_owned_value(member.assigned),
        partitions_pending_revocation=_owned_value(member.revoking),
    )


def _owned_value(owned: Owned) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    return [
        _Current.TopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[owned[(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in by_topic(owned).items()
    ]


def _with_current(member: ConsumerMember, value: ConsumerGroupCurrentMemberAssignmentValue) -> ConsumerMember:
    return member._replace(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state if value.state in _KNOWN_STATES else MemberState.UNKNOWN),
        assigned=_owned_of(value.assigned_partitions, value.member_epoch),
        revoking=_owned_of(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned_of(
    topics: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> dict[Partition, int]:
    """``epoch``: of partitions that no epoch is written for, by releases before 4.3."""
    found: dict[Partition, int] = {}
    for one in topics:
        epochs = one.assignment_epochs or []
        for at, number in enumerate(one.partitions):
            found[(one.topic_id, number)] = epochs[at] if at < len(epochs) else epoch
    return found


def _target_value(target: frozenset[Partition]) -> ConsumerGroupTargetAssignmentMemberValue:
    return _Target(
        topic_partitions=[
            _Target.TopicPartition(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(target).items()
        ]
    )


def _regex_value(resolved: ResolvedRegex) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(topics=sorted(resolved.topics), version=0, timestamp=resolved.at_ms)


def _group_key(group_id: str) -> bytes:
    return encode_key(ConsumerGroupMetadataKey(group_id=group_id))


def _member_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def _target_epoch_key(group_id: str) -> bytes:
    return encode_key(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def _target_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def _current_key(group_id: str, member_id: str) -> bytes:
    return encode_key(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def _regex_key(group_id: str, text: str) -> bytes:
    return encode_key(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=text))

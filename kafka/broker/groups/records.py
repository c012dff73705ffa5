"""Classic and consumer groups as records of ``__consumer_offsets``, in Kafka's own form, and groups from such records.

    GroupMetadata                          a whole classic group, at each generation that was agreed on (version 3)
    ConsumerGroupMemberMetadata            what a member sent about itself
    ConsumerGroupMetadata                  the group's epoch
    ConsumerGroupRegularExpression         the topics of a regular expression
    ConsumerGroupTargetAssignment*         the target assignment: its epoch, each member's part
    ConsumerGroupCurrentMemberAssignment   what a member has

One change of a consumer group is one batch: the difference of two
:class:`~kafka.broker.groups.consumer_group.DurableGroupState` (:func:`changes`), so no method of the group has to
remember what it must write. At the start, the last record of each key holds; a group that has records of both types has
migrated, and its last record says which type it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from kafka.broker.groups.classic_group import ClassicGroup, ClassicMember
from kafka.broker.groups.consumer_group import (
    FIRST_EPOCH,
    ClassicMemberMetadata,
    ConsumerMember,
    ConsumerMemberState,
    DurableGroupState,
    PartitionEpochs,
    ResolvedRegex,
)
from kafka.broker.state.records import (
    GROUP_KEYS,
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
    GroupMetadataKey,
    GroupMetadataValue,
    decode_value,
    encode_key,
    encode_value,
)
from kafka.broker.topics import TopicIdPartition, by_topic
from kafka.wire.message import Message

RecordEntry = tuple[bytes, "bytes | None"]
"""A record's key and value; None: a tombstone."""

CLASSIC_VERSION: Final = 3
"""Of GroupMetadata's values, as Apache Kafka 4.3.0 writes them (measured)."""


def classic_entry(group: ClassicGroup, assignments: Mapping[str, bytes]) -> RecordEntry:
    """A classic group's record, with these assignments."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.changed_at_ms,
        members=[
            GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return classic_key(group.group_id), encode_value(value, CLASSIC_VERSION)


def classic_key(group_id: str) -> bytes:
    return encode_key(GroupMetadataKey(group=group_id))


def load_classic(group: ClassicGroup, data: bytes) -> None:
    """Fill a new group from its record."""
    value = decode_value(GroupMetadataValue, data)
    for one in value.members:
        group.add_member(
            ClassicMember(
                one.member_id,
                one.group_instance_id,
                one.client_id,
                one.client_host,
                value.protocol_type,
                ((value.protocol or "", bytes(one.subscription)),),
                one.session_timeout,
                one.session_timeout if one.rebalance_timeout == -1 else one.rebalance_timeout,
                bytes(one.assignment),
            )
        )
    group.restore(
        value.generation, value.leader, value.protocol_type or None, value.protocol, value.current_state_timestamp
    )


def has_members(data: bytes) -> bool:
    """Whether a classic group's record has any."""
    return bool(decode_value(GroupMetadataValue, data).members)


_KEYS: Final[tuple[type[Message], ...]] = (
    GroupMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
_KINDS: Final = frozenset(key.api_key.to_bytes(2, "big") for key in _KEYS)

Replay = Callable[[Callable[[int, bytes, "bytes | None", Any], None], Callable[[int, int, int, bool], None]], None]


class LoadedGroups:
    """Classic groups' last records, and the states of consumer groups, by group id."""

    def __init__(self, replay: Replay) -> None:
        self.classic: dict[str, bytes] = {}
        self._builders: dict[str, DurableGroupStateBuilder] = {}
        replay(self._on_record, lambda *_marker: None)

    @property
    def consumer(self) -> dict[str, DurableGroupState]:
        return {group_id: builder.state() for group_id, builder in self._builders.items() if builder.is_there}

    def _on_record(self, _partition: int, key: bytes, value: bytes | None, _producer: Any) -> None:
        if key[:2] not in _KINDS:
            return
        decoded: Any = GROUP_KEYS.decode(key)
        if isinstance(decoded, GroupMetadataKey):
            if value is None:
                self.classic.pop(decoded.group, None)
            else:
                self.classic[decoded.group] = value
        else:
            self._builders.setdefault(decoded.group_id, DurableGroupStateBuilder()).feed(decoded, value)


_Member = ConsumerGroupMemberMetadataValue
_Current = ConsumerGroupCurrentMemberAssignmentValue
_Target = ConsumerGroupTargetAssignmentMemberValue

_KNOWN_STATES: Final = {int(state) for state in ConsumerMemberState}


def changes(group_id: str, old: DurableGroupState, new: DurableGroupState) -> list[RecordEntry]:
    """The records that lead from the one state to the other. Tombstones come first, so that no partition has two owners
    at any record."""
    found: list[RecordEntry] = []
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
        if was is None or _metadata_fields(was) != _metadata_fields(member):
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
    # Members that release partitions before those that get them: read in this order, no partition has two owners.
    changed = [one for one in others if _assignment_fields(old.members.get(one.member_id)) != _assignment_fields(one)]
    changed.sort(key=lambda one: len(one.holds().difference(_holds(old.members.get(one.member_id)))))
    found += [(_current_key(group_id, one.member_id), encode_value(_current_value(one), 0)) for one in changed]
    return found


def tombstones(group_id: str, old: DurableGroupState) -> list[RecordEntry]:
    """The tombstones of a deleted group, in Kafka's order."""
    keys = [_current_key(group_id, one) for one in old.members]
    keys += [_target_key(group_id, one) for one in old.members]
    keys.append(_target_epoch_key(group_id))
    keys += [_member_key(group_id, one) for one in old.members]
    keys += [_regex_key(group_id, text) for text in old.regexes]
    keys.append(encode_key(ConsumerGroupPartitionMetadataKey(group_id=group_id)))
    keys.append(_group_key(group_id))
    return [(key, None) for key in keys]


class DurableGroupStateBuilder:
    """A group's state from records, fed in their order."""

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.current: dict[str, bytes] = {}
        self.target: dict[str, frozenset[TopicIdPartition]] = {}
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

    def state(self) -> DurableGroupState:
        """What the records say."""
        members = {
            member_id: _with_current(member, decode_value(_Current, self.current[member_id]))
            if member_id in self.current
            else member
            for member_id, member in self.members.items()
        }
        return DurableGroupState(
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.assigned_at_ms,
            members,
            self.target,
            self.regexes,
        )


def _metadata_fields(member: ConsumerMember) -> tuple[Any, ...]:
    return member[1:10]


def _assignment_fields(member: ConsumerMember | None) -> tuple[Any, ...] | None:
    return None if member is None else member[10:]


def _holds(member: ConsumerMember | None) -> set[TopicIdPartition]:
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
        else ClassicMemberMetadata(
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


def _owned_value(owned: PartitionEpochs) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
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
        state=ConsumerMemberState(value.state if value.state in _KNOWN_STATES else ConsumerMemberState.UNKNOWN),
        assigned=_owned_of(value.assigned_partitions, value.member_epoch),
        revoking=_owned_of(value.partitions_pending_revocation, value.member_epoch),
    )


def _owned_of(
    topics: Iterable[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> dict[TopicIdPartition, int]:
    """``epoch``: of partitions that no epoch is written for, by releases before 4.3."""
    found: dict[TopicIdPartition, int] = {}
    for one in topics:
        epochs = one.assignment_epochs or []
        for at, number in enumerate(one.partitions):
            found[(one.topic_id, number)] = epochs[at] if at < len(epochs) else epoch
    return found


def _target_value(target: frozenset[TopicIdPartition]) -> ConsumerGroupTargetAssignmentMemberValue:
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

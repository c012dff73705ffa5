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
from kafka.broker.state.records import ConsumerGroupCurrentMemberAssignmentKey as CurrentKey
from kafka.broker.state.records import ConsumerGroupCurrentMemberAssignmentValue as CurrentValue
from kafka.broker.state.records import ConsumerGroupMemberMetadataKey as MemberKey
from kafka.broker.state.records import ConsumerGroupMemberMetadataValue as MemberValue
from kafka.broker.state.records import ConsumerGroupMetadataKey as EpochKey
from kafka.broker.state.records import ConsumerGroupMetadataValue as EpochValue
from kafka.broker.state.records import (
    ConsumerGroupPartitionMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
    RecordEntry,
    StateEvent,
    encode_key,
    encode_value,
    read_records,
)
from kafka.broker.state.records import ConsumerGroupRegularExpressionKey as RegexKey
from kafka.broker.state.records import ConsumerGroupRegularExpressionValue as RegexValue
from kafka.broker.state.records import ConsumerGroupTargetAssignmentMemberKey as TargetKey
from kafka.broker.state.records import ConsumerGroupTargetAssignmentMemberValue as TargetValue
from kafka.broker.state.records import ConsumerGroupTargetAssignmentMetadataKey as TargetEpochKey
from kafka.broker.state.records import ConsumerGroupTargetAssignmentMetadataValue as TargetEpochValue
from kafka.broker.topics import TopicIdPartition, by_topic
from kafka.wire.message import Message

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


def load_classic(group: ClassicGroup, value: GroupMetadataValue) -> None:
    """Fill a new group from its record."""
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


CONSUMER_RECORDS: Final[Mapping[type[Message], type[Message]]] = {
    EpochKey: EpochValue,
    MemberKey: MemberValue,
    TargetEpochKey: TargetEpochValue,
    TargetKey: TargetValue,
    CurrentKey: CurrentValue,
    RegexKey: RegexValue,
}
"""The records of a consumer group: key -> value."""


def load_groups(
    events: Iterable[tuple[int, StateEvent]],
) -> tuple[dict[str, GroupMetadataValue], dict[str, DurableGroupState]]:
    """Classic groups' last records, and the states of consumer groups, by group id."""
    classic: dict[str, GroupMetadataValue] = {}
    builders: dict[str, DurableGroupStateBuilder] = {}

    def on_classic(_partition: int, key: GroupMetadataKey, value: GroupMetadataValue | None, _producer: object) -> None:
        if value is None:
            classic.pop(key.group, None)
        else:
            classic[key.group] = value

    def on_consumer(_partition: int, key: Any, value: Any, _producer: object) -> None:
        builders.setdefault(key.group_id, DurableGroupStateBuilder()).feed(key, value)

    readers = {key: (value, on_consumer) for key, value in CONSUMER_RECORDS.items()}
    read_records(events, {GroupMetadataKey: (GroupMetadataValue, on_classic), **readers})
    return classic, {group_id: builder.state() for group_id, builder in builders.items() if builder.is_there}


_KNOWN_STATES: Final = {int(state) for state in ConsumerMemberState}


def changes(group_id: str, old: DurableGroupState, new: DurableGroupState) -> list[RecordEntry]:
    """The records that lead from the one state to the other. Tombstones come first, so that no partition has two owners
    at any record."""
    found: list[RecordEntry] = []
    if old is new:
        return found

    def add(kind: Callable[..., Message], value: Message | None = None, **name: str) -> None:
        found.append(_entry(group_id, kind, value, **name))

    gone: list[str] = []
    others: list[ConsumerMember] = []
    if old.members is not new.members:
        gone = [member_id for member_id in old.members if member_id not in new.members]
        others = [one for one in new.members.values() if old.members.get(one.member_id) is not one]
    for one in gone:
        add(CurrentKey, member_id=one)
    for one in gone:
        if one in old.target:
            add(TargetKey, member_id=one)
    for one in gone:
        add(MemberKey, member_id=one)
    for member in others:
        was = old.members.get(member.member_id)
        if was is None or _metadata_fields(was) != _metadata_fields(member):
            add(MemberKey, _member_value(member), member_id=member.member_id)
    for text, resolved in new.regexes.items():
        if old.regexes.get(text) != resolved:
            value = RegexValue(topics=sorted(resolved.topics), version=0, timestamp=resolved.at_ms)
            add(RegexKey, value, regular_expression=text)
    for text in old.regexes:
        if text not in new.regexes:
            add(RegexKey, regular_expression=text)
    if (old.epoch, old.metadata_hash) != (new.epoch, new.metadata_hash):
        add(EpochKey, EpochValue(epoch=new.epoch, metadata_hash=new.metadata_hash))
    for member_id, target in new.target.items() if old.target is not new.target else ():
        if member_id in new.members and old.target.get(member_id, frozenset()) != target:
            add(TargetKey, _target_value(target), member_id=member_id)
    if (old.assignment_epoch, old.assigned_at_ms) != (new.assignment_epoch, new.assigned_at_ms):
        add(
            TargetEpochKey,
            TargetEpochValue(assignment_epoch=new.assignment_epoch, assignment_timestamp=new.assigned_at_ms),
        )
    # Members that release partitions before those that get them: read in this order, no partition has two owners.
    changed = [one for one in others if _assignment_fields(old.members.get(one.member_id)) != _assignment_fields(one)]
    changed.sort(key=lambda one: len(one.holds().difference(_holds(old.members.get(one.member_id)))))
    for member in changed:
        add(CurrentKey, _current_value(member), member_id=member.member_id)
    return found


def tombstones(group_id: str, old: DurableGroupState) -> list[RecordEntry]:
    """The tombstones of a deleted group, in Kafka's order."""
    return [
        *(_entry(group_id, CurrentKey, member_id=one) for one in old.members),
        *(_entry(group_id, TargetKey, member_id=one) for one in old.members),
        _entry(group_id, TargetEpochKey),
        *(_entry(group_id, MemberKey, member_id=one) for one in old.members),
        *(_entry(group_id, RegexKey, regular_expression=text) for text in old.regexes),
        _entry(group_id, ConsumerGroupPartitionMetadataKey),
        _entry(group_id, EpochKey),
    ]


def _entry(group_id: str, kind: Callable[..., Message], value: Message | None = None, **name: str) -> RecordEntry:
    """A consumer group's record; without a value, a tombstone."""
    return encode_key(kind(group_id=group_id, **name)), None if value is None else encode_value(value, 0)


class DurableGroupStateBuilder:
    """A group's state from records, fed in their order."""

    def __init__(self) -> None:
        self.is_there = False
        self._epoch: EpochValue | None = None
        self._target_epoch: TargetEpochValue | None = None
        # The records of each other kind, by member id or regular expression.
        self._named: dict[type[Message], dict[str, Any]] = {
            kind: {} for kind in (MemberKey, TargetKey, CurrentKey, RegexKey)
        }

    def feed(self, key: Any, value: Any) -> None:
        """One record, decoded; a tombstone's ``value`` is None."""
        if isinstance(key, EpochKey):
            self._epoch = value
            self.is_there = value is not None
        elif isinstance(key, TargetEpochKey):
            self._target_epoch = value
        else:
            name = key.regular_expression if isinstance(key, RegexKey) else key.member_id
            named = self._named[type(key)]
            named.pop(name, None)  # its last record says where it is in their order
            if value is not None:
                named[name] = value
                self.is_there = self.is_there or isinstance(key, MemberKey)

    def state(self) -> DurableGroupState:
        """What the records say."""
        epoch = self._epoch or EpochValue(epoch=FIRST_EPOCH)
        target_epoch = self._target_epoch or TargetEpochValue(assignment_epoch=FIRST_EPOCH)
        current = self._named[CurrentKey]
        return DurableGroupState(
            epoch.epoch,
            epoch.metadata_hash,
            target_epoch.assignment_epoch,
            target_epoch.assignment_timestamp,
            {name: _member_of(name, value, current.get(name)) for name, value in self._named[MemberKey].items()},
            {name: _target_of(value) for name, value in self._named[TargetKey].items()},
            {
                text: ResolvedRegex(frozenset(value.topics), value.timestamp)
                for text, value in self._named[RegexKey].items()
            },
        )


def _metadata_fields(member: ConsumerMember) -> tuple[Any, ...]:
    return member[1:10]


def _assignment_fields(member: ConsumerMember | None) -> tuple[Any, ...] | None:
    return None if member is None else member[10:]


def _holds(member: ConsumerMember | None) -> set[TopicIdPartition]:
    return set() if member is None else member.holds()


def _member_value(member: ConsumerMember) -> MemberValue:
    classic = None
    if member.classic is not None:
        protocol = MemberValue.ClassicProtocol
        classic = MemberValue.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[protocol(name=name, metadata=data) for name, data in member.classic.protocols],
        )
    return MemberValue(
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


def _member_of(member_id: str, value: MemberValue, current: CurrentValue | None) -> ConsumerMember:
    """``current``: None for a member that has been assigned nothing yet."""
    classic = value.classic_member_metadata
    member = ConsumerMember(
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
    if current is None:
        return member
    return member._replace(
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=ConsumerMemberState(current.state if current.state in _KNOWN_STATES else ConsumerMemberState.UNKNOWN),
        assigned=_owned_of(current.assigned_partitions, current.member_epoch),
        revoking=_owned_of(current.partitions_pending_revocation, current.member_epoch),
    )


def _current_value(member: ConsumerMember) -> CurrentValue:
    return CurrentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_owned_value(member.assigned),
        partitions_pending_revocation=_owned_value(member.revoking),
    )


def _owned_value(owned: PartitionEpochs) -> list[CurrentValue.TopicPartitions]:
    return [
        CurrentValue.TopicPartitions(
            topic_id=topic_id,
            partitions=numbers,
            assignment_epochs=[owned[(topic_id, number)] for number in numbers],
        )
        for topic_id, numbers in by_topic(owned).items()
    ]


def _owned_of(topics: Iterable[CurrentValue.TopicPartitions], epoch: int) -> dict[TopicIdPartition, int]:
    """``epoch``: of partitions that no epoch is written for, by releases before 4.3."""
    found: dict[TopicIdPartition, int] = {}
    for one in topics:
        epochs = one.assignment_epochs or []
        for at, number in enumerate(one.partitions):
            found[(one.topic_id, number)] = epochs[at] if at < len(epochs) else epoch
    return found


def _target_value(target: frozenset[TopicIdPartition]) -> TargetValue:
    return TargetValue(
        topic_partitions=[
            TargetValue.TopicPartition(topic_id=topic_id, partitions=numbers)
            for topic_id, numbers in by_topic(target).items()
        ]
    )


def _target_of(value: TargetValue) -> frozenset[TopicIdPartition]:
    return frozenset((one.topic_id, number) for one in value.topic_partitions for number in one.partitions)

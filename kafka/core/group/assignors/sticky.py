"""``sticky`` and ``cooperative-sticky``: as even as can be, and each member keeps what it may keep (KIP-54, KIP-341).

Both share by the same rules. They differ in how the leader learns who had what, and in
what becomes of a partition that changes hands. ``sticky`` members have given up everything when they join, and remember
in their user data what it was, with the generation (KIP-341). ``cooperative-sticky`` members still own what they say
they own (KIP-429); what is to change hands is left out of the answer, so that its owner gives it up, and goes to the
other one in the next generation. Its user data (the generation) is for leaders that do not know KIP-792.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from kafka.core.group.assignors import order
from kafka.core.group.assignors.base import GroupMember, Racks, RebalanceProtocol
from kafka.core.group.machine import NO_GENERATION, TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.core.partitions import by_topic
from kafka.errors import KafkaProtocolError
from kafka.structs import TopicPartition
from kafka.wire.codec import decode_from, encode
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import Int32, String

# Sticky assignment where all members read the same topics: all have as many partitions, or one more.
#
# First each member keeps what it had, up to its due; in the order of the members, as many as there are odd partitions
# keep one more. Then the rest goes round, first to members that have too few, then to those that have just enough;
# with racks, first to members near a replica (KIP-881).


class _EqualShares:
    """The assignment so far: ``given``, member id -> partitions; ``changing_hands``, what changes hands by that, with
    who gets it. ``_hungry``: members below the least share; ``_content``: members that have just that,
    and may get one of the odd partitions (``_odd`` of them are left)."""

    def __init__(
        self,
        topics: Mapping[str, TopicSnapshot],
        held: Mapping[str, Sequence[TopicPartition]],
        disputed: Set[TopicPartition],
        racks: Racks,
    ) -> None:
        self.given: dict[str, list[TopicPartition]] = {}
        self.changing_hands: dict[TopicPartition, str] = {}
        self._taken: dict[TopicPartition, str] = {}
        self._disputed = disputed
        self._racks = racks
        count = sum(picture.partitions_count for picture in topics.values())
        self._least, self._odd = divmod(count, len(held))
        self._most = self._least + (self._odd > 0)
        self._hungry: list[str] = []
        self._content: list[str] = []
        kept = self._keep(held)
        # The rest in the order in which Java goes through it.
        self._deal(
            [
                partition
                for topic in sorted(topics, key=order.utf16)
                for number in range(topics[topic].partitions_count)
                if (partition := TopicPartition(topic, number)) not in kept
            ]
        )

    def _keep(self, held: Mapping[str, Sequence[TopicPartition]]) -> set[TopicPartition]:
        """Each member keeps what it may; what that is."""
        kept: set[TopicPartition] = set()
        for member_id, partitions in held.items():
            near: list[TopicPartition] = []
            for partition in partitions:
                if self._racks.is_far(member_id, partition):
                    self._taken[partition] = member_id
                elif partition not in self._disputed:
                    near.append(partition)
            near.sort(key=lambda one: (one.partition, order.utf16(one.topic)))
            due = self._least
            if len(near) < self._least:
                self._hungry.append(member_id)
            elif len(near) >= self._most and self._odd:
                due = self._most
                self._fill_up()
            elif self._odd:
                self._content.append(member_id)
            self.given[member_id] = near[:due]
            kept.update(near[:due])
            self._taken.update((partition, member_id) for partition in near[due:])
        return kept

    def _deal(self, free: list[TopicPartition]) -> None:
        """The rest to members that have too little."""
        self._hungry.sort(key=order.utf16)
        self._content.sort(key=order.utf16)
        near = self._racks.readers_near
        if near:
            free.sort(key=lambda one: near.get(one, 0))
        if self._racks.matter:
            free = self._deal_near(free)
        self._deal_round(free)

    def _deal_near(self, free: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Gives partitions to members with a replica in their rack (KIP-881): in turn to those below the least
        share, then one each to those that may have an odd partition. Returns the partitions that no such member
        is near to."""
        far: list[TopicPartition] = []
        turn = 0
        for partition in free:
            at = self._racks.next_near(partition, self._hungry, turn)
            if at >= 0:
                member_id = self._hungry[at]
                count = self._give(member_id, partition)
                if count >= self._least:
                    del self._hungry[at]
                    if count < self._most and self._odd:
                        self._content.append(member_id)
                else:
                    at += 1
                turn = at % len(self._hungry) if self._hungry else 0
                continue
            at = self._racks.next_near(partition, self._content, 0)
            if at < 0:
                far.append(partition)
                continue
            self._give(self._content.pop(at), partition)
            self._fill_up()
        return far

    def _deal_round(self, free: Sequence[TopicPartition]) -> None:
        turn = 0
        content = iter(self._content)
        for partition in free:
            if self._hungry:
                turn %= len(self._hungry)
                member_id = self._hungry[turn]
                if self._give(member_id, partition) == self._least:
                    del self._hungry[turn]
                    self._content.append(member_id)  # the iterator sees it
                else:
                    turn += 1
            else:
                self._give(next(content), partition)

    def _fill_up(self) -> None:
        """An odd partition was given; when none is left, members that have just enough are not looked at again."""
        self._odd -= 1
        if not self._odd:
            self._content.clear()

    def _give(self, member_id: str, partition: TopicPartition) -> int:
        given = self.given[member_id]
        given.append(partition)
        if self._taken.get(partition, member_id) != member_id or partition in self._disputed:
            self.changing_hands[partition] = member_id
        return len(given)


# Sticky assignment where members read different topics: as even as their topics allow.
#
# What is held stays; what is free goes, the topics with the fewest readers first, to the reader that has least. Then
# partitions move from readers that have more to those that have less by two or more, back to a former owner if that
# helps, until none can; first only new ones, and all of it is undone if the balance is not better than before.


PartitionSet = dict[TopicPartition, None]
"""A set in the order in which things came in: its values are nothing."""


def share_unequally(
    topics: Mapping[str, TopicSnapshot],
    members: Sequence[GroupMember],
    held: Mapping[str, Sequence[TopicPartition]],
    former: Mapping[TopicPartition, str],
    racks: Racks,
) -> dict[str, list[TopicPartition]]:
    """Member id -> partitions. ``former``: who had a partition in an earlier generation."""
    readers: dict[str, list[str]] = {topic: [] for topic in topics}
    for member in members:
        for topic in dict.fromkeys(member.subscription.topics):
            if topic in readers:
                readers[topic].append(member.member_id)
    wanted = {member.member_id: frozenset(member.subscription.topics) for member in members}
    table = _UnequalShares(readers, former)
    has_taken = False
    for member_id in wanted:
        own = table.given[member_id] = {}
        for partition in held[member_id]:
            if partition.topic not in wanted[member_id] or racks.is_far(member_id, partition):
                has_taken = True
            else:
                own[partition] = None
                table.owners[partition] = member_id
    everything = [
        TopicPartition(topic, number)
        for topic in sorted(topics, key=lambda one: (len(readers[one]), order.utf16(one)))
        for number in range(topics[topic].partitions_count)
    ]
    free = [partition for partition in everything if partition not in table.owners]
    is_first_time = not any(table.given.values())
    if racks.matter:
        table.deal(free, racks)
    table.deal(free, None)

    before = table.snapshot()
    has_moved = False
    if not has_taken:
        table.balance(free)
    has_moved = table.balance(everything)
    if has_moved and not is_first_time and table.score() >= before.score():
        table = before
    return {member_id: list(own) for member_id, own in table.given.items()}


class _UnequalShares:
    """Who has what. Only topics with two readers or more can move; they are what is counted in the end, too."""

    def __init__(self, readers: Mapping[str, Sequence[str]], former: Mapping[TopicPartition, str]) -> None:
        self.given: dict[str, PartitionSet] = {}
        self.owners: dict[TopicPartition, str] = {}
        self._readers = readers
        self._former = former
        self._moves = _Moves()

    def snapshot(self) -> _UnequalShares:
        """The same, as it is now."""
        copy = _UnequalShares(self._readers, self._former)
        copy.given = {member_id: dict(own) for member_id, own in self.given.items()}
        return copy

    def deal(self, free: Iterable[TopicPartition], racks: Racks | None) -> None:
        """What has no owner yet to the reader that has least, with ``racks`` of those that stand near."""
        for partition in free:
            if partition in self.owners:
                continue
            readers: Iterable[str] = self._readers[partition.topic]
            if racks is not None:
                readers = [one for one in readers if not racks.is_far(one, partition)]
            poorest = self._poorest(readers)
            if poorest is not None:
                self.given[poorest][partition] = None
                self.owners[partition] = poorest

    def balance(self, partitions: Iterable[TopicPartition]) -> bool:
        """Move what makes it more even, until nothing does; whether anything moved."""
        movable = [one for one in partitions if len(self._readers[one.topic]) > 1]
        has_moved = False
        while sum(self._maybe_move(partition) for partition in movable):  # all of them, not up to the first
            has_moved = True
        return has_moved

    def _maybe_move(self, partition: TopicPartition) -> bool:
        owner = self.owners[partition]
        size = len(self.given[owner])
        readers = self._readers[partition.topic]
        former = self._former.get(partition)
        # Java 4.3.0 does not check that the former owner still reads the topic, and fails with a NullPointerException
        # when the former owner takes no part in what is moved (seen with a random group of 300 members).
        if former is not None and former in readers and size > len(self.given[former]) + 1:
            self._move(partition, former)
            return True
        poorest = self._poorest(readers)
        if poorest is not None and size > len(self.given[poorest]) + 1:
            self._move(partition, poorest)
            return True
        return False

    def _poorest(self, readers: Iterable[str]) -> str | None:
        given = self.given
        return min(readers, key=lambda one: (len(given[one]), one), default=None)

    def _move(self, partition: TopicPartition, to: str) -> None:
        owner = self.owners[partition]
        moved = self._moves.instead_of(partition, owner, to)
        if len(self.given[self.owners[moved]]) <= len(self.given[to]) + 1:
            moved = partition  # that other one would not make it more even, and this might never end
        owner = self.owners[moved]
        self._moves.note(moved, owner, to)
        del self.given[owner][moved]
        self.given[to][moved] = None
        self.owners[moved] = to

    def score(self) -> int:
        """The differences between all pairs of members that take part, summed up; 0 is perfect."""
        movable = {topic for topic, readers in self._readers.items() if len(readers) > 1}
        taking_part = {one for topic in movable for one in self._readers[topic]}
        sizes = sorted(len(self.given[one]) for one in taking_part)
        # In order each is the larger one of as many pairs as stand before it, and the smaller one of the others.
        return sum(size * (2 * at - len(sizes) + 1) for at, size in enumerate(sizes))


class _Moves:
    """What has moved from whom to whom. Where something of a topic has moved the other way round before, that is moved
    back instead of another one: two members that swap partitions of a topic would be less sticky for nothing."""

    def __init__(self) -> None:
        self._of_partition: dict[TopicPartition, tuple[str, str]] = {}
        self._of_topic: dict[str, dict[tuple[str, str], PartitionSet]] = defaultdict(lambda: defaultdict(dict))

    def instead_of(self, partition: TopicPartition, owner: str, to: str) -> TopicPartition:
        """What to move instead of ``partition`` from ``owner``; often that itself."""
        source, _ = self._of_partition.get(partition, (owner, to))
        opposite = self._of_topic[partition.topic].get((to, source))
        return order.first_by_hash(opposite) if opposite else partition

    def note(self, partition: TopicPartition, source: str, to: str) -> None:
        """It moves now."""
        earlier = self._of_partition.pop(partition, None)
        if earlier is not None:
            del self._of_topic[partition.topic][earlier][partition]
            source = earlier[0]
        if source != to:
            self._of_partition[partition] = (source, to)
            self._of_topic[partition.topic][source, to][partition] = None


class StickyAssignorUserData(Message, versions=(0, 1)):
    """What a ``sticky`` member had. There is no version before it: who cannot read it as 1 reads it as 0."""

    class TopicPartition(Struct):
        topic: String
        partitions: list[Int32]

    previous_assignment: list[StickyAssignorUserData.TopicPartition]
    generation: Int32 = field(default=-1, since=1, ignorable=True)


class CooperativeStickyAssignorUserData(Message, versions=(0, 0)):
    """The generation of what a ``cooperative-sticky`` member owns."""

    generation: Int32


class OwnedPartitions(NamedTuple):
    """What a member had, and when; ``generation`` None: it did not say."""

    partitions: Sequence[TopicPartition]
    generation: int | None


class PreviousOwners(NamedTuple):
    """What all members had. ``held``: what no other member has a better claim to; ``disputed``: two said the same of
    the same generation. Members stand in the order in which Java goes through them."""

    held: dict[str, list[TopicPartition]]
    disputed: frozenset[TopicPartition]
    former: dict[TopicPartition, str]
    """Who of the earlier generations had what last."""


class StickyAssignor:
    """``sticky``; see the module."""

    name: str = "sticky"
    rebalance_protocols: frozenset[RebalanceProtocol] = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._mine: tuple[TopicPartition, ...] | None = None
        self._generation = NO_GENERATION

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        self._mine = assignment.partitions
        self._generation = generation

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        if self._mine is None:
            return None
        data = StickyAssignorUserData(
            previous_assignment=[
                StickyAssignorUserData.TopicPartition(topic=topic, partitions=numbers)
                for topic, numbers in by_topic(self._mine).items()
            ],
            generation=self._generation,
        )
        return encode(data, 1)

    def claim_of(self, subscription: MemberSubscription) -> OwnedPartitions:
        """What a member says that it had."""
        if not subscription.user_data:
            return OwnedPartitions((), None)
        for version in (1, 0):
            try:
                data, _ = decode_from(StickyAssignorUserData, subscription.user_data, 0, version)
            except KafkaProtocolError:
                continue
            partitions = [
                TopicPartition(one.topic, number) for one in data.previous_assignment for number in one.partitions
            ]
            return OwnedPartitions(partitions, data.generation if version else None)
        return OwnedPartitions((), NO_GENERATION)  # what cannot be read is no claim

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        shared, _ = self._share(topics, members)
        return {member_id: MemberAssignment(tuple(partitions)) for member_id, partitions in shared.items()}

    def _share(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> tuple[dict[str, list[TopicPartition]], Mapping[TopicPartition, str]]:
        """Who gets what, and what changes hands by that."""
        wanted = {topic for member in members for topic in member.subscription.topics}
        existing = {topic: topics[topic] for topic in wanted if topic in topics and topics[topic].partitions_count}
        ordered = order.by_hash(members)
        claims = self._weigh(existing, ordered)
        racks = Racks(existing, ordered)
        if len({frozenset(member.subscription.topics) for member in members}) == 1:
            shares = _EqualShares(existing, claims.held, claims.disputed, racks)
            return shares.given, shares.changing_hands
        shared = share_unequally(existing, ordered, claims.held, claims.former, racks)
        return shared, _changing_hands(members, shared)

    def _weigh(self, existing: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]) -> PreviousOwners:
        claims = {member.member_id: self.claim_of(member.subscription) for member in members}
        generations = {
            member_id: NO_GENERATION if claim.generation is None else claim.generation
            for member_id, claim in claims.items()
        }
        owners: dict[TopicPartition, str] = {}
        disputed: set[TopicPartition] = set()
        held: dict[str, dict[TopicPartition, None]] = {}  # the values are nothing: a set in order
        for member_id, claim in claims.items():
            own = held[member_id] = {}
            for partition in claim.partitions:
                picture = existing.get(partition.topic)
                if picture is None or partition.partition >= picture.partitions_count:
                    continue
                rival = owners.get(partition)
                if rival is None:
                    own[partition] = None
                elif generations[member_id] < generations[rival]:
                    continue
                elif rival != member_id:
                    held[rival].pop(partition, None)
                    if generations[member_id] == generations[rival]:
                        disputed.add(partition)
                    else:
                        own[partition] = None
                owners[partition] = member_id
        latest = max(generations.values(), default=NO_GENERATION)
        former: dict[TopicPartition, str] = {}
        for member_id, claim in claims.items():
            if generations[member_id] < latest:
                for partition in claim.partitions:
                    if partition not in former or generations[member_id] > generations[former[partition]]:
                        former[partition] = member_id
        return PreviousOwners({one: list(own) for one, own in held.items()}, frozenset(disputed), former)


class CooperativeStickyAssignor(StickyAssignor):
    """``cooperative-sticky``; see the module."""

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return encode(CooperativeStickyAssignorUserData(generation=self._generation), 0)

    def claim_of(self, subscription: MemberSubscription) -> OwnedPartitions:
        if subscription.generation > NO_GENERATION:
            return OwnedPartitions(subscription.owned, subscription.generation)
        if subscription.user_data is None:
            return OwnedPartitions(subscription.owned, None)
        try:
            data, _ = decode_from(CooperativeStickyAssignorUserData, subscription.user_data, 0, 0)
        except KafkaProtocolError:
            return OwnedPartitions(subscription.owned, NO_GENERATION)
        return OwnedPartitions(subscription.owned, data.generation)

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        shared, changing_hands = self._share(topics, members)
        return {
            member_id: MemberAssignment(tuple(one for one in partitions if changing_hands.get(one) != member_id))
            for member_id, partitions in shared.items()
        }


def _changing_hands(
    members: Sequence[GroupMember], shared: Mapping[str, Sequence[TopicPartition]]
) -> Mapping[TopicPartition, str]:
    """What one member owns and another is to get, with the latter's id."""
    added: dict[TopicPartition, str] = {}
    taken: set[TopicPartition] = set()
    for member in members:
        owned, given = set(member.subscription.owned), shared[member.member_id]
        added.update((partition, member.member_id) for partition in given if partition not in owned)
        taken |= owned.difference(given)
    return {partition: member_id for partition, member_id in added.items() if partition in taken}

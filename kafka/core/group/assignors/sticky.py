"""``sticky`` and ``cooperative-sticky``: as even as can be, and everybody keeps what he may keep (KIP-54, KIP-341).

Both share by the same rules (``equal.py``, ``unequal.py``). They differ in how the leader learns who had what, and in
what becomes of a partition that changes hands. ``sticky`` members have given up everything when they join, and remember
in their user data what it was, with the generation (KIP-341). ``cooperative-sticky`` members still own what they say
they own (KIP-429); what is to change hands is left out of the answer, so that its owner gives it up, and goes to the
other one in the next generation. Its user data (the generation) is for leaders that do not know KIP-792.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafka.core.group.assignors import order
from kafka.core.group.assignors.base import GroupMember, RebalanceProtocol
from kafka.core.group.assignors.equal import share_equally
from kafka.core.group.assignors.racks import Racks
from kafka.core.group.assignors.unequal import share_unequally
from kafka.core.group.machine import NO_GENERATION, TopicPicture
from kafka.core.group.protocol import Assignment, MemberSubscription
from kafka.core.partitions import by_topic
from kafka.errors import KafkaProtocolError
from kafka.structs import TopicPartition
from kafka.wire.codec import decode_from, encode
from kafka.wire.message import Message, Struct, field
from kafka.wire.types import Int32, String


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


class Claim(NamedTuple):
    """What a member had, and when; ``generation`` None: it did not say."""

    partitions: Sequence[TopicPartition]
    generation: int | None


class Claims(NamedTuple):
    """What all members had. ``held``: what nobody has a better claim to; ``disputed``: two said the same of the same
    generation. Members stand in the order in which Java goes through them."""

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

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
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

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        """What a member says that it had."""
        if not subscription.user_data:
            return Claim((), None)
        for version in (1, 0):
            try:
                data, _ = decode_from(StickyAssignorUserData, subscription.user_data, 0, version)
            except KafkaProtocolError:
                continue
            partitions = [
                TopicPartition(one.topic, number) for one in data.previous_assignment for number in one.partitions
            ]
            return Claim(partitions, data.generation if version else None)
        return Claim((), NO_GENERATION)  # what cannot be read is no claim

    def assign(self, topics: Mapping[str, TopicPicture], members: Sequence[GroupMember]) -> Mapping[str, Assignment]:
        shared, _ = self._share(topics, members)
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in shared.items()}

    def _share(
        self, topics: Mapping[str, TopicPicture], members: Sequence[GroupMember]
    ) -> tuple[dict[str, list[TopicPartition]], Mapping[TopicPartition, str]]:
        """Who gets what, and what changes hands by that."""
        wanted = {topic for member in members for topic in member.subscription.topics}
        existing = {topic: topics[topic] for topic in wanted if topic in topics and topics[topic].partitions_count}
        ordered = order.by_hash(members)
        claims = self._weigh(existing, ordered)
        racks = Racks(existing, ordered)
        if len({frozenset(member.subscription.topics) for member in members}) == 1:
            return share_equally(existing, claims.held, claims.disputed, racks)
        shared = share_unequally(existing, ordered, claims.held, claims.former, racks)
        return shared, _changing_hands(members, shared)

    def _weigh(self, existing: Mapping[str, TopicPicture], members: Sequence[GroupMember]) -> Claims:
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
        return Claims({one: list(own) for one, own in held.items()}, frozenset(disputed), former)


class CooperativeStickyAssignor(StickyAssignor):
    """``cooperative-sticky``; see the module."""

    name = "cooperative-sticky"
    rebalance_protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        return encode(CooperativeStickyAssignorUserData(generation=self._generation), 0)

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        if subscription.generation > NO_GENERATION:
            return Claim(subscription.owned, subscription.generation)
        if subscription.user_data is None:
            return Claim(subscription.owned, None)
        try:
            data, _ = decode_from(CooperativeStickyAssignorUserData, subscription.user_data, 0, 0)
        except KafkaProtocolError:
            return Claim(subscription.owned, NO_GENERATION)
        return Claim(subscription.owned, data.generation)

    def assign(self, topics: Mapping[str, TopicPicture], members: Sequence[GroupMember]) -> Mapping[str, Assignment]:
        shared, changing_hands = self._share(topics, members)
        return {
            member_id: Assignment(tuple(one for one in partitions if changing_hands.get(one) != member_id))
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

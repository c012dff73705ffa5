"""What an assignor is: it runs in the leader of a classic group and says who reads what.

Those that come with the package stand beside this file, a table of them and what makes assignors of a user's classes in
``strategy.py``. ``Assignor`` is the inner form; kafka-python's, which users write, is wrapped by ``strategy.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import IntEnum
from typing import NamedTuple, Protocol

from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment, MemberSubscription
from kafka.structs import TopicPartition


class RebalanceProtocol(IntEnum):
    """What members do with their partitions while the group rebalances (KIP-429); a higher one is more advanced."""

    EAGER = 0
    """Give all up before they join again."""
    COOPERATIVE = 1
    """Keep them, give up what the leader's answer lacks, and join once more."""


class GroupMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    subscription: MemberSubscription


class Assignor(Protocol):
    """See the module. One object serves one member, over all its generations."""

    @property
    def name(self) -> str:
        """What the members agree on."""

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """Which it can do."""
        return frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """What the member says to the leader's assignor beside its subscription, when it joins."""
        return None

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        """Member id -> what it reads. ``topics``: those of the members' that exist, and maybe others."""

    def on_assignment(self, assignment: MemberAssignment, generation: int) -> None:
        """This member has received its assignment."""


# Members and replicas in the same rack (KIP-881).


_NOWHERE: frozenset[str] = frozenset()


def makes_sense(members: Set[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether looking at racks can make a difference: members stand where replicas are, and not every partition has
    replicas in all racks."""
    everywhere = frozenset().union(*partitions)
    return not everywhere.isdisjoint(members) and any(racks != everywhere for racks in partitions)


class Racks:
    """Of one group, for the sticky assignors. ``readers_near``: how many members stand in a partition's racks, counted
    also where racks make no difference; empty when no member says where it is."""

    def __init__(self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]) -> None:
        self._of_member = {one.member_id: one.subscription.rack for one in members if one.subscription.rack}
        self._of_partition: dict[TopicPartition, frozenset[str]] = {}
        self.readers_near: dict[TopicPartition, int] = {}
        if not self._of_member:
            return
        counts: dict[str, int] = {}
        for rack in self._of_member.values():
            counts[rack] = counts.get(rack, 0) + 1
        for topic, picture in topics.items():
            for number in range(picture.partitions_count):
                racks = picture.racks[number] if number < len(picture.racks) else _NOWHERE
                partition = TopicPartition(topic, number)
                self._of_partition[partition] = racks
                self.readers_near[partition] = sum(counts.get(rack, 0) for rack in racks)
        if not makes_sense(counts.keys(), list(self._of_partition.values())):
            self._of_member = {}
            self._of_partition = {}

    @property
    def matter(self) -> bool:
        """Whether to look at them at all."""
        return bool(self._of_member)

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """The member says where it is, and no replica is there."""
        rack = self._of_member.get(member_id)
        return rack is not None and rack not in self._of_partition.get(partition, _NOWHERE)

    def next_near(self, partition: TopicPartition, member_ids: Sequence[str], first: int) -> int:
        """Where in ``member_ids``, from ``first`` on and around, the next is that stands near; -1: nowhere."""
        racks = self._of_partition.get(partition, _NOWHERE)
        if racks:
            for at in (*range(first, len(member_ids)), *range(first)):
                if self._of_member.get(member_ids[at], "") in racks:
                    return int(at)
        return -1

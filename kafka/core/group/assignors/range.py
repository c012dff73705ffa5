"""``range``: each topic's partitions in runs, so that members have the same numbers of topics with as many partitions.

With racks (KIP-881) a member first gets partitions that have a replica in its rack, as many as are its due, and all
topics with as many partitions and the same readers still go by the same numbers; the rest is shared as without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kafka.core.group.assignors import order
from kafka.core.group.assignors.base import Assignor, GroupMember, makes_sense
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment
from kafka.structs import TopicPartition


class RangeAssignor(Assignor):
    """See the module."""

    name: Final = "range"

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        """Each topic by itself: its partitions in order, in runs that differ by one at most, over its readers in order
        of their names. Where racks matter (KIP-881), what has a replica in the reader's rack goes first. Topics
        without partitions, or unknown to ``topics``, are given to no member."""
        readers: dict[str, list[GroupMember]] = defaultdict(list)
        for member in order.by_name(members):
            for topic in dict.fromkeys(member.subscription.topics):
                readers[topic].append(member)
        shares = [
            _Share(topic, topics[topic], readers[topic])
            for topic in sorted(readers)
            if topic in topics and topics[topic].partitions_count
        ]
        if any(share.looks_at_racks for share in shares):
            _match_racks(shares)
        for share in shares:
            share.deal(lambda member, number: True)
        found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for share in shares:
            for member_id, numbers in share.given.items():
                found[member_id] += [TopicPartition(share.topic, number) for number in sorted(numbers)]
        return {member_id: MemberAssignment(tuple(partitions)) for member_id, partitions in found.items()}


class _Share:
    """One topic: who of its readers has which numbers so far."""

    def __init__(self, topic: str, picture: TopicSnapshot, readers: Sequence[GroupMember]) -> None:
        self.topic = topic
        self.readers = {member.member_id: member.subscription.rack for member in readers}
        self.given: dict[str, list[int]] = {member_id: [] for member_id in self.readers}
        self.partitions_count = picture.partitions_count
        self._free = dict.fromkeys(range(picture.partitions_count))  # in order
        self._least, self._extra = divmod(picture.partitions_count, len(readers))
        racks = {rack for rack in self.readers.values() if rack}
        self._racks = picture.racks if racks else ()
        self.looks_at_racks = makes_sense(racks, self._racks)

    @property
    def group(self) -> tuple[frozenset[tuple[str, str]], int]:
        """Topics of one group can go by the same numbers: the same readers, as many partitions."""
        return frozenset(self.readers.items()), self.partitions_count

    def due(self, member_id: str) -> int:
        """How many more this member may get."""
        return max(self._least + (self._extra > 0) - len(self.given[member_id]), 0)

    def is_near(self, member_id: str, number: int) -> bool:
        """A replica is in the member's rack; a member without one is near everything."""
        rack = self.readers[member_id]
        return not rack or (number < len(self._racks) and rack in self._racks[number])

    def give(self, member_id: str, numbers: Sequence[int]) -> None:
        """These to that one."""
        given = self.given[member_id]
        given += numbers
        if len(given) > self._least:
            self._extra -= 1
        for number in numbers:
            del self._free[number]

    def deal(self, may_have: Callable[[str, int], bool]) -> None:
        """A run for each reader of what is free and it may have."""
        for member_id in self.readers:
            due = self.due(member_id)
            numbers: list[int] = []
            for number in self._free:
                if len(numbers) == due:
                    break
                if may_have(member_id, number):
                    numbers.append(number)
            if numbers:
                self.give(member_id, numbers)


def _match_racks(shares: Sequence[_Share]) -> None:
    groups: dict[tuple[frozenset[tuple[str, str]], int], list[_Share]] = defaultdict(list)
    for share in shares:
        groups[share.group].append(share)
    for group in groups.values():
        if len(group) > 1:
            _match_together(group)
        elif group[0].looks_at_racks:
            group[0].deal(group[0].is_near)


def _match_together(group: Sequence[_Share]) -> None:
    """The same number of every topic to the first reader that is near to all of them."""
    first = group[0]
    if not any(first.readers.values()):
        return
    left = list(first.readers)
    for number in range(first.partitions_count):
        for member_id in left:
            if all(share.due(member_id) and share.is_near(member_id, number) for share in group):
                break
        else:
            continue
        for share in group:
            share.give(member_id, [number])
        if not any(share.due(member_id) for share in group):
            left.remove(member_id)

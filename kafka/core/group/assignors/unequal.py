"""Sticky assignment where members read different topics: as even as their topics allow.

What is held stays; what is free goes, the topics with the fewest readers first, to the reader who has least. Then
partitions move from who has more to who has less by two or more, back to a former owner if that helps, until none can;
first only new ones, and all of it is undone if the balance is not better than before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from kafka.core.group.assignors import order
from kafka.core.group.assignors.base import GroupMember
from kafka.core.group.assignors.racks import Racks
from kafka.core.group.machine import TopicPicture
from kafka.structs import TopicPartition

Holding = dict[TopicPartition, None]
"""A set in the order in which things came in: its values are nothing."""


def share_unequally(
    topics: Mapping[str, TopicPicture],
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
    table = _Table(readers, former)
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


class _Table:
    """Who has what. Only topics with two readers or more can move; they are what is counted in the end, too."""

    def __init__(self, readers: Mapping[str, Sequence[str]], former: Mapping[TopicPartition, str]) -> None:
        self.given: dict[str, Holding] = {}
        self.owners: dict[TopicPartition, str] = {}
        self._readers = readers
        self._former = former
        self._moves = _Moves()

    def snapshot(self) -> _Table:
        """The same, as it is now."""
        copy = _Table(self._readers, self._former)
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
        self._of_topic: dict[str, dict[tuple[str, str], Holding]] = defaultdict(lambda: defaultdict(dict))

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

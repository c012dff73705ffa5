"""Sticky assignment where all members read the same topics: everybody has as many partitions, or one more.

First everybody keeps what he had, up to his due; in the order of the members, as many as there are odd partitions keep
one more. Then the rest goes round, first to who has too few, then to who has just enough; with racks, first to who
stands near (KIP-881).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kafka.core.group.assignors import order
from kafka.core.group.assignors.racks import Racks
from kafka.core.group.machine import TopicPicture
from kafka.structs import TopicPartition


def share_equally(
    topics: Mapping[str, TopicPicture],
    held: Mapping[str, Sequence[TopicPartition]],
    disputed: Set[TopicPartition],
    racks: Racks,
) -> tuple[dict[str, list[TopicPartition]], Mapping[TopicPartition, str]]:
    """Member id -> partitions, and what changes hands by that with who gets it."""
    table = _Table(held, sum(picture.partitions_count for picture in topics.values()), disputed, racks)
    table.keep(held)
    table.deal(
        [
            partition
            for topic in sorted(topics, key=order.utf16)
            for number in range(topics[topic].partitions_count)
            if (partition := TopicPartition(topic, number)) not in table.kept
        ]
    )
    return table.given, table.changing_hands


class _Table:
    """Who has what so far. ``_hungry``: who has less than everybody gets; ``_content``: who has just that, and may get
    one of the odd ones (``_odd`` of them are left)."""

    def __init__(
        self, member_ids: Mapping[str, object], count: int, disputed: Set[TopicPartition], racks: Racks
    ) -> None:
        self.given: dict[str, list[TopicPartition]] = {member_id: [] for member_id in member_ids}
        self.kept: set[TopicPartition] = set()
        self.changing_hands: dict[TopicPartition, str] = {}
        self._taken: dict[TopicPartition, str] = {}
        self._disputed = disputed
        self._racks = racks
        self._least, self._odd = divmod(count, len(member_ids))
        self._most = self._least + (self._odd > 0)
        self._hungry: list[str] = []
        self._content: list[str] = []

    def keep(self, held: Mapping[str, Sequence[TopicPartition]]) -> None:
        """Everybody keeps what he may."""
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
            self.kept.update(near[:due])
            self._taken.update((partition, member_id) for partition in near[due:])

    def deal(self, free: list[TopicPartition]) -> None:
        """The rest to who has too little."""
        self._hungry.sort(key=order.utf16)
        self._content.sort(key=order.utf16)
        near = self._racks.readers_near
        if near:
            free.sort(key=lambda one: near.get(one, 0))
        if self._racks.matter:
            free = self._deal_near(free)
        self._deal_round(free)

    def _deal_near(self, free: Sequence[TopicPartition]) -> list[TopicPartition]:
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
        """Somebody has one of the odd partitions; when they are gone, who has just enough is not looked at again."""
        self._odd -= 1
        if not self._odd:
            self._content.clear()

    def _give(self, member_id: str, partition: TopicPartition) -> int:
        given = self.given[member_id]
        given.append(partition)
        if self._taken.get(partition, member_id) != member_id or partition in self._disputed:
            self.changing_hands[partition] = member_id
        return len(given)

"""``roundrobin``: all partitions of all topics in order, to one member after the other that reads the topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafka.core.group.assignors import order
from kafka.core.group.assignors.base import Assignor, GroupMember
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment
from kafka.structs import TopicPartition


class RoundRobinAssignor(Assignor):
    """See the module."""

    name: Final = "roundrobin"

    def assign(
        self, topics: Mapping[str, TopicSnapshot], members: Sequence[GroupMember]
    ) -> Mapping[str, MemberAssignment]:
        circle = [(member.member_id, frozenset(member.subscription.topics)) for member in order.by_name(members)]
        found: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        wanted = {topic for _, own in circle for topic in own}
        at = 0
        for topic in sorted(wanted & topics.keys(), key=order.utf16):
            for number in range(topics[topic].partitions_count):
                while topic not in circle[at][1]:
                    at = (at + 1) % len(circle)
                found[circle[at][0]].append(TopicPartition(topic, number))
                at = (at + 1) % len(circle)
        return {member_id: MemberAssignment(tuple(partitions)) for member_id, partitions in found.items()}

"""The assignors of ``core.group`` in the form of kafka-python's: for users who call them or derive from them.

A consumer that is given one of these classes uses the one in ``core.group`` itself; ``built_in`` says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from kafka.coordinator.assignors.abstract import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    RebalanceProtocol,
)
from kafka.core.group.assignors.base import Assignor, GroupMember
from kafka.core.group.assignors.strategy import ASSIGNORS
from kafka.core.group.machine import TopicSnapshot
from kafka.core.group.protocol import MemberAssignment


class BuiltInAssignor(AbstractPartitionAssignor):
    """One of ours by another surface."""

    built_in: ClassVar[str]

    def __init__(self) -> None:
        self._inner = ASSIGNORS[self.built_in]()

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return sorted(self._inner.rebalance_protocols, reverse=True)

    def assign(self, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        return run(self._inner, cluster, members)

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        return ConsumerProtocolSubscription(self.version, topics, self._inner.user_data(frozenset(topics)))

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int = -1) -> None:
        told = MemberAssignment(tuple(assignment.partitions()), assignment.user_data)
        self._inner.on_assignment(told, generation)


def run(assignor: Assignor, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
    """``assignor`` with kafka-python's arguments: a dictionary of ids and metadata, or a list of members."""
    found: list[GroupMember] = []
    if isinstance(members, Mapping) and not all(hasattr(one, "metadata") for one in members):
        found = [GroupMember(member_id, None, _member_metadata(metadata)) for member_id, metadata in members.items()]
    else:
        found = [GroupMember(one.member_id, one.group_instance_id, _member_metadata(one.metadata)) for one in members]
    topics: dict[str, TopicSnapshot] = {}
    for topic in {topic for member in found for topic in member.subscription.topics}:
        numbers = cluster.partitions_for_topic(topic)
        if numbers:
            racks = getattr(cluster, "racks_for_topic", lambda _: ())(topic)
            topics[topic] = TopicSnapshot(len(numbers), racks)
    return {
        member_id: ConsumerProtocolAssignment.of(assignment)
        for member_id, assignment in assignor.assign(topics, found).items()
    }


def _member_metadata(metadata: Any) -> Any:
    if isinstance(metadata, (bytes, bytearray)):
        return ConsumerProtocolSubscription.decode(bytes(metadata)).to_subscription()
    return metadata.to_subscription()

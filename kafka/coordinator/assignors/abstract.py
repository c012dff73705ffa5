"""The base class of assignors that users write.

``assign(cluster, members)`` runs in the leader of the group. ``cluster.partitions_for_topic(topic)`` is a set of
numbers, or None. Each of ``members`` has ``member_id``, ``group_instance_id`` and ``metadata`` with ``topics``,
``user_data``, ``owned_partitions``, ``generation_id`` and ``rack_id``; ``members`` is a dictionary of ids and metadata,
too. The result is a dictionary of member ids and :class:`ConsumerProtocolAssignment`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from kafka.core.group.assignors.base import RebalanceProtocol
from kafka.core.group.assignors.strategy import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

__all__ = [
    "AbstractPartitionAssignor",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "RebalanceProtocol",
]

ConsumerProtocolAssignment = ConsumerProtocolMemberAssignment
ConsumerProtocolSubscription = ConsumerProtocolMemberMetadata


class AbstractPartitionAssignor(ABC):
    """See the module."""

    version = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """What the members of a group agree on."""

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """What members do with their partitions while the group rebalances (KIP-429)."""
        return [RebalanceProtocol.EAGER]

    @abstractmethod
    def assign(self, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
        """Who reads what."""

    @abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """What this member says to the leader's assignor; its ``user_data`` counts."""

    @abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """This member has received its assignment."""

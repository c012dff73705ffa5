"""A member of a group of the new protocol (KIP-848): what it said of itself, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from kafka.broker.groups.classic_member import Protocols
from kafka.broker.groups.states import MemberState

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""A static member is away and will come back: nobody gets its partitions before its session is over."""

Partition = tuple[UUID, int]
"""Topic id and number."""

Owned = Mapping[Partition, int]
"""Partition -> the epoch with which the member was given it; who commits with an older one is stale (KIP-1251)."""


class ClassicSide(NamedTuple):
    """Of a member that speaks the classic protocol: its session time-out and its protocols."""

    session_timeout_ms: int
    protocols: Protocols


class ConsumerMember(NamedTuple):
    """One member at one time; changes make another. ``assigned``: may be used; ``revoking``: to be let go. ``classic``:
    None for members that speak the new protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    rebalance_timeout_ms: int = -1
    classic: ClassicSide | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = {}
    revoking: Owned = {}

    @property
    def is_away(self) -> bool:
        return self.epoch == STATIC_LEAVE_EPOCH

    def at_epoch(self, epoch: int) -> ConsumerMember:
        """The member after a step that led to an epoch. The one before stays good until it has heard of it."""
        return self._replace(epoch=epoch, previous_epoch=self.epoch)

    def holds(self) -> set[Partition]:
        """All that nobody else may be given."""
        return {*self.assigned, *self.revoking}

    def is_at(self, target_epoch: int) -> bool:
        """Whether it has what the target assignment of this epoch says."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

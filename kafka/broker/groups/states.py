"""States of groups and members, and the steps between them.

    Empty ──> PreparingRebalance ──> CompletingRebalance ──> Stable        a classic group; Dead from everywhere
      ^             │      ^                  │                 │
      └─────────────┘      └──────────────────┴─────────────────┘

A group of the new protocol has no state of its own: what is shown follows from its epochs and members.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class ClassicState(Enum):
    """A classic group's state; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for the members to join again."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """Waiting for the leader's assignment."""
    STABLE = "Stable"
    """Every member has its assignment, or can fetch it."""
    DEAD = "Dead"
    """Deleted, or turned into a group of the other kind."""


CLASSIC: Final[Mapping[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.PREPARING_REBALANCE: frozenset(
        {ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY, ClassicState.DEAD}
    ),
    ClassicState.COMPLETING_REBALANCE: frozenset(
        {ClassicState.STABLE, ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}
    ),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.DEAD}),
    ClassicState.DEAD: frozenset(),
}

REBALANCES_FROM: Final = frozenset(
    state for state, following in CLASSIC.items() if ClassicState.PREPARING_REBALANCE in following
)


class MemberState(IntEnum):
    """Where a member of the new protocol is on the way to its target assignment; the value is the one on the disk."""

    STABLE = 0
    """It has what its epoch's target says."""
    UNREVOKED_PARTITIONS = 1
    """It was told to let partitions go, and has not said yet that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not let go."""
    UNKNOWN = 127
    """Written by a later release."""

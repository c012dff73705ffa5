"""What an assignor is: it runs in the leader of a classic group and says who reads what.

Those that come with the package stand beside this file, a table of them and what makes assignors of a user's classes in
``strategy.py``. ``Assignor`` is the inner form; kafka-python's, which users write, is wrapped by ``adapter.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from kafka.core.group.machine import TopicPicture
from kafka.core.group.protocol import Assignment, MemberSubscription


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
        ...

    @property
    def rebalance_protocols(self) -> frozenset[RebalanceProtocol]:
        """Which it can do."""
        ...

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        """What the member says to the leader's assignor beside its subscription, when it joins."""
        ...

    def assign(self, topics: Mapping[str, TopicPicture], members: Sequence[GroupMember]) -> Mapping[str, Assignment]:
        """Member id -> what it reads. ``topics``: those of the members' that exist, and maybe others."""
        ...

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """This member was told what it reads."""
        ...

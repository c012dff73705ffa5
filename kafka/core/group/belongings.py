"""What a member of a classic group owns, and the one thing at a time that the user is carrying out about it."""

from __future__ import annotations

from kafka.core.group.machine import Assign, Lose, Revoke
from kafka.structs import TopicPartition

Step = Revoke | Lose | Assign


class Belongings:
    """``owned`` grows with :meth:`next_step`, and shrinks with :meth:`carried_out`. ``told``: what the leader's answer
    says that this member owns, until it does; None: nothing was told."""

    def __init__(self) -> None:
        self.owned: frozenset[TopicPartition] = frozenset()
        self.told: frozenset[TopicPartition] | None = None
        self.under_way: Step | None = None

    def begin(self, step: Step) -> Step:
        """The user is to carry out ``step``."""
        self.under_way = step
        return step

    def next_step(self) -> Step | None:
        """The next one to what was told: first what is not this member's any more is given up."""
        if self.told is None:
            return None
        taken = self.owned - self.told
        if taken:
            return self.begin(Revoke(taken))
        added = self.told - self.owned
        self.owned, self.told = self.told, None
        return self.begin(Assign(self.owned, added))

    def carried_out(self) -> None:
        """The step under way was."""
        if isinstance(self.under_way, (Revoke, Lose)):
            self.owned -= self.under_way.partitions
        self.under_way = None

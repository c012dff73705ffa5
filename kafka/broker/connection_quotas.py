"""How many connections there may be: of one address (``max.connections.per.ip``), and in all (``max.connections``, or
as many as the limit of open files allows, if that is less).

One too many of an address is refused, and its peer sees the connection end. When there are as many as there may be in
all, none is accepted: who comes waits in the system's queue, neither read nor answered, until another one has gone, and
takes no descriptor of ours. Apache Kafka 4.3.0 does both (measured).

Decides only; ending, accepting and serving connections is ``server.py``'s part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

PER_IP: Final = "max.connections.per.ip"
ALL: Final = "max.connections"

T = TypeVar("T", bound=Hashable)


class ConnectionQuotas(Generic[T]):
    """``limit`` gives the value in force of a setting: both may change while connections stand. ``capacity``: how many
    connections the process has descriptors for; None: any number."""

    def __init__(self, limit: Callable[[str], int], capacity: int | None = None) -> None:
        self._limit = limit
        self._capacity = capacity
        self._hosts: dict[T, str] = {}
        self._count_of: Counter[str] = Counter()

    def arrive(self, who: T, host: str) -> bool:
        """A connection has come: whether it stays. It is counted then."""
        if self._count_of[host] >= self._limit(PER_IP):
            return False
        self._hosts[who] = host
        self._count_of[host] += 1
        return True

    def leave(self, who: T) -> None:
        """A connection has gone, whatever had become of it."""
        host = self._hosts.pop(who, None)
        if host is not None:
            self._count_of[host] -= 1
            if not self._count_of[host]:
                del self._count_of[host]

    @property
    def most(self) -> int:
        """How many there may be in all."""
        limit = self._limit(ALL)
        return limit if self._capacity is None else min(limit, self._capacity)

    @property
    def has_place(self) -> bool:
        """Whether one more may come in."""
        return len(self._hosts) < self.most

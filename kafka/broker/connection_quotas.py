"""How many connections there may be: of one address (``max.connections.per.ip``), and in all (``max.connections``).

One too many of an address is refused, and its peer sees the connection end. One too many in all waits outside, neither
read nor answered, until another one has gone; Apache Kafka 4.3.0 does both (measured). At most :data:`MAX_WAITING` do.

Decides only; ending, pausing and serving connections is ``server.py``'s part.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

PER_IP: Final = "max.connections.per.ip"
ALL: Final = "max.connections"
MAX_WAITING: Final = 1024

T = TypeVar("T", bound=Hashable)


class Admission(enum.Enum):
    """What becomes of a connection."""

    ADMITTED = enum.auto()
    WAITS = enum.auto()
    REFUSED = enum.auto()


class ConnectionQuotas(Generic[T]):
    """``limit`` gives the value in force of a setting: both may change while connections stand."""

    def __init__(self, limit: Callable[[str], int]) -> None:
        self._limit = limit
        self._hosts: dict[T, str] = {}
        self._count_of: Counter[str] = Counter()
        self._waiting: dict[T, None] = {}

    def arrive(self, who: T, host: str) -> Admission:
        """A connection has come; it is counted unless it is refused."""
        if self._count_of[host] >= self._limit(PER_IP):
            return Admission.REFUSED
        has_place = self._has_place()
        if not has_place and len(self._waiting) >= MAX_WAITING:
            return Admission.REFUSED
        self._hosts[who] = host
        self._count_of[host] += 1
        if has_place:
            return Admission.ADMITTED
        self._waiting[who] = None
        return Admission.WAITS

    def leave(self, who: T) -> None:
        """A connection has gone, whatever had become of it."""
        host = self._hosts.pop(who, None)
        if host is not None:
            self._count_of[host] -= 1
            if not self._count_of[host]:
                del self._count_of[host]
            self._waiting.pop(who, None)

    def next_admitted(self) -> T | None:
        """One that has waited and may come in now, the first one first."""
        if not self._waiting or not self._has_place():
            return None
        who = next(iter(self._waiting))
        del self._waiting[who]
        return who

    def waiting(self) -> list[T]:
        """Those outside."""
        return list(self._waiting)

    def _has_place(self) -> bool:
        return len(self._hosts) - len(self._waiting) < self._limit(ALL)

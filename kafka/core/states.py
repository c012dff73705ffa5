"""Transition tables of state machines. The documentation's diagrams are drawn from them.

A table maps each state to the states that may follow. :class:`States` holds the present one and refuses every other
step, so a machine cannot slip into a state that nobody thought of. A new machine adds its table here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, TypeVar

S = TypeVar("S", bound=Enum)


class States(Generic[S]):
    """The present state of one machine, and the only way to change it."""

    __slots__ = ("_name", "_table", "now")

    def __init__(self, table: Mapping[S, frozenset[S]], first: S, name: str = "") -> None:
        self._table = table
        self._name = name
        self.now = first

    def enter(self, state: S) -> None:
        """Step to ``state``; RuntimeError when the table has no such step (a fault of ours)."""
        if state not in self._table[self.now]:
            raise RuntimeError(f"{self._name}: no step from {self.now.name} to {state.name}")
        self.now = state


class Link(Enum):
    """A client's connection to a node."""

    IDLE = "idle"
    """Not connected, and nothing stands against connecting but the back-off."""
    CONNECTING = "connecting"
    """Looking up the name, or connecting to its addresses."""
    GREETING = "greeting"
    """Connected; finding out what the broker speaks."""
    READY = "ready"
    """Requests may be sent."""
    CLOSED = "closed"
    """Closed for good, by us."""


LINK: Final[Mapping[Link, frozenset[Link]]] = {
    Link.IDLE: frozenset({Link.CONNECTING, Link.CLOSED}),
    Link.CONNECTING: frozenset({Link.GREETING, Link.IDLE, Link.CLOSED}),
    # An old broker closes on what it does not know, and the greeting goes on over a new connection.
    Link.GREETING: frozenset({Link.READY, Link.CONNECTING, Link.IDLE, Link.CLOSED}),
    Link.READY: frozenset({Link.IDLE, Link.CLOSED}),
    Link.CLOSED: frozenset(),
}

TABLES: Final[Mapping[str, Mapping[Enum, frozenset[Enum]]]] = {
    "link": LINK,  # type: ignore[dict-item]  # a Mapping of one enum serves as one of any for reading
}
"""Name -> table, for the documentation."""

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
    AUTHENTICATING = "authenticating"
    """Connected, with SASL: showing who we are."""
    GREETING = "greeting"
    """Connected; finding out what the broker speaks."""
    READY = "ready"
    """Requests may be sent."""
    CLOSED = "closed"
    """Closed for good, by us."""


LINK: Final[Mapping[Link, frozenset[Link]]] = {
    Link.IDLE: frozenset({Link.CONNECTING, Link.CLOSED}),
    Link.CONNECTING: frozenset({Link.AUTHENTICATING, Link.GREETING, Link.IDLE, Link.CLOSED}),
    Link.AUTHENTICATING: frozenset({Link.GREETING, Link.IDLE, Link.CLOSED}),
    # An old broker closes on what it does not know, and the greeting goes on over a new connection.
    Link.GREETING: frozenset({Link.READY, Link.CONNECTING, Link.IDLE, Link.CLOSED}),
    Link.READY: frozenset({Link.IDLE, Link.CLOSED}),
    Link.CLOSED: frozenset(),
}


class Transaction(Enum):
    """A transactional producer."""

    UNINITIALIZED = "not initialized"
    """It has no producer id: ``init_transactions()`` is to be called."""
    INITIALIZING = "initializing"
    """Asking for a producer id, or for the next epoch of the one that it has."""
    READY = "ready"
    """Between transactions."""
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "after an error: the transaction can only be aborted"
    FATAL_ERROR = "after an error that ended it"


TRANSACTION: Final[Mapping[Transaction, frozenset[Transaction]]] = {
    Transaction.UNINITIALIZED: frozenset({Transaction.INITIALIZING, Transaction.FATAL_ERROR}),
    # UNINITIALIZED: the epoch cannot be had now, and may be asked for again.
    Transaction.INITIALIZING: frozenset({Transaction.READY, Transaction.UNINITIALIZED, Transaction.FATAL_ERROR}),
    Transaction.READY: frozenset({Transaction.IN_TRANSACTION, Transaction.FATAL_ERROR}),
    Transaction.IN_TRANSACTION: frozenset(
        {Transaction.COMMITTING, Transaction.ABORTING, Transaction.ABORTABLE_ERROR, Transaction.FATAL_ERROR}
    ),
    # INITIALIZING: the next transaction needs an epoch of its own, which the end of this one did not bring.
    Transaction.COMMITTING: frozenset(
        {Transaction.READY, Transaction.INITIALIZING, Transaction.ABORTABLE_ERROR, Transaction.FATAL_ERROR}
    ),
    Transaction.ABORTING: frozenset({Transaction.READY, Transaction.INITIALIZING, Transaction.FATAL_ERROR}),
    Transaction.ABORTABLE_ERROR: frozenset({Transaction.ABORTING, Transaction.FATAL_ERROR}),
    Transaction.FATAL_ERROR: frozenset(),
}


class Telemetry(Enum):
    """A client's telemetry (KIP-714)."""

    SUBSCRIPTION_NEEDED = "subscription needed"
    """The broker is to be asked what it wants: now, or after a while."""
    SUBSCRIPTION_IN_PROGRESS = "asking for the subscription"
    PUSH_NEEDED = "push needed"
    """Metrics are wanted, and pushed when the interval has passed."""
    PUSH_IN_PROGRESS = "pushing"
    TERMINATING_PUSH_NEEDED = "terminating push needed"
    """The client is being closed, and has a last push to make."""
    TERMINATING_PUSH_IN_PROGRESS = "terminating push"
    TERMINATED = "terminated"
    """Nothing more is asked or pushed: the client was closed, or a broker refused telemetry for good."""


TELEMETRY: Final[Mapping[Telemetry, frozenset[Telemetry]]] = {
    Telemetry.SUBSCRIPTION_NEEDED: frozenset({Telemetry.SUBSCRIPTION_IN_PROGRESS, Telemetry.TERMINATED}),
    # SUBSCRIPTION_NEEDED: an error, or no metrics are wanted for now.
    Telemetry.SUBSCRIPTION_IN_PROGRESS: frozenset(
        {Telemetry.SUBSCRIPTION_NEEDED, Telemetry.PUSH_NEEDED, Telemetry.TERMINATED}
    ),
    Telemetry.PUSH_NEEDED: frozenset(
        {Telemetry.PUSH_IN_PROGRESS, Telemetry.TERMINATING_PUSH_NEEDED, Telemetry.TERMINATED}
    ),
    Telemetry.PUSH_IN_PROGRESS: frozenset(
        {
            Telemetry.PUSH_NEEDED, Telemetry.SUBSCRIPTION_NEEDED, Telemetry.TERMINATING_PUSH_NEEDED,
            Telemetry.TERMINATED,
        }
    ),
    Telemetry.TERMINATING_PUSH_NEEDED: frozenset({Telemetry.TERMINATING_PUSH_IN_PROGRESS, Telemetry.TERMINATED}),
    Telemetry.TERMINATING_PUSH_IN_PROGRESS: frozenset({Telemetry.TERMINATED}),
    Telemetry.TERMINATED: frozenset(),
}  # fmt: skip

TABLES: Final[Mapping[str, Mapping[Enum, frozenset[Enum]]]] = {
    "link": LINK,  # type: ignore[dict-item]  # a Mapping of one enum serves as one of any for reading
    "telemetry": TELEMETRY,  # type: ignore[dict-item]
    "transaction": TRANSACTION,  # type: ignore[dict-item]
}
"""Name -> table, for the documentation."""

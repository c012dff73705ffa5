"""Transition tables of state machines. The documentation's diagrams are drawn from them.

A table maps each state to the states that may follow. :class:`States` holds the present one and refuses every other
step. A new machine adds its table here.
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
        """Step to ``state``; RuntimeError when the table has no such step, which is a bug."""
        if state not in self._table[self.now]:
            raise RuntimeError(f"{self._name}: no step from {self.now.name} to {state.name}")
        self.now = state


class ConnectionState(Enum):
    """A client's connection to a node."""

    DISCONNECTED = "disconnected"
    """Not connected; connects when there is a request and the back-off is over."""
    CONNECTING = "connecting"
    """Looking up the name, or connecting to its addresses."""
    AUTHENTICATING = "authenticating"
    """Connected; the SASL handshake is under way."""
    CHECKING_API_VERSIONS = "checking API versions"
    """Connected; finding out the broker's API versions."""
    READY = "ready"
    """Requests may be sent."""
    CLOSED = "closed"
    """Closed for good, by us."""


CONNECTION_STATES: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.DISCONNECTED: frozenset({ConnectionState.CONNECTING, ConnectionState.CLOSED}),
    ConnectionState.CONNECTING: frozenset(
        {
            ConnectionState.AUTHENTICATING,
            ConnectionState.CHECKING_API_VERSIONS,
            ConnectionState.DISCONNECTED,
            ConnectionState.CLOSED,
        }
    ),
    ConnectionState.AUTHENTICATING: frozenset(
        {ConnectionState.CHECKING_API_VERSIONS, ConnectionState.DISCONNECTED, ConnectionState.CLOSED}
    ),
    # A broker before 0.10 closes the connection on a request that it does not know: the next probe needs another one.
    ConnectionState.CHECKING_API_VERSIONS: frozenset(
        {ConnectionState.READY, ConnectionState.CONNECTING, ConnectionState.DISCONNECTED, ConnectionState.CLOSED}
    ),
    ConnectionState.READY: frozenset({ConnectionState.DISCONNECTED, ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}


class TransactionPhase(Enum):
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


TRANSACTION_PHASES: Final[Mapping[TransactionPhase, frozenset[TransactionPhase]]] = {
    TransactionPhase.UNINITIALIZED: frozenset({TransactionPhase.INITIALIZING, TransactionPhase.FATAL_ERROR}),
    # UNINITIALIZED: the epoch cannot be had now, and may be asked for again.
    TransactionPhase.INITIALIZING: frozenset(
        {TransactionPhase.READY, TransactionPhase.UNINITIALIZED, TransactionPhase.FATAL_ERROR}
    ),
    TransactionPhase.READY: frozenset({TransactionPhase.IN_TRANSACTION, TransactionPhase.FATAL_ERROR}),
    TransactionPhase.IN_TRANSACTION: frozenset(
        {
            TransactionPhase.COMMITTING,
            TransactionPhase.ABORTING,
            TransactionPhase.ABORTABLE_ERROR,
            TransactionPhase.FATAL_ERROR,
        }
    ),
    # INITIALIZING: the next transaction needs an epoch of its own, which the end of this one did not bring.
    TransactionPhase.COMMITTING: frozenset(
        {
            TransactionPhase.READY,
            TransactionPhase.INITIALIZING,
            TransactionPhase.ABORTABLE_ERROR,
            TransactionPhase.FATAL_ERROR,
        }
    ),
    TransactionPhase.ABORTING: frozenset(
        {TransactionPhase.READY, TransactionPhase.INITIALIZING, TransactionPhase.FATAL_ERROR}
    ),
    TransactionPhase.ABORTABLE_ERROR: frozenset({TransactionPhase.ABORTING, TransactionPhase.FATAL_ERROR}),
    TransactionPhase.FATAL_ERROR: frozenset(),
}


class TelemetryState(Enum):
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


TELEMETRY_STATES: Final[Mapping[TelemetryState, frozenset[TelemetryState]]] = {
    TelemetryState.SUBSCRIPTION_NEEDED: frozenset({TelemetryState.SUBSCRIPTION_IN_PROGRESS, TelemetryState.TERMINATED}),
    # SUBSCRIPTION_NEEDED: an error, or no metrics are wanted for now.
    TelemetryState.SUBSCRIPTION_IN_PROGRESS: frozenset(
        {TelemetryState.SUBSCRIPTION_NEEDED, TelemetryState.PUSH_NEEDED, TelemetryState.TERMINATED}
    ),
    TelemetryState.PUSH_NEEDED: frozenset(
        {TelemetryState.PUSH_IN_PROGRESS, TelemetryState.TERMINATING_PUSH_NEEDED, TelemetryState.TERMINATED}
    ),
    TelemetryState.PUSH_IN_PROGRESS: frozenset(
        {
            TelemetryState.PUSH_NEEDED, TelemetryState.SUBSCRIPTION_NEEDED, TelemetryState.TERMINATING_PUSH_NEEDED,
            TelemetryState.TERMINATED,
        }
    ),
    TelemetryState.TERMINATING_PUSH_NEEDED: frozenset({TelemetryState.TERMINATING_PUSH_IN_PROGRESS,
    TelemetryState.TERMINATED}),
    TelemetryState.TERMINATING_PUSH_IN_PROGRESS: frozenset({TelemetryState.TERMINATED}),
    TelemetryState.TERMINATED: frozenset(),
}  # fmt: skip

TABLES: Final[Mapping[str, Mapping[Enum, frozenset[Enum]]]] = {
    "link": CONNECTION_STATES,  # type: ignore[dict-item]  # a Mapping of one enum serves as one of any for reading
    "telemetry": TELEMETRY_STATES,  # type: ignore[dict-item]
    "transaction": TRANSACTION_PHASES,  # type: ignore[dict-item]
}
"""Name -> table, for the documentation."""

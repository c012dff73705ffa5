"""A member of a classic group, and what requests and answers say of one."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kafka.errors import BrokerResponseError

NO_MEMBER: Final = ""

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata, the most wanted first."""


class Join(NamedTuple):
    """A JoinGroup request. ``needs_known_id``: a member without an id is sent one and told to come again (version 4);
    ``may_skip_assignment``: its leader understands that there is nothing to assign (version 9, KIP-814)."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    needs_known_id: bool = True
    may_skip_assignment: bool = True
    reason: str | None = None


class JoinAnswer(NamedTuple):
    """``members``: id, instance id and metadata of each, for the leader."""

    error: type[BrokerResponseError] | None = None
    member_id: str = NO_MEMBER
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class Sync(NamedTuple):
    """A SyncGroup request."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: dict[str, bytes]


class SyncAnswer(NamedTuple):
    """A member's assignment."""

    error: type[BrokerResponseError] | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class ClassicMember:
    """One member. ``join_ticket``, ``sync_ticket``: of its request that waits, or None; ``is_new``: it has not taken
    part in a generation yet. Times in ms."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        protocol_type: str,
        protocols: Protocols,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.assignment = assignment
        self.is_new = False
        self.join_ticket: Any = None
        self.sync_ticket: Any = None

    @property
    def waits(self) -> bool:
        """It has a request here, so it is alive whatever its session says; but a new one that waits too long is
        given up."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What it said under a protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")

    def supports(self, protocol: str) -> bool:
        return any(name == protocol for name, _ in self.protocols)

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it likes best among those that everybody has."""
        return next(name for name, _ in self.protocols if name in candidates)

    def successor(self, member_id: str) -> ClassicMember:
        """The same static member under a new id."""
        return ClassicMember(
            member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.protocol_type,
            self.protocols,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.assignment,
        )

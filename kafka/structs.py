"""Plain values at the public API's edge, with the names and fields that users of kafka-python know."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

E = TypeVar("E", bound="EnumHelper")


class EnumHelper:
    """What kafka-python's enumerations have beside their members."""

    @classmethod
    def build_from(cls: type[E], val: Any) -> E:
        """The member for a member, its value, or its name in any case ("read-committed"); ValueError."""
        kinds: Any = cls
        name = val.strip().upper().replace("-", "_") if isinstance(val, str) else None
        for member in kinds:
            if name == member.name or (val == member.value and not isinstance(val, bool)):
                result: E = member
                return result
        known = ", ".join(member.name.lower() for member in kinds)
        raise ValueError(f"{cls.__name__} {val!r}: one of {known}")

    @classmethod
    def value_for(cls, val: Any) -> Any:
        """The value of that member."""
        member: Any = cls.build_from(val)
        return member.value


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int


class OffsetAndMetadata(NamedTuple):
    """What a group commits: the next offset to read, a text of its own, and the leader epoch (-1: unknown). Without an
    offset, as kafka-python lets it be made, it can not be committed."""

    offset: int = None  # type: ignore[assignment]
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The result of a look-up by time: ``timestamp`` in ms since the epoch."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class IsolationLevel(EnumHelper, IntEnum):
    """Whether records of open and aborted transactions are seen (KIP-98). Numbers are the protocol's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1

    @classmethod
    def of(cls, value: Any) -> IsolationLevel:
        """The level that is meant by a member, its number, or its name in any case ("read-committed"); ValueError for
        what is none."""
        try:
            return cls.build_from(value)
        except ValueError:
            raise ValueError("one of 'read_uncommitted', 'read_committed'") from None


class BrokerMetadata(NamedTuple):
    """A broker of the cluster: where to reach it."""

    nodeId: int | str
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """A partition in the cluster's metadata; ``leader`` is -1 when there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]
    error: int


class TopicPartitionReplica(NamedTuple):
    """One replica of a partition."""

    topic: str
    partition: int
    broker_id: int


class MemberState:
    """What kafka-python calls the states of a member in :class:`ConsumerGroupMetadata`. There are others in between,
    such as ``<reconciling>`` of the consumer group protocol."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """Who commits within a transaction (KIP-447). ``state``: for people."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = "<unjoined>"


class MemberInformation(NamedTuple):
    """A member of a group as kafka-python 2 describes it: its metadata and its assignment."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: Any
    member_assignment: Any


class GroupInformation(NamedTuple):
    """A group as kafka-python 2 describes it."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: Any

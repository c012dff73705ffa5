"""What users hand to calls about groups. Names and texts are Kafka's, the classes kafka-python's."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from typing import Any, NamedTuple, TypeVar

from kafka.errors import IllegalArgumentError
from kafka.structs import EnumHelper

E = TypeVar("E", bound=Enum)


class GroupState(EnumHelper, str, Enum):
    """Where a group stands (KIP-518, KIP-848)."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


class GroupType(EnumHelper, str, Enum):
    """The protocol that a group speaks (KIP-848, KIP-932, KIP-1071)."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class OffsetSpec(EnumHelper, IntEnum):
    """An offset by what it is: the end, the start, that of the latest timestamp (KIP-734), of what is local
    (KIP-405), of what was tiered (KIP-1005)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


class OffsetTimestamp(int):
    """Milliseconds since the epoch, where a plain number would be an offset: the first offset that is not older."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"OffsetTimestamp({int(self)})"


class MemberToRemove(NamedTuple):
    """A member of a group, by its id, or by ``group_instance_id`` when it is a static one (2.3). ``reason`` is for the
    broker's log (KIP-800)."""

    member_id: str | None = None
    group_instance_id: str | None = None
    reason: str | None = None


def texts(kind: type[E], given: Iterable[Any]) -> list[str]:
    """The protocol's texts of members of ``kind``, of their names, or of texts in any case."""
    known = {_plain(each.value): each for each in kind}
    found = []
    for each in given:
        member = each if isinstance(each, kind) else known.get(_plain(str(each)))
        if member is None:
            names = ", ".join(sorted(each.value for each in kind if each.value != "Unknown"))
            raise IllegalArgumentError(f"{each!r}: one of {names}")
        found.append(str(member.value))
    return found


def _plain(text: str) -> str:
    return text.lower().replace("-", "").replace("_", "")

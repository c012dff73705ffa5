"""The orders in which Java's assignors go through members, so that ours give the same answers where these matter.

Where there is one partition more than can be shared evenly, the first member gets it or keeps it. Sometimes that is the
order of names, static members first; sometimes that of a ``java.util.HashMap``, which is as fixed, though it looks like
chance: keys of one bucket stand in the order in which they came in, and the table doubles when it is three quarters
full.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kafka.core.group.assignors.base import GroupMember
from kafka.structs import TopicPartition

_SMALLEST_TABLE: Final = 16


def by_name(members: Sequence[GroupMember]) -> list[GroupMember]:
    """Static members by their instance ids, then the others by their ids: so a static one keeps its place over its
    restarts."""
    return sorted(members, key=_name_key)


def by_hash(members: Sequence[GroupMember]) -> list[GroupMember]:
    """As a HashMap with the members' ids as keys has them."""
    size = _table_size(len(members))
    return sorted(members, key=lambda member: _spread(_hash(member.member_id)) & (size - 1))


def utf16(text: str) -> bytes:
    """What Java compares texts by."""
    return text.encode("utf-16-be", "surrogatepass")


def _name_key(member: GroupMember) -> tuple[bool, bytes]:
    if member.instance_id is not None:
        return False, utf16(member.instance_id)
    return True, utf16(member.member_id)


def first_by_hash(partitions: Collection[TopicPartition]) -> TopicPartition:
    """The first of a HashSet of them."""
    size = _table_size(len(partitions))
    return min(partitions, key=lambda one: _spread(31 * (31 + one.partition) + _hash(one.topic)) & (size - 1))


def _table_size(count: int) -> int:
    size = _SMALLEST_TABLE
    while count > size * 3 // 4:
        size *= 2
    return size


def _hash(text: str) -> int:
    value = 0
    units = utf16(text)
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return value


def _spread(value: int) -> int:
    value &= 0xFFFFFFFF
    return value ^ (value >> 16)

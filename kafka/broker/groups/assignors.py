"""Server-side assignors: who of a consumer group has which partitions (KIP-848). ``range`` and ``uniform``.

``range``: each topic's partitions in runs, in the order of the members' ids (static members first, by instance id), so
that members have the same numbers of topics with as many partitions. ``uniform``: as even as can be over all topics,
and members keep as many of their partitions as are their due.

Where the numbers do not divide evenly, some members get one more, and in Apache Kafka the order of Java's hash tables
says who and of which topic. That order is easily had (:func:`java_order`), so ``uniform`` gives the same assignments
where all members are subscribed to the same topics; where they are not, numbers are as even, and the choice is ours.
To add an assignor: a row in ``ASSIGNORS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.broker.state.state_topic import java_hash
from kafka.broker.topics import TopicIdPartition

Assignment = dict[str, frozenset[TopicIdPartition]]

K = TypeVar("K", str, UUID)

_SMALLEST_TABLE: Final = 16


class SubscribedMember(NamedTuple):
    """What an assignor knows of a member. ``topics``: of those that exist."""

    topics: frozenset[UUID]
    instance_id: str | None = None


def assign_range(
    members: Mapping[str, SubscribedMember],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, Set[TopicIdPartition]],
) -> Assignment:
    """Member id -> partitions."""
    order = sorted(members, key=lambda one: _range_key(one, members[one].instance_id))
    found: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in order}
    for topic_id in {topic_id for member in members.values() for topic_id in member.topics}:
        sharing = [member_id for member_id in order if topic_id in members[member_id].topics]
        quota, extra = divmod(partition_counts.get(topic_id, 0), len(sharing))
        start = 0
        for at, member_id in enumerate(sharing):
            end = start + quota + (at < extra)
            found[member_id].update((topic_id, number) for number in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def _range_key(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return instance_id is None, (member_id if instance_id is None else instance_id).encode("utf-16-be", "surrogatepass")


def assign_uniform(
    members: Mapping[str, SubscribedMember],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, Set[TopicIdPartition]],
) -> Assignment:
    """Member id -> partitions; ``current``: the assignment so far."""
    if len({member.topics for member in members.values()}) == 1:
        return _uniform_same(members, partition_counts, current)
    return _uniform_mixed(members, partition_counts, current)


def _uniform_same(
    members: Mapping[str, SubscribedMember],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, Set[TopicIdPartition]],
) -> Assignment:
    """All members subscribe to the same topics: each keeps what it has up to its quota, the rest goes to members below
    theirs. In the order of Java's hash maps, so that the result is Apache Kafka's."""
    topics = java_order(next(iter(members.values())).topics)
    existing = {(topic_id, number) for topic_id in topics for number in range(partition_counts.get(topic_id, 0))}
    order = java_order(members)
    least, extra = divmod(len(existing), len(order))
    held = {member_id: _in_java_order(existing & set(current.get(member_id, ()))) for member_id in order}
    taken = {partition for partitions in held.values() for partition in partitions}
    free = [
        (topic_id, number)
        for topic_id in topics
        for number in range(partition_counts.get(topic_id, 0))
        if (topic_id, number) not in taken
    ]
    found: dict[str, list[TopicIdPartition]] = {}
    unfilled: list[str] = []
    for member_id in order:
        quota = least
        if extra and len(held[member_id]) > least:
            quota += 1
            extra -= 1
        else:
            unfilled.append(member_id)
        found[member_id] = held[member_id][:quota]
        free += held[member_id][quota:]
    rest = iter(free)
    for at, member_id in enumerate(unfilled):
        quota = least + (at >= len(unfilled) - extra)
        while len(found[member_id]) < quota:
            found[member_id].append(next(rest))
    return {member_id: frozenset(partitions) for member_id, partitions in found.items()}


def _uniform_mixed(
    members: Mapping[str, SubscribedMember],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, Set[TopicIdPartition]],
) -> Assignment:
    """Keep what may be kept, give the rest to the one with the fewest, then move from the fullest to the emptiest while
    they differ by two or more. The topics that the fewest members can take go first."""
    order = sorted(members)
    held: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in order}
    taken: set[TopicIdPartition] = set()
    for member_id in order:
        held[member_id] = {
            (topic_id, number)
            for topic_id, number in current.get(member_id, ())
            if topic_id in members[member_id].topics and number < partition_counts.get(topic_id, 0)
        } - taken
        taken |= held[member_id]
    takers = {
        topic_id: [member_id for member_id in order if topic_id in members[member_id].topics]
        for topic_id in {topic_id for member in members.values() for topic_id in member.topics}
    }
    for topic_id in sorted(takers, key=lambda one: (len(takers[one]), one.bytes)):
        for number in range(partition_counts.get(topic_id, 0)):
            if (topic_id, number) not in taken:
                held[min(takers[topic_id], key=lambda one: len(held[one]))].add((topic_id, number))
    balance(order, held, {member_id: members[member_id].topics for member_id in order})
    return {member_id: frozenset(partitions) for member_id, partitions in held.items()}


def balance(
    order: Sequence[str], held: Mapping[str, set[TopicIdPartition]], topics_of: Mapping[str, Set[UUID]]
) -> None:
    """Move partitions from the fullest to the emptiest member that may have them, while they differ by two or more."""
    while _move_one(order, held, topics_of):
        pass


def _move_one(
    order: Sequence[str], held: Mapping[str, set[TopicIdPartition]], topics_of: Mapping[str, Set[UUID]]
) -> bool:
    for poor in sorted(order, key=lambda one: len(held[one])):
        for rich in sorted(order, key=lambda one: -len(held[one])):
            if len(held[rich]) - len(held[poor]) < 2:
                break
            fitting = [partition for partition in held[rich] if partition[0] in topics_of[poor]]
            if fitting:
                moved = max(fitting, key=_sort_key)
                held[rich].remove(moved)
                held[poor].add(moved)
                return True
    return False


def _sort_key(partition: TopicIdPartition) -> tuple[bytes, int]:
    return partition[0].bytes, partition[1]


def _in_java_order(partitions: Set[TopicIdPartition]) -> list[TopicIdPartition]:
    topics = java_order({topic_id for topic_id, _ in partitions})
    return [
        (topic_id, number)
        for topic_id in topics
        for number in sorted(number for one, number in partitions if one == topic_id)
    ]


def java_order(keys: Iterable[K]) -> list[K]:
    """The order in which a ``java.util.HashMap`` that has grown by itself goes through its keys. Keys of one bucket
    keep the order in which they came, which here is that of their texts."""
    found = sorted(keys, key=str)
    size = _SMALLEST_TABLE
    while len(found) > size * 3 // 4:
        size *= 2
    return sorted(found, key=lambda key: _spread(key) & (size - 1))


def _spread(key: str | UUID) -> int:
    if isinstance(key, UUID):
        mixed = (key.int >> 64) ^ key.int  # what is above 64 bits stays above 32 and is cut off
        value = ((mixed >> 32) ^ mixed) & 0xFFFFFFFF
    else:
        value = java_hash(key) & 0xFFFFFFFF
    return value ^ (value >> 16)


Assignor = Callable[
    [Mapping[str, SubscribedMember], Mapping[UUID, int], Mapping[str, Set[TopicIdPartition]]], Assignment
]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By name; ``group.consumer.assignors`` says which there are, and the first of them is for members that name none."""

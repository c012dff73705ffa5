"""The assignor ``simple``: which member of a share group fetches which partitions (KIP-932, "Partition assignors").

Every partition of a subscribed topic goes to at least one member, every member has a partition if there is one that it
may have, and numbers differ by at most one where all members subscribe to the same topics. With more members than
partitions several members share one; with fewer, each partition has one member. What a member has it keeps where that
is as even.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from uuid import UUID

Partition = tuple[UUID, int]
Assignment = dict[str, frozenset[Partition]]


def assign(
    subscriptions: Mapping[str, Set[UUID]],
    partition_counts: Mapping[UUID, int],
    current: Mapping[str, frozenset[Partition]],
) -> Assignment:
    """Member id -> its partitions.

    ``subscriptions``: member id -> topic ids; ``partition_counts``: of the topics that exist; ``current``: the
    assignment so far. The same arguments give the same answer.
    """
    members = sorted(subscriptions)
    held: dict[str, set[Partition]] = {member: set() for member in members}
    partitions = [
        (topic, number)
        for topic in sorted({topic for topics in subscriptions.values() for topic in topics}, key=lambda t: t.bytes)
        for number in range(partition_counts.get(topic, 0))
    ]
    if not members or not partitions:
        return {member: frozenset() for member in members}
    owners: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    for member in members:
        for partition in current.get(member, frozenset()):
            if partition in owners and partition[0] in subscriptions[member]:
                owners[partition].append(member)
    may_have: dict[UUID, list[str]] = {}
    for topic in {topic for topic, _ in partitions}:
        may_have[topic] = [member for member in members if topic in subscriptions[member]]
    _one_owner_each(partitions, owners, may_have, held)
    _level(members, held, subscriptions)
    _partition_for_each(members, held, owners, subscriptions, partitions)
    return {member: frozenset(held[member]) for member in members}


def _one_owner_each(
    partitions: Sequence[Partition],
    owners: Mapping[Partition, Sequence[str]],
    may_have: Mapping[UUID, Sequence[str]],
    held: dict[str, set[Partition]],
) -> None:
    homeless = []
    for partition in partitions:
        keeper = min(owners[partition], key=lambda member: len(held[member]), default=None)
        if keeper is None:
            homeless.append(partition)
        else:
            held[keeper].add(partition)
    for partition in homeless:
        member = min(may_have[partition[0]], key=lambda member: len(held[member]))
        held[member].add(partition)


def _level(
    members: Sequence[str], held: dict[str, set[Partition]], subscriptions: Mapping[str, Set[UUID]]
) -> None:
    """Move partitions from the fullest to the emptiest member that may have them, while they differ by two or more."""
    moved = True
    while moved:
        moved = False
        for poor in sorted(members, key=lambda member: len(held[member])):
            for rich in sorted(members, key=lambda member: -len(held[member])):
                if len(held[rich]) - len(held[poor]) < 2:
                    break
                fitting = [partition for partition in held[rich] if partition[0] in subscriptions[poor]]
                if fitting:
                    partition = max(fitting, key=lambda found: (found[0].bytes, found[1]))
                    held[rich].remove(partition)
                    held[poor].add(partition)
                    moved = True
                    break
            if moved:
                break


def _partition_for_each(
    members: Sequence[str],
    held: dict[str, set[Partition]],
    owners: Mapping[Partition, Sequence[str]],
    subscriptions: Mapping[str, Set[UUID]],
    partitions: Sequence[Partition],
) -> None:
    """Members without any share the one that they had, as long as that is as even; else that with the fewest
    members.
    """
    given = dict.fromkeys(partitions, 1)  # members of each; so far one
    floor, extra = divmod(len(members), len(partitions))
    idle = [member for member in members if not held[member]]
    for may_keep in (True, False):
        for member in idle:
            fitting = [partition for partition in partitions if partition[0] in subscriptions[member]]
            if may_keep:
                fitting = [
                    partition
                    for partition in fitting
                    if member in owners[partition] and given[partition] < floor + (extra > 0)
                ]
            if fitting and not held[member]:
                chosen = min(fitting, key=lambda partition: given[partition])
                extra -= given[chosen] >= floor
                held[member].add(chosen)
                given[chosen] += 1

"""Which worker owns which partitions of a queue: the same numbers of all its topics, as many for each as can be, and as
few moves as that takes. Pure; the leader of the group runs it.

The assignors that count partitions of all topics alike may give one worker all that hold jobs, and another those of
suspects, which are empty. Where the group protocol is the newer one (KIP-848), the brokers' "range" does the same.

Nothing is given to a member that another one still owns: that one gives it up, and the next rebalance gives it away
(KIP-429).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kafka.structs import TopicPartition

COOPERATIVE: Final = 1
"""Of the rebalance protocols: members keep what they have while the group rebalances."""


def share_numbers(count: int, claims: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The numbers 0 to ``count`` - 1 for the members that are the keys of ``claims``: each keeps what it claims, up to
    an equal share. No number is claimed twice."""
    members = sorted(claims, key=lambda member: (-len(claims[member]), member))
    least, extra = divmod(count, len(members))
    shares: dict[str, list[int]] = {}
    for place, member in enumerate(members):
        shares[member] = sorted(claims[member])[: least + (place < extra)]
    kept = {number for share in shares.values() for number in share}
    free = [number for number in range(count) if number not in kept]
    for place, member in enumerate(members):
        missing = least + (place < extra) - len(shares[member])
        shares[member] += free[:missing]
        del free[:missing]
    return shares


class QueueAssignor:
    """See the module. In the form that ``partition_assignment_strategy`` takes."""

    name = "kafka-tasks"

    def supported_protocols(self) -> list[int]:
        """The cooperative one."""
        return [COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> None:
        """Nothing but what each member says: its topics, and the partitions that it owns."""

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Nothing is kept."""

    def assign(self, cluster: Any, members: Any) -> dict[str, dict[str, list[int]]]:
        """Member id -> {topic: partitions}. ``members``: each with ``metadata.topics``, ``.owned_partitions`` and
        ``.generation_id``."""
        said = {str(member.member_id): member.metadata for member in members}
        counts = {
            topic: len(cluster.partitions_for_topic(topic) or ()) for each in said.values() for topic in each.topics
        }
        owners: dict[TopicPartition, tuple[int, str]] = {}
        for member, metadata in said.items():
            for topic, numbers in metadata.owned_partitions:
                for number in numbers:
                    owner = metadata.generation_id, member
                    owners[TopicPartition(topic, number)] = max(owners.get(TopicPartition(topic, number), owner), owner)
        claimed: dict[int, str] = {}
        for place, (_, member) in owners.items():
            claimed.setdefault(place.partition, member)
        most = max(counts.values(), default=0)
        claims: dict[str, list[int]] = {member: [] for member in said}
        for number, member in claimed.items():
            if number < most:
                claims[member].append(number)
        shares = share_numbers(most, claims)
        return {
            member: {
                topic: [
                    number
                    for number in sorted(numbers)
                    if number < counts[topic] and owners.get(TopicPartition(topic, number), (0, member))[1] == member
                ]
                for topic in said[member].topics
            }
            for member, numbers in shares.items()
        }

"""The order of an answer to requests that name offsets of many partitions: OffsetCommit, TxnOffsetCommit, OffsetDelete.

Apache Kafka looks at topics and partitions first, and hands what is there to the coordinator. Its answer has what was
refused by then, and behind it what the coordinator says: under the same topic if that is there already.

    asked       a: 0 1 9      b: 0      (a has two partitions)
    answered    a: 9 0 1      b: 0

A known topic without partitions is left out, an unknown one without partitions is not.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


def refused_first(refused: Mapping[K, list[P]], answered: Iterable[tuple[K, list[P]]]) -> list[tuple[K, list[P]]]:
    """Topics and answers for their partitions, in Kafka's order."""
    if not refused:
        return list(answered)
    found = {key: list(partitions) for key, partitions in refused.items()}
    for key, partitions in answered:
        found.setdefault(key, []).extend(partitions)
    return list(found.items())

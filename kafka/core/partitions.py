"""Partitions as messages have them: by topic. How many of them a member of a group takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from kafka.errors import KafkaProtocolError

K = TypeVar("K")

MAX_ASSIGNED: Final = 100_000
"""Partitions of one member: four bytes in an assignment make about a kilobyte of state in a consumer."""


def check_assigned(numbers: Iterable[Sequence[int]]) -> None:
    """KafkaProtocolError for an assignment, given as its topics' numbers, that has more than :data:`MAX_ASSIGNED`."""
    count = sum(map(len, numbers))
    if count > MAX_ASSIGNED:
        raise KafkaProtocolError(f"an assignment of {count} partitions; a member takes {MAX_ASSIGNED} at most")


def by_topic(partitions: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """Topic (or its id) -> numbers, both in the order in which they come."""
    found: dict[K, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found

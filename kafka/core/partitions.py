"""Partitions as messages have them: by topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")


def by_topic(partitions: Iterable[tuple[K, int]]) -> dict[K, list[int]]:
    """Topic (or its id) -> numbers, both in the order in which they come."""
    found: dict[K, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found

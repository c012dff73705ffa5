"""What users hand to ``subscribe``: a rebalance listener, and a pattern for the broker."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from typing import Any

from kafka.errors import IllegalArgumentError
from kafka.structs import TopicPartition


class ConsumerRebalanceListener(abc.ABC):
    """Told when partitions come and go, in the thread that polls (on a loop: there), between two polls' records.

    Any object with these methods will do. What one raises is raised by ``poll`` as KafkaError once the rebalance step
    is complete. A method may use the consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``.
    """

    @abc.abstractmethod
    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> object:
        """These are about to go to other members, and are still this one's: the moment to commit what was done.
        Called after auto-commit. Also when the consumer is closed or unsubscribed.

        On a loop it may return a Future: the partitions are kept until that is done, and records of all partitions that
        are not paused are handed out meanwhile."""

    @abc.abstractmethod
    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> object:
        """These are new, with no position yet: it will be the committed one unless :meth:`KafkaConsumer.seek` says
        otherwise here. Empty when a rebalance brought nothing new."""

    def on_partitions_lost(self, lost: set[TopicPartition]) -> object:
        """These may be other members' already, and nothing can be committed for them (KIP-429). Unless this is
        overridden, it is a revocation."""
        return self.on_partitions_revoked(lost)


class SubscriptionPattern:
    """A regular expression (RE2's syntax) that the broker evaluates, for ``subscribe`` with
    ``group_protocol="consumer"`` (KIP-848). A topic is subscribed to when its whole name matches."""

    __slots__ = ("pattern",)

    def __init__(self, pattern: str) -> None:
        if not isinstance(pattern, str) or not pattern:
            raise IllegalArgumentError(f"a regular expression is needed, not {pattern!r}")
        self.pattern = pattern

    def __repr__(self) -> str:
        return f"SubscriptionPattern({self.pattern!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubscriptionPattern) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)


def check_listener(listener: Any) -> Any:
    """The listener; TypeError when it lacks a method, or has one that would have to be awaited."""
    if listener is None:
        return None
    if isinstance(listener, type):
        raise TypeError(f"listener: an object is needed, not the class {listener.__name__}: call it")
    for name in ("on_partitions_revoked", "on_partitions_assigned"):
        if not callable(getattr(listener, name, None)):
            raise TypeError(f"listener: an object with {name}() is needed, not {type(listener).__name__}")
    for name in ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost"):
        if inspect.iscoroutinefunction(getattr(listener, name, None)):
            raise TypeError(f"listener: {name}() is a coroutine function, and nothing here would await it")
    return listener


def method_of(listener: Any, name: str) -> Callable[[set[TopicPartition]], object] | None:
    """The listener's method for an event; ``on_partitions_revoked`` of one without ``on_partitions_lost``."""
    if listener is None:
        return None
    found = getattr(listener, name, None)
    if found is None and name == "on_partitions_lost":
        found = listener.on_partitions_revoked
    method: Callable[[set[TopicPartition]], object] | None = found
    return method

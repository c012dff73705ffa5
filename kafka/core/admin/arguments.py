"""What users hand over, looked at before it is sent: one line of IllegalArgumentError for what cannot be meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kafka.errors import IllegalArgumentError
from kafka.structs import TopicPartition

K = TypeVar("K")
T = TypeVar("T")

_MOST_MS: Final = 2**62
"""More than that is no time."""


def mapping_of(given: Mapping[K, T], what: str, form: str) -> dict[K, T]:
    """A copy. IllegalArgumentError for what is no mapping; ``what`` names the argument, ``form`` says how it looks."""
    if not isinstance(given, Mapping):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return dict(given)


def list_of(given: Iterable[T], what: str, form: str) -> list[T]:
    """A copy. The same for what is one text, or cannot be iterated."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return list(given)


def numbers_of(given: Iterable[int], what: str, form: str) -> list[int]:
    """The same for what does not hold whole numbers alone."""
    numbers = list_of(given, what, form)
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        raise IllegalArgumentError(f"{what}={given!r}: {form}")
    return numbers


def partition_of(given: TopicPartition | tuple[str, int], what: str) -> TopicPartition:
    """What was given, if it is a topic's name and a number; else IllegalArgumentError."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        topic, number = given
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise IllegalArgumentError(f"{what}: {given!r}: a TopicPartition is needed")


def node_ids(given: Iterable[int] | None) -> list[int] | None:
    """The ids of ``broker_ids``; None: of all brokers."""
    return None if given is None else numbers_of(given, "broker_ids", "a list of node ids is needed")


def milliseconds(what: str, given: float) -> float:
    """A length of time, in ms, that is a number."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not -_MOST_MS <= given <= _MOST_MS:
        raise IllegalArgumentError(f"{what}={given!r}: a number of milliseconds is needed")
    return given

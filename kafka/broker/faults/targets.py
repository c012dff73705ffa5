"""Which topics and partitions a request is about, whatever its API: read from the schema, by the names of its fields.

Kafka's schemas are not of one mind how to call them: a topic is ``name``, ``topic``, ``topic_name`` or a ``topic_id``,
a partition ``index``, ``partition`` or ``partition_index``, or a bare number in ``partitions`` or
``partition_indexes``. What is inside lists that name other things (a group's protocols, a topic's configs) is not
looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.wire.message import Message, Struct
from kafka.wire.schema import fields_of
from kafka.wire.types import ZERO_UUID

NAME_FIELDS: Final = ("name", "topic", "topic_name")
ID_FIELD: Final = "topic_id"
PARTITION_FIELDS: Final = ("index", "partition", "partition_index")
NUMBER_LISTS: Final = ("partitions", "partition_indexes")
CONTAINERS: Final = ("groups", "transactions")
"""Lists with lists of topics inside."""

NOT_ASKED: Final = ("forgotten_topics_data", "supported_features", "finalized_features")
TOPIC_RESOURCE: Final = 2

NameOf = Callable[[UUID], str | None]


class Target(NamedTuple):
    """A topic, or one of its partitions."""

    topic: str
    partition: int | None


def topic_of(entry: Any, name_of: NameOf) -> str | None:
    """The topic that an entry of a list is about: by its name, or by its id."""
    if isinstance(entry, str):
        return entry
    if isinstance(entry, Struct):
        for field in NAME_FIELDS:
            name = getattr(entry, field, None)
            if name:
                return str(name)
        topic_id = getattr(entry, ID_FIELD, None)
        if topic_id is not None and topic_id != ZERO_UUID:
            return name_of(topic_id)
    return None


def partition_of(entry: Any) -> int | None:
    """The partition that an entry of a list is about."""
    if isinstance(entry, int):
        return entry
    for field in PARTITION_FIELDS:
        number = getattr(entry, field, None)
        if number is not None:
            return int(number)
    return None


class _Plan(NamedTuple):
    """Which lists of a structure are to be looked at; made once for each class, since every request is looked at."""

    containers: tuple[str, ...]
    resources: tuple[str, ...]
    topics: tuple[str, ...]
    partitions: tuple[str, ...]


_plans: dict[type[Struct], _Plan] = {}


def _plan_of(cls: type[Struct]) -> _Plan:
    plan = _plans.get(cls)
    if plan is None:
        lists = [field.name for field in fields_of(cls) if field.type.array and field.name not in NOT_ASKED]
        plan = _plans[cls] = _Plan(
            containers=tuple(name for name in lists if name in CONTAINERS),
            resources=tuple(name for name in lists if name == "resources"),
            topics=tuple(name for name in lists if "topic" in name),
            partitions=tuple(name for name in lists if name not in ("assignments", "configs")),
        )
    return plan


def targets(struct: Struct, name_of: NameOf) -> Iterator[Target]:
    """The topics and partitions that a request, or a part of one, names, in its order."""
    plan = _plan_of(type(struct))
    for name in plan.containers:
        for entry in getattr(struct, name) or ():
            if isinstance(entry, Struct):
                yield from targets(entry, name_of)
    for name in plan.resources:
        for entry in getattr(struct, name) or ():
            if entry.resource_type == TOPIC_RESOURCE:
                yield Target(entry.resource_name, None)
    for name in plan.topics:
        for entry in getattr(struct, name) or ():
            topic = topic_of(entry, name_of)
            if topic is not None:
                yield from _partitions(entry, topic)


def _partitions(entry: Any, topic: str) -> Iterator[Target]:
    is_whole = True
    if isinstance(entry, Struct):
        for name in _plan_of(type(entry)).partitions:
            for one in getattr(entry, name) or ():
                number = partition_of(one)
                if number is not None:
                    is_whole = False
                    yield Target(topic, number)
    if is_whole:
        yield Target(topic, None)


def names_topics(request: type[Message]) -> bool:
    """Whether requests of this class can name topics."""
    return any(
        field.type.array
        and field.name not in NOT_ASKED
        and (
            "topic" in field.name
            or field.name == "resources"
            or (field.name in CONTAINERS and field.type.cls is not None and "topics" in field.type.cls.fields)
        )
        for field in fields_of(request)
    )


def names_partitions(request: type[Message]) -> bool:
    """Whether requests of this class can name partitions."""
    return any(_has_partitions(field.type.cls) for field in fields_of(request) if field.type.cls is not None)


def _has_partitions(struct: type[Struct]) -> bool:
    for field in fields_of(struct):
        if field.name in ("assignments", "configs"):
            continue
        below = field.type.cls
        if field.type.array and below is None and field.name in NUMBER_LISTS:
            return True
        if not field.type.array or below is None:
            continue
        if any(name in below.fields for name in PARTITION_FIELDS) or _has_partitions(below):
            return True
    return False

"""Rules for topics that several handlers share: names, limits, creation, the settings in force.

The rules and the texts are those of Apache Kafka 4.3.0, measured. Storing topics is ``log/metadata_store.py``'s job.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from kafka.broker.config import check_topic_settings
from kafka.broker.log import Topic
from kafka.errors import InvalidReplicationAssignmentError, InvalidTopicError, TopicAlreadyExistsError

if TYPE_CHECKING:
    from kafka.broker.log.metadata_store import IdAllocator, MetadataStore

K = TypeVar("K")
T = TypeVar("T")

TopicIdPartition = tuple[UUID, int]
"""A topic's id, and the number of a partition."""


class TopicInfo(NamedTuple):
    """What group coordinators need to know of a topic."""

    topic_id: UUID
    partition_count: int


class TopicsImage:
    """The topics of the broker, as group coordinators ask for them. ``metadata`` is read at each call."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    def infos(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """The topics among these names that exist."""
        found = {name: self._metadata.topic(name) for name in names}
        return {name: TopicInfo(topic.topic_id, topic.partitions) for name, topic in found.items() if topic}

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._metadata.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> list[str]:
        """The names of all topics."""
        return [topic.name for topic in self._metadata]


MAX_NAME_LENGTH: Final = 249
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError (17) for a name that no topic can have."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _NAME.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicError(f"Topic name is invalid: {why}")


def check_new_topic(metadata: MetadataStore, name: str) -> None:
    """Raise InvalidTopicError (17) or TopicAlreadyExistsError (36) unless a topic of this name can be made.

    Names that differ only in dots and underscores collide, because Kafka's metrics cannot distinguish them.
    """
    check_topic_name(name)
    if metadata.topic(name) is not None:
        raise TopicAlreadyExistsError(f"Topic '{name}' already exists.")
    other = metadata.colliding(name)
    if other is not None:
        raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {other}")


def create_topic(
    metadata: MetadataStore, ids: IdAllocator, name: str, partitions: int, settings: Mapping[str, str] | None = None
) -> Topic:
    """Check and make a topic; as durable as any append when it returns. The caller then calls
    ``broker.topics_changed``. Errors: 17, 36, 40, 56."""
    check_new_topic(metadata, name)
    check_topic_settings(settings or {})
    return metadata.create_topic(name, ids.new_topic_id(), partitions, settings)


def check_replicas(node_id: int, broker_ids: Sequence[int]) -> None:
    """Raise InvalidReplicationAssignmentError (39) unless a partition can be on these brokers."""
    if not broker_ids:
        raise InvalidReplicationAssignmentError("The manual partition assignment includes an empty replica list.")
    if len(set(broker_ids)) != len(broker_ids):
        counts = Counter(broker_ids)
        twice = next(one for one in broker_ids if counts[one] > 1)
        raise InvalidReplicationAssignmentError(
            f"The manual partition assignment includes the broker {twice} more than once."
        )
    for broker_id in broker_ids:
        if broker_id != node_id:
            raise InvalidReplicationAssignmentError(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )


def distinct_partitions(named: Iterable[tuple[K, Iterable[int]]]) -> dict[K, list[int]]:
    """Topic -> partitions: what a request names, each once."""
    found: dict[K, dict[int, None]] = {}
    for topic, numbers in named:
        found.setdefault(topic, {}).update(dict.fromkeys(numbers))
    return {topic: list(numbers) for topic, numbers in found.items()}


def values_by_key(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Pairs -> the values of each key, in the order in which they come."""
    found: dict[K, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[UUID, list[int]]:
    """Partitions as topic ids and numbers -> sorted numbers by topic, as in the responses' assignments."""
    found = values_by_key(partitions)
    return {topic_id: sorted(found[topic_id]) for topic_id in sorted(found)}

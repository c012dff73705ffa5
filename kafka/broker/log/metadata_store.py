"""What a broker knows besides records: its topics, the configurations of topics, groups and the broker, and its
counters.

A journal of JSON values (``journal.py``), each change one atomic append:

    topic/NAME          {"id": hex, "partitions": n, "born": [[first partition, start], ...]}
    config/KIND/NAME    {"name": "value", ...}     KIND: topic, group, broker, as ConfigResource has them
    meta/NAME           any small value            cluster id, the next producer id, how often it was started

Validates nothing: names, limits and permissions are the handlers' business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafka.broker.log.files import FilePool
from kafka.broker.log.journal import Entry, Journal
from kafka.errors import KafkaStorageError, TopicAlreadyExistsError, UnknownTopicOrPartitionError


class Topic(NamedTuple):
    """A topic; its configuration is under ``config("topic", name)``.

    ``born``: from which partition on which start of the broker made them; leader epochs count from there."""

    name: str
    topic_id: UUID
    partitions: int
    born: tuple[tuple[int, int], ...] = ()

    def born_at(self, partition: int) -> int:
        """The number of the start in which a partition was made."""
        return next((start for first, start in reversed(self.born) if first <= partition), 0)


class MetadataStore:
    """The broker's metadata, in memory and in the journal at ``path``."""

    def __init__(
        self, path: str, pool: FilePool, *, on_dirty: Callable[[], None] = lambda: None, sync: bool = True
    ) -> None:
        self._values: dict[str, Any] = {}
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_folded: dict[str, str] = {}
        self._journal = Journal(path, pool, self._replay, on_dirty=on_dirty, sync=sync)

    # -- topics ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Topic]:
        return iter(list(self._topics.values()))

    def __len__(self) -> int:
        return len(self._topics)

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> Topic | None:
        """The topic of this id."""
        return self._by_id.get(topic_id)

    def colliding(self, name: str) -> str | None:
        """A topic whose name differs from ``name`` in dots and underscores at most."""
        return self._by_folded.get(_folded(name)) if name not in self._topics else name

    def create_topic(
        self, name: str, topic_id: UUID, partitions: int, config: Mapping[str, str] | None = None
    ) -> Topic:
        """Make a topic, with its configuration in the same write. TopicAlreadyExistsError (36)."""
        if name in self._topics:
            raise TopicAlreadyExistsError(f"topic {name} exists")
        changes: dict[str, Any] = {f"topic/{name}": _topic_value(topic_id, partitions, [(0, self.starts)])}
        if config:
            changes[f"config/topic/{name}"] = dict(config)
        self._write(changes)
        return self._topics[name]

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """Give a topic more partitions. UnknownTopicOrPartitionError (3)."""
        topic = self._known(name)
        born = [*topic.born, (topic.partitions, self.starts)]
        self._write({f"topic/{name}": _topic_value(topic.topic_id, partitions, born)})
        return self._topics[name]

    def delete_topic(self, name: str) -> Topic:
        """Forget a topic and its configuration, and give what it was. UnknownTopicOrPartitionError (3)."""
        topic = self._known(name)
        self._write({f"topic/{name}": None, f"config/topic/{name}": None})
        return topic

    # -- configurations and counters ---------------------------------------------------------------------------------

    def config(self, kind: str, name: str) -> dict[str, str]:
        """What was set for a resource; empty when nothing was."""
        return dict(self._values.get(f"config/{kind}/{name}", {}))

    def configs(self, kind: str) -> dict[str, dict[str, str]]:
        """What was set for all resources of a kind, by name."""
        prefix = f"config/{kind}/"
        return {key[len(prefix) :]: dict(value) for key, value in self._values.items() if key.startswith(prefix)}

    def set_config(self, kind: str, name: str, values: Mapping[str, str]) -> None:
        """Put all that is set for a resource; nothing: forget it."""
        self._write({f"config/{kind}/{name}": dict(values) or None})

    def meta(self, name: str, default: Any = None) -> Any:
        """A counter or other small value."""
        return self._values.get(f"meta/{name}", default)

    def set_meta(self, name: str, value: Any) -> None:
        """Put a small value; None: forget it."""
        self._write({f"meta/{name}": value})

    def begin_flush(self) -> list[str]:
        """As :meth:`Journal.begin_flush`."""
        return self._journal.begin_flush()

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """As :meth:`Journal.end_flush`."""
        self._journal.end_flush(error)

    def flush(self) -> None:
        """Wait until all is on the disk."""
        self._journal.flush()

    def close(self) -> None:
        self._journal.close()

    @property
    def starts(self) -> int:
        """How often a broker was started with this metadata."""
        return int(self.meta("starts", 0))

    def count_start(self) -> None:
        """One more start. KafkaStorageError when that cannot be written; it is counted in memory all the same."""
        starts = self.starts + 1
        try:
            self.set_meta("starts", starts)
        finally:
            self._values["meta/starts"] = starts

    # -- inside ------------------------------------------------------------------------------------------------------

    def _known(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError(f"no topic {name}")
        return topic

    def _write(self, changes: Mapping[str, Any]) -> None:
        """One entry for all changes, so that they hold together or not at all."""
        self._journal.append([(b"change", json.dumps(changes, separators=(",", ":")).encode())])
        for key, value in changes.items():
            self._apply(key, value)
        self._journal.tidy(self._entries)

    def _entries(self) -> Iterator[Entry]:
        for key, value in self._values.items():
            yield b"change", json.dumps({key: value}, separators=(",", ":")).encode()

    def _replay(self, key: bytes, value: bytes | None) -> None:
        try:
            changes = json.loads(value or b"{}")
            for name, found in changes.items():
                self._apply(name, found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KafkaStorageError(f"a change in the metadata cannot be read: {value!r}: {error}") from error

    def _apply(self, key: str, value: Any) -> None:
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        if key.startswith("topic/"):
            name = key[len("topic/") :]
            before = self._topics.pop(name, None)
            if before is not None:
                self._by_id.pop(before.topic_id, None)
                self._by_folded.pop(_folded(name), None)
            if value is not None:
                born = tuple((int(first), int(start)) for first, start in value.get("born", ()))
                topic = Topic(name, UUID(hex=value["id"]), int(value["partitions"]), born)
                self._topics[name] = self._by_id[topic.topic_id] = topic
                if _folded(name) != name or "_" in name:
                    self._by_folded[_folded(name)] = name


def _folded(name: str) -> str:
    return name.replace(".", "_")


def _topic_value(topic_id: UUID, partitions: int, born: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"id": topic_id.hex, "partitions": partitions, "born": [list(row) for row in born]}

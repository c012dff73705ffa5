"""The broker's metadata: its topics, the configurations of topics, groups and the broker, and its counters.

A :class:`Journal` of JSON values, each change one atomic append:

    topic/NAME          {"id": hex, "partitions": n, "born": [[first partition, start], ...]}
    config/KIND/NAME    {"name": "value", ...}     KIND: topic, group, broker, as ConfigResource has them
    meta/NAME           any small value            cluster id, the next producer id, the number of starts

Nothing is validated here: names, limits and permissions are checked by the handlers.
"""

from __future__ import annotations

import base64
import json
import logging
import random
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.broker.log.files import FilePool, OutOfDescriptorsError, replace_file
from kafka.broker.private_files import open_private
from kafka.errors import KafkaStorageError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

log = logging.getLogger(__name__)

MAGIC = b"KJL1"
DELETED = 2**32 - 1
_HEAD = struct.Struct(">III")
_LENGTHS = struct.Struct(">II")
Entry = tuple[bytes, bytes | None]
"""Key and value; None: deleted."""


class Journal:
    """A file of small keyed entries, of which the last one of a key is valid.

    MAGIC "KJL1", then entries:

        0  crc      u32   CRC-32 of everything behind, to the end of the entry
        4  key      u32   bytes of the key
        8  value    u32   bytes of the value; 2**32 - 1: the key is deleted
       12  key bytes, value bytes

    An append is one ``write()`` at the end, which survives a kill of the process. Opening reads all entries: a torn
    tail is truncated with a log line; a corrupt entry before valid ones is an error that names its position. A file
    that has grown to several times its valid entries is rewritten and replaced atomically.

    ``replay`` is called with every entry, the oldest first. ``min_rewrite_bytes``: a smaller file is never rewritten.
    ``on_dirty`` is called with the journal after writes.
    """

    def __init__(
        self,
        path: str,
        pool: FilePool,
        replay: Callable[[bytes, bytes | None], None],
        *,
        min_rewrite_bytes: int = 1 << 20,
        on_dirty: Callable[[Journal], None] = lambda journal: None,
        sync: bool = True,
    ) -> None:
        self.path = path
        self.min_rewrite_bytes = min_rewrite_bytes
        self._pool = pool
        self._sync = sync
        self._on_dirty = on_dirty
        self._size = 0
        # The size after the last rewrite: the growth since then decides on the next one.
        self._base_size = 0
        self.failure: KafkaStorageError | None = None
        """Why the journal takes no more writes."""
        self._load(replay)

    @property
    def size_bytes(self) -> int:
        return self._size

    @property
    def should_rewrite(self) -> bool:
        """Whether the file is four times as long as after the last rewrite."""
        return self._size > max(self.min_rewrite_bytes, 4 * self._base_size)

    def append(self, entries: Iterable[Entry]) -> None:
        """Write entries, all or none; KafkaStorageError when that fails."""
        if self.failure is not None:
            raise self.failure
        data = b"".join(encode(key, value) for key, value in entries)
        self._pool.write(self.path, self._size, data)
        self._size += len(data)
        self._on_dirty(self)

    def rewrite_if_due(self, entries: Callable[[], Iterable[Entry]]) -> None:
        """Rewrite the file with these entries if it has grown enough. All entries are durable already, so a failure is
        logged and no error of the request: the old file stays in use until it has grown again.
        """
        if self.should_rewrite:
            try:
                self.rewrite(entries())
            except KafkaStorageError as error:
                log.warning("cannot rewrite %s, it keeps growing: %s", self.path, error)

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Replace the file by one with these entries only. When that fails the old file stays."""
        data = MAGIC + b"".join(encode(key, value) for key, value in entries)
        self._base_size = self._size
        self._pool.forget(self.path)
        replace_file(self.path, data, sync=self._sync)
        self._size = self._base_size = len(data)

    def begin_flush(self) -> list[str]:
        """The paths to sync: the caller does that, then calls :meth:`end_flush`."""
        return [self.path]

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """The file is synced, or ``error``: then entries may be lost, and the journal takes no more writes. After an
        OutOfDescriptorsError it is only still to be synced."""
        if isinstance(error, OutOfDescriptorsError):
            self._on_dirty(self)
        elif error is not None:
            self.failure = KafkaStorageError(
                f"{self.path} takes no more writes until the broker is restarted, because acknowledged changes may be "
                f"lost: {error.args[0]}"
            )

    def flush(self) -> None:
        """Wait until everything is on the disk."""
        try:
            self._pool.sync(self.path)
        except KafkaStorageError as error:
            self.end_flush(error)
            raise

    def close(self) -> None:
        if self.failure is None:
            self.flush()
        self._pool.forget(self.path)

    def _load(self, replay: Callable[[bytes, bytes | None], None]) -> None:
        """Read all entries, and truncate a torn tail. KafkaStorageError for a corrupt file."""
        try:
            with open(self.path, "rb", opener=open_private) as file:
                data = file.read()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise KafkaStorageError(f"cannot read {self.path}: {error.strerror or error}") from error
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            self.rewrite(())
            return
        if not data.startswith(MAGIC):
            raise KafkaStorageError(f"{self.path} is not a journal: it begins with {data[:4]!r}")
        end = len(MAGIC)
        for entry_end, key, value in decode(data, end):
            replay(key, value)
            end = entry_end
        if end < len(data):
            if _has_entry_after(data, end):
                raise KafkaStorageError(
                    f"{self.path} is corrupt at byte {end}, with valid entries behind it; restore a copy, or "
                    f"truncate it there, which loses the last {len(data) - end} bytes"
                )
            torn = len(data) - end
            log.warning("truncated %d torn bytes from %s at position %d", torn, self.path, end)
            self._pool.truncate(self.path, end)
        self._size = self._base_size = end


def encode(key: bytes, value: bytes | None) -> bytes:
    """One entry."""
    body = _LENGTHS.pack(len(key), DELETED if value is None else len(value)) + key + (value or b"")
    return zlib.crc32(body).to_bytes(4, "big") + body


def decode(data: bytes, position: int) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Each valid entry from ``position`` to the first corrupt one: its end, key and value."""
    view = memoryview(data)
    while position + _HEAD.size <= len(data):
        crc, key_size, value_size = _HEAD.unpack_from(data, position)
        key_end = position + _HEAD.size + key_size
        end = key_end + (0 if value_size == DELETED else value_size)
        if end > len(data) or zlib.crc32(view[position + 4 : end]) != crc:
            return
        yield end, data[position + _HEAD.size : key_end], None if value_size == DELETED else data[key_end:end]
        position = end


def _has_entry_after(data: bytes, position: int) -> bool:
    """Whether a valid entry begins at any byte after the corrupt one, whose own lengths may be wrong.

    Most bytes give lengths that do not fit, so few CRCs are computed. A tail of zeros, as a crash of the machine leaves
    it, has none that fits.
    """
    return any(next(decode(data, at), None) is not None for at in range(position + 1, len(data) - _HEAD.size + 1))


class Topic(NamedTuple):
    """A topic; its configuration is under ``config("topic", name)``.

    ``born``: (first partition, the broker's start that made it and those after it); leader epochs count from there."""

    name: str
    topic_id: UUID
    partitions: int
    born: tuple[tuple[int, int], ...] = ()

    def born_at(self, partition: int) -> int:
        """The number of the broker start in which a partition was made."""
        return next((start for first, start in reversed(self.born) if first <= partition), 0)


class MetadataStore:
    """The broker's metadata, in memory and in :attr:`journal`, the file at ``path``."""

    def __init__(self, path: str, pool: FilePool, *, on_dirty: Callable[[Journal], None], sync: bool) -> None:
        self._values: dict[str, Any] = {}
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_collision_key: dict[str, str] = {}
        self.journal = Journal(path, pool, self._replay, on_dirty=on_dirty, sync=sync)

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
        return self._by_collision_key.get(_collision_key(name)) if name not in self._topics else name

    def create_topic(
        self, name: str, topic_id: UUID, partitions: int, config: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic, with its configuration in the same write. TopicAlreadyExistsError (36)."""
        if name in self._topics:
            raise TopicAlreadyExistsError(f"topic {name} exists")
        changes: dict[str, Any] = {f"topic/{name}": _topic_value(topic_id, partitions, [(0, self.starts)])}
        if config:
            changes[f"config/topic/{name}"] = dict(config)
        self._write(changes)
        return self._topics[name]

    def grow_topic(self, name: str, partitions: int) -> Topic:
        """Give a topic more partitions. UnknownTopicOrPartitionError (3)."""
        topic = self.known_topic(name)
        born = [*topic.born, (topic.partitions, self.starts)]
        self._write({f"topic/{name}": _topic_value(topic.topic_id, partitions, born)})
        return self._topics[name]

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic and its configuration, and return it. UnknownTopicOrPartitionError (3)."""
        topic = self.known_topic(name)
        self._write({f"topic/{name}": None, f"config/topic/{name}": None})
        return topic

    # -- configurations and counters ---------------------------------------------------------------------------------

    def config(self, kind: str, name: str) -> dict[str, str]:
        """The settings of a resource; empty when none were set."""
        return dict(self._values.get(f"config/{kind}/{name}", {}))

    def configs(self, kind: str) -> dict[str, dict[str, str]]:
        """The settings of all resources of a kind, by name."""
        prefix = f"config/{kind}/"
        return {key[len(prefix) :]: dict(value) for key, value in self._values.items() if key.startswith(prefix)}

    def set_config(self, kind: str, name: str, values: Mapping[str, str]) -> None:
        """Replace all settings of a resource; empty: delete them."""
        self._write({f"config/{kind}/{name}": dict(values) or None})

    def meta(self, name: str, default: Any = None) -> Any:
        """A counter or other small value."""
        return self._values.get(f"meta/{name}", default)

    def set_meta(self, name: str, value: Any) -> None:
        """Store a small value; None: delete it."""
        self._write({f"meta/{name}": value})

    @property
    def starts(self) -> int:
        """How often a broker was started with this metadata."""
        return int(self.meta("starts", 0))

    def count_start(self) -> None:
        """Count one more start, in memory also when it cannot be written. KafkaStorageError."""
        starts = self.starts + 1
        try:
            self.set_meta("starts", starts)
        finally:
            self._values["meta/starts"] = starts

    # -- inside ------------------------------------------------------------------------------------------------------

    def known_topic(self, name: str) -> Topic:
        """The topic of this name. UnknownTopicOrPartitionError (3)."""
        if name not in self._topics:
            raise UnknownTopicOrPartitionError(f"no topic {name}")
        return self._topics[name]

    def _write(self, changes: Mapping[str, Any]) -> None:
        """Write one entry for all changes, so that they are atomic."""
        self.journal.append([(b"change", json.dumps(changes, separators=(",", ":")).encode())])
        for key, value in changes.items():
            self._apply(key, value)
        self.journal.rewrite_if_due(self._entries)

    def _entries(self) -> Iterator[Entry]:
        for key, value in self._values.items():
            yield b"change", json.dumps({key: value}, separators=(",", ":")).encode()

    def _replay(self, key: bytes, value: bytes | None) -> None:
        try:
            changes = json.loads(value or b"{}")
            for name, found in changes.items():
                self._apply(name, found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise KafkaStorageError(f"cannot read a change in the metadata: {value!r}: {error}") from error

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
                self._by_collision_key.pop(_collision_key(name), None)
            if value is not None:
                born = tuple((int(first), int(start)) for first, start in value.get("born", ()))
                topic = Topic(name, UUID(hex=value["id"]), int(value["partitions"]), born)
                self._topics[name] = self._by_id[topic.topic_id] = topic
                if _collision_key(name) != name or "_" in name:
                    self._by_collision_key[_collision_key(name)] = name


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _topic_value(topic_id: UUID, partitions: int, born: Sequence[tuple[int, int]]) -> dict[str, Any]:
    return {"id": topic_id.hex, "partitions": partitions, "born": [list(row) for row in born]}


# What the broker gives out and never takes back: its cluster's id, topics' ids, producers' ids, leader epochs.
#
# All but topic ids (which are chance) are kept in the metadata, so that no restart gives one out again.


EPOCHS_PER_START: Final = 2
"""What a restart adds to each partition's leader epoch, as with Apache Kafka 4.3.0 (measured): the leader is lost, then
found again."""

PRODUCER_ID_BLOCK: Final = 1000
"""Producer ids are made durable by the block, as in Kafka; what is left of one at a restart is never given out."""


class IdAllocator:
    """``sync``: puts the metadata on the disk. Making one counts a start."""

    def __init__(self, metadata: MetadataStore, rng: random.Random, sync: Callable[[], None]) -> None:
        self._metadata = metadata
        self._rng = rng
        self._sync = sync
        self._producer_ids = range(0)
        try:
            metadata.count_start()
        except KafkaStorageError as error:
            log.error("leader epochs will repeat after the next start: %s", error.args[0] if error.args else error)
        self.cluster_id: str = metadata.meta("cluster_id") or self._new_cluster_id()

    def leader_epoch(self, topic: Topic, partition: int) -> int:
        """The leader epoch of a partition, opened or not."""
        return EPOCHS_PER_START * (self._metadata.starts - topic.born_at(partition))

    def new_topic_id(self) -> UUID:
        """A random id (version 4)."""
        return UUID(int=self._rng.getrandbits(128), version=4)

    def new_producer_id(self) -> int:
        """A producer id that was never given out."""
        if not self._producer_ids:
            first = int(self._metadata.meta("next_producer_id", 0))
            self._metadata.set_meta("next_producer_id", first + PRODUCER_ID_BLOCK)
            self._sync()
            self._producer_ids = range(first, first + PRODUCER_ID_BLOCK)
        first, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return first

    def _new_cluster_id(self) -> str:
        text = base64.urlsafe_b64encode(self._rng.randbytes(16)).rstrip(b"=").decode()
        self._metadata.set_meta("cluster_id", text)
        return text

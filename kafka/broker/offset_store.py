"""Committed offsets of groups, in memory and in a journal, the last commit of a partition holding.

    key    group u16 + UTF-8 | topic u16 + UTF-8 | partition i32
    value  offset i64 | leader epoch i32 | time of the commit i64 (ms) | metadata u16 + UTF-8

Kafka keeps the same facts in ``__consumer_offsets``. Who may commit is the handlers' business, and later that of the
groups.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kafka.broker.log import Journal
from kafka.structs import TopicPartition

_LENGTH = struct.Struct(">H")
_PARTITION = struct.Struct(">i")
_VALUE = struct.Struct(">qiqH")

Replay = Callable[[bytes, "bytes | None"], None]


class CommittedOffset(NamedTuple):
    """One committed offset. ``metadata`` is the committer's own text."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_ms: int


class OffsetStore:
    """All groups' offsets. ``open_journal`` is ``LogDirectory.journal``."""

    def __init__(self, open_journal: Callable[[str, Replay], Journal]) -> None:
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._journal = open_journal("offsets", self._replay)

    def groups(self) -> list[str]:
        """The names of all groups with offsets."""
        return list(self._groups)

    def has_group(self, group_id: str) -> bool:
        """Whether a group has offsets."""
        return group_id in self._groups

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All offsets of a group."""
        return dict(self._groups.get(group_id, {}))

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """One offset, or None."""
        return self._groups.get(group_id, {}).get(partition)

    def commit(self, group_id: str, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Store offsets, all or none; durable when it returns. KafkaStorageError (56) when that fails."""
        self._journal.append([(_key(group_id, where), _value(what)) for where, what in offsets.items()])
        if offsets:
            self._groups.setdefault(group_id, {}).update(offsets)
        self._journal.tidy(self._entries)

    def delete(self, group_id: str, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Forget some offsets of a group, or all of them and with them the group."""
        held = self._groups.get(group_id, {})
        gone = [where for where in (list(held) if partitions is None else partitions) if where in held]
        if gone:
            self._journal.append([(_key(group_id, where), None) for where in gone])
        for where in gone:
            del held[where]
        if not held:
            self._groups.pop(group_id, None)
        self._journal.tidy(self._entries)

    def topic_deleted(self, topic: str) -> None:
        """Forget a topic in every group."""
        for group_id, held in list(self._groups.items()):
            gone = [where for where in held if where.topic == topic]
            if gone:
                self.delete(group_id, gone)

    def _entries(self) -> Iterator[tuple[bytes, bytes | None]]:
        for group_id, held in self._groups.items():
            for where, what in held.items():
                yield _key(group_id, where), _value(what)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        group_id, at = _text(key, 0)
        topic, at = _text(key, at)
        where = TopicPartition(topic, _PARTITION.unpack_from(key, at)[0])
        if value is None:
            held = self._groups.get(group_id, {})
            held.pop(where, None)
            if not held:
                self._groups.pop(group_id, None)
            return
        offset, epoch, committed_ms, size = _VALUE.unpack_from(value)
        metadata = value[_VALUE.size : _VALUE.size + size].decode()
        self._groups.setdefault(group_id, {})[where] = CommittedOffset(offset, epoch, metadata, committed_ms)


def _key(group_id: str, where: TopicPartition) -> bytes:
    group, topic = group_id.encode(), where.topic.encode()
    return b"".join(
        (_LENGTH.pack(len(group)), group, _LENGTH.pack(len(topic)), topic, _PARTITION.pack(where.partition))
    )


def _value(what: CommittedOffset) -> bytes:
    metadata = what.metadata.encode()
    return _VALUE.pack(what.offset, what.leader_epoch, what.committed_ms, len(metadata)) + metadata


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _LENGTH.unpack_from(data, at)
    end = at + _LENGTH.size + size
    return data[at + _LENGTH.size : end].decode(), end

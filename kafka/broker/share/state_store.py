"""The durable state of share groups: a journal of what changed, written before an acknowledgement is answered.

    key    kind u8 | group u16 + UTF-8 | topic id 16 bytes | partition i32        kind 1: a share partition
    value  snapshot u8 | start offset i64 | n times: first i64, last i64, state u8, delivery count i16

    key    kind u8 | group u16 + UTF-8                                            kind 2: a group
    value  epoch i32

A share partition's value is laid over what came before, from its start offset on; with ``snapshot`` set it stands
alone. The same facts as in Kafka's ``__share_group_state`` records (KIP-932, "Managing durable share-partition
state"), but not its format. Merged state is kept here only for share partitions that nobody uses; one in use is asked
for it when the journal is rewritten.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, StateRange
from kafka.errors import KafkaStorageError

_PARTITION = 1
_GROUP = 2
_GROUP_HEAD = struct.Struct(">BH")
_KEY_TAIL = struct.Struct(">16si")
_VALUE_HEAD = struct.Struct(">Bq")
_RANGE = struct.Struct(">qqBh")
_EPOCH = struct.Struct(">i")


class ShareKey(NamedTuple):
    """A share partition's name."""

    group_id: str
    topic_id: UUID
    partition: int


class SharePartitionState(NamedTuple):
    """Durable state: ``ranges`` ascend, do not overlap and begin at ``start_offset`` or behind."""

    start_offset: int
    ranges: tuple[StateRange, ...]


class LivePartition(Protocol):
    """What the store asks of a share partition in use."""

    @property
    def start_offset(self) -> int: ...

    def state_ranges(self) -> Sequence[StateRange]: ...


Entry = tuple[bytes, "bytes | None"]


class StateJournal(Protocol):
    """What the store asks of a journal (``kafka.broker.log.Journal``)."""

    def append(self, entries: list[Entry]) -> None: ...

    def tidy(self, entries: Callable[[], list[Entry]]) -> None: ...


class ShareStateStore:
    """All groups' durable state. ``open_journal`` gets the function that takes the old entries, and gives the
    journal.
    """

    def __init__(self, open_journal: Callable[[Callable[[bytes, bytes | None], None]], StateJournal]) -> None:
        self._groups: dict[str, int] = {}
        self._idle: dict[ShareKey, _Merged] = {}
        self._live: dict[ShareKey, LivePartition] = {}
        self._names: dict[ShareKey, bytes] = {}
        self._journal = open_journal(self._replay)

    # -- share partitions --------------------------------------------------------------------------------------------

    def load(self, key: ShareKey) -> SharePartitionState | None:
        """What is known of a share partition that is not in use; None when nothing is."""
        merged = self._idle.get(key)
        return None if merged is None else SharePartitionState(merged.start, tuple(merged.ranges))

    def adopt(self, key: ShareKey, partition: LivePartition) -> None:
        """From now on this object holds the state, and :meth:`write` says what changes."""
        self._live[key] = partition
        self._idle.pop(key, None)

    def write(self, key: ShareKey, start_offset: int, changes: Sequence[StateRange]) -> None:
        """Make a change durable; returns when it is, KafkaStorageError (56) when it cannot be.

        The share partition in use makes the change after this returns. A key that is not in use is kept here: an offset
        that an administrator sets stands alone.
        """
        name = self._names.get(key)
        if name is None:
            name = _encode_key(key)
        alone = key not in self._live
        self._append(name, _encode_value(alone, start_offset, changes))
        self._names[key] = name
        if alone:
            self._idle[key] = _Merged(start_offset, list(changes))

    def delete(self, key: ShareKey) -> None:
        """Forget a share partition."""
        self._live.pop(key, None)
        self._idle.pop(key, None)
        name = self._names.pop(key, None)
        if name is not None:
            self._append(name, None)

    def keys(self) -> set[ShareKey]:
        """All share partitions with state."""
        return set(self._idle) | set(self._live)

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, int]:
        """Group -> epoch, of all groups that were ever joined and not deleted."""
        return dict(self._groups)

    def write_group(self, group_id: str, epoch: int) -> None:
        """A group's epoch has moved."""
        self._append(_encode_group(group_id), _EPOCH.pack(epoch))
        self._groups[group_id] = epoch

    def delete_group(self, group_id: str) -> None:
        """Forget a group; its share partitions are deleted one by one."""
        if self._groups.pop(group_id, None) is not None:
            self._append(_encode_group(group_id), None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _append(self, name: bytes, value: bytes | None) -> None:
        self._journal.tidy(self._entries)  # before, as what is in use changes only when this has been written
        self._journal.append([(name, value)])

    def _entries(self) -> list[Entry]:
        entries: list[Entry] = [
            (_encode_group(group_id), _EPOCH.pack(epoch)) for group_id, epoch in self._groups.items()
        ]
        for key, name in self._names.items():
            live = self._live.get(key)
            if live is not None:
                entries.append((name, _encode_value(True, live.start_offset, live.state_ranges())))
            else:
                merged = self._idle[key]
                entries.append((name, _encode_value(True, merged.start, merged.ranges)))
        return entries

    def _replay(self, name: bytes, value: bytes | None) -> None:
        try:
            kind, size = _GROUP_HEAD.unpack_from(name)
            group_id = name[_GROUP_HEAD.size : _GROUP_HEAD.size + size].decode()
            if kind == _GROUP:
                if value is None:
                    self._groups.pop(group_id, None)
                else:
                    self._groups[group_id] = _EPOCH.unpack(value)[0]
                return
            topic_id, number = _KEY_TAIL.unpack_from(name, _GROUP_HEAD.size + size)
            key = ShareKey(group_id, UUID(bytes=topic_id), number)
            if value is None:
                self._idle.pop(key, None)
                self._names.pop(key, None)
                return
            alone, start = _VALUE_HEAD.unpack_from(value)
            changes = [StateRange(*fields) for fields in _RANGE.iter_unpack(value[_VALUE_HEAD.size :])]
        except (struct.error, ValueError) as error:
            raise KafkaStorageError(f"an entry of share groups' journal is unreadable: {name!r}: {error}") from error
        self._names[key] = name
        merged = self._idle.get(key)
        if merged is None or alone:
            merged = self._idle[key] = _Merged(start, [])
        merged.lay_over(start, changes)


class _Merged:
    """Ranges, with later changes laid over earlier ones."""

    __slots__ = ("ranges", "start")

    def __init__(self, start: int, ranges: list[StateRange]) -> None:
        self.start = start
        self.ranges = ranges

    def lay_over(self, start: int, changes: Sequence[StateRange]) -> None:
        for change in changes:
            self._put(change)
        self.start = max(self.start, start)
        gone = 0
        for found in self.ranges:
            is_done = found.state in (ACKNOWLEDGED, ARCHIVED)
            if found.last >= self.start and not (is_done and found.first <= self.start):
                break
            self.start = max(self.start, found.last + 1)
            gone += 1
        if gone:
            del self.ranges[:gone]
        if self.ranges and self.ranges[0].first < self.start:
            self.ranges[0] = self.ranges[0]._replace(first=self.start)

    def _put(self, change: StateRange) -> None:
        ranges = self.ranges
        low = bisect_right(ranges, change.first, key=_last_before)
        high = low
        kept: list[StateRange] = []
        while high < len(ranges) and ranges[high].first <= change.last:
            if ranges[high].first < change.first:
                kept.append(ranges[high]._replace(last=change.first - 1))
            high += 1
        kept.append(change)
        if high > low and ranges[high - 1].last > change.last:
            kept.append(ranges[high - 1]._replace(first=change.last + 1))
        ranges[low:high] = kept


def _last_before(found: StateRange) -> int:
    return found.last + 1


def _encode_group(group_id: str) -> bytes:
    text = group_id.encode()
    return _GROUP_HEAD.pack(_GROUP, len(text)) + text


def _encode_key(key: ShareKey) -> bytes:
    text = key.group_id.encode()
    return _GROUP_HEAD.pack(_PARTITION, len(text)) + text + _KEY_TAIL.pack(key.topic_id.bytes, key.partition)


def _encode_value(alone: bool, start_offset: int, ranges: Sequence[StateRange]) -> bytes:
    return _VALUE_HEAD.pack(alone, start_offset) + b"".join(_RANGE.pack(*found) for found in ranges)

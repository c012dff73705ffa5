"""The durable state of share groups: records of what changed, written before an acknowledgement is answered (KIP-932).

    __share_group_state   ShareSnapshot   all that holds of a share partition; the first record of each
                          ShareUpdate     what has changed since, laid over it, from its start offset on
    __consumer_offsets    ShareGroupMetadata   a group and its epoch

When much of the log is superseded by later snapshots, the whole state is written once more, and what lies before it is
deleted (:meth:`~kafka.broker.state.state_topic.StateTopic.rewrite`). Merged state
is stored here only for share partitions that are not in use; one in use is asked for it.

The most frequent record, an update, is packed by hand: a test compares it with what the codec makes.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, StateRange
from kafka.broker.state.records import (
    RecordEntry,
    RecordReader,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    encode_key,
    encode_value,
    read_records,
)
from kafka.broker.state.state_topic import StateTopic, kafka_uuid
from kafka.errors import KafkaStorageError
from kafka.wire.codec import uvarint
from kafka.wire.message import Message

if TYPE_CHECKING:
    from kafka.broker.share.partition import SharePartition

log = logging.getLogger(__name__)

_UPDATE: Final = struct.Struct(">hiiq")
"""Version, snapshot epoch, leader epoch, start offset; then how many ranges + 1 as a varint, the ranges, no tags."""

_RANGE: Final = struct.Struct(">qqbhx")
"""First, last, state, delivery count, no tags."""

_UPDATE_OF_ONE: Final = struct.Struct(">hiiqBqqbhxx")
"""All of that for one range."""

_LEADER_EPOCH: Final = 0
NO_SNAPSHOT: Final = -1


class ShareKey(NamedTuple):
    """A share partition's name."""

    group_id: str
    topic_id: UUID
    partition: int


class SharePartitionState(NamedTuple):
    """Durable state: ``ranges`` ascend, do not overlap and begin at ``start_offset`` or behind."""

    start_offset: int
    ranges: tuple[StateRange, ...]


class ShareStateStore:
    """All groups' durable state. ``shares`` is ``__share_group_state``, ``groups`` is ``__consumer_offsets``;
    ``is_topic`` says whether a topic of this id exists: state of others is what a crash has left, and is forgotten."""

    def __init__(
        self,
        shares: StateTopic,
        groups: StateTopic,
        is_topic: Callable[[UUID], bool] = lambda topic_id: True,
    ) -> None:
        self._shares = shares
        self._group_log = groups
        self._groups: dict[str, int] = {}
        self._partitions: dict[ShareKey, _StoredPartition] = {}
        # A snapshot and the updates since, as they were written.
        of_shares: dict[type[Message], RecordReader] = {
            ShareSnapshotKey: (ShareSnapshotValue, self._on_record),
            ShareUpdateKey: (ShareUpdateValue, self._on_record),
        }
        read_records(shares.replay(), of_shares)
        read_records(groups.replay(), {ShareGroupMetadataKey: (ShareGroupMetadataValue, self._on_group)})
        shares.add_deletion_listener(self._topic_deleted)
        for key in [key for key in self._partitions if not is_topic(key.topic_id)]:
            self.forget(key)

    # -- share partitions --------------------------------------------------------------------------------------------

    def load(self, key: ShareKey) -> SharePartitionState | None:
        """The stored state of a share partition that is not in use, or None."""
        stored = self._partitions.get(key)
        if stored is None or stored.idle is None:
            return None
        return SharePartitionState(stored.idle.start, tuple(stored.idle.ranges))

    def attach(self, key: ShareKey, partition: SharePartition) -> None:
        """From now on this object has the state; :meth:`write` writes its changes."""
        stored = self._stored(key)
        if stored.idle is not None:
            stored.written_start = stored.idle.start
        stored.live, stored.idle = partition, None

    def write(self, key: ShareKey, start_offset: int, changes: Sequence[StateRange]) -> None:
        """Make a change durable; returns when it is, KafkaStorageError (56) when it cannot be.

        The share partition in use makes the change after this returns. A key that is not in use is stored here: an
        offset that an administrator sets stands alone.
        """
        stored = self._partitions.get(key) or self._stored(key)
        self._write(stored, start_offset, changes)
        stored.written_start = start_offset

    def _write(self, stored: _StoredPartition, start_offset: int, changes: Sequence[StateRange]) -> None:
        if stored.live is None:
            self._shares.append(
                stored.state_partition, [(stored.snapshot, _snapshot(stored.epoch + 1, start_offset, changes))]
            )
            stored.epoch += 1
            stored.idle = _MergedState(start_offset, list(changes))
            return
        if stored.epoch == NO_SNAPSHOT:
            state = stored.state()
            state.apply(start_offset, changes)
            self._shares.append(stored.state_partition, [(stored.snapshot, _snapshot(0, state.start, state.ranges))])
            stored.epoch = 0
            return
        # before, as what is in use changes only when this is written
        if self._shares.should_rewrite(stored.state_partition):
            self._shares.rewrite(stored.state_partition, self._snapshots(stored.state_partition))
        if len(changes) == 1:
            value = _UPDATE_OF_ONE.pack(0, stored.epoch, _LEADER_EPOCH, start_offset, 2, *changes[0])
        else:
            value = b"".join(
                (
                    _UPDATE.pack(0, stored.epoch, _LEADER_EPOCH, start_offset),
                    uvarint(len(changes) + 1),
                    *[_RANGE.pack(*change) for change in changes],
                    b"\0",
                )
            )
        self._shares.append(stored.state_partition, ((stored.update, value),))

    def delete(self, key: ShareKey) -> None:
        """Delete the state of a share partition."""
        stored = self._partitions.get(key)
        if stored is not None and stored.epoch != NO_SNAPSHOT:
            self._shares.append(stored.state_partition, [(stored.snapshot, None)])
        self._partitions.pop(key, None)

    def forget(self, key: ShareKey) -> None:
        """Delete the state of a partition whose topic is gone; if writing fails, the next start deletes it."""
        try:
            self.delete(key)
        except KafkaStorageError as error:
            log.error("cannot write the deletion of %s, repeating it at the next start: %s", key, error)
            self._partitions.pop(key, None)

    def durable_start(self, key: ShareKey) -> int | None:
        """The start offset that was written last, None when nothing was."""
        stored = self._partitions.get(key)
        if stored is None or stored.epoch == NO_SNAPSHOT:
            return None
        return stored.written_start if stored.idle is None else stored.idle.start

    def keys(self) -> set[ShareKey]:
        """All share partitions with state, durable or in use."""
        return {key for key, stored in self._partitions.items() if stored.idle is not None or stored.live is not None}

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, int]:
        """Group -> epoch, of all groups that were ever joined and not deleted."""
        return dict(self._groups)

    def write_group(self, group_id: str, epoch: int) -> None:
        """Write a group's new epoch."""
        self._append_group(group_id, encode_value(ShareGroupMetadataValue(epoch=epoch, metadata_hash=0), 0))
        self._groups[group_id] = epoch

    def delete_group(self, group_id: str) -> None:
        """Delete a group; its share partitions are deleted one by one."""
        if group_id in self._groups:
            self._append_group(group_id, None)
            del self._groups[group_id]

    def _append_group(self, group_id: str, value: bytes | None) -> None:
        key = encode_key(ShareGroupMetadataKey(group_id=group_id))
        self._group_log.append(self._group_log.partition_of(group_id), [(key, value)])

    # -- records ------------------------------------------------------------------------------------------------------

    def _topic_deleted(self) -> None:
        """The state topic was deleted: the next change of each share partition writes a snapshot first."""
        for stored in self._partitions.values():
            stored.epoch = NO_SNAPSHOT

    def _stored(self, key: ShareKey) -> _StoredPartition:
        found = self._partitions.get(key)
        if found is None:
            group_id, topic_id, number = key
            found = self._partitions[key] = _StoredPartition(
                encode_key(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=number)),
                encode_key(ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=number)),
                self._shares.partition_of(f"{group_id}:{kafka_uuid(topic_id)}:{number}"),
            )
        return found

    def _snapshots(self, state_partition: int) -> list[RecordEntry]:
        """The whole state in a partition of the state topic, as new snapshots."""
        entries: list[RecordEntry] = []
        for stored in self._partitions.values():
            if stored.state_partition == state_partition and stored.epoch != NO_SNAPSHOT:
                stored.epoch += 1
                state = stored.state()
                entries.append((stored.snapshot, _snapshot(stored.epoch, state.start, state.ranges)))
        return entries

    def _on_record(
        self,
        state_partition: int,
        name: ShareSnapshotKey | ShareUpdateKey,
        found: ShareSnapshotValue | ShareUpdateValue | None,
        _producer: object,
    ) -> None:
        """Replays a record of ``__share_group_state``: a snapshot replaces a share partition's state, an update is
        applied to it unless it is older than the snapshot, a tombstone drops it."""
        key = ShareKey(name.group_id, name.topic_id, name.partition)
        if found is None:
            self._partitions.pop(key, None)
            return
        if isinstance(found, ShareSnapshotValue):
            stored = self._stored(key)
            stored.state_partition, stored.epoch = state_partition, found.snapshot_epoch
            stored.idle = _MergedState(found.start_offset, [])
        else:
            before = self._partitions.get(key)
            if before is None or found.snapshot_epoch < before.epoch:
                return
            stored = before
        changes = [
            StateRange(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in found.state_batches
        ]
        assert stored.idle is not None
        stored.idle.apply(found.start_offset, changes)

    def _on_group(
        self, _partition: int, key: ShareGroupMetadataKey, value: ShareGroupMetadataValue | None, _producer: object
    ) -> None:
        if value is None:
            self._groups.pop(key.group_id, None)
        else:
            self._groups[key.group_id] = value.epoch


class _StoredPartition:
    """A share partition: the keys of its records, the partition of the topic that they are in, the epoch of its last
    snapshot; and its state, which is ``live`` while it is in use, else ``idle``."""

    __slots__ = ("epoch", "idle", "live", "snapshot", "state_partition", "update", "written_start")

    def __init__(self, snapshot: bytes, update: bytes, state_partition: int) -> None:
        self.snapshot = snapshot
        self.update = update
        self.state_partition = state_partition
        self.epoch = NO_SNAPSHOT
        self.live: SharePartition | None = None
        self.idle: _MergedState | None = None
        self.written_start: int | None = None

    def state(self) -> _MergedState:
        """What holds now."""
        if self.live is not None:
            return _MergedState(self.live.start_offset, list(self.live.state_ranges()))
        assert self.idle is not None
        return self.idle


class _MergedState:
    """Ranges, with later changes laid over earlier ones."""

    __slots__ = ("ranges", "start")

    def __init__(self, start: int, ranges: list[StateRange]) -> None:
        self.start = start
        self.ranges = ranges

    def apply(self, start: int, changes: Sequence[StateRange]) -> None:
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
        low = bisect_left(ranges, change.first, key=_last)
        high = low
        stored: list[StateRange] = []
        while high < len(ranges) and ranges[high].first <= change.last:
            if ranges[high].first < change.first:
                stored.append(ranges[high]._replace(last=change.first - 1))
            high += 1
        stored.append(change)
        if high > low and ranges[high - 1].last > change.last:
            stored.append(ranges[high - 1]._replace(first=change.last + 1))
        ranges[low:high] = stored


def _last(found: StateRange) -> int:
    return found.last


def _snapshot(epoch: int, start_offset: int, ranges: Sequence[StateRange]) -> bytes:
    value = ShareSnapshotValue(
        snapshot_epoch=epoch,
        state_epoch=0,
        leader_epoch=_LEADER_EPOCH,
        start_offset=start_offset,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=[
            ShareSnapshotValue.StateBatch(
                first_offset=one.first,
                last_offset=one.last,
                delivery_state=one.state,
                delivery_count=one.delivery_count,
            )
            for one in ranges
        ],
    )
    return encode_value(value, 0)

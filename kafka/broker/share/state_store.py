"""The durable state of share groups: records of what changed, written before an acknowledgement is answered (KIP-932).

    __share_group_state   ShareSnapshot   all that holds of a share partition; the first record of each
                          ShareUpdate     what has changed since, laid over it, from its start offset on
    __consumer_offsets    ShareGroupMetadata   a group and its epoch

What a later snapshot has made superfluous goes away when there is much of it: then all that holds is written down once
more, and what lies before it is deleted (:meth:`~kafka.broker.state.state_topic.StateTopic.begin_anew`). Merged state
is kept here only for share partitions that nobody uses; one in use is asked for it.

The most frequent record, an update, is packed by hand: a test compares it with what the codec makes.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from kafka.broker.share.states import ACKNOWLEDGED, ARCHIVED, StateRange
from kafka.broker.state.group_records import GROUP_KEYS, ShareGroupMetadataKey, ShareGroupMetadataValue
from kafka.broker.state.record_codec import decode_value, encode_key, encode_value
from kafka.broker.state.share_records import (
    SHARE_KEYS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from kafka.broker.state.state_log import Entry, RenewableStateLog, StateLog
from kafka.broker.state.state_topic import kafka_uuid
from kafka.errors import KafkaStorageError
from kafka.wire.primitives import uvarint

log = logging.getLogger(__name__)

_UPDATE: Final = struct.Struct(">hiiq")
"""Version, snapshot epoch, leader epoch, start offset; then how many ranges + 1 as a varint, the ranges, no tags."""

_RANGE: Final = struct.Struct(">qqbhx")
"""First, last, state, delivery count, no tags."""

_UPDATE_OF_ONE: Final = struct.Struct(">hiiqBqqbhxx")
"""All of that for one range."""

_LEADER_EPOCH: Final = 0
NO_SNAPSHOT: Final = -1
_GROUP_KIND: Final = ShareGroupMetadataKey.api_key.to_bytes(2, "big")


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


class ShareStateStore:
    """All groups' durable state. ``shares`` is ``__share_group_state``, ``groups`` is ``__consumer_offsets``;
    ``is_topic`` says whether a topic of this id exists: state of others is what a crash has left, and is forgotten."""

    def __init__(
        self,
        shares: RenewableStateLog,
        groups: StateLog,
        is_topic: Callable[[UUID], bool] = lambda topic_id: True,
    ) -> None:
        self._shares = shares
        self._group_log = groups
        self._groups: dict[str, int] = {}
        self._kept: dict[ShareKey, _Kept] = {}
        shares.replay(self._on_record, _on_marker)
        groups.replay(self._on_group, _on_marker)
        shares.when_deleted(self._topic_deleted)
        for key in [key for key in self._kept if not is_topic(key.topic_id)]:
            self.forget(key)

    # -- share partitions --------------------------------------------------------------------------------------------

    def load(self, key: ShareKey) -> SharePartitionState | None:
        """What is known of a share partition that is not in use; None when nothing is."""
        kept = self._kept.get(key)
        if kept is None or kept.idle is None:
            return None
        return SharePartitionState(kept.idle.start, tuple(kept.idle.ranges))

    def adopt(self, key: ShareKey, partition: LivePartition) -> None:
        """From now on this object holds the state, and :meth:`write` says what changes."""
        kept = self._keep(key)
        if kept.idle is not None:
            kept.written_start = kept.idle.start
        kept.live, kept.idle = partition, None

    def write(self, key: ShareKey, start_offset: int, changes: Sequence[StateRange]) -> None:
        """Make a change durable; returns when it is, KafkaStorageError (56) when it cannot be.

        The share partition in use makes the change after this returns. A key that is not in use is kept here: an offset
        that an administrator sets stands alone.
        """
        kept = self._kept.get(key) or self._keep(key)
        self._write(kept, start_offset, changes)
        kept.written_start = start_offset

    def _write(self, kept: _Kept, start_offset: int, changes: Sequence[StateRange]) -> None:
        if kept.live is None:
            self._shares.append(kept.home, [(kept.snapshot, _snapshot(kept.epoch + 1, start_offset, changes))])
            kept.epoch += 1
            kept.idle = _Merged(start_offset, list(changes))
            return
        if kept.epoch == NO_SNAPSHOT:
            state = _Merged(kept.live.start_offset, list(kept.live.state_ranges()))
            state.lay_over(start_offset, changes)
            self._shares.append(kept.home, [(kept.snapshot, _snapshot(0, state.start, state.ranges))])
            kept.epoch = 0
            return
        if self._shares.should_begin_anew(kept.home):  # before, as what is in use changes only when this is written
            self._shares.begin_anew(kept.home, self._holding(kept.home))
        if len(changes) == 1:
            value = _UPDATE_OF_ONE.pack(0, kept.epoch, _LEADER_EPOCH, start_offset, 2, *changes[0])
        else:
            value = b"".join(
                (
                    _UPDATE.pack(0, kept.epoch, _LEADER_EPOCH, start_offset),
                    uvarint(len(changes) + 1),
                    *[_RANGE.pack(*change) for change in changes],
                    b"\0",
                )
            )
        self._shares.append(kept.home, ((kept.update, value),))

    def delete(self, key: ShareKey) -> None:
        """Forget a share partition."""
        kept = self._kept.get(key)
        if kept is not None and kept.epoch != NO_SNAPSHOT:
            self._shares.append(kept.home, [(kept.snapshot, None)])
        self._kept.pop(key, None)

    def forget(self, key: ShareKey) -> None:
        """The same where its topic is gone: what the disk does not take now is forgotten once more at the next
        start."""
        try:
            self.delete(key)
        except KafkaStorageError as error:
            log.error("the state of %s is forgotten until the next start only: %s", key, error)
            self._kept.pop(key, None)

    def durable_start(self, key: ShareKey) -> int | None:
        """The start offset that was written last, None when nothing was."""
        kept = self._kept.get(key)
        if kept is None or kept.epoch == NO_SNAPSHOT:
            return None
        return kept.written_start if kept.idle is None else kept.idle.start

    def keys(self) -> set[ShareKey]:
        """All share partitions with state, durable or in use."""
        return {key for key, kept in self._kept.items() if kept.idle is not None or kept.live is not None}

    # -- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, int]:
        """Group -> epoch, of all groups that were ever joined and not deleted."""
        return dict(self._groups)

    def write_group(self, group_id: str, epoch: int) -> None:
        """A group's epoch has moved."""
        value = encode_value(ShareGroupMetadataValue(epoch=epoch, metadata_hash=0), 0)
        self._group_log.append(
            self._group_log.partition_of(group_id), [(encode_key(ShareGroupMetadataKey(group_id=group_id)), value)]
        )
        self._groups[group_id] = epoch

    def delete_group(self, group_id: str) -> None:
        """Forget a group; its share partitions are deleted one by one."""
        if group_id in self._groups:
            self._group_log.append(
                self._group_log.partition_of(group_id), [(encode_key(ShareGroupMetadataKey(group_id=group_id)), None)]
            )
            del self._groups[group_id]

    # -- inside ------------------------------------------------------------------------------------------------------

    def _topic_deleted(self) -> None:
        """An administrator has deleted the topic: what is still changed gets a snapshot first."""
        for kept in self._kept.values():
            kept.epoch = NO_SNAPSHOT

    def _keep(self, key: ShareKey) -> _Kept:
        found = self._kept.get(key)
        if found is None:
            group_id, topic_id, number = key
            found = self._kept[key] = _Kept(
                encode_key(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=number)),
                encode_key(ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=number)),
                self._shares.partition_of(f"{group_id}:{kafka_uuid(topic_id)}:{number}"),
            )
        return found

    def _holding(self, home: int) -> list[Entry]:
        """All that holds in a partition of the topic, as new snapshots."""
        entries: list[Entry] = []
        for kept in self._kept.values():
            if kept.home == home and kept.epoch != NO_SNAPSHOT:
                kept.epoch += 1
                if kept.live is not None:
                    value = _snapshot(kept.epoch, kept.live.start_offset, kept.live.state_ranges())
                else:
                    assert kept.idle is not None
                    value = _snapshot(kept.epoch, kept.idle.start, kept.idle.ranges)
                entries.append((kept.snapshot, value))
        return entries

    def _on_record(self, home: int, name: bytes, value: bytes | None, producer: object) -> None:
        decoded = SHARE_KEYS.decode(name)
        if not isinstance(decoded, (ShareSnapshotKey, ShareUpdateKey)):
            return
        key = ShareKey(decoded.group_id, decoded.topic_id, decoded.partition)
        if value is None:
            self._kept.pop(key, None)
            return
        found: ShareSnapshotValue | ShareUpdateValue
        if isinstance(decoded, ShareSnapshotKey):
            found = decode_value(ShareSnapshotValue, value)
            kept = self._keep(key)
            kept.home, kept.epoch = home, found.snapshot_epoch
            kept.idle = _Merged(found.start_offset, [])
        else:
            found = decode_value(ShareUpdateValue, value)
            before = self._kept.get(key)
            if before is None or found.snapshot_epoch < before.epoch:
                return
            kept = before
        changes = [
            StateRange(one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
            for one in found.state_batches
        ]
        assert kept.idle is not None
        kept.idle.lay_over(found.start_offset, changes)

    def _on_group(self, home: int, key: bytes, value: bytes | None, producer: object) -> None:
        if not key.startswith(_GROUP_KIND):
            return
        name = GROUP_KEYS.decode(key)
        assert isinstance(name, ShareGroupMetadataKey)
        if value is None:
            self._groups.pop(name.group_id, None)
        else:
            self._groups[name.group_id] = decode_value(ShareGroupMetadataValue, value).epoch


class _Kept:
    """A share partition: the keys of its records, the partition of the topic that they are in, the epoch of its last
    snapshot; and its state, which is ``live`` while it is in use, else ``idle``."""

    __slots__ = ("epoch", "home", "idle", "live", "snapshot", "update", "written_start")

    def __init__(self, snapshot: bytes, update: bytes, home: int) -> None:
        self.snapshot = snapshot
        self.update = update
        self.home = home
        self.epoch = NO_SNAPSHOT
        self.live: LivePartition | None = None
        self.idle: _Merged | None = None
        self.written_start: int | None = None


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
        low = bisect_left(ranges, change.first, key=_last)
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


def _on_marker(home: int, producer_id: int, epoch: int, committed: bool) -> None:
    """Share groups' state is in no transaction."""

"""From a partition's part of a ShareFetch answer to the records that this member holds.

The broker sends whole producers' batches, and beside them the ranges of offsets that were acquired. Only records within
those ranges are ours; an offset within them that has no record (a transaction's marker, an aborted or compacted record)
has to be acknowledged as a gap, or it holds the partition's window until its lock has expired as often as it may.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from kafka.records import Headers, decode_raw, iter_batches
from kafka.wire.types import BytesLike


class AcknowledgeType(IntEnum):
    """How a delivery ends, or goes on (``RENEW``). The numbers are the protocol's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class SharePartition(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: UUID
    partition: int


class ShareRecord:
    """A record that this member holds until it acknowledges it or the lock ends.

    The fields are those of :class:`kafka.ConsumerRecord`, and besides ``delivery_count`` (this delivery included) and
    ``lock_deadline`` (the loop's clock, in seconds; moves on with a renewal). ``lost``: the lock is gone, and an
    acknowledgement would be refused. ``owner`` belongs to the session that the record came by; ``is_settled`` and
    ``sizes`` (those of the serialized key and value, once these were replaced) to the thread that polled it.
    """

    __slots__ = (
        "delivery_count", "headers", "is_settled", "key", "leader_epoch", "lock_deadline", "lost", "offset", "owner",
        "partition", "sizes", "timestamp", "timestamp_type", "topic", "value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        leader_epoch: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        delivery_count: int,
        lock_deadline: float,
        owner: object,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.delivery_count = delivery_count
        self.lock_deadline = lock_deadline
        self.owner = owner
        self.lost = False
        self.is_settled = False
        self.sizes: tuple[int, int] | None = None

    def replace(self, key: Any, value: Any) -> None:
        """Put what deserializers made in place of the bytes."""
        self.sizes = self.serialized_key_size, self.serialized_value_size
        self.key = key
        self.value = value

    @property
    def serialized_key_size(self) -> int:
        """Bytes of the key; -1 without one."""
        if self.sizes is not None:
            return self.sizes[0]
        return -1 if self.key is None else len(self.key)

    @property
    def serialized_value_size(self) -> int:
        """Bytes of the value; -1 without one."""
        if self.sizes is not None:
            return self.sizes[1]
        return -1 if self.value is None else len(self.value)

    @property
    def checksum(self) -> None:
        """Records v2 have none of their own."""
        return

    def __repr__(self) -> str:
        return (
            f"<ShareRecord {self.topic}:{self.partition}:{self.offset} delivery {self.delivery_count}"
            f" key={self.key!r} value={self.value!r}{' lost' if self.lost else ''}>"
        )


class AcquiredRange(NamedTuple):
    """Offsets ``first`` to ``last``, both inclusive, acquired with this delivery count."""

    first: int
    last: int
    delivery_count: int


def read_acquired(
    topic: str,
    partition: int,
    data: BytesLike,
    ranges: Sequence[AcquiredRange],
    lock_deadline: float,
    owner: object,
    check_crcs: bool = True,
) -> tuple[list[ShareRecord], list[tuple[int, int]]]:
    """The records within ``ranges``, by offset, and the offsets within them without a record, as ranges.

    Raises CorruptRecordError for batches that cannot be read.
    """
    records: list[ShareRecord] = []
    wanted = sorted(ranges)
    at = 0
    for header in iter_batches(data, check_crcs=check_crcs):
        while at < len(wanted) and wanted[at].last < header.base_offset:
            at += 1
        if at == len(wanted):
            break
        if header.is_control or wanted[at].first > header.last_offset:
            continue
        position = at
        first, last, count = wanted[position]
        epoch, kind = header.leader_epoch, header.timestamp_type
        for offset, timestamp, key, value, headers in decode_raw(data, header):
            while offset > last and position + 1 < len(wanted):
                position += 1
                first, last, count = wanted[position]
            if first <= offset <= last:
                records.append(
                    ShareRecord(
                        topic, partition, epoch, offset, timestamp, kind, key, value, headers,
                        count, lock_deadline, owner,
                    )
                )  # fmt: skip
    acquired = sum(each.last - each.first + 1 for each in wanted)
    if len(records) == acquired:
        return records, []
    return records, list(_gaps(wanted, [record.offset for record in records]))


def _gaps(ranges: Iterable[AcquiredRange], offsets: list[int]) -> Iterable[tuple[int, int]]:
    """The stretches of ``ranges`` that are not among the ascending ``offsets``."""
    at = 0
    for first, last, _ in ranges:
        expected = first
        while at < len(offsets) and offsets[at] <= last:
            if offsets[at] > expected:
                yield expected, offsets[at] - 1
            expected = offsets[at] + 1
            at += 1
        if expected <= last:
            yield expected, last

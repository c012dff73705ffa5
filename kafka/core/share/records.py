"""From a partition's part of a ShareFetch answer to the records that this member holds.

The broker sends whole producers' batches, and beside them the ranges of offsets that were acquired. Only records within
those ranges are ours; an offset within them that has no record (a transaction's marker, an aborted or compacted record)
has to be acknowledged as a gap, or it holds the partition's window until its lock has expired as often as it may.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka._native import i64, mypyc_attr
from kafka.errors import CorruptRecordError
from kafka.records import BatchHeader, Headers, iter_batches
from kafka.records.compression import inflation_bound
from kafka.records.reader import RecordReader, RecordSink, count_headers, headers_of
from kafka.wire.types import BytesLike


class TopicIdPartition(NamedTuple):
    """A partition as share sessions name it."""

    topic_id: UUID
    partition: int


@mypyc_attr(acyclic=True)
class ShareRecord:
    """A record that this member holds until it acknowledges it or the lock ends.

    The fields are those of :class:`kafka.ConsumerRecord`, and besides ``delivery_count`` (this delivery included) and
    ``lock_deadline`` (the loop's clock, in seconds; moves on with a renewal). ``lost``: the lock is gone, and an
    acknowledgement would be refused. ``owner`` belongs to the session that the record came by; ``is_settled`` and
    ``sizes`` (those of the serialized key and value, once these were replaced) to the thread that polled it.
    """

    __slots__ = (
        "_headers", "delivery_count", "is_settled", "key", "leader_epoch", "lock_deadline", "lost", "offset", "owner",
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
        key: Any,
        value: Any,
        headers: Any,
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
        self._headers = headers
        """A list; or, until it is asked for, what ``headers_of`` takes."""
        self.delivery_count = delivery_count
        self.lock_deadline = lock_deadline
        self.owner = owner
        # Set when the acquisition lock ended before the record was settled: it may be delivered again elsewhere.
        self.lost = False
        self.is_settled = False
        self.sizes: tuple[int, int] | None = None

    def _lose(self) -> None:
        """Its lock is gone."""
        self.lost = True

    def _settle(self) -> None:
        """It is acknowledged for good: no other acknowledgement is taken."""
        self.is_settled = True

    def _renew(self, lock_deadline: float) -> None:
        """Its lock lasts until then."""
        self.lock_deadline = lock_deadline

    @property
    def headers(self) -> Headers:
        """The headers, in order: ``[(name, bytes or None)]``."""
        headers = self._headers = headers_of(self._headers)
        return headers

    @property
    def headers_count(self) -> int:
        """How many headers there are, without making them."""
        return count_headers(self._headers)

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


class _Acquired(RecordSink):
    """Keeps what lies within ``wanted``, which ascend; the others may come and are passed over."""

    def __init__(
        self, topic: str, partition: int, wanted: Sequence[AcquiredRange], lock_deadline: float, owner: object
    ) -> None:
        self.found: list[ShareRecord] = []
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.lock_deadline = lock_deadline
        self.owner = owner
        self.leader_epoch = -1
        self.timestamp_type = 0
        self.at = 0
        self.first: i64 = 0
        self.last: i64 = -1
        self.delivery_count = 0

    def begin(self, at: int, leader_epoch: int, timestamp_type: int) -> None:
        """A batch comes, and ``wanted[at]`` is the first range that reaches into it."""
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type
        self._range(at)

    def _range(self, at: int) -> None:
        self.at = at
        self.first, self.last, self.delivery_count = self.wanted[at]

    def add(self, offset: i64, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes | None) -> None:
        while offset > self.last and self.at + 1 < len(self.wanted):
            self._range(self.at + 1)
        if self.first <= offset <= self.last:
            self.found.append(
                ShareRecord(
                    self.topic, self.partition, self.leader_epoch, offset, timestamp, self.timestamp_type, key, value,
                    headers, self.delivery_count, self.lock_deadline, self.owner,
                )
            )  # fmt: skip


class SharedBatch:
    """The compressed batch that was read last, and not to its end: brokers acquire the records of a large batch in many
    answers, and each brings all of it. It is read on from where it was left then, instead of from its beginning."""

    def __init__(self) -> None:
        self._reader: RecordReader | None = None
        self._identity: tuple[str, int, int, int, int] | None = None

    def reader(self, topic: str, partition: int, data: BytesLike, header: BatchHeader, first: int) -> RecordReader:
        """What reads this batch from offset ``first`` on. Errors: those of :class:`RecordReader`."""
        identity = (topic, partition, header.base_offset, header.crc, header.length)
        reader = self._reader
        self._reader = None
        if reader is None or identity != self._identity or not reader.skip_to(first):
            reader = RecordReader(data, header, inflation_bound(header.length), first, checks_headers=False)
        self._identity = identity
        return reader

    def keep(self, reader: RecordReader, header: BatchHeader) -> None:
        """Its batch has records left."""
        if header.codec:
            self._reader = reader


_SKIPPED_FOR_ONE: Final = 16
"""So many records that lie before the wanted ones take as long as one that is made, or less."""


class AcquiredSlice:
    """What may still be read in one step of the loop: 8,192 records, or so many, of 1,024 batches (either takes 15 to
    20 ms in plain Python), up to the batch with which there are 8 MiB of them, inflated."""

    def __init__(self, records: int = 8192) -> None:
        self.records_left = records
        self.batches_left = 1024
        self.bytes_left = 8 << 20

    @property
    def may_open(self) -> bool:
        """Another batch may be opened."""
        return self.batches_left > 0 and self.bytes_left > 0

    def use_up(self) -> None:
        """The rest has to wait for another step: what was found may have taken as long as one."""
        self.bytes_left = 0

    @property
    def is_used_up(self) -> bool:
        """The rest has to wait for another step."""
        return self.records_left <= 0 or not self.may_open


class AcquiredReader:
    """Reads what was acquired of one partition, as few records at a time as the caller wants: with producers' batches
    taken whole, a few kB may hold millions.

    ``ranges`` are in any order. Batches are read up to the last record that is wanted. ``open_batch``: where the last
    one is kept for the next answer. The constructor raises CorruptRecordError for ranges that end before they begin or
    have an offset in common: no broker sends these, and each batch would be held against all ranges.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        data: BytesLike,
        ranges: Iterable[AcquiredRange],
        lock_deadline: float,
        owner: object,
        check_crcs: bool = True,
        open_batch: SharedBatch | None = None,
    ) -> None:
        # Sorted, since the batches come in order of their offsets: one pass over both.
        wanted = sorted(ranges)
        for one in wanted:
            if one.last < one.first:
                raise CorruptRecordError(f"{topic}-{partition}: offsets {one.first} to {one.last} were acquired")
        for one, next_one in pairwise(wanted):
            if next_one.first <= one.last:
                raise CorruptRecordError(f"{topic}-{partition}: offset {next_one.first} was acquired twice")
        self.lock_deadline = lock_deadline
        self.is_over = False
        """Everything has been read."""
        self._topic = topic
        self._partition = partition
        self._data = data
        self._wanted = wanted
        self._at = 0
        """Of the first range that reaches into the batch that is next, or behind it."""
        self._left = deque(wanted)
        """What has not been found to be a record or none."""
        self._sink = _Acquired(topic, partition, wanted, lock_deadline, owner)
        self._open_batch = SharedBatch() if open_batch is None else open_batch
        self._headers = iter_batches(data, check_crcs=check_crcs)
        self._header: BatchHeader | None = None
        self._reader: RecordReader | None = None
        """Of the batch of ``_header``, if that is not read to its last wanted record, which ``_last`` is."""
        self._last = -1

    @property
    def left(self) -> list[tuple[int, int]]:
        """The offsets that were not read yet, as ranges."""
        return [(first, last) for first, last, _ in self._left]

    def read(self, part: AcquiredSlice) -> tuple[list[ShareRecord], list[tuple[int, int]]]:
        """The next records, by offset, as many as ``part`` has room for, and the offsets up to them without a record,
        as ranges.

        Raises CorruptRecordError for batches that cannot be read, or with an offset in common; nothing of this call
        counts as read then.
        """
        found: list[ShareRecord] = []
        self._sink.found = found
        while part.records_left > 0:
            if self._reader is None:
                if not part.may_open:
                    break
                if not self._open_next():
                    self.is_over = True
                    break
                part.bytes_left -= self._open_bytes()
                part.batches_left -= 1
            part.records_left -= self._read_on(part.records_left)
        taken = self._take_left()
        if sum([each.last - each.first + 1 for each in taken]) == len(found):
            return found, []
        return found, list(_gaps(taken, [record.offset for record in found]))

    def _open_bytes(self) -> int:
        header, reader = self._header, self._reader
        return 0 if header is None or reader is None else max(header.length, reader.decompressed_bytes)

    def _open_next(self) -> bool:
        """Open the next batch with records that are wanted; False when there is none."""
        wanted = self._wanted
        at = self._at
        for header in self._headers:
            before = -1 if self._header is None else self._header.last_offset
            if header.base_offset <= before:
                where = f"{self._topic}-{self._partition}"
                raise CorruptRecordError(f"{where}: {header!r} does not come after offset {before}")
            self._header = header
            base_offset = header.base_offset if header.magic == 2 else before + 1  # a wrapper has its last one's
            while at < len(wanted) and wanted[at].last < base_offset:
                at += 1
            self._at = at
            if at == len(wanted):
                return False
            if header.is_control or wanted[at].first > header.last_offset:
                continue
            end = at
            while end + 1 < len(wanted) and wanted[end + 1].first <= header.last_offset:
                end += 1
            first = max(wanted[at].first, base_offset)
            self._last = min(wanted[end].last, header.last_offset)
            self._reader = self._open_batch.reader(self._topic, self._partition, self._data, header, first)
            self._sink.begin(at, header.leader_epoch, header.timestamp_type)
            return True
        return False

    def _read_on(self, limit: int) -> int:
        """Read some of the open batch; how many records were looked at, or more."""
        header, reader = self._header, self._reader
        if header is None or reader is None:
            return 0
        before = reader.next_offset
        count = min(limit, self._last - max(before, self._wanted[self._at].first) + 1)
        is_more = count <= 0 or reader.read(self._sink, count, max_skipped=_SKIPPED_FOR_ONE * limit)
        if not is_more or reader.next_offset > self._last:
            self._reader = None
            if is_more:
                self._open_batch.keep(reader, header)
        return max(count, (reader.next_offset - before) // _SKIPPED_FOR_ONE, 1)

    def _take_left(self) -> list[AcquiredRange]:
        """The ranges, and the part of one, that have been looked at."""
        left = self._left
        if self.is_over:
            taken = list(left)
            left.clear()
            return taken
        if self._reader is not None:
            stop = self._reader.next_offset
        else:
            stop = 0 if self._header is None else self._header.last_offset + 1
        taken = []
        while left and left[0].first < stop:
            first, last, delivery_count = left.popleft()
            if last >= stop:
                left.appendleft(AcquiredRange(stop, last, delivery_count))
                last = stop - 1
            taken.append(AcquiredRange(first, last, delivery_count))
        return taken


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


# -- by the answer, not one by one -------------------------------------------------------------------------------------


def consecutive_runs(records: Sequence[ShareRecord]) -> list[list[ShareRecord]]:
    """Neighbours with one owner, that is of one partition, together."""
    found: list[list[ShareRecord]] = []
    run: list[ShareRecord] = []
    owner: object = None
    for record in records:
        if not run or record.owner is not owner:
            owner = record.owner
            run = []
            found.append(run)
        run.append(record)
    return found


def without_lost(records: Sequence[ShareRecord]) -> list[ShareRecord]:
    """Those whose locks are not known to be gone."""
    return [record for record in records if not record.lost]


def mark_acknowledged(records: Sequence[ShareRecord]) -> list[ShareRecord]:
    """Those that were not acknowledged, with those whose locks are gone; from now on they count as settled."""
    found: list[ShareRecord] = []
    for record in records:
        if not record.is_settled:
            record.is_settled = True
            found.append(record)
    return found

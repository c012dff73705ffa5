"""Log compaction: only the last record of each key stays. Done in slices, so that no turn of the loop is long.

    log start        cleaner offset        end of pass          first offset that may not be touched
       |  clean ........  |  dirty: read into the map  |  dirty, next pass  |  open transactions, min.compaction.lag.ms,
       |  ....... rewritten, without what the map supersedes ..... |           the last segment, what is not yet synced

    pass:  plan  ->  read the dirty part into an OffsetMap, as far as that has room
                 ->  each group of segments that fit into one: rewrite it (BatchBuilder), sync, swap (files.py)
                 ->  store the cleaner-offset

What is removed from a batch, as in Kafka:

    a record with a later one of its key, one without a key, one of an aborted transaction
    a tombstone, delete.retention.ms after the first pass that met it (KIP-534: the batch stores that delete horizon)
    a marker whose transaction has no batch left, in the same two steps
    a batch without records, except for the last one of each known producer: its header stays

Offsets never change. A batch whose codec is not installed or that inflates above the bound, and a segment with bad
bytes, stay as they are, as do the tombstones and markers behind them: the cleaner does not know the keys of the
unreadable records. A wrong CRC ends the compaction of that log, because a rebuilt batch would get a correct one.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator
from hashlib import blake2b
from typing import NamedTuple

from kafka.broker.log.files import (
    cleaned_path,
    commit_swap,
    finish_swap,
    read_number,
    replace_file,
    storage_error,
    storage_errors,
)
from kafka.broker.log.partition_log import PartitionLog, retention_timestamp_ms
from kafka.broker.log.recovery import merged_seal_state, write_seal
from kafka.broker.log.segment import NO_TIMESTAMP, Segment, read_seal
from kafka.broker.private_files import open_private
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import HEADER_BYTES, BatchHeader, check_crc, codec_for, iter_batches, parse_header
from kafka.records.compression import InflationLimitError, inflation_bound
from kafka.records.header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, FRAME_BYTES, HEADER, decode_varint, encode_varint
from kafka.wire.crc32c import crc32c

ENTRY_BYTES = 180
_HASH_BYTES = 32
"""Keys of this length and above are hashed, so that no shorter key equals a hash."""


class OffsetMap:
    """Key -> the last offset that has it, for at most ``limit`` keys. ``latest_offset``: up to where the log was
    read, -1 before the first record.

    Short keys are held as they are, others as 32 bytes of BLAKE2b (Kafka holds all as MD5). An entry costs about 180
    bytes of a dictionary, so the limit counts entries.
    """

    def __init__(self, limit: int) -> None:
        self.limit = max(1, limit)
        self.latest_offset = -1
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Store a key's offset; False when there is no room for a new key."""
        name = key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
        if len(self._offsets) >= self.limit and name not in self._offsets:
            return False
        self._offsets[name] = offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record has this key."""
        name = key if len(key) < _HASH_BYTES else blake2b(key, digest_size=_HASH_BYTES).digest()
        return self._offsets.get(name, -1) > offset


DELETE_HORIZON_BIT = 0x40


class RecordSlice(NamedTuple):
    """One record: the positions of its bytes and of its timestamp delta in the batch's decompressed body, and what
    compaction needs to know. ``timestamp`` in ms. The layout of records is drawn in :mod:`kafka.records.reader`."""

    start: int
    end: int
    delta_at: int
    delta_end: int
    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


def delete_horizon(header: BatchHeader) -> int | None:
    """The time (ms) from which the tombstones or the marker of a batch may be removed, or None if it has none yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def decompressed_body(data: bytes, header: BatchHeader) -> bytes:
    """The records' bytes, decompressed. UnsupportedCodecError, CorruptRecordError, of which InflationLimitError."""
    body = data[header.start + HEADER_BYTES : header.end]
    if not header.codec or not body:
        return body
    return codec_for(header.codec).decompress(body, inflation_bound(header.length))


def record_slices(body: bytes, header: BatchHeader) -> Iterator[RecordSlice]:
    """The records of a batch's decompressed body, one after another; CorruptRecordError.

    Varints of one and two bytes are read in place, as in :mod:`kafka.records.reader`: 1.9 us a record instead of 4.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position = 0
    total = len(body)
    try:
        for _ in range(header.records_count):
            start = position
            byte = body[position]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif body[position + 1] < 0x80 and not byte & 1:
                length = (byte & 0x7F) >> 1 | body[position + 1] << 6
                position += 2
            else:
                length, position = decode_varint(body, position)
            end = position + length
            delta_at = position + 1  # behind the attributes
            byte = body[delta_at]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                delta_end = delta_at + 1
            else:
                delta, delta_end = decode_varint(body, delta_at)
            byte = body[delta_end]
            if byte < 0x80:
                offset = byte >> 1
                position = delta_end + 1
            else:
                offset, position = decode_varint(body, delta_end)
            byte = body[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(body, position)
            key = None
            if size >= 0:
                key = body[position : position + size]
                position += size
            has_value = not body[position] & 1  # the lowest bit of a varint is the sign
            if end > total or position >= end or length < 0:
                raise IndexError
            yield RecordSlice(
                start, end, delta_at, delta_end, base_offset + offset, base_timestamp + delta, key, has_value
            )
            position = end
    except IndexError:
        raise CorruptRecordError(f"a record runs over the end of {header!r}") from None


class BatchBuilder:
    """Builds a batch from some of an old one's records; without any, its header alone. ``horizon``: the delete horizon
    that it gets now, in ms.

    kept       base offset, last offset delta, sequence, producer, leader epoch, codec, the records' own bytes
    new        records_count, max_timestamp, size, CRC; with a delete horizon: base_timestamp, bit 6
    cleared    of a header alone: codec, horizon, base timestamp

    With a delete horizon (KIP-534) the base timestamp is the horizon, and the records' deltas count from there: their
    own timestamps stay.
    """

    def __init__(self, header: BatchHeader, horizon: int | None = None) -> None:
        self._header = header
        self._horizon = horizon
        self._records = bytearray()
        self._count = 0
        self._greatest = NO_TIMESTAMP

    def add(self, body: bytes, one: RecordSlice) -> None:
        """Copy a record of the decompressed body."""
        if self._horizon is None:
            self._records += body[one.start : one.end]
        else:
            delta = encode_varint(one.timestamp - self._horizon)
            inner = body[one.delta_at - 1 : one.delta_at] + delta + body[one.delta_end : one.end]
            self._records += encode_varint(len(inner)) + inner
        self._count += 1
        self._greatest = max(self._greatest, one.timestamp)

    def build(self) -> bytes:
        """The batch's bytes."""
        header = self._header
        base_timestamp, attributes, greatest = header.base_timestamp, header.attributes, header.max_timestamp
        records = bytes(self._records)
        if not self._count:
            base_timestamp, attributes = NO_TIMESTAMP, attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
        elif self._horizon is not None:
            base_timestamp, attributes = self._horizon, attributes | DELETE_HORIZON_BIT
        if self._count and not header.timestamp_type:
            greatest = self._greatest
        if records and header.codec:
            records = codec_for(header.codec).compress(records, None)
        batch = bytearray(HEADER_BYTES)
        HEADER.pack_into(
            batch, 0, header.base_offset, HEADER_BYTES - FRAME_BYTES + len(records), header.leader_epoch, 2, 0,
            attributes, header.last_offset_delta, base_timestamp, greatest, header.producer_id, header.producer_epoch,
            header.base_sequence, self._count,
        )  # fmt: skip
        crc = crc32c(records, crc32c(bytes(batch[ATTRIBUTES_AT:])))
        batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
        return bytes(batch) + records


log = logging.getLogger(__name__)

SLICE_BYTES = 128 << 10
"""Read between two yields: 3 to 10 ms of work."""

SLICE_RECORDS = 4096
"""The same within a batch."""

CLEANER_OFFSET_NAME = "cleaner-offset"
_CHUNK_BYTES = 1 << 20


class CleaningFailedError(Exception):
    """This log cannot be compacted and is left unchanged."""


class CleaningPlan(NamedTuple):
    """The dirty part of a log, from ``first_dirty`` to ``end`` (exclusive); ``ratio``: its share of the bytes up to
    ``end``; ``is_due``: max.compaction.lag.ms has passed, so it is cleaned whatever its ratio."""

    first_dirty: int
    end: int
    ratio: float
    is_due: bool


def load_cleaner_offset(partition: PartitionLog) -> int:
    """The offset (exclusive) up to which the log has been compacted; the log start offset if that is unknown."""
    offset = 0
    with contextlib.suppress(OSError, ValueError):
        offset = read_number(os.path.join(partition.directory, CLEANER_OFFSET_NAME)) or 0
    return offset if partition.start_offset <= offset <= partition.end_offset else partition.start_offset


def store_cleaner_offset(partition: PartitionLog, offset: int) -> None:
    """Store it without a sync: losing it costs a longer pass."""
    replace_file(os.path.join(partition.directory, CLEANER_OFFSET_NAME), b"%d\n" % offset, sync=False)


def plan_cleaning(partition: PartitionLog, now_ms: int) -> CleaningPlan | None:
    """The dirty part that could be compacted now, or None. :func:`should_clean` says whether that pays."""
    segments = partition.segments
    if len(segments) < 2:
        return None
    first_dirty = load_cleaner_offset(partition)
    config = partition.config
    stable = partition.last_stable_offset
    end = segments[-1].base_offset
    clean_bytes = dirty_bytes = 0
    oldest_dirty: int | None = None
    for segment in segments[:-1]:
        if _has_corruption(segment):
            continue
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        if (
            segment.next_offset > stable
            or (not segment.is_sealed and partition.is_unsynced(segment))
            or (
                config.min_compaction_lag_ms > 0
                and retention_timestamp_ms(segment) > now_ms - config.min_compaction_lag_ms
            )
        ):
            end = segment.base_offset
            break
        dirty_bytes += segment.size
        if oldest_dirty is None and segment.size:
            oldest_dirty = segment.first_timestamps[0] if segment.first_timestamps[0] >= 0 else segment.modified_ms
    if not dirty_bytes or end <= first_dirty:
        return None
    is_due = oldest_dirty is not None and now_ms - oldest_dirty > config.max_compaction_lag_ms
    return CleaningPlan(first_dirty, end, dirty_bytes / (clean_bytes + dirty_bytes), is_due)


def should_clean(plan: CleaningPlan, partition: PartitionLog) -> bool:
    """Whether the dirty ratio or the compaction lag asks for a pass."""
    return plan.is_due or plan.ratio > partition.config.min_cleanable_dirty_ratio


class CleaningPass:
    """One pass over one log. :meth:`run` yields after each slice of work: None, or the path of a file that has to be
    synced before it goes on.

    The log may be appended to, read and truncated meanwhile; a pass ends when its segments are removed. ``map_bytes``:
    memory for the map (``log.cleaner.dedupe.buffer.size``). Errors of :meth:`run`: :class:`CleaningFailedError`,
    KafkaStorageError.
    """

    def __init__(
        self, partition: PartitionLog, plan: CleaningPlan, now_ms: int, *, map_bytes: int, sync: bool = True
    ) -> None:
        self.partition = partition
        self.plan = plan
        self.map = OffsetMap(map_bytes // ENTRY_BYTES)
        self.removed_bytes = 0
        self._now_ms = now_ms
        self._sync = sync
        self._pool = partition.pool
        self._slice_bytes = 0
        self._open_transactions: set[int] = set()
        self._has_holes = False  # whether unreadable records came before
        self._is_map_full = False

    def run(self) -> Generator[str | None, None, None]:
        yield from self._build_map()
        if self.map.latest_offset < 0:
            store_cleaner_offset(self.partition, self.plan.end)
            return
        segments = [segment for segment in self.partition.segments if segment.base_offset <= self.map.latest_offset]
        for group in self._groups(segments[: len(self.partition.segments) - 1]):
            if any(segment.is_removed for segment in group):
                return
            yield from self._clean(group)
        is_whole = self.map.latest_offset + 1 >= self.plan.end or not self._is_map_full
        store_cleaner_offset(self.partition, self.plan.end if is_whole else self.map.latest_offset + 1)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _build_map(self) -> Iterator[None]:
        for segment in self.partition.segments:
            if segment.base_offset >= self.plan.end:
                return
            if segment.next_offset <= self.plan.first_dirty or _has_corruption(segment):
                continue
            for header, data in self._batches(segment):
                if header.last_offset >= self.plan.first_dirty:
                    yield from self._add_keys(header, data)
                    if self._is_map_full:
                        return
                if self._is_slice_done(header.length):
                    yield None

    def _add_keys(self, header: BatchHeader, data: bytes) -> Iterator[None]:
        """Add a batch's keys to the map, as far as that has room."""
        if not header.is_control and not self._is_aborted(header):
            try:
                body = decompressed_body(data, header)
            except (UnsupportedCodecError, InflationLimitError):
                self.map.latest_offset = header.last_offset
                return
            for number, one in enumerate(record_slices(body, header), 1):
                is_dirty = one.key is not None and one.offset >= self.plan.first_dirty
                if is_dirty and not self.map.put(one.key or b"", one.offset):
                    self._is_map_full = True
                    return
                self.map.latest_offset = one.offset
                if not number % SLICE_RECORDS:
                    yield None
        self.map.latest_offset = header.last_offset

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each batch of a segment, with the bytes that contain it."""
        position, most = 0, _CHUNK_BYTES
        left = segment.size
        while left and not segment.is_removed:
            data = self._pool.read(segment.path, position, min(most, left))
            end = 0
            try:
                for header in iter_batches(data, check_crcs=False):
                    check_crc(data, header)  # of a message v0 or v1, too: a log has none, so its magic is corrupt
                    yield header, data
                    end = header.end
            except CorruptRecordError as error:
                raise CleaningFailedError(f"{segment.path} at byte {position + end}: {error.args[0]}") from error
            is_short = len(data) < max(HEADER_BYTES, min(most, left))
            position, left, most = position + end, left - end, _CHUNK_BYTES
            if not end:  # a batch that is longer than a chunk
                most = FRAME_BYTES + int.from_bytes(data[8:12], "big")
                if is_short or most > left:
                    raise CleaningFailedError(f"{segment.path} at byte {position}: a batch is truncated")

    def _is_slice_done(self, spent: int) -> bool:
        self._slice_bytes += spent
        if self._slice_bytes < SLICE_BYTES:
            return False
        self._slice_bytes = 0
        return True

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            row.producer_id == header.producer_id and row.first_offset <= header.base_offset
            for row in self.partition.producers.aborted_between(header.base_offset, header.last_offset)
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def _groups(self, segments: list[Segment]) -> Iterator[list[Segment]]:
        """Consecutive segments that together fit into one; one with corrupt bytes is in no group."""
        group: list[Segment] = []
        size = 0
        for segment in segments:
            if group and (
                _has_corruption(segment)
                or size + segment.size > self.partition.config.segment_bytes
                or segment.next_offset - group[0].base_offset >= 2**31
            ):
                yield group
                group, size = [], 0
            if _has_corruption(segment):
                self._has_holes = True
                continue
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _clean(self, group: list[Segment]) -> Iterator[str | None]:
        """Rewrite a group as one segment, and swap that for the group."""
        base = group[0].base_offset
        path = cleaned_path(self.partition.directory, base)
        new = Segment(self._pool, group[0].path, base)
        try:
            yield from self._write(group, new, path)
            if self._sync:
                yield path
            if not any(segment.is_removed for segment in group):
                self._swap(group, new)
        finally:
            with contextlib.suppress(OSError):  # after the swap it has another name
                os.unlink(path)

    def _write(self, group: list[Segment], new: Segment, path: str) -> Iterator[None]:
        """Write the retained batches of a group into a file. An empty one stays a segment, because the name of the
        first file is the log start offset; readers skip empty segments."""
        with storage_errors("compact into", path), open(path, "wb", opener=open_private) as file:
            for segment in group:
                for header, data in self._batches(segment):
                    batch = yield from self._retained(header, data)
                    if batch is not None:
                        file.write(batch)
                        new.add_batch(
                            header.base_offset, header.next_offset, new.size, len(batch), _max_timestamp(batch)
                        )
                    if self._is_slice_done(header.length):
                        yield None

    def _swap(self, group: list[Segment], new: Segment) -> None:
        """Swap in one turn of the loop, so that no reader sees half of it."""
        partition = self.partition
        directory = partition.directory
        before = sum(segment.size for segment in group)
        new.set_times(group[-1].created_ms, group[-1].modified_ms)
        seals = [read_seal(one.seal_path) if one.is_sealed else None for one in group if one.size]
        last = partition.segments.index(group[-1])
        for segment in group:
            self._pool.forget(segment.path)
        modified_s = new.modified_ms / 1000
        with storage_errors("rename", cleaned_path(directory, new.base_offset)):
            names = os.listdir(directory)  # beforehand: it may fail for want of a descriptor
            os.utime(cleaned_path(directory, new.base_offset), (modified_s, modified_s))
            swap = commit_swap(directory, new.base_offset, partition.segments[last + 1].base_offset)
        try:
            renamed = finish_swap(directory, os.path.basename(swap), names)
        except OSError as error:  # the file names are in an unknown state until the next start
            partition.fail(failure := storage_error("swap a compacted segment in", directory, error))
            raise failure from error
        partition.replace_segments(last + 1 - len(group), last + 1, (new,))
        partition.delete_files(renamed)
        self.removed_bytes += before - new.size
        known = [seal[1] for seal in seals if seal is not None]
        if new.size and len(known) == len(seals):
            write_seal(partition.name, new, new.make_seal(merged_seal_state(known), is_on_disk=self._sync))

    def _retained(self, header: BatchHeader, data: bytes) -> Generator[None, None, bytes | None]:
        """A batch after compaction: its own bytes, rebuilt ones, or None when it is removed.

        Decides for each record by the offset map, the delete horizon and the transaction's outcome; then sets a delete
        horizon (KIP-534) if the batch has tombstones, or a marker without data, and none yet.
        """
        whole = data[header.start : header.end]
        body = b""
        if header.records_count:
            try:
                body = decompressed_body(data, header)
            except (UnsupportedCodecError, InflationLimitError):
                self._has_holes = True
                return whole
        horizon = delete_horizon(header)
        is_over = horizon is not None and horizon <= self._now_ms and not self._has_holes
        needs_horizon = False
        retain_all: bool | None = None
        if header.is_control:
            is_needed = header.producer_id in self._open_transactions or self._has_holes
            self._open_transactions.discard(header.producer_id)
            retain_all = not is_over or is_needed
            needs_horizon = not is_needed
        elif header.is_transactional:
            self._open_transactions.add(header.producer_id)
            if self._is_aborted(header):
                retain_all = False

        def is_retained(one: RecordSlice) -> bool:
            return self._is_retained(one, is_over) if retain_all is None else retain_all

        retained_count = 0
        for number, one in enumerate(record_slices(body, header), 1):
            if is_retained(one):
                retained_count += 1
                needs_horizon = needs_horizon or not (one.has_value or header.is_control)
            if not number % SLICE_RECORDS:
                yield None
        if not retained_count and not self._is_last_of_producer(header):
            return None
        new_horizon = None
        if needs_horizon and retained_count and horizon is None:
            new_horizon = self._now_ms + self.partition.config.delete_retention_ms
        if retained_count == header.records_count and new_horizon is None:
            return whole
        new = BatchBuilder(header, new_horizon)
        # parsed again: keeping all slices would need as much memory
        for number, one in enumerate(record_slices(body, header), 1):
            if is_retained(one):
                new.add(body, one)
            if not number % SLICE_RECORDS:
                yield None
        return new.build()

    def _is_retained(self, one: RecordSlice, is_horizon_over: bool) -> bool:
        if one.offset > self.map.latest_offset:
            return True
        if one.key is None or self.map.is_superseded(one.key, one.offset):
            return False
        return one.has_value or not is_horizon_over

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether this is the producer's last batch, whose sequence the next one is checked against."""
        entry = self.partition.producers.entries.get(header.producer_id)
        if header.producer_id < 0 or entry is None:
            return False
        if entry.batches:
            return entry.batches[-1].last_offset == header.last_offset
        return header.is_control and entry.epoch == header.producer_epoch


def _has_corruption(segment: Segment) -> bool:
    return bool(segment.corrupt_ranges or segment.torn_bytes)


def _max_timestamp(batch: bytes) -> int:
    header = parse_header(batch)
    return header.max_timestamp if header is not None else -1

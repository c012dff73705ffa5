"""Log compaction: of the records with one key the last one stays. Done in slices, so that no turn of the loop is long.

    log start        cleaner offset        end of pass          first offset that may not be touched
       |  clean ........  |  dirty: read into the map  |  dirty, next pass  |  open transactions, min.compaction.lag.ms,
       |  ....... rewritten, without what the map supersedes ..... |           the last segment, what is not yet synced

    pass:  plan  ->  read the dirty part into an offset_map.py, as far as that has room
                 ->  each group of segments that fit into one: write it anew (rebuild.py), sync, swap (swap.py)
                 ->  cleaner-offset

What goes from a batch, as in Kafka:

    a record with a later one of its key, one without a key, one of an aborted transaction
    a tombstone, delete.retention.ms after the first pass that met it (KIP-534: that moment is noted in its batch)
    a marker whose transaction has no batch left, in the same two steps
    a batch without records, but for the last one of each producer that is known: it stays as a header

Offsets never change. A batch whose codec is not installed or that inflates above the bound, and a segment with bad
bytes, stay as they are, and so do the tombstones and markers behind them: the cleaner cannot tell which keys the
unreadable records have. A wrong CRC ends the compaction of that log, because a rebuilt batch would get a right one.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Generator, Iterator
from typing import NamedTuple

from kafka.broker.log.files import replace_file, storage_error
from kafka.broker.log.offset_map import OffsetMap
from kafka.broker.log.opening import joined_state, write_seal
from kafka.broker.log.partition_log import PartitionLog
from kafka.broker.log.rebuild import Rebuild, Slice, delete_horizon, plain_body, slices
from kafka.broker.log.retention import newest_ms
from kafka.broker.log.segment import Segment, read_seal_state
from kafka.broker.log.swap import cleaned_path, commit_swap, finish_swap
from kafka.broker.private_files import open_private
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import HEADER_BYTES, BatchHeader, check_crc, parse_header
from kafka.records.compression import InflationLimitError

log = logging.getLogger(__name__)

SLICE_BYTES = 128 << 10
"""Read between two rests: 3 to 10 ms of work."""

SLICE_RECORDS = 4096
"""The same within a batch."""

CLEANER_OFFSET_NAME = "cleaner-offset"
_CHUNK_BYTES = 1 << 20


class CleaningFailedError(Exception):
    """This log cannot be compacted; it stays as it is."""


class Plan(NamedTuple):
    """What there is to compact: the dirty part from ``first_dirty`` to ``end`` (exclusive); ``ratio``: its share of
    the bytes up to there; ``is_due``: whether it has to be, whatever its share."""

    first_dirty: int
    end: int
    ratio: float
    is_due: bool


class Sync(NamedTuple):
    """What a pass asks for: this file has to be on the disk before it goes on."""

    path: str


def saved_offset(partition: PartitionLog) -> int:
    """Up to where (exclusive) the log has been compacted; its start when nobody knows."""
    try:
        with open(os.path.join(partition.directory, CLEANER_OFFSET_NAME), "rb", opener=open_private) as file:
            text = file.read()
    except OSError:
        text = b""
    offset = int(text) if text.endswith(b"\n") and text.strip().isdigit() else 0
    return offset if partition.start_offset <= offset <= partition.end_offset else partition.start_offset


def save_offset(partition: PartitionLog, offset: int) -> None:
    """Losing it costs a longer pass."""
    replace_file(os.path.join(partition.directory, CLEANER_OFFSET_NAME), b"%d\n" % offset, sync=False)


def plan(partition: PartitionLog, now_ms: int) -> Plan | None:
    """What there is to compact now, or None. Whether it is worth it: :func:`is_worth_it`."""
    segments = partition.segments
    if len(segments) < 2:
        return None
    first_dirty = saved_offset(partition)
    config = partition.config
    stable = partition.last_stable_offset
    end = segments[-1].base_offset
    clean_bytes = dirty_bytes = 0
    oldest_dirty: int | None = None
    for segment in segments[:-1]:
        if _is_damaged(segment):
            continue
        if segment.next_offset <= first_dirty:
            clean_bytes += segment.size
            continue
        if (
            segment.next_offset > stable
            or (not segment.is_sealed and partition.is_unsynced(segment))
            or (config.min_compaction_lag_ms > 0 and newest_ms(segment) > now_ms - config.min_compaction_lag_ms)
        ):
            end = segment.base_offset
            break
        dirty_bytes += segment.size
        if oldest_dirty is None and segment.size:
            oldest_dirty = segment.first_timestamps[0] if segment.first_timestamps[0] >= 0 else segment.modified_ms
    if not dirty_bytes or end <= first_dirty:
        return None
    is_due = oldest_dirty is not None and now_ms - oldest_dirty > config.max_compaction_lag_ms
    return Plan(first_dirty, end, dirty_bytes / (clean_bytes + dirty_bytes), is_due)


def is_worth_it(found: Plan, partition: PartitionLog) -> bool:
    """Whether so much is dirty that a pass pays."""
    return found.is_due or found.ratio > partition.config.min_cleanable_dirty_ratio


class CleaningPass:
    """One pass over one log. :meth:`run` yields after each slice of work: None, or :class:`Sync` when it needs one.

    The log is appended to, read and cut meanwhile; a pass whose segments go ends. ``map_bytes``: memory for the map.
    Errors of :meth:`run`: :class:`CleaningFailedError`, KafkaStorageError.
    """

    def __init__(self, partition: PartitionLog, found: Plan, now_ms: int, *, map_bytes: int, sync: bool = True) -> None:
        self.partition = partition
        self.plan = found
        self.map = OffsetMap.of_bytes(map_bytes)
        self.removed_bytes = 0
        self._now_ms = now_ms
        self._sync = sync
        self._pool = partition.pool
        self._spent = 0
        self._open_transactions: set[int] = set()
        self._has_holes = False  # whether records that nobody can read came before
        self._is_map_full = False

    def run(self) -> Generator[Sync | None, None, None]:
        yield from self._fill_map()
        if self.map.latest_offset < 0:
            save_offset(self.partition, self.plan.end)
            return
        segments = [segment for segment in self.partition.segments if segment.base_offset <= self.map.latest_offset]
        for group in self._groups(segments[: len(self.partition.segments) - 1]):
            if any(segment.is_gone for segment in group):
                return
            yield from self._clean(group)
        is_whole = self.map.latest_offset + 1 >= self.plan.end or not self._is_map_full
        save_offset(self.partition, self.plan.end if is_whole else self.map.latest_offset + 1)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _fill_map(self) -> Iterator[None]:
        for segment in self.partition.segments:
            if segment.base_offset >= self.plan.end:
                return
            if segment.next_offset <= self.plan.first_dirty or _is_damaged(segment):
                continue
            for header, data in self._batches(segment):
                if header.last_offset >= self.plan.first_dirty:
                    yield from self._note_keys(header, data)
                    if self._is_map_full:
                        return
                if self._is_slice_done(header.length):
                    yield None

    def _note_keys(self, header: BatchHeader, data: bytes) -> Iterator[None]:
        """Take a batch into the map, as far as that has room."""
        if not header.is_control and not self._is_aborted(header):
            try:
                body = plain_body(data, header)
            except (UnsupportedCodecError, InflationLimitError):
                self.map.latest_offset = header.last_offset
                return
            for number, one in enumerate(slices(body, header), 1):
                is_dirty = one.key is not None and one.offset >= self.plan.first_dirty
                if is_dirty and not self.map.put(one.key or b"", one.offset):
                    self._is_map_full = True
                    return
                self.map.latest_offset = one.offset
                if not number % SLICE_RECORDS:
                    yield None
        self.map.latest_offset = header.last_offset

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each batch of a segment, with the bytes that it lies in."""
        position = 0
        size = segment.size
        while position < size and not segment.is_gone:
            data = self._pool.read(segment.path, position, min(_CHUNK_BYTES, size - position))
            at = 0
            while True:
                try:
                    header = parse_header(data, at)
                    if header is not None:
                        check_crc(data, header)
                except CorruptRecordError as error:
                    raise CleaningFailedError(f"{segment.path} at byte {position + at}: {error.args[0]}") from error
                if header is None:
                    break
                yield header, data
                at = header.end
            if not at:
                if len(data) < HEADER_BYTES:
                    raise CleaningFailedError(f"{segment.path} at byte {position}: a batch is cut")
                length = int.from_bytes(data[8:12], "big") + 12
                if position + length > size:
                    raise CleaningFailedError(f"{segment.path} at byte {position}: a batch is cut")
                data = self._pool.read(segment.path, position, length)
                header = parse_header(data)
                if header is None:
                    raise CleaningFailedError(f"{segment.path} at byte {position}: a batch is cut")
                check_crc(data, header)
                yield header, data
                at = length
            position += at

    def _is_slice_done(self, spent: int) -> bool:
        self._spent += spent
        if self._spent < SLICE_BYTES:
            return False
        self._spent = 0
        return True

    def _is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            row.producer_id == header.producer_id and row.first_offset <= header.base_offset
            for row in self.partition.producers.aborted_between(header.base_offset, header.last_offset)
        )

    # -- writing -----------------------------------------------------------------------------------------------------

    def _groups(self, segments: list[Segment]) -> Iterator[list[Segment]]:
        """Segments that fit into one together; one with bad bytes is in none."""
        group: list[Segment] = []
        size = 0
        for segment in segments:
            if group and (
                _is_damaged(segment)
                or size + segment.size > self.partition.config.segment_bytes
                or segment.next_offset - group[0].base_offset >= 2**31
            ):
                yield group
                group, size = [], 0
            if _is_damaged(segment):
                self._has_holes = True
                continue
            group.append(segment)
            size += segment.size
        if group:
            yield group

    def _clean(self, group: list[Segment]) -> Iterator[Sync | None]:
        """Write a group anew, and put it in its place."""
        base = group[0].base_offset
        path = cleaned_path(self.partition.directory, base)
        new = Segment(self._pool, group[0].path, base)
        try:
            yield from self._write(group, new, path)
            if self._sync:
                yield Sync(path)
            if not any(segment.is_gone for segment in group):
                self._swap(group, new)
        finally:
            with contextlib.suppress(OSError):  # in its place it has another name
                os.unlink(path)

    def _write(self, group: list[Segment], new: Segment, path: str) -> Iterator[None]:
        """Write what stays of a group into a file."""
        try:
            with open(path, "wb", opener=open_private) as file:
                for segment in group:
                    for header, data in self._batches(segment):
                        kept = yield from self._kept(header, data)
                        if kept is not None:
                            file.write(kept)
                            greatest = header.max_timestamp if kept is data else _max_timestamp(kept)
                            new.note(header.base_offset, header.next_offset, new.size, len(kept), greatest)
                        if self._is_slice_done(header.length):
                            yield None
        except OSError as error:
            raise storage_error("compact into", path, error) from error

    def _swap(self, group: list[Segment], new: Segment) -> None:
        """All in one go: no reader sees half of it."""
        partition = self.partition
        directory = partition.directory
        before = sum(segment.size for segment in group)
        new.created_ms, new.modified_ms = group[-1].created_ms, group[-1].modified_ms
        states = [read_seal_state(one.seal_path) if one.is_sealed else None for one in group if one.size]
        last = partition.segments.index(group[-1])
        for segment in group:
            self._pool.forget(segment.path)
        modified_s = new.modified_ms / 1000
        try:
            names = os.listdir(directory)  # beforehand: it may fail for want of a descriptor
            os.utime(cleaned_path(directory, new.base_offset), (modified_s, modified_s))
            swap = commit_swap(directory, new.base_offset, partition.segments[last + 1].base_offset)
        except OSError as error:
            raise storage_error("rename", cleaned_path(directory, new.base_offset), error) from error
        try:
            aside = finish_swap(directory, os.path.basename(swap), names)
        except OSError as error:  # nobody knows which name is which file now; the next start does
            partition.failure = storage_error("put a compacted segment in its place in", directory, error)
            raise partition.failure from error
        partition.replace_segments(last + 1 - len(group), last + 1, (new,))
        partition.removed(aside)
        self.removed_bytes += before - new.size
        known = [state for state in states if state is not None]
        if new.size and len(known) == len(states):
            write_seal(partition.name, new, new.make_seal(joined_state(known), is_on_disk=self._sync))

    def _kept(self, header: BatchHeader, data: bytes) -> Generator[None, None, bytes | None]:
        """What stays of a batch: its bytes, others, or None."""
        whole = data[header.start : header.end]
        body = b""
        if header.records_count:
            try:
                body = plain_body(data, header)
            except (UnsupportedCodecError, InflationLimitError):
                self._has_holes = True
                return whole
        horizon = delete_horizon(header)
        is_over = horizon is not None and horizon <= self._now_ms and not self._has_holes
        needs_horizon = False
        all_stay: bool | None = None
        if header.is_control:
            is_needed = header.producer_id in self._open_transactions or self._has_holes
            self._open_transactions.discard(header.producer_id)
            all_stay = not is_over or is_needed
            needs_horizon = not is_needed
        elif header.is_transactional and self._is_aborted(header):
            self._open_transactions.add(header.producer_id)
            all_stay = False
        else:
            if header.is_transactional:
                self._open_transactions.add(header.producer_id)

        def stays(one: Slice) -> bool:
            return self._stays(one, is_over) if all_stay is None else all_stay

        kept_count = 0
        for number, one in enumerate(slices(body, header), 1):
            if stays(one):
                kept_count += 1
                needs_horizon = needs_horizon or not (one.has_value or header.is_control)
            if not number % SLICE_RECORDS:
                yield None
        if not kept_count and not self._is_last_of_producer(header):
            return None
        new_horizon = None
        if needs_horizon and kept_count and horizon is None:
            new_horizon = self._now_ms + self.partition.config.delete_retention_ms
        if kept_count == header.records_count and new_horizon is None:
            return whole
        new = Rebuild(header, new_horizon)
        for number, one in enumerate(slices(body, header), 1):  # again: to remember all would take as much again
            if stays(one):
                new.add(body, one)
            if not number % SLICE_RECORDS:
                yield None
        return new.build()

    def _stays(self, one: Slice, is_horizon_over: bool) -> bool:
        if one.offset > self.map.latest_offset:
            return True
        if one.key is None or self.map.is_superseded(one.key, one.offset):
            return False
        return one.has_value or not is_horizon_over

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the next batch of a producer is checked against this one."""
        entry = self.partition.producers.entries.get(header.producer_id)
        if header.producer_id < 0 or entry is None:
            return False
        if entry.batches:
            return entry.batches[-1].last_offset == header.last_offset
        return header.is_control and entry.epoch == header.producer_epoch


def _is_damaged(segment: Segment) -> bool:
    return bool(segment.damages or segment.torn_bytes)


def _max_timestamp(batch: bytes) -> int:
    header = parse_header(batch)
    return header.max_timestamp if header is not None else -1

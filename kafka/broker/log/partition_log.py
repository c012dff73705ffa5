"""The log of one partition: segments of record batches in a directory, appended to at the end, read anywhere.

    <directory>/00000000000000000000.log .seal   full, sealed
                00000000000000001200.log         the last one is appended to
                start-offset                     when records were deleted in the middle of a segment

    start_offset <= ... readable ... < end_offset (the high watermark: there are no followers)

Batches stay the bytes that producers sent, but for base offset and leader epoch (and the time, where the topic says
LogAppendTime). An append is one ``write()``, so that a killed process loses nothing that was acknowledged; what a lost
machine loses is ``flush.py``'s. Opening trusts seals, scans what has none, cuts a torn tail and says so, and leaves
bad bytes in the middle where they are: their offsets give CorruptRecordError, all others are served (``scan.py``).

Retention and compaction act through :meth:`PartitionLog.delete_before` and new segments; they are not here.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from kafka.broker.log.files import (
    Buffer,
    FilePool,
    make_directory,
    remove_file,
    replace_file,
    storage_error,
    sync_directory,
)
from kafka.broker.log.producer_state import ProducerStates
from kafka.broker.log.scan import scan_segment
from kafka.broker.log.segment import Segment, segment_name
from kafka.errors import CorruptRecordError, KafkaStorageError, MessageSizeTooLargeError, OffsetOutOfRangeError
from kafka.records import (
    BatchHeader,
    decode_raw,
    parse_header,
    rewrite_base,
    set_log_append_time,
    validate_batch,
)

log = logging.getLogger(__name__)

START_OFFSET_NAME = "start-offset"
NO_LIMIT = 2**63 - 1


class LogConfig(NamedTuple):
    """What a topic's configuration says to its logs: ``segment.bytes``, ``max.message.bytes``,
    ``message.timestamp.type`` (True: LogAppendTime), ``segment.ms``."""

    segment_bytes: int = 1 << 30
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    segment_ms: int = 7 * 24 * 3600 * 1000


class Appended(NamedTuple):
    """Where a batch went: offsets inclusive; ``append_time_ms`` is -1 for CreateTime. A duplicate went nowhere
    again.
    """

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class FoundOffset(NamedTuple):
    """A record found by time: ``timestamp`` in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


class PartitionLog:
    """One partition's log. ``config`` may be replaced at any time. ``name`` is what errors and log lines call it;
    ``on_dirty`` is called with the log when bytes were written that no flush has seen."""

    def __init__(
        self,
        directory: str,
        name: str,
        pool: FilePool,
        config: LogConfig,
        *,
        on_dirty: Callable[[PartitionLog], None] = lambda log: None,
        now_ms: int = 0,
        sync: bool = True,
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.producers = ProducerStates()
        self.recovered_bytes = 0
        """How many bytes the opening had to scan."""
        self._pool = pool
        self._on_dirty = on_dirty
        self._sync = sync
        self._dirty: set[str] = set()
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._start = 0
        self._open(now_ms)

    # -- where it begins and ends ------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].next_offset

    @property
    def size_bytes(self) -> int:
        """All segments together."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is appended to."""
        return tuple(self._segments)

    # -- append ------------------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, *, now_ms: int, leader_epoch: int = 0, trusted: bool = False) -> Appended:
        """Append one batch v2 and give it its offsets.

        ``trusted``: the broker made it (control batches, internal topics), so it is not validated. Errors, each of
        which leaves the log as it was: CorruptRecordError (2), InvalidRecordError (87), MessageSizeTooLargeError (10),
        OutOfOrderSequenceNumberError (45), InvalidProducerEpochError (47), KafkaStorageError (56).
        """
        header = parse_header(batch) if trusted else validate_batch(batch)
        if header is None:
            raise CorruptRecordError(f"{self.name}: a batch of the broker's own is cut")
        if header.length > self.config.max_message_bytes and not trusted:
            raise MessageSizeTooLargeError(
                f"{self.name}: a batch of {header.length} bytes; max.message.bytes is {self.config.max_message_bytes}"
            )
        duplicate = self.producers.check(header)
        if duplicate is not None:
            time_ms = duplicate.timestamp if self.config.log_append_time else -1
            return Appended(duplicate.base_offset, duplicate.last_offset, time_ms, True)
        data = bytearray(batch)
        segment = self._segment_for(len(data), header, now_ms)
        base = segment.next_offset
        rewrite_base(data, 0, base, leader_epoch)
        timestamp = header.max_timestamp
        if self.config.log_append_time and not header.is_control:
            set_log_append_time(data, 0, now_ms)
            timestamp = now_ms
        segment.append(data, header, base, timestamp)
        self.producers.update(header, base, timestamp, now_ms)
        self._mark_dirty(segment)
        append_time = now_ms if self.config.log_append_time else -1
        return Appended(base, base + header.last_offset_delta, append_time, False)

    def roll(self, now_ms: int) -> None:
        """Seal the last segment and begin another one, unless it is empty."""
        last = self._segments[-1]
        if not last.size:
            return
        self._add_segment(last.next_offset, now_ms)
        if self._sync:
            self._pool.sync(last.path)
        self._dirty.discard(last.path)
        last.seal(self.producers.snapshot())

    def _segment_for(self, length: int, header: BatchHeader, now_ms: int) -> Segment:
        last = self._segments[-1]
        if last.size and (
            last.size + length > self.config.segment_bytes
            or last.next_offset + header.last_offset_delta - last.base_offset >= 2**31
            or now_ms - last.created_ms >= self.config.segment_ms
            or last.damages
        ):
            self.roll(now_ms)
            return self._segments[-1]
        return last

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(self._pool, os.path.join(self.directory, segment_name(base_offset) + ".log"), base_offset)
        segment.created_ms = now_ms
        self._pool.fd(segment.path)
        if self._sync:
            sync_directory(self.directory)
        self._segments.append(segment)
        self._bases.append(base_offset)

    # -- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, below: int = NO_LIMIT, min_one: bool = True) -> bytes | memoryview:
        """Whole batches, the first one holding ``offset``, none with a base offset of ``below`` or more.

        At most ``max_bytes`` and from one segment; with ``min_one`` the first batch whatever its size. Empty at the
        end. Errors: OffsetOutOfRangeError (1), CorruptRecordError (2: that batch is damaged), KafkaStorageError (56).
        """
        if not self._start <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(f"{self.name} has offsets {self._start} to {self.end_offset}, not {offset}")
        for at in range(max(0, bisect_right(self._bases, offset) - 1), len(self._segments)):
            segment = self._segments[at]
            if segment.base_offset >= below:
                break
            data = segment.read(max(offset, segment.base_offset), max_bytes, below, min_one)
            if len(data):
                return data
            if segment.next_offset > offset:
                break
        return b""

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record, by offset, whose timestamp is ``timestamp`` (ms) or later."""
        for segment in self._segments:
            if segment.max_timestamp < timestamp or segment.next_offset <= self._start:
                continue
            for header, data in self._batches(segment, segment.index.position_before_time(timestamp)):
                if header.max_timestamp >= timestamp and header.last_offset >= self._start:
                    for record in decode_raw(data, header):
                        if record[1] >= timestamp and record[0] >= self._start:
                            return FoundOffset(record[0], record[1], header.leader_epoch)
        return None

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record that has the log's greatest timestamp; None when no record has one."""
        best = max(self._segments, key=lambda segment: (segment.max_timestamp, -segment.base_offset))
        if best.max_timestamp < 0:
            return None
        for header, data in self._batches(best, best.index.position_of(best.max_timestamp_offset)):
            if header.base_offset == best.max_timestamp_offset:
                for record in decode_raw(data, header):
                    if record[1] == header.max_timestamp:
                        return FoundOffset(record[0], record[1], header.leader_epoch)
        return None

    def _batches(self, segment: Segment, position: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Each batch from a batch's position on, read whole; damaged ones are passed over."""
        for at, _, _, length in segment.batches_from(position):
            data = self._pool.read(segment.path, at, length)
            header = parse_header(data)
            if header is not None:
                yield header, data

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Raise the start offset (DeleteRecords, retention), remove segments that lie below, and give the new start.

        OffsetOutOfRangeError for an offset behind the end.
        """
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"{self.name} ends at {self.end_offset}, before {offset}")
        if offset > self._start:
            replace_file(os.path.join(self.directory, START_OFFSET_NAME), b"%d\n" % offset, sync=self._sync)
            self._start = offset
        while len(self._segments) > 1 and self._segments[0].next_offset <= self._start:
            segment = self._segments.pop(0)
            del self._bases[0]
            self._dirty.discard(segment.path)
            segment.delete()
        return self._start

    # -- durability --------------------------------------------------------------------------------------------------

    def _mark_dirty(self, segment: Segment) -> None:
        if not self._dirty:
            self._on_dirty(self)
        self._dirty.add(segment.path)

    def flush(self) -> None:
        """Wait until all that was appended is on the disk."""
        for path in list(self._dirty):
            self._pool.sync(path)
            self._dirty.discard(path)

    def close(self) -> None:
        """Flush and seal, so that the next opening is quick; the files are let go."""
        self.flush()
        for segment in self._segments:
            if segment.size and not segment.is_sealed and segment is self._segments[-1]:
                segment.seal(self.producers.snapshot())
            self._pool.forget(segment.path)

    # -- open --------------------------------------------------------------------------------------------------------

    def _open(self, now_ms: int) -> None:
        make_directory(self.directory)
        saved = self._saved_start()
        try:
            names = sorted(name for name in os.listdir(self.directory) if name.endswith(".log"))
        except OSError as error:
            raise storage_error("read the directory", self.directory, error) from error
        for name in names:
            stem = name[: -len(".log")]
            if not stem.isdigit():
                raise KafkaStorageError(f"{os.path.join(self.directory, name)} is no segment of a log")
            segment = Segment(self._pool, os.path.join(self.directory, name), int(stem))
            segment.created_ms = now_ms
            self._load(segment, is_last=name == names[-1])
            self._segments.append(segment)
            self._bases.append(segment.base_offset)
        if not self._segments:
            self._add_segment(saved, now_ms)
        self._start = max(saved, self._bases[0])
        if self._start > self.end_offset:
            self._add_segment(self._start, now_ms)

    def _load(self, segment: Segment, *, is_last: bool) -> None:
        size = os.path.getsize(segment.path)
        producers = segment.load_seal(size)
        if producers is not None:
            try:
                self.producers.restore(producers)
                return
            except (TypeError, ValueError):
                log.warning("%s: the producers in %s cannot be read", self.name, segment.seal_path)
        remove_file(segment.seal_path)
        segment.unseal()
        self.recovered_bytes += size

        def on_batch(header: BatchHeader, after_damage: bool) -> None:
            segment.note(
                header.base_offset, header.next_offset, header.start, header.length, header.max_timestamp, after_damage
            )
            self.producers.update(header, header.base_offset, header.max_timestamp, max(0, header.max_timestamp))

        try:
            result = scan_segment(segment.path, segment.base_offset, on_batch)
        except OSError as error:
            raise KafkaStorageError(f"cannot read {segment.path}: {error.strerror or error}") from error
        segment.damages = result.damages
        for damage in result.damages:
            log.error(
                "%s: %d bytes at byte %d of %s are damaged, offsets %d to %d: %s; they are kept and not served",
                self.name, damage.end - damage.start, damage.start, segment.path, damage.first_offset,
                damage.next_offset - 1, damage.cause,
            )  # fmt: skip
        torn = result.size - result.end
        if torn and is_last:
            self._pool.truncate(segment.path, result.end)
            log.warning(
                "%s: cut a torn tail of %d bytes off %s, which now ends at byte %d and offset %d: %s",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip
        elif torn:
            log.error(
                "%s: the last %d bytes of %s are damaged, from byte %d and offset %d on: %s; they are kept, not served",
                self.name, torn, segment.path, result.end, segment.next_offset, result.cause,
            )  # fmt: skip

    def _saved_start(self) -> int:
        path = os.path.join(self.directory, START_OFFSET_NAME)
        try:
            with open(path, "rb") as file:
                text = file.read()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error("read", path, error) from error
        if not text.endswith(b"\n") or not text.strip().isdigit():
            log.warning("%s: %s says %r, which is no start offset: all that is there is served", self.name, path, text)
            return 0
        return int(text)

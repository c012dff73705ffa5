"""The log of one partition: segments of record batches in a directory, appended to at the end, read anywhere.

    <directory>/00000000000000000000.log .seal   full, sealed
                00000000000000001200.log .seal   the active segment; its seal is a checkpoint
                start-offset                     when DeleteRecords raised the log start offset within a segment
                cleaner-offset                   the offset up to which it has been compacted: cleaner.py
                *.cleaned *.swap                 being compacted: files.py
                *.deleted                        waiting to be deleted: files.py

    log start offset <= ... readable ... < log end offset (which is also the high watermark: there are no followers)

Batches keep the bytes that producers sent, except for base offset and leader epoch (and the timestamp, with
message.timestamp.type=LogAppendTime). An append is one ``write()``, so a killed process loses nothing that was
acknowledged; ``flushing.py`` decides what a crash of the machine loses. Opening a log trusts seals, scans what lies
behind them, truncates a torn tail with a log line, and leaves corrupt bytes in the middle where they are: their
offsets give CorruptRecordError, all others are served (``recovery.py``).

After a failed fsync the kernel may have dropped the pages, and calling it again may report success. So such a log
takes no more writes until it is opened again; reads go on. A file that could not even be opened for the fsync (no
descriptor is left) is different: nothing is lost, and it stays to be synced.

:func:`find_expired_segments` decides what retention deletes, ``cleaner.py`` what is compacted.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.broker.log.files import (
    DELETED,
    Buffer,
    FilePool,
    OutOfDescriptorsError,
    delete_files,
    rename,
    replace_file,
)
from kafka.broker.log.leader_epochs import LeaderEpochs
from kafka.broker.log.producer_state import ProducerStates, TransactionMarker
from kafka.broker.log.recovery import START_OFFSET_NAME, LogRecovery, seal_state, write_seal
from kafka.broker.log.segment import (
    Seal,
    Segment,
    TimestampOffset,
    TimestampSearch,
    find_first_since,
    find_max_timestamp,
    run_search,
    segment_name,
)
from kafka.errors import CorruptRecordError, KafkaStorageError, MessageSizeTooLargeError, OffsetOutOfRangeError
from kafka.records import (
    ABORT,
    COMMIT,
    BatchHeader,
    ControlMarker,
    control_batch,
    parse_header,
    rewrite_base,
    set_log_append_time,
    set_max_timestamp,
    validate_batch,
)


class LogConfig(NamedTuple):
    """The topic configuration that a log acts on. ``log_append_time``: whether ``message.timestamp.type`` is
    LogAppendTime; ``deletes``, ``compacts``: the parts of ``cleanup.policy``; the others are numbers, named as their
    settings.

    ``LogDirectory`` and the broker merge the topic's values with the defaults; ``config.py`` validates them. To let
    a log act on one more number, add it here and there."""

    log_append_time: bool = False
    deletes: bool = True
    compacts: bool = False
    segment_bytes: int = 1 << 30
    max_message_bytes: int = 1_048_588
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = 24 * 3600 * 1000
    message_timestamp_before_max_ms: int = 2**63 - 1
    message_timestamp_after_max_ms: int = 3600 * 1000

    @property
    def roll_ms(self) -> int:
        """The age at which the active segment is rolled, so that its records can be compacted in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms


def log_config(values: Mapping[str, str]) -> LogConfig:
    """What a topic's configuration, as text, says to its logs."""
    policies = [policy.strip() for policy in values.get("cleanup.policy", "delete").split(",")]
    numbers: dict[str, Any] = {}
    for field, default in LogConfig._field_defaults.items():
        text = values.get(field.replace("_", "."))
        if text is not None:
            numbers[field] = type(default)(text)
    return LogConfig(**numbers)._replace(
        log_append_time=values.get("message.timestamp.type") == "LogAppendTime",
        deletes="delete" in policies,
        compacts="compact" in policies,
    )


MAX_OFFSET_DELTA = 2**31 - 1
"""Between a segment's base and its last offset, as in Kafka."""


def should_roll(
    last: Segment, config: LogConfig, length: int, last_offset_delta: int, max_timestamp: int, now_ms: int
) -> bool:
    """Whether a batch of ``length`` bytes and these offsets and timestamps needs a new segment, for one of:

    segment.bytes      the segment would exceed it with the batch
    segment.ms         by the records' own clock: counted from the greatest timestamp of the segment's first batch, as
                       in Kafka, so an idle partition keeps its active segment. Without timestamps, by the broker's
                       clock. Of a compacted log max.compaction.lag.ms, if that is less
    always             the offset is too far from the segment's base, or the segment has corrupt bytes
    """
    if not last.size:
        return False
    first = last.first_timestamps[1]
    since, until = (first, max_timestamp) if first >= 0 else (last.created_ms, now_ms)
    if config.log_append_time:
        until = now_ms
    return (
        last.size + length > config.segment_bytes
        or last.next_offset + last_offset_delta - last.base_offset > MAX_OFFSET_DELTA
        or until - since > (config.roll_ms if config.compacts else config.segment_ms)
        or bool(last.corrupt_ranges)
    )


_Unflushed = tuple[Segment | None, Seal | None]


class UnflushedFiles:
    """The files and directories of one log that are not known to be on the disk, and the seals that wait for them.

    mark ──> paths ──begin_flush()──> the flusher syncs them ──end_flush()──> the seals that may be written now
                 <── mark: written to meanwhile, so the next flush covers it too
                 <── restore(): they could not be opened now, so the next flush covers them

    ``on_mark`` is called whenever a path is marked.
    """

    def __init__(self, on_mark: Callable[[], None]) -> None:
        self.paths: dict[str, _Unflushed] = {}
        """Paths written to since the last flush began; a segment's file with its segment, and with the seal that is to
        be written when the bytes that it describes have been synced."""
        self._on_mark = on_mark
        self._in_flush: list[tuple[str, _Unflushed]] = []

    def mark(self, path: str, segment: Segment | None = None, seal: Seal | None = None) -> None:
        """``path`` was written to."""
        self.paths[path] = segment, seal
        self._on_mark()

    def __contains__(self, path: str) -> bool:
        """Whether the path waits for a flush, or one is under way."""
        return path in self.paths or any(path == one for one, _ in self._in_flush)

    def begin_flush(self) -> list[str]:
        """A flush begins: the paths to sync."""
        self._in_flush += self.paths.items()
        self.paths.clear()
        return [path for path, (segment, _) in self._in_flush if segment is None or not segment.is_removed]

    def restore(self) -> None:
        """The flush could not open the files: they are still to be synced."""
        done, self._in_flush = self._in_flush, []
        for path, (segment, seal) in done:
            if segment is None or not segment.is_removed:
                _, newer = self.paths.get(path, (None, None))
                self.mark(path, segment, newer or seal)

    def end_flush(self) -> list[tuple[Segment, Seal]]:
        """The flush has ended, with success or not: the seals that waited for it."""
        done, self._in_flush = self._in_flush, []
        return [
            (segment, seal)
            for _, (segment, seal) in done
            if segment is not None and seal is not None and not segment.is_removed
        ]


CHECKPOINT_BYTES = 32 << 20
CHECKPOINT_BATCHES = 30_000
"""A start scans hardly more than this behind the last checkpoint: about a quarter of a second's work either way."""
NO_LIMIT = 2**63 - 1


class LogAppendInfo(NamedTuple):
    """The offsets that a batch got (inclusive); ``append_time_ms`` is -1 for CreateTime. A duplicate was not appended
    again: these are the first one's.
    """

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class PartitionLog:
    """One partition's log. ``name`` (topic-partition) is for errors and log lines; ``on_dirty`` is called with the log
    when unflushed bytes are written; ``delete`` gets the paths of files to delete, which have their ``.deleted`` names
    already."""

    def __init__(
        self,
        directory: str,
        name: str,
        pool: FilePool,
        config: LogConfig,
        *,
        on_dirty: Callable[[PartitionLog], None] = lambda log: None,
        delete: Callable[[Sequence[str]], None] = delete_files,
        now_ms: int = 0,
        sync: bool = True,
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.recovered_bytes = 0
        """How many bytes had to be scanned when the log was opened."""
        self.failure: KafkaStorageError | None = None
        """Why the log takes no more writes."""
        self.is_closed = False
        """Whether the topic was deleted or the log directory has closed this log."""
        self.pool = pool
        self._delete = delete
        self._sync = sync
        self._unflushed = UnflushedFiles(lambda: on_dirty(self))
        self._unsealed_batches = 0
        self._segments: list[Segment] = []
        # Base offsets of `_segments`, for bisection.
        self._bases: list[int] = []
        self._start = 0
        self._has_files = os.path.isdir(directory)
        self._open(now_ms)

    def _open(self, now_ms: int) -> None:
        saved, scanned = 0, []
        if self._has_files:
            recovery = LogRecovery(self, now_ms)
            saved = recovery.load_start_offset()
            self.delete_files(recovery.finish_interrupted_swaps())
            for segment in recovery.segments():
                self._segments.append(segment)
                self._bases.append(segment.base_offset)
            self.recovered_bytes, scanned = recovery.recovered_bytes, recovery.scanned
        if not self._segments:
            self._add_segment(saved, now_ms)
        self._start = max(saved, self._bases[0])
        if self._start > self.end_offset:
            self._add_segment(self._start, now_ms)
        self.epochs.truncate_from_start(self._start)
        if not self.epochs.entries:
            self.epochs.assign(0, self._start)
        if self._has_files and self._sync and (scanned or not self._segments[-1].size):
            # The last process was killed: a duplicate of what it had not synced would be acknowledged without a flush.
            self._mark_directories()
            for segment in scanned:
                self._unflushed.mark(segment.path, segment)

    def _make_files(self) -> None:
        """Make the directory and the file of the only segment, before the first write. A reader makes none: one
        request may name ten thousand partitions, and each would take 1 ms. KafkaStorageError (56)."""
        self.pool.make_directory(self.directory)
        self.pool.fd(self._segments[-1].path)
        self._has_files = True
        if self._sync:
            self._mark_directories()

    def _mark_directories(self) -> None:
        parent = os.path.dirname(self.directory)
        for path in (self.directory, parent, os.path.dirname(parent)):
            self._unflushed.mark(path)

    # -- offsets ------------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._segments[-1].next_offset

    @property
    def leader_epoch(self) -> int:
        """The epoch that is stored in what is appended from now on."""
        return max(self.epochs.latest, 0)

    def begin_leader_epoch(self, epoch: int) -> None:
        """Store this epoch in what is appended from now on."""
        self.epochs.assign(epoch, self.end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest known epoch up to ``epoch`` and where it ended, as OffsetForLeaderEpoch wants it; (-1, -1) for
        epochs that have not begun."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop: the first offset of the earliest open transaction, or the end."""
        unstable = self.producers.first_unstable_offset
        return self.end_offset if unstable is None else max(unstable, self._start)

    def aborted_transactions(self, first: int, last: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction with records from ``first`` to ``last`` (inclusive),
        in the order of their markers: the aborted transactions of Fetch, which readers of committed records leave
        out."""
        return [(row.producer_id, row.first_offset) for row in self.producers.aborted_between(first, last)]

    def has_aborted(self, first: int, last: int) -> bool:
        """Whether :meth:`aborted_transactions` has any."""
        return next(self.producers.aborted_between(first, last), None) is not None

    @property
    def size_bytes(self) -> int:
        """All segments together."""
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is appended to."""
        return tuple(self._segments)

    # -- append ------------------------------------------------------------------------------------------------------

    def check(self, batch: Buffer) -> BatchHeader:
        """The header of a batch that a producer sent, if this log can take it as far as the header shows.

        Errors: MessageSizeTooLargeError (10), CorruptRecordError (2), InvalidRecordError (87), KafkaStorageError (56).
        """
        if self.failure is not None:
            raise self.failure
        most = self.config.max_message_bytes
        header = parse_header(batch)
        if header is not None and header.length > most:  # before its CRC is made
            raise MessageSizeTooLargeError(
                f"{self.name}: a batch of {header.length} bytes; max.message.bytes is {most}"
            )
        return validate_batch(batch, header=header)

    def append(
        self,
        batch: Buffer,
        *,
        now_ms: int,
        header: BatchHeader | None = None,
        max_timestamp: int | None = None,
        trusted: bool = False,
        must_begin_at_zero: bool = False,
    ) -> LogAppendInfo:
        """Append one batch v2 and give it its offsets.

        ``header``: what :meth:`check` gave, when that was called; ``max_timestamp``: the greatest of the records' (ms),
        when they were read, which the batch gets whatever its producer says. ``trusted``: the broker made it (control
        batches, internal topics), so it is not checked. Errors, each of which leaves the log as it was: those of
        :meth:`check`, OutOfOrderSequenceNumberError (45), InvalidProducerEpochError (47).
        """
        if self.failure is not None:  # also for a duplicate: what it repeats may be what is lost
            raise self.failure
        if header is None:
            header = parse_header(batch) if trusted else self.check(batch)
        if header is None:
            raise CorruptRecordError(f"{self.name}: a batch made by the broker is truncated")
        duplicate = self.producers.check(header, must_begin_at_zero=must_begin_at_zero)
        if duplicate is not None:
            time_ms = duplicate.timestamp if self.config.log_append_time else -1
            return LogAppendInfo(duplicate.base_offset, duplicate.last_offset, time_ms, True)
        data = bytearray(batch)
        if max_timestamp is not None and max_timestamp != header.max_timestamp:
            # Searches by timestamp trust the batch headers, which a producer may have filled wrongly.
            set_max_timestamp(data, 0, max_timestamp)
            header.change_max_timestamp(max_timestamp)
        base = self._write_batch(data, header.last_offset_delta, header.max_timestamp, now_ms, header)
        append_time = now_ms if self.config.log_append_time else -1
        return LogAppendInfo(base, base + header.last_offset_delta, append_time, False)

    def append_from_broker(self, batch: bytearray, last_offset_delta: int, now_ms: int) -> int:
        """Append an uncompressed batch that the broker made at ``now_ms``, without a producer id, and return its base
        offset. It is not validated, and the log may change its bytes. KafkaStorageError (56)."""
        if self.failure is not None:
            raise self.failure
        return self._write_batch(batch, last_offset_delta, now_ms, now_ms, None)

    def _write_batch(
        self, data: bytearray, last_offset_delta: int, max_timestamp: int, now_ms: int, header: BatchHeader | None
    ) -> int:
        """Write a batch that has passed all checks; ``header``: None for one without a producer id."""
        if not self._has_files:
            self._make_files()
        if should_roll(self._segments[-1], self.config, len(data), last_offset_delta, max_timestamp, now_ms):
            self.roll(now_ms)
        segment = self._segments[-1]
        base = segment.next_offset
        rewrite_base(data, 0, base, self.epochs.latest)
        if self.config.log_append_time and (header is None or not header.is_control):
            set_log_append_time(data, 0, now_ms)
            max_timestamp = now_ms
        segment.append(data, base, base + last_offset_delta + 1, max_timestamp, now_ms)
        self._unsealed_batches += 1
        if header is not None:
            self.producers.update(header, base, max_timestamp)
        if segment.path not in self._unflushed.paths:
            self._unflushed.mark(segment.path, segment)
        if not self._sync and self._is_checkpoint_due(segment):
            self._write_seal(segment, is_on_disk=False)
        return base

    def append_marker(self, marker: TransactionMarker, now_ms: int) -> int:
        """Append the control batch that ends a producer's transaction in this partition, and return its offset.

        Errors: those of :meth:`ProducerStates.check_marker`, KafkaStorageError (56).
        """
        self.producers.check_marker(marker)
        control = ControlMarker(COMMIT if marker.committed else ABORT, marker.coordinator_epoch)
        data = control_batch(control, now_ms, marker.producer_id, marker.epoch, 0, 0)
        offset = self.append(data, now_ms=now_ms, trusted=True).base_offset
        self.producers.end_transaction(marker, offset, now_ms)
        return offset

    def roll(self, now_ms: int) -> None:
        """Begin a new active segment, unless the last one is empty. The old one gets its seal when it is on disk."""
        last = self._segments[-1]
        if not last.size:
            return
        self._add_segment(last.next_offset, now_ms)
        if self._sync:
            self._unflushed.mark(last.path, last, self._seal_of(last, is_on_disk=True))
        else:
            self._write_seal(last, is_on_disk=False)
        self._unsealed_batches = 0

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(
            self.pool, os.path.join(self.directory, segment_name(base_offset) + ".log"), base_offset, now_ms
        )
        if self._has_files:
            self.pool.fd(segment.path)
            if self._sync:
                self._unflushed.mark(self.directory)
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
        if offset == self.end_offset:  # there may be no file yet
            return b""
        for at in range(max(0, bisect_right(self._bases, offset) - 1), len(self._segments)):
            segment = self._segments[at]
            if segment.base_offset >= below:
                break
            data = segment.read(max(offset, segment.base_offset), max_bytes, below, min_one)
            if len(data):
                return data
            # it has such batches, but none that fits the limits
            if segment.next_offset > max(offset, segment.base_offset):
                break
        return b""

    def search_timestamp(self, timestamp: int) -> TimestampSearch:
        """The first record, by offset, whose timestamp is ``timestamp`` (ms) or later. Yields as in
        ``time_slices.py``."""
        return self._search(lambda: find_first_since(self._segments, self._start, timestamp))

    def search_max_timestamp(self) -> TimestampSearch:
        """The first record that has the log's greatest timestamp; None when no record has one. Yields likewise."""
        return self._search(lambda: find_max_timestamp(self._segments))

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """As :meth:`search_timestamp`, at once."""
        return run_search(self.search_timestamp(timestamp))

    def _search(self, search: Callable[[], TimestampSearch]) -> TimestampSearch:
        """Run the search, again if compaction or retention has replaced segments meanwhile."""
        while True:
            before = tuple(self._segments)
            found = yield from search()
            if not any(segment.is_removed for segment in before):
                return found

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Raise the log start offset (DeleteRecords, retention), delete segments below it, and return it.

        OffsetOutOfRangeError for an offset beyond the end.
        """
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"{self.name} ends at {self.end_offset}, before {offset}")
        if offset > self._start:
            if offset not in self._bases:
                replace_file(os.path.join(self.directory, START_OFFSET_NAME), b"%d\n" % offset, sync=self._sync)
            self._start = offset
            self.epochs.truncate_from_start(offset)
        count = 0
        while count + 1 < len(self._segments) and self._bases[count + 1] <= self._start:
            count += 1
        if count:
            if not self._segments[count].sealed_size:
                # Also of an empty one: the producer state is otherwise only in the seals that are about to be deleted.
                last = self._segments[-1]
                self._write_seal(last, is_on_disk=not last.size or (self._sync and not self.is_unsynced(last)))
            self.replace_segments(0, count, ())
        self.producers.forget_aborted_before(self._bases[0])
        return self._start

    def delete_files(self, paths: Sequence[str]) -> None:
        """Delete files that have their ``.deleted`` names already, in the background if there is one."""
        if paths:
            self._delete(paths)

    def configure(self, config: LogConfig) -> None:
        """Use this configuration from now on."""
        self.config = config

    def fail(self, error: KafkaStorageError) -> None:
        """Take no more writes, because of this error."""
        self.failure = error

    def mark_closed(self) -> None:
        """The log directory no longer has this log."""
        self.is_closed = True

    def replace_segments(self, first: int, after: int, new: Sequence[Segment]) -> None:
        """Replace segments number ``first`` to ``after`` (exclusive) by ``new``, and delete their files, except for
        those whose name a new segment has."""
        new_paths = {path for segment in new for path in segment.files}
        paths: list[str] = []
        for segment in self._segments[first:after]:
            segment.mark_removed()
            self._unflushed.paths.pop(segment.path, None)
            self.pool.forget(segment.path)
            paths += [path for path in segment.files if path not in new_paths]
        self._segments[first:after] = new
        self._bases[first:after] = [segment.base_offset for segment in new]
        renamed = [path + DELETED for path in paths if rename(path, path + DELETED)]
        if self._sync:
            self._unflushed.mark(self.directory)
        self.delete_files(renamed)

    # -- durability --------------------------------------------------------------------------------------------------

    def is_unsynced(self, segment: Segment) -> bool:
        """Whether the segment waits for a flush, or one is under way."""
        return self._sync and segment.path in self._unflushed

    def _seal_of(self, segment: Segment, *, is_on_disk: bool) -> Seal | None:
        return segment.make_seal(seal_state(self.producers, self.epochs, segment), is_on_disk=is_on_disk)

    def _write_seal(self, last: Segment, *, is_on_disk: bool) -> None:
        """Write the seal of the active segment."""
        write_seal(self.name, last, self._seal_of(last, is_on_disk=is_on_disk))
        self._unsealed_batches = 0

    def _is_checkpoint_due(self, last: Segment) -> bool:
        return self._unsealed_batches >= CHECKPOINT_BATCHES or last.size - last.sealed_size >= CHECKPOINT_BYTES

    def begin_flush(self) -> list[str]:
        """The files and directories written to: the caller syncs them, then calls :meth:`end_flush`."""
        last = self._segments[-1]
        if last.path in self._unflushed.paths and self._is_checkpoint_due(last):
            self._unflushed.paths[last.path] = last, self._seal_of(last, is_on_disk=True)
            self._unsealed_batches = 0
        return self._unflushed.begin_flush()

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """The paths of :meth:`begin_flush` are on the disk, or ``error``. After an OutOfDescriptorsError the next flush
        covers them again; any other error makes the log read-only."""
        if isinstance(error, OutOfDescriptorsError):
            self._unflushed.restore()
            return
        seals = self._unflushed.end_flush()
        if error is not None:
            self.failure = KafkaStorageError(
                f"{self.name} takes no more writes until the broker is restarted, because acknowledged records may be "
                f"lost: {error.args[0]}"
            )
            return
        for segment, seal in seals:
            write_seal(self.name, segment, seal)

    def flush(self) -> None:
        """Wait until all that was appended is on the disk."""
        for path in self.begin_flush():
            try:
                self.pool.sync(path)
            except KafkaStorageError as error:
                self.end_flush(error)
                raise
        self.end_flush(None)

    def close(self) -> None:
        """Flush and seal, so that the next opening is quick; close the files."""
        try:
            if self.failure is None:
                self.flush()
                last = self._segments[-1]
                if last.size and not last.is_sealed:
                    self._write_seal(last, is_on_disk=True)
        finally:
            for segment in self._segments:
                self.pool.forget(segment.path)


MAX_SEGMENTS = 200
"""Deleted at once at most, to bound the work of one turn of the loop."""


class ExpiredSegments(NamedTuple):
    """``start_offset``: the new log start offset; ``setting``: the one that says so; ``is_all``: no segment is left, so
    the active one has to be rolled first."""

    start_offset: int
    setting: str
    is_all: bool


def find_expired_segments(log: PartitionLog, now_ms: int) -> ExpiredSegments | None:
    """The segments that retention would delete now, oldest first as in Kafka, or None. ``now_ms``: the time of day.

    retention.bytes   delete while the log without the segment still has so many bytes
    retention.ms      delete segments whose greatest timestamp (without timestamps: whose last write) is older

    Producers set timestamps, so one record from the future keeps its segment, and all behind it, until its time has
    passed. The active segment is deleted too when all of it is too old. A log that is only compacted keeps everything.
    """
    config = log.config
    if not config.deletes:
        return None
    segments = log.segments
    # All but an empty active segment: open transactions do not keep segments, as in Kafka.
    deletable = segments if segments[-1].size else segments[:-1]
    count = 0
    setting = ""
    if config.retention_bytes >= 0:
        surplus = log.size_bytes - config.retention_bytes
        while count < len(deletable) and surplus >= deletable[count].size:
            surplus -= deletable[count].size
            count += 1
            setting = "retention.bytes"
    if config.retention_ms >= 0:
        while count < len(deletable) and now_ms - retention_timestamp_ms(deletable[count]) > config.retention_ms:
            count += 1
            setting = "retention.ms"
    if not count:
        return None
    count = min(count, MAX_SEGMENTS)
    is_all = count == len(segments)
    return ExpiredSegments(log.end_offset if is_all else segments[count].base_offset, setting, is_all)


def retention_timestamp_ms(segment: Segment) -> int:
    """The time from which a segment's age counts, in ms: its greatest timestamp, or its last write."""
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.modified_ms

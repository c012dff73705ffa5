"""The log of one partition: segments of record batches in a directory, appended to at the end, read anywhere.

    <directory>/00000000000000000000.log .seal   full, sealed
                00000000000000001200.log .seal   the last one is appended to; its seal is a checkpoint
                start-offset                     when records were deleted in the middle of a segment
                cleaner-offset                   up to where it has been compacted: cleaner.py
                *.cleaned *.swap                 being compacted: swap.py
                *.deleted                        on their way out

    start_offset <= ... readable ... < end_offset (the high watermark: there are no followers)

Batches stay the bytes that producers sent, but for base offset and leader epoch (and the time, where the topic says
LogAppendTime). An append is one ``write()``, so that a killed process loses nothing that was acknowledged; what a lost
machine loses is ``flush.py``'s. Opening trusts seals, scans what lies behind them, cuts a torn tail and says so, and
leaves bad bytes in the middle where they are: their offsets give CorruptRecordError, all others are served
(``opening.py``).

When the system could not bring bytes to the disk, nobody knows which of them are there, and asking again gives no
better answer. So such a log takes no more writes until it is opened again; reads go on. A file that could not even be
opened to be synced (no descriptor is left) is another matter: it stays to be synced.

Who decides what is deleted is ``retention.py``; who decides what is compacted, ``cleaner.py``.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from kafka.broker.log.epochs import LeaderEpochs
from kafka.broker.log.files import Buffer, FilePool, OutOfDescriptorsError, make_directory, replace_file
from kafka.broker.log.log_config import LogConfig
from kafka.broker.log.opening import START_OFFSET_NAME, Opener, seal_state, write_seal
from kafka.broker.log.producer_state import ProducerStates
from kafka.broker.log.rolling import is_over
from kafka.broker.log.segment import Seal, Segment, segment_name
from kafka.broker.log.swap import DELETED
from kafka.broker.log.trash import remove_files, set_aside
from kafka.broker.log.unsynced import Unsynced
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

if TYPE_CHECKING:
    from kafka.broker.log.time_search import FoundOffset, Search

CHECKPOINT_BYTES = 32 << 20
CHECKPOINT_BATCHES = 30_000
"""A start scans hardly more than this behind the last checkpoint: about a quarter of a second's work either way."""
NO_LIMIT = 2**63 - 1


class Appended(NamedTuple):
    """Where a batch went: offsets inclusive; ``append_time_ms`` is -1 for CreateTime. A duplicate went nowhere
    again.
    """

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool


class PartitionLog:
    """One partition's log. ``config`` may be replaced at any time. ``name`` is what errors and log lines call it;
    ``on_dirty`` is called with the log when bytes were written that no flush has seen; ``remove`` gets the paths of
    files that are done with, already out of the way."""

    def __init__(
        self,
        directory: str,
        name: str,
        pool: FilePool,
        config: LogConfig,
        *,
        on_dirty: Callable[[PartitionLog], None] = lambda log: None,
        remove: Callable[[Sequence[str]], None] | None = None,
        now_ms: int = 0,
        sync: bool = True,
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.producers = ProducerStates()
        self.epochs = LeaderEpochs()
        self.recovered_bytes = 0
        """How many bytes the opening had to scan."""
        self.failure: KafkaStorageError | None = None
        """Why nothing more can be written."""
        self.is_gone = False
        """Whether its topic was deleted, or whoever owns it has let it go."""
        self._pool = pool
        self._remove = remove if remove is not None else remove_files
        self._sync = sync
        self._unsynced = Unsynced(lambda: on_dirty(self))
        self._unsealed_batches = 0
        self._segments: list[Segment] = []
        self._bases: list[int] = []
        self._start = 0
        self._has_files = os.path.isdir(directory)
        self._open(now_ms)

    def _open(self, now_ms: int) -> None:
        saved, scanned = 0, []
        if self._has_files:
            opener = Opener(self.directory, self.name, self._pool, self.producers, self.epochs, now_ms)
            saved = opener.saved_start()
            self.removed(opener.tidy())
            for segment in opener.segments():
                self._segments.append(segment)
                self._bases.append(segment.base_offset)
            self.recovered_bytes, scanned = opener.recovered_bytes, opener.scanned
        if not self._segments:
            self._add_segment(saved, now_ms)
        self._start = max(saved, self._bases[0])
        if self._start > self.end_offset:
            self._add_segment(self._start, now_ms)
        self.epochs.begin_at(self._start)
        if not self.epochs.entries:
            self.epochs.assign(0, self._start)
        if self._has_files and self._sync and (scanned or not self._segments[-1].size):
            # A killed process has left it so: what it had not synced would be promised to who comes again.
            self._mark_names()
            for segment in scanned:
                self._unsynced.mark(segment.path, segment)

    def _make_files(self) -> None:
        """Make the directory and the file of the only segment, before the first write. Who only asks makes none: a
        request may name ten thousand partitions, and each would take 1 ms. KafkaStorageError (56)."""
        make_directory(self.directory)
        self._pool.fd(self._segments[-1].path)
        self._has_files = True
        if self._sync:
            self._mark_names()

    def _mark_names(self) -> None:
        parent = os.path.dirname(self.directory)
        for path in (self.directory, parent, os.path.dirname(parent)):
            self._unsynced.mark(path)

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
    def leader_epoch(self) -> int:
        """The epoch that is stored in what is appended from now on."""
        return max(self.epochs.latest, 0)

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
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
        in the order of their markers: what Fetch tells readers of committed records to leave out."""
        return [(row.producer_id, row.first_offset) for row in self.producers.aborted_between(first, last)]

    def has_aborted(self, first: int, last: int) -> bool:
        """Whether there is any."""
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
        """The header of a batch that a producer sent, if this log can take it as far as the header tells.

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
        begins_at_zero: bool = False,
    ) -> Appended:
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
            raise CorruptRecordError(f"{self.name}: a batch of the broker's own is cut")
        duplicate = self.producers.check(header, begins_at_zero=begins_at_zero)
        if duplicate is not None:
            time_ms = duplicate.timestamp if self.config.log_append_time else -1
            return Appended(duplicate.base_offset, duplicate.last_offset, time_ms, True)
        data = bytearray(batch)
        if max_timestamp is not None and max_timestamp != header.max_timestamp:
            set_max_timestamp(data, 0, max_timestamp)
            header.max_timestamp = max_timestamp
        base = self._put(data, header.last_offset_delta, header.max_timestamp, now_ms, header)
        append_time = now_ms if self.config.log_append_time else -1
        return Appended(base, base + header.last_offset_delta, append_time, False)

    def append_own(self, batch: bytearray, last_offset_delta: int, now_ms: int) -> int:
        """Append a plain batch that the broker made at ``now_ms``, without a producer, and give its base offset. It is
        not looked at, and is the log's to change. KafkaStorageError (56)."""
        if self.failure is not None:
            raise self.failure
        return self._put(batch, last_offset_delta, now_ms, now_ms, None)

    def _put(
        self, data: bytearray, last_offset_delta: int, max_timestamp: int, now_ms: int, header: BatchHeader | None
    ) -> int:
        """Write a batch that has passed all checks; ``header``: None for one that says nothing of producers."""
        if not self._has_files:
            self._make_files()
        segment = self._segment_for(len(data), last_offset_delta, max_timestamp, now_ms)
        base = segment.next_offset
        rewrite_base(data, 0, base, self.epochs.latest)
        if self.config.log_append_time and (header is None or not header.is_control):
            set_log_append_time(data, 0, now_ms)
            max_timestamp = now_ms
        segment.append(data, base, base + last_offset_delta + 1, max_timestamp)
        segment.modified_ms = now_ms
        self._unsealed_batches += 1
        if header is not None:
            self.producers.update(header, base, max_timestamp)
        if segment.path not in self._unsynced.paths:
            self._unsynced.mark(segment.path, segment)
        if not self._sync and self._is_checkpoint_due(segment):
            write_seal(self.name, segment, self._seal_of(segment, is_on_disk=False))
            self._unsealed_batches = 0
        return base

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        now_ms: int,
        *,
        must_be_newer: bool = False,
    ) -> int:
        """Append the control batch that ends a producer's transaction here, and give its offset.

        Errors: those of :meth:`ProducerStates.check_marker`, KafkaStorageError (56).
        """
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, must_be_newer=must_be_newer)
        marker = ControlMarker(COMMIT if committed else ABORT, coordinator_epoch)
        data = control_batch(marker, now_ms, producer_id, producer_epoch, 0, 0)
        appended = self.append(data, now_ms=now_ms, trusted=True)
        self.producers.end_transaction(
            producer_id,
            producer_epoch,
            appended.base_offset,
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
        )
        return appended.base_offset

    def roll(self, now_ms: int) -> None:
        """Close the last segment and begin another one, unless it is empty. It gets its seal when it is on the disk."""
        last = self._segments[-1]
        if not last.size:
            return
        self._add_segment(last.next_offset, now_ms)
        if self._sync:
            last.waiting_seal = self._seal_of(last, is_on_disk=True)
            self._unsynced.mark(last.path, last)
        else:
            write_seal(self.name, last, self._seal_of(last, is_on_disk=False))
        self._unsealed_batches = 0

    def _segment_for(self, length: int, last_offset_delta: int, max_timestamp: int, now_ms: int) -> Segment:
        """The last segment, or a new one when that is full or too old."""
        if is_over(self._segments[-1], self.config, length, last_offset_delta, max_timestamp, now_ms):
            self.roll(now_ms)
        return self._segments[-1]

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = Segment(self._pool, os.path.join(self.directory, segment_name(base_offset) + ".log"), base_offset)
        segment.created_ms = segment.modified_ms = now_ms
        if self._has_files:
            self._pool.fd(segment.path)
            if self._sync:
                self._unsynced.mark(self.directory)
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
            if segment.next_offset > max(offset, segment.base_offset):  # it has such batches, and may not give them
                break
        return b""

    def search_timestamp(self, timestamp: int) -> Search:
        """The first record, by offset, whose timestamp is ``timestamp`` (ms) or later. Yields as in ``slices.py``."""
        from kafka.broker.log.time_search import first_since  # here and below: most brokers are never asked

        return self._search(lambda: first_since(self._segments, self._start, timestamp))

    def search_max_timestamp(self) -> Search:
        """The first record that has the log's greatest timestamp; None when no record has one. Yields likewise."""
        from kafka.broker.log.time_search import first_newest

        return self._search(lambda: first_newest(self._segments))

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """As :meth:`search_timestamp`, at once."""
        from kafka.broker.log.time_search import run_to_end

        return run_to_end(self.search_timestamp(timestamp))

    def _search(self, search: Callable[[], Search]) -> Search:
        """Again, when compaction or retention has replaced segments meanwhile."""
        while True:
            before = tuple(self._segments)
            found = yield from search()
            if not any(segment.is_gone for segment in before):
                return found

    # -- delete ------------------------------------------------------------------------------------------------------

    def delete_before(self, offset: int) -> int:
        """Raise the start offset (DeleteRecords, retention), remove segments that lie below, and give the new start.

        OffsetOutOfRangeError for an offset behind the end.
        """
        if offset > self.end_offset:
            raise OffsetOutOfRangeError(f"{self.name} ends at {self.end_offset}, before {offset}")
        if offset > self._start:
            if offset not in self._bases:
                replace_file(os.path.join(self.directory, START_OFFSET_NAME), b"%d\n" % offset, sync=self._sync)
            self._start = offset
            self.epochs.begin_at(offset)
        gone = 0
        while gone + 1 < len(self._segments) and self._bases[gone + 1] <= self._start:
            gone += 1
        if gone:
            if not self._segments[gone].sealed_size:
                self._keep_state()
            self.replace_segments(0, gone, ())
        self.producers.forget_aborted_before(self._bases[0])
        return self._start

    def _keep_state(self) -> None:
        """Checkpoint the last segment, even an empty one: the seals that are about to go were the only ones that knew
        of producers who may ask again."""
        last = self._segments[-1]
        is_on_disk = not last.size or (self._sync and not self.is_unsynced(last))
        write_seal(self.name, last, self._seal_of(last, is_on_disk=is_on_disk))
        self._unsealed_batches = 0

    @property
    def pool(self) -> FilePool:
        """The open files."""
        return self._pool

    def removed(self, paths: Sequence[str]) -> None:
        """These files are done with, and out of the way."""
        if paths:
            self._remove(paths)

    def replace_segments(self, first: int, after: int, new: Sequence[Segment]) -> None:
        """Put others in the place of segments number ``first`` to ``after`` (exclusive), whose files go, but for those
        whose name a new one has."""
        kept = {path for segment in new for path in segment.files}
        paths: list[str] = []
        for segment in self._segments[first:after]:
            segment.is_gone = True
            self._unsynced.forget(segment.path)
            self._pool.forget(segment.path)
            paths += [path for path in segment.files if path not in kept]
        self._segments[first:after] = new
        self._bases[first:after] = [segment.base_offset for segment in new]
        aside = [path + DELETED for path in paths if set_aside(path)]
        if self._sync:
            self._unsynced.mark(self.directory)
        self.removed(aside)

    # -- durability --------------------------------------------------------------------------------------------------

    def is_unsynced(self, segment: Segment) -> bool:
        """Whether it waits for a flush, or one is under way."""
        return self._sync and self._unsynced.holds(segment.path)

    def _seal_of(self, segment: Segment, *, is_on_disk: bool) -> Seal | None:
        return segment.make_seal(seal_state(self.producers, self.epochs, segment), is_on_disk=is_on_disk)

    def _is_checkpoint_due(self, last: Segment) -> bool:
        return self._unsealed_batches >= CHECKPOINT_BATCHES or last.size - last.sealed_size >= CHECKPOINT_BYTES

    def begin_flush(self) -> list[str]:
        """The files and directories that were written to: somebody syncs them, and then calls :meth:`end_flush`."""
        last = self._segments[-1]
        if last.path in self._unsynced.paths and self._is_checkpoint_due(last):
            last.waiting_seal = self._seal_of(last, is_on_disk=True)
            self._unsealed_batches = 0
        return self._unsynced.begin()

    def end_flush(self, error: KafkaStorageError | None) -> None:
        """What :meth:`begin_flush` told is on the disk, or could not be brought there. After an OutOfDescriptorsError
        the next flush has it."""
        if isinstance(error, OutOfDescriptorsError):
            self._unsynced.put_back()
            return
        waiting = self._unsynced.end()
        if error is not None:
            self.failure = KafkaStorageError(
                f"{self.name} takes no more writes until the broker is started again, as some may be lost: "
                f"{error.args[0]}"
            )
            return
        for segment, seal in waiting:
            write_seal(self.name, segment, seal)

    def flush(self) -> None:
        """Wait until all that was appended is on the disk."""
        for path in self.begin_flush():
            try:
                self._pool.sync(path)
            except KafkaStorageError as error:
                self.end_flush(error)
                raise
        self.end_flush(None)

    def close(self) -> None:
        """Flush and seal, so that the next opening is quick; the files are let go."""
        try:
            if self.failure is None:
                self.flush()
                last = self._segments[-1]
                if last.size and not last.is_sealed:
                    write_seal(self.name, last, self._seal_of(last, is_on_disk=True))
        finally:
            for segment in self._segments:
                self._pool.forget(segment.path)

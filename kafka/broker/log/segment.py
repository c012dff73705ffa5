"""One segment of a partition's log: a file of record batches, and what is known of it.

    00000000000000001200.log     batches from offset 1200 on, as producers sent them, one after the other
    00000000000000001200.seal    what is known of its first ``size`` bytes, so that a start need not read them:

        0  magic           4s   "KSL2"
        4  crc             u32  CRC-32 of everything behind, up to the index
        8  size            i64  bytes of the .log file that are described
       16  next_offset     i64
       24  max_timestamp   i64  ms, -1: none
       32  max_offset      i64  base offset of the batch that has it
       40  boot            16s  zeros: these bytes were on the disk before the seal was written; else the system's boot
       56  state_bytes     u32
       60  index_bytes     u32
       64  index_crc       u32
       68  state           JSON: producers, leader epochs (partition_log.py) as they were at the end of these bytes
           index           SparseIndex; read when it is first needed

A full segment's seal describes all of it; that of a segment that is appended to is a checkpoint, and what lies behind
is scanned, with all CRCs. A seal that was written before its bytes were synced is trusted only until the machine
restarts: a killed process loses nothing that it wrote; after a crash of the machine such a segment is scanned.
"""

from __future__ import annotations

import functools
import json
import logging
import mmap
import os
import struct
import sys
import uuid
import zlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

from kafka.broker.log.files import FilePool, is_out_of_descriptors, replace_file, storage_error, storage_errors
from kafka.broker.private_files import open_private
from kafka.broker.time_slices import TimeSliceBudget, read_batch
from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records import HEADER_BYTES, BatchHeader, check_crc, parse_header
from kafka.records.compression import InflationLimitError
from kafka.records.header import FRAME_BYTES, MAGIC_AT
from kafka.records.reader import FirstSince

INTERVAL_BYTES = 4096


class SparseIndex:
    """The sparse index of one segment: offsets and timestamps -> positions in the file, one entry for about 4 KiB.

    entry:  base offset of a batch | its position | the greatest timestamp of all batches before it

    All three columns ascend, so each look-up is one bisection. 24 bytes for 4 KiB of log: 6 MB for a segment of 1 GiB.
    It lives in memory, is built by appending and by scanning, and is stored in the segment's seal.
    """

    __slots__ = ("_end", "offsets", "positions", "times")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        self._end = -INTERVAL_BYTES

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, base_offset: int, position: int, max_timestamp_before: int, *, force: bool = False) -> None:
        """Add an entry for a batch, if the last entry is far enough away or ``force``."""
        if position - self._end >= INTERVAL_BYTES or force:
            self.offsets.append(base_offset)
            self.positions.append(position)
            self.times.append(max_timestamp_before)
            self._end = position

    def position_of(self, offset: int) -> int:
        """The last known position of a batch that begins at or below ``offset``; 0 when there is none."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before(self, position: int) -> int:
        """The last known position of a batch at or below ``position``."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def position_before_time(self, timestamp: int) -> int:
        """A position below which no batch has a timestamp of ``timestamp`` or more."""
        at = bisect_left(self.times, timestamp) - 1
        return self.positions[at] if at >= 0 else 0

    def to_bytes(self) -> bytes:
        """The three columns, one after the other, little-endian."""
        return b"".join(_little(column).tobytes() for column in (self.offsets, self.positions, self.times))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> SparseIndex:
        """The inverse of :meth:`to_bytes`; ValueError for a length that cannot be."""
        if len(data) % 24:
            raise ValueError(f"an index has a multiple of 24 bytes, not {len(data)}")
        index = cls()
        size = len(data) // 3
        for at, column in enumerate((index.offsets, index.positions, index.times)):
            column.frombytes(bytes(data[at * size : (at + 1) * size]))
            if sys.byteorder == "big":
                column.byteswap()
        if index.positions:
            index._end = index.positions[-1]
        return index


def _little(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = array("q", column)
    swapped.byteswap()
    return swapped


class CorruptRange(NamedTuple):
    """Bytes ``start`` to ``end`` (exclusive) of a segment that hold no valid batches; offsets ``first_offset`` to
    ``next_offset`` (exclusive) were there."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    cause: str


class ScanResult(NamedTuple):
    """``end``: where the last valid batch ends; ``size``: where the file does; ``cause``: why the bytes between them
    are no batch."""

    end: int
    size: int
    corrupt_ranges: tuple[CorruptRange, ...]
    cause: str


def scan_segment(
    path: str, expected: int, on_batch: Callable[[BatchHeader, bool], None], start: int = 0
) -> ScanResult:
    """Walk through a segment from byte ``start`` on, with all CRCs checked: after a crash, where no seal says what
    is in it. ``expected``: the least offset that a batch there can have.

    valid batch | valid batch | corrupt bytes | valid batch | torn batch
    ─────────────────────────   ─────────────   ───────────   ──────────
    served                      a CorruptRange: served        the tail: truncated, if
                                kept, but not                 this segment is the last
                                served

    Corrupt bytes with a valid batch behind them are not the torn write of a crash; they are never cut, because what
    follows was acknowledged. The next valid batch is found by its CRC, at any byte.

    ``on_batch(header, after_corruption)`` is called for each valid batch; ``header.start`` and ``end`` are positions in
    the file.
    """
    size = os.path.getsize(path)
    if size == start:
        return ScanResult(size, size, (), "")
    with (
        open(path, "rb", opener=open_private) as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as data,
    ):
        return _scan(mapped, data, start, size, expected, on_batch)


def _scan(
    mapped: mmap.mmap,
    data: memoryview,
    position: int,
    size: int,
    expected: int,
    on_batch: Callable[[BatchHeader, bool], None],
) -> ScanResult:
    """Walk through the bytes, batch by batch; after a corrupt one go on with the next valid batch, if there is one."""
    corrupt_ranges: list[CorruptRange] = []
    while position < size:
        found = _valid_batch_at(data, position, size, expected)
        after_corruption = False
        if isinstance(found, str):
            cause = found
            following = _next_valid_batch(mapped, data, position + 1, size, expected)
            if following is None:
                return ScanResult(position, size, tuple(corrupt_ranges), cause)
            corrupt_ranges.append(CorruptRange(position, following.start, expected, following.base_offset, cause))
            found, after_corruption = following, True
        on_batch(found, after_corruption)
        position = found.end
        expected = found.next_offset
    return ScanResult(position, size, tuple(corrupt_ranges), "")


def _valid_batch_at(data: memoryview, position: int, size: int, expected: int) -> BatchHeader | str:
    """The batch at a position, or why there is none."""
    try:
        header = parse_header(data, position)
        if header is None:
            return f"a batch is torn: {size - position} bytes are left of it"
        if header.magic != 2:
            return f"a batch has the magic {header.magic}"
        if header.base_offset < expected:
            return f"a batch has the offset {header.base_offset}, below {expected}"
        check_crc(data, header)
    except CorruptRecordError as error:
        return str(error.args[0]) if error.args else "a batch is corrupt"
    return header


def _next_valid_batch(mapped: mmap.mmap, data: memoryview, start: int, size: int, expected: int) -> BatchHeader | None:
    """The first valid batch that begins at ``start`` or later, if there is one."""
    position = start - 1
    while True:
        position = mapped.find(b"\x02", position + 1 + MAGIC_AT) - MAGIC_AT
        if position < start or position > size - HEADER_BYTES:
            return None
        if expected <= int.from_bytes(data[position : position + 8], "big") < expected + 2**31:
            found = _valid_batch_at(data, position, size, expected)
            if not isinstance(found, str):
                return found


log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
_SEAL = struct.Struct(">4sIqqqq16sIII")
_SEAL_MAGIC = b"KSL2"
_CRC_FROM = 8
_ON_DISK = bytes(16)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_TIMESTAMPS = struct.Struct(">27xqq")
"""base and greatest timestamp of a batch"""
_PEEK = struct.Struct(">qi4xb6xi")
"""base offset, size, magic, last offset delta"""
CHUNK_BYTES = 2 * INTERVAL_BYTES
"""Read at once to find a batch."""


def segment_name(base_offset: int) -> str:
    """The file's name without its suffix: the base offset in 20 digits, as Kafka names its segments."""
    return f"{base_offset:020d}"


@functools.cache
def boot_id() -> bytes:
    """An id that changes when the machine restarts; empty where the system has none: then no such seal is trusted."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return b""


class Seal(NamedTuple):
    """A seal's bytes, ready to be written when what it describes is on the disk."""

    size: int
    data: bytes


class SealHeader(NamedTuple):
    """The fields at the beginning of a seal, in their order."""

    magic: bytes
    crc: int
    size: int
    next_offset: int
    max_timestamp: int
    max_timestamp_offset: int
    boot: bytes
    state_bytes: int
    index_bytes: int
    index_crc: int


def batch_bounds(data: bytes | memoryview) -> list[tuple[int, int]]:
    """Base and last offset of each whole batch in bytes that :meth:`PartitionLog.read` returned."""
    return [(base, last) for base, last, _ in batch_positions(data)]


def batch_positions(data: bytes | memoryview) -> list[tuple[int, int, int]]:
    """The same, and where each batch ends in the bytes."""
    found: list[tuple[int, int, int]] = []
    at = 0
    end = len(data)
    while at + HEADER_BYTES <= end:
        base, size, _, delta = _PEEK.unpack_from(data, at)
        at += size + FRAME_BYTES
        if at > end:
            break
        found.append((base, base + delta, at))
    return found


def read_seal(path: str) -> tuple[SealHeader, dict[str, Any]] | None:
    """A seal's fields and state, without the index; None when it is missing or damaged. OutOfDescriptorsError: it may
    be valid."""
    try:
        with open(path, "rb", opener=open_private) as file:
            data = file.read(_SEAL.size)
            header = SealHeader(*_SEAL.unpack(data))
            text = file.read(header.state_bytes)
            is_whole = os.fstat(file.fileno()).st_size == _SEAL.size + header.state_bytes + header.index_bytes
        if header.magic != _SEAL_MAGIC or zlib.crc32(text, zlib.crc32(data[_CRC_FROM:])) != header.crc or not is_whole:
            return None
        state = json.loads(text)
    except OSError as error:
        if is_out_of_descriptors(error):
            raise storage_error("read", path, error) from error
        return None
    except (ValueError, struct.error):
        return None
    return (header, state) if isinstance(state, dict) else None


class Segment:
    """A segment's file and what is known of it; reading checks only the framing of batches."""

    __slots__ = (
        "_first_timestamps", "_index", "base_offset", "corrupt_ranges", "created_ms", "is_removed",
        "max_timestamp", "max_timestamp_offset", "modified_ms", "next_offset", "path", "pool",
        "sealed_size", "size", "torn_bytes",
    )  # fmt: skip

    def __init__(
        self, pool: FilePool, path: str, base_offset: int, created_ms: int = 0, modified_ms: int | None = None
    ) -> None:
        self.pool = pool
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.corrupt_ranges: tuple[CorruptRange, ...] = ()
        self.torn_bytes = 0
        """Corrupt bytes at the end of the file, when other segments follow."""
        self.is_removed = False
        """Whether the segment is no longer part of its log."""
        self.sealed_size = 0
        """How many bytes the seal describes; 0: there is none."""
        self.created_ms = created_ms
        self.modified_ms = created_ms if modified_ms is None else modified_ms
        """When the segment was last written to: its age, for records without timestamps."""
        # None: in its file, and loaded when it is needed.
        self._index: SparseIndex | None = SparseIndex()
        self._first_timestamps: tuple[int, int] | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether the seal describes the whole file."""
        return self.sealed_size == self.size

    @property
    def index(self) -> SparseIndex:
        """Offsets and timestamps -> positions; of a segment opened by its seal, read when it is first needed."""
        if self._index is None:
            self._index = self._load_index()
        return self._index

    @property
    def first_timestamps(self) -> tuple[int, int]:
        """The first batch's base timestamp and greatest one in ms; -1 where there is none."""
        if self._first_timestamps is None:
            data = self.pool.read(self.path, 0, HEADER_BYTES) if self.size else b""
            if len(data) < HEADER_BYTES:
                return NO_TIMESTAMP, NO_TIMESTAMP
            base, greatest = _TIMESTAMPS.unpack_from(data)
            self._first_timestamps = base, greatest
        return self._first_timestamps

    # -- write -------------------------------------------------------------------------------------------------------

    def append(
        self, data: bytearray, base_offset: int, next_offset: int, max_timestamp: int, now_ms: int
    ) -> None:
        """Write one batch at the end; KafkaStorageError leaves all as it was."""
        self.pool.write(self.path, self.size, data)
        self.add_batch(base_offset, next_offset, self.size, len(data), max_timestamp)
        self.modified_ms = now_ms

    def add_batch(
        self, base_offset: int, next_offset: int, position: int, length: int, max_timestamp: int, force: bool = False
    ) -> None:
        """Count a batch that is in the file."""
        index = self._index if self._index is not None else self.index
        index.add(base_offset, position, self.max_timestamp, force=force)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = base_offset
        self.size = position + length
        self.next_offset = next_offset

    # -- read --------------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, below: int, min_one: bool) -> bytes | memoryview:
        """Whole batches from the one that holds ``offset`` on, all of them with base offsets below ``below``.

        A compacted batch may have no record at or after the offset: it is returned all the same, and the reader goes on
        behind its last offset. At most ``max_bytes``, but with ``min_one`` always the first one. CorruptRecordError
        when that one is damaged.
        """
        for corrupt in self.corrupt_ranges:
            if corrupt.first_offset <= offset < corrupt.next_offset:
                raise self._corrupt(
                    corrupt.start, f"offsets {corrupt.first_offset} to {corrupt.next_offset - 1}", corrupt
                )
        position = self.index.position_of(offset)
        if (
            self.size - position <= min(max_bytes, CHUNK_BYTES)
            and below >= self.next_offset
            and not self.corrupt_ranges
        ):
            return self._read_rest(position, offset)
        chunk_at = position
        chunk = self.pool.read(self.path, position, min(CHUNK_BYTES, self.size - position))
        first = next((found for found in self._walk(position, self.size, chunk) if found[2] >= offset), None)
        if first is None or first[1] >= below:
            return b""
        start = first[0]
        stop = min([self.size] + [corrupt.start for corrupt in self.corrupt_ranges if corrupt.start > start])
        limit = min(stop, start + max_bytes)
        border = self.index.position_before(limit)
        if below < self.next_offset:
            border = min(border, self.index.position_of(below))
        end = max(start, border)
        for position, base, _, length in self._walk(end, stop, chunk[end - chunk_at :]):
            if base >= below or position + length > limit:
                break
            end = position + length
        if end == start and min_one:
            end = start + first[3]
        if end - chunk_at <= len(chunk):
            return chunk[start - chunk_at : end - chunk_at]
        data = self.pool.read(self.path, start, end - start)
        if len(data) < end - start:
            raise self._corrupt(start + len(data), "the end", None)
        return data

    def _read_rest(self, position: int, offset: int) -> bytes:
        """All batches from the one that holds ``offset`` on, in one read: the usual case of a reader at the end."""
        rest = self.pool.read(self.path, position, self.size - position)
        start: int | None = None
        for at, _, last, _ in self._walk(position, self.size, rest):
            if start is None and last >= offset:
                start = at
        if len(rest) < self.size - position:
            raise self._corrupt(position + len(rest), "the end", None)
        return b"" if start is None else rest[start - position :]

    def max_timestamp_at(self, position: int) -> int:
        """The greatest timestamp of the batch at a position, in ms, as its header says."""
        _, greatest = _TIMESTAMPS.unpack_from(self.pool.read(self.path, position, HEADER_BYTES))
        return int(greatest)

    def batches_from(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Position, base offset, last offset and length of each batch from a batch's position on."""
        return self._walk(position, self.size)

    def _walk(self, position: int, stop: int, chunk: bytes = b"") -> Iterator[tuple[int, int, int, int]]:
        """As :meth:`batches_from`, over corrupt ranges; reads headers, and bodies only as far as they come along.
        ``chunk``: what has been read from ``position`` on."""
        chunk_at = position
        while position < stop:
            for corrupt in self.corrupt_ranges:
                if corrupt.start <= position < corrupt.end:
                    position = corrupt.end
            if position >= stop:
                return
            at = position - chunk_at
            if at + HEADER_BYTES > len(chunk):
                chunk = self.pool.read(self.path, position, min(CHUNK_BYTES, stop - position))
                chunk_at, at = position, 0
                if len(chunk) < HEADER_BYTES:
                    raise self._corrupt(position, "a batch's header", None)
            base, size, magic, delta = _PEEK.unpack_from(chunk, at)
            length = size + FRAME_BYTES
            if magic != 2 or length < HEADER_BYTES or position + length > stop or delta < 0:
                raise self._corrupt(position, "a batch's header", None)
            yield position, base, base + delta, length
            position += length

    def _corrupt(self, position: int, what: str, corrupt: CorruptRange | None) -> CorruptRecordError:
        cause = f" ({corrupt.cause})" if corrupt else ""
        return CorruptRecordError(f"{what} in {self.path} at byte {position} is corrupt{cause}")

    # -- seal --------------------------------------------------------------------------------------------------------

    @property
    def seal_path(self) -> str:
        return self.path[: -len(".log")] + ".seal"

    def make_seal(self, state: dict[str, Any], *, is_on_disk: bool) -> Seal | None:
        """A seal of what is known now, for :meth:`write_seal`; ``is_on_disk``: it is written after the bytes are
        synced. A segment with corrupt bytes gets none, so that each start scans it and logs them.
        """
        if self.corrupt_ranges:
            return None
        index = self.index.to_bytes()
        text = json.dumps(state, separators=(",", ":")).encode()
        head = _SEAL.pack(
            _SEAL_MAGIC, 0, self.size, self.next_offset, self.max_timestamp, self.max_timestamp_offset,
            _ON_DISK if is_on_disk else boot_id() or b"?" * 16, len(text), len(index), zlib.crc32(index),
        )[_CRC_FROM:]  # fmt: skip
        crc = zlib.crc32(text, zlib.crc32(head))
        return Seal(self.size, b"".join((_SEAL_MAGIC, struct.pack(">I", crc), head, text, index)))

    def write_seal(self, seal: Seal | None) -> None:
        """Write the seal's file, unsynced: one that a crash of the machine spoils has a wrong CRC."""
        if seal is not None:
            replace_file(self.seal_path, seal.data, sync=False)
            self.sealed_size = seal.size

    def load_seal(self, size: int) -> dict[str, Any] | None:
        """Load the seal and return the state in it; None when it is missing or cannot be trusted. The file of ``size``
        bytes may be longer than what the seal describes."""
        found = read_seal(self.seal_path)
        if found is None:
            return None
        header, state = found
        if header.size > size or header.boot not in (_ON_DISK, boot_id()):
            return None
        self.size = self.sealed_size = header.size
        self.next_offset = header.next_offset
        self.max_timestamp = header.max_timestamp
        self.max_timestamp_offset = header.max_timestamp_offset
        self._index = None
        return state

    def _load_index(self) -> SparseIndex:
        """The index from the seal, or rebuilt from the file when the seal's is corrupt."""
        try:
            with open(self.seal_path, "rb", opener=open_private) as file:
                data = file.read()
            header = SealHeader(*_SEAL.unpack_from(data))
            part = data[_SEAL.size + header.state_bytes :][: header.index_bytes]
            if zlib.crc32(part) == header.index_crc:
                return SparseIndex.from_bytes(part)
            log.warning("the index in %s is corrupt: rebuilding it from the segment", self.seal_path)
        except (OSError, ValueError, struct.error) as error:
            log.warning("cannot read the index in %s: rebuilding it from the segment: %s", self.seal_path, error)
        index = SparseIndex()
        greatest = NO_TIMESTAMP

        def on_batch(header: BatchHeader, after_corruption: bool) -> None:
            nonlocal greatest
            index.add(header.base_offset, header.start, greatest, force=after_corruption)
            greatest = max(greatest, header.max_timestamp)

        with storage_errors("read", self.path):
            self.corrupt_ranges = scan_segment(self.path, self.base_offset, on_batch).corrupt_ranges
        return index

    def set_corruption(self, corrupt_ranges: tuple[CorruptRange, ...], torn_bytes: int) -> None:
        """What a scan found that is no batch; ``torn_bytes``: at the end of the file."""
        self.corrupt_ranges, self.torn_bytes = corrupt_ranges, torn_bytes

    def set_times(self, created_ms: int, modified_ms: int) -> None:
        """When the segment began and was last written to."""
        self.created_ms, self.modified_ms = created_ms, modified_ms

    def mark_removed(self) -> None:
        """The segment is no longer part of its log."""
        self.is_removed = True

    def discard_seal(self) -> None:
        """Forget what the seal said: part of it could not be read."""
        self.next_offset, self.size, self._index = self.base_offset, 0, SparseIndex()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self.sealed_size = 0

    @property
    def files(self) -> tuple[str, str]:
        """The paths that it may have on the disk."""
        return self.path, self.seal_path


_HEADER_COST_BYTES = 512
"""Reading a header takes as long as so many bytes of a batch, or less."""


class TimestampOffset(NamedTuple):
    """A record found by its timestamp (ms)."""

    offset: int
    timestamp: int
    leader_epoch: int


TimestampSearch = Generator[bool, None, TimestampOffset | None]


def find_first_since(segments: Sequence[Segment], start_offset: int, timestamp: int) -> TimestampSearch:
    """The first record from ``start_offset`` on, by offset, whose timestamp is ``timestamp`` (ms) or later.

    Timestamps come from producers and need not ascend. Each segment knows its greatest one, and its index the greatest
    one before each entry, so headers are read only from there on, and then the one batch that has it. Of a batch whose
    codec is not installed, or that inflates above the bound, only the header can be read: its first record is taken,
    and its last one by :func:`find_max_timestamp`. Both searches are generators, which yield as in ``time_slices.py``.
    """
    budget = TimeSliceBudget()
    for segment in segments:
        if segment.max_timestamp < timestamp or segment.next_offset <= start_offset:
            continue
        index = segment.index
        position = max(index.position_before_time(timestamp), index.position_of(start_offset))
        for at, _, last, length in segment.batches_from(position):
            if last >= start_offset and segment.max_timestamp_at(at) >= timestamp:
                header, found = yield from _find_in_batch(segment, at, length, start_offset, timestamp)
                if found is None:
                    return TimestampOffset(
                        max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch
                    )
                if found[0] >= 0:
                    return TimestampOffset(*found, header.leader_epoch)
            if budget.spend(_HEADER_COST_BYTES):
                yield False
                if segment.is_removed:
                    break
    return None


def find_max_timestamp(segments: Sequence[Segment]) -> TimestampSearch:
    """The first record that has the greatest timestamp of all; None when no record has one."""
    best = max(segments, key=lambda segment: (segment.max_timestamp, -segment.base_offset))
    if best.max_timestamp < 0:
        return None
    for at, base, _, length in best.batches_from(best.index.position_of(best.max_timestamp_offset)):
        if base == best.max_timestamp_offset:
            header, found = yield from _find_in_batch(best, at, length, 0, best.max_timestamp)
            if found is None:
                return TimestampOffset(header.last_offset, header.max_timestamp, header.leader_epoch)
            return TimestampOffset(*found, header.leader_epoch) if found[0] >= 0 else None
    return None


def run_search(search: TimestampSearch) -> TimestampOffset | None:
    """The result of a search, run to its end at once."""
    while True:
        try:
            next(search)
        except StopIteration as end:
            found: TimestampOffset | None = end.value
            return found


def _find_in_batch(
    segment: Segment, position: int, length: int, first_offset: int, since: int
) -> Generator[bool, None, tuple[BatchHeader, tuple[int, int] | None]]:
    """The header of the batch there, with the offset and timestamp of its first record that fits: an offset of -1 when
    none does, None when the records cannot be read."""
    data = segment.pool.read(segment.path, position, length)
    header = parse_header(data)
    if header is None:
        raise CorruptRecordError(f"a batch in {segment.path} at byte {position} is truncated")
    try:
        found = yield from read_batch(header, lambda most: FirstSince(since, data, header, most, first_offset))
    except (UnsupportedCodecError, InflationLimitError):
        return header, None
    return header, (found.offset, found.timestamp)

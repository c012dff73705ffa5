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
           index           see index.py; read when it is first needed

A full segment's seal describes all of it; that of a segment that is appended to is a checkpoint, and what lies behind
is scanned, CRCs and all. A seal that was written before its bytes were synced counts only until the machine starts
again, because a killed process loses nothing that it wrote; after a loss of the machine such a segment is scanned.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.broker.log.files import FilePool, is_out_of_descriptors, replace_file, storage_error
from kafka.broker.log.index import INTERVAL_BYTES, SparseIndex
from kafka.broker.log.scan import Damage, scan_segment
from kafka.broker.private_files import open_private
from kafka.errors import CorruptRecordError
from kafka.records import HEADER_BYTES, BatchHeader
from kafka.records.header import FRAME_BYTES

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
"""What is read at once to find a batch."""


def segment_name(base_offset: int) -> str:
    """The file's name without its suffix: the base offset in 20 digits, as Kafka names its segments."""
    return f"{base_offset:020d}"


@functools.cache
def boot_id() -> bytes:
    """What changes when the machine starts again; empty where the system does not tell: then nothing is believed."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return uuid.UUID(file.read().strip()).bytes
    except (OSError, ValueError):
        return b""


class Seal(NamedTuple):
    """A seal's bytes, ready to be written when what it describes is on the disk."""

    size: int
    data: bytes


def batch_bounds(data: bytes | memoryview) -> list[tuple[int, int]]:
    """Base and last offset of each whole batch in bytes that :meth:`PartitionLog.read` gave."""
    bounds: list[tuple[int, int]] = []
    at = 0
    end = len(data)
    while at + HEADER_BYTES <= end:
        base, size, _, delta = _PEEK.unpack_from(data, at)
        at += size + FRAME_BYTES
        if at > end:
            break
        bounds.append((base, base + delta))
    return bounds


def read_seal_state(path: str) -> dict[str, Any] | None:
    """The state that a seal keeps, or None when it cannot be read."""
    try:
        with open(path, "rb", opener=open_private) as file:
            data = file.read(_SEAL.size)
            magic, crc, *_, state_bytes, _, _ = _SEAL.unpack(data)
            text = file.read(state_bytes)
        state = json.loads(text) if magic == _SEAL_MAGIC else None
    except (OSError, ValueError, struct.error):
        return None
    return state if isinstance(state, dict) and zlib.crc32(text, zlib.crc32(data[_CRC_FROM:])) == crc else None


class Segment:
    """A segment's file and facts. Whoever owns it keeps it in step with the file; reading checks only the framing."""

    __slots__ = (
        "_first_timestamps", "_index", "base_offset", "created_ms", "damages", "is_gone", "max_timestamp",
        "max_timestamp_offset", "modified_ms", "next_offset", "path", "pool", "sealed_size", "size", "torn_bytes",
        "waiting_seal",
    )  # fmt: skip

    def __init__(self, pool: FilePool, path: str, base_offset: int) -> None:
        self.pool = pool
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.damages: tuple[Damage, ...] = ()
        self.torn_bytes = 0
        """Bad bytes at the end of the file, when other segments follow."""
        self.is_gone = False
        """Whether it is no longer part of its log."""
        self.sealed_size = 0
        """How many bytes the seal describes; 0: there is none."""
        self.waiting_seal: Seal | None = None
        """To be written when the bytes that it describes have been synced."""
        self.created_ms = 0
        self.modified_ms = 0
        """When it was last written to: its age, for records without timestamps."""
        self._index: SparseIndex | None = SparseIndex()
        self._first_timestamps: tuple[int, int] | None = None

    @property
    def is_sealed(self) -> bool:
        """Whether the seal describes all of it."""
        return self.sealed_size == self.size

    @property
    def index(self) -> SparseIndex:
        """Offsets and times -> positions; of a segment that was opened by its seal, read when it is first needed."""
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

    def append(self, data: bytearray, base_offset: int, next_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; KafkaStorageError leaves all as it was."""
        self.pool.write(self.path, self.size, data)
        self.note(base_offset, next_offset, self.size, len(data), max_timestamp)

    def note(
        self, base_offset: int, next_offset: int, position: int, length: int, max_timestamp: int, force: bool = False
    ) -> None:
        """Take a batch that is in the file into the facts."""
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

        At most ``max_bytes``, but with ``min_one`` always the first one. CorruptRecordError when that one is damaged.
        """
        for damage in self.damages:
            if damage.first_offset <= offset < damage.next_offset:
                raise self._corrupt(damage.start, f"offsets {damage.first_offset} to {damage.next_offset - 1}", damage)
        position = self.index.position_of(offset)
        if self.size - position <= min(max_bytes, CHUNK_BYTES) and below >= self.next_offset and not self.damages:
            return self._read_rest(position, offset)
        chunk_at = position
        chunk = self.pool.read(self.path, position, min(CHUNK_BYTES, self.size - position))
        first = next((found for found in self._walk(position, self.size, chunk) if found[2] >= offset), None)
        if first is None or first[1] >= below:
            return b""
        start = first[0]
        stop = min([self.size] + [damage.start for damage in self.damages if damage.start > start])
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
        """All from the batch that holds ``offset`` on, when that is little: what a reader asks for that keeps up."""
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
        """As :meth:`batches_from`, over damages; reads headers, and bodies only as far as they come along. ``chunk``:
        what has been read from ``position`` on."""
        chunk_at = position
        while position < stop:
            for damage in self.damages:
                if damage.start <= position < damage.end:
                    position = damage.end
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

    def _corrupt(self, position: int, what: str, damage: Damage | None) -> CorruptRecordError:
        cause = f" ({damage.cause})" if damage else ""
        return CorruptRecordError(f"{what} in {self.path} at byte {position} is corrupt{cause}")

    # -- seal --------------------------------------------------------------------------------------------------------

    @property
    def seal_path(self) -> str:
        return self.path[: -len(".log")] + ".seal"

    def make_seal(self, state: dict[str, Any], *, is_on_disk: bool) -> Seal | None:
        """What is known now, to be written by :meth:`write_seal`; ``is_on_disk``: it will not be before the bytes have
        been synced. A damaged segment gets none: it stays loud.
        """
        if self.damages:
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
        """Put a seal in its place. No need to wait for the disk: one that a lost machine spoils has a wrong CRC."""
        if seal is not None:
            replace_file(self.seal_path, seal.data, sync=False)
            self.sealed_size = seal.size

    def load_seal(self, size: int) -> dict[str, Any] | None:
        """Take the facts from the seal and give the state in it; None when it is missing or cannot be believed. The
        file of ``size`` bytes may be longer than what the seal describes."""
        try:
            with open(self.seal_path, "rb", opener=open_private) as file:
                data = file.read(_SEAL.size)
                magic, crc, sealed_size, next_offset, timestamp, timestamp_offset, boot, *sizes = _SEAL.unpack(data)
                state_bytes, index_bytes, _ = sizes
                text = file.read(state_bytes)
                is_whole = os.fstat(file.fileno()).st_size == _SEAL.size + state_bytes + index_bytes
            if magic != _SEAL_MAGIC or zlib.crc32(text, zlib.crc32(data[_CRC_FROM:])) != crc or not is_whole:
                return None
            if sealed_size > size or (boot != _ON_DISK and boot != boot_id()):
                return None
            state = json.loads(text)
            if not isinstance(state, dict):
                return None
        except (OSError, ValueError, struct.error) as error:
            if isinstance(error, OSError) and is_out_of_descriptors(error):
                raise storage_error("read", self.seal_path, error) from error  # it may be as good as can be
            return None
        self.size = self.sealed_size = sealed_size
        self.next_offset = next_offset
        self.max_timestamp = timestamp
        self.max_timestamp_offset = timestamp_offset
        self._index = None
        return state

    def _load_index(self) -> SparseIndex:
        """The index from the seal, or made anew when that is spoiled."""
        try:
            with open(self.seal_path, "rb", opener=open_private) as file:
                data = file.read()
            *_, state_bytes, index_bytes, crc = _SEAL.unpack_from(data)
            part = data[_SEAL.size + state_bytes : _SEAL.size + state_bytes + index_bytes]
            if zlib.crc32(part) == crc:
                return SparseIndex.from_bytes(part)
            log.warning("the index in %s is spoiled, and made anew", self.seal_path)
        except (OSError, ValueError, struct.error) as error:
            log.warning("the index in %s cannot be read, and is made anew: %s", self.seal_path, error)
        index = SparseIndex()
        greatest = NO_TIMESTAMP

        def on_batch(header: BatchHeader, after_damage: bool) -> None:
            nonlocal greatest
            index.add(header.base_offset, header.start, greatest, force=after_damage)
            greatest = max(greatest, header.max_timestamp)

        try:
            self.damages = scan_segment(self.path, self.base_offset, on_batch).damages
        except OSError as error:
            raise storage_error("read", self.path, error) from error
        return index

    def unseal(self) -> None:
        """Forget what a seal said: part of it could not be read."""
        self.next_offset, self.size, self._index = self.base_offset, 0, SparseIndex()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self.sealed_size = 0

    @property
    def files(self) -> tuple[str, str]:
        """What there may be of it on the disk."""
        return self.path, self.seal_path

"""One segment of a partition's log: a file of record batches, and what is known of it.

    00000000000000001200.log     batches from offset 1200 on, as producers sent them, one after the other
    00000000000000001200.seal    written when the segment is full or the log is closed, gone while it is appended to:

        0  magic           4s   "KSL1"
        4  crc             u32  CRC-32 of everything behind
        8  size            i64  of the .log file; a seal of another size counts for nothing
       16  next_offset     i64
       24  max_timestamp   i64  ms, -1: none
       32  max_offset      i64  base offset of the batch that has it
       40  index_bytes     u32
       44  index           ...  see index.py
           producers       JSON: producer_state.py's snapshot at the end of this segment

A segment with a fitting seal is opened without a look at its batches; any other is scanned, CRCs and all.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator

from kafka.broker.log.files import FilePool, remove_file, replace_file
from kafka.broker.log.index import INTERVAL_BYTES, SparseIndex
from kafka.broker.log.scan import Damage
from kafka.errors import CorruptRecordError
from kafka.records import HEADER_BYTES, BatchHeader

NO_TIMESTAMP = -1
_SEAL = struct.Struct(">4sIqqqqI")
_SEAL_MAGIC = b"KSL1"
_PEEK = struct.Struct(">qi4xb6xi")
"""base offset, size, magic, last offset delta"""
FRAME_BYTES = 12


def segment_name(base_offset: int) -> str:
    """The file's name without its suffix: the base offset in 20 digits, as Kafka names its segments."""
    return f"{base_offset:020d}"


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


class Segment:
    """A segment's file and facts. Whoever owns it keeps it in step with the file; reading checks only the framing."""

    __slots__ = (
        "base_offset", "created_ms", "damages", "index", "is_sealed", "max_timestamp", "max_timestamp_offset",
        "next_offset", "path", "pool", "size",
    )  # fmt: skip

    def __init__(self, pool: FilePool, path: str, base_offset: int) -> None:
        self.pool = pool
        self.path = path
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.index = SparseIndex()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.damages: tuple[Damage, ...] = ()
        self.is_sealed = False
        self.created_ms = 0

    # -- write -------------------------------------------------------------------------------------------------------

    def append(self, data: bytearray, header: BatchHeader, base_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; KafkaStorageError leaves all as it was."""
        if self.is_sealed:
            remove_file(self.seal_path)
            self.is_sealed = False
        self.pool.write(self.path, self.size, data)
        self.note(base_offset, base_offset + header.last_offset_delta + 1, self.size, len(data), max_timestamp)

    def note(
        self, base_offset: int, next_offset: int, position: int, length: int, max_timestamp: int, force: bool = False
    ) -> None:
        """Take a batch that is in the file into the facts."""
        self.index.add(base_offset, position, self.max_timestamp, force=force)
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
        first = self._find(offset)
        if first is None or first[1] >= below:
            return b""
        start = first[0]
        stop = min([self.size] + [damage.start for damage in self.damages if damage.start > start])
        limit = min(stop, start + max_bytes)
        border = self.index.position_before(limit)
        if below < self.next_offset:
            border = min(border, self.index.position_of(below))
        end = max(start, border)
        for position, base, _, length in self._walk(end, stop):
            if base >= below or position + length > limit:
                break
            end = position + length
        if end == start and min_one:
            end = start + first[3]
        data = self.pool.read(self.path, start, end - start)
        if len(data) < end - start:
            raise self._corrupt(start + len(data), "the end", None)
        return data

    def batches_from(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Position, base offset, last offset and length of each batch from a batch's position on."""
        return self._walk(position, self.size)

    def _find(self, offset: int) -> tuple[int, int, int, int] | None:
        """The first batch that ends at or behind ``offset``."""
        for found in self._walk(self.index.position_of(offset), self.size):
            if found[2] >= offset:
                return found
        return None

    def _walk(self, position: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """As :meth:`batches_from`, over damages; reads headers, and bodies only as far as they come along."""
        chunk = b""
        chunk_at = position
        while position < stop:
            for damage in self.damages:
                if damage.start <= position < damage.end:
                    position = damage.end
            if position >= stop:
                return
            at = position - chunk_at
            if at + HEADER_BYTES > len(chunk):
                chunk = self.pool.read(self.path, position, min(INTERVAL_BYTES * 2, stop - position))
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

    def seal(self, producers: list[list[object]]) -> None:
        """Write down what is known, so that the next start need not scan. A damaged segment gets none: it stays
        loud. No need to wait for the disk: one that a lost machine spoils has a wrong CRC, and then there is a scan.
        """
        if self.damages or self.is_sealed:
            return
        index = self.index.to_bytes()
        body = _SEAL.pack(
            _SEAL_MAGIC, 0, self.size, self.next_offset, self.max_timestamp, self.max_timestamp_offset, len(index)
        )[8:]
        body += index + json.dumps(producers, separators=(",", ":")).encode()
        replace_file(self.seal_path, _SEAL_MAGIC + struct.pack(">I", zlib.crc32(body)) + body, sync=False)
        self.is_sealed = True

    def load_seal(self, size: int) -> list[list[object]] | None:
        """Take the facts from the seal and give the producers; None when it is missing or does not fit the file."""
        try:
            with open(self.seal_path, "rb") as file:
                data = file.read()
            magic, crc, sealed_size, next_offset, timestamp, timestamp_offset, index_bytes = _SEAL.unpack_from(data)
            if magic != _SEAL_MAGIC or sealed_size != size or zlib.crc32(memoryview(data)[8:]) != crc:
                return None
            self.index = SparseIndex.from_bytes(memoryview(data)[_SEAL.size : _SEAL.size + index_bytes])
            producers: list[list[object]] = json.loads(data[_SEAL.size + index_bytes :])
        except (OSError, ValueError, struct.error):
            return None
        self.size = size
        self.next_offset = next_offset
        self.max_timestamp = timestamp
        self.max_timestamp_offset = timestamp_offset
        self.is_sealed = True
        return producers

    def unseal(self) -> None:
        """Forget what a seal said: part of it could not be read."""
        self.next_offset, self.size, self.index = self.base_offset, 0, SparseIndex()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self.is_sealed = False

    def delete(self) -> None:
        """Remove the files."""
        self.pool.forget(self.path)
        remove_file(self.path)
        remove_file(self.seal_path)

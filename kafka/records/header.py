"""The layout of a record batch v2: its header, the varints of its records, and the walk from batch to batch through a
log or a fetched buffer.

     0  base_offset         i64  |  outside the CRC: a broker sets these three without a new CRC
     8  size                i32  |  bytes that follow this field: whole batch less 12
    12  leader_epoch        i32  |
    16  magic               i8      2; 0 and 1 are message sets, which have their size and magic at the same places
    17  crc                 u32     CRC-32C of everything from byte 21 to the end of the batch
    21  attributes          i16     bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta   i32     counts the gaps that compaction left: not always records_count - 1
    27  base_timestamp      i64     ms since the epoch; -1: none
    35  max_timestamp       i64     when bit 3 is set, the time of the append, and so of every record
    43  producer_id         i64     -1: not idempotent
    51  producer_epoch      i16
    53  base_sequence       i32
    57  records_count       i32
    61  records             ...     see reader.py and builder.py; compressed as a whole

All integers are big-endian. The records are read in :mod:`kafka.records.reader`; of the bytes after byte 61 this
module reads only the CRC's. A batch of a later magic gets its own branch in :func:`parse_header`.

Source: the protocol guide's section "Record Batch" (its varints are Protocol Buffers' ``sint32`` and ``sint64``);
KIP-98 (v2), KIP-534 (bit 6).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from kafka.errors import CorruptRecordError
from kafka.records.compression import CODEC_NAMES
from kafka.wire.crc32c import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = 61
FRAME_BYTES: Final = 12
"""Offset and size, which the size does not count."""

MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

NO_PRODUCER_ID: Final = -1
MAX_OFFSET: Final = 2**63 - 1

SIZE_AND_MAGIC: Final = struct.Struct(">i4xb")
"""From byte 8 on, in every format."""
_LEGACY_HEADER: Final = struct.Struct(">qiIbb")
_LEGACY_MIN_BYTES: Final = (26, 34)
"""The minimum size of a message v0 and v1: with a null key and a null value."""

Buffer = bytes | bytearray | memoryview


class BatchHeader:
    """One batch's header, and where the batch lies in the buffer that it was read from.

    ``start`` and ``end`` are positions in that buffer; ``length`` is the bytes between them. For ``magic`` 0 and 1 only
    these, ``base_offset`` (of a compressed set: its *last* offset), ``crc`` and ``attributes`` are read; the other
    fields have the values of a v2 batch of one plain record.
    """

    __slots__ = (
        "attributes", "base_offset", "base_sequence", "base_timestamp", "crc", "end", "last_offset_delta",
        "leader_epoch", "length", "magic", "max_timestamp", "producer_epoch", "producer_id", "records_count", "start",
    )  # fmt: skip

    def __init__(
        self,
        start: int,
        end: int,
        base_offset: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        records_count: int,
    ) -> None:
        # `base_offset` to `records_count` stand in the order of the v2 header, whose batch length becomes `end`.
        self.start = start
        self.end = end
        self.length = end - start
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.records_count = records_count

    def change_max_timestamp(self, max_timestamp: int) -> None:
        """The batch's bytes were changed to that."""
        self.max_timestamp = max_timestamp

    def move_to(self, start: int) -> None:
        """The batch lies at ``start`` of another buffer."""
        self.start = start
        self.end = start + self.length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, or of the one that compaction removed there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, wrapped from 2**31 - 1 to 0; -1 without a sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """The compression's number, as in :data:`kafka.records.compression.CODEC_NAMES`; 0 is none."""
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> str:
        """The compression's name; its number as text when Kafka has no such codec."""
        return CODEC_NAMES.get(self.attributes & CODEC_MASK, str(self.attributes & CODEC_MASK))

    @property
    def timestamp_type(self) -> int:
        """0: the producer set the records' timestamps; 1: the broker did, at the append."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker for clients instead of a user's records."""
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    def __repr__(self) -> str:
        return (
            f"<BatchHeader offsets {self.base_offset}-{self.last_offset} magic={self.magic} "
            f"records={self.records_count} codec={self.compression} bytes {self.start}-{self.end}>"
        )


def parse_header(data: Buffer, pos: int = 0) -> BatchHeader | None:
    """The header of the batch at ``pos``; None when ``data`` ends before the batch does.

    Checks the fields against one another, not the CRC. Raises :class:`~kafka.errors.CorruptRecordError` for an unknown
    magic, a size below the header's, negative counts or offsets, more records than offsets.
    """
    available = len(data) - pos
    if available <= MAGIC_AT:
        return None
    size, magic = SIZE_AND_MAGIC.unpack_from(data, pos + 8)
    if magic != 2:
        return parse_message(data, pos, size, magic)
    length = size + FRAME_BYTES
    if length < HEADER_BYTES:
        raise CorruptRecordError(f"a batch at byte {pos} claims {length} bytes; its header alone has {HEADER_BYTES}")
    if length > available:
        return None
    (
        base_offset,
        _,
        leader_epoch,
        _,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    ) = HEADER.unpack_from(data, pos)
    if (
        base_offset < 0
        or last_offset_delta < 0
        or base_offset + last_offset_delta >= MAX_OFFSET
        or records_count < 0
        or records_count > last_offset_delta + 1
    ):
        raise CorruptRecordError(
            f"a batch at byte {pos} claims {records_count} records from offset {base_offset}, "
            f"the last one {last_offset_delta} further"
        )
    return BatchHeader(
        pos,
        pos + length,
        base_offset,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        records_count,
    )


def parse_message(data: Buffer, pos: int, size: int, magic: int, *, any_offset: bool = False) -> BatchHeader | None:
    """Like :func:`parse_header`, for a message of a set, whose size and magic have been read. ``any_offset``: a
    producer sent it, and its offset may be any number."""
    if magic not in (0, 1):
        raise CorruptRecordError(f"a batch at byte {pos} has the unknown magic {magic}")
    length = size + FRAME_BYTES
    if length < _LEGACY_MIN_BYTES[magic]:
        raise CorruptRecordError(f"a message v{magic} at byte {pos} claims only {length} bytes")
    if length > len(data) - pos:
        return None
    offset, _, crc, _, attributes = _LEGACY_HEADER.unpack_from(data, pos)
    if offset < 0 and not any_offset:
        raise CorruptRecordError(f"a message v{magic} at byte {pos} has the offset {offset}")
    return BatchHeader(pos, pos + length, offset, -1, magic, crc, attributes, 0, -1, -1, NO_PRODUCER_ID, -1, -1, 1)


def check_crc(data: Buffer, header: BatchHeader) -> None:
    """Raise :class:`~kafka.errors.CorruptRecordError` unless the CRC of the v2 batch fits its bytes in ``data``."""
    computed = crc32c(memoryview(data)[header.start + ATTRIBUTES_AT : header.end])
    if computed != header.crc:
        raise CorruptRecordError(
            f"the batch at offset {header.base_offset}, byte {header.start}, has the CRC {computed:#010x} "
            f"and claims {header.crc:#010x}"
        )


def iter_batches(data: Buffer, pos: int = 0, *, check_crcs: bool = True) -> Iterator[BatchHeader]:
    """The headers of all whole batches of ``data`` from ``pos`` on, in their order.

    Ends at a partial last batch, as fetched buffers have them; the last header's ``end`` then is below ``len(data)``.
    Message sets are reported (``magic`` 0 and 1), one header for each message of the outer level, and their CRC, which
    is of another kind, is checked by their reader. Raises :class:`~kafka.errors.CorruptRecordError` at the first batch
    that is malformed or, with ``check_crcs``, has a wrong CRC, after it has yielded those before it.
    """
    while True:
        header = parse_header(data, pos)
        if header is None:
            return
        if check_crcs and header.magic == 2:
            check_crc(data, header)
        yield header
        pos = header.end


# -- varints -----------------------------------------------------------------------------------------------------------
#
# Zigzag encoding, 7 bits a byte, the lowest first; the high bit says that more bytes follow.
#
#     value     0   -1    1   -2  ...  63   -64    64
#     zigzag    0    1    2    3      126   127   128
#     bytes    00   01   02   03       7e    7f  80 01
#
# Small values come from a table, since nearly every varint of a batch is one: lengths, deltas of offsets and
# timestamps. The unsigned varints of message headers are in kafka.wire.codec, with errors of their own.

TABLE_SIZE: Final = 4096
"""How many values, from 0 up, :data:`ZIGZAG` holds."""

MAX_VARINT_BYTES: Final = 5
MAX_VARLONG_BYTES: Final = 10


def encode_varint(value: int) -> bytes:
    """``value`` (a signed integer of 32 or 64 bits) as a zigzag varint of 1 to 10 bytes."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


ZIGZAG: Final[list[bytes]] = [encode_varint(value) for value in range(TABLE_SIZE)]
"""``ZIGZAG[n]`` is :func:`encode_varint` of ``n``: 0.02 us instead of 0.4. Two bytes reach to 8191; half of that covers
the values in most batches and keeps the table at 0.2 MB."""


def decode_varint(data: bytes, pos: int, max_bytes: int = MAX_VARLONG_BYTES) -> tuple[int, int]:
    """Read one zigzag varint at ``pos``: ``(value, position after it)``.

    Raises :class:`~kafka.errors.CorruptRecordError` for one that is longer than ``max_bytes`` or does not fit the
    integer of that size (32 bits for 5 bytes, 64 for 10), and :class:`IndexError` at the end of ``data``: callers in
    the hot path turn that into their own error once, not per value.
    """
    rest = 0
    shift = 0
    while True:
        byte = data[pos]
        pos += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * max_bytes:
            raise CorruptRecordError(f"a varint of more than {max_bytes} bytes at byte {pos - max_bytes}")
    if rest >> (32 if max_bytes == MAX_VARINT_BYTES else 64):
        raise CorruptRecordError(f"a varint that ends at byte {pos} is too large")
    return (rest >> 1) ^ -(rest & 1), pos

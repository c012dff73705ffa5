"""A broker's operations on batches: validate a produced one, set its offset and timestamp, and find the end of a log
after a crash.

A broker keeps a produced batch's bytes as they are. Offset and leader epoch lie outside the CRC for that reason, so
:func:`rewrite_base` needs no new CRC; a timestamp lies inside, so :func:`set_log_append_time` computes one. The layout
is in
:mod:`kafka.records.header`. Files, indexes and the truncation of a torn tail belong to the broker's log.

Source: the protocol guide's section "Record Batch"; KIP-32 (LogAppendTime), KIP-101 (leader epoch).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, Final

from kafka.errors import CorruptRecordError, InvalidRecordError
from kafka.records.header import (
    ATTRIBUTES_AT,
    CRC_AT,
    FRAME_BYTES,
    HEADER_BYTES,
    MAGIC_AT,
    SIZE_AND_MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    Buffer,
    check_crc,
    parse_header,
)
from kafka.wire.crc32c import crc32c

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_MAX_TIMESTAMP: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")

_EPOCH_AT: Final = 12
_MAX_TIMESTAMP_AT: Final = 35
_SIZE: Final = struct.Struct(">8xi")


def validate_batch(data: Buffer, pos: int = 0, header: BatchHeader | None = None) -> BatchHeader:
    """The header of the one batch that a producer sent in ``data[pos:]``, after checking that it is complete and
    consistent. ``header``: the result of :func:`parse_header`, when that was called before.

    The records themselves are not read (see :mod:`kafka.records.validator`). Raises
    :class:`~kafka.errors.CorruptRecordError` (the producer may try again) when the bytes were damaged: cut, a wrong
    CRC, impossible fields; and :class:`~kafka.errors.InvalidRecordError` (it must not) for an invalid
    batch: a message set, a second batch, no records or gaps between their offsets, a control batch, a producer id
    without a sequence.
    """
    if header is None:
        header = parse_header(data, pos)
    if header is None:
        raise CorruptRecordError(f"a produced batch is cut: {len(data) - pos} bytes")
    if header.magic != 2:
        raise InvalidRecordError(f"a produced batch has the magic {header.magic}; only 2 is accepted")
    check_crc(data, header)
    if header.end != len(data):
        raise InvalidRecordError(f"{len(data) - header.end} bytes after the produced batch; only one is accepted")
    if header.records_count == 0 or header.records_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"a produced batch claims {header.records_count} records over {header.last_offset_delta + 1} offsets"
        )
    if header.is_control:
        raise InvalidRecordError("clients may not produce control batches")
    if header.has_producer_id and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(f"a batch of producer {header.producer_id} without an epoch and a sequence")
    return header


def rewrite_base(batch: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Set offset and leader epoch of the v2 batch at ``pos``. The CRC does not cover these fields."""
    _OFFSET.pack_into(batch, pos, base_offset)
    _EPOCH.pack_into(batch, pos + _EPOCH_AT, leader_epoch)


def set_log_append_time(batch: bytearray | memoryview, pos: int, timestamp: int) -> None:
    """Make ``timestamp`` (ms since the epoch) the time of every record of the v2 batch at ``pos``, with a new CRC.

    Raises :class:`~kafka.errors.CorruptRecordError` when there is no whole v2 batch.
    """
    available = len(batch) - pos
    size, magic = SIZE_AND_MAGIC.unpack_from(batch, pos + 8) if available >= HEADER_BYTES else (0, -1)
    if magic != 2 or not HEADER_BYTES <= size + FRAME_BYTES <= available:
        raise CorruptRecordError(f"no whole batch v2 to stamp at byte {pos}")
    batch[pos + ATTRIBUTES_AT + 1] |= TIMESTAMP_TYPE_BIT
    set_max_timestamp(batch, pos, timestamp)


def set_max_timestamp(batch: bytearray | memoryview, pos: int, timestamp: int) -> None:
    """Make ``timestamp`` (ms since the epoch) the greatest one in the header of the whole v2 batch at ``pos``, with a
    new CRC."""
    end = pos + int(_SIZE.unpack_from(batch, pos)[0]) + FRAME_BYTES
    _MAX_TIMESTAMP.pack_into(batch, pos + _MAX_TIMESTAMP_AT, timestamp)
    _CRC.pack_into(batch, pos + CRC_AT, crc32c(memoryview(batch)[pos + ATTRIBUTES_AT : end]))


def scan_log(file: BinaryIO, pos: int = 0) -> Iterator[BatchHeader]:
    """The headers of a log's batches from byte ``pos`` of the seekable ``file`` on, each read whole and its CRC
    checked; ``start`` and ``end`` are positions in the file.

    Stops at the end of the file when a batch ends there. Raises :class:`~kafka.errors.CorruptRecordError` at the first
    invalid batch, including a torn one at the end, offsets that go back, and a message set: everything before the last
    ``end`` that was yielded is valid, everything after is not, because later batches cannot be found without the size
    of the invalid one. Holds one batch in memory.
    """
    size = file.seek(0, 2)
    file.seek(pos)
    expected = 0
    while pos < size:
        head = file.read(min(HEADER_BYTES, size - pos))
        if len(head) <= MAGIC_AT:
            raise CorruptRecordError(f"a batch is torn at byte {pos}: {len(head)} bytes of its header")
        length = int(_SIZE.unpack_from(head)[0]) + FRAME_BYTES
        data = head + file.read(min(max(length, len(head)), size - pos) - len(head))
        try:
            header = parse_header(data)
            if header is not None and header.magic == 2:
                check_crc(data, header)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{error.args[0]}, in the batch at byte {pos} of the log") from None
        if header is None:
            raise CorruptRecordError(f"a batch is torn at byte {pos}: {len(data)} of {length} bytes")
        if header.magic != 2:
            raise CorruptRecordError(f"a message set v{header.magic} at byte {pos}; this log holds batches v2 only")
        if header.base_offset < expected:
            raise CorruptRecordError(f"the batch at byte {pos} has offset {header.base_offset} after {expected - 1}")
        header.move_to(pos)
        yield header
        pos = header.end
        expected = header.next_offset

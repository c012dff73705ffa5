"""A batch without some of its records: what compaction writes in the place of the old one.

    kept as they are     base offset, last offset delta, sequence, producer, leader epoch, codec, the records' own bytes
    new                  records_count, max_timestamp, size, CRC; with a delete horizon: base_timestamp, bit 6
    left empty           a header alone, for the last batch of a producer that is still known: no codec, no horizon, no
                         base timestamp

With a delete horizon (KIP-534) the base timestamp is the time, in ms, from which on the batch's tombstones or its
marker may go, and the records' deltas count from there: their own times stay what they were.

Where records lie in a batch is drawn in :mod:`kafka.records.reader`; here they are only found and copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kafka.errors import CorruptRecordError
from kafka.records import HEADER_BYTES, BatchHeader, codec_for
from kafka.records.compression import inflation_bound
from kafka.records.header import ATTRIBUTES_AT, CODEC_MASK, CRC_AT, FRAME_BYTES, HEADER
from kafka.records.varint import decode_varint, encode_varint
from kafka.wire.crc32c import crc32c

DELETE_HORIZON_BIT = 0x40
NO_TIMESTAMP = -1


class Slice(NamedTuple):
    """One record: where its bytes lie in the batch's plain body, where its timestamp delta does, and what compaction
    asks about it. ``offset`` is the record's, ``timestamp`` in ms."""

    start: int
    end: int
    delta_at: int
    delta_end: int
    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on the tombstones or the marker of a batch may go (ms), or None when nobody has said so yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def plain_body(data: bytes, header: BatchHeader) -> bytes:
    """The records, inflated. UnsupportedCodecError, CorruptRecordError, of which InflationLimitError."""
    body = data[header.start + HEADER_BYTES : header.end]
    if not header.codec or not body:
        return body
    return codec_for(header.codec).decompress(body, inflation_bound(header.length))


def slices(body: bytes, header: BatchHeader) -> Iterator[Slice]:
    """The records of a batch's plain body, one after another; CorruptRecordError when they are none.

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
            yield Slice(start, end, delta_at, delta_end, base_offset + offset, base_timestamp + delta, key, has_value)
            position = end
    except IndexError:
        raise CorruptRecordError(f"a record runs over the end of {header!r}") from None


class Rebuild:
    """The batch with only those of its records that are added, in their order; none: the header alone. ``horizon``: the
    delete horizon that it gets now, in ms."""

    def __init__(self, header: BatchHeader, horizon: int | None = None) -> None:
        self._header = header
        self._horizon = horizon
        self._records = bytearray()
        self._count = 0
        self._greatest = NO_TIMESTAMP

    def add(self, body: bytes, one: Slice) -> None:
        """Take over a record of the plain body."""
        self._records += body[one.start : one.end] if self._horizon is None else _moved(body, one, self._horizon)
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


def _moved(body: bytes, one: Slice, base_timestamp: int) -> bytes:
    """A record's bytes with its timestamp told from another base."""
    inner = b"".join(
        (
            body[one.delta_at - 1 : one.delta_at],
            encode_varint(one.timestamp - base_timestamp),
            body[one.delta_end : one.end],
        )
    )
    return encode_varint(len(inner)) + inner

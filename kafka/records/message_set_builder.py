"""From records to message sets v0 and v1, for brokers before 0.11 and for old clients of ours.

:class:`MessageSetBuilder` collects like :class:`~kafka.records.builder.RecordBatchBuilder` and has its size and
its room, so that an accumulator need not care which one it holds. :func:`encode_message_set` writes records that have
their offsets already, gaps and all: what a broker does for a client that knows no batches.

The layout is drawn in :mod:`kafka.records.message_set`. No headers, producer ids or transactions: the format has none.

Source: the protocol guide's section "Old Message Format"; KIP-31, KIP-32, KIP-57.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from kafka.errors import IllegalStateError, UnsupportedForMessageFormatError
from kafka.records.builder import NO_ROOM, HeaderItems
from kafka.records.compression import CODEC_NAMES, LZ4, NONE, ZSTD, codec_for
from kafka.records.header import CREATE_TIME, LOG_APPEND_TIME, TIMESTAMP_TYPE_BIT
from kafka.records.lz4_header import spoil
from kafka.records.reader import RawRecord

OVERHEAD_BYTES: Final = (26, 34)
"""What a message has beside its key and its value, by magic."""

_HEAD: Final = struct.Struct(">qiI")
_LENGTH: Final = struct.Struct(">i")
_BODY: Final = (struct.Struct(">bb"), struct.Struct(">bbq"))
_CRC_AND_BACK: Final = 4
_NULL: Final = b"\xff\xff\xff\xff"


class MessageSetBuilder:
    """Collects records for one message set of ``magic`` 0 or 1.

    ``limit_bytes`` bounds the set before compression; a first record is taken whatever its size. ``compression``: a
    codec's number, ``level`` its level or None for the codec's default. zstd and codecs that are not available raise
    :class:`~kafka.errors.UnsupportedCodecError` and :class:`~kafka.errors.UnsupportedForMessageFormatError` here.

    Read only: ``size_bytes``, ``records_count``, ``base_timestamp`` (that of the first record), ``max_timestamp``; -1
    for both while the set is empty.
    """

    __slots__ = (
        "_compression", "_is_built", "_level", "_records", "base_timestamp", "limit_bytes", "magic", "max_timestamp",
        "records_count", "size_bytes",
    )  # fmt: skip

    def __init__(self, limit_bytes: int, magic: int, compression: int = NONE, level: int | None = None) -> None:
        check_codec(compression)
        self.limit_bytes = limit_bytes
        self.magic = magic
        self.size_bytes = 0
        self.records_count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._compression = compression
        self._level = level
        self._records: list[RawRecord] = []
        self._is_built = False

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: HeaderItems | None = None) -> int:
        """Add one record; ``timestamp`` in ms since the epoch, which v0 does not keep. Returns its offset within the
        set, counted from 0, or :data:`~kafka.records.builder.NO_ROOM` (-1): the set is left as it was then.

        Raises :class:`~kafka.errors.UnsupportedForMessageFormatError` for a record with headers."""
        if headers:
            raise UnsupportedForMessageFormatError(f"message sets v{self.magic} have no record headers (KIP-82)")
        count = self.records_count
        size = self.size_bytes + self.size_of(timestamp, key, value)
        if self._is_built or (count and size > self.limit_bytes):
            return NO_ROOM
        self._records.append((count, timestamp, key, value, []))
        self.size_bytes = size
        self.records_count = count + 1
        if not count:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return count

    def size_of(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: HeaderItems | None = None
    ) -> int:
        """How many bytes the record would add to this set, exactly."""
        return OVERHEAD_BYTES[self.magic] + (0 if key is None else len(key)) + (0 if value is None else len(value))

    def has_room(self, record_bytes: int) -> bool:
        """Whether :meth:`append` would take a record of so many bytes (from :meth:`size_of`)."""
        if self._is_built:
            return False
        return self.records_count == 0 or self.size_bytes + record_bytes <= self.limit_bytes

    @property
    def is_built(self) -> bool:
        return self._is_built

    def build(self) -> bytes:
        """The set's bytes, with offsets from 0 on. From the first call on, nothing more is taken.

        Raises :class:`~kafka.errors.IllegalStateError` for a set without records."""
        if not self.records_count:
            raise IllegalStateError("a message set without records cannot be built")
        self._is_built = True
        return encode_message_set(self._records, self.magic, self._compression, level=self._level)


def encode_message_set(
    records: Sequence[RawRecord],
    magic: int,
    compression: int = NONE,
    *,
    timestamp_type: int = CREATE_TIME,
    level: int | None = None,
) -> bytes:
    """The records as a message set of ``magic`` 0 or 1, at the offsets that they have; their headers are left out.

    With ``compression`` it is one wrapper, else plain messages one behind another. ``timestamp_type`` (v1):
    :data:`~kafka.records.header.LOG_APPEND_TIME` marks the timestamps as the broker's; they are one and the same in
    all records then. Errors: those of :func:`check_codec`.
    """
    check_codec(compression)
    if not records:
        return b""
    time_bit = TIMESTAMP_TYPE_BIT if magic and timestamp_type == LOG_APPEND_TIME else 0
    if compression == NONE:
        return b"".join(
            [
                _message(magic, time_bit, offset, timestamp, key, value)
                for offset, timestamp, key, value, _ in records
            ]
        )
    base = records[0][0] if magic else 0
    newest = records[0][1]
    inner: list[bytes] = []
    for offset, timestamp, key, value, _ in records:
        if timestamp > newest:
            newest = timestamp
        inner.append(_message(magic, time_bit, offset - base, timestamp, key, value))
    body = codec_for(compression).compress(b"".join(inner), level)
    if compression == LZ4 and magic == 0:
        body = spoil(body)
    return _message(magic, compression | time_bit, records[-1][0], newest, None, body)


def check_codec(compression: int) -> None:
    """Raise unless message sets may have the codec: :class:`~kafka.errors.UnsupportedForMessageFormatError` for zstd,
    which came with Kafka 2.1, :class:`~kafka.errors.UnsupportedCodecError` for one that is not available here."""
    if compression >= ZSTD:
        name = CODEC_NAMES.get(compression, str(compression))
        raise UnsupportedForMessageFormatError(f"message sets have no compression {name}")
    if compression != NONE:
        codec_for(compression)


def _message(
    magic: int, attributes: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    head = _BODY[1].pack(1, attributes, timestamp) if magic else _BODY[0].pack(0, attributes)
    body = b"".join(
        (
            head,
            _NULL if key is None else _LENGTH.pack(len(key)),
            key or b"",
            _NULL if value is None else _LENGTH.pack(len(value)),
            value or b"",
        )
    )
    return _HEAD.pack(offset, _CRC_AND_BACK + len(body), zlib.crc32(body)) + body

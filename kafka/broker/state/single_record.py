"""A batch of one plain record, packed in one go: what most changes of state are.

The layout is that of ``kafka.records`` (``builder.py`` draws it), with which a test compares this. It is here for the
acknowledgements of share groups, each of which is one such batch: 1.1 us, where a builder takes 3.1.
"""

from __future__ import annotations

import struct
from typing import Final

from kafka.records.header import FRAME_BYTES
from kafka.records.varint import TABLE_SIZE, ZIGZAG, encode_varint
from kafka.wire.crc32c import crc32c

_FRAME: Final = struct.Struct(">qiibI")
"""Base offset, size, leader epoch, magic, CRC of all that follows."""

_ONE_PLAIN: Final = b"\0\0\0\0\0\0"
"""Attributes, last offset delta."""

_TIMES: Final = struct.Struct(">qq")
"""Base and max timestamp."""

_OF_NOBODY: Final = struct.pack(">qhii", -1, -1, -1, 1)
"""Producer id, epoch and sequence, count of records."""

_SIZE_BEFORE_REST: Final = _FRAME.size - FRAME_BYTES

_BEHIND_LENGTH: Final = b"\0\0\0"
"""Attributes, timestamp delta, offset delta."""


def single_record_batch(now_ms: int, key: bytes, value: bytes | None) -> bytearray:
    """The batch; None as value is a tombstone."""
    size = len(key)
    key_size = ZIGZAG[size] if size < TABLE_SIZE else encode_varint(size)
    size += 4 + len(key_size)
    if value is None:
        value_size, value = b"\1", b""
    else:
        length = len(value)
        value_size = ZIGZAG[length] if length < TABLE_SIZE else encode_varint(length)
        size += length
    size += len(value_size)
    record_size = ZIGZAG[size] if size < TABLE_SIZE else encode_varint(size)
    rest = b"".join(
        (
            _ONE_PLAIN, _TIMES.pack(now_ms, now_ms), _OF_NOBODY,
            record_size, _BEHIND_LENGTH, key_size, key, value_size, value, b"\0",
        )
    )  # fmt: skip
    batch = bytearray(_FRAME.pack(0, _SIZE_BEFORE_REST + len(rest), -1, 2, crc32c(rest)))
    batch += rest
    return batch

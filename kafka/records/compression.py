"""Compression of a batch's records: one table row per codec.

A row says how the codec compresses and how it decompresses *with a bound*: bytes from the network may inflate a
thousandfold, so no decompressor here makes more than the bound plus one byte before it stops. Message sets v0 and v1
use the same rows.

A codec is added by one more row in :data:`CODECS`; its name is already in :data:`CODEC_NAMES`. What belongs to a batch
(attributes, CRC, positions) is in :mod:`kafka.records.header`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka.errors import CorruptRecordError, UnsupportedCodecError

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final[dict[int, str]] = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}
"""Kafka's codec number (the lowest three bits of a batch's attributes) -> its name in ``compression_type``."""

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 100 * 1024 * 1024
"""As large as a whole response may be by default (``receive_message_max_bytes``)."""

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"


class Codec(NamedTuple):
    """One codec: ``compress(data, level)``, with ``level`` None for its own default, and ``decompress(data,
    max_bytes)``, which raises :class:`~kafka.errors.CorruptRecordError` for anything that is malformed, cut or inflates
    above ``max_bytes``."""

    number: int
    name: str
    compress: Callable[[bytes, int | None], bytes]
    decompress: Callable[[bytes, int], bytes]


def _gzip_compress(data: bytes, level: int | None) -> bytes:
    machine = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    return machine.compress(data) + machine.flush()


def _gzip_decompress(data: bytes, max_bytes: int) -> bytes:
    """Several gzip members one after another are one stream, as in Java's reader (RFC 1952, section 2.2)."""
    chunks: list[bytes] = []
    room = max_bytes
    rest = data
    while True:
        machine = zlib.decompressobj(_GZIP_WBITS)
        try:
            chunk = machine.decompress(rest, room + 1)
        except zlib.error as error:
            raise CorruptRecordError(f"gzip data that cannot be decompressed: {error}") from None
        room -= len(chunk)
        if room < 0:
            raise CorruptRecordError(f"gzip data that inflates above the bound of {max_bytes} bytes")
        if not machine.eof:
            raise CorruptRecordError("gzip data that ends too early")
        chunks.append(chunk)
        rest = machine.unused_data
        if not rest:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        if not rest.startswith(_GZIP_MAGIC):
            raise CorruptRecordError(f"{len(rest)} bytes after the end of gzip data")


CODECS: Final[dict[int, Codec]] = {
    GZIP: Codec(GZIP, "gzip", _gzip_compress, _gzip_decompress),
}


def codec_for(number: int) -> Codec:
    """The codec with Kafka's ``number`` (1 to 7, from a batch's attributes).

    Raises :class:`~kafka.errors.CorruptRecordError` for a number that Kafka does not have, and
    :class:`~kafka.errors.UnsupportedCodecError` for one that it has and we do not: those bytes are not at fault.
    """
    codec = CODECS.get(number)
    if codec is None:
        name = CODEC_NAMES.get(number)
        if name is None:
            raise CorruptRecordError(f"compression codec {number} does not exist")
        raise UnsupportedCodecError(f"compression codec {name} is not available; available: {available_codecs()}")
    return codec


def available_codecs() -> str:
    """The names of the codecs that work here, for messages: ``none, gzip``."""
    return ", ".join(["none", *(codec.name for codec in CODECS.values())])

"""Compression of a batch's records: one table row per codec.

A row says how the codec compresses and how it decompresses *with a bound*: bytes from the network may inflate a
thousandfold, so no decompressor here makes more than the bound plus one byte before it stops. Message sets v0 and v1
use the same rows, but for zstd, which came after them, and for their lz4 checksum in v0 (``message_set.py``).

gzip is the standard library's. snappy, lz4 and zstd come from ``cramjam``, the extra ``compression``; it is loaded with
the first batch that needs it, and :func:`codec_for` names the extra where it is missing. Kafka's own
framing of snappy comes from the library of its Java clients (snappy-java)::

    magic     8 bytes   82 "SNAPPY" 00
    version   i32       1
    least     i32       1     the oldest version that can read this
    block ... length i32, then so many bytes of raw snappy; 32 KiB of data in each

Other clients (librdkafka) send one raw block without any of that; readers tell them apart by the magic. lz4 is the
frame format with *independent* blocks: Kafka's Java reader knows no others.

A codec is added by one more row in :data:`CODECS`; its name is already in :data:`CODEC_NAMES`. The parts of a batch
(attributes, CRC, positions) are in :mod:`kafka.records.header`.

Source: KIP-110 (zstd), KIP-390 (levels); the layout of snappy was read off bytes from Apache Kafka 0.8.2.2 and 4.3.0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

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
_BOUND_BYTES: Final = 30 * 1024 * 1024
_BOUND_RATIO: Final = 14

_GZIP_WBITS: Final = 16 + zlib.MAX_WBITS
_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP_STEP_BYTES: Final = 256
"""Size of the first input chunk of a second or later member, doubled until the member ends: with a thousand members
of 20 bytes each the rest of the data would be copied a thousand times."""

_SNAPPY_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_MAGIC: Final = _SNAPPY_HEADER[:8]
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024
_SNAPPY_MOST_RATIO: Final = 32
"""Above the most of the format, where a copy of three bytes stands for 64."""
_LENGTH: Final = struct.Struct(">i")

_GZIP_DEFAULT_LEVEL: Final = -1
_LZ4_DEFAULT_LEVEL: Final = 9
"""Kafka's number for the fast mode of lz4, between those of the slow one: seen in the Java client 4.3.0. Levels 8 and
10 are slower and smaller. Other libraries mean the slow mode by 9."""
_ZSTD_DEFAULT_LEVEL: Final = 3

_FIRST_GUESS: Final = 65_536
_MOST_SPARE_BYTES: Final = 4_194_304
_spare: Final[list[bytearray]] = []
"""At most one buffer that :func:`_inflate` used last."""
_NO_ROOM: Final = "failed to write whole buffer"
"""cramjam's error when an output buffer is full. Should the text change, all data that inflates above the first
guess is called malformed, which the tests of this module would show."""


class InflationLimitError(CorruptRecordError):
    """A batch would inflate above the bound (2)."""


class Codec(NamedTuple):
    """One codec: ``compress(data, level)``, with ``level`` None for its own default, and ``decompress(data,
    max_bytes)``, which raises :class:`~kafka.errors.CorruptRecordError` for anything that is malformed or cut, and
    :class:`InflationLimitError`, which is one, for what inflates above ``max_bytes``.

    ``levels``: the lowest and the highest that Kafka accepts (KIP-390), None for a codec without levels;
    ``default_level``: the codec's own. ``library``: the module that it needs besides the standard library, or empty."""

    number: int
    name: str
    compress: Callable[[bytes, int | None], bytes]
    decompress: Callable[[bytes, int], bytes]
    levels: tuple[int, int] | None = None
    library: str = ""
    default_level: int = 0


def _gzip_compress(data: bytes, level: int | None) -> bytes:
    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, _GZIP_WBITS)
    return compressor.compress(data) + compressor.flush()


def _gzip_decompress(data: bytes, max_bytes: int) -> bytes:
    """Several gzip members one after another are one stream, as in Java's reader (RFC 1952, section 2.2)."""
    chunks: list[bytes] = []
    room = max_bytes
    pos, end = 0, len(data)
    step = end
    while True:
        decompressor = zlib.decompressobj(_GZIP_WBITS)
        while not decompressor.eof:
            if pos >= end:
                raise CorruptRecordError("gzip data that ends too early")
            piece = data[pos : pos + step]
            try:
                chunk = decompressor.decompress(piece, room + 1)
            except zlib.error as error:
                raise CorruptRecordError(f"gzip data that cannot be decompressed: {error}") from None
            room -= len(chunk)
            if room < 0:
                raise InflationLimitError(f"gzip data that inflates above the bound of {max_bytes} bytes")
            pos += len(piece) - len(decompressor.unused_data)
            step *= 2
            chunks.append(chunk)
        if pos == end:
            return b"".join(chunks)  # one chunk is not copied
        if not data.startswith(_GZIP_MAGIC, pos):
            raise CorruptRecordError(f"{end - pos} bytes after the end of gzip data")
        step = _GZIP_STEP_BYTES  # each end of a member copies the input after it, so that has to be small


def _cramjam() -> Any:
    """The library of the extra ``compression``; :func:`codec_for` has found it installed."""
    return import_module("cramjam")


def _inflate(name: str, decompress_into: Callable[[bytes, bytearray], int], data: bytes, max_bytes: int) -> bytes:
    """Decompress into a buffer that grows up to the bound, which the output never exceeds.

    The buffer is kept for the next batch, which mostly is as large: new memory for each would be mapped and cleared,
    and the guess at its size would be wrong each time where data shrinks to a hundredth.
    """
    least = min(max_bytes, max(4 * len(data), _FIRST_GUESS))
    try:
        out = _spare.pop()  # another thread makes its own meanwhile
    except IndexError:
        out = bytearray(least)
    if not least <= len(out) <= max_bytes:
        out = bytearray(least)
    while True:
        try:
            count = decompress_into(data, out)
        except Exception as error:  # cramjam.DecompressionError; any other error would end a broker, too
            if _NO_ROOM not in str(error):
                raise CorruptRecordError(f"{name} data that cannot be decompressed: {error}") from None
            if len(out) >= max_bytes:
                raise InflationLimitError(f"{name} data that inflates above the bound of {max_bytes} bytes") from None
            size = min(max_bytes, 4 * len(out))
            out = bytearray()  # never two at a time
            out = bytearray(size)
        else:
            result = bytes(memoryview(out)[:count])
            if len(out) <= _MOST_SPARE_BYTES:
                _spare[:] = [out]
            return result


def _lz4_compress(data: bytes, level: int | None) -> bytes:
    compressor = _cramjam().lz4.Compressor(
        level=_lz4_level(level),
        content_checksum=False,
        block_linked=False,
    )
    compressor.compress(data)
    return bytes(compressor.finish())


def _lz4_level(level: int | None) -> int:
    """The library's number for a level of Kafka's: 0 is its fast mode, and 12 its best, the same as Kafka's up to
    17."""
    return 0 if level is None or level == _LZ4_DEFAULT_LEVEL else max(0, min(level, 12))


def _lz4_decompress(data: bytes, max_bytes: int) -> bytes:
    return _inflate("lz4", _cramjam().lz4.decompress_into, data, max_bytes)


def _zstd_compress(data: bytes, level: int | None) -> bytes:
    return bytes(_cramjam().zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def _zstd_decompress(data: bytes, max_bytes: int) -> bytes:
    return _inflate("zstd", _cramjam().zstd.decompress_into, data, max_bytes)


def _snappy_compress(data: bytes, level: int | None) -> bytes:
    compress_raw = _cramjam().snappy.compress_raw
    parts: list[bytes] = [_SNAPPY_HEADER]
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: bytes, max_bytes: int) -> bytes:
    """Framed, or one raw block."""
    snappy = _cramjam().snappy
    if not data.startswith(_SNAPPY_MAGIC):
        return _snappy_block(snappy, data, max_bytes, max_bytes)
    end = len(data)
    pos = len(_SNAPPY_HEADER)
    if end < pos:
        raise CorruptRecordError("snappy data that ends in its header")
    parts: list[bytes] = []
    room = max_bytes
    while pos < end:
        if end - pos < 4:
            raise CorruptRecordError("snappy data that ends in a block's length")
        length = int(_LENGTH.unpack_from(data, pos)[0])
        pos += 4
        if not 0 <= length <= end - pos:
            raise CorruptRecordError(f"a block of {length} bytes in snappy data, where {end - pos} are left")
        part = _snappy_block(snappy, data[pos : pos + length], room, max_bytes)
        room -= len(part)
        parts.append(part)
        pos += length
    return b"".join(parts)


def _snappy_block(snappy: Any, block: bytes, room: int, max_bytes: int) -> bytes:
    try:
        size = int(snappy.decompress_raw_len(block))
        if size <= room:
            if size > _SNAPPY_MOST_RATIO * len(block):  # or a few bytes would allocate all of the bound
                raise CorruptRecordError(f"a snappy block of {len(block)} bytes that claims to hold {size}")
            return bytes(snappy.decompress_raw(block))
    except CorruptRecordError:
        raise
    except Exception as error:  # cramjam.DecompressionError, as above
        raise CorruptRecordError(f"snappy data that cannot be decompressed: {error}") from None
    raise InflationLimitError(f"snappy data that inflates above the bound of {max_bytes} bytes")


CODECS: Final[dict[int, Codec]] = {
    GZIP: Codec(GZIP, "gzip", _gzip_compress, _gzip_decompress, (1, 9), default_level=_GZIP_DEFAULT_LEVEL),
    SNAPPY: Codec(SNAPPY, "snappy", _snappy_compress, _snappy_decompress, None, "cramjam"),
    LZ4: Codec(LZ4, "lz4", _lz4_compress, _lz4_decompress, (1, 17), "cramjam", _LZ4_DEFAULT_LEVEL),
    ZSTD: Codec(ZSTD, "zstd", _zstd_compress, _zstd_decompress, (-131072, 22), "cramjam", _ZSTD_DEFAULT_LEVEL),
}


def inflation_bound(compressed_bytes: int, base_bytes: int = _BOUND_BYTES) -> int:
    """The decompressed size that a batch of ``compressed_bytes`` may have: ``base_bytes`` (30 MiB) and 14 times its own
    size. It is in memory twice while it is read, so this keeps a batch of a few kB below 64 MB of memory, and lets one
    of 1 MiB inflate 44-fold."""
    return base_bytes + _BOUND_RATIO * compressed_bytes


def codec_for(number: int) -> Codec:
    """The codec with Kafka's ``number`` (1 to 7, from a batch's attributes).

    Raises :class:`~kafka.errors.CorruptRecordError` for a number that Kafka does not have, and
    :class:`~kafka.errors.UnsupportedCodecError` for one whose library is not installed, with the name of the extra that
    installs it: the bytes are valid.
    """
    codec = CODECS.get(number)
    if codec is None:
        raise CorruptRecordError(f"compression codec {number} does not exist")
    if codec.library and not _is_installed(codec.library):
        raise UnsupportedCodecError(
            f"compression codec {codec.name} needs the library {codec.library}: "
            f"pip install 'kafka-taskloop[compression]'; available: {available_codecs()}"
        )
    return codec


def available_codecs() -> str:
    """The names of the codecs that work here, for messages: ``none, gzip``."""
    return ", ".join(["none", *(codec.name for codec in CODECS.values() if works(codec))])


def works(codec: Codec) -> bool:
    """Whether the codec's library, if it has one, is installed."""
    return not codec.library or _is_installed(codec.library)


def _is_installed(library: str) -> bool:
    try:
        import_module(library)
    except ImportError:
        return False
    return True

"""Every codec of the table: identity, bounds, cut and foreign data."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import sys
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records.compression import (
    CODEC_NAMES,
    CODECS,
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    GZIP,
    LZ4,
    SNAPPY,
    ZSTD,
    available_codecs,
    codec_for,
)
from kafka.records.message_set import with_correct_lz4_checksum


def test_codecs_have_kafkas_numbers_names_and_levels() -> None:
    """``CompressionType`` in Java and the lowest bits of the attributes; levels and their defaults: KIP-390."""
    assert CODEC_NAMES == {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
    assert {number: (codec.name, codec.levels, codec.default_level) for number, codec in CODECS.items()} == {
        1: ("gzip", (1, 9), -1),
        2: ("snappy", None, 0),
        3: ("lz4", (1, 17), 9),
        4: ("zstd", (-131_072, 22), 3),
    }


def test_a_batch_inflates_to_100_mib_at_most_by_default() -> None:
    assert DEFAULT_MAX_DECOMPRESSED_BYTES == 104_857_600


@pytest.mark.parametrize("number", sorted(CODECS))
def test_the_default_level_is_what_no_level_means(number: int) -> None:
    codec = CODECS[number]
    data = random.Random(3).randbytes(100) * 5 + b"some text, some other text " * 300
    assert codec.compress(data, None) == codec.compress(data, codec.default_level)
    others = {codec.compress(data, level) for level in codec.levels or ()}
    assert codec.levels is None or others - {codec.compress(data, None)}


@pytest.mark.parametrize("number", sorted(CODECS))
def test_each_row_stands_under_its_own_number_and_kafkas_name(number: int) -> None:
    codec = codec_for(number)
    assert (codec.number, codec.name) == (number, CODEC_NAMES[number])
    assert codec.name in available_codecs()


@pytest.mark.parametrize("number", sorted(CODECS))
@given(data=st.binary(max_size=5000), level=st.none() | st.integers(1, 9))
def test_decompression_gives_back_what_was_compressed(number: int, data: bytes, level: int | None) -> None:
    codec = codec_for(number)
    assert codec.decompress(codec.compress(data, level), len(data)) == data


@pytest.mark.parametrize("number", sorted(CODECS))
@given(data=st.binary(max_size=300))
def test_any_bytes_decompress_or_are_corrupt(number: int, data: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        codec_for(number).decompress(data, 1000)


@pytest.mark.parametrize("number", sorted(CODECS))
def test_compressed_data_cut_anywhere_is_corrupt(number: int) -> None:
    codec = codec_for(number)
    compressed = codec.compress(b"some text, some text, some text", None)
    for end in range(len(compressed)):
        if number == SNAPPY and end == 16:
            assert codec.decompress(compressed[:end], 1000) == b""  # between blocks: nothing tells how many there are
            continue
        with pytest.raises(CorruptRecordError):
            codec.decompress(compressed[:end], 1000)


@pytest.mark.parametrize("number", sorted(CODECS))
def test_a_bomb_is_corrupt_and_is_not_inflated_beyond_the_bound(number: int) -> None:
    codec = codec_for(number)
    bomb = codec.compress(bytes(50_000_000), None)
    bound = 100_000
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="bound of 100000 bytes"):
            codec.decompress(bomb, bound)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * bound


def test_the_bound_itself_is_allowed() -> None:
    compressed = codec_for(GZIP).compress(bytes(1000), None)
    assert codec_for(GZIP).decompress(compressed, 1000) == bytes(1000)
    with pytest.raises(CorruptRecordError):
        codec_for(GZIP).decompress(compressed, 999)


def test_gzip_members_one_after_another_are_one_stream_and_share_one_bound() -> None:
    data = gzip.compress(b"one ") + gzip.compress(b"two")
    assert codec_for(GZIP).decompress(data, 7) == b"one two"
    with pytest.raises(CorruptRecordError, match="bound of 6 bytes"):
        codec_for(GZIP).decompress(data, 6)


def test_many_gzip_members_cost_no_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 bytes make an empty member: to take up all the rest for each of a million would take for ever."""
    taken = 0
    real = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._machine = real(wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            nonlocal taken
            taken += len(data)
            return self._machine.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._machine, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    text = random.Random(0).randbytes(30_000)
    data = gzip.compress(b"") * 2000 + gzip.compress(text) + gzip.compress(b"end")
    assert codec_for(GZIP).decompress(data, 100_000) == text + b"end"
    assert taken < 20 * len(data)


@pytest.mark.parametrize("tail", [b"\0", b"garbage", b"\x1f", b"\x1f\x8b"])
def test_bytes_after_the_gzip_data_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(GZIP).decompress(gzip.compress(b"one") + tail, 100)


def test_gzip_is_not_read_from_another_format_of_the_same_library() -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(GZIP).decompress(zlib.compress(b"one"), 100)


@pytest.mark.parametrize("number", [SNAPPY, LZ4, ZSTD])
def test_a_codec_whose_library_is_missing_names_the_extra_and_what_works(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    message = rf"{CODEC_NAMES[number]} needs .*pip install 'kafka-taskloop\[compression\]'; available: none, gzip$"
    with pytest.raises(UnsupportedCodecError, match=message):
        codec_for(number)


@pytest.mark.parametrize("number", sorted(CODECS))
def test_every_level_that_kafka_takes_is_taken(number: int) -> None:
    codec = codec_for(number)
    data = b"some text, some text, some text" * 50
    for level in codec.levels or ():
        assert codec.decompress(codec.compress(data, level), len(data)) == data


@pytest.mark.parametrize("number", sorted(CODECS))
@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 1_000_000])
def test_data_larger_than_the_first_guess_survives_whatever_its_ratio(number: int, size: int) -> None:
    codec = codec_for(number)
    for data in (bytes(size), random.Random(7).randbytes(size)):
        assert codec.decompress(codec.compress(data, None), size) == data
        with pytest.raises(CorruptRecordError, match=f"bound of {size - 1} bytes"):
            codec.decompress(codec.compress(data, None), size - 1)


def test_snappy_is_framed_as_javas_library_does_and_a_raw_block_is_read_too() -> None:
    data = bytes(range(256)) * 300
    framed = codec_for(SNAPPY).compress(data, None)
    assert framed.startswith(b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1")
    (first,) = struct.unpack_from(">i", framed, 16)
    assert codec_for(SNAPPY).decompress(framed[20 : 20 + first], 40_000) == data[: 32 * 1024]


@pytest.mark.parametrize(
    "tail", [b"\0", b"\0\0\0", b"\0\0\0\x05abc", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff\0"]
)
def test_snappy_blocks_of_impossible_lengths_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(SNAPPY).decompress(codec_for(SNAPPY).compress(b"one", None) + tail, 1000)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x82SNAPPY\0", "ends in its header"),
        (b"\x82SNAPPY\0" + bytes(7), "ends in its header"),
        (b"\x82SNAPPY\0" + bytes(8) + bytes(3), "ends in a block's length"),
        (b"\x82SNAPPY\0" + bytes(8) + bytes(4), "cannot be decompressed"),  # a block of nothing does not say its size
        (b"\x82SNAPPY\0" + bytes(8) + b"\0\0\0\5abcd", "a block of 5 bytes in snappy data, where 4 are left"),
        (b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff", "a block of -1 bytes"),
        (b"\x81\1\0\0", "a snappy block of 4 bytes that claims to hold 129"),  # above 32 to 1
        (b"\x80\1\0\0", "cannot be decompressed"),
    ],
)
def test_snappy_data_says_what_is_wrong_with_it(data: bytes, why: str) -> None:
    with pytest.raises(CorruptRecordError, match=why):
        codec_for(SNAPPY).decompress(data, 1000)


def test_a_snappy_block_that_claims_to_be_large_is_not_believed() -> None:
    with pytest.raises(CorruptRecordError, match="bound of 1000 bytes"):
        codec_for(SNAPPY).decompress(b"\xff\xff\xff\xff\x0f", 1000)


def test_lz4_frames_have_independent_blocks_as_javas_reader_wants_them() -> None:
    frame = codec_for(LZ4).compress(bytes(200_000), None)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] >> 6 == 1  # the version
    assert frame[4] & 0x20  # the bit
    assert not frame[4] & 0x04  # no checksum of the content, which Java's writer does not make either


@pytest.mark.parametrize("number", [LZ4, ZSTD])
def test_frames_one_after_another_are_one_stream(number: int) -> None:
    codec = codec_for(number)
    assert codec.decompress(codec.compress(b"one ", None) + codec.compress(b"two", None), 7) == b"one two"


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_kafka_does_not_have_is_corrupt(number: int) -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(number)


def test_lz4_frames_of_any_kind_are_read() -> None:
    """Blocks that depend on one another, a checksum of the content, its size: others write what they like."""
    data = random.Random(1).randbytes(1000) * 200
    linked = cramjam.lz4.Compressor(level=0, content_checksum=True, block_linked=True)
    linked.compress(data)
    independent = codec_for(LZ4).compress(data, None)
    head = independent[:4] + bytes((independent[4] | 0x08, independent[5]))
    frame = with_correct_lz4_checksum(head + len(data).to_bytes(8, "little") + b"\0" + independent[7:])
    for found in (bytes(linked.finish()), independent, frame):
        assert codec_for(LZ4).decompress(found, len(data)) == data
        with pytest.raises(CorruptRecordError, match="bound"):
            codec_for(LZ4).decompress(found, len(data) - 1)


def test_an_lz4_frame_that_lies_about_its_size_is_corrupt_and_not_believed() -> None:
    frame = codec_for(LZ4).compress(b"some text " * 10, None)
    lying = with_correct_lz4_checksum(
        frame[:4] + bytes((frame[4] | 0x08, frame[5])) + (1 << 60).to_bytes(8, "little") + b"\0" + frame[7:]
    )
    with pytest.raises(CorruptRecordError):
        codec_for(LZ4).decompress(lying, 10_000)


def test_zstd_of_a_size_that_its_frame_does_not_have_is_read() -> None:
    data = b"some text " * 20_000
    stream = cramjam.zstd.Compressor(3)
    stream.compress(data)
    frame = bytes(stream.finish())
    assert not frame[4] & 0xE0  # neither a content size nor one segment
    assert codec_for(ZSTD).decompress(frame, len(data)) == data
    sized = codec_for(ZSTD).compress(b"and more", None)
    assert codec_for(ZSTD).decompress(frame + sized, 300_000) == data + b"and more"
    with pytest.raises(CorruptRecordError, match="bound"):
        codec_for(ZSTD).decompress(frame, len(data) - 1)


def test_a_zstd_window_of_gigabytes_is_refused_before_memory_is_set_aside() -> None:
    frame = bytes.fromhex("28b52ffd") + bytes((0, (31 - 10) << 3)) + (1 | 5 << 3).to_bytes(3, "little") + b"hello"
    with pytest.raises(CorruptRecordError, match="too much memory"):
        codec_for(ZSTD).decompress(frame, 1_000_000)


@pytest.mark.parametrize("number", [LZ4, ZSTD])
def test_a_frame_to_be_skipped_is_skipped(number: int) -> None:
    skipped = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"notes"
    assert codec_for(number).decompress(skipped + codec_for(number).compress(b"one", None), 100) == b"one"


def test_a_snappy_block_that_claims_more_than_the_format_can_do_is_corrupt() -> None:
    with pytest.raises(CorruptRecordError, match="claims to hold 1000000"):
        codec_for(SNAPPY).decompress(b"\xc0\x84\x3d\x00", 2_000_000)


def test_a_small_bound_holds_also_after_a_large_batch() -> None:
    """The buffer of the last batch is used again only where it is not above the bound."""
    for number in (LZ4, ZSTD):
        codec = codec_for(number)
        large, small = codec.compress(bytes(1_000_000), None), codec.compress(bytes(70_000), None)
        assert codec.decompress(large, 1_000_000) == bytes(1_000_000)
        with pytest.raises(CorruptRecordError, match="bound of 69999 bytes"):
            codec.decompress(small, 69_999)
        assert codec.decompress(small, 70_000) == bytes(70_000)
        assert codec.decompress(large, 1_000_000) == bytes(1_000_000)


def test_raw_snappy_as_librdkafka_writes_it_is_read() -> None:
    data = bytes(range(256)) * 1000
    assert codec_for(SNAPPY).decompress(bytes(cramjam.snappy.compress_raw(data)), len(data)) == data


def test_nine_is_the_fast_mode_of_lz4_as_in_java() -> None:
    data = random.Random(1).randbytes(50) * 10 + b"some text, some other text " * 200
    codec = codec_for(LZ4)
    assert codec.compress(data, 9) == codec.compress(data, None)
    assert len(codec.compress(data, 10)) < len(codec.compress(data, 9))

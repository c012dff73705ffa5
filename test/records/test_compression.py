"""Every codec of the table: identity, bounds, cut and foreign data."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError, UnsupportedCodecError
from kafka.records.compression import CODEC_NAMES, CODECS, GZIP, ZSTD, available_codecs, codec_for


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


@pytest.mark.parametrize("tail", [b"\0", b"garbage", b"\x1f", b"\x1f\x8b"])
def test_bytes_after_the_gzip_data_are_corrupt(tail: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(GZIP).decompress(gzip.compress(b"one") + tail, 100)


def test_gzip_is_not_read_from_another_format_of_the_same_library() -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(GZIP).decompress(zlib.compress(b"one"), 100)


def test_a_codec_that_kafka_has_and_we_do_not_is_named_with_those_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(CODECS, ZSTD, raising=False)
    with pytest.raises(UnsupportedCodecError, match="zstd is not available; available: none, gzip"):
        codec_for(ZSTD)


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_kafka_does_not_have_is_corrupt(number: int) -> None:
    with pytest.raises(CorruptRecordError):
        codec_for(number)

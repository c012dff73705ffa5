"""Message sets v0 and v1 as we write them: what reading gives back, sizes, limits, what the format does not have."""

from __future__ import annotations

import gzip
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import IllegalStateError, UnsupportedCodecError, UnsupportedForMessageFormatError
from kafka.records import GZIP, LOG_APPEND_TIME, LZ4, NO_ROOM, NONE, ZSTD, RawRecord, iter_batches
from kafka.records.message_set import MessageSetBuilder, encode_message_set
from test.records.samples import T0, optional_bytes, timestamps
from test.records.test_message_set import CODECS_OF_SETS, read

messages = st.lists(st.tuples(timestamps, optional_bytes, optional_bytes), min_size=1, max_size=6)


@pytest.mark.parametrize("compression", CODECS_OF_SETS)
@pytest.mark.parametrize("magic", [0, 1])
@given(items=messages)
def test_reading_gives_back_what_was_appended(magic: int, compression: int, items: list[Any]) -> None:
    builder = MessageSetBuilder(1 << 31, magic, compression)
    for index, (timestamp, key, value) in enumerate(items):
        before = builder.size_bytes
        assert builder.append(timestamp, key, value) == index
        assert builder.size_bytes == before + builder.size_of(timestamp, key, value)
    data = builder.build()
    assert read(data) == [
        (offset, timestamp if magic else -1, key, value, []) for offset, (timestamp, key, value) in enumerate(items)
    ]
    if compression == NONE:
        assert builder.size_bytes == len(data)
    assert builder.max_timestamp == max(-1, *(item[0] for item in items))


@pytest.mark.parametrize("compression", CODECS_OF_SETS)
@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_with_gaps_survive(magic: int, compression: int) -> None:
    records: list[RawRecord] = [(at, T0, None, b"x", []) for at in (70, 71, 80, 2**40)]
    data = encode_message_set(records, magic, compression)
    assert [record[0] for record in read(data)] == [70, 71, 80, 2**40]
    if compression:
        (header,) = iter_batches(data)
        assert header.next_offset == 2**40 + 1  # a wrapper is known by its last offset


def test_marked_with_the_brokers_time_v1_says_so_and_v0_cannot() -> None:
    records: list[RawRecord] = [(0, T0, None, b"x", []), (1, T0, None, b"y", [])]
    for compression in CODECS_OF_SETS:
        data = encode_message_set(records, 1, compression, timestamp_type=LOG_APPEND_TIME)
        assert {header.timestamp_type for header in iter_batches(data)} == {LOG_APPEND_TIME}
        assert read(data) == records
        data = encode_message_set(records, 0, compression, timestamp_type=LOG_APPEND_TIME)
        assert {header.attributes for header in iter_batches(data)} == {compression}


def test_inner_offsets_count_from_zero_in_v1_and_are_their_own_in_v0() -> None:
    """KIP-31: relative offsets, so that a broker need not compress anew."""
    records: list[RawRecord] = [(at, T0, None, b"x", []) for at in (70, 71, 80)]
    for magic, expected in ((0, [70, 71, 80]), (1, [0, 1, 10])):
        value = encode_message_set(records, magic, GZIP)[(26, 34)[magic] :]
        assert [header.base_offset for header in iter_batches(gzip.decompress(value))] == expected


@pytest.mark.parametrize("times", [(T0,), (T0 + 5, T0, T0 + 1), (T0, T0 + 5, T0 + 1), (T0, T0 + 1, T0 + 5)])
def test_a_wrapper_of_v1_has_the_newest_of_its_timestamps(times: tuple[int, ...]) -> None:
    """KIP-32: the largest of the inner messages, where the producer set them."""
    data = encode_message_set([(at, time, None, b"x", []) for at, time in enumerate(times)], 1, GZIP)
    assert struct.unpack_from(">q", data, 18) == (max(times),)


def test_no_records_are_an_empty_set() -> None:
    assert encode_message_set([], 1) == encode_message_set([], 1, GZIP) == b""


def test_a_full_set_takes_no_more_and_its_first_record_is_always_taken() -> None:
    builder = MessageSetBuilder(100, 1)
    assert builder.append(T0, None, b"x" * 500) == 0
    assert not builder.has_room(builder.size_of(T0, None, b""))
    assert builder.append(T0, None, b"") == NO_ROOM
    assert len(read(builder.build())) == 1
    assert builder.is_built
    assert builder.append(T0, None, b"") == NO_ROOM
    assert not builder.has_room(0)


def test_a_record_that_ends_at_the_limit_is_taken() -> None:
    """Two messages of v1, each with 34 bytes beside its value."""
    for limit, offset in ((72, 1), (71, NO_ROOM)):
        builder = MessageSetBuilder(limit, 1)
        assert builder.has_room(1000)
        assert builder.append(T0, None, b"xx") == 0
        assert builder.has_room(36) is (offset == 1)
        assert builder.append(T0, None, b"xx") == offset
        assert builder.size_bytes == (72 if offset == 1 else 36)


def test_an_empty_set_says_minus_one_and_a_set_the_first_and_the_newest_timestamp() -> None:
    builder = MessageSetBuilder(1000, 0)
    assert (builder.base_timestamp, builder.max_timestamp, builder.records_count) == (-1, -1, 0)
    assert (builder.size_bytes, builder.is_built) == (0, False)
    for timestamp, newest in ((5, 5), (3, 5), (7, 7), (6, 7)):
        builder.append(timestamp, None, b"")
        assert (builder.base_timestamp, builder.max_timestamp) == (5, newest)
    assert NO_ROOM == -1


def test_an_empty_set_cannot_be_built() -> None:
    with pytest.raises(IllegalStateError):
        MessageSetBuilder(100, 0).build()


def test_headers_are_refused_and_not_lost() -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match="no record headers"):
        MessageSetBuilder(100, 1).append(T0, None, b"", [("a", b"1")])


def test_zstd_came_too_late_for_message_sets() -> None:
    with pytest.raises(UnsupportedForMessageFormatError, match="zstd"):
        MessageSetBuilder(100, 1, ZSTD)


def test_a_missing_codec_is_an_error_before_any_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(UnsupportedCodecError, match="compression"):
        MessageSetBuilder(100, 1, LZ4)

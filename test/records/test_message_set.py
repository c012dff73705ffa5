"""Message sets v0 and v1: real ones, ours read back, and bytes that mean harm."""

from __future__ import annotations

import contextlib
import gzip
import pathlib
import struct
import sys
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import (
    CorruptRecordError,
    IllegalStateError,
    KafkaError,
    UnsupportedCodecError,
    UnsupportedForMessageFormatError,
)
from kafka.records import (
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NO_ROOM,
    NONE,
    SNAPPY,
    ZSTD,
    MessageSetBuilder,
    RawRecord,
    decode_raw,
    decode_records,
    encode_message_set,
    iter_batches,
)
from kafka.records.lz4_header import mend, spoil
from test.records.samples import GOLDEN_RECORDS, T0, optional_bytes, timestamps

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "message_sets"
FILES = sorted(path.stem for path in GOLDEN.glob("*.bin"))
CODECS_OF_SETS = (NONE, GZIP, SNAPPY, LZ4)
SAMPLE: list[RawRecord] = [
    (offset, timestamp, key, value, []) for offset, (timestamp, key, value, _) in enumerate(GOLDEN_RECORDS)
]

messages = st.lists(st.tuples(timestamps, optional_bytes, optional_bytes), min_size=1, max_size=6)


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.bin").read_bytes()


def read(data: Any, **options: int) -> list[RawRecord]:
    return [record for header in iter_batches(data) for record in decode_raw(data, header, **options)]


def message(
    value: bytes | None = b"v",
    *,
    key: bytes | None = None,
    magic: int = 0,
    attributes: int = 0,
    offset: int = 0,
    timestamp: int = T0,
    body: bytes | None = None,
    crc: int | None = None,
) -> bytes:
    """One message, as right or wrong as it is asked for."""
    if body is None:
        body = b"".join(
            struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part for part in (key, value)
        )
    head = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    found = zlib.crc32(head + body) if crc is None else crc
    return struct.pack(">qiI", offset, 4 + len(head) + len(body), found) + head + body


def wrapper(inner: bytes, magic: int = 0, attributes: int = GZIP, **options: Any) -> bytes:
    return message(gzip.compress(inner), magic=magic, attributes=attributes, **options)


# -- what others wrote -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FILES if name != "v1-log-append-time"])
def test_sets_of_real_brokers_hold_the_records_that_were_sent(name: str) -> None:
    found = read(golden(name))
    assert [(offset, key, value) for offset, _, key, value, _ in found] == [
        (offset, key, value) for offset, _, key, value, _ in SAMPLE
    ]
    assert [record[1] for record in found] == (
        [-1] * 5 if name.startswith("v0") else [record[1] for record in SAMPLE]
    )


def test_the_brokers_time_is_that_of_every_message_of_its_wrapper() -> None:
    data = golden("v1-log-append-time")
    first, *plain = iter_batches(data)
    inside = decode_records(data, first)
    assert [record.offset for record in inside] == [0, 1, 2, 3, 4]
    assert {record.timestamp_type for record in inside} == {LOG_APPEND_TIME}
    assert len({record.timestamp for record in inside}) == 1
    assert inside[0].timestamp > T0 + 10_000
    assert [header.base_offset for header in plain] == [5, 6, 7, 8, 9]
    assert {record.timestamp_type for header in plain for record in decode_records(data, header)} == {LOG_APPEND_TIME}


@pytest.mark.parametrize("name", ["v0-broker-plain", "v1-kafka-python-plain", "v0-broker-snappy", "v1-broker-snappy"])
def test_what_we_write_is_byte_for_byte_what_java_and_kafka_python_write(name: str) -> None:
    data = golden(name)
    header = next(iter_batches(data))
    assert encode_message_set(read(data), header.magic, header.codec) == data


@pytest.mark.parametrize("name", ["v0-broker-lz4", "v0-converted-lz4"])
def test_lz4_of_v0_has_the_header_that_the_format_forbids(name: str) -> None:
    frame = golden(name)[26:]
    assert spoil(frame) == frame
    assert mend(frame) != frame
    assert mend(spoil(frame)) == mend(frame)


@pytest.mark.parametrize("name", ["v1-broker-lz4", "v1-librdkafka-lz4"])
def test_lz4_of_v1_has_the_header_that_the_format_asks_for(name: str) -> None:
    frame = golden(name)[34:]
    assert mend(frame) == frame


# -- there and back --------------------------------------------------------------------------------------------------


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


def test_a_message_that_ends_the_buffer_too_early_is_passed_over() -> None:
    data = encode_message_set(SAMPLE, 1)
    first, *_ = iter_batches(data)
    for end in range(len(data)):
        whole = read(data[:end])
        assert whole == SAMPLE[: len(whole)]
        assert len(whole) == 0 if end < first.end else len(whole) >= 1


def test_any_buffer_will_do() -> None:
    data = encode_message_set(SAMPLE, 1, GZIP)
    assert read(bytearray(data)) == read(memoryview(data)) == SAMPLE


# -- the builder -----------------------------------------------------------------------------------------------------


def test_a_full_set_takes_no_more_and_its_first_record_is_always_taken() -> None:
    builder = MessageSetBuilder(100, 1)
    assert builder.append(T0, None, b"x" * 500) == 0
    assert not builder.has_room(builder.size_of(T0, None, b""))
    assert builder.append(T0, None, b"") == NO_ROOM
    assert len(read(builder.build())) == 1
    assert builder.is_built
    assert builder.append(T0, None, b"") == NO_ROOM
    assert not builder.has_room(0)


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


# -- hostile bytes ---------------------------------------------------------------------------------------------------

INNER = message(magic=0) + message(b"w", offset=1)
BAD = {
    "crc": message(crc=1),
    "crc inside": wrapper(message(crc=1)),
    "key too long": message(body=struct.pack(">i", 100) + b"abc" + struct.pack(">i", -1)),
    "key of the length of all": message(body=struct.pack(">i", 8) + b"abcd" + struct.pack(">i", -1)),
    "key of length -2": message(body=struct.pack(">ii", -2, -1)),
    "value too long": message(body=struct.pack(">ii", -1, 100) + b"abc"),
    "value of length -2": message(body=struct.pack(">ii", -1, -2)),
    "value too short": message(body=struct.pack(">ii", -1, 1) + b"abc"),
    "no value": message(body=struct.pack(">i", -1)),
    "unknown magic": message(magic=3),
    "negative offset": message(offset=-1),
    "wrapped nothing": wrapper(b""),
    "wrapped null": message(None, attributes=GZIP),
    "wrapped garbage": message(b"garbage", attributes=GZIP),
    "wrapped garbage, snappy": message(b"garbage", attributes=SNAPPY),
    "wrapped garbage, lz4": message(b"garbage", attributes=LZ4),
    "wrapped header of lz4": message(b"\x04\x22\x4d\x18\x68\x40\x00", attributes=LZ4),
    "wrapped twice": wrapper(wrapper(INNER)),
    "wrapped v0 in v1": wrapper(INNER, magic=1),
    "wrapped v1 in v0": wrapper(message(magic=1)),
    "wrapped batch": wrapper(struct.pack(">qiib", 0, 60, 0, 2) + bytes(60)),
    "wrapped and cut": wrapper(INNER[:-1]),
    "zstd": message(b"x", attributes=ZSTD),
    "codec 7": message(b"x", attributes=7, magic=1),
    "offsets that go back": wrapper(message(magic=1, offset=1) + message(magic=1), magic=1, offset=9),
    "offsets below 0": wrapper(message(magic=1) + message(magic=1, offset=5), magic=1, offset=1),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_set_is_corrupt(what: str) -> None:
    with pytest.raises(CorruptRecordError):
        read(BAD[what])


def test_a_bomb_is_corrupt_and_not_inflated() -> None:
    bomb = wrapper(message(bytes(10_000_000)))
    with pytest.raises(CorruptRecordError, match="bound of 1000 bytes"):
        read(bomb, max_decompressed_bytes=1000)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_set_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptRecordError):
        read(data)


@pytest.mark.parametrize("compression", CODECS_OF_SETS)
@pytest.mark.parametrize("magic", [0, 1])
@given(data=st.data())
def test_a_damaged_set_gives_our_errors_and_nothing_else(magic: int, compression: int, data: st.DataObject) -> None:
    """Also where the CRC was made anew, by whoever meant the damage."""
    good = bytearray(encode_message_set(SAMPLE, magic, compression))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    mended = good[:12] + struct.pack(">I", zlib.crc32(good[16:])) + good[16:]
    for bad in (good, mended):
        with contextlib.suppress(KafkaError):
            read(bytes(bad), max_decompressed_bytes=100_000)


@given(frame=st.binary(max_size=30))
def test_mending_any_bytes_gives_a_frame_of_that_size_or_an_error(frame: bytes) -> None:
    for start in (b"", b"\x04\x22\x4d\x18"):
        with contextlib.suppress(CorruptRecordError):
            assert len(mend(start + frame)) == len(start + frame)
            assert mend(spoil(start + frame)) == mend(start + frame)

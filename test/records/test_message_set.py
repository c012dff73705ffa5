"""Message sets v0 and v1: real ones, ours read back, and bytes that mean harm."""

from __future__ import annotations

import contextlib
import gzip
import pathlib
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError, KafkaError
from kafka.records import (
    CODECS,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    RawRecord,
    decode_raw,
    decode_records,
    encode_message_set,
    iter_batches,
)
from kafka.records.message_set import decode_produced, with_broken_lz4_checksum, with_correct_lz4_checksum
from test.records.samples import GOLDEN_RECORDS, T0

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "message_sets"
FILES = sorted(path.stem for path in GOLDEN.glob("*.bin"))
CODECS_OF_SETS = (NONE, GZIP, SNAPPY, LZ4)
SAMPLE: list[RawRecord] = [
    (offset, timestamp, key, value, []) for offset, (timestamp, key, value, _) in enumerate(GOLDEN_RECORDS)
]


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
    assert with_broken_lz4_checksum(frame) == frame
    assert with_correct_lz4_checksum(frame) != frame
    assert with_correct_lz4_checksum(with_broken_lz4_checksum(frame)) == with_correct_lz4_checksum(frame)


@pytest.mark.parametrize("name", ["v1-broker-lz4", "v1-librdkafka-lz4"])
def test_lz4_of_v1_has_the_header_that_the_format_asks_for(name: str) -> None:
    frame = golden(name)[34:]
    assert with_correct_lz4_checksum(frame) == frame


# -- the ends of buffers ----------------------------------------------------------------------------------------------


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


def test_the_highest_offset_inside_is_the_one_before_the_last_int64() -> None:
    assert read(wrapper(message(offset=2**63 - 2), offset=2**63 - 2)) == [(2**63 - 2, -1, None, b"v", [])]


def test_a_wrappers_offset_places_its_messages_in_v1_and_not_in_v0() -> None:
    """``DeepRecordsIterator`` in Java: offsets are relative to the last one in v1 alone (KIP-31)."""
    for magic, expected in ((0, [3, 5]), (1, [97, 99])):
        inner = message(magic=magic, offset=3) + message(magic=magic, offset=5)
        assert [record[0] for record in read(wrapper(inner, magic, offset=99))] == expected


# -- what producers send ---------------------------------------------------------------------------------------------


def produced(data: bytes, most: int = 10_000) -> tuple[list[RawRecord], int, bool]:
    return decode_produced(data, most)


@pytest.mark.parametrize("magic", [0, 1])
def test_produced_messages_are_counted_from_zero_whatever_their_offsets(magic: int) -> None:
    at = T0 if magic else -1
    inner = message(b"b", magic=magic, offset=5) + message(None, key=b"k", magic=magic, offset=-3)
    data = message(b"a", magic=magic, offset=-1) + wrapper(inner, magic, offset=2**63 - 1) + message(b"c", magic=magic)
    records = [(0, at, None, b"a", []), (1, at, None, b"b", []), (2, at, b"k", None, []), (3, at, None, b"c", [])]
    assert produced(data) == (records, GZIP, False)
    assert produced(b"") == ([], 0, False)
    assert produced(message(magic=magic)) == ([(0, at, None, b"v", [])], 0, False)


def test_the_first_codec_in_use_is_that_of_what_was_produced() -> None:
    snappy = message(CODECS[SNAPPY].compress(message(), None), attributes=SNAPPY)
    assert produced(message() + snappy + wrapper(message()))[1] == SNAPPY
    assert produced(wrapper(message()) + snappy)[1] == GZIP


@pytest.mark.parametrize(
    ("magic", "attributes", "has_append_time"), [(0, 0, False), (0, 8, False), (1, 0, False), (1, 8, True)]
)
def test_a_produced_message_of_v1_may_claim_to_have_the_brokers_time(
    magic: int, attributes: int, has_append_time: bool
) -> None:
    data = message(magic=magic, attributes=attributes)
    assert produced(data + message(magic=magic))[2] is has_append_time
    assert produced(message(magic=magic) + data)[2] is has_append_time


def test_a_produced_message_that_is_cut_is_passed_over() -> None:
    whole, last = message(b"a"), message(b"b", magic=1)
    for end in range(len(last)):
        assert [record[3] for record in produced(whole + last[:end])[0]] == [b"a"]


def test_all_produced_wrappers_together_have_one_bound() -> None:
    """Each message counts as 26 bytes, its key and its value, which is what one of v0 has."""
    one = wrapper(message(b"v" * 70, key=b"kkkk"))  # 100 bytes inside
    assert len(produced(one + one, 200)[0]) == 2
    for data, most in ((one, 99), (one + one, 199), (one + message() + one, 199), (one * 3, 299), (one * 3, 200)):
        with pytest.raises(CorruptRecordError, match="above the bound"):
            produced(data, most)
    assert len(produced(message(bytes(1000)) * 3, 0)[0]) == 3


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
    "offsets that stay": wrapper(message(magic=1, offset=1) * 2, magic=1, offset=9),
    "the last int64 as an offset": wrapper(message(offset=2**63 - 1)),
    "zstd that could be read": message(CODECS[ZSTD].compress(message(), None), attributes=ZSTD),
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
            assert len(with_correct_lz4_checksum(start + frame)) == len(start + frame)
            assert with_correct_lz4_checksum(with_broken_lz4_checksum(start + frame)) == with_correct_lz4_checksum(
                start + frame
            )

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
    CODECS,
    GZIP,
    LOG_APPEND_TIME,
    LZ4,
    NO_ROOM,
    NONE,
    SNAPPY,
    ZSTD,
    RawRecord,
    decode_raw,
    decode_records,
    iter_batches,
    message_set,
)
from kafka.records.message_set import (
    MessageSetBuilder,
    decode_produced,
    encode_message_set,
    with_broken_lz4_checksum,
    with_correct_lz4_checksum,
)
from test.records.samples import GOLDEN_RECORDS, T0, optional_bytes, timestamps

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


# -- the checksum in the header of an lz4 frame, right and as it was before 0.10 ---------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
        (b"The quick brown fox jumps over the lazy dog", 0xE85EA4DE),
    ],
)
def test_the_hash_is_xxhash_32(data: bytes, expected: int) -> None:
    """Values that xxHash's own tool and its bindings give with seed 0."""
    assert message_set._xxh32(data) == expected


@pytest.mark.parametrize("size", [15, 16, 17, 19, 20, 21, 31, 32, 33])
def test_the_hash_is_the_definitions_at_every_boundary(size: int) -> None:
    data = bytes((7 * index + 1) & 0xFF for index in range(size))
    assert message_set._xxh32(data) == xxh32(data)


def xxh32(data: bytes) -> int:
    """The steps of xxHash's specification (doc/xxhash_spec.md, "XXH32 algorithm") one after another."""
    p1, p2, p3, p4, p5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    most = 2**32

    def rotated(word: int, count: int) -> int:
        return word * 2**count % most + word // 2 ** (32 - count)

    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data) // 4 * 4, 4)]
    rest = data[len(words) * 4 :]
    if len(data) < 16:
        value = p5
    else:
        lanes = [(p1 + p2) % most, p2, 0, -p1 % most]
        while len(words) >= 4:
            lanes = [
                rotated((lane + word * p2) % most, 13) * p1 % most for lane, word in zip(lanes, words[:4], strict=True)
            ]
            words = words[4:]
        value = sum(rotated(lane, count) for lane, count in zip(lanes, (1, 7, 12, 18), strict=True))
    value = (value + len(data)) % most
    for word in words:
        value = rotated((value + word * p3) % most, 17) * p4 % most
    for byte in rest:
        value = rotated((value + byte * p5) % most, 11) * p1 % most
    value = (value ^ value // 2**15) * p2 % most
    value = (value ^ value // 2**13) * p3 % most
    return value ^ value // 2**16


MAGIC = "04224d18"


@pytest.mark.parametrize(
    ("fields", "rest"),
    [
        ("6040", ""),
        ("6040", "00000000"),
        ("6840" + "0102030405060708", "aabb"),
        ("6140" + "01020304", "aabb"),
        ("6940" + "0102030405060708" + "01020304", "aabb"),
    ],
)
def test_the_checksum_stands_behind_the_optional_fields_and_nothing_else_changes(fields: str, rest: str) -> None:
    """The content size (8 bytes) and the dictionary's id (4) as the flags say (lz4's frame format, "Frame Descriptor").
    Before 0.10 the hash was taken from the magic on (KIP-57)."""
    frame = bytes.fromhex(MAGIC + fields + "ee" + rest)
    right = xxh32(bytes.fromhex(fields)) >> 8 & 0xFF
    old = xxh32(bytes.fromhex(MAGIC + fields)) >> 8 & 0xFF
    assert with_correct_lz4_checksum(frame) == bytes.fromhex(MAGIC + fields) + bytes((right,)) + bytes.fromhex(rest)
    assert with_broken_lz4_checksum(frame) == bytes.fromhex(MAGIC + fields) + bytes((old,)) + bytes.fromhex(rest)


def test_the_usual_header_has_the_checksum_that_every_tool_writes() -> None:
    assert with_correct_lz4_checksum(bytes.fromhex("04224d18" "6040" "00")).hex() == "04224d18" "6040" "82"


@pytest.mark.parametrize(
    "frame",
    ["", "04224d18", "04224d186040", "04224d196040ee", "04224d18684001020304050607", "04224d1868400102030405060708",
     "04224d18614001020304", "04224d186940010203040506070801020304"],
)  # fmt: skip
def test_what_ends_in_its_header_or_has_none_is_corrupt(frame: str) -> None:
    for change in (with_correct_lz4_checksum, with_broken_lz4_checksum):
        with pytest.raises(CorruptRecordError):
            change(bytes.fromhex(frame))


# -- writing message sets ----------------------------------------------------------------------------------------------


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

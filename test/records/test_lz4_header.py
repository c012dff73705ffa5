"""The checksum in the header of an lz4 frame, right and as it was before 0.10."""

from __future__ import annotations

import pytest

from kafka.errors import CorruptRecordError
from kafka.records import message_set
from kafka.records.message_set import with_broken_lz4_checksum, with_correct_lz4_checksum


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

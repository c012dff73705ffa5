"""Zigzag varints: the values of the protocol guide, identity, and what is too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import CorruptRecordError
from kafka.records.header import (
    MAX_VARINT_BYTES,
    MAX_VARLONG_BYTES,
    TABLE_SIZE,
    ZIGZAG,
    decode_varint,
    encode_varint,
    size_of_varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"),
        (8191, "fe7f"), (8192, "808001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_values_have_the_bytes_of_the_protocol_guide(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert size_of_varint(value) == len(encoded) // 2


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_decoding_takes_exactly_what_encoding_made(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert size_of_varint(value) == len(encoded)
    assert decode_varint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


def test_the_table_holds_what_the_function_gives() -> None:
    assert len(ZIGZAG) == TABLE_SIZE
    assert all(ZIGZAG[value] == encode_varint(value) for value in range(TABLE_SIZE))


@pytest.mark.parametrize("encoded", ["ffffffffff00", "ffffffff1f", "ffffffff7f"])
def test_a_varint_beyond_32_bits_is_corrupt(encoded: str) -> None:
    with pytest.raises(CorruptRecordError):
        decode_varint(bytes.fromhex(encoded), 0, MAX_VARINT_BYTES)


@pytest.mark.parametrize("encoded", ["ff" * 10 + "00", "ff" * 9 + "02", "80" * 100])
def test_a_varint_beyond_64_bits_is_corrupt(encoded: str) -> None:
    with pytest.raises(CorruptRecordError):
        decode_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize(
    ("most", "longest"), [(MAX_VARINT_BYTES, "80" * 4 + "00"), (MAX_VARLONG_BYTES, "80" * 9 + "00")]
)
def test_a_varint_has_five_bytes_at_most_and_a_long_one_ten_whatever_its_value(most: int, longest: str) -> None:
    """``ByteUtils.readVarint`` and ``readVarlong`` in Java."""
    assert decode_varint(bytes.fromhex(longest), 0, most) == (0, len(longest) // 2)
    with pytest.raises(CorruptRecordError, match=f"more than {len(longest) // 2} bytes"):
        decode_varint(bytes.fromhex("80" + longest), 0, most)


@pytest.mark.parametrize("encoded", ["", "80", "ffff"])
def test_a_cut_varint_is_an_index_error_for_the_caller_to_turn(encoded: str) -> None:
    with pytest.raises(IndexError):
        decode_varint(bytes.fromhex(encoded), 0)

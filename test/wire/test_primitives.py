"""Unsigned varints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import KafkaProtocolError
from kafka.wire.codec import read_uvarint, uvarint


@pytest.mark.parametrize(
    ("n", "encoded"),
    [
        (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (129, "8101"), (300, "ac02"), (2047, "ff0f"), (2048, "8010"),
        (2049, "8110"), (16_383, "ff7f"), (16_384, "808001"), (2**28 - 1, "ffffff7f"), (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)  # fmt: skip
def test_values_have_the_bytes_of_the_protocol_guide(n: int, encoded: str) -> None:
    """Those of Protocol Buffers' unsigned varints, as "UNSIGNED_VARINT" says."""
    assert uvarint(n).hex() == encoded
    assert read_uvarint(bytes.fromhex(encoded), 0) == (n, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1))
def test_a_varint_reads_back_and_takes_one_byte_for_seven_bits(n: int) -> None:
    data = uvarint(n)
    assert len(data) == max(1, -(-n.bit_length() // 7))
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (n, 1 + len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x10"])
def test_a_varint_above_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        read_uvarint(data, 0)


def test_a_varint_of_more_than_five_bytes_is_refused_whatever_its_value() -> None:
    assert read_uvarint(b"\x80\x80\x80\x80\x00", 0) == (0, 5)
    with pytest.raises(KafkaProtocolError, match="more than five bytes"):
        read_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)


@pytest.mark.parametrize("data", ["", "80", "ffff"])
def test_a_varint_that_the_data_ends_in_is_an_index_error(data: str) -> None:
    with pytest.raises(IndexError):
        read_uvarint(bytes.fromhex(data), 0)

"""Unsigned varints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import KafkaProtocolError
from kafka.wire.primitives import read_uvarint, uvarint


@given(st.integers(0, 2**32 - 1))
def test_a_varint_reads_back_and_takes_one_byte_for_seven_bits(n: int) -> None:
    data = uvarint(n)
    assert len(data) == max(1, -(-n.bit_length() // 7))
    assert read_uvarint(b"\xff" + data + b"\xff", 1) == (n, 1 + len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f"])
def test_a_varint_above_32_bits_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaProtocolError):
        read_uvarint(data, 0)

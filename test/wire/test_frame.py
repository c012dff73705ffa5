"""A stream is cut into the same frames however it was split."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.errors import InvalidReceiveError
from kafka.wire.frame import FrameReader, frame
from test import strategies


@given(st.data(), st.lists(st.binary(max_size=40), max_size=6))
def test_any_split_of_a_stream_gives_the_same_frames(data: st.DataObject, payloads: list[bytes]) -> None:
    stream = b"".join(map(frame, payloads))
    reader = FrameReader()
    found = [each for piece in data.draw(strategies.splits(stream)) for each in reader.feed(piece)]
    assert found == payloads
    assert reader.held_bytes == 0


def test_byte_by_byte_and_with_the_start_of_the_next_frame() -> None:
    reader = FrameReader()
    stream = frame(b"one") + frame(b"") + frame(b"three")[:-1]
    found = [each for byte in stream for each in reader.feed(bytes((byte,)))]
    assert found == [b"one", b""]
    assert reader.held_bytes == 8
    assert reader.feed(b"e") == [b"three"]


@pytest.mark.parametrize(("length", "why"), [(-1, "negative"), (101, "above the limit of 100")])
def test_a_length_that_cannot_be_ends_the_stream_for_good(length: int, why: str) -> None:
    reader = FrameReader(max_bytes=100)
    with pytest.raises(InvalidReceiveError, match=why):
        reader.feed(length.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidReceiveError, match=why):
        reader.feed(frame(b"fine"))


def test_frames_in_front_of_a_bad_length_are_given_and_the_fault_is_shown() -> None:
    reader = FrameReader(max_bytes=100)
    assert reader.feed(frame(b"good") + b"\xff\xff\xff\xff") == [b"good"]
    assert isinstance(reader.failed, InvalidReceiveError)
    with pytest.raises(InvalidReceiveError):
        reader.feed(b"")


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"\x16\x03\x01\x00\xa5\x01", "does the peer speak TLS?"),
        (b"\x15\x03\x03\x00\x02\x02", "does the peer speak TLS?"),
        (b"GET / HTTP/1.1\r\n", "does the peer speak HTTP?"),
        (b"HTTP/1.1 400 Bad", "does the peer speak HTTP?"),
    ],
)
def test_bytes_of_another_protocol_are_named(data, hint):
    with pytest.raises(InvalidReceiveError, match=re.escape(hint)):
        FrameReader().feed(data)

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
    assert reader.buffered_bytes == 0


def test_byte_by_byte_and_with_the_start_of_the_next_frame() -> None:
    reader = FrameReader()
    stream = frame(b"one") + frame(b"") + frame(b"three")[:-1]
    found = [each for byte in stream for each in reader.feed(bytes((byte,)))]
    assert found == [b"one", b""]
    assert reader.buffered_bytes == 8
    assert reader.feed(b"e") == [b"three"]


def test_an_empty_frame_is_whole_with_the_last_byte_of_its_length() -> None:
    assert FrameReader().feed(frame(b"")) == [b""]
    reader = FrameReader()
    assert reader.feed(frame(b"one") + b"\0\0\0") == [b"one"]
    assert reader.feed(b"\0") == [b""]
    assert reader.feed(frame(b"two") + frame(b"")) == [b"two", b""]


def test_a_frame_as_large_as_the_limit_is_taken() -> None:
    assert FrameReader(max_bytes=3).feed(frame(b"one")) == [b"one"]


def test_a_length_that_cannot_be_is_known_with_its_last_byte_behind_a_frame() -> None:
    reader = FrameReader(max_bytes=100)
    assert reader.feed(frame(b"one") + b"\xff\xff\xff") == [b"one"]
    with pytest.raises(InvalidReceiveError, match="negative"):
        reader.feed(b"\xff")


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
        *((bytes((kind, 3, minor)) + b"\x00\xa5\x01", "does the peer speak TLS?")
          for kind in (0x15, 0x16) for minor in (0, 1, 2, 3, 4)),
        (b"GET / HTTP/1.1\r\n", "does the peer speak HTTP?"),
        (b"POST / HTTP/1.1\r\n", "does the peer speak HTTP?"),
        (b"HTTP/1.1 400 Bad", "does the peer speak HTTP?"),
    ],
)  # fmt: skip
def test_bytes_of_another_protocol_are_named(data: bytes, hint: str) -> None:
    """TLS: an alert (21) or a handshake (22) of SSL 3.0 to TLS 1.3, whose major version is 3 (RFC 8446, 5.1)."""
    with pytest.raises(InvalidReceiveError, match=re.escape(hint)):
        FrameReader().feed(data)


@pytest.mark.parametrize("data", [b"\x17\x03\x03\x00", b"\x14\x03\x03\x00", b"\x16\x04\x01\x00", b"\x16\x03\x05\x00"])
def test_other_bytes_are_taken_for_no_protocol(data: bytes) -> None:
    with pytest.raises(InvalidReceiveError) as raised:
        FrameReader(max_bytes=100).feed(data)
    assert "does the peer" not in str(raised.value)

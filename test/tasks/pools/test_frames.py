"""Tests of ``kafka.tasks.pools.ipc.frames``: whole frames out of any pieces, and nothing out of anything else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.pools.ipc.frames import HEAD_BYTES, LARGEST_BODY, Frame, PipeFrameReader, encode
from kafka.tasks.pools.ipc.processes import ChannelDamaged

FRAMES = st.lists(
    st.builds(Frame, st.integers(0, 255), st.integers(0, 255), st.binary(max_size=300)), min_size=1, max_size=6
)


def _stream(frames: list[Frame], generation: int = 9) -> bytes:
    return b"".join(encode(generation, frame.kind, frame.body, frame.flags) for frame in frames)


@given(FRAMES)
def test_a_stream_read_whole_gives_its_frames(frames: list[Frame]) -> None:
    reader = PipeFrameReader(9)
    assert reader.feed(_stream(frames)) == frames
    assert reader.left_bytes == 0


@given(FRAMES)
def test_a_stream_read_byte_by_byte_gives_the_same_frames(frames: list[Frame]) -> None:
    reader = PipeFrameReader(9)
    found: list[Frame] = []
    for byte in _stream(frames):
        found += reader.feed(bytes([byte]))
    assert found == frames


@given(FRAMES, st.data())
def test_wherever_a_stream_is_cut_the_frames_are_the_same(frames: list[Frame], data: st.DataObject) -> None:
    stream = _stream(frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    reader = PipeFrameReader(9)
    found: list[Frame] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += reader.feed(stream[start:stop])
    assert found == frames


@given(FRAMES, st.data())
def test_a_stream_that_ends_early_gives_the_whole_frames_before_and_no_damage(
    frames: list[Frame], data: st.DataObject
) -> None:
    stream = _stream(frames)
    length = data.draw(st.integers(0, len(stream) - 1))
    reader = PipeFrameReader(9)
    found = reader.feed(stream[:length])
    assert found == frames[: len(found)]
    assert len(found) < len(frames)
    assert reader.left_bytes == length - len(_stream(found))


@given(FRAMES, st.data())
def test_any_changed_bit_is_damage_and_never_a_wrong_frame(frames: list[Frame], data: st.DataObject) -> None:
    stream = bytearray(_stream(frames))
    at = data.draw(st.integers(0, len(stream) - 1))
    stream[at] ^= 1 << data.draw(st.integers(0, 7))
    before = [frame for index, frame in enumerate(frames) if len(_stream(frames[: index + 1])) <= at]
    reader = PipeFrameReader(9)
    found: list[Frame] = []
    with contextlib.suppress(ChannelDamaged):
        found = reader.feed(bytes(stream))
    assert found == before, "what came before the damage is whole"
    if reader.damage is None:
        assert reader.left_bytes > 0  # a length that has become larger: the frame is waited for
    else:
        with pytest.raises(ChannelDamaged):
            reader.feed(b"")


@given(st.binary(min_size=HEAD_BYTES, max_size=200))
def test_garbage_is_damage(garbage: bytes) -> None:
    with pytest.raises(ChannelDamaged):
        PipeFrameReader(9).feed(b"\0" + garbage)


def test_what_trails_the_frames_is_refused_once_it_is_long_enough_to_judge() -> None:
    reader = PipeFrameReader(9)
    assert reader.feed(encode(9, 1, b"x") + b"trailing") == [Frame(1, 0, b"x")]
    with pytest.raises(ChannelDamaged):
        reader.feed(b"and more of it")


def test_a_damaged_reader_stays_damaged() -> None:
    reader = PipeFrameReader(9)
    with pytest.raises(ChannelDamaged) as first:
        reader.feed(bytes(HEAD_BYTES))
    with pytest.raises(ChannelDamaged) as second:
        reader.feed(encode(9, 1, b""))
    assert str(first.value) == str(second.value)


def test_a_frame_of_another_generation_is_damage() -> None:
    with pytest.raises(ChannelDamaged, match="generation 9"):
        PipeFrameReader(9).feed(encode(8, 1, b"of the forerunner"))


def test_a_length_that_cannot_be_is_damage_before_any_of_it_is_waited_for() -> None:
    head = encode(9, 1, bytes(LARGEST_BODY + 1))[:HEAD_BYTES]
    with pytest.raises(ChannelDamaged):
        PipeFrameReader(9).feed(head)
    largest = encode(9, 1, bytes(LARGEST_BODY))
    assert PipeFrameReader(9).feed(largest) == [Frame(1, 0, bytes(LARGEST_BODY))]

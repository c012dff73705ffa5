"""Large frames are the same frames, in buffers that are used again and never while somebody looks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.errors import InvalidReceiveError
from kafka.wire.frame import LargeFrameReader, ReceiveBuffers, frame

LARGE = 64 * 1024
"""The least size of a frame, its length included, that is received into a buffer of its own."""
KEPT = 256 * 1024
"""Buffers are a multiple of this."""


def receive(reader: LargeFrameReader, stream: bytes, sizes: list[int]) -> list[Any]:
    """What a transport does that gets ``sizes`` bytes at a time, the last size again and again."""
    found: list[Any] = []
    while stream:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        room = reader.get_buffer()
        if room is None:
            piece, stream = stream[:size], stream[size:]
            found += reader.feed(piece)
            continue
        count = min(size, len(room), len(stream))
        room[:count] = stream[:count]
        stream = stream[count:]
        del room
        found += reader.buffer_updated(count)
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0, 5, LARGE - 5, LARGE - 4, LARGE, 3 * LARGE, 5 * LARGE]), max_size=6),
    st.lists(st.integers(1, 4 * LARGE), min_size=1, max_size=12),
)
def test_any_split_of_a_stream_gives_the_same_frames(lengths: list[int], sizes: list[int]) -> None:
    payloads = [bytes((number + 1,)) * length for number, length in enumerate(lengths)]
    reader = LargeFrameReader(ReceiveBuffers(3 * KEPT))
    found = receive(reader, b"".join(map(frame, payloads)), [*sizes[:-1], max(sizes[-1], 100)])
    assert found == payloads
    assert reader.buffered_bytes == 0


def test_large_frames_are_views_and_small_ones_bytes() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    found = receive(reader, frame(b"a" * LARGE) + frame(b"b") + frame(b"c" * LARGE), [1000])
    assert [type(each) for each in found] == [memoryview, bytes, memoryview]


def fill(reader: LargeFrameReader, data: bytes) -> list[Any]:
    """All of ``data`` at once, into the room that there has to be."""
    room = reader.get_buffer()
    assert room is not None
    room[: len(data)] = data
    del room
    return reader.buffer_updated(len(data))


def test_a_frame_is_large_from_64_kib_on_its_length_included() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    assert reader.get_buffer() is None
    assert reader.feed(frame(b"a" * (LARGE - 5))[:4]) == []
    assert (reader.get_buffer(), reader.missing_bytes()) == (None, 0)
    assert reader.feed(b"a" * (LARGE - 5)) == [b"a" * (LARGE - 5)]
    assert reader.feed(frame(b"b" * (LARGE - 4))[:4]) == []
    assert reader.missing_bytes() == LARGE - 4
    (found,) = fill(reader, b"b" * (LARGE - 4))
    assert type(found) is memoryview
    assert reader.missing_bytes() == 0
    (found,) = fill(reader, frame(b"c" * (LARGE - 4)))  # room is offered for one more of its kind
    assert type(found) is memoryview
    (found,) = fill(reader, frame(b"d" * (LARGE - 5)))
    assert (type(found), reader.get_buffer()) == (bytes, None)


def test_what_follows_a_large_frame_is_whole_with_its_last_byte() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    (found,) = receive(reader, frame(b"a" * LARGE), [LARGE])
    assert fill(reader, frame(b"")) == [b""]
    (found,) = receive(reader, frame(b"a" * LARGE), [LARGE])
    assert fill(reader, frame(b"")[:3]) == []
    assert fill(reader, frame(b"")[3:] + frame(b"b") + frame(b"")) == [b"", b"b", b""]
    assert found == b"a" * LARGE


def test_a_negative_length_in_a_buffer_is_known_with_its_last_byte() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    receive(reader, frame(b"a" * LARGE), [LARGE])
    assert fill(reader, b"\xff\xff\xff") == []
    with pytest.raises(InvalidReceiveError, match="is negative"):
        fill(reader, b"\xfe")


def test_the_smallest_buffer_that_is_large_enough_is_taken() -> None:
    pool = ReceiveBuffers()
    buffers = [bytearray(number * KEPT) for number in (3, 1, 2, 4)]
    for buffer in buffers:
        pool.release(buffer)
    three, one, two, _ = buffers
    assert pool.acquire(KEPT + 1) is two
    assert pool.acquire(KEPT) is one
    assert pool.acquire(KEPT) is three
    assert pool.size_bytes == 4 * KEPT
    assert len(pool.acquire(4 * KEPT + 1)) == 5 * KEPT
    assert len(pool.acquire(KEPT)) == 4 * KEPT
    assert (len(pool.acquire(KEPT)), len(pool.acquire(1)), pool.size_bytes) == (KEPT, KEPT, 0)


def test_of_too_many_buffers_the_oldest_goes() -> None:
    pool = ReceiveBuffers(2 * KEPT)
    first, second, third = (bytearray(KEPT) for _ in range(3))
    for buffer in (first, second, third):
        pool.release(buffer)
    taken = [pool.acquire(KEPT), pool.acquire(KEPT)]
    assert {id(each) for each in taken} == {id(second), id(third)}


def test_a_pool_may_be_filled_by_one_buffer_and_has_16_mib_by_default() -> None:
    pool = ReceiveBuffers()
    pool.release(bytearray(16 * 1024 * 1024 + 1))
    assert pool.size_bytes == 0
    pool.release(bytearray(16 * 1024 * 1024))
    assert pool.size_bytes == 16 * 1024 * 1024


def test_a_buffer_is_used_again_once_nobody_looks_at_it() -> None:
    pool = ReceiveBuffers()
    reader = LargeFrameReader(pool)
    stream = frame(b"a" * LARGE)
    (first,) = receive(reader, stream, [1000])
    (part,) = (first[5:10],)
    base = first.obj
    del first
    (second,) = receive(reader, stream, [1000])
    assert second.obj is not base  # `part` is one of its views
    assert part == b"aaaaa"
    del part, second
    (third,) = receive(reader, stream, [1000])
    assert any(third.obj is each for each in (base, *pool._buffers))
    assert pool.size_bytes == 2 * KEPT


def test_the_pool_keeps_no_more_than_it_may() -> None:
    pool = ReceiveBuffers(2 * KEPT)
    views = [memoryview(pool.acquire(1)) for _ in range(4)]
    for view in views:
        pool.release(view.obj)  # type: ignore[arg-type]
    assert pool.size_bytes == 2 * KEPT
    pool.release(bytearray(3 * KEPT))
    assert pool.size_bytes == 2 * KEPT


def test_after_a_small_frame_no_room_is_offered() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    receive(reader, frame(b"a" * LARGE), [LARGE])
    assert reader.get_buffer() is not None
    count = len(frame(b"b"))
    room = reader.get_buffer()
    assert room is not None
    room[:count] = frame(b"b")
    assert reader.buffer_updated(count) == [b"b"]
    assert reader.get_buffer() is None


def test_a_length_that_cannot_be_ends_the_stream_behind_what_was_good() -> None:
    reader = LargeFrameReader(ReceiveBuffers(), max_bytes=LARGE)
    bad = (LARGE + 1).to_bytes(4, "big")
    stream = frame(b"a" * LARGE) + bad
    room_for = receive(reader, stream[: LARGE // 2], [LARGE])
    assert room_for == []
    room = reader.get_buffer()
    assert room is not None
    rest = stream[LARGE // 2 :]
    room[: len(rest)] = rest
    assert reader.buffer_updated(len(rest)) == [b"a" * LARGE]
    assert isinstance(reader.failed, InvalidReceiveError)
    assert reader.get_buffer() is None
    with pytest.raises(InvalidReceiveError, match="above the limit"):
        reader.feed(b"")


def test_it_says_how_much_is_missing_of_a_large_frame_and_of_nothing_else() -> None:
    reader = LargeFrameReader(ReceiveBuffers())
    stream = frame(b"a" * LARGE) + frame(b"b" * 10) + frame(b"c" * LARGE)
    assert reader.missing_bytes() == 0
    missing = []
    for end in range(1000, len(stream) + 1000, 1000):
        piece = stream[end - 1000 : end]
        receive(reader, piece, [1000])
        missing.append((end, reader.missing_bytes()))
    first, second = LARGE + 4, len(stream)
    for end, count in missing:
        end = min(end, len(stream))
        if end < first:
            assert count == first - end
        elif first + 14 + 4 <= end < second:
            assert count == second - end
        else:
            assert count == 0

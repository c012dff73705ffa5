"""Frames of the stream from a child to its parent: their layout, and a reader that takes the stream in any pieces.

What is inside a frame is the affair of ``messages.py``; who reads and writes sockets is ``channel.py``::

     0      2      3       4            8         12        16
     +------+------+-------+------------+---------+---------+---------
     | "KJ" | kind | flags | generation | length  | crc     | body ...
     +------+------+-------+------------+---------+---------+---------

Little-endian. ``generation`` is the number of the child that the channel was made for, ``length`` that of the body.
``crc`` is the CRC-32 of the body, begun with kind, flags and length, so every byte of a frame is checked: user code can
write to the descriptor, and a reader that has lost its place must know it. There is no way to find the next frame
after a bad one; the channel is damaged and its child replaced.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from kafka.tasks.pools.ipc.processes import ChannelDamaged

MAGIC = 0x4A4B
HEAD = struct.Struct("<HBBIII")
HEAD_BYTES = HEAD.size

LARGEST_BODY = 128 * 1024
"""A longer body is none of ours: large ones go through a file (``large_payloads.py``)."""

IN_FILE = 1
"""Flag: the body is in the file whose descriptor came with the frame."""


class Frame(NamedTuple):
    """A whole frame that has passed its checks."""

    kind: int
    flags: int
    body: bytes


def encode(generation: int, kind: int, body: bytes, flags: int = 0) -> bytes:
    """A frame as bytes."""
    length = len(body)
    return HEAD.pack(MAGIC, kind, flags, generation, length, crc32(body, _seed(kind, flags, length))) + body


def _seed(kind: int, flags: int, length: int) -> int:
    return (kind << 24 | flags << 16) ^ length


class PipeFrameReader:
    """Takes a stream as it comes and gives whole frames. Frames before a bad one are given; then, and ever after, it
    raises :class:`ChannelDamaged`. ``damage`` says why, as soon as that is known.
    """

    def __init__(self, generation: int) -> None:
        self.damage: str | None = None
        self._generation = generation
        self._rest = bytearray()
        self._needed = HEAD_BYTES

    @property
    def left_bytes(self) -> int:
        """Of a frame that has come in part."""
        return len(self._rest)

    def fail(self, damage: str) -> None:
        """What came with a frame cannot be used: no more frames are given."""
        self.damage = damage

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are whole with ``data``."""
        if self.damage is not None:
            raise ChannelDamaged(self.damage)
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return []
            data = bytes(self._rest)
        frames: list[Frame] = []
        at, end = 0, len(data)
        self._needed = HEAD_BYTES
        while end - at >= HEAD_BYTES:
            magic, kind, flags, generation, length, crc = HEAD.unpack_from(data, at)
            if magic != MAGIC or generation != self._generation or length > LARGEST_BODY:
                head = data[at : at + HEAD_BYTES]
                self.damage = f"invalid header of a frame of generation {self._generation}: {head!r}"
                break
            stop = at + HEAD_BYTES + length
            if stop > end:
                self._needed += length
                break
            body = data[at + HEAD_BYTES : stop]
            if crc32(body, _seed(kind, flags, length)) != crc:
                self.damage = f"checksum mismatch in a frame of {length} bytes"
                break
            frames.append(Frame(kind, flags, body))
            at = stop
        self._rest = bytearray(data[at:])
        if self.damage is not None and not frames:
            raise ChannelDamaged(self.damage)
        return frames

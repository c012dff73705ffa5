"""Bytes that arrive otherwise than they were sent: changed, cut short, cut off.

Frames here are whole, the length of four bytes in front (``wire/frame.py``); batches begin with a header of 61 bytes,
and their CRC covers all from byte 21 on, so that a change there is always noticed by whoever looks.
"""

from __future__ import annotations

import random
from typing import Any, Final

from kafka.records import HEADER_BYTES
from kafka.records.header import FRAME_BYTES
from kafka.wire.frame import pack_length
from kafka.wire.message import Struct
from kafka.wire.types import BytesLike

LENGTH_BYTES: Final = 4
CORRELATION_BYTES: Final = 4
CRC_COVERS_FROM: Final = 21
HALF: Final = 0.5


def kept_bytes(size: int, keep: float | None) -> int:
    """How many of ``size`` bytes are left: ``keep`` is a number, a part below 1, or None for the half."""
    keep = HALF if keep is None else keep
    return min(int(size * keep) if isinstance(keep, float) else int(keep), size)


def truncated(frame: bytes, keep: float | None) -> bytes:
    """A whole frame whose message is cut: the length in front fits what is left."""
    message = frame[LENGTH_BYTES:]
    left = message[: kept_bytes(len(message), keep)]
    return pack_length(len(left)) + left


def cut_off(frame: bytes, keep: float | None) -> bytes:
    """The beginning of a frame: the length in front promises more."""
    return frame[: kept_bytes(len(frame), keep)]


def flipped(data: bytes, start: int, count: int, rng: random.Random) -> bytes:
    """``count`` bytes from ``start`` on, each another than before."""
    changed = bytearray(data)
    places = range(min(start, len(changed)), len(changed))
    for at in rng.sample(places, min(count, len(places))):
        changed[at] ^= rng.randrange(1, 256)
    return bytes(changed)


def corrupted_frame(frame: bytes, count: int, rng: random.Random) -> bytes:
    """An answer with other bytes behind its correlation id: who asked is still found, what is said is not."""
    return flipped(frame, LENGTH_BYTES + CORRELATION_BYTES, count, rng)


def corrupted_batches(data: BytesLike, count: int, rng: random.Random) -> bytes:
    """Record batches each of which has ``count`` other bytes under its CRC; a last one that is cut stays as it is."""
    data = bytes(data)
    pieces: list[bytes] = []
    at = 0
    while at + HEADER_BYTES <= len(data):
        end = at + FRAME_BYTES + int.from_bytes(data[at + 8 : at + 12], "big")
        if not at + HEADER_BYTES <= end <= len(data):
            break
        pieces.append(flipped(data[at:end], CRC_COVERS_FROM, count, rng))
        at = end
    pieces.append(data[at:])
    return b"".join(pieces)


def as_bytes(records: Any) -> bytes:
    """The ``records`` field of a message in one piece."""
    if records is None:
        return b""
    return b"".join(records) if isinstance(records, (list, tuple)) else bytes(records)


def partitions_with_records(message: Struct) -> list[tuple[Struct, Struct]]:
    """(topic, partition) of all that has records in it."""
    found: list[tuple[Struct, Struct]] = []
    for name in message.fields:
        value = getattr(message, name)
        for topic in value if isinstance(value, list) else ():
            for inner in topic.fields if isinstance(topic, Struct) else ():
                below = getattr(topic, inner)
                for partition in below if isinstance(below, list) else ():
                    if isinstance(partition, Struct) and getattr(partition, "records", None) is not None:
                        found.append((topic, partition))
    return found

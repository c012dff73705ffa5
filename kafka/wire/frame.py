"""Frames: the bytes of one message behind their length.

::

    0        4                     4 + length
    | length | header and body ... |
      int32

:class:`FrameReader` cuts a stream of bytes into frames, however it was split on the way. A length that is negative or
above the limit ends the connection: behind it nothing can be trusted.
"""

from __future__ import annotations

from struct import Struct as _Struct
from typing import Final

from kafka.errors import InvalidReceiveError

DEFAULT_MAX_BYTES: Final = 100_000_000
"""librdkafka's ``receive.message.max.bytes``, and our ``receive_message_max_bytes``."""

SPEAKS_TLS: Final = "; does the peer speak TLS?"
"""What the error says then."""

_OTHERS: Final = {
    **{bytes((kind, 3, minor)): SPEAKS_TLS for kind in (0x15, 0x16) for minor in range(5)},
    **dict.fromkeys((b"GET", b"POS", b"HTT"), "; does the peer speak HTTP?"),
}
"""What other protocols begin with, which as a length is always too much -> what to think of."""

_LENGTH: Final = _Struct(">i")
pack_length = _LENGTH.pack


def frame(payload: bytes) -> bytes:
    """``payload`` behind its length."""
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Bytes in, whole frames out. Holds at most one unfinished frame.

    ``failed`` is the error that ended the stream, or None. It is set at once, also when :meth:`feed` still returned the
    frames in front of the fault.
    """

    __slots__ = ("_chunks", "_held", "_wanted", "failed", "max_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._chunks: list[bytes] = []  # pieces of the unfinished frame, its length included
        self._held = 0  # bytes in them
        self._wanted = 4  # bytes that the unfinished frame (or its length) takes in all
        self.failed: InvalidReceiveError | None = None

    def limit(self, max_bytes: int) -> None:
        """Take no frames longer than this from now on."""
        self.max_bytes = max_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of the unfinished frame that have come."""
        return self._held

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their lengths, in order.

        Raises :class:`InvalidReceiveError` for a length that cannot be, also on every later call.
        """
        if self.failed is not None:
            raise self.failed
        self._held += len(data)
        if self._held < self._wanted:
            if data:
                self._chunks.append(data)
            return []
        if self._chunks:
            self._chunks.append(data)
            data = b"".join(self._chunks)
            self._chunks = []
        frames: list[bytes] = []
        position, end = 0, len(data)
        while True:
            if end - position < 4:
                wanted = 4
                break
            length = _LENGTH.unpack_from(data, position)[0]
            fault = self._fault(length, data, position)
            if fault is not None:
                if frames:
                    return frames  # whoever called looks at `failed`, and the next call raises
                raise fault
            wanted = 4 + length
            if end - position < wanted:
                break
            frames.append(data[position + 4 : position + wanted])
            position += wanted
        rest = data[position:] if position else data
        self._held = end - position
        self._wanted = wanted
        if self._held:
            self._chunks = [rest]
        return frames

    def _fault(self, length: int, data: bytes | memoryview, position: int) -> InvalidReceiveError | None:
        """What is wrong with a frame's length, read at ``position``; sets ``failed``."""
        if length < 0:
            why = "is negative"
        elif length > self.max_bytes:
            why = f"is above the limit of {self.max_bytes}"
        else:
            return None
        why += _OTHERS.get(bytes(data[position : position + 3]), "")
        fault = InvalidReceiveError(f"a frame's length of {length} bytes {why}", offset=position)
        self.failed = fault
        return fault

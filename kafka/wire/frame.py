"""Frames: the bytes of one message after their length.

::

    0        4                     4 + length
    | length | header and body ... |
      int32

:class:`FrameReader` splits a stream of bytes into frames, however the stream was split on the way. A length that is
negative or above the limit ends the connection: no later byte can be trusted.

:class:`LargeFrameReader` receives large frames into buffers that are used again, which is what makes a consumer's bytes
cheap. A ``FrameReader`` joins pieces, which moves each byte twice after the socket, and each response takes fresh
memory, which the system clears first. Here the socket fills the frame's own buffer::

    get_buffer()  -> where to put the next bytes, or None: small frames come by feed()
    buffer_updated(count)  -> the frames that are complete now

    | length | header and body of a large frame ........ | length | the beginning of the next |
      returned as a view                                   copied to where that frame continues

A large frame is a ``memoryview``. While it exists, or a view made from it, its buffer is not used again: Python refuses
to resize a buffer that has views, so a resize is the test for it and no reader has to release a frame.
"""

from __future__ import annotations

from struct import Struct as _Struct
from typing import Final

from kafka.errors import InvalidReceiveError

DEFAULT_MAX_BYTES: Final = 100_000_000
"""librdkafka's ``receive.message.max.bytes``, and our ``receive_message_max_bytes``."""

SPEAKS_TLS: Final = "; does the peer speak TLS?"

_OTHER_PROTOCOLS: Final = {
    **{bytes((kind, 3, minor)): SPEAKS_TLS for kind in (0x15, 0x16) for minor in range(5)},
    **dict.fromkeys((b"GET", b"POS", b"HTT"), "; does the peer speak HTTP?"),
}
"""First bytes of other protocols, which as a length are always above the limit -> the hint in the error."""

_LENGTH: Final = _Struct(">i")
pack_length = _LENGTH.pack


def frame(payload: bytes) -> bytes:
    """``payload`` after its length."""
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Bytes in, complete frames out. Holds at most one incomplete frame.

    ``failed`` is the error that ended the stream, or None. It is set at once, even when :meth:`feed` still returned the
    frames before the error.
    """

    __slots__ = ("_chunks", "_buffered", "_needed", "failed", "max_bytes")

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.max_bytes = max_bytes
        self._chunks: list[bytes] = []  # pieces of the incomplete frame, its length included
        self._buffered = 0  # bytes in them
        self._needed = 4  # bytes that the incomplete frame (or its length) has in all
        self.failed: InvalidReceiveError | None = None

    def limit(self, max_bytes: int) -> None:
        """Take no frames longer than this from now on."""
        self.max_bytes = max_bytes

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the incomplete frame received so far."""
        return self._buffered

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, without their lengths, in order.

        Raises :class:`InvalidReceiveError` for an invalid length, and on every later call.
        """
        if self.failed is not None:
            raise self.failed
        self._buffered += len(data)
        if self._buffered < self._needed:
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
                needed = 4
                break
            length = _LENGTH.unpack_from(data, position)[0]
            error = self._length_error(length, data, position)
            if error is not None:
                if frames:
                    return frames  # the caller checks `failed`, and the next call raises
                raise error
            needed = 4 + length
            if end - position < needed:
                break
            frames.append(data[position + 4 : position + needed])
            position += needed
        rest = data[position:] if position else data
        self._buffered = end - position
        self._needed = needed
        if self._buffered:
            self._chunks = [rest]
        return frames

    def _length_error(self, length: int, data: bytes | memoryview, position: int) -> InvalidReceiveError | None:
        """The error for a frame's length that was read at ``position``, or None; sets ``failed``."""
        if length < 0:
            reason = "is negative"
        elif length > self.max_bytes:
            reason = f"is above the limit of {self.max_bytes}"
        else:
            return None
        reason += _OTHER_PROTOCOLS.get(bytes(data[position : position + 3]), "")
        error = InvalidReceiveError(f"a frame's length of {length} bytes {reason}", offset=position)
        self.failed = error
        return error


Frame = bytes | memoryview

LARGE_BYTES: Final = 64 * 1024
"""Frames of at least this size are received into such buffers."""
POOL_BYTES: Final = 16 * 1024 * 1024
_STEP_BYTES: Final = 256 * 1024


class ReceiveBuffers:
    """A pool of buffers for large frames, of at most ``max_bytes`` in all; larger buffers are not kept."""

    def __init__(self, max_bytes: int = POOL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of the pooled buffers, including those that still have views."""
        return sum(map(len, self._buffers))

    def acquire(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, with arbitrary content, until :meth:`release`."""
        smallest: bytearray | None = None
        for buffer in self._buffers:
            if len(buffer) >= size and (smallest is None or len(buffer) < len(smallest)) and _has_no_views(buffer):
                smallest = buffer
        if smallest is None:
            return bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        self._remove(smallest)
        return smallest

    def release(self, buffer: bytearray) -> None:
        """Return a buffer to the pool: the caller no longer writes into it. Views of it may remain."""
        if len(buffer) > self._max_bytes:
            return
        self._buffers.append(buffer)
        while self.size_bytes > self._max_bytes:
            del self._buffers[0]  # the oldest

    def _remove(self, buffer: bytearray) -> None:
        self._buffers = [each for each in self._buffers if each is not buffer]


def _has_no_views(buffer: bytearray) -> bool:
    """Whether no view of it exists."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True


class LargeFrameReader(FrameReader):
    """A frame reader with :meth:`get_buffer`. After it returned a buffer, and until it returns None, bytes come by
    :meth:`buffer_updated` and not by :meth:`feed`. Large responses come in series: after one, the next frame is
    expected to be as large, and is received in place from its first byte."""

    __slots__ = ("_buffer", "_expected", "_pool")

    def __init__(self, pool: ReceiveBuffers, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(max_bytes)
        self._pool = pool
        self._buffer: bytearray | None = None
        self._expected = 0

    def get_buffer(self) -> memoryview | None:
        """Where to put the next bytes, with room for at least one; None: pass them to :meth:`feed`."""
        if self.failed is not None:
            return None
        buffer = self._buffer
        if buffer is None:
            size = self._needed if self._needed >= LARGE_BYTES else self._expected
            if not size:
                return None
            buffer = self._buffer = self._pool.acquire(size)
            held = b"".join(self._chunks)
            self._chunks = []
            buffer[: len(held)] = held
        return memoryview(buffer)[self._buffered :]

    def missing_bytes(self) -> int:
        """Bytes missing of the large frame that has begun; 0: no such frame, or its length is not complete yet."""
        return self._needed - self._buffered if self._needed >= LARGE_BYTES else 0

    def buffer_updated(self, count: int) -> list[Frame]:
        """``count`` more bytes are in the buffer; returns the frames that are complete now. Errors: those of
        :meth:`feed`."""
        buffer = self._buffer
        assert buffer is not None
        self._buffered += count
        frames: list[Frame] = []
        if self._buffered < self._needed:
            return frames
        view = memoryview(buffer)
        position, end = 0, self._buffered
        while True:
            needed = 4
            if end - position < needed:
                break
            length = int.from_bytes(view[position : position + 4], "big", signed=True)
            error = self._length_error(length, view, position)
            if error is not None:
                if frames:
                    return frames
                raise error
            needed = 4 + length
            if end - position < needed:
                break
            frame = view[position + 4 : position + needed]
            frames.append(frame if needed >= LARGE_BYTES else bytes(frame))
            self._expected = needed if needed >= LARGE_BYTES else 0
            position += needed
        self._buffered = end - position
        self._needed = needed
        if position:
            self._release_buffer(buffer, [bytes(view[position:end])] if self._buffered else [])
        elif needed > len(buffer):
            self._release_buffer(buffer, [bytes(view[:end])])
        return frames

    def _release_buffer(self, buffer: bytearray, rest: list[bytes]) -> None:
        self._chunks = rest
        self._buffer = None
        self._pool.release(buffer)

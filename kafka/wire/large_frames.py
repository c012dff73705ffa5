"""Large frames, received into buffers that are used again: what makes a consumer's bytes cheap.

:class:`~kafka.wire.frame.FrameReader` joins pieces, which moves each byte twice behind the socket, and asks the system
for fresh memory for each answer, which it clears first. Here the socket fills the frame's own buffer::

    get_buffer()  -> where the next bytes go, or None: small frames come by feed(), as ever
    buffer_updated(count)  -> the frames that are whole now

    | length | header and body of a large frame ........ | length | the beginning of the next |
      given out as a view                                  moved to where that frame goes on

A large frame is a ``memoryview``. As long as there is one, or one made from it, its buffer is not used again: Python
refuses to resize a buffer that somebody looks at, so that can be asked and nobody has to say that he is done.
"""

from __future__ import annotations

from typing import Final

from kafka.wire.frame import DEFAULT_MAX_BYTES, FrameReader

Frame = bytes | memoryview

LARGE_BYTES: Final = 64 * 1024
"""From this size on a frame is received like this."""
POOL_BYTES: Final = 16 * 1024 * 1024
_STEP_BYTES: Final = 256 * 1024


class BufferPool:
    """Buffers to be used again, ``max_bytes`` at most in all; larger ones come and go."""

    def __init__(self, max_bytes: int = POOL_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffers: list[bytearray] = []

    @property
    def held_bytes(self) -> int:
        """Bytes of the buffers that are kept, those included that somebody still looks at."""
        return sum(map(len, self._buffers))

    def take(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes, with anything in it. The caller's until it is given back."""
        found: bytearray | None = None
        for buffer in self._buffers:
            if len(buffer) >= size and (found is None or len(buffer) < len(found)) and _is_unseen(buffer):
                found = buffer
        if found is None:
            return bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        self._drop(found)
        return found

    def give(self, buffer: bytearray) -> None:
        """The caller writes into it no more; views of it may live on."""
        room = self._max_bytes - len(buffer)
        if room < 0:
            return
        self._buffers.append(buffer)
        while self.held_bytes > self._max_bytes:
            del self._buffers[0]  # the oldest

    def _drop(self, buffer: bytearray) -> None:
        self._buffers = [each for each in self._buffers if each is not buffer]


def _is_unseen(buffer: bytearray) -> bool:
    """Whether there is no view of it."""
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)
    return True


class LargeFrameReader(FrameReader):
    """A frame reader that also offers :meth:`get_buffer`. After it did, and until it returns None, bytes come by
    :meth:`buffer_updated` and not by :meth:`feed`. Whoever has large answers gets more of them: after one, the next
    frame is expected to be as large, and received in place from its first byte on."""

    __slots__ = ("_buffer", "_expected", "_pool")

    def __init__(self, pool: BufferPool, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        super().__init__(max_bytes)
        self._pool = pool
        self._buffer: bytearray | None = None
        self._expected = 0

    def get_buffer(self) -> memoryview | None:
        """Where the next bytes are to be put, at least one; None: feed them."""
        if self.failed is not None:
            return None
        buffer = self._buffer
        if buffer is None:
            size = self._wanted if self._wanted >= LARGE_BYTES else self._expected
            if not size:
                return None
            buffer = self._buffer = self._pool.take(size)
            held = b"".join(self._chunks)
            self._chunks = []
            buffer[: len(held)] = held
        return memoryview(buffer)[self._held :]

    def missing_bytes(self) -> int:
        """How many bytes are missing of the large frame that has begun; 0: of none, or its length has not come yet."""
        return self._wanted - self._held if self._wanted >= LARGE_BYTES else 0

    def buffer_updated(self, count: int) -> list[Frame]:
        """So many bytes are in the buffer; the frames that are whole now, in order. Errors: those of :meth:`feed`."""
        buffer = self._buffer
        assert buffer is not None
        self._held += count
        frames: list[Frame] = []
        if self._held < self._wanted:
            return frames
        view = memoryview(buffer)
        position, end = 0, self._held
        while True:
            wanted = 4
            if end - position < wanted:
                break
            length = int.from_bytes(view[position : position + 4], "big", signed=True)
            fault = self._fault(length, view, position)
            if fault is not None:
                if frames:
                    return frames
                raise fault
            wanted = 4 + length
            if end - position < wanted:
                break
            frame = view[position + 4 : position + wanted]
            frames.append(frame if wanted >= LARGE_BYTES else bytes(frame))
            self._expected = wanted if wanted >= LARGE_BYTES else 0
            position += wanted
        self._held = end - position
        self._wanted = wanted
        if position:
            self._leave(buffer, [bytes(view[position:end])] if self._held else [])
        elif wanted > len(buffer):
            self._leave(buffer, [bytes(view[:end])])
        return frames

    def _leave(self, buffer: bytearray, rest: list[bytes]) -> None:
        self._chunks = rest
        self._buffer = None
        self._pool.give(buffer)

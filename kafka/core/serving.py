"""One connection as the side that answers sees it: bytes to requests, one at a time and in order, and answers to bytes.

::

    receive(bytes) -> frames, not looked at yet -> next_request() -> ... -> answer(response) -> next_request() -> ...

Kafka's protocol has answers in the order of the requests, and its brokers look at one request of a connection at a
time; this machine does the same: while a request waits for its answer, :meth:`ServerConnection.next_request` gives
None. What a peer may pile up meanwhile is bounded: the caller stops reading while ``wants_bytes`` is False.

Bytes that cannot be a request end the connection: requests in front of them are handed out first, then
:meth:`ServerConnection.next_request` raises. That is all that is decided here; requests of unknown APIs and versions
are handed out as :class:`~kafka.protocol.framing.UnknownRequest`, because what happens to them depends on the release
that is played. Sockets, and what the requests mean, are others' business; the other side is ``connection.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kafka.errors import IllegalArgumentError, IllegalStateError, KafkaProtocolError
from kafka.protocol.framing import ReceivedRequest, UnknownRequest, decode_request, encode_response
from kafka.wire.frame import DEFAULT_MAX_BYTES, FrameReader, pack_length
from kafka.wire.message import Response, Struct
from kafka.wire.types import BytesLike

MAX_QUEUED_BYTES: Final = 1 << 20
"""About as much as a peer may send ahead of its answers."""

FRAME_COST_BYTES: Final = 64
"""What a queued frame takes beside its bytes: empty ones, too, fill the queue."""

MAX_TEXT_BYTES: Final = 32_767
"""Of a string in a message."""


class ServerConnection:
    """``max_request_bytes``: Kafka's ``socket.request.max.bytes``. ``decode``: how requests are read, where the release
    that is played reads them in a way of its own."""

    __slots__ = ("_decode", "_frames", "_max_queued_bytes", "_queued_bytes", "_reader", "in_hand")

    def __init__(
        self,
        max_request_bytes: int = DEFAULT_MAX_BYTES,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        decode: Callable[[bytes], ReceivedRequest | UnknownRequest] = decode_request,
    ) -> None:
        self._decode = decode
        self._reader = FrameReader(max_request_bytes)
        self._frames: deque[bytes] = deque()
        self._queued_bytes = 0
        self._max_queued_bytes = max_queued_bytes
        self.in_hand: ReceivedRequest | UnknownRequest | None = None
        """The request that has been handed out and not been answered."""

    @property
    def wants_bytes(self) -> bool:
        """Whether the feeder should go on reading. An unfinished frame is always read to its end."""
        return self._queued_bytes < self._max_queued_bytes and self._reader.failed is None

    def receive(self, data: bytes) -> None:
        """Take bytes, cut anywhere. Never raises: a fault comes out of :meth:`next_request` when its turn has come."""
        if self._reader.failed is not None:
            return
        try:
            frames = self._reader.feed(data)
        except KafkaProtocolError:
            return
        for frame in frames:
            self._queued_bytes += len(frame) + FRAME_COST_BYTES
        self._frames.extend(frames)

    def next_request(self) -> ReceivedRequest | UnknownRequest | None:
        """The next request; None when there is none, or while one is unanswered.

        Raises :class:`~kafka.errors.KafkaProtocolError` at the point where the bytes make no sense: the connection has
        to be closed then.
        """
        frame = self._next()
        if frame is None:
            return None
        self.in_hand = self._decode(frame)
        return self.in_hand

    @property
    def next_bytes(self) -> int:
        """How many bytes the next request has; 0 when there is none, or while one is unanswered."""
        return len(self._frames[0]) if self._frames and self.in_hand is None else 0

    def next_frame(self) -> bytes | None:
        """The next frame as it is, for what is not in Kafka's headers (SASL tokens). As with a
        request, no other is handed out before it is answered (:meth:`answer_frame`)."""
        frame = self._next()
        if frame is not None:
            self.in_hand = UnknownRequest(-1, -1, 0, None)
        return frame

    def _next(self) -> bytes | None:
        if self.in_hand is not None:
            return None
        if not self._frames:
            if self._reader.failed is not None:
                raise self._reader.failed
            return None
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame) + FRAME_COST_BYTES
        return frame

    def answer_frame(self, data: bytes) -> list[BytesLike]:
        """The bytes that answer the frame in hand, behind their length."""
        self.in_hand = None
        return [pack_length(len(data)) + data]

    def limit_requests(self, max_bytes: int) -> None:
        """Take no frames longer than this from now on."""
        self._reader.limit(max_bytes)

    def answer(self, response: Response | None, version: int | None = None) -> list[BytesLike]:
        """The bytes that answer the request in hand: a whole frame in chunks, or none for a request without an answer
        (Produce with acks=0). ``version``: another than the request's (an ApiVersions that is too new gets version 0).

        Raises :class:`~kafka.errors.IllegalStateError` when there is no request in hand.
        """
        request: Any = self.in_hand
        if request is None:
            raise IllegalStateError("there is no request to answer")
        self.in_hand = None
        if response is None:
            return []
        if version is None:
            version = request.version if isinstance(request, ReceivedRequest) else request.api_version
        try:
            return encode_response(response, version, request.correlation_id)
        except IllegalArgumentError:
            if not shorten_texts(response):
                raise
            return encode_response(response, version, request.correlation_id)


def shorten_texts(message: Struct) -> int:
    """Cut the texts of a message that are longer than a string may be; how many there were. An error's text that
    quotes a name of full length is such a one: better half of it than no answer."""
    count = 0
    for name in message.fields:
        value = getattr(message, name)
        if isinstance(value, str) and len(value) > MAX_TEXT_BYTES // 4:
            data = value.encode()
            if len(data) > MAX_TEXT_BYTES:
                setattr(message, name, data[: MAX_TEXT_BYTES - 3].decode(errors="ignore") + "...")
                count += 1
        elif isinstance(value, Struct):
            count += shorten_texts(value)
        elif isinstance(value, list) and value and isinstance(value[0], Struct):
            count += sum(map(shorten_texts, value))
    return count

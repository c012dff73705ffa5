"""A network that is cut after a given request of its client: what was sent up to it arrives, nothing does afterwards,
in either direction. What ``kill -9`` is to the brokers, between any two requests; also where the client is compiled."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from kafka.net.loop import Loop
from kafka.net.tcp import TcpNetwork, TcpTransport
from kafka.net.transport import DEFAULT_OPTIONS, Address, BytesLike, ConnectionOptions, TransportHandler

FETCH = 1
API_VERSIONS = 18
"""Keys of APIs (https://kafka.apache.org/protocol, "Api Keys")."""

_HEAD = struct.Struct(">ih")
"""The size of a request, and the key of its API (section "Protocol Primitive Types" and "Request Header")."""


class CutNetwork(TcpNetwork):
    """TCP, cut behind request number ``last``; None: never. ``counts``: whether a request of this API counts.

    ``is_cut``: the last request was sent. ``has_arrived``: and its connection has answered since.
    """

    def __init__(self, loop: Loop, last: int | None, counts: Callable[[int], bool]) -> None:
        super().__init__(loop)
        self.request_count = 0
        self.is_cut = False
        self.has_arrived = False
        self._last = last
        self._counts = counts

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> TcpTransport:
        watched = _Watched(self, handler)
        transport = super().connect(addresses, watched, options)
        write = transport.write

        def write_until_cut(data: BytesLike | Sequence[BytesLike]) -> None:
            passed = watched.until_cut(data)
            if passed:
                write(passed)

        transport.write = write_until_cut  # type: ignore[method-assign]
        return transport

    def take(self, api_key: int) -> bool:
        """A request is about to be sent: whether it may. Cuts behind the last one."""
        if self.is_cut:
            return False
        if self._counts(api_key):
            self.request_count += 1
            self.is_cut = self.request_count == self._last
        return True


class _Watched(TransportHandler):
    """Between a transport and its handler, which sees nothing any more when the network is cut."""

    def __init__(self, network: CutNetwork, handler: TransportHandler) -> None:
        self._network = network
        self._handler = handler
        self._unread = b""  # of the request that is being written
        self._has_last = False

    def until_cut(self, data: BytesLike | Sequence[BytesLike]) -> bytes:
        """What of ``data`` is still sent. A request is held back until it is whole."""
        network = self._network
        chunks = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
        self._unread += b"".join(chunks)
        passed = b""
        while len(self._unread) >= _HEAD.size:
            size, api_key = _HEAD.unpack_from(self._unread)
            request, rest = self._unread[: 4 + size], self._unread[4 + size :]
            if len(request) < 4 + size or not network.take(api_key):
                break
            passed, self._unread = passed + request, rest
            self._has_last = network.is_cut
        return passed

    def connected(self) -> None:
        if not self._network.is_cut:
            self._handler.connected()

    def data_received(self, data: bytes) -> None:
        if not self._network.is_cut:
            self._handler.data_received(data)
        elif self._has_last:
            self._network.has_arrived = True

    def writable(self) -> None:
        if not self._network.is_cut:
            self._handler.writable()

    def closed(self, error: BaseException | None) -> None:
        if not self._network.is_cut:
            self._handler.closed(error)
        elif self._has_last:
            self._network.has_arrived = True

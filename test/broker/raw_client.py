"""A client as small as it gets: a blocking socket and the codec. One request after the other, or several sent ahead."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

from kafka.protocol.framing import decode_response, encode_request, read_correlation_id
from kafka.wire.message import Request, Response
from test.broker.driver import newest

R = TypeVar("R", bound=Response)
TIMEOUT_S = 45.0


class RawClient:
    """One connection. EOFError when the broker hangs up."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port), TIMEOUT_S)
        self._count = 0

    def send(self, request: Request[Any], version: int | None = None) -> int:
        """Send a request; its correlation id."""
        self._count += 1
        chunks = encode_request(request, newest(request) if version is None else version, self._count, "raw")
        self.socket.sendall(b"".join(chunks))
        return self._count

    def receive(self, request: Request[R], version: int | None = None) -> R:
        """The next answer, which is to this request."""
        frame = self._exactly(int.from_bytes(self._exactly(4), "big"))
        self.last_id = read_correlation_id(frame)
        return decode_response(request.response_type(), newest(request) if version is None else version, frame)

    def ask(self, request: Request[R], version: int | None = None) -> R:
        self.send(request, version)
        return self.receive(request, version)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise EOFError("the broker hung up")
            data += more
        return data

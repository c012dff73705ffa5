"""HTTP connections on the worker's loop: one request each, bounded in number, size and time.

    accepted --whole request--> answered --all of it taken--> ended
        |  too slow: 408            |  the peer does not read: reset after LIFE_S
        |  too many: the oldest     |  more was sent than we read: what comes is thrown away for LINGER_S first, or the
        |  connection is reset      |  reset that the system sends for it would take our answer along

There is no thread. A connection lives for :data:`LIFE_S` whatever happens, and there are :data:`MAX_CONNECTIONS` of
them: with one more the oldest goes, since a probe that is served ends within milliseconds and the oldest is a client
that is not in a hurry. So 200 idle connections keep no probe out.
"""

from __future__ import annotations

import errno
import logging
import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from kafka.errors import IllegalArgumentError
from kafka.net.loop import Loop
from kafka.net.tcp import TcpNetwork
from kafka.net.transport import Address, Network, Transport, TransportHandler
from kafka.tasks.health.http import (
    METHODS,
    HttpRefusal,
    HttpRequest,
    HttpRequestReader,
    HttpResponse,
    encode,
    refusal_response,
)

log = logging.getLogger(__name__)

LIFE_S: Final = 10.0
"""A connection's time, from its acceptance to the last byte of the answer."""
LINGER_S: Final = 1.0
MAX_CONNECTIONS: Final = 64
"""Connections at once."""
LINGER_BYTES: Final = 256 * 1024

LOCALHOST: Final = "127.0.0.1"

_ADDRESS = re.compile(r"(?:(\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]]+):)?(\d{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """``PORT`` (of this machine alone), ``HOST:PORT`` or ``[IPv6]:PORT``; :class:`IllegalArgumentError` else."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match[2]) > 65_535:
        raise IllegalArgumentError(
            f"--health-port is PORT (reached from this machine alone) or HOST:PORT, such as 9100 or 0.0.0.0:9100, "
            f"not {text!r}"
        )
    return (match[1] or LOCALHOST).strip("[]"), int(match[2])


class HealthServer:
    """Listens until :meth:`close`. ``answer`` is asked on the loop; what it raises is a 500 and a line in the log.

    OSError, with what to do, when the address cannot be had. Port 0: a free one, see ``address``.
    """

    def __init__(
        self,
        loop: Loop,
        address: tuple[str, int],
        answer: Callable[[HttpRequest], HttpResponse],
        network: Network | None = None,
    ) -> None:
        self._loop = loop
        self._answer = answer
        self._connections: dict[_Connection, None] = {}
        self._network = network or TcpNetwork(loop)
        host, port = address
        try:
            self._listener = self._network.listen(host, port, self._accept)
        except OSError as error:
            self._network.close()
            # one line for people, without "[Errno 98]"
            failure = OSError(f"--health-port: {_listen_error(host, port, error)}")
            failure.errno = error.errno
            raise failure from None
        self.address: Address = self._listener.address

    @property
    def connection_count(self) -> int:
        """Connections that stand."""
        return len(self._connections)

    def close(self) -> None:
        """Listen no more, and end what stands."""
        self._listener.close()
        for connection in list(self._connections):
            connection.abort()
        self._network.close()

    def _accept(self, transport: Transport) -> TransportHandler:
        while len(self._connections) >= MAX_CONNECTIONS:
            next(iter(self._connections)).abort()
        connection = _Connection(self._loop, transport, self._serve, self._on_connection_end)
        self._connections[connection] = None
        return connection

    def _serve(self, request: HttpRequest) -> HttpResponse:
        if request.method not in METHODS:
            allowed = ", ".join(METHODS)
            body = f"allowed methods: {allowed}\n".encode()
            return HttpResponse(HTTPStatus.METHOD_NOT_ALLOWED, body, more=(("Allow", allowed),))
        try:
            return self._answer(request)
        except Exception:
            log.exception("could not answer %s %s; responding with status 500", request.method, request.path)
            return HttpResponse(
                HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error; the worker's log has the traceback\n"
            )

    def _on_connection_end(self, connection: _Connection) -> None:
        self._connections.pop(connection, None)


class _Connection(TransportHandler):
    """The connection of one HTTP client."""

    def __init__(
        self,
        loop: Loop,
        transport: Transport,
        serve: Callable[[HttpRequest], HttpResponse],
        on_end: Callable[[_Connection], None],
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._serve = serve
        self._on_end = on_end
        self._reader = HttpRequestReader()
        self._is_answered = False
        self._discarded = 0
        self._timer: Any = loop.call_later(LIFE_S, self._on_timeout)

    def connected(self) -> None:
        """The request is what is waited for."""

    def writable(self) -> None:
        """All of the answer is taken; the transport ends by itself."""

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            self._discarded += len(data)
            if self._discarded > LINGER_BYTES:
                self.abort()
            return
        request = self._reader.feed(data)
        if isinstance(request, HttpRefusal):
            self._respond(refusal_response(request), lingers=True)
        elif request is not None:
            self._respond(self._serve(request), request.method == "HEAD", lingers=self._reader.has_rest)

    def closed(self, error: BaseException | None) -> None:
        self._end()

    def abort(self) -> None:
        """End it now."""
        self._end()
        self._transport.abort()

    def _respond(self, answer: HttpResponse, head_only: bool = False, *, lingers: bool) -> None:
        self._is_answered = True
        self._transport.write(encode(answer, time.time(), head_only))
        if not lingers:
            self._transport.close()  # when all is taken; the timer sees to it that this is not never
            return
        self._timer.cancel()
        self._timer = self._loop.call_later(LINGER_S, self._end_linger)

    def _on_timeout(self) -> None:
        if self._is_answered or self._reader.is_empty:
            self.abort()
        else:
            self._respond(
                refusal_response(HttpRefusal(HTTPStatus.REQUEST_TIMEOUT, f"no complete request within {LIFE_S:g} s")),
                lingers=True,
            )

    def _end_linger(self) -> None:
        if self._transport.pending_bytes:
            self.abort()
        else:
            self._transport.close()

    def _end(self) -> None:
        self._timer.cancel()
        self._on_end(self)


def _listen_error(host: str, port: int, error: OSError) -> str:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{address} is in use by another process; choose another port: each worker on a machine needs its own"
    if error.errno == errno.EACCES:
        return f"no permission to listen on {address}; ports below 1024 need root on most systems"
    return error.strerror or str(error)

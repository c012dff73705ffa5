"""Connections through a proxy: a network on top of another, below TLS.

    connect(addresses) -> the proxy's address is looked up -> for each target: connect to the proxy, shake hands
                              the proxy opens the way --> connected(), and from there on bytes pass unchanged
                              it refuses, or is too slow -> the next target; none left: closed(ConnectFailed)

The proxy looks names up for ``socks5h`` and ``http``: then a target is an address of the family :data:`NAMED`.
The handshakes are machines without a socket:

    begin() -> bytes to send        receive(data) -> bytes to send;  ``is_done``, and then ``rest``: what came after it

Passwords are in what is sent, and in no error's text. A third kind of proxy is a class with the same methods, and a
line in :data:`HANDSHAKES`.
"""

from __future__ import annotations

import base64
import errno
import ipaddress
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.resolve import fault_of_server
from kafka.net.transport import (
    DEFAULT_OPTIONS,
    Accept,
    Address,
    BytesLike,
    ConnectFailed,
    ConnectionOptions,
    Listener,
    Network,
    PeerClosed,
    Transport,
    TransportHandler,
)

MAX_HEAD_BYTES: Final = 65_536
"""Maximum length of the head of an HTTP response."""


class ProxyError(ConnectionError):
    """The proxy refused, or does not speak the protocol of the URL."""


@dataclass(frozen=True)
class Proxy:
    """A proxy's address and credentials. ``str()`` and ``repr()`` leave the password out."""

    scheme: str
    host: str
    port: int
    username: str | None
    password: str | None

    @property
    def resolves_names(self) -> bool:
        """Whether the proxy looks names up, and not this machine."""
        return self.scheme != "socks5"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Proxy {self}>"


class ProxyHandshake(Protocol):
    """The handshake of one connection with a proxy."""

    is_done: bool
    rest: bytes

    def begin(self) -> bytes:
        """The first bytes to send."""
        ...

    def receive(self, data: bytes) -> bytes:
        """The bytes to send next, or none. ProxyError when the proxy refuses."""
        ...


SOCKS5_REFUSALS: Final[Mapping[int, str]] = {
    1: "general failure",
    2: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached",
    5: "connection refused",
    6: "the time to live is over",
    7: "it does not know how to connect",
    8: "it does not know that kind of address",
}


class Socks5Handshake:
    """SOCKS5's CONNECT (RFC 1928, and RFC 1929 for passwords) to ``host``, a name or an address in digits, and
    ``port``::

        -> 5 count method...              methods: 0 no authentication, 2 name and password
        <- 5 method                       255: none of those
        -> 1 len name len password        only with method 2
        <- 1 status                       0: they are right
        -> 5 1 0 kind address port        kind 1: 4 bytes, 4: 16 bytes, 3: a length and a name
        <- 5 code 0 kind address port     code 0: connected; the address is not used
    """

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.is_done = False
        self.rest = b""
        self._proxy = proxy
        self._target = (host, port)
        self._name = _encode_host(host)
        self._data = b""
        self._step: Callable[[], bytes | None] = self._method

    def begin(self) -> bytes:
        return b"\x05\x01\x00" if self._proxy.username is None else b"\x05\x02\x00\x02"

    def receive(self, data: bytes) -> bytes:
        self._data += data
        answers = b""
        while not self.is_done:
            answer = self._step()
            if answer is None:
                break
            answers += answer
        return answers

    def _take(self, count: int) -> bytes | None:
        if len(self._data) < count:
            return None
        taken, self._data = self._data[:count], self._data[count:]
        return taken

    def _method(self) -> bytes | None:
        answer = self._take(2)
        if answer is None:
            return None
        version, method = answer
        if version != 5:
            raise ProxyError(f"proxy {self._proxy}: not a SOCKS5 proxy, it answered {answer!r}")
        if method == 0:
            self._step = self._connected
            return self._request()
        if method == 2 and self._proxy.username is not None:
            self._step = self._authenticated
            name, password = self._proxy.username.encode(), (self._proxy.password or "").encode()
            return b"\x01" + bytes([len(name)]) + name + bytes([len(password)]) + password
        required = "a name and a password, which the URL does not have" if method == 255 else f"method {method}"
        raise ProxyError(f"proxy {self._proxy}: it requires {required}")

    def _authenticated(self) -> bytes | None:
        answer = self._take(2)
        if answer is None:
            return None
        if answer[1] != 0:
            raise ProxyError(f"proxy {self._proxy}: it rejected the name and the password of the URL")
        self._step = self._connected
        return self._request()

    def _request(self) -> bytes:
        host, port = self._target
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            kind = b"\x03" + bytes([len(self._name)]) + self._name
        else:
            kind = (b"\x01" if address.version == 4 else b"\x04") + address.packed
        return b"\x05\x01\x00" + kind + struct.pack(">H", port)

    def _connected(self) -> bytes | None:
        head = self._data[:5]
        if len(head) < 5:
            return None
        size = {1: 4, 4: 16, 3: 1 + head[4]}.get(head[3])
        if head[0] != 5 or (size is None and head[1] == 0):
            raise ProxyError(f"proxy {self._proxy}: a malformed SOCKS5 response: {head!r}")
        if head[1] != 0:
            why = SOCKS5_REFUSALS.get(head[1], f"code {head[1]}")
            raise ProxyError(f"proxy {self._proxy}: it cannot connect to {self._target[0]}:{self._target[1]}: {why}")
        assert size is not None
        if self._take(4 + size + 2) is None:
            return None
        self.is_done = True
        self.rest = self._data
        return b""


class HttpConnectHandshake:
    """HTTP's CONNECT to ``host`` and ``port``."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.is_done = False
        self.rest = b""
        self._proxy = proxy
        name = _encode_host(host).decode()
        self._target = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        self._data = b""

    def begin(self) -> bytes:
        lines = [f"CONNECT {self._target} HTTP/1.1", f"Host: {self._target}"]
        if self._proxy.username is not None:
            secret = f"{self._proxy.username}:{self._proxy.password or ''}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(secret).decode()}")
        return "\r\n".join([*lines, "", ""]).encode("ascii")

    def receive(self, data: bytes) -> bytes:
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if not end:
            if len(head) > MAX_HEAD_BYTES:
                raise ProxyError(f"proxy {self._proxy}: not an HTTP proxy, its response does not end")
            return b""
        status = head.split(b"\r\n", 1)[0].decode("latin-1")
        parts = status.split(" ", 2)
        if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
            raise ProxyError(f"proxy {self._proxy}: not an HTTP proxy, it answered {status[:80]!r}")
        if parts[1] == "407":
            raise ProxyError(f"proxy {self._proxy}: it requires another name and password than the URL has (407)")
        if not parts[1].startswith("2"):
            raise ProxyError(f"proxy {self._proxy}: it cannot connect to {self._target}: {' '.join(parts[1:])[:80]}")
        self.is_done = True
        self.rest = rest
        return b""


HANDSHAKES: Final[Mapping[str, Callable[[Proxy, str, int], ProxyHandshake]]] = {
    "socks5": Socks5Handshake,
    "socks5h": Socks5Handshake,
    "http": HttpConnectHandshake,
}
"""By the scheme of a proxy's URL. ``socks5h`` lets the proxy look names up, as ``http`` always does."""

DEFAULT_PORTS: Final[Mapping[str, int]] = {"socks5": 1080, "socks5h": 1080, "http": 80}


def _encode_host(host: str) -> bytes:
    """The host as text for a proxy. ProxyError for an invalid name: host names come from brokers' metadata, and a line
    break in one could change the request."""
    try:
        name = host.encode("idna")
    except UnicodeError:
        name = b""
    if not 0 < len(name) <= 255 or any(byte <= 0x20 or byte >= 0x7F for byte in name):
        raise ProxyError(f"{host[:80]!r} is not a host name")
    return name


def parse_proxy(url: str) -> Proxy:
    """``SCHEME://[NAME:PASSWORD@]HOST[:PORT]``. ValueError for an invalid URL; its text does not contain the URL."""
    expected = "SCHEME://[NAME:PASSWORD@]HOST[:PORT] with a scheme of " + ", ".join(HANDSHAKES)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(expected) from None
    more = parts.query or parts.fragment or parts.path not in ("", "/")
    if parts.scheme not in HANDSHAKES or not parts.hostname or more:
        raise ValueError(expected)
    name = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if any(len((part or "").encode()) > 255 for part in (name, password)):
        raise ValueError("a name and a password of at most 255 bytes")
    return Proxy(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], name, password)


__all__ = ["NAMED", "ProxiedTransport", "Proxy", "ProxyError", "ProxyNetwork", "parse_proxy"]

NAMED: Final = -1
"""The family of an address whose host is a name that the proxy is to look up."""


class ProxyNetwork:
    """``network`` seen through ``proxy``: connections go through the proxy, listeners do not."""

    def __init__(self, network: Network, proxy: Proxy) -> None:
        self.loop: Loop = network.loop
        self.network = network
        self.proxy = proxy

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        if self.proxy.resolves_names:
            fault = fault_of_server(host, port)
            if fault is not None:
                return Future[list[Address]]().failure(fault)
            return Future[list[Address]]().success([Address(NAMED, (host, port))])
        return self.network.resolve(host, port)

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> ProxiedTransport:
        transport = ProxiedTransport(self, handler, addresses, options)
        self.loop.call_soon(transport.try_next)
        return transport

    def listen(self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS) -> Listener:
        return self.network.listen(host, port, accept, options)

    def close(self) -> None:
        """Close the network below."""
        self.network.close()


class ProxiedTransport(Transport):
    """One connection through the proxy. ``peer`` is the proxy's address, since the target's is unknown."""

    def __init__(
        self,
        network: ProxyNetwork,
        handler: TransportHandler,
        addresses: Sequence[Address],
        options: ConnectionOptions,
    ) -> None:
        self.handler: TransportHandler | None = handler
        self.network = network
        self.options = options
        self._left = deque(addresses)
        self._errors: list[tuple[Address, OSError]] = []
        self._attempt: _Attempt | None = None
        self._under: Transport | None = None
        """The connection to the proxy, once that has connected to the target."""
        self._early: list[BytesLike] = []
        self._is_paused = False

    def __repr__(self) -> str:
        return f"<ProxiedTransport through {self.network.proxy} {'open' if self._under else 'connecting'}>"

    @property
    def pending_bytes(self) -> int:  # type: ignore[override]  # an attribute elsewhere; here the other transport knows
        return sum(map(len, self._early)) if self._under is None else self._under.pending_bytes

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        if self.is_closing:
            return
        if self._under is not None:
            self._under.write(data)
        elif isinstance(data, (bytes, bytearray, memoryview)):
            self._early.append(data)
        else:
            self._early += data

    def close(self) -> None:
        if self._under is not None:
            self.is_closing = True
            self._under.close()
        else:
            self.abort()

    def abort(self, error: BaseException | None = None) -> None:
        if self._under is not None:
            self.is_closing = True
            self._under.abort(error)
        elif not self.is_closing:
            self.is_closing = True
            attempt, self._attempt = self._attempt, None
            if attempt is not None:
                attempt.cancel()
            self.network.loop.call_soon(self.ended, error)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._under is not None:
            self._under.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._under is not None:
            self._under.resume_reading()

    # -- called by attempts, on the loop -------------------------------------------------------------------------------

    def try_next(self) -> None:
        """Connect to the next target."""
        if self.is_closing:
            return
        if not self._left:
            self.is_closing = True
            self.ended(ConnectFailed(self._errors))
            return
        target, proxy = self._left.popleft(), self.network.proxy
        try:
            handshake = HANDSHAKES[proxy.scheme](proxy, str(target.sockaddr[0]), target.port)
        except ProxyError as error:
            self.failed(target, error)
            return
        self._attempt = _Attempt(self, target, handshake)

    def failed(self, target: Address, error: OSError) -> None:
        """The proxy cannot be reached, refuses, or is too slow."""
        self._attempt = None
        self._errors.append((target, error))
        self.try_next()

    def opened(self, under: Transport, rest: bytes) -> None:
        """The proxy has connected to the target."""
        handler = self.handler
        assert handler is not None
        self._under, self._attempt = under, None
        self.peer, self.local = under.peer, under.local
        if self._is_paused:
            under.pause_reading()
        early, self._early = self._early, []
        if early:
            under.write(early)
        handler.connected()
        if rest and not self.is_closing:
            handler.data_received(rest)

    def ended(self, error: BaseException | None) -> None:
        """The connection has ended; the handler is called, once."""
        self.is_closing = True
        self._early = []
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed(error)


class _Attempt(TransportHandler):
    """One connection to the proxy for one target; the handler of the network below."""

    def __init__(self, transport: ProxiedTransport, target: Address, handshake: ProxyHandshake) -> None:
        network = transport.network
        self._transport = transport
        self._target = target
        self._under: Transport | None = None
        self._handshake: ProxyHandshake | None = handshake
        self._is_over = False
        self._timer = network.loop.call_later(transport.options.connect_timeout_s, self._on_timeout)
        network.network.resolve(network.proxy.host, network.proxy.port).add_both(self._resolved)

    def cancel(self) -> None:
        """Give up the connection."""
        self._is_over = True
        self._timer.cancel()
        if self._under is not None:
            self._under.abort()

    def _resolved(self, outcome: list[Address] | BaseException) -> None:
        if self._is_over:
            return
        if isinstance(outcome, BaseException):
            self._transport.network.loop.call_soon(self._fail, _as_os_error(outcome))
            return
        self._under = self._transport.network.network.connect(outcome, self, self._transport.options)

    def _on_timeout(self) -> None:
        text = f"the proxy has not connected within {self._transport.options.connect_timeout_s:g} s"
        self._fail(TimeoutError(errno.ETIMEDOUT, text))

    def _fail(self, error: OSError) -> None:
        if not self._is_over:
            self.cancel()
            self._transport.failed(self._target, error)

    # -- from the network below ----------------------------------------------------------------------------------------

    def connected(self) -> None:
        if not self._is_over:
            assert self._under is not None and self._handshake is not None
            self._under.write(self._handshake.begin())

    def data_received(self, data: bytes) -> None:
        """Feeds the proxy's handshake, and sends its next step. Once that is done, the bytes behind it and all later
        ones are the target's and go to the transport's handler. A ProxyError ends this attempt."""
        handshake = self._handshake
        if handshake is None:
            handler = self._transport.handler
            if handler is not None:
                handler.data_received(data)
            return
        if self._is_over:
            return
        assert self._under is not None
        try:
            answer = handshake.receive(data)
        except ProxyError as error:
            self._fail(error)
            return
        if answer:
            self._under.write(answer)
        if handshake.is_done:
            self._handshake = None
            self._timer.cancel()
            self._transport.opened(self._under, handshake.rest)

    def writable(self) -> None:
        handler = self._transport.handler
        if self._handshake is None and handler is not None:
            handler.writable()

    def closed(self, error: BaseException | None) -> None:
        if self._handshake is None:
            self._transport.ended(error)
        elif isinstance(error, PeerClosed):
            proxy = self._transport.network.proxy
            self._fail(ProxyError(f"proxy {proxy}: it closed the connection instead of connecting to {self._target}"))
        else:
            self._fail(_as_os_error(error))


def _as_os_error(error: BaseException | None) -> OSError:
    return error if isinstance(error, OSError) else ConnectionError(str(error))

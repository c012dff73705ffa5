"""What a proxy is told before it passes bytes on: SOCKS5 and HTTP's CONNECT, as machines without a socket.

    begin() -> bytes to send        receive(data) -> bytes to send;  ``is_done``, and then ``rest``: what came after it

SOCKS5 (RFC 1928, and RFC 1929 for passwords)::

    -> 5 count method...              methods: 0 nobody asks, 2 name and password
    <- 5 method                       255: none of those
    -> 1 len name len password        only with method 2
    <- 1 status                       0: they are right
    -> 5 1 0 kind address port        kind 1: 4 bytes, 4: 16 bytes, 3: a length and a name
    <- 5 code 0 kind address port     code 0: connected; the address is of no use here

HTTP (RFC 9110, section 9.3.6): one request, one answer's head, whose status is 2xx when the way is open.

Passwords are in what is sent, and in no error's text. A third kind of proxy is a class with the same surface, and a
line in :data:`HANDSHAKES`.
"""

from __future__ import annotations

import base64
import ipaddress
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

MAX_HEAD_BYTES: Final = 65_536
"""Longest head of an HTTP answer that is taken."""


class ProxyError(ConnectionError):
    """The proxy refuses, or does not speak its protocol."""


@dataclass(frozen=True)
class Proxy:
    """Where a proxy is, and what it wants to know of us. ``str()`` and ``repr()`` leave the password out."""

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


class Handshake(Protocol):
    """One connection's way through a proxy."""

    is_done: bool
    rest: bytes

    def begin(self) -> bytes:
        """What to send first."""
        ...

    def receive(self, data: bytes) -> bytes:
        """What to send next, if anything. ProxyError when the proxy refuses."""
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


class Socks5:
    """SOCKS5's CONNECT to ``host``, a name or an address in digits, and ``port``."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.is_done = False
        self.rest = b""
        self._proxy = proxy
        self._target = (host, port)
        self._name = _name(host)
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
            raise ProxyError(f"proxy {self._proxy}: no SOCKS5 proxy, it answered {answer!r}")
        if method == 0:
            self._step = self._connected
            return self._request()
        if method == 2 and self._proxy.username is not None:
            self._step = self._authenticated
            name, password = self._proxy.username.encode(), (self._proxy.password or "").encode()
            return b"\x01" + bytes([len(name)]) + name + bytes([len(password)]) + password
        wanted = "a name and a password, which the URL does not have" if method == 255 else f"method {method}"
        raise ProxyError(f"proxy {self._proxy}: it wants {wanted}")

    def _authenticated(self) -> bytes | None:
        answer = self._take(2)
        if answer is None:
            return None
        if answer[1] != 0:
            raise ProxyError(f"proxy {self._proxy}: it does not accept that name and password")
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
            raise ProxyError(f"proxy {self._proxy}: an answer that is not SOCKS5's: {head!r}")
        if head[1] != 0:
            why = SOCKS5_REFUSALS.get(head[1], f"code {head[1]}")
            raise ProxyError(f"proxy {self._proxy}: it cannot connect to {self._target[0]}:{self._target[1]}: {why}")
        assert size is not None
        if self._take(4 + size + 2) is None:
            return None
        self.is_done = True
        self.rest = self._data
        return b""


class HttpConnect:
    """HTTP's CONNECT to ``host`` and ``port``."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self.is_done = False
        self.rest = b""
        self._proxy = proxy
        name = _name(host).decode()
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
                raise ProxyError(f"proxy {self._proxy}: no HTTP proxy, its answer has no end")
            return b""
        status = head.split(b"\r\n", 1)[0].decode("latin-1")
        parts = status.split(" ", 2)
        if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
            raise ProxyError(f"proxy {self._proxy}: no HTTP proxy, it answered {status[:80]!r}")
        if parts[1] == "407":
            raise ProxyError(f"proxy {self._proxy}: it wants another name and password than those in the URL (407)")
        if not parts[1].startswith("2"):
            raise ProxyError(f"proxy {self._proxy}: it cannot connect to {self._target}: {' '.join(parts[1:])[:80]}")
        self.is_done = True
        self.rest = rest
        return b""


HANDSHAKES: Final[Mapping[str, Callable[[Proxy, str, int], Handshake]]] = {
    "socks5": Socks5,
    "socks5h": Socks5,
    "http": HttpConnect,
}
"""By the scheme of a proxy's URL. ``socks5h`` lets the proxy look names up, as ``http`` always does."""

DEFAULT_PORTS: Final[Mapping[str, int]] = {"socks5": 1080, "socks5h": 1080, "http": 80}


def _name(host: str) -> bytes:
    """As it is written for a proxy. ProxyError for what is no name: brokers tell names in their metadata, and a line
    break in one would make it a part of the request."""
    try:
        name = host.encode("idna")
    except UnicodeError:
        name = b""
    if not 0 < len(name) <= 255 or any(byte <= 0x20 or byte >= 0x7F for byte in name):
        raise ProxyError(f"{host[:80]!r} is no name of a server")
    return name


def parse_proxy(url: str) -> Proxy:
    """``SCHEME://[NAME:PASSWORD@]HOST[:PORT]``. ValueError, without the URL in its text, when it is none."""
    wanted = "SCHEME://[NAME:PASSWORD@]HOST[:PORT] with a scheme of " + ", ".join(HANDSHAKES)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(wanted) from None
    more = parts.query or parts.fragment or parts.path not in ("", "/")
    if parts.scheme not in HANDSHAKES or not parts.hostname or more:
        raise ValueError(wanted)
    name = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if any(len((part or "").encode()) > 255 for part in (name, password)):
        raise ValueError("a name and a password of at most 255 bytes")
    return Proxy(parts.scheme, parts.hostname, port or DEFAULT_PORTS[parts.scheme], name, password)

"""Names to addresses, and the text that users write for servers to names and ports.

Looking a name up may take seconds inside the C library, so it happens in a thread; literal addresses never go there.
The threads are short-lived and at most four: between look-ups there is none, so that a worker is single-threaded when
it forks. Nothing is cached: the operating system does that, and a client asks again only when it reconnects.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from collections import deque
from collections.abc import Iterable

from kafka.future import Future
from kafka.net.loop import Loop
from kafka.net.transport import Address

DEFAULT_PORT = 9092

THREAD_NAME = "kafka-resolve"
"""Prefix of the threads' names."""

MAX_HOST = 255
"""Letters of a host's name (RFC 1035)."""

_MAX_THREADS = 4

_Lookup = tuple[str, int, int]


def parse_server(text: str, default_port: int = DEFAULT_PORT) -> tuple[str, int]:
    """One server as (host, port) from ``host``, ``host:port``, ``1.2.3.4:port``, ``[::1]``, ``[::1]:port`` or ``::1``.

    ValueError when it is none of these, or the port is not within 1 to 65535.
    """
    given = text
    text = text.strip()
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not _is_ipv6_literal(host) or (rest and not rest.startswith(":")):
            raise _bad_server(given)
        port = rest[1:]
        has_port = bool(rest)
    elif _is_ipv6_literal(text):
        has_port = False
    else:
        host, colon, port = text.partition(":")
        has_port = bool(colon)
    if not host or any(c.isspace() or c in "/,[]@" for c in host):
        raise _bad_server(given)
    if not has_port:
        return host, default_port
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise _bad_server(given)
    return host, int(port)


def parse_servers(servers: str | Iterable[str], default_port: int = DEFAULT_PORT) -> list[tuple[str, int]]:
    """Servers as a list of (host, port), each once, in order, from a comma-separated text or a list of such texts.

    ValueError as :func:`parse_server`, and when there is no server at all.
    """
    texts = [servers] if isinstance(servers, str) else list(servers)
    parts = [part for text in texts for part in text.split(",") if part.strip()]
    parsed = list(dict.fromkeys(parse_server(part, default_port) for part in parts))
    if not parsed:
        raise ValueError(f"no server in {servers!r}: expected HOST[:PORT], several separated by commas")
    return parsed


def fault_of_server(host: str, port: int) -> OSError | None:
    """Why the address is invalid; None for a valid one. Host and port may come from a broker, so either may be
    anything: the C library takes port 70000 for 4464, and a name for the part of it before a zero byte."""
    if not 1 <= port <= 65535:
        return OSError(errno.EINVAL, f"{host[:MAX_HOST]!r}: {port} is no port, which is a number of 1 to 65535")
    if not 1 <= len(host) <= MAX_HOST or any(c <= " " or c == "\x7f" for c in host):
        return socket.gaierror(socket.EAI_NONAME, f"{host[:MAX_HOST]!r}: not a host name")
    return None


def literal_address(host: str, port: int, family: int = socket.AF_UNSPEC) -> Address | None:
    """The address when ``host`` is one in digits, else None. Never blocks."""
    try:
        entries = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return Address(entries[0][0], entries[0][4])


def lookup(host: str, port: int, family: int = socket.AF_UNSPEC) -> list[Address]:
    """All addresses of ``host``, each once, in the order that the operating system prefers. Blocks.

    OSError (``socket.gaierror``) that names the host when there is none.
    """
    try:
        entries = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise socket.gaierror(error.errno, f"{host}: {error.strerror}") from error
    except UnicodeError as error:  # a label that is empty or too long for the IDNA codec
        raise socket.gaierror(socket.EAI_NONAME, f"{host}: not a host name ({error})") from error
    return list(dict.fromkeys(Address(entry[0], entry[4]) for entry in entries))


def canonical_names(host: str) -> list[str]:
    """The names that the addresses of ``host`` have of their own, each once; an address without a name stands for
    itself. Blocks. OSError when ``host`` has no address."""
    names: list[str] = []
    for address in lookup(host, 0):
        try:
            names.append(socket.gethostbyaddr(address.host)[0])
        except OSError:
            names.append(address.host)
    return list(dict.fromkeys(names))


class Resolver:
    """Look-ups that do not block ``loop``. Concurrent look-ups of one name are shared."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: dict[_Lookup, list[Future[list[Address]]]] = {}
        self._backlog: deque[_Lookup] = deque()
        self._thread_count = 0

    def resolve(self, host: str, port: int, family: int = socket.AF_UNSPEC) -> Future[list[Address]]:
        """The addresses of ``host``; done at once for a literal one, otherwise completed on the loop.

        Fails with OSError; with RuntimeError when the resolver is closed before the answer.
        """
        future: Future[list[Address]] = Future()
        fault = fault_of_server(host, port)
        if fault is not None:
            return future.failure(fault)
        literal = literal_address(host, port, family)
        if literal is not None:
            return future.success([literal])
        key = (host, port, family)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(future)
        if len(waiting) == 1:
            self._backlog.append(key)
            self._start_next()
        return future

    def close(self) -> None:
        """Fail the waiting look-ups. A thread in the C library continues until that returns; its result is dropped."""
        waiting, self._waiting = self._waiting, {}
        self._backlog.clear()
        for futures in waiting.values():
            for future in futures:
                future.failure(RuntimeError("the resolver is closed"))

    def _start_next(self) -> None:
        while self._backlog and self._thread_count < _MAX_THREADS:
            key = self._backlog.popleft()
            self._thread_count += 1
            threading.Thread(target=self._work, args=(key,), name=f"{THREAD_NAME}-{key[0]}", daemon=True).start()

    def _work(self, key: _Lookup) -> None:
        outcome: list[Address] | Exception
        try:
            outcome = lookup(*key)
        except Exception as error:
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no caller waits
            self._loop.call_soon_threadsafe(self._finish, key, outcome)

    def _finish(self, key: _Lookup, outcome: list[Address] | Exception) -> None:
        self._thread_count -= 1
        self._start_next()
        for future in self._waiting.pop(key, ()):
            if isinstance(outcome, Exception):
                future.failure(outcome)
            else:
                future.success(list(outcome))


def _is_ipv6_literal(host: str) -> bool:
    """An IPv6 address in digits; a scope such as ``%eth0`` is allowed."""
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except (OSError, ValueError):
        return False
    return True


def _bad_server(given: str) -> ValueError:
    expected = "expected HOST, HOST:PORT, [IPV6] or [IPV6]:PORT with a port of 1 to 65535"
    return ValueError(f"{given!r} is not a server address: {expected}")

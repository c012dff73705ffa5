"""The interface of connections: :class:`Transport` (output), :class:`TransportHandler` (input), :class:`Network`.

Two networks have this surface: ``tcp.py`` (sockets) and ``memory.py`` (tests, the in-memory broker). A third kind needs
a :class:`Network` and a :class:`Transport`; nothing above changes. TLS and proxies are layers: ``tls.py`` and
``proxy.py`` are a handler towards the transport below and a transport towards the handler above.

The promises of every transport, all on the loop's thread:

* No method of the handler is called inside a call to the network or the transport: all come from the loop.
* ``connected()`` once, unless the connection never came about; then ``data_received()`` in order; ``closed()`` exactly
  once and last. ``closed(None)`` means that our side ended it; otherwise the error says who and why.
* What is written before ``connected()`` goes out after it; what is written after the end is dropped silently,
  since the transport may know of the end before the handler is called.
"""

from __future__ import annotations

import abc
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from kafka.future import Future
    from kafka.net.loop import Loop

BytesLike = bytes | bytearray | memoryview


class Address(NamedTuple):
    """Where to connect: a family of ``socket`` and the address as that family has it. ``str()`` gives "host:port"."""

    family: int
    sockaddr: tuple[Any, ...]

    @property
    def host(self) -> str:
        return str(self.sockaddr[0])

    @property
    def port(self) -> int:
        return int(self.sockaddr[1])

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.family == socket.AF_INET6 else f"{self.host}:{self.port}"


class ConnectionOptions(NamedTuple):
    """How a connection is made. Buffer sizes in bytes; None leaves the operating system's own."""

    connect_timeout_s: float = 10.0
    """For each address."""
    receive_buffer_bytes: int | None = None
    send_buffer_bytes: int | None = None
    no_delay: bool = True
    keep_alive: bool = True
    more: tuple[tuple[Any, ...], ...] = ()
    """Arguments for ``setsockopt``, set after all others."""


DEFAULT_OPTIONS = ConnectionOptions()


class PeerClosed(ConnectionError):
    """The peer closed the connection normally (``recv`` returned no bytes)."""


class ConnectFailed(ConnectionError):
    """No address could be reached; ``errors`` has the error of each, in order."""

    def __init__(self, errors: Sequence[tuple[Address, OSError]]) -> None:
        self.errors = tuple(errors)
        text = "; ".join(f"{address}: {error.strerror or error}" for address, error in self.errors)
        super().__init__(text or "there is no address to connect to")


class TlsError(ConnectionError):
    """TLS has failed: the handshake, or a record. ``reason``: OpenSSL's name for it, where there is one. Here and
    not in ``tls.py``, so that clients without TLS know these classes and do not import ``ssl`` (10 ms).

    ``is_final``: trying again will not help before a certificate, a file or a setting has been changed.
    """

    def __init__(self, text: str, reason: str | None = None, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_final = is_final


class TlsCertificateError(TlsError):
    """A certificate was refused, the peer's by us or ours by the peer."""

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text, reason, is_final=True)


class TlsCutOff(TlsError):
    """The peer ended the connection during the handshake, without an alert."""


class TransportHandler(Protocol):
    """Receives the events of a connection. Subclasses override the methods that they need.

    An error raised by ``connected``, ``data_received`` or ``writable`` ends the connection and is what ``closed`` gets.
    """

    def connected(self) -> None:
        """The connection is established."""

    def data_received(self, data: bytes) -> None:
        """Some bytes, at least one, cut anywhere."""

    def get_buffer(self) -> memoryview | None:
        """Where the next bytes are to be put, at least one, for :meth:`buffer_updated` in place of
        :meth:`data_received`; None for the latter. A transport need not ask."""
        return None

    def buffer_updated(self, count: int) -> None:
        """So many bytes, at least one, are in the buffer that was given last."""
        return

    def missing_bytes(self) -> int:
        """How many bytes have to come, after those that were :meth:`buffer_updated`, before anything can be done
        with them; 0: any will do. A transport may wait for so many, and need not ask."""
        return 0

    def writable(self) -> None:
        """The operating system has taken all pending bytes; only after ``pending_bytes`` was above 0."""

    def closed(self, error: BaseException | None) -> None:
        """The end: None when our side closed it."""


class Transport(abc.ABC):
    """The output side of one connection. ``pending_bytes`` were written and are not yet in the operating system: a
    writer can check it after :meth:`write` and continue at the handler's ``writable()``.
    """

    peer: Address | None = None
    """Set from ``connected()`` on."""
    local: Address | None = None
    pending_bytes: int = 0
    is_closing: bool = False
    """Whether the connection is closing: nothing more is read, and written bytes are dropped."""

    @abc.abstractmethod
    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        """Send bytes, or a list of chunks as one piece. Chunks are kept, not copied: they must not change afterwards
        (memoryviews are of single bytes).
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection after the pending bytes were sent, as long as the peer accepts them. Nothing is read."""

    @abc.abstractmethod
    def abort(self, error: BaseException | None = None) -> None:
        """Close the connection now: pending bytes are dropped, the peer gets a reset. ``closed()`` gets ``error``."""

    @abc.abstractmethod
    def pause_reading(self) -> None:
        """Receive nothing until :meth:`resume_reading`; the end of the connection is not noticed meanwhile."""

    @abc.abstractmethod
    def resume_reading(self) -> None:
        """Receive again."""


class Listener(abc.ABC):
    """A place where connections are accepted."""

    address: Address
    """As bound: the port is the real one when 0 was asked for."""

    @abc.abstractmethod
    def pause(self) -> None:
        """Accept nothing until :meth:`resume`: new connections wait in the system's queue, without a descriptor."""

    @abc.abstractmethod
    def resume(self) -> None:
        """Accept again, waiting connections first."""

    @abc.abstractmethod
    def close(self) -> None:
        """Stop accepting; open connections continue, waiting ones are closed. May be called again."""


Accept = Callable[[Transport], TransportHandler]
"""Called for each connection that arrives, gives its handler. An error raised refuses the connection."""


class Network(Protocol):
    """Makes connections and listeners."""

    loop: Loop

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        """The addresses of a name, completed on the loop; fails with OSError. Literal addresses are there at once."""
        ...

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> Transport:
        """Begin to connect to the first of ``addresses`` that can be reached, in their order. Never blocks, never
        raises for the network's sake: ``closed()`` then gets :class:`ConnectFailed`.
        """
        ...

    def listen(
        self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> Listener:
        """Accept connections at ``host``:``port`` (0: a free one). OSError when the address is not available."""
        ...

    def close(self) -> None:
        """Close all listeners and connections of this network at once."""
        ...

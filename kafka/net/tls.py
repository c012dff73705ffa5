"""TLS between a transport and its handler: bytes of records on one side, plain bytes on the other; both roles.

::

    TcpTransport <-> TlsTransport <-> handler          the same over memory.py: any Transport will do
       records        MemoryBIOs      plain bytes

A :class:`TlsTransport` is a handler to the transport under it and a transport to the handler above it, and keeps the
promises of ``transport.py`` to both. The handler hears ``connected()`` when the handshake is over, and nothing but
``closed()`` when it fails. :class:`TlsNetwork` is the way in: a :class:`~kafka.net.transport.Network` over another.
Contexts (certificates, whom to trust) are made in ``tls_context.py``, errors put into words in ``tls_errors.py``;
whether to try again is decided above.

    handshaking --do_handshake()--> open --close(), close_notify, error--> closing --closed() of the transport under it
         |------- no end within the limit, bytes that are not TLS, refused certificate ---^

Each end says close_notify where it can. A peer that goes without it (most do) ends as :class:`PeerClosed` like any
other: Kafka's frames have lengths, so nothing cut short passes for whole.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from kafka.future import Future
from kafka.net.alarm import Alarm
from kafka.net.loop import Loop
from kafka.net.tls_errors import TlsCutOff, TlsError, explained
from kafka.net.transport import (
    DEFAULT_OPTIONS,
    Accept,
    Address,
    BytesLike,
    ConnectionOptions,
    Listener,
    Network,
    PeerClosed,
    Transport,
    TransportHandler,
)

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S: Final = 10.0

READ_BYTES: Final = 256 * 1024
"""Most that is decrypted for one call of the handler."""

RECORD_BYTES: Final = 16384
"""The most plain bytes that one record has."""

NO_TLS_ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x50"
"""What a server says to bytes that are not TLS, as Java's does: fatal, "internal error". A client that speaks plaintext
by mistake can tell from it what it talks to."""

FLUSH_BYTES: Final = 256 * 1024
"""How much is encrypted before it goes to the transport under it."""


class TlsNetwork:
    """TLS on top of ``network``: what connects is a TLS client, what listens a TLS server.

    ``context``: an ``ssl.SSLContext``, or what gives one for each connection (so that files that were exchanged count
    from the next connection on; its OSError ends the connection). ``server_hostname``: whom a client expects, for SNI
    and the check of the name.
    """

    def __init__(
        self,
        network: Network,
        context: ssl.SSLContext | Callable[[], ssl.SSLContext],
        *,
        server_hostname: str | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        self.loop: Loop = network.loop
        self.server_hostname = server_hostname
        self.handshake_timeout_s = handshake_timeout_s
        self.network = network
        self._context = context
        self.read_buffer = memoryview(bytearray(READ_BYTES))  # one for all connections: each empties it at once

    def for_host(self, server_hostname: str | None) -> TlsNetwork:
        """The same, for connections to another server."""
        other = TlsNetwork(
            self.network, self._context, server_hostname=server_hostname, handshake_timeout_s=self.handshake_timeout_s
        )
        other.read_buffer = self.read_buffer
        return other

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        return self.network.resolve(host, port)

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> TlsTransport:
        tls = TlsTransport(self, handler, is_server=False)
        tls.join(self.network.connect(addresses, tls, options))
        return tls

    def listen(self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS) -> Listener:
        def welcome(under: Transport) -> TransportHandler:
            tls = TlsTransport(self, None, is_server=True)
            tls.join(under)
            tls.handler = accept(tls)
            return tls

        return self.network.listen(host, port, welcome, options)

    def close(self) -> None:
        """End all that the network below has, with and without TLS."""
        self.network.close()

    def new_context(self) -> ssl.SSLContext:
        """The context for a connection that begins now."""
        return self._context if isinstance(self._context, ssl.SSLContext) else self._context()


class TlsTransport(Transport, TransportHandler):
    """One connection: made by :class:`TlsNetwork`, or by hand with :meth:`join` over any transport."""

    def __init__(self, network: TlsNetwork, handler: TransportHandler | None, *, is_server: bool) -> None:
        self.handler = handler
        self.is_server = is_server
        self.is_open = False
        """The handshake is over."""
        self._network = network
        self._loop = network.loop
        self._under: Transport | None = None
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._ssl: ssl.SSLObject | None = None
        self._early: list[BytesLike] = []
        """Written before the handshake was over."""
        self._early_bytes = 0
        self._alarm = Alarm(network.loop, self._too_late)
        self._error: BaseException | None = None
        """Why we ended it."""
        self._owes_writable = False
        self._is_paused = False
        self._is_ended = False

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else "closing" if self.is_closing else "open" if self.is_open else "beginning"
        return f"<TlsTransport {'server' if self.is_server else 'client'} {self.local} -> {self.peer} {state}>"

    def join(self, under: Transport) -> None:
        """Stand on ``under``, whose handler this is."""
        self._under = under
        self.peer, self.local = under.peer, under.local

    @property
    def version(self) -> str | None:
        """``TLSv1.3`` or ``TLSv1.2``, once open."""
        return self._ssl.version() if self._ssl is not None else None

    def peer_certificate(self) -> dict[str, Any] | None:
        """What the ``ssl`` module tells of the peer's certificate that was checked; None when there is none."""
        found: dict[str, Any] | None = self._ssl.getpeercert() if self._ssl is not None else None
        return found or None

    # -- out: the transport of the handler above -----------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:  # type: ignore[override]  # an attribute elsewhere; here the other transport knows
        return self._early_bytes + (self._under.pending_bytes if self._under is not None else 0)

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        if self.is_closing:
            return
        chunks = (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data
        if not self.is_open:
            self._early.extend(chunks)
            self._early_bytes += sum(map(len, chunks))
            self._owes_writable = True
            return
        self._encrypt(chunks)
        if self.pending_bytes:
            self._owes_writable = True

    def _encrypt(self, chunks: Sequence[BytesLike]) -> None:
        tls, outgoing = self._ssl, self._outgoing
        assert tls is not None
        try:
            for piece in _in_records(chunks):
                view, sent = memoryview(piece), 0
                while sent < len(view):
                    sent += tls.write(view[sent:] if sent else view)  # one record for each call
                    if outgoing.pending >= FLUSH_BYTES:
                        self._flush()
        except ssl.SSLError as error:
            # On the loop: the handler, whose call this is, must not be called inside it.
            self._loop.call_soon(self._fail, explained(error, self.peer, is_open=self.is_open))
            return
        self._flush()

    def _flush(self) -> None:
        """Hand what is encrypted to the transport under us."""
        if self._outgoing.pending and self._under is not None:
            self._under.write(self._outgoing.read())

    def close(self) -> None:
        if not self.is_closing:
            self.is_closing = True
            self._say_goodbye()
            if self._under is not None:
                self._under.close()

    def abort(self, error: BaseException | None = None) -> None:
        if not self._is_ended:
            self.is_closing = True
            self._error = self._error or error
            if self._under is not None:
                self._under.abort(error)

    def pause_reading(self) -> None:
        self._is_paused = True
        if self.is_open and self._under is not None and not self.is_closing:  # a handshake goes on to its end
            self._under.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self.is_open and self._under is not None and not self.is_closing:
            self._under.resume_reading()
            if self._incoming.pending or (self._ssl is not None and self._ssl.pending()):
                self._loop.call_soon(self._deliver_again)

    # -- in: the handler of the transport below ------------------------------------------------------------------------

    def connected(self) -> None:
        under = self._under
        assert under is not None
        self.peer, self.local = under.peer, under.local
        self._alarm.set(self._loop.time() + self._network.handshake_timeout_s)
        name = None if self.is_server else self._network.server_hostname
        try:
            context = self._network.new_context()
            self._ssl = context.wrap_bio(self._incoming, self._outgoing, self.is_server, name)
        except (OSError, ValueError) as error:  # files that cannot be read, a name that cannot be one
            self._fail(TlsError(f"TLS cannot begin: {error}", is_final=True))
            return
        self._handshake()

    def data_received(self, data: bytes) -> None:
        if self.is_closing or self._ssl is None:
            return
        self._incoming.write(data)
        if not self.is_open:
            self._handshake()
        if self.is_open:
            self._deliver()

    def writable(self) -> None:
        if self.is_open and self._owes_writable and not self.pending_bytes and not self.is_closing:
            self._owes_writable = False
            if self.handler is not None:
                self.handler.writable()

    def closed(self, error: BaseException | None) -> None:
        self._alarm.set(float("inf"))
        was_open, self._is_ended, self.is_closing = self.is_open, True, True
        self._early.clear()
        self._early_bytes = 0
        if self._error is not None:
            error = self._error
        elif not was_open and self._ssl is not None and isinstance(error, (PeerClosed, ConnectionResetError)):
            error = TlsCutOff(f"{self.peer} ended the connection during the TLS handshake; does it speak TLS there?")
            self._tell(error)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler.closed(error)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _handshake(self) -> None:
        assert self._ssl is not None
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except ssl.SSLError as error:
            if self.is_server and not self._outgoing.pending and self._under is not None:
                self._under.write(NO_TLS_ALERT)  # OpenSSL says nothing to bytes that are not TLS
            self._fail(explained(error, self.peer, is_open=self.is_open))
            return
        except ValueError as error:  # a host name that no certificate can have
            self._fail(TlsError(f"TLS cannot begin: {error}", is_final=True))
            return
        self._flush()
        self._alarm.set(float("inf"))
        self.is_open = True
        early, self._early, self._early_bytes = self._early, [], 0
        if early:
            self._encrypt(early)
        if self._is_paused and self._under is not None:
            self._under.pause_reading()
        if self.handler is not None:
            self.handler.connected()
        if self._owes_writable and not self.pending_bytes:
            self._loop.call_soon(self._writable_again)

    def _writable_again(self) -> None:
        self._guarded(self.writable)

    def _deliver_again(self) -> None:
        self._guarded(self._deliver)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Below a transport its own calls are guarded; ours from the loop are here."""
        if self._is_ended:
            return
        try:
            call()
        except Exception as error:
            log.error("%r: the handler failed, so the connection ends", self, exc_info=error)
            self.abort(error)

    def _deliver(self) -> None:
        """Give the handler what can be decrypted, for as long as it wants it."""
        tls = self._ssl
        assert tls is not None
        ending: BaseException | None = None
        while ending is None and not self._is_paused and not self.is_closing and self.handler is not None:
            count = 0
            room = self.handler.room()
            buffer = self._network.read_buffer if room is None else room
            size = len(buffer)
            try:
                while count < size:
                    more: Any = tls.read(size, buffer[count:])  # into a buffer: a number
                    if not more:
                        ending = PeerClosed(f"{self.peer} closed the connection")
                        break
                    count += more
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                ending = explained(error, self.peer, is_open=self.is_open)
            self._flush()  # an answer to a change of keys, an alert
            if count and self.handler is not None:
                if room is None:
                    self.handler.data_received(bytes(buffer[:count]))
                else:
                    self.handler.filled(count)
            if not count:
                break
        if ending is not None and not self.is_closing:
            self._fail(ending)

    def _say_goodbye(self) -> None:
        """Put close_notify behind what was written."""
        if not self.is_open or self._ssl is None:
            return
        with contextlib.suppress(OSError, ValueError):  # it wants the peer's close_notify, too: we do not wait for that
            self._ssl.unwrap()
        self._flush()

    def _fail(self, error: BaseException) -> None:
        """End it for ``error``, after the alert that tells the peer, if that gets through."""
        if self.is_closing or self._under is None:
            return
        self.is_closing = True
        self._error = error
        if not isinstance(error, PeerClosed):
            self._tell(error)
        elif not self._under.pending_bytes:
            self._say_goodbye()
        self._flush()
        if self._under.pending_bytes:  # it may never take that
            self._under.abort(error)
        else:
            self._under.close()

    def _too_late(self) -> None:
        self._fail(TlsError(f"the TLS handshake was not over within {self._network.handshake_timeout_s:g} s"))

    def _tell(self, error: BaseException) -> None:
        """One line for the side that has nobody else to hear of it."""
        if self.is_server:
            log.warning("the TLS connection from %s ends: %s", self.peer, error)


def _in_records(chunks: Sequence[BytesLike]) -> Iterator[BytesLike]:
    """The same bytes, small chunks joined: each piece costs a record of its own, with 22 bytes around it and a call."""
    run: list[BytesLike] = []
    held = 0
    for chunk in chunks:
        size = len(chunk)
        if held + size > RECORD_BYTES and run:
            yield run[0] if len(run) == 1 else b"".join(run)
            run, held = [], 0
        if size > RECORD_BYTES:
            yield chunk
        elif size:
            run.append(chunk)
            held += size
    if run:
        yield run[0] if len(run) == 1 else b"".join(run)

"""Connections over TCP sockets: connecting, accepting, writing at once and reading in fair turns.

It leaves bytes to the handlers, names to ``resolve.py`` and encryption to ``tls.py``, which wraps a transport of this
module. Every descriptor made here is non-blocking and not inherited by children.

    connecting --Connector reaches an address--> open --close(): pending goes out--> ended
        |                                          |
        +----- no address, close(), abort() -------+-- abort(), end of stream, error --> ended: handler.closed(...),
        once

Writing tries the socket at once, with one system call for a whole list of chunks: most requests fit the socket's
buffer and the selector does not know them. Reading takes one stretch for each connection and turn of the loop, into
one buffer shared by the network's connections: a fresh 256 KiB object for each read would be mapped and unmapped. A
handler that expects much gives a buffer of its own instead.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from kafka.future import Future
from kafka.net.loop import Loop, LoopTimer, Watch
from kafka.net.resolve import Resolver
from kafka.net.transport import (
    DEFAULT_OPTIONS,
    Accept,
    Address,
    BytesLike,
    ConnectFailed,
    ConnectionOptions,
    Listener,
    PeerClosed,
    Transport,
    TransportHandler,
)

_IN_PROGRESS = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY})


class Connector:
    """Connects to the first of ``addresses`` that can be reached, in their order, each for
    ``options.connect_timeout_s``.

    Ends, on the loop, with one call: ``on_connected(socket, peer)``, or ``on_failed(ConnectFailed)``. The socket is
    this object's until then.

    Addresses are not tried in parallel ("happy eyeballs", RFC 8305): brokers mostly have one address, and a second
    connection would count against the broker's quotas. Probably right; the place to change it is :meth:`_try_next`.
    """

    def __init__(
        self,
        loop: Loop,
        addresses: Sequence[Address],
        options: ConnectionOptions,
        on_connected: Callable[[socket.socket, Address], object],
        on_failed: Callable[[ConnectFailed], object],
    ) -> None:
        self._loop = loop
        self._on_connected = on_connected
        self._on_failed = on_failed
        self._left = deque(addresses)
        self._options = options
        self._errors: list[tuple[Address, OSError]] = []
        self._sock: socket.socket | None = None
        self._watch: Watch | None = None
        self._timer: LoopTimer | None = None
        self._try_next()

    def cancel(self) -> None:
        """Abort the current attempt."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        self._left.clear()

    def _try_next(self) -> None:
        while self._left:
            address = self._left.popleft()
            try:
                self._attempt(address)
            except OSError as error:
                self._record_failure(address, error)
            else:
                return
        self._loop.call_soon(self._give_up)

    def _attempt(self, address: Address) -> None:
        self._sock = sock = socket.socket(address.family, socket.SOCK_STREAM)
        configure(sock, self._options)
        code = sock.connect_ex(address.sockaddr)
        if code and code not in _IN_PROGRESS:
            raise OSError(code, os.strerror(code))
        self._watch = self._loop.watch(sock, on_writable=lambda: self._on_writable(address))
        self._timer = self._loop.call_later(self._options.connect_timeout_s, self._on_timeout, address)

    def _on_writable(self, address: Address) -> None:
        sock = self._sock
        assert sock is not None
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        try:
            if code:
                raise OSError(code, os.strerror(code))
            peer = sock.getpeername()
            if peer == sock.getsockname():
                # No listener, and the kernel chose that very port for our end: TCP then connects to itself.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself: no listener there")
        except OSError as error:
            self._record_failure(address, error)
            self._try_next()
            return
        self._sock = None
        self.cancel()
        self._on_connected(sock, Address(address.family, peer))

    def _on_timeout(self, address: Address) -> None:
        text = f"no connection within {self._options.connect_timeout_s:g} s"
        self._record_failure(address, TimeoutError(errno.ETIMEDOUT, text))
        self._try_next()

    def _record_failure(self, address: Address, error: OSError) -> None:
        self._errors.append((address, error))
        left, self._left = self._left, deque()
        self.cancel()
        self._left = left

    def _give_up(self) -> None:
        self._on_failed(ConnectFailed(self._errors))


def configure(sock: socket.socket, options: ConnectionOptions) -> None:
    """Make a new socket non-blocking and give it its options."""
    sock.setblocking(False)
    set_buffers(sock, options)
    if options.no_delay:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if options.keep_alive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in options.more:
        sock.setsockopt(*option)


def set_buffers(sock: socket.socket, options: ConnectionOptions) -> None:
    """The buffer sizes: before ``connect`` or ``listen``, since the window's scale is settled with the first packet."""
    if options.receive_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, options.receive_buffer_bytes)
    if options.send_buffer_bytes is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)


log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
"""Maximum number of bytes that one connection receives in one turn of the loop."""

WRITE_TURN_BYTES = 1024 * 1024
"""About the maximum that one connection sends of its backlog in one turn, since a fast peer could keep the loop
busy."""

MAX_CHUNKS = 1024
"""Chunks for one system call (IOV_MAX on Linux and the BSDs)."""

LOW_WATER_BYTES = 32 * 1024
"""When so many bytes are missing, the socket wakes the loop when they have arrived, not for each part."""

ACCEPT_COUNT = 64
"""Most connections that a listener accepts in one turn."""

MAX_PORT = 65535


def _has_low_water() -> bool:
    """Whether SO_RCVLOWAT may be used: Linux since 4.18 grows the receive buffer for it, or waits for no more than half
    of one that was set, and wakes earlier when memory is short. Elsewhere a mark above the buffer might never be met.
    """
    if sys.platform != "linux":
        return False
    numbers = re.findall(r"\d+", os.uname().release)[:2]
    return [int(number) for number in numbers] >= [4, 18]


HAS_LOW_WATER = _has_low_water()

_ACCEPT_PAUSE_S = 0.2
_ACCEPT_LOG_INTERVAL_S = 60.0
"""How long further accept() failures are not logged."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class TcpNetwork:
    """TCP on ``loop``: a :class:`~kafka.net.transport.Network`."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._resolver = Resolver(loop)
        self._read_buffer = memoryview(bytearray(READ_BYTES))
        self._transports: set[TcpTransport] = set()
        self._listeners: set[TcpListener] = set()

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        return self._resolver.resolve(host, port)

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> TcpTransport:
        transport = TcpTransport(self, handler)
        transport._connector = Connector(self.loop, addresses, options, transport._opened, transport._end)
        return transport

    def listen(
        self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> TcpListener:
        return TcpListener(self, host, port, accept, options)

    def close(self) -> None:
        for listener in list(self._listeners):
            listener.close()
        for transport in list(self._transports):
            transport.abort()
        self._resolver.close()


class TcpTransport(Transport):
    """One TCP connection."""

    def __init__(self, network: TcpNetwork, handler: TransportHandler | None) -> None:
        self._network = network
        self._loop = network.loop
        self._handler = handler
        self._connector: Connector | None = None
        self._sock: socket.socket | None = None
        self._watch: Watch | None = None
        self._backlog: deque[BytesLike] = deque()
        self._low_water_bytes = 0
        """The number of bytes at which the socket becomes readable; 0: any."""
        self._is_paused = False
        self._is_ended = False
        network._transports.add(self)

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else "closing" if self.is_closing else "open" if self._sock else "connecting"
        return f"<TcpTransport {self.local} -> {self.peer} {state}>"

    # -- out -----------------------------------------------------------------------------------------------------------

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        """Sends what the socket takes at once, and queues the rest until it is writable. Before the connection is made,
        or behind a backlog, all of it is queued, so that the order stays; after :meth:`close` it is dropped. Errors of
        the socket are not raised: they end the connection. RuntimeError after a fork or when the loop is closed."""
        sock = self._sock
        if sock is None or self.pending_bytes or self.is_closing:
            if not self.is_closing:
                self._queue(data, 0)
            return
        if not self._loop.is_usable:
            raise RuntimeError("the connection's loop is closed or belongs to the parent process")
        try:
            if isinstance(data, (bytes, bytearray, memoryview)):
                size = len(data)
                sent = sock.send(data)
            else:
                size = sum(map(len, data))
                sent = _send_chunks(sock, data if len(data) <= MAX_CHUNKS else data[:MAX_CHUNKS])
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._end_after_reading(error)
            return
        if sent != size:
            self._queue(data, sent)
            assert self._watch is not None
            self._watch.set(write=True)

    def _queue(self, data: BytesLike | Sequence[BytesLike], sent: int) -> None:
        """Put what is left of ``data`` after ``sent`` bytes behind the backlog."""
        for chunk in (data,) if isinstance(data, (bytes, bytearray, memoryview)) else data:
            size = len(chunk)
            if sent >= size:
                sent -= size
            else:
                self._backlog.append(memoryview(chunk)[sent:] if sent else chunk)
                self.pending_bytes += size - sent
                sent = 0

    def _flush(self) -> None:
        """The socket is writable: send the backlog, for one turn."""
        sock, backlog = self._sock, self._backlog
        if sock is None:
            return
        turn_bytes = 0
        while backlog and turn_bytes < WRITE_TURN_BYTES:
            try:
                sent = _send_chunks(sock, list(itertools.islice(backlog, MAX_CHUNKS)))
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._end_after_reading(error)
                return
            turn_bytes += sent
            self.pending_bytes -= sent
            while sent:
                head = backlog[0]
                if sent < len(head):
                    backlog[0] = memoryview(head)[sent:]
                    break
                sent -= len(head)
                backlog.popleft()
        if self.pending_bytes:
            return
        backlog.clear()
        if self.is_closing:
            self._end(None)
        else:
            assert self._watch is not None
            self._watch.set(write=False)
            self._call_handler("writable")

    # -- in ------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """The socket is readable: read once and call the handler."""
        sock, handler = self._sock, self._handler
        if sock is None or handler is None:
            return
        try:
            room = handler.get_buffer()
            buffer = self._network._read_buffer if room is None else room
            count = sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if not count:
            self._end(PeerClosed(f"{self.peer} closed the connection"))
            return
        try:
            missing = 0
            if room is None:
                handler.data_received(bytes(buffer[:count]))
            else:
                handler.buffer_updated(count)
                missing = handler.missing_bytes()
        except Exception as error:
            self._handler_failed(error)
            return
        if missing or self._low_water_bytes:
            self._wait_for(missing)

    def _wait_for(self, missing: int) -> None:
        """Call the handler only when so many bytes have arrived, or the connection has ended (SO_RCVLOWAT). A response
        of 1 MiB is two reads then instead of twelve. Set anew after each read, since less is missing then."""
        sock = self._sock
        if sock is None:
            return
        low_water_bytes = missing if missing >= LOW_WATER_BYTES else 0
        if low_water_bytes == self._low_water_bytes or not HAS_LOW_WATER:
            return
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(low_water_bytes, 1))
        except OSError as error:  # unsupported or refused: only speed is lost
            log.debug("%r: %s", self, error)
        else:
            self._low_water_bytes = low_water_bytes

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._watch is not None and not self.is_closing:
            self._watch.set(read=False)

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._watch is not None and not self.is_closing:
            self._watch.set(read=True)

    # -- beginning and end ---------------------------------------------------------------------------------------------

    def _opened(self, sock: socket.socket, peer: Address) -> None:
        """The connector or the listener has a connected socket."""
        self._connector = None
        self._sock = sock
        self.peer = peer
        self.local = Address(sock.family, sock.getsockname())
        self._watch = self._loop.watch(sock, on_readable=self._read, on_writable=self._flush)
        self._watch.set(read=not self._is_paused, write=bool(self.pending_bytes))
        self._call_handler("connected")

    def close(self) -> None:
        if self.is_closing:
            return
        self.is_closing = True
        if self._sock is None or not self.pending_bytes or not self._loop.is_usable:
            self._end(None)
        elif self._watch is not None:
            self._watch.set(read=False)

    def abort(self, error: BaseException | None = None) -> None:
        if self._sock is not None and self._loop.is_usable:
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            except OSError as failure:  # the peer has closed already
                log.debug("%r: %s", self, failure)
        self._end(error)

    def _end_after_reading(self, error: OSError) -> None:
        """Writing failed. A peer that gave up has often said why before, so one stretch is read first, on the loop."""
        if not self._is_ended and not self.is_closing:
            self._loop.call_soon(self._read_last, error)
            self._backlog.clear()
            self.pending_bytes = 0
            if self._watch is not None:
                self._watch.set(read=False, write=False)
        elif self.is_closing:
            self._end(error)

    def _read_last(self, error: OSError) -> None:
        if not self._is_ended:
            if not self._is_paused:
                self._read()
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._is_ended:
            return
        self._is_ended = self.is_closing = True
        self._network._transports.discard(self)
        self._backlog.clear()
        self.pending_bytes = 0
        if self._connector is not None:
            self._connector.cancel()
            self._connector = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        handler, self._handler = self._handler, None
        if handler is not None and self._loop.is_usable:
            self._loop.call_soon(handler.closed, error)

    def _call_handler(self, method: str) -> None:
        try:
            getattr(self._handler, method)()
        except Exception as error:
            self._handler_failed(error)

    def _handler_failed(self, error: Exception) -> None:
        log.error("%r: closing the connection after an error in its handler", self, exc_info=error)
        self._end(error)


class TcpListener(Listener):
    """A listening socket."""

    def __init__(
        self, network: TcpNetwork, host: str, port: int, accept: Accept, options: ConnectionOptions
    ) -> None:
        """Binds and listens at once (``host`` "": 0.0.0.0). OSError, with the address in its text, when that
        fails."""
        self._network = network
        self._accept = accept
        self._options = options
        self._is_paused = False
        self._pause_timer: LoopTimer | None = None
        """Runs after an accept() that failed: nothing is accepted before it ends."""
        self._log_again_at = -inf
        """An accept() failure was logged just before (monotonic s)."""
        try:
            self._sock = self._bind(host or "0.0.0.0", port)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        self.address = Address(self._sock.family, self._sock.getsockname())
        try:
            self._watch = network.loop.watch(self._sock, on_readable=self._accept_some)
        except BaseException:
            self._sock.close()
            raise
        network._listeners.add(self)

    def _bind(self, host: str, port: int) -> socket.socket:
        if not 0 <= port <= MAX_PORT:  # getaddrinfo() would take the lower 16 bits
            raise OSError(errno.EINVAL, f"a port must be a number from 0 to {MAX_PORT}")
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        sock = socket.socket(info[0], socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere the option lets two listeners have one port
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            set_buffers(sock, self._options)  # accepted sockets inherit them, and only so in time for the window
            sock.setblocking(False)
            sock.bind(info[4])
            sock.listen(1024)
        except BaseException:
            sock.close()
            raise
        return sock

    def pause(self) -> None:
        self._is_paused = True
        self._set_reading()

    def resume(self) -> None:
        self._is_paused = False
        self._set_reading()

    def _set_reading(self) -> None:
        if self._sock.fileno() >= 0:
            self._watch.set(read=not self._is_paused and self._pause_timer is None)

    def close(self) -> None:
        self._watch.close()
        self._sock.close()
        self._network._listeners.discard(self)
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None

    def _accept_some(self) -> None:
        for _ in range(ACCEPT_COUNT):
            if self._is_paused or self._sock.fileno() < 0:
                return  # by the handler of one just accepted
            try:
                sock, sockaddr = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._accepted(sock, Address(sock.family, sockaddr))

    def _accept_failed(self, error: OSError) -> None:
        """Rest: the connection that waits keeps the listener readable, and the loop would spin."""
        loop = self._network.loop
        if loop.time() >= self._log_again_at:
            self._log_again_at = loop.time() + _ACCEPT_LOG_INTERVAL_S
            log.error(
                "%s: cannot accept connections: %s; retrying every %g s", self.address, error, _ACCEPT_PAUSE_S
            )
        self._pause_timer = loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)
        self._set_reading()

    def _accept_again(self) -> None:
        self._pause_timer = None
        self._set_reading()

    def _accepted(self, sock: socket.socket, peer: Address) -> None:
        transport = TcpTransport(self._network, None)
        try:
            configure(sock, self._options)
            transport.peer = peer
            handler = self._accept(transport)
        except Exception:
            log.exception("%s: rejected connection from %s after an error in accept()", self.address, peer)
            sock.close()
            transport._end(None)
            return
        if transport.is_closing:  # accept() gave it a handler and closed it at once
            sock.close()
            self._network.loop.call_soon(handler.closed, None)
            return
        transport._handler = handler
        try:
            transport._opened(sock, peer)
        except OSError as error:  # the selector has no room for one more
            log.error("%s: closing connection from %s: %s", self.address, peer, error)
            transport._end(error)


if hasattr(socket.socket, "sendmsg"):

    def _send_chunks(sock: socket.socket, chunks: Sequence[BytesLike]) -> int:
        return sock.sendmsg(chunks)

else:  # Windows

    def _send_chunks(sock: socket.socket, chunks: Sequence[BytesLike]) -> int:
        return sock.send(b"".join(chunks))

"""Connections without sockets: the interface of ``tcp.py`` in one process, with network faults on demand.

Everything happens on the loop, in a fixed order, so that a run over ``Loop.simulated`` is the same each time. A network
is seen from a host (:meth:`MemoryNetwork.host` gives the same network seen from another one); between each two hosts
there are two directed :class:`LinkConditions` objects, and what goes over them is delayed, cut into pieces, held or
lost.

    write() -> Pipe (bytes with their instants, in order) -> data_received() of the other end

Behaves as TCP does: bytes arrive in order or the connection ends, what is due at one time arrives in one piece, a peer
that does not read lets ``pending_bytes`` grow, a partition holds bytes back and delivers them when it heals.
"""

from __future__ import annotations

import errno
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kafka.future import Future
from kafka.net.loop import Loop
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

WINDOW_BYTES = 256 * 1024
"""Bytes in flight in one direction of a connection before ``pending_bytes`` counts."""


@dataclass(eq=False)
class LinkConditions:
    """One direction between two hosts. Tests may change it at any time; delay and loss apply when bytes are written."""

    delay_s: float | Callable[[int], float] = 0.0
    """Seconds on the way, or a function from the number of bytes to them. Never overtakes what was written before."""
    chunk_bytes: int | None = None
    """Deliver in pieces of at most so many bytes, each in a ``data_received()`` of its own."""
    is_lossy: bool = False
    """Written bytes are lost, and so is the end of a connection; the connection itself stays."""
    is_held: bool = False
    """Nothing arrives and no connection is made, until :meth:`MemoryNetwork.heal` delivers the waiting bytes."""

    def hold(self) -> None:
        self.is_held = True

    def release(self) -> None:
        self.is_held = False

    def delay_of(self, count: int) -> float:
        """Seconds that ``count`` bytes take, written now."""
        return self.delay_s(count) if callable(self.delay_s) else self.delay_s


class Pipe:
    """The bytes in flight to one end of a connection: (instant, bytes) in order, then perhaps an error, which is the
    end.

    queue: (instant, bytes) (instant, bytes) ... (instant, error)      instants never decrease
    """

    def __init__(self, loop: Loop, target: MemoryTransport) -> None:
        self._link = LinkConditions()
        self._loop = loop
        self._target = target
        self._queue: deque[tuple[float, bytes | OSError]] = deque()
        self._count_bytes = 0
        self._last_at = 0.0
        self._armed_at: float | None = None
        self._is_shut = False

    def attach(self, link: LinkConditions) -> None:
        """Deliver under these conditions from now on."""
        self._link = link

    def send(self, data: bytes) -> None:
        """Put bytes on the way."""
        if self._is_shut or self._link.is_lossy:
            return
        self._count_bytes += len(data)
        self._put(data, self._link.delay_of(len(data)))
        self._report()

    def end(self, error: OSError) -> None:
        """End the other side, after all bytes in flight."""
        if not (self._is_shut or self._link.is_lossy):
            self._put(error, self._link.delay_of(0))

    def clear(self) -> None:
        """Lose the bytes in flight."""
        self._queue.clear()
        self._count_bytes = 0

    def shut(self) -> None:
        """The target has ended: nothing arrives any more."""
        self._is_shut = True
        self.clear()

    def _put(self, what: bytes | OSError, delay_s: float) -> None:
        self._last_at = max(self._last_at, self._loop.time() + delay_s)
        self._queue.append((self._last_at, what))
        self.arm()

    def arm(self) -> None:
        """Set a timer for the instant of the queue's head."""
        if not self._queue or not self._may_deliver():
            return
        at = self._queue[0][0]
        if self._armed_at is None or at < self._armed_at:
            self._armed_at = at
            self._loop.call_at(at, self._deliver, at)

    def _deliver(self, armed_at: float) -> None:
        if self._armed_at == armed_at:
            self._armed_at = None
        now = self._loop.time()
        stretch: list[bytes] = []
        end: OSError | None = None
        while self._queue and self._queue[0][0] <= now and end is None and self._may_deliver():
            what = self._queue.popleft()[1]
            if isinstance(what, bytes):
                stretch.append(what)
            else:
                end = what
        data = b"".join(stretch)
        size = self._link.chunk_bytes or len(data)
        position = 0
        while position < len(data) and self._may_deliver():
            self._count_bytes -= len(data[position : position + size])
            self._target.call_handler("data_received", data[position : position + size])
            position += size
        if self._is_shut:
            return
        if position < len(data) or (end is not None and not self._may_deliver()):
            # The handler paused between two pieces: the rest waits at the head.
            if end is not None:
                self._queue.appendleft((now, end))
            if position < len(data):
                self._queue.appendleft((now, data[position:]))
        elif end is not None:
            self._target.end(end)
        self._report()
        self.arm()

    def _may_deliver(self) -> bool:
        return not (self._is_shut or self._link.is_held) and self._target.may_receive()

    def _report(self) -> None:
        self._target.set_writers_pending(max(0, self._count_bytes - WINDOW_BYTES))


log = logging.getLogger(__name__)

FAMILY = 0
"""The family of memory addresses; their host is any text."""

_FIRST_FREE_PORT = 49152


@dataclass
class _Fabric:
    """State that the views of all hosts share."""

    links: dict[tuple[str, str], LinkConditions] = field(default_factory=dict)
    listeners: dict[tuple[str, int], MemoryListener] = field(default_factory=dict)
    transports: list[MemoryTransport] = field(default_factory=list)
    """The open connections, oldest first."""
    names: dict[str, list[str]] = field(default_factory=dict)
    ports: Iterator[int] = field(default_factory=lambda: itertools.count(_FIRST_FREE_PORT))

    def link(self, source: str, target: str) -> LinkConditions:
        return self.links.setdefault((source, target), LinkConditions())


class MemoryNetwork:
    """A network in memory on ``loop``, seen from ``name``: a :class:`~kafka.net.transport.Network`, and its hooks."""

    def __init__(self, loop: Loop, name: str = "localhost", *, _fabric: _Fabric | None = None) -> None:
        self.loop = loop
        self.name = name
        self._fabric = _fabric or _Fabric()

    def host(self, name: str) -> MemoryNetwork:
        """The same network seen from the host ``name``."""
        return MemoryNetwork(self.loop, name, _fabric=self._fabric)

    def resolve(self, host: str, port: int) -> Future[list[Address]]:
        """Every name is its own address, unless :attr:`names` says otherwise."""
        future: Future[list[Address]] = Future()
        hosts = self.names.get(host, [host])
        if not hosts:
            return future.failure(socket.gaierror(socket.EAI_NONAME, f"{host}: Name or service not known"))
        return future.success([Address(FAMILY, (each, port)) for each in hosts])

    def connect(
        self, addresses: Sequence[Address], handler: TransportHandler, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> MemoryTransport:
        transport = MemoryTransport(self, handler)
        self.loop.call_soon(_MemoryConnector(self._fabric, self.name, transport, addresses, options).try_next)
        return transport

    def listen(
        self, host: str, port: int, accept: Accept, options: ConnectionOptions = DEFAULT_OPTIONS
    ) -> MemoryListener:
        host = host or self.name
        port = port or next(self._fabric.ports)
        if (host, port) in self._fabric.listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        return MemoryListener(self, Address(FAMILY, (host, port)), accept)

    def close(self) -> None:
        """Close the connections and listeners of this view."""
        for listener in list(self._fabric.listeners.values()):
            if listener._network is self:
                listener.close()
        for transport in list(self._fabric.transports):
            if transport._network is self:
                transport.abort()

    # -- the hooks -----------------------------------------------------------------------------------------------------

    @property
    def names(self) -> dict[str, list[str]]:
        """The name service: name -> hosts, an empty list for an unknown name. A missing name is a host of that name.
        Tests may change it."""
        return self._fabric.names

    def link(self, source: str, target: str) -> LinkConditions:
        """The conditions from one host to another; tests may change them."""
        return self._fabric.link(source, target)

    def partition(self, one: str, other: str) -> None:
        """Hold everything between two hosts until :meth:`heal`; new connections run into their time limit."""
        self.link(one, other).hold()
        self.link(other, one).hold()

    def heal(self, one: str, other: str) -> None:
        """End a partition: bytes written meanwhile arrive."""
        self.link(one, other).release()
        self.link(other, one).release()
        for transport in list(self._fabric.transports):
            if transport._is_between(one, other):
                transport._incoming.arm()

    def cut(self, one: str, other: str) -> int:
        """Reset every connection between two hosts at both ends; bytes in flight are lost. Returns the number of
        connections."""
        ends = [transport for transport in self._fabric.transports if transport._is_between(one, other)]
        for transport in ends:
            text = f"connection between {transport.local} and {transport.peer} reset"
            transport.end(ConnectionResetError(errno.ECONNRESET, text))
        return len(ends) // 2


class MemoryTransport(Transport):
    """One end of a connection in memory."""

    def __init__(self, network: MemoryNetwork, handler: TransportHandler | None) -> None:
        self._network = network
        self._loop = network.loop
        self._handler = handler
        self._early: list[bytes] = []
        """Written before there was a connection."""
        self._incoming = Pipe(self._loop, self)
        self._other: MemoryTransport | None = None
        self._is_paused = False
        self._is_open = False
        """Whether the handler was notified; before that, nothing is delivered and written bytes are kept."""
        self._is_ended = False
        network._fabric.transports.append(self)

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else "open" if self._is_open else "connecting"
        return f"<MemoryTransport {self.local} -> {self.peer} {state}>"

    def write(self, data: BytesLike | Sequence[BytesLike]) -> None:
        if self.is_closing:
            return
        other = self._other if self._is_open else None
        stretch = bytes(data) if isinstance(data, (bytes, bytearray, memoryview)) else b"".join(data)
        if other is None:
            self._early.append(stretch)
            self.pending_bytes += len(stretch)
        elif stretch:
            other._incoming.send(stretch)

    def close(self) -> None:
        if not self.is_closing:
            if self._other is not None:
                self._other._incoming.end(PeerClosed(f"{self.local} closed the connection"))
            self.end(None)

    def abort(self, error: BaseException | None = None) -> None:
        if not self._is_ended:
            if self._other is not None:
                self._other._incoming.clear()
                text = f"connection reset by {self.local}"
                self._other._incoming.end(ConnectionResetError(errno.ECONNRESET, text))
            self.end(error)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._incoming.arm()

    def _is_between(self, one: str, other: str) -> bool:
        if self._other is None or self.local is None or self.peer is None:
            return False
        return (self.local.host, self.peer.host) in ((one, other), (other, one))

    def _pair(self, other: MemoryTransport, local: Address, peer: Address) -> None:
        """The connection exists; the handler is not notified yet."""
        self._other = other
        self.local, self.peer = local, peer
        self._incoming.attach(self._network._fabric.link(peer.host, local.host))

    def _open(self) -> None:
        """Tell the handler, and send what was written before."""
        if self._is_ended:
            return
        self._is_open = True
        early, self._early = self._early, []
        self.pending_bytes = 0
        if self._other is not None and early:
            self._other._incoming.send(b"".join(early))
        self.call_handler("connected")
        self._incoming.arm()

    def call_handler(self, method: str, *args: bytes) -> None:
        """Call the handler; its exception ends the connection."""
        if self._handler is None:
            return
        try:
            getattr(self._handler, method)(*args)
        except Exception as error:
            log.error("%r: closing the connection after an error in its handler", self, exc_info=error)
            self.abort(error)

    def may_receive(self) -> bool:
        """Whether the handler accepts bytes now."""
        return self._is_open and not self._is_paused

    def set_writers_pending(self, count: int) -> None:
        """The pipe towards us has so much above its window: to be reported to the writer."""
        writer = self._other
        if writer is None or writer._is_ended:
            return
        was, writer.pending_bytes = writer.pending_bytes, count
        if was and not count:
            writer._loop.call_soon(writer.call_handler, "writable")

    def end(self, error: BaseException | None) -> None:
        """End this side; the handler is called on the loop."""
        if self._is_ended:
            return
        self._is_ended = self.is_closing = True
        self.pending_bytes = 0
        self._network._fabric.transports.remove(self)
        self._incoming.shut()
        handler, self._handler = self._handler, None
        if handler is not None and self._loop.is_usable:
            self._loop.call_soon(handler.closed, error)


class MemoryListener(Listener):
    """A place in memory where connections are accepted."""

    def __init__(self, network: MemoryNetwork, address: Address, accept: Accept) -> None:
        self.address = address
        self.is_paused = False
        self._network = network
        self._accept = accept
        self._waiting: deque[tuple[MemoryTransport, MemoryTransport]] = deque()
        """Both ends of connections not accepted yet: the server's, the client's."""
        network._fabric.listeners[address.host, address.port] = self

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self._network.loop.call_soon(self._accept_waiting)

    def close(self) -> None:
        listeners = self._network._fabric.listeners
        if listeners.get((self.address.host, self.address.port)) is self:
            del listeners[self.address.host, self.address.port]
        while self._waiting:
            self._waiting.popleft()[0].abort()

    def queue(self, server: MemoryTransport, client: MemoryTransport) -> None:
        """A connection exists that is to be accepted later."""
        self._waiting.append((server, client))

    def _accept_waiting(self) -> None:
        while self._waiting and not self.is_paused:
            server, client = self._waiting.popleft()
            try:
                handler = self._accept(server)
            except Exception:
                log.exception("%s: rejected connection from %s after an error in accept()", self.address, server.peer)
                server.abort()
            else:
                self.serve(server, client, handler)

    def serve(self, server: MemoryTransport, client: MemoryTransport, handler: TransportHandler) -> None:
        """A connection was accepted."""
        if server.is_closing:
            client._incoming.end(PeerClosed(f"{self.address} closed the connection"))
            self._network.loop.call_soon(handler.closed, None)
            return
        server._handler = handler
        server._open()


class _MemoryConnector:
    """The attempts to reach one of several addresses, in order."""

    def __init__(
        self,
        fabric: _Fabric,
        source: str,
        transport: MemoryTransport,
        addresses: Sequence[Address],
        options: ConnectionOptions,
    ) -> None:
        self._fabric = fabric
        self._source = source
        self._transport = transport
        self._left = deque(addresses)
        self._timeout_s = options.connect_timeout_s
        self._errors: list[tuple[Address, OSError]] = []
        self._loop = transport._loop

    def try_next(self) -> None:
        if self._transport._is_ended:
            return
        if not self._left:
            self._transport.end(ConnectFailed(self._errors))
            return
        address = self._left.popleft()
        there = self._fabric.link(self._source, address.host)
        back = self._fabric.link(address.host, self._source)
        way_s, way_back_s = there.delay_of(0), back.delay_of(0)
        is_lost = there.is_held or there.is_lossy or back.is_held or back.is_lossy
        if is_lost or way_s + way_back_s > self._timeout_s:
            text = f"no connection within {self._timeout_s:g} s"
            error = TimeoutError(errno.ETIMEDOUT, text)
            self._loop.call_later(self._timeout_s, self._failed, address, error)
        else:
            self._loop.call_later(way_s, self._arrive, address, way_back_s)

    def _failed(self, address: Address, error: OSError) -> None:
        self._errors.append((address, error))
        self.try_next()

    def _arrive(self, address: Address, way_back_s: float) -> None:
        """At the server."""
        client = self._transport
        if client._is_ended:
            return
        listener = self._fabric.listeners.get((address.host, address.port))
        if listener is None:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
            self._loop.call_later(way_back_s, self._failed, address, refused)
            return
        server = MemoryTransport(listener._network, None)
        local = Address(FAMILY, (self._source, next(self._fabric.ports)))
        server.peer, server.local = local, address
        handler: TransportHandler | None = None
        if not listener.is_paused:
            try:
                handler = listener._accept(server)
            except Exception:
                log.exception("%s: rejected connection from %s after an error in accept()", address, local)
                server.end(None)
                reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
                self._loop.call_later(way_back_s, self._failed, address, reset)
                return
        # The client's connected() comes before any byte: equal instants run in the order of asking.
        self._loop.call_later(way_back_s, client._open)
        client._pair(server, local, address)
        server._pair(client, address, local)
        if handler is None:
            listener.queue(server, client)
        else:
            listener.serve(server, client, handler)

"""The broker on a network: connections in, requests to :class:`~kafka.broker.broker.Broker`, replies out.

One turn of the loop::

    readable connections -> ServerConnection -> Broker.handle ... -> (once, at the turn's end) Broker.tick

so that all requests that came together share one sync and one round of wake-ups. Runs over any
:class:`~kafka.net.transport.Network`: sockets, or memory in tests. It decides nothing about requests; limits are those
of Kafka: ``socket.request.max.bytes`` for a frame, and reading stops while a peer has sent far ahead of its answers or
takes none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kafka.broker.broker import Broker
from kafka.broker.reply import Connection, Reply
from kafka.core.serving import ServerConnection
from kafka.errors import KafkaProtocolError
from kafka.net.loop import LoopTimer
from kafka.net.transport import Address, Network, Transport, TransportHandler

log = logging.getLogger(__name__)

MAX_PENDING_BYTES = 8 << 20
"""Answers that a peer has not taken; with more, its next request waits."""

MAX_REQUESTS_PER_TURN = 64
"""Of one connection: a peer that sends thousands ahead does not keep the others waiting."""

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


class BrokerServer:
    """Serves ``broker`` at ``host``:``port`` (0: a free one) of ``network``. OSError when the address cannot be had.

    ``on_idle`` is called with the time (monotonic s) when the last connection has gone, and None when one came.
    """

    def __init__(
        self,
        broker: Broker,
        network: Network,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        on_idle: Callable[[float | None], object] = lambda since: None,
    ) -> None:
        self.broker = broker
        self.loop = network.loop
        self._on_idle = on_idle
        self._sessions: set[_Session] = set()
        self._timer: LoopTimer | None = None
        self._is_turn_ending = False
        self.is_closed = False
        self._listener = network.listen(host, port, self._accept)
        self.address: Address = self._listener.address
        """As bound."""
        broker.advertised = (None if host in WILDCARD_HOSTS else host, self.address.port)
        self.max_request_bytes = broker.config.number("socket.request.max.bytes")
        self.end_turn()

    @property
    def connection_count(self) -> int:
        """Connections that stand."""
        return len(self._sessions)

    def close(self) -> None:
        """Stop listening, end all connections. The broker stays, and is its owner's to close."""
        self.is_closed = True
        self._listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for session in list(self._sessions):
            session.transport.close()
            self.broker.disconnected(session.connection, self.loop.time())
        self._sessions.clear()

    def end_turn(self) -> None:
        """Let :meth:`Broker.tick` run when this turn's requests have been handled."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self.loop.call_soon(self._tick)

    def _tick(self) -> None:
        self._is_turn_ending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.is_closed:
            return
        clock = self.loop.clock
        self.broker.epoch_offset = clock.time() - clock.monotonic()
        deadline = self.broker.tick(self.loop.time())
        if deadline is not None:
            self._timer = self.loop.call_at(deadline, self._tick)

    def _accept(self, transport: Transport) -> _Session:
        session = _Session(self, transport)
        self._sessions.add(session)
        if len(self._sessions) == 1:
            self._on_idle(None)
        return session

    def _gone(self, session: _Session) -> None:
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self.broker.disconnected(session.connection, self.loop.time())
        self.end_turn()
        if not self._sessions:
            self._on_idle(self.loop.time())


class _Session(TransportHandler):
    """One client's connection."""

    def __init__(self, server: BrokerServer, transport: Transport) -> None:
        self.server = server
        self.transport = transport
        self.connection = Connection()
        self._machine = ServerConnection(server.max_request_bytes)
        self._is_paused = False
        self._is_going_on = False

    def connected(self) -> None:
        peer, local = self.transport.peer, self.transport.local
        if peer is not None:
            self.connection.host, self.connection.port = peer.host, peer.port
        if local is not None:
            self.connection.local_host = local.host

    def data_received(self, data: bytes) -> None:
        self._machine.receive(data)
        self._serve()

    def writable(self) -> None:
        self._serve()

    def closed(self, error: BaseException | None) -> None:
        self.server._gone(self)

    def _serve(self) -> None:
        """Handle requests until one waits, none is left, it is others' turn, or the peer does not take its answers."""
        server = self.server
        machine = self._machine
        transport = self.transport
        served = 0
        while not transport.is_closing and transport.pending_bytes < MAX_PENDING_BYTES:
            if served == MAX_REQUESTS_PER_TURN:
                self._go_on()
                break
            try:
                received = machine.next_request()
            except KafkaProtocolError as error:
                log.warning("%r: %s; the connection ends", self.connection, error)
                transport.close()
                break
            if received is None:
                break
            reply = server.broker.handle(self.connection, received, server.loop.time())
            served += 1
            if not reply.done:
                reply.on_done = self._answer_later
                break
            self._answer(reply)
        if served:
            server.end_turn()
        self._set_reading()

    def _answer(self, reply: Reply) -> None:
        if reply.hang_up:
            log.info("%r: hung up on %s", self.connection, self._machine.in_hand)
            self.transport.close()
            return
        asked = self._machine.in_hand
        try:
            chunks = self._machine.answer(reply.response, reply.version)
        except Exception:
            log.exception("%r: the answer to %s cannot be put into bytes; the connection ends", self.connection, asked)
            self.transport.close()
            return
        if chunks:
            self.transport.write(chunks)

    def _answer_later(self, reply: Reply) -> None:
        if self.transport.is_closing:
            return
        self._answer(reply)
        self._go_on()

    def _go_on(self) -> None:
        if not self._is_going_on:
            self._is_going_on = True
            self.server.loop.call_soon(self._serve_again)

    def _serve_again(self) -> None:
        self._is_going_on = False
        self._serve()

    def _set_reading(self) -> None:
        wants = self._machine.wants_bytes
        if wants == self._is_paused and not self.transport.is_closing:
            self._is_paused = not wants
            if wants:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

"""The broker on a network: connections in, requests to :class:`~kafka.broker.broker.Broker`, responses out.

One turn of the loop::

    readable connections -> ServerConnection -> Broker.handle ... -> (once, at the turn's end) Broker.tick

so that all requests of a turn share one flush and one round of notifications. Runs over any
:class:`~kafka.net.transport.Network`: sockets, or memory in tests. Limits are Kafka's: ``socket.request.max.bytes`` for
a frame (and ``wire.codec.MAX_ELEMENTS``, which Kafka does not have), and reading stops while a peer has sent far ahead
of its responses or does not read them. A slow reader holds at most :data:`MAX_PENDING_BYTES` and one response
(``fetch.max.bytes``) in memory; all together :data:`MAX_ALL_PENDING_BYTES` and a response of one batch each.
:class:`ConnectionQuotas` limits the number of connections. On listeners with SASL a connection that is not
authenticated is closed :data:`AUTHENTICATION_TIMEOUT_S` after it was accepted, whatever it sends.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from kafka.broker.broker import Broker
from kafka.broker.listeners import ListenerSpec, plaintext
from kafka.broker.responses import ConnectionContext, PendingResponse
from kafka.core.serving import ServerConnection
from kafka.errors import KafkaProtocolError
from kafka.net.loop import DeadlineTimer, LoopTimer
from kafka.net.transport import Address, Listener, Network, Transport, TransportHandler
from kafka.protocol.framing import ReceivedRequest, UnknownRequest

log = logging.getLogger(__name__)

MAX_PENDING_BYTES = 8 << 20
"""Unread responses of a peer; with more, its next request waits."""

MAX_ALL_PENDING_BYTES = 256 << 20
"""The same of all peers together; with more, fetches get one batch at a time, whatever they ask for."""

MAX_REQUESTS_PER_TURN = 64
"""Of one connection, so that a peer that sends thousands of requests ahead does not delay the others."""

AUTHENTICATION_TIMEOUT_S = 10.0
"""From the accept on, with the TLS handshake."""

FULL_QUIET_S = 60.0
"""How long the warning about the limit of connections is not repeated."""

EXPENSIVE_S = 0.02
EXPENSIVE_FOR_S = 1.0
LARGE_BYTES = 64 << 10
"""A connection whose request took longer than ``EXPENSIVE_S`` counts as expensive for ``EXPENSIVE_FOR_S``, as does
one whose next request is larger than ``LARGE_BYTES``. Of all expensive connections the loop handles one request in a
turn, so no other client waits for more than one such request, also when a client makes a new connection for each."""

PER_IP: Final = "max.connections.per.ip"
ALL: Final = "max.connections"

WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


class BrokerServer:
    """Serves ``broker`` at ``host``:``port`` (0: a free one) of ``network``, or at ``listeners``. OSError when an
    address cannot be had.

    ``on_idle`` is called with the time (monotonic s) when the last connection has gone, and None when one came.
    ``max_connections``: how many the process has descriptors for, whatever the settings say; None: any number.
    """

    def __init__(
        self,
        broker: Broker,
        network: Network,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        on_idle: Callable[[float | None], object] = lambda since: None,
        listeners: Sequence[ListenerSpec] | None = None,
        max_connections: int | None = None,
    ) -> None:
        self.broker = broker
        self.loop = network.loop
        self._on_idle = on_idle
        self._sessions: set[_Session] = set()
        # Connections with responses that the socket has not taken yet.
        self._slow: set[_Session] = set()
        self._quotas = ConnectionQuotas(broker.config.number, max_connections)
        self._is_accepting = True
        self._is_quiet_until = -inf
        """The log has just heard that nothing is accepted (monotonic s)."""
        self._strangers: dict[_Session, float] = {}
        """Connections that are not authenticated and have to be, and when they end, the next one first."""
        self._stranger_alarm = DeadlineTimer(self.loop, self._end_strangers)
        self._tick_alarm = DeadlineTimer(self.loop, self.tick)
        self._heard_from: dict[_Session, float] = {}
        """When each connection has last sent something, the longest ago first."""
        self._idle_timer: LoopTimer | None = None
        self._expensive: dict[_Session, None] = {}
        """Expensive connections with requests to handle, in the order of their turns."""
        self._is_expensive_turn_due = False
        self._is_turn_ending = False
        self.is_closed = False
        self.is_refusing = False
        """New connections are ended as soon as they stand."""
        self.max_request_bytes = broker.config.number("socket.request.max.bytes")
        self.max_idle_s = broker.config.number("connections.max.idle.ms") / 1000
        """Below 0: connections may be idle for ever."""
        self.listeners = list(listeners or [plaintext(host, port)])
        self._listening: dict[str, Listener] = {}
        """By name."""
        try:
            for spec in self.listeners:
                self._listening[spec.name] = self._listen(network, spec)
        except BaseException:
            self._stop_listening()
            raise
        self.main_listener = next((spec for spec in self.listeners if spec.protocol == "PLAINTEXT"), self.listeners[0])
        """The listener whose address is advertised: PLAINTEXT if there is one."""
        self.address: Address = self._listening[self.main_listener.name].address
        """As bound, of the main listener."""
        broker.attach_server(broker.advertised_on[self.main_listener.name], self.response_room)
        self._set_accepting()
        self.end_turn()

    def response_room(self) -> int:
        """How many bytes of responses may be made while peers do not read theirs."""
        return MAX_ALL_PENDING_BYTES - sum(session.transport.pending_bytes for session in self._slow)

    def refuse_connections(self, refuse: bool) -> None:
        """Close new connections at once, as long as ``refuse``."""
        self.is_refusing = refuse

    @property
    def connection_count(self) -> int:
        """Connections that stand."""
        return len(self._sessions)

    def close(self) -> None:
        """Stop listening, end all connections. The broker stays, and is its owner's to close."""
        self.is_closed = True
        self._stop_listening()
        self._tick_alarm.set(inf)
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._stranger_alarm.set(inf)
        for session in list(self._sessions):
            session.transport.close()
            self.broker.disconnected(session.connection, self.loop.time())
        self._sessions.clear()

    def serve_in_turn(self, session: _Session) -> None:
        """Handle one request of an expensive connection after one of each that came before it."""
        self._expensive[session] = None
        self._schedule_expensive()

    def _schedule_expensive(self) -> None:
        if self._expensive and not self._is_expensive_turn_due:
            self._is_expensive_turn_due = True
            self.loop.call_soon(self._serve_expensive)

    def _serve_expensive(self) -> None:
        self._is_expensive_turn_due = False
        if self._expensive:
            session = next(iter(self._expensive))
            del self._expensive[session]
            session.serve(1)
        self._schedule_expensive()

    def end_turn(self) -> None:
        """Let :meth:`Broker.tick` run when this turn's requests have been handled."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self.loop.call_soon(self.tick)

    def tick(self) -> float | None:
        """Tick the broker, and schedule the next tick at its deadline, which is also the result."""
        self._is_turn_ending = False
        if self.is_closed:
            return None
        clock = self.loop.clock
        self.broker.set_epoch_offset(clock.time() - clock.monotonic())
        deadline = self.broker.tick(self.loop.time())
        self._set_accepting()
        self._tick_alarm.set(inf if deadline is None else deadline)
        return deadline

    def disconnect_all(self) -> int:
        """End all connections that stand, as a machine does that goes down; how many there were."""
        sessions = list(self._sessions)
        for session in sessions:
            session.transport.abort()
        return len(sessions)

    @property
    def addresses(self) -> dict[str, Address]:
        """Where each listener listens, by name."""
        return {name: listening.address for name, listening in self._listening.items()}

    def _listen(self, network: Network, spec: ListenerSpec) -> Listener:
        if spec.tls is not None:
            from kafka.net.tls import TlsNetwork

            network = TlsNetwork(network, spec.tls)
        listening = network.listen(spec.host, spec.port, lambda transport: self._accept(spec, transport))
        host = None if spec.host in WILDCARD_HOSTS else spec.host
        told: tuple[str | None, int] = spec.advertised or (host, 0)
        self.broker.advertised_on[spec.name] = (told[0], told[1] or listening.address.port)
        return listening

    def _stop_listening(self) -> None:
        for listening in self._listening.values():
            listening.close()

    def _accept(self, spec: ListenerSpec, transport: Transport) -> _Session:
        session = _Session(self, spec, transport)
        if self.is_refusing:
            transport.abort()
            return session
        host = transport.peer.host if transport.peer is not None else ""
        if self._quotas.add(session, host):
            self._admit(session)
            self._set_accepting()
        else:
            limit = self.broker.config.number(PER_IP)
            log.warning("rejected connection from %s: %s (%d) reached", host, PER_IP, limit)
            transport.abort()
        return session

    def _admit(self, session: _Session) -> None:
        self._sessions.add(session)
        self._heard(session)
        if session.is_unauthenticated:
            self._strangers[session] = self.loop.time() + AUTHENTICATION_TIMEOUT_S
            self._stranger_alarm.set(next(iter(self._strangers.values())))
        if len(self._sessions) == 1:
            self._on_idle(None)

    def _set_accepting(self) -> None:
        """Accept connections while there is a place for one."""
        has_place = self._quotas.has_room
        if has_place == self._is_accepting:
            return
        self._is_accepting = has_place
        for listening in self._listening.values():
            if has_place:
                listening.resume()
            else:
                listening.pause()
        if not has_place and self.loop.time() >= self._is_quiet_until:
            self._is_quiet_until = self.loop.time() + FULL_QUIET_S
            allowed, most = self.broker.config.number(ALL), self._quotas.limit
            why = f"{ALL} ({allowed})" if most == allowed else f"what the limit of open files leaves for them ({most})"
            log.warning("new connections wait until others close: %s reached", why)

    def authenticated(self, session: _Session) -> None:
        """A connection has authenticated."""
        self._strangers.pop(session, None)

    def _end_strangers(self) -> None:
        """End those who had their time to say who they are."""
        now = self.loop.time()
        while self._strangers:
            session, ends_at = next(iter(self._strangers.items()))
            if ends_at > now:
                self._stranger_alarm.set(ends_at)
                break
            del self._strangers[session]
            log.warning(
                "closed the connection from %s to listener %s: not authenticated within %g s",
                session.transport.peer, session.connection.listener, AUTHENTICATION_TIMEOUT_S,
            )  # fmt: skip
            session.transport.abort()

    def _heard(self, session: _Session) -> None:
        """A connection is in use."""
        self._heard_from.pop(session, None)
        self._heard_from[session] = self.loop.time()
        if self._idle_timer is None and self.max_idle_s >= 0:
            self._idle_timer = self.loop.call_later(self.max_idle_s, self._end_idle)

    def _end_idle(self) -> None:
        """End the connections without a request for ``connections.max.idle.ms``: so clients keep none for ever, whether
        they have authenticated or not."""
        self._idle_timer = None
        now = self.loop.time()
        while self._heard_from:
            session, heard_at = next(iter(self._heard_from.items()))
            if heard_at + self.max_idle_s > now:
                self._idle_timer = self.loop.call_at(heard_at + self.max_idle_s, self._end_idle)
                break
            if session.is_waiting:
                self._heard(session)
            else:
                log.info("%r: closed the connection: idle for %g s", session.connection, self.max_idle_s)
                del self._heard_from[session]
                if session.transport.pending_bytes:  # it does not take its answers either
                    session.transport.abort()
                else:
                    session.transport.close()

    def _gone(self, session: _Session) -> None:
        self._quotas.remove(session)
        self._heard_from.pop(session, None)
        self._strangers.pop(session, None)
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._slow.discard(session)
        self._expensive.pop(session, None)
        self.broker.disconnected(session.connection, self.loop.time())
        self.end_turn()
        if not self._sessions:
            self._on_idle(self.loop.time())


class _Session(TransportHandler):
    """One client's connection."""

    def __init__(self, server: BrokerServer, spec: ListenerSpec, transport: Transport) -> None:
        self.server = server
        self.transport = transport
        max_bytes = server.max_request_bytes
        sasl = None
        if spec.sasl is not None:
            sasl = server.broker.credentials.authentication(spec.sasl)
            max_bytes = min(max_bytes, spec.sasl.max_receive_bytes)
        self.connection = ConnectionContext(listener=spec.name, sasl=sasl)
        self.is_unauthenticated = spec.sasl is not None
        """Not authenticated yet: its frames have a lower limit."""
        self._machine = ServerConnection(max_bytes, decode=server.broker.release.decode)
        self._is_paused = False
        self._is_resumed = False
        self._expensive_until = 0.0

    def connected(self) -> None:
        peer, local = self.transport.peer, self.transport.local
        self.connection.set_addresses(
            None if peer is None else (peer.host, peer.port), None if local is None else local.host
        )

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the connection has no response yet."""
        return self._machine.in_hand is not None

    def data_received(self, data: bytes) -> None:
        self.server._heard(self)
        self._machine.receive(data)
        self._serve()

    def writable(self) -> None:
        self.server._slow.discard(self)
        self.server._heard(self)
        self._serve()

    def closed(self, error: BaseException | None) -> None:
        self.server._gone(self)

    def _serve(self) -> None:
        """Handle the received requests now, or, of an expensive connection, in its turn."""
        if self._is_expensive(self.server.loop.clock.monotonic()):
            self.server.serve_in_turn(self)
            self._set_reading()
        else:
            self.serve(MAX_REQUESTS_PER_TURN)

    def _is_expensive(self, now: float) -> bool:
        return now < self._expensive_until or self._machine.next_bytes > LARGE_BYTES

    def serve(self, most: int) -> None:
        """Handle requests until one is delayed, the connection is expensive, ``most`` were handled, none is left, or
        the peer does not read its responses."""
        server = self.server
        transport = self.transport
        now = server.loop.clock.monotonic
        served = 0
        began = now()
        while not transport.is_closing and transport.pending_bytes < MAX_PENDING_BYTES:
            if served and (served == most or self._is_expensive(began)):
                self._resume_soon()
                break
            try:
                reply = self._next_reply()
            except KafkaProtocolError as error:
                log.warning("%r: %s; closing the connection", self.connection, error)
                transport.close()
                break
            if reply is None:
                break
            served += 1
            if reply.done:
                self._answer(reply)
            else:
                reply.call_when_done(self._answer_later)
            ended = now()
            if ended - began > EXPENSIVE_S:
                self._expensive_until = ended + EXPENSIVE_FOR_S
            began = ended
            if not reply.done:
                break
        if served:
            server.end_turn()
        self._set_reading()

    def _next_reply(self) -> PendingResponse | None:
        """The response to the next request or SASL token; None when there is none."""
        broker, connection, now = self.server.broker, self.connection, self.server.loop.time()
        sasl = connection.sasl
        if sasl is not None:
            if self.is_unauthenticated and sasl.user is not None:
                self.is_unauthenticated = False
                self.server.authenticated(self)
                self._machine.limit_requests(self.server.max_request_bytes)
            if sasl.takes_tokens:
                token = self._machine.next_frame()
                return None if token is None else broker.handle_token(connection, token, now)
        received = self._machine.next_request()
        return None if received is None else broker.handle(connection, received, now)

    def _answer(self, reply: PendingResponse) -> None:
        """Write a complete response, or close the connection instead."""
        if reply.hang_up:
            log.info(
                "%r: closed the connection instead of answering %s", self.connection, _shown(self._machine.in_hand)
            )
            if reply.after_send is not None:
                reply.after_send(self.transport)
            self.transport.close()
            return
        asked = self._machine.in_hand
        try:
            if reply.token is not None:
                chunks = self._machine.answer_frame(reply.token)
            else:
                chunks = self._machine.answer(reply.response, reply.version)
        except Exception:
            shown = _shown(asked)
            log.exception("%r: cannot encode the response to %s; closing the connection", self.connection, shown)
            self.transport.close()
            return
        if reply.transform is not None:
            chunks = reply.transform(chunks)
        if chunks:
            self.transport.write(chunks)
            if self.transport.pending_bytes:
                self.server._slow.add(self)
        if reply.after_send is not None:
            reply.after_send(self.transport)

    def _answer_later(self, reply: PendingResponse) -> None:
        if self.transport.is_closing:
            return
        self._answer(reply)
        self._resume_soon()

    def _resume_soon(self) -> None:
        if not self._is_resumed:
            self._is_resumed = True
            self.server.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._is_resumed = False
        self._serve()

    def _set_reading(self) -> None:
        wants = self._machine.wants_bytes
        if wants == self._is_paused and not self.transport.is_closing:
            self._is_paused = not wants
            if wants:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()


def _shown(received: ReceivedRequest | UnknownRequest | None) -> str:
    """A request for the log, without its content, which may be long or secret."""
    if isinstance(received, ReceivedRequest):
        return f"{type(received.request).__name__} v{received.version} of {received.client_id!r}"
    return "a token" if received is None or received.api_key < 0 else f"API {received.api_key} v{received.api_version}"


class ConnectionQuotas:
    """The limits on connections: per address (``max.connections.per.ip``), and in all (``max.connections``, or the
    limit of open files, if that is less).

    A connection above the address's limit is closed. At the limit for all, none is accepted: new ones wait in the
    system's queue and take no descriptor, as in Apache Kafka 4.3.0 (measured). Decides only;
    :class:`BrokerServer` accepts and closes connections. ``limit`` returns a setting's current value, which may change
    at any time. ``capacity``: how many connections the process has descriptors for; None: any number.
    """

    def __init__(self, limit: Callable[[str], int], capacity: int | None = None) -> None:
        self._limit = limit
        self._capacity = capacity
        self._hosts: dict[_Session, str] = {}
        self._count_of: Counter[str] = Counter()

    def add(self, session: _Session, host: str) -> bool:
        """Count a new connection; False when it is above its address's limit."""
        if self._count_of[host] >= self._limit(PER_IP):
            return False
        self._hosts[session] = host
        self._count_of[host] += 1
        return True

    def remove(self, session: _Session) -> None:
        """A connection has ended, counted or not."""
        host = self._hosts.pop(session, None)
        if host is not None:
            self._count_of[host] -= 1
            if not self._count_of[host]:
                del self._count_of[host]

    @property
    def limit(self) -> int:
        """The limit on all connections."""
        limit = self._limit(ALL)
        return limit if self._capacity is None else min(limit, self._capacity)

    @property
    def has_room(self) -> bool:
        """Whether another connection can be accepted."""
        return len(self._hosts) < self.limit

"""One connection to one node: connecting, sending in turn, deadlines, back-off.

:class:`BrokerConnection` drives the machine of ``core/connection.py`` over a transport of ``net``, which is in a
:class:`TransportSlot`. States: ``CONNECTION_STATES`` in ``core/states.py``. The choice of the node is ``router.py``'s,
and retries are the callers': every request handed to :meth:`BrokerConnection.submit` completes its future once, with
the response or with the error. ``handshake.py`` has what lies between a new transport and the first request, and the
renewal of SASL sessions.

    submit() --not ready, or max_in_flight reached--> waiting --ready, and room--> in flight --response--> done
       waiting, deadline passes:    that request fails (KafkaTimeoutError), the connection stays
       in flight, deadline passes:  that request fails (RequestTimedOutError), the connection is closed, and with it
                                    all others fail (KafkaConnectionError): a broker answers in order, so a late
                                    response could not be told from the next one's

A response with ``throttle_time_ms`` mutes the connection for that time: requests wait, since the broker does not read
the connection until then (KIP-219).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from kafka._version import __version__
from kafka.client.handshake import Handshake, ListenerProbe, SaslAuthentication, SaslSession
from kafka.client.security import PLAINTEXT, ClientSecurity
from kafka.core.authentication import Authenticated, Authenticating
from kafka.core.connection import Answer, ApiRanges, ByVersion, ClientConnection, expects_answer
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.states import CONNECTION_STATES, ConnectionState, States
from kafka.core.versions import API_VERSIONS_KEY, NegotiatedVersions, VersionsDialogue
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    RequestTimedOutError,
    SslAuthenticationError,
    UnknownBrokerIdError,
)
from kafka.future import Future
from kafka.net.loop import Loop, LoopTimer
from kafka.net.transport import (
    Address,
    ConnectionOptions,
    Network,
    PeerClosed,
    TlsCutOff,
    TlsError,
    Transport,
    TransportHandler,
)
from kafka.protocol.fetch import FetchRequest
from kafka.protocol.groups import JoinGroupRequest
from kafka.protocol.registry import NAMES
from kafka.protocol.share import ShareFetchRequest
from kafka.wire.frame import ReceiveBuffers
from kafka.wire.message import Request, Response
from kafka.wire.types import BytesLike

# -- Requests ----------------------------------------------------------------------------------------------------------
# Requests handed to a connection: :class:`PendingRequest`, the queues of those not in flight, and who counts them.
#
# What is in flight belongs to the machine of ``core/connection.py``.


class PendingRequest:
    """One request of a caller, and the future of its response."""

    __slots__ = (
        *("deadline", "depends_on", "depends_on_node", "future", "is_internal", "max_version", "min_version"),
        *("request", "sent_at", "timeout_s"),
    )

    def __init__(
        self,
        request: Request[Any] | ByVersion[Any],
        deadline: float,
        timeout_s: float,
        min_version: int | None = None,
        max_version: int | None = None,
        is_internal: bool = False,
    ) -> None:
        self.request = request
        self.future: Future[Any] = Future()
        self.deadline = deadline
        self.timeout_s = timeout_s
        self.min_version = min_version
        self.max_version = max_version
        self.is_internal = is_internal
        self.depends_on = request.depends_on if isinstance(request, ByVersion) else None
        self.depends_on_node: NodeId | None = None
        """Where that was when this was handed over, if it was known."""
        self.sent_at = 0.0
        """The monotonic instant at which it was sent; 0 unless a :class:`TrafficCounters` sets it."""

    def mark_sent(self, now: float) -> None:
        self.sent_at = now

    def extend_deadline(self, seconds: float) -> None:
        self.deadline += seconds

    @property
    def held_s(self) -> float:
        """For how long the broker may keep the answer by the request's own wish (:data:`HELD_MS`)."""
        attribute = HELD_MS.get(type(self.request))
        return 0.0 if attribute is None else min(max(getattr(self.request, attribute), 0) / 1000, MOST_HELD_S)

    @property
    def api(self) -> str:
        """The API's name, for logs and errors."""
        request = self.request
        key = request.request_type.api_key if isinstance(request, ByVersion) else request.api_key
        return NAMES.get(key, str(key))


class TrafficCounters(Protocol):
    """Counts requests for metrics (``metrics.py``, ``producer/metrics.py``). Called for each request: keep it cheap."""

    def sent(self, connection: BrokerConnection, pending: PendingRequest, size_bytes: int) -> None:
        """It is handed to the transport; an implementation that measures latencies calls ``pending.mark_sent``."""
        ...

    def answered(self, connection: BrokerConnection, pending: PendingRequest, response: Response) -> None:
        """Its response has come; the future is completed afterwards."""
        ...


def fail_all(requests: list[PendingRequest], error: BaseException) -> None:
    """Fail the requests that are not done yet."""
    for pending in requests:
        if not pending.future.is_done:
            pending.future.failure(error if isinstance(error, KafkaError) else KafkaConnectionError(str(error)))


class WriteQueue:
    """The requests of one connection that are not in flight.

    ``waiting``: to be sent, in order. ``unwritten``: acks=0, written and not yet taken by the operating system.
    """

    __slots__ = ("unwritten", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[PendingRequest] = deque()
        self.unwritten: list[PendingRequest] = []

    def next_deadline(self) -> float:
        """The earliest of all; infinity when empty."""
        if not self.waiting and not self.unwritten:
            return inf
        return min(pending.deadline for pending in (*self.waiting, *self.unwritten))

    def overdue_unwritten(self, now: float) -> list[PendingRequest]:
        """Those that should have been written by now; they stay in the queue."""
        return [pending for pending in self.unwritten if pending.deadline <= now]

    def extend_deadlines(self, seconds: float) -> None:
        """Give the unwritten requests so much more time, and not the waiting ones."""
        for pending in self.unwritten:
            pending.extend_deadline(seconds)

    def take_overdue_waiting(self, now: float) -> list[PendingRequest]:
        """Remove and return those that should have been sent by now."""
        overdue = [pending for pending in self.waiting if pending.deadline <= now]
        if overdue:
            left = [pending for pending in self.waiting if pending.deadline > now]
            self.waiting.clear()  # the same deque: BrokerConnection._send_waiting holds it
            self.waiting.extend(left)
        return overdue

    def take_unwritten(self) -> list[PendingRequest]:
        """Remove and return the unwritten ones."""
        taken, self.unwritten = self.unwritten, []
        return taken

    def take_all(self) -> list[PendingRequest]:
        """Remove and return all, the oldest first."""
        taken = [*self.take_unwritten(), *self.waiting]
        self.waiting.clear()
        return taken


log = logging.getLogger(__name__)

DELAY_CONNECTED_MS = 999_999_999
"""What ``connection_delay`` says of a connected node: there is nothing to wait for."""

SILENCE_S: Final = 2.0
"""A node is silent when it has not sent a byte for so long while a request waits. It may be frozen, or cut off without
a word: what it leads is led by others then, long before the request times out."""

HELD_MS: Final[Mapping[type, str]] = {
    FetchRequest: "max_wait_ms",
    ShareFetchRequest: "max_wait_ms",
    JoinGroupRequest: "rebalance_timeout_ms",
}
"""Requests whose answer may take long by their own wish: the field that says how long at most."""

MOST_HELD_S: Final = 10.0
"""A frozen coordinator must not be waited for as long as a rebalance may last."""

FIRST_API_VERSIONS_OF_KIP_219 = 2
"""From this version of ApiVersions on (2.0), brokers answer first and are quiet afterwards."""

SOFTWARE = ("kafka-taskloop", __version__)
"""``client_software_name`` and ``client_software_version`` by default (KIP-511)."""

BOOTSTRAP = "bootstrap"
"""The node id of a server whose real id is not known."""


@dataclass(frozen=True)
class ConnectionSettings:
    """The settings of connections, in seconds and bytes."""

    client_id: str
    request_timeout_s: float
    api_versions_timeout_s: float
    reconnect_backoff_s: float
    reconnect_backoff_max_s: float
    max_in_flight: int
    max_idle_s: float
    receive_max_bytes: int
    connect_timeout_max_s: float
    """What ``options.connect_timeout_s`` grows to with failures in a row (KIP-601)."""
    software: tuple[str, str]
    """Name and version, sent to the broker (KIP-511)."""
    options: ConnectionOptions
    security: ClientSecurity = PLAINTEXT
    buffers: ReceiveBuffers = field(default_factory=ReceiveBuffers)
    """For large answers, shared by the client's connections."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], client_id: str) -> ConnectionSettings:
        """From the resolved settings of a client."""
        return cls(
            client_id=client_id,
            request_timeout_s=settings["request_timeout_ms"] / 1000,
            api_versions_timeout_s=settings["api_version_auto_timeout_ms"] / 1000,
            reconnect_backoff_s=settings["reconnect_backoff_ms"] / 1000,
            reconnect_backoff_max_s=settings["reconnect_backoff_max_ms"] / 1000,
            max_in_flight=settings["max_in_flight_requests_per_connection"],
            max_idle_s=settings["connections_max_idle_ms"] / 1000,
            receive_max_bytes=settings["receive_message_max_bytes"],
            connect_timeout_max_s=settings["socket_connection_setup_timeout_max_ms"] / 1000,
            software=(
                settings["client_software_name"] or SOFTWARE[0],
                settings["client_software_version"] or SOFTWARE[1],
            ),
            security=ClientSecurity.of(settings),
            options=ConnectionOptions(
                connect_timeout_s=settings["socket_connection_setup_timeout_ms"] / 1000,
                receive_buffer_bytes=settings["receive_buffer_bytes"],
                send_buffer_bytes=settings["send_buffer_bytes"],
                more=settings["socket_options"] or (),
            ),
        )


class ConnectionOwner(Protocol):
    """Whom a connection belongs to: ``router.py``, ``bootstrap.py``, ``check_version.py``."""

    def address_of(self, node_id: NodeId) -> tuple[str, int] | None:
        """Host and port, as known now."""
        ...

    def versions_dialogue(self) -> VersionsDialogue | NegotiatedVersions:
        """How a new connection finds out the broker's versions, or these where they are known."""
        ...

    def on_ready(self, connection: BrokerConnection, negotiated: NegotiatedVersions) -> None:
        """It may be used."""
        ...

    def on_lost(self, connection: BrokerConnection, error: BaseException) -> None:
        """It was lost, or could not be made; not called for :meth:`BrokerConnection.close`."""
        ...

    def on_idle_closed(self, connection: BrokerConnection, error: BaseException) -> None:
        """It was closed after ``connections_max_idle_ms`` without a request, which is no failure."""
        ...

    def on_unreachable(self, connection: BrokerConnection) -> None:
        """Requests wait for it, and the last attempt to connect has failed."""
        ...

    def on_silent(self, connection: BrokerConnection) -> None:
        """A request has had no answer for :data:`SILENCE_S`, and for as long as it lets the broker wait; called again
        each :data:`SILENCE_S`. The owner may :meth:`BrokerConnection.give_up` the connection."""
        ...

    def on_answer(self, pending: PendingRequest, response: Response) -> None:
        """A response has come; the future is completed afterwards."""
        ...


class BrokerConnection:
    """A connection to ``node_id``, which connects when it is needed and connects again after a failure.

    ``lane``: None for the node's common connection, or the name of one of its own. ``failures``: how often in a row
    the node was tried in vain before: the next attempt begins with another of its addresses.
    """

    def __init__(
        self,
        node_id: NodeId,
        network: Network,
        settings: ConnectionSettings,
        owner: ConnectionOwner,
        rng: Rng,
        lane: str | None = None,
        failures: int = 0,
    ) -> None:
        self.node_id = node_id
        self.lane = lane
        self.ranges: ApiRanges | None = None
        """The API versions of the node; known from the first handshake on."""
        self.failures = failures
        """Failures in a row; 0 once it was ready."""
        self.retry_at = 0.0
        """No attempt to connect before this monotonic instant."""
        self.last_error: BaseException | None = None
        self._loop: Loop = network.loop
        self._settings = settings
        self._owner = owner
        self._backoff = Backoff(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, rng)
        self._states: States[ConnectionState] = States(
            CONNECTION_STATES, ConnectionState.DISCONNECTED, f"connection to {node_id}"
        )
        self._slot = TransportSlot(self, network, settings, rng)
        self._machine = ClientConnection(settings.client_id)
        self._handshake = Handshake(self, settings, self._loop, owner.versions_dialogue)
        self._session = SaslSession(self, settings.security, self._loop, rng)
        self._write_queue = WriteQueue()
        self._used_at = 0.0
        self._heard_at = 0.0
        self._waits_since = 0.0  # since when there is something to answer
        self._checked_at = 0.0  # whether it is silent
        self._silent_at = 0.0  # when it was found last
        self.bytes_received = 0
        """Since the start, for metrics, without the handshakes."""
        self._traffic: tuple[TrafficCounters, ...] = ()
        self._held_writes: list[BytesLike] | None = None
        """While responses are handed out: what is written after that."""
        self._muted_until = 0.0  # 0 while it is not throttled
        self._connect_attempts = 0
        self._timer: LoopTimer | None = None
        self._timer_at = inf

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.name} {self.state.value} in_flight={len(self._machine.in_flight)}>"

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """"node 1 (host:9092)", for logs and errors."""
        where = self._slot.where or self._owner.address_of(self.node_id)
        node = "bootstrap server" if self.node_id == BOOTSTRAP else f"node {self.node_id}"
        return node if where is None else f"{node} ({where[0]}:{where[1]})"

    # -- what it is doing ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> ConnectionState:
        return self._states.now

    def connected(self) -> bool:
        """Whether requests may be sent."""
        return self._states.now is ConnectionState.READY

    def connecting(self) -> bool:
        """Whether it is connecting, or in its handshake."""
        return self._states.now in (
            ConnectionState.CONNECTING,
            ConnectionState.AUTHENTICATING,
            ConnectionState.CHECKING_API_VERSIONS,
        )

    def disconnected(self) -> bool:
        """Neither connected nor connecting."""
        return self._states.now in (ConnectionState.DISCONNECTED, ConnectionState.CLOSED)

    def blacked_out(self) -> bool:
        """Whether it failed and its back-off is not over."""
        return self._states.now is ConnectionState.DISCONNECTED and self._loop.time() < self.retry_at

    def connection_delay(self) -> float:
        """Milliseconds until it makes sense to try: what is left of the back-off, 0, or 999999999 when connected."""
        if self.connected():
            return DELAY_CONNECTED_MS
        return max((self.retry_at - self._loop.time()) * 1000, 0.0) if self.disconnected() else 0.0

    def silent_s(self) -> float:
        """For how long a request has waited while the node has not sent a byte; 0 when none waits or it throttles."""
        if not self.in_flight_count or self._muted_until or self.disconnected():
            return 0.0
        if self._session.is_held and not self._machine.in_flight:
            return 0.0  # it waits for a token, not for the node
        return max(self._loop.time() - max(self._heard_at, self._waits_since), 0.0)

    def is_unreachable(self) -> bool:
        """Whether requests wait for it, and the last attempt to connect has failed."""
        return bool(self._write_queue.waiting) and not self.connected() and self.last_error is not None

    def is_silent(self) -> bool:
        """Whether that was found to be :data:`SILENCE_S` or more, and more than a request wants to be held, and nothing
        has come since."""
        return self._silent_at > self._loop.time() - self.silent_s()

    def can_send_more(self) -> bool:
        """Connected, with less than ``max_in_flight_requests_per_connection`` requests in flight."""
        return (
            self._states.now is ConnectionState.READY
            and not self._write_queue.waiting
            and not self._muted_until
            and not self._session.is_held
            and len(self._machine.in_flight) < self._settings.max_in_flight
        )

    @property
    def muted_until(self) -> float:
        """Until when the broker wants no requests (KIP-219), a monotonic instant; 0 while it takes them."""
        return self._muted_until

    @property
    def in_flight_count(self) -> int:
        """Requests that were sent or wait to be sent."""
        return len(self._machine.in_flight) + len(self._write_queue.waiting)

    def count_traffic(self, traffic: tuple[TrafficCounters, ...]) -> None:
        """Report requests to these from now on, and to no others."""
        self._traffic = traffic

    # -- sending -------------------------------------------------------------------------------------------------------

    def submit(self, pending: PendingRequest) -> None:
        """Send it, now or as soon as the connection is ready and has room; connects when needed."""
        state = self._states.now
        if state is ConnectionState.CLOSED:
            pending.future.failure(IllegalStateError(f"{self.name}: the connection was closed"))
            return
        when = pending.deadline
        if not self.in_flight_count:  # else the timer is set to check already
            self._waits_since = self._loop.time()
            when = min(when, self._waits_since + SILENCE_S)
        if when < self._timer_at:
            self._arm(when)
        if self.can_send_more():
            self._send(pending)
            return
        if (
            state is ConnectionState.DISCONNECTED
            and isinstance(self.last_error, AuthenticationError)
            and self.blacked_out()
        ):
            pending.future.failure(self.last_error)  # tried just before: another attempt would fail in the same way
            return
        self._write_queue.waiting.append(pending)
        if state is ConnectionState.DISCONNECTED:
            self.connect()
            if self.is_unreachable():
                self._owner.on_unreachable(self)

    def connect(self) -> None:
        """Begin to connect, unless it is done or under way; in back-off, when that is over."""
        if self._states.now is not ConnectionState.DISCONNECTED:
            return
        now = self._loop.time()
        if now < self.retry_at:
            if self.retry_at < self._timer_at:
                self._arm(self.retry_at)
            return
        self._states.enter(ConnectionState.CONNECTING)
        self._connect_transport()

    def on_metadata_updated(self) -> None:
        """End the back-off when the node's address has changed: the failures were the former address's."""
        if self._states.now is not ConnectionState.DISCONNECTED or self._slot.where in (
            None,
            self._owner.address_of(self.node_id),
        ):
            return
        self.failures, self.retry_at = 0, 0.0
        if self._write_queue.waiting:
            self.connect()

    def _send(self, pending: PendingRequest) -> None:
        ranges, transport = self.ranges, self._slot.transport
        assert ranges is not None and transport is not None
        request = pending.request
        try:
            if isinstance(request, ByVersion):
                version = ranges.choose(request.request_type, pending.min_version, pending.max_version, self)
                request = request.build(version)
            else:
                version = ranges.choose(type(request), pending.min_version, pending.max_version, "the broker")
            chunks = self._machine.send(request, version, pending.deadline, pending)
        except Exception as error:  # the message does not fit the version, or a field its type: nothing was sent
            pending.future.failure(error)
            return
        for traffic in self._traffic:
            traffic.sent(self, pending, sum(map(len, chunks)))
        if self._held_writes is None:
            transport.write(chunks)
        else:
            self._held_writes += chunks
        if request.api_key == 0 and not expects_answer(request):
            self._write_queue.unwritten.append(pending)
            if not transport.pending_bytes:
                # On the next turn: the caller has the future by then.
                self._loop.call_soon(self.writable)

    def _send_waiting(self) -> None:
        waiting, in_flight, most = self._write_queue.waiting, self._machine.in_flight, self._settings.max_in_flight
        while waiting and len(in_flight) < most and self._states.now is ConnectionState.READY:
            if self._muted_until or self._session.is_held:
                break
            self._send(waiting.popleft())

    def _mute(self, throttle_ms: int) -> None:
        """The broker reads nothing from this connection for ``throttle_ms``: send nothing before (KIP-219)."""
        ranges = self.ranges
        if ranges is None or ranges.ranges.get(API_VERSIONS_KEY, (0, 0))[1] < FIRST_API_VERSIONS_OF_KIP_219:
            return  # a broker before 2.0 has waited before it answered
        now = self._loop.time()
        more_s = now + throttle_ms / 1000 - max(self._muted_until, now)
        if more_s > 0:
            # The broker does not read what is in flight before that either, so its deadlines move, as in Java.
            # Otherwise a quota that asks for more than request_timeout_ms would close the connection and send
            # everything again (seen on 4.3.0: ten needless retries in 600 kB under a quota of 20 kB/s).
            self._muted_until = now + throttle_ms / 1000
            self._machine.extend_deadlines(more_s)
            self._write_queue.extend_deadlines(more_s)
        if self._muted_until < self._timer_at:
            self._arm(self._muted_until)

    # -- connecting ----------------------------------------------------------------------------------------------------

    def _connect_transport(self) -> None:
        self._used_at = self._heard_at = self._loop.time()
        self._connect_attempts += 1
        where = self._owner.address_of(self.node_id)
        if where is None:
            self._loop.call_soon(self._on_unknown_address, self._connect_attempts)
        else:
            self._slot.connect(where, self.failures)

    def _on_unknown_address(self, attempts: int) -> None:
        """The metadata did not have the node; it may have come in the same turn of the loop."""
        if attempts != self._connect_attempts or self._states.now is not ConnectionState.CONNECTING:
            return
        if self._owner.address_of(self.node_id) is not None:
            self._connect_transport()
        else:
            # No attempt has failed, so there is no back-off: connect as soon as the metadata has the node.
            self._disconnect(UnknownBrokerIdError(f"{self.name}: not in the cluster's metadata"))

    def on_resolve_failed(self, error: KafkaError) -> None:
        if self._states.now is ConnectionState.CONNECTING:
            self._fail(error)

    def on_connected(self) -> None:
        transport = self._slot.transport
        assert transport is not None
        settings = self._settings
        self._machine = ClientConnection(
            settings.client_id, self.name, settings.receive_max_bytes, pool=settings.buffers
        )
        self._handshake.begin(self._machine, transport)

    # -- called by the handshake ---------------------------------------------------------------------------------------

    def enter_state(self, state: ConnectionState) -> None:
        self._states.enter(state)

    def wake_by(self, when: float) -> None:
        if when < self._timer_at:
            self._arm(when)

    def abort_transport(self) -> None:
        self._slot.abort()

    def reconnect_transport(self) -> None:
        self._states.enter(ConnectionState.CONNECTING)
        self._connect_transport()

    def on_handshake_failed(self, error: KafkaError) -> None:
        self._fail(with_node(error, self.name))

    def on_handshake_suspect(self, error: KafkaError) -> None:
        if not self._slot.probe_listener(lambda refusal: self.on_handshake_failed(refusal or error)):
            self.on_handshake_failed(error)

    def on_handshake_done(self, negotiated: NegotiatedVersions, authenticated: Authenticated | None) -> None:
        self._states.enter(ConnectionState.READY)
        self._settings.security.note_success()
        self.ranges = negotiated.ranges
        self.failures = 0
        self.last_error = None
        self._used_at = self._loop.time()
        if authenticated is not None:
            self._session.begin(authenticated)
        self._arm(self._next_deadline())
        log.debug("%s: ready", self.name)
        self._owner.on_ready(self, negotiated)
        self._send_waiting()

    # -- called by the SASL session ------------------------------------------------------------------------------------

    def authenticate(
        self, dialogue: Authenticating, done: Callable[[Authenticated | KafkaError], object]
    ) -> SaslAuthentication:
        transport, timeout_s = self._slot.transport, self._settings.request_timeout_s
        assert transport is not None
        if self._held_writes:  # SaslAuthentication writes to the transport itself, behind these
            transport.write(self._held_writes)
            self._held_writes = []
        if not self._machine.in_flight:
            self._waits_since = self._loop.time()
        authentication = SaslAuthentication(dialogue, self._machine, transport, self._loop, timeout_s, done)
        self.wake_by(min(authentication.deadline, self._next_silence_check()))
        return authentication

    def session_renewed(self) -> None:
        self._waits_since = self._loop.time()
        self._send_waiting()

    def session_failed(self, error: KafkaError) -> None:
        self._fail(with_node(error, self.name))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._states.now is not ConnectionState.READY:
            self._heard_at = self._loop.time()
            self._handshake.data_received(data)
            return
        self.bytes_received += len(data)
        self._complete(self._machine.receive(data))

    def get_buffer(self) -> memoryview | None:
        return self._machine.get_buffer() if self._states.now is ConnectionState.READY else None

    def buffer_updated(self, count: int) -> None:
        self.bytes_received += count
        self._complete(self._machine.buffer_updated(count))

    def missing_bytes(self) -> int:
        return self._machine.missing_bytes() if self._states.now is ConnectionState.READY else 0

    def _complete(self, answers: list[Answer]) -> None:
        # What is sent because of these responses is written when all futures are completed, in one call. A send takes
        # longer than all of that (it may wake the peer on the same machine) and releases the interpreter lock: a thread
        # whose future was completed just before can run meanwhile (end to end 2.1 ms instead of 2.4 in plain Python).
        machine = self._machine
        self._heard_at = self._loop.time()
        self._held_writes = []
        try:
            self._complete_requests(answers)
        finally:
            held, self._held_writes = self._held_writes, None
            transport = self._slot.transport
            if held and machine is self._machine and transport is not None:
                transport.write(held)

    def _complete_requests(self, answers: list[Answer]) -> None:
        machine, owner, was_held = self._machine, self._owner, self._session.is_held
        for call, answer in answers:
            pending: PendingRequest = call.owner
            if isinstance(answer, Response):
                throttle_ms = getattr(answer, "throttle_time_ms", 0)
                if throttle_ms > 0:
                    self._mute(throttle_ms)
                owner.on_answer(pending, answer)
                for traffic in self._traffic:
                    traffic.answered(self, pending, answer)
                pending.future.success(answer)
            else:
                assert answer is not None
                pending.future.failure(answer)
        if machine is not self._machine:
            return  # a callback closed the connection
        if not was_held:  # re-authentication is not use: the connection stays idle
            self._used_at = self._heard_at
        if machine.failed is not None:
            self._fail(machine.failed)
        elif self._write_queue.waiting:
            self._send_waiting()

    def writable(self) -> None:
        """All that was written has been sent: complete the requests without a response (acks=0)."""
        transport = self._slot.transport
        if self._write_queue.unwritten and transport is not None and not transport.pending_bytes:
            for pending in self._write_queue.take_unwritten():
                pending.future.success(None)

    # -- the end -------------------------------------------------------------------------------------------------------

    def closed(self, error: BaseException | None, refusal: AuthenticationError | None = None) -> None:
        state = self._states.now
        if state is ConnectionState.CLOSED:
            return
        if refusal is not None:
            self._fail(with_node(refusal, self.name))
            return
        doing = "cannot connect" if state is ConnectionState.CONNECTING else "the connection was lost"
        fault = transport_error(self.name, doing, error)
        # With TLS 1.3 the client has finished its handshake before the broker has looked at the client's certificate.
        # The refusal comes with the first bytes that are read, during ApiVersions, and is no outcome of that.
        if state in (ConnectionState.AUTHENTICATING, ConnectionState.CHECKING_API_VERSIONS) and not isinstance(
            fault, AuthenticationError
        ):
            self._handshake.closed()
        else:
            self._fail(fault)

    def close(self, error: KafkaError | None = None) -> None:
        """Close it for good. What is in flight or waits fails with ``error``, by default Cancelled."""
        if self._states.now is ConnectionState.CLOSED:
            return
        self._states.enter(ConnectionState.CLOSED)
        self._handshake.reset()
        self._session.end()
        self._disarm()
        self._slot.close()
        fail_all(self._take_all(), error or Cancelled(f"{self.name}: this client closed the connection"))

    def give_up(self, error: KafkaError) -> None:
        """Lose the connection, as if the node had closed it: its requests fail with ``error``."""
        if not self.disconnected():
            self._fail(error)

    def _fail(self, error: BaseException, timed_out: Mapping[PendingRequest, str] | None = None) -> None:
        """The connection has failed: fail its requests, and connect again for the next one after the back-off.

        ``timed_out``: the requests whose own deadline has passed, with the error's text for each.
        """
        level = logging.DEBUG if self._states.now is ConnectionState.READY else logging.INFO
        if isinstance(error, AuthenticationError):
            level = logging.WARNING
        self.failures += 1
        wait_s = self._backoff.delay_s(self.failures)
        self.retry_at = self._loop.time() + wait_s
        log.log(level, "%s (reconnecting after %d ms)", error, wait_s * 1000)
        self._disconnect(error, timed_out)

    def _disconnect(self, error: BaseException, timed_out: Mapping[PendingRequest, str] | None = None) -> None:
        """Fail its requests with ``error``, and connect again for the next one."""
        self._states.enter(ConnectionState.DISCONNECTED)
        self._handshake.reset()
        self._session.end()
        self._muted_until = 0.0
        self._slot.abort()
        self._disarm()
        self.last_error = error
        requests = self._take_all()
        # The owner is called before the futures fail: its metadata and coordinators are up to date when callers retry.
        self._owner.on_lost(self, error)
        for pending, text in (timed_out or {}).items():
            pending.future.failure(RequestTimedOutError(text))
        fail_all(requests, error)

    def _take_all(self) -> list[PendingRequest]:
        """Remove and return all requests that are not done, the oldest first."""
        calls, self._machine = self._machine.abandon(), ClientConnection(self._settings.client_id)
        return [call.owner for call in calls if isinstance(call.owner, PendingRequest)] + self._write_queue.take_all()

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        """One timer serves all deadlines: most requests find it set to an earlier one and cost nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = None if when == inf else self._loop.call_at(when, self._on_timer)

    def _disarm(self) -> None:
        self._arm(inf)

    def _next_deadline(self) -> float:
        nearest = min(self._machine.next_deadline(), self._write_queue.next_deadline(), self._next_silence_check())
        state = self._states.now
        if state is ConnectionState.READY:
            idle_at = self._used_at + self._settings.max_idle_s
            if not self._is_unused():  # a request is in flight: look again later
                idle_at = max(idle_at, self._loop.time() + self._settings.max_idle_s)
            nearest = min(nearest, self._muted_until or inf, idle_at, self._session.next_deadline())
        elif state is ConnectionState.DISCONNECTED and self._write_queue.waiting:
            nearest = min(nearest, self.retry_at)
        return min(nearest, self._handshake.next_deadline())

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time()
        if self._states.now is ConnectionState.READY:
            self._fail_if_overdue(now)
            self._close_if_idle(now)  # before the session is renewed, after which it would never be idle
            self._session.on_time(now)
        else:
            self._handshake.on_time(now)
        if self._muted_until and now >= self._muted_until:
            self._muted_until, self._waits_since = 0.0, now
            self._send_waiting()
        if now >= self._next_silence_check():
            self._check_silence(now)
        for pending in self._write_queue.take_overdue_waiting(now):
            why = self._why_not_sent()
            text = f"{pending.api} to {self.name}: not sent within {pending.timeout_s:g} s: {why}"
            pending.future.failure(KafkaTimeoutError(text))
        if self._states.now is ConnectionState.DISCONNECTED and self._write_queue.waiting and now >= self.retry_at:
            self.connect()
        nearest = self._next_deadline()
        if nearest < self._timer_at:
            self._arm(nearest)

    def _close_if_idle(self, now: float) -> None:
        is_ready = self._states.now is ConnectionState.READY
        if is_ready and self._is_unused() and now >= self._used_at + self._settings.max_idle_s:
            self._close_idle()

    def _fail_if_overdue(self, now: float) -> None:
        """A request has no response in time, or was not written in time: close the connection."""
        timed_out: dict[PendingRequest, str] = {}
        for call in self._machine.overdue(now):
            pending: PendingRequest = call.owner
            timed_out[pending] = f"{call.api} to {self.name}: no response within {pending.timeout_s:g} s"
        for pending in self._write_queue.overdue_unwritten(now):
            timed_out[pending] = f"{pending.api} to {self.name}: not written within {pending.timeout_s:g} s"
        if timed_out:
            self._fail(KafkaConnectionError(f"the connection was closed: {next(iter(timed_out.values()))}"), timed_out)

    def oldest(self) -> PendingRequest | None:
        """Of the requests that wait for an answer, the one that an answer is due for first."""
        if self._machine.in_flight:
            owner = self._machine.in_flight[0].owner
            return owner if isinstance(owner, PendingRequest) else None
        return self._write_queue.waiting[0] if self._write_queue.waiting else None

    def _next_silence_check(self) -> float:
        """When to check whether it is silent; infinity when no request waits."""
        if not self.in_flight_count or self.disconnected():
            return inf
        return max(self._checked_at, self._heard_at, self._waits_since, self._muted_until) + SILENCE_S

    def _check_silence(self, now: float) -> None:
        self._checked_at = now
        silent_s, oldest = self.silent_s(), self.oldest()
        if silent_s > (0.0 if oldest is None else oldest.held_s):
            self._silent_at = now
            self._owner.on_silent(self)

    def _is_unused(self) -> bool:
        return not self.in_flight_count and not self._write_queue.unwritten

    def _why_not_sent(self) -> str:
        if self._states.now is ConnectionState.READY and self._session.is_held:
            return "waiting for SASL re-authentication"
        if self._states.now is ConnectionState.READY:
            return "throttled by the broker" if self._muted_until else "all allowed requests are in flight"
        if self.last_error is not None:
            return f"not connected; last error: {self.last_error}"
        return "still connecting"

    def _close_idle(self) -> None:
        """It was not used for ``connections_max_idle_ms``: the broker would close it soon."""
        log.debug("%s: closed after %g idle seconds", self.name, self._settings.max_idle_s)
        self._states.enter(ConnectionState.DISCONNECTED)
        self._session.end()
        self._muted_until = 0.0
        self._machine = ClientConnection(self._settings.client_id)
        self._slot.close()
        idle_s = self._settings.max_idle_s
        self._owner.on_idle_closed(self, KafkaConnectionError(f"{self.name}: closed after {idle_s:g} idle seconds"))


class TransportSlot:
    """The transport of a connection, with TLS or a proxy around it: one at a time, each with a number.

    ``transport`` is None while there is none; ``where`` is the server of the last attempt. Events of a former transport
    are dropped: only the last number counts. When to connect again is decided by :class:`BrokerConnection`.
    """

    def __init__(
        self, connection: BrokerConnection, network: Network, settings: ConnectionSettings, rng: Rng
    ) -> None:
        self.transport: Transport | None = None
        self.where: tuple[str, int] | None = None
        self._connection = connection
        self._network = network
        self._settings = settings
        self._setup_time = Backoff(settings.options.connect_timeout_s, settings.connect_timeout_max_s, rng)
        self._number = 0
        self._addresses: list[Address] = []

    def connect(self, where: tuple[str, int], failures: int) -> None:
        """Look up ``where`` and connect to it, after so many failures in a row."""
        self.where = where
        self._number += 1
        number = self._number
        self._network.resolve(*where).add_both(lambda outcome: self._resolved(number, where[0], failures, outcome))

    def _resolved(self, number: int, host: str, failures: int, outcome: list[Address] | BaseException) -> None:
        if number != self._number:
            return
        if isinstance(outcome, BaseException):
            error = KafkaConnectionError(f"{self._connection.name}: {close_reason(outcome)}")
            self._network.loop.call_soon(self._resolve_failed, number, error)
            return
        timeout_s = self._setup_time.delay_s(failures + 1)  # longer after each failure in a row (KIP-601)
        # Another address first after each failure: one may take connections and serve none (KIP-302, KIP-602).
        first = failures % len(outcome)
        self._addresses = outcome[first:] + outcome[:first]
        options = self._settings.options._replace(connect_timeout_s=timeout_s)
        network = self._settings.security.network_for(self._network, host)
        self.transport = network.connect(self._addresses, _SlotHandler(self, self._connection, number), options)

    def probe_listener(self, on_result: Callable[[AuthenticationError | None], object]) -> bool:
        """Ask the listener which security protocol it has, unless one of the client's connections was ever ready;
        whether that is done. ``on_result`` is called once, with an error that says what does not fit, or None; never,
        when the slot was closed or connects again meanwhile."""
        if self._settings.security.is_proven or not self._addresses:
            return False
        number = self._number

        def probed(refusal: AuthenticationError | None) -> None:
            if number == self._number:
                on_result(refusal)

        protocol = self._settings.security.protocol
        ListenerProbe(self._network, self._addresses, self._settings.options, protocol, probed)
        return True

    def _ended(self, error: BaseException | None) -> None:
        """The transport has ended. A listener without TLS cuts a TLS handshake off, so that is looked into."""
        self.detach()
        if not isinstance(error, TlsCutOff) or not self.probe_listener(
            lambda refusal: self._connection.closed(error, refusal)
        ):
            self._connection.closed(error)

    def _resolve_failed(self, number: int, error: KafkaError) -> None:
        if number == self._number:
            self._connection.on_resolve_failed(error)

    def detach(self) -> None:
        """Forget the transport, which has ended by itself; its events are dropped from now on."""
        self.transport = None
        self._number += 1

    def abort(self) -> None:
        """End it now: what is pending is lost."""
        transport = self.transport
        self.detach()
        if transport is not None:
            transport.abort()

    def close(self) -> None:
        """End it after what is pending was sent."""
        transport = self.transport
        self.detach()
        if transport is not None:
            transport.close()


class _SlotHandler(TransportHandler):
    """Passes the events of one transport on to the connection, as long as it is the slot's."""

    __slots__ = ("_slot", "_number", "_connection")

    def __init__(self, slot: TransportSlot, connection: BrokerConnection, number: int) -> None:
        self._slot = slot
        self._connection = connection
        self._number = number

    def connected(self) -> None:
        if self._number == self._slot._number:
            self._connection.on_connected()

    def data_received(self, data: bytes) -> None:
        if self._number == self._slot._number:
            self._connection.data_received(data)

    def get_buffer(self) -> memoryview | None:
        return self._connection.get_buffer() if self._number == self._slot._number else None

    def buffer_updated(self, count: int) -> None:
        if self._number == self._slot._number:
            self._connection.buffer_updated(count)

    def missing_bytes(self) -> int:
        return self._connection.missing_bytes() if self._number == self._slot._number else 0

    def writable(self) -> None:
        if self._number == self._slot._number:
            self._connection.writable()

    def closed(self, error: BaseException | None) -> None:
        if self._number == self._slot._number:
            self._slot._ended(error)


def transport_error(name: str, doing: str, error: BaseException | None) -> KafkaError:
    """The error for the end of a transport. ``doing``: "cannot connect", "the connection was lost".

    What the user has to put right (a certificate, a password, a setting that does not fit the listener) is an
    AuthenticationError, with which nothing is retried; all else is a KafkaConnectionError.
    """
    if isinstance(error, TlsError) and error.is_final:
        return SslAuthenticationError(f"{name}: {error}")
    return KafkaConnectionError(f"{name}: {doing}: {close_reason(error)}")


def close_reason(error: BaseException | None) -> str:
    """Why a transport ended, in a few words."""
    if isinstance(error, PeerClosed):
        return "the broker closed it"
    return "closed" if error is None else getattr(error, "strerror", None) or str(error) or type(error).__name__


def with_node(error: KafkaError, name: str) -> KafkaError:
    """The error with the node in front of its text."""
    if isinstance(error, KafkaProtocolError):
        error.add_node(name)
        return error
    with suppress(TypeError):
        other = type(error)(f"{name}: {error.args[0] if error.args else ''}")
        other.__cause__ = error.__cause__
        return other
    return error

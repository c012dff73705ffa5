"""One connection to one node: connecting, sending in turn, deadlines, back-off.

:class:`BrokerConnection` drives the machine of ``core/connection.py`` over a transport of ``net``. States: ``LINK`` in
``core/states.py``. It leaves the choice of the node to ``kafka_client.py`` and trying again to the callers: every
request handed to :meth:`BrokerConnection.submit` ends its future once, with the response or with the error. What lies
between a transport and the first request is ``opening.py``'s, sessions that are renewed ``authentication.py``'s.

    submit() --not ready, or max_in_flight reached--> waiting --ready, and room--> in flight --answer--> done
       waiting, deadline passes:    that request fails (KafkaTimeoutError), the connection stays
       in flight, deadline passes:  that request fails (RequestTimedOutError), the connection is closed, and with it
                                    all others fail (KafkaConnectionError), because answers come in order

An answer with ``throttle_time_ms`` mutes the connection for that time: requests wait, since a broker that is asked
earlier does not read on until then (KIP-219).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from math import inf

from kafka.client.authentication import Authentication, Session
from kafka.client.faults import ended, fail_all, named
from kafka.client.line import Line
from kafka.client.link import Exchange, LinkSettings, Owner, Traffic
from kafka.client.opening import Opening
from kafka.client.outbox import Outbox
from kafka.core.authentication import Authenticated, Authenticating
from kafka.core.connection import Answer, ClientConnection, expects_answer
from kafka.core.dialogue import ByVersion
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.states import LINK, Link, States
from kafka.core.versions import API_VERSIONS_KEY, ApiRanges, Discovery
from kafka.errors import (
    AuthenticationError,
    Cancelled,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnknownBrokerIdError,
)
from kafka.net.loop import Loop, LoopTimer
from kafka.net.transport import Network
from kafka.wire.message import Response
from kafka.wire.types import BytesLike

log = logging.getLogger(__name__)

DELAY_CONNECTED_MS = 999_999_999
"""What ``connection_delay`` says of a connected node: there is nothing to wait for."""

FIRST_API_VERSIONS_OF_KIP_219 = 2
"""From this version of ApiVersions on (2.0), brokers answer first and are quiet afterwards."""


class BrokerConnection:
    """A connection to ``node_id``, which connects when it is needed and connects again after a failure.

    ``lane``: None for the node's common connection, or the name of one of its own.
    """

    def __init__(
        self, node_id: NodeId, network: Network, settings: LinkSettings, owner: Owner, rng: Rng, lane: str | None = None
    ) -> None:
        self.node_id = node_id
        self.lane = lane
        self.ranges: ApiRanges | None = None
        """What the node speaks; known from the first greeting on."""
        self.failures = 0
        """Failures in a row; 0 once it was ready."""
        self.retry_at = 0.0
        """No attempt to connect before this monotonic instant."""
        self.last_error: BaseException | None = None
        self._loop: Loop = network.loop
        self._settings = settings
        self._owner = owner
        self._backoff = Backoff(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, rng)
        self._states: States[Link] = States(LINK, Link.IDLE, f"connection to {node_id}")
        self._line = Line(self, network, settings, rng)
        self._machine = ClientConnection(settings.client_id)
        self._opening = Opening(self, settings, self._loop, owner.greeting)
        self._session = Session(self, settings.security, self._loop, rng)
        self._outbox = Outbox()
        self._used_at = 0.0
        self.bytes_received = 0
        """Since the start, for metrics; what belongs to opening is left out."""
        self.traffic: tuple[Traffic, ...] = ()
        """Who counts requests; the client's, set where the connection is made."""
        self._held: list[BytesLike] | None = None
        """While answers are handed out: what goes out behind that."""
        self._muted_until = 0.0  # 0 while it is not throttled
        self._dials = 0
        self._timer: LoopTimer | None = None
        self._timer_at = inf

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.name} {self.state.value} in_flight={len(self._machine.in_flight)}>"

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """"node 1 (host:9092)", for messages to people."""
        where = self._line.where or self._owner.address_of(self.node_id)
        node = "bootstrap server" if self.node_id == "bootstrap" else f"node {self.node_id}"
        return node if where is None else f"{node} ({where[0]}:{where[1]})"

    # -- what it is doing ----------------------------------------------------------------------------------------------

    @property
    def state(self) -> Link:
        return self._states.now

    def connected(self) -> bool:
        """Whether requests may be sent."""
        return self._states.now is Link.READY

    def connecting(self) -> bool:
        """Whether it is on the way to that."""
        return self._states.now in (Link.CONNECTING, Link.AUTHENTICATING, Link.GREETING)

    def disconnected(self) -> bool:
        """Neither."""
        return self._states.now in (Link.IDLE, Link.CLOSED)

    def blacked_out(self) -> bool:
        """Whether it failed and its back-off is not over."""
        return self._states.now is Link.IDLE and self._loop.time() < self.retry_at

    def connection_delay(self) -> float:
        """Milliseconds until it makes sense to try: what is left of the back-off, 0, or 999999999 when connected."""
        if self.connected():
            return DELAY_CONNECTED_MS
        return max((self.retry_at - self._loop.time()) * 1000, 0.0) if self.disconnected() else 0.0

    def can_send_more(self) -> bool:
        """Connected, with less than ``max_in_flight_requests_per_connection`` requests in flight."""
        return (
            self._states.now is Link.READY
            and not self._outbox.waiting
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
        """Requests that were sent or wait to be."""
        return len(self._machine.in_flight) + len(self._outbox.waiting)

    # -- sending -------------------------------------------------------------------------------------------------------

    def submit(self, exchange: Exchange) -> None:
        """Send it, now or as soon as the connection is ready and has room; connects when needed."""
        state = self._states.now
        if state is Link.CLOSED:
            exchange.future.failure(IllegalStateError(f"{self.name}: the connection was closed"))
            return
        if exchange.deadline < self._timer_at:
            self._arm(exchange.deadline)
        if self.can_send_more():
            self._send(exchange)
            return
        if state is Link.IDLE and isinstance(self.last_error, AuthenticationError) and self.blacked_out():
            exchange.future.failure(self.last_error)  # just tried, and nothing has changed since
            return
        self._outbox.waiting.append(exchange)
        if state is Link.IDLE:
            self.connect()

    def connect(self) -> None:
        """Begin to connect, unless it is done or under way; in back-off, when that is over."""
        if self._states.now is not Link.IDLE:
            return
        now = self._loop.time()
        if now < self.retry_at:
            if self.retry_at < self._timer_at:
                self._arm(self.retry_at)
            return
        self._states.enter(Link.CONNECTING)
        self._dial()

    def look_again(self) -> None:
        """The metadata is new: if the node's address is another one, the back-off was for the former."""
        if self._states.now is not Link.IDLE or self._line.where in (None, self._owner.address_of(self.node_id)):
            return
        self.failures, self.retry_at = 0, 0.0
        if self._outbox.waiting:
            self.connect()

    def _send(self, exchange: Exchange) -> None:
        ranges, transport = self.ranges, self._line.transport
        assert ranges is not None and transport is not None
        request = exchange.request
        try:
            if isinstance(request, ByVersion):
                version = ranges.choose(request.request_type, exchange.min_version, exchange.max_version, self)
                request = request.build(version)
            else:
                version = ranges.choose(type(request), exchange.min_version, exchange.max_version, "the broker")
            chunks = self._machine.send(request, version, exchange.deadline, exchange)
        except Exception as error:  # the message does not fit the version, or a field its type: nothing was sent
            exchange.future.failure(error)
            return
        for traffic in self.traffic:
            traffic.sent(self, exchange, sum(map(len, chunks)))
        if self._held is None:
            transport.write(chunks)
        else:
            self._held += chunks
        if request.api_key == 0 and not expects_answer(request):
            self._outbox.unwritten.append(exchange)
            if not transport.pending_bytes:
                # On the next turn: whoever waits for the future has it by then.
                self._loop.call_soon(self.writable)

    def _send_waiting(self) -> None:
        waiting, in_flight, most = self._outbox.waiting, self._machine.in_flight, self._settings.max_in_flight
        while waiting and len(in_flight) < most and self._states.now is Link.READY:
            if self._muted_until or self._session.is_held:
                break
            self._send(waiting.popleft())

    def _mute(self, throttle_ms: int) -> None:
        """The broker wants to be left alone for a while."""
        ranges = self.ranges
        if ranges is None or ranges.ranges.get(API_VERSIONS_KEY, (0, 0))[1] < FIRST_API_VERSIONS_OF_KIP_219:
            return  # an older broker has waited before it answered
        now = self._loop.time()
        more_s = now + throttle_ms / 1000 - max(self._muted_until, now)
        if more_s > 0:
            # What is in flight is not read by the broker before that either, and so gets the time back, as in Java.
            self._muted_until = now + throttle_ms / 1000
            self._machine.put_off_deadlines(more_s)
            self._outbox.put_off_deadlines(more_s)
        if self._muted_until < self._timer_at:
            self._arm(self._muted_until)

    # -- connecting ----------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._used_at = self._loop.time()
        self._dials += 1
        where = self._owner.address_of(self.node_id)
        if where is None:
            self._loop.call_soon(self._nowhere, self._dials)
        else:
            self._line.dial(where, self.failures)

    def _nowhere(self, dials: int) -> None:
        """There was no address; the metadata may have come in the same turn of the loop."""
        if dials != self._dials or self._states.now is not Link.CONNECTING:
            return
        if self._owner.address_of(self.node_id) is not None:
            self._dial()
        else:
            # No attempt has failed: as soon as the metadata names it, it may be tried.
            self._let_go(UnknownBrokerIdError(f"{self.name}: not in the cluster's metadata"))

    def not_dialled(self, error: KafkaError) -> None:
        if self._states.now is Link.CONNECTING:
            self._lose(error)

    def stands(self) -> None:
        transport = self._line.transport
        assert transport is not None
        settings = self._settings
        self._machine = ClientConnection(
            settings.client_id, self.name, settings.receive_max_bytes, pool=settings.buffers
        )
        self._opening.begin(self._machine, transport)

    # -- what the opening tells ----------------------------------------------------------------------------------------

    def enter(self, state: Link) -> None:
        self._states.enter(state)

    def wake_by(self, when: float) -> None:
        if when < self._timer_at:
            self._arm(when)

    def drop_transport(self) -> None:
        self._line.drop()

    def dial_again(self) -> None:
        self._states.enter(Link.CONNECTING)
        self._dial()

    def opening_failed(self, error: KafkaError) -> None:
        self._lose(named(error, self.name))

    def opening_suspect(self, error: KafkaError) -> None:
        if not self._line.inquire(lambda found: self.opening_failed(found or error)):
            self.opening_failed(error)

    def opened(self, discovery: Discovery, authenticated: Authenticated | None) -> None:
        self._states.enter(Link.READY)
        self._settings.security.is_proven = True
        self.ranges = discovery.ranges
        self.failures = 0
        self.last_error = None
        self._used_at = self._loop.time()
        if authenticated is not None:
            self._session.begin(authenticated)
        self._arm(self._next_deadline())
        log.debug("%s: ready", self.name)
        self._owner.on_ready(self, discovery)
        self._send_waiting()

    # -- what the session asks -----------------------------------------------------------------------------------------

    def authenticate(
        self, dialogue: Authenticating, done: Callable[[Authenticated | KafkaError], object]
    ) -> Authentication:
        transport, timeout_s = self._line.transport, self._settings.request_timeout_s
        assert transport is not None
        if self._held:  # it writes by itself, and in turn
            transport.write(self._held)
            self._held = []
        authentication = Authentication(dialogue, self._machine, transport, self._loop, timeout_s, done)
        self.wake_by(authentication.deadline)
        return authentication

    def session_renewed(self) -> None:
        self._send_waiting()

    def session_failed(self, error: KafkaError) -> None:
        self._lose(named(error, self.name))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._states.now is not Link.READY:
            self._opening.data_received(data)
            return
        self.bytes_received += len(data)
        self._answered(self._machine.receive(data))

    def get_buffer(self) -> memoryview | None:
        return self._machine.get_buffer() if self._states.now is Link.READY else None

    def buffer_updated(self, count: int) -> None:
        self.bytes_received += count
        self._answered(self._machine.buffer_updated(count))

    def missing_bytes(self) -> int:
        return self._machine.missing_bytes() if self._states.now is Link.READY else 0

    def _answered(self, answers: list[Answer]) -> None:
        # What is sent because of these answers goes out when all are handed out, at once. To send takes longer than
        # all of that (it may wake the peer on the same machine), and lets go of the interpreter: a thread that was told
        # of its answer just before finds it free.
        machine = self._machine
        self._held = []
        try:
            self._hand_out(answers)
        finally:
            held, self._held = self._held, None
            transport = self._line.transport
            if held and machine is self._machine and transport is not None:
                transport.write(held)

    def _hand_out(self, answers: list[Answer]) -> None:
        machine, owner, was_held = self._machine, self._owner, self._session.is_held
        for call, answer in answers:
            exchange: Exchange = call.owner
            if isinstance(answer, Response):
                throttle_ms = getattr(answer, "throttle_time_ms", 0)
                if throttle_ms > 0:
                    self._mute(throttle_ms)
                owner.on_answer(exchange, answer)
                for traffic in self.traffic:
                    traffic.answered(self, exchange, answer)
                exchange.future.success(answer)
            else:
                assert answer is not None
                exchange.future.failure(answer)
        if machine is not self._machine:
            return  # a callback closed the connection
        if not was_held:  # to renew a session is not to use it
            self._used_at = self._loop.time()
        if machine.failed is not None:
            self._lose(machine.failed)
        elif self._outbox.waiting:
            self._send_waiting()

    def writable(self) -> None:
        """What was written has gone out: requests without an answer are done."""
        transport = self._line.transport
        if self._outbox.unwritten and transport is not None and not transport.pending_bytes:
            for exchange in self._outbox.take_unwritten():
                exchange.future.success(None)

    # -- the end -------------------------------------------------------------------------------------------------------

    def closed(self, error: BaseException | None, refusal: AuthenticationError | None = None) -> None:
        state = self._states.now
        if state is Link.CLOSED:
            return
        if refusal is not None:
            self._lose(named(refusal, self.name))
            return
        doing = "cannot connect" if state is Link.CONNECTING else "the connection was lost"
        fault = ended(self.name, doing, error)
        if state in (Link.AUTHENTICATING, Link.GREETING) and not isinstance(fault, AuthenticationError):
            self._opening.closed()
        else:
            self._lose(fault)

    def close(self, error: KafkaError | None = None) -> None:
        """End it for good. What was in flight or waits fails with ``error``, by default Cancelled."""
        if self._states.now is Link.CLOSED:
            return
        self._states.enter(Link.CLOSED)
        self._opening.reset()
        self._session.end()
        self._disarm()
        self._line.close()
        fail_all(self._take_all(), error or Cancelled(f"{self.name}: this client closed the connection"))

    def _lose(self, error: BaseException, timed_out: Mapping[Exchange, str] | None = None) -> None:
        """The connection is of no use any more: fail what is on it, and be ready to connect again after a while.

        ``timed_out``: the requests whose own time was up, with the error's text for each.
        """
        level = logging.DEBUG if self._states.now is Link.READY else logging.INFO
        if isinstance(error, AuthenticationError):
            level = logging.WARNING
        self.failures += 1
        wait_s = self._backoff.delay_s(self.failures)
        self.retry_at = self._loop.time() + wait_s
        log.log(level, "%s (again in %d ms)", error, wait_s * 1000)
        self._let_go(error, timed_out)

    def _let_go(self, error: BaseException, timed_out: Mapping[Exchange, str] | None = None) -> None:
        """Fail what is on it with ``error``, and wait for the next request."""
        self._states.enter(Link.IDLE)
        self._opening.reset()
        self._session.end()
        self._muted_until = 0.0
        self._line.drop()
        self._disarm()
        self.last_error = error
        exchanges = self._take_all()
        # The owner draws its conclusions before anybody who fails here tries again.
        self._owner.on_lost(self, error)
        for exchange, text in (timed_out or {}).items():
            exchange.future.failure(RequestTimedOutError(text))
        fail_all(exchanges, error)

    def _take_all(self) -> list[Exchange]:
        """Everything that was handed over and is not done, oldest first; it is the caller's now."""
        calls, self._machine = self._machine.abandon(), ClientConnection(self._settings.client_id)
        return [call.owner for call in calls if isinstance(call.owner, Exchange)] + self._outbox.take_all()

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
        nearest = min(self._machine.next_deadline(), self._outbox.next_deadline())
        state = self._states.now
        if state is Link.READY:
            idle_at = self._used_at + self._settings.max_idle_s
            if not self._is_unused():  # a request is out just then: look again later, and not at this very instant
                idle_at = max(idle_at, self._loop.time() + self._settings.max_idle_s)
            nearest = min(nearest, self._muted_until or inf, idle_at, self._session.next_deadline())
        elif state is Link.IDLE and self._outbox.waiting:
            nearest = min(nearest, self.retry_at)
        return min(nearest, self._opening.next_deadline())

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time()
        if self._states.now is Link.READY:
            self._lose_if_overdue(now)
            self._retire_if_idle(now)  # rather than renew its session, with which it would never be found unused
            self._session.on_time(now)
        else:
            self._opening.on_time(now)
        if self._muted_until and now >= self._muted_until:
            self._muted_until = 0.0
            self._send_waiting()
        for exchange in self._outbox.take_overdue_waiting(now):
            why = self._why_not_sent()
            text = f"{exchange.api} to {self.name}: not sent within {exchange.timeout_s:g} s: {why}"
            exchange.future.failure(KafkaTimeoutError(text))
        if self._states.now is Link.IDLE and self._outbox.waiting and now >= self.retry_at:
            self.connect()
        nearest = self._next_deadline()
        if nearest < self._timer_at:
            self._arm(nearest)

    def _retire_if_idle(self, now: float) -> None:
        is_ready = self._states.now is Link.READY
        if is_ready and self._is_unused() and now >= self._used_at + self._settings.max_idle_s:
            self._retire()

    def _lose_if_overdue(self, now: float) -> None:
        """A request that was sent had no answer in time, or was not even taken: the connection cannot go on."""
        timed_out: dict[Exchange, str] = {}
        for call in self._machine.overdue(now):
            exchange: Exchange = call.owner
            timed_out[exchange] = f"{call.api} to {self.name}: no answer within {exchange.timeout_s:g} s"
        for exchange in self._outbox.overdue_unwritten(now):
            timed_out[exchange] = f"{exchange.api} to {self.name}: not taken within {exchange.timeout_s:g} s"
        if timed_out:
            self._lose(KafkaConnectionError(f"the connection was closed: {next(iter(timed_out.values()))}"), timed_out)

    def _is_unused(self) -> bool:
        return not self.in_flight_count and not self._outbox.unwritten

    def _why_not_sent(self) -> str:
        if self._states.now is Link.READY and self._session.is_held:
            return "the session has to be renewed first"
        if self._states.now is Link.READY:
            return "throttled by the broker" if self._muted_until else "all allowed requests are in flight"
        if self.last_error is not None:
            return f"not connected; last error: {self.last_error}"
        return "still connecting"

    def _retire(self) -> None:
        """It was not used for long: the broker would close it soon."""
        log.debug("%s: closed after %g idle seconds", self.name, self._settings.max_idle_s)
        self._states.enter(Link.IDLE)
        self._session.end()
        self._muted_until = 0.0
        self._machine = ClientConnection(self._settings.client_id)
        self._line.close()
        idle_s = self._settings.max_idle_s
        self._owner.on_retired(self, KafkaConnectionError(f"{self.name}: closed after {idle_s:g} idle seconds"))

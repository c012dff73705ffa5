"""One connection to one node: connecting, greeting, sending in turn, deadlines, back-off.

:class:`BrokerConnection` drives the machine of ``core/connection.py`` over a transport of ``net``. States: ``LINK`` in
``core/states.py``. It leaves the choice of the node to ``kafka_client.py`` and trying again to the callers: every
request handed to :meth:`BrokerConnection.submit` ends its future once, with the response or with the error.

    submit() --not ready, or max_in_flight reached--> waiting --ready, and room--> in flight --answer--> done
       waiting, deadline passes:    that request fails (KafkaTimeoutError), the connection stays
       in flight, deadline passes:  that request fails (RequestTimedOutError), the connection is closed, and with it
                                    all others fail (KafkaConnectionError), because answers come in order

An answer with ``throttle_time_ms`` mutes the connection for that time: requests wait, since a broker that is asked
earlier does not read on until then (KIP-219).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from math import inf

from kafka.client.greeting import GreetingRun
from kafka.client.link import Exchange, LinkSettings, Owner
from kafka.client.outbox import Outbox
from kafka.core.connection import ClientConnection, expects_answer
from kafka.core.dialogue import ByVersion
from kafka.core.retry import Backoff, Rng
from kafka.core.routing import NodeId
from kafka.core.states import LINK, Link, States
from kafka.core.versions import API_VERSIONS_KEY, ApiRanges, Discovery, NoAnswer
from kafka.errors import (
    Cancelled,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnknownBrokerIdError,
)
from kafka.net.loop import Loop, LoopTimer
from kafka.net.transport import Address, Network, PeerClosed, Transport, TransportHandler
from kafka.wire.message import Response

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
        self._network = network
        self._loop: Loop = network.loop
        self._settings = settings
        self._owner = owner
        self._backoff = Backoff(settings.reconnect_backoff_s, settings.reconnect_backoff_max_s, rng)
        self._states: States[Link] = States(LINK, Link.IDLE, f"connection to {node_id}")
        self._where: tuple[str, int] | None = None
        self._transport: Transport | None = None
        self._attempt = 0  # counts transports: what belongs to a former one is recognised by it
        self._machine = ClientConnection(settings.client_id)
        self._greeting: GreetingRun | None = None
        self._outbox = Outbox()
        self._used_at = 0.0
        self._muted_until = 0.0  # 0 while it is not throttled
        self._timer: LoopTimer | None = None
        self._timer_at = inf

    def __repr__(self) -> str:
        return f"<BrokerConnection {self.name} {self.state.value} in_flight={len(self._machine.in_flight)}>"

    @property
    def name(self) -> str:
        """"node 1 (host:9092)", for messages to people."""
        where = self._where or self._owner.address_of(self.node_id)
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
        return self._states.now in (Link.CONNECTING, Link.GREETING)

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
            and len(self._machine.in_flight) < self._settings.max_in_flight
        )

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
        waiting = self._outbox.waiting
        if self.can_send_more():
            self._send(exchange)
            return
        waiting.append(exchange)
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

    def _send(self, exchange: Exchange) -> None:
        ranges, transport = self.ranges, self._transport
        assert ranges is not None and transport is not None
        request = exchange.request
        try:
            if isinstance(request, ByVersion):
                version = ranges.choose(request.request_type, exchange.min_version, exchange.max_version, self.name)
                request = request.build(version)
            else:
                version = ranges.choose(type(request), exchange.min_version, exchange.max_version, "the broker")
            chunks = self._machine.send(request, version, exchange.deadline, exchange)
        except Exception as error:  # the message does not fit the version, or a field its type: nothing was sent
            exchange.future.failure(error)
            return
        transport.write(chunks)
        if request.api_key == 0 and not expects_answer(request):
            self._outbox.unwritten.append(exchange)
            if not transport.pending_bytes:
                # On the next turn: whoever waits for the future has it by then.
                self._loop.call_soon(self.writable)

    def _send_waiting(self) -> None:
        waiting, in_flight, most = self._outbox.waiting, self._machine.in_flight, self._settings.max_in_flight
        while waiting and len(in_flight) < most and self._states.now is Link.READY and not self._muted_until:
            self._send(waiting.popleft())

    def _mute(self, throttle_ms: int) -> None:
        """The broker wants to be left alone for a while."""
        ranges = self.ranges
        if ranges is None or ranges.ranges.get(API_VERSIONS_KEY, (0, 0))[1] < FIRST_API_VERSIONS_OF_KIP_219:
            return  # an older broker has waited before it answered
        self._muted_until = max(self._muted_until, self._loop.time() + throttle_ms / 1000)
        if self._muted_until < self._timer_at:
            self._arm(self._muted_until)

    # -- connecting ----------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        """Begin a transport: look the name up, then connect."""
        self._attempt += 1
        self._where = self._owner.address_of(self.node_id)
        self._used_at = self._loop.time()
        if self._where is None:
            self._loop.call_soon(
                self._if_current, self._attempt, UnknownBrokerIdError(f"{self.name}: not in the cluster's metadata")
            )
            return
        host, port = self._where
        attempt = self._attempt
        self._network.resolve(host, port).add_both(lambda outcome: self._resolved(attempt, outcome))

    def _resolved(self, attempt: int, outcome: list[Address] | BaseException) -> None:
        if attempt != self._attempt or self._states.now is not Link.CONNECTING:
            return
        if isinstance(outcome, BaseException):
            self._loop.call_soon(self._if_current, attempt, KafkaConnectionError(f"{self.name}: {_reason(outcome)}"))
            return
        self._machine = ClientConnection(
            self._settings.client_id, self.name, self._settings.receive_max_bytes
        )
        handler = _Handler(self, attempt)
        self._transport = self._network.connect(outcome, handler, self._settings.options)

    def _if_current(self, attempt: int, error: BaseException) -> None:
        if attempt == self._attempt and self._states.now is Link.CONNECTING:
            self._lose(error)

    def _connected(self) -> None:
        self._states.enter(Link.GREETING)
        if self._greeting is None:
            greeting = self._owner.greeting()
            if isinstance(greeting, Discovery):
                self._ready(greeting)
                return
            self._greeting = GreetingRun(greeting)
        self._send_probe(self._greeting)

    def _send_probe(self, run: GreetingRun) -> None:
        transport = self._transport
        assert transport is not None
        deadline = self._loop.time() + min(self._settings.greeting_step_s, self._settings.request_timeout_s)
        last = len(run.probe.requests) - 1
        for index, (request, version) in enumerate(run.probe.requests):
            transport.write(self._machine.send(request, version, deadline, index, skippable=index < last))
        if deadline < self._timer_at:
            self._arm(deadline)

    def _probed(self, run: GreetingRun) -> None:
        """All requests of a probe have their outcome: go on, over this transport or a new one."""
        try:
            discovery = run.advance()
        except KafkaError as error:
            self._lose(_named(error, self.name))
            return
        if discovery is not None:
            if self._transport is None:
                self._lose(KafkaConnectionError(f"{self.name}: closed the connection during the greeting"))
            else:
                self._ready(discovery)
        elif self._transport is not None:
            self._send_probe(run)
        else:
            self._states.enter(Link.CONNECTING)
            self._dial()

    def _probe_ended(self, run: GreetingRun, outcome: NoAnswer) -> None:
        """The transport can serve the greeting no longer."""
        self._drop_transport()
        self._machine.abandon()
        run.note_rest(outcome)
        self._probed(run)

    def _ready(self, discovery: Discovery) -> None:
        self._greeting = None
        self._states.enter(Link.READY)
        self.ranges = discovery.ranges
        self.failures = 0
        self.last_error = None
        self._used_at = self._loop.time()
        self._arm(self._next_deadline())
        log.debug("%s: ready", self.name)
        self._owner.on_ready(self, discovery)
        self._send_waiting()

    # -- receiving -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        machine = self._machine
        run = self._greeting
        if run is not None:
            self._greeted(run, data)
            return
        owner = self._owner
        for call, answer in machine.receive(data):
            exchange: Exchange = call.owner
            if isinstance(answer, Response):
                throttle_ms = getattr(answer, "throttle_time_ms", 0)
                if throttle_ms > 0:
                    self._mute(throttle_ms)
                owner.on_answer(exchange, answer)
                exchange.future.success(answer)
            else:
                assert answer is not None
                exchange.future.failure(answer)
        if machine is not self._machine:
            return  # a callback closed the connection
        self._used_at = self._loop.time()
        if machine.failed is not None:
            self._lose(machine.failed)
        elif self._outbox.waiting:
            self._send_waiting()

    def _greeted(self, run: GreetingRun, data: bytes) -> None:
        for call, answer in self._machine.receive(data):
            if isinstance(answer, Response):
                run.note(call.owner, answer)
            else:
                run.note(call.owner, NoAnswer.SILENT if answer is None else NoAnswer.GARBLED)
        if self._machine.failed is not None:
            log.debug("%s: %s", self.name, self._machine.failed)
            self._probe_ended(run, NoAnswer.GARBLED)
        elif run.is_answered:
            self._probed(run)

    def writable(self) -> None:
        """What was written has gone out: requests without an answer are done."""
        if self._outbox.unwritten and self._transport is not None and not self._transport.pending_bytes:
            for exchange in self._outbox.take_unwritten():
                exchange.future.success(None)

    # -- the end -------------------------------------------------------------------------------------------------------

    def closed(self, error: BaseException | None) -> None:
        run, state = self._greeting, self._states.now
        if state is Link.GREETING and run is not None:
            self._transport = None
            self._probe_ended(run, NoAnswer.CLOSED)
        elif state is not Link.CLOSED:
            doing = "cannot connect" if state is Link.CONNECTING else "the connection was lost"
            self._lose(KafkaConnectionError(f"{self.name}: {doing}: {_reason(error)}"))

    def close(self, error: KafkaError | None = None) -> None:
        """End it for good. What was in flight or waits fails with ``error``, by default Cancelled."""
        if self._states.now is Link.CLOSED:
            return
        self._states.enter(Link.CLOSED)
        self._disarm()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        _fail(self._take_all(), error or Cancelled(f"{self.name}: this client closed the connection"))

    def _lose(self, error: BaseException, timed_out: Mapping[Exchange, str] | None = None) -> None:
        """The connection is of no use any more: fail what is on it, and be ready to connect again after a while.

        ``timed_out``: the requests whose own time was up, with the error's text for each.
        """
        was_ready = self._states.now is Link.READY
        self._states.enter(Link.IDLE)
        self._greeting = None
        self._muted_until = 0.0
        self._drop_transport()
        self._disarm()
        self.last_error = error
        self.failures += 1
        wait_s = self._backoff.delay_s(self.failures)
        self.retry_at = self._loop.time() + wait_s
        log.log(logging.DEBUG if was_ready else logging.INFO, "%s (again in %d ms)", error, wait_s * 1000)
        exchanges = self._take_all()
        # The owner draws its conclusions before anybody who fails here tries again.
        self._owner.on_lost(self, error)
        for exchange, text in (timed_out or {}).items():
            exchange.future.failure(RequestTimedOutError(text))
        _fail(exchanges, error)

    def _take_all(self) -> list[Exchange]:
        """Everything that was handed over and is not done, oldest first; it is the caller's now."""
        calls, self._machine = self._machine.abandon(), ClientConnection(self._settings.client_id)
        return [call.owner for call in calls if isinstance(call.owner, Exchange)] + self._outbox.take_all()

    def _drop_transport(self) -> None:
        transport, self._transport = self._transport, None
        self._attempt += 1
        if transport is not None:
            transport.abort()

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
            nearest = min(nearest, self._muted_until or inf, self._used_at + self._settings.max_idle_s)
        elif state is Link.IDLE and self._outbox.waiting:
            nearest = min(nearest, self.retry_at)
        return nearest

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time()
        if self._greeting is not None and self._machine.overdue(now):
            self._probe_ended(self._greeting, NoAnswer.SILENT)
        elif self._states.now is Link.READY:
            self._lose_if_overdue(now)
        if self._muted_until and now >= self._muted_until:
            self._muted_until = 0.0
            self._send_waiting()
        for exchange in self._outbox.take_overdue_waiting(now):
            why = self._why_not_sent()
            text = f"{exchange.api} to {self.name}: not sent within {exchange.timeout_s:g} s: {why}"
            exchange.future.failure(KafkaTimeoutError(text))
        if self._states.now is Link.READY and self._is_unused() and now >= self._used_at + self._settings.max_idle_s:
            self._retire()
        elif self._states.now is Link.IDLE and self._outbox.waiting and now >= self.retry_at:
            self.connect()
        nearest = self._next_deadline()
        if nearest < self._timer_at:
            self._arm(nearest)

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
        if self._states.now is Link.READY:
            return "throttled by the broker" if self._muted_until else "all allowed requests are in flight"
        if self.last_error is not None:
            return f"not connected; last error: {self.last_error}"
        return "still connecting"

    def _retire(self) -> None:
        """It was not used for long: the broker would close it soon."""
        log.debug("%s: closed after %g idle seconds", self.name, self._settings.max_idle_s)
        self._states.enter(Link.IDLE)
        transport, self._transport = self._transport, None
        self._attempt += 1
        self._machine = ClientConnection(self._settings.client_id)
        if transport is not None:
            transport.close()


class _Handler(TransportHandler):
    """One transport's way to its connection. What a former transport still has to say is not heard."""

    __slots__ = ("_attempt", "_connection")

    def __init__(self, connection: BrokerConnection, attempt: int) -> None:
        self._connection = connection
        self._attempt = attempt

    def connected(self) -> None:
        if self._attempt == self._connection._attempt:
            self._connection._connected()

    def data_received(self, data: bytes) -> None:
        if self._attempt == self._connection._attempt:
            self._connection.data_received(data)

    def writable(self) -> None:
        if self._attempt == self._connection._attempt:
            self._connection.writable()

    def closed(self, error: BaseException | None) -> None:
        if self._attempt == self._connection._attempt:
            self._connection.closed(error)


def _fail(exchanges: list[Exchange], error: BaseException) -> None:
    for exchange in exchanges:
        if not exchange.future.is_done:
            exchange.future.failure(error if isinstance(error, KafkaError) else KafkaConnectionError(str(error)))


def _reason(error: BaseException | None) -> str:
    if isinstance(error, PeerClosed):
        return "the broker closed it"
    return "closed" if error is None else getattr(error, "strerror", None) or str(error) or type(error).__name__


def _named(error: KafkaError, name: str) -> KafkaError:
    """The error with the node in front of its text."""
    if isinstance(error, KafkaProtocolError):
        error.node = error.node or name
        return error
    with suppress(TypeError):
        return type(error)(f"{name}: {error.args[0] if error.args else ''}")
    return error

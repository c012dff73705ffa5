"""What lies between a new transport and the first request: SASL, then the broker's API versions. And SASL sessions.

::

    AUTHENTICATING          with SASL: a mechanism is made, then a dialogue of core/authentication.py is run
    CHECKING_API_VERSIONS   a dialogue of core/versions.py; that of an old broker may need several transports, each of
                            which is authenticated first

:class:`Handshake` runs both for one :class:`~kafka.client.connection.BrokerConnection`, which owns the state, the
transports and the back-off. :class:`SaslSession` renews the authentication of a connection that is ready (KIP-368).
:class:`ListenerProbe` finds out why a listener closes connections without a response.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kafka.client.security import ClientSecurity
from kafka.core.authentication import (
    NO_RENEWAL,
    Authenticated,
    Authenticating,
    NextSaslRequest,
    SaslPlan,
    Token,
    authenticate,
    closed_during_sasl,
    plan_renewal,
    sasl_login,
)
from kafka.core.connection import ClientConnection
from kafka.core.retry import Rng
from kafka.core.sasl import ClientMechanism
from kafka.core.states import ConnectionState
from kafka.core.versions import NegotiatedVersions, NoAnswer, Outcome, Probe, VersionsDialogue
from kafka.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
)
from kafka.net.loop import DeadlineTimer, Loop
from kafka.net.transport import Address, ConnectionOptions, Network, Transport, TransportHandler
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse
from kafka.wire.frame import SPEAKS_TLS, FrameReader, frame
from kafka.wire.message import Request, Response

if TYPE_CHECKING:
    from kafka.client.connection import BrokerConnection, ConnectionSettings

log = logging.getLogger(__name__)

MAX_TOKEN_LOSSES = 3
"""A broker before 1.0 closes the connection on a wrong token and when it is in trouble. The third time, if none of the
client's connections was ever ready, it counts as refused."""


class Handshake:
    """The handshakes of one connection, one for each time that it connects."""

    def __init__(
        self,
        connection: BrokerConnection,
        settings: ConnectionSettings,
        loop: Loop,
        versions_dialogue: Callable[[], VersionsDialogue | NegotiatedVersions],
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._loop = loop
        self._new_dialogue = versions_dialogue
        self._machine: ClientConnection | None = None
        self._transport: Transport | None = None
        self._negotiation: ApiVersionsNegotiation | None = None
        self._authentication: SaslAuthentication | None = None
        self._authenticated: Authenticated | None = None
        self._mechanism_request: object | None = None  # identity of the one under way: later ones are dropped
        self._deadline = inf  # of the authentication, with the making of the mechanism

    def begin(self, machine: ClientConnection, transport: Transport) -> None:
        """A transport is connected."""
        self._machine, self._transport = machine, transport
        self._authenticated = None
        security = self._settings.security
        if not security.with_sasl:
            self._negotiate_versions()
            return
        self._connection.enter_state(ConnectionState.AUTHENTICATING)
        self._deadline = self._loop.time() + self._settings.request_timeout_s
        self._connection.wake_by(self._deadline)
        request_id = self._mechanism_request = object()
        security.new_mechanism(self._loop).add_both(lambda outcome: self._authenticate(request_id, outcome))

    def reset(self) -> None:
        """The connection has ended, or is ready: forget all."""
        self._detach()
        self._negotiation = None

    def next_deadline(self) -> float:
        """When :meth:`on_time` is to be called, beside the deadlines of what is in flight."""
        return self._deadline

    def data_received(self, data: bytes) -> None:
        """Without an authentication under way, the bytes are the ApiVersions negotiation's. During one they are
        responses, each of which completes its request's future, or bare tokens with no request around them
        (SaslHandshake v0). Bytes that are no response end the connection; those of a TLS alert with
        SslAuthenticationError."""
        authentication, machine = self._authentication, self._machine
        if machine is None:
            return
        if authentication is None:
            self._on_versions_data(machine, data)
            return
        if authentication.takes_tokens:
            try:
                authentication.token_received(data)
            except KafkaProtocolError as fault:
                self._fail(fault)
            return
        for call, answer in machine.receive(data):
            if isinstance(answer, Response):
                call.owner.future.success(answer)
            else:
                call.owner.future.failure(answer)
        if machine.failed is not None and machine is self._machine:
            self._fail(_tls_fault(machine.failed) or machine.failed)

    def closed(self) -> None:
        """The broker closed the transport."""
        if self._authentication is not None:
            self._fail(self._closed_during_sasl(self._authentication))
        elif self._negotiation is not None and self._mechanism_request is None:
            self._probe_ended(self._negotiation, NoAnswer.CLOSED)
        else:
            self._fail(KafkaConnectionError("closed the connection before authentication began"))

    def on_time(self, now: float) -> None:
        """Fail what is overdue."""
        if now >= self._deadline:
            doing = (
                "the token provider has not answered" if self._mechanism_request is not None else "not authenticated"
            )
            self._fail(KafkaConnectionError(f"{doing} within {self._settings.request_timeout_s:g} s"))
        elif self._negotiation is not None and self._machine is not None and self._machine.overdue(now):
            self._probe_ended(self._negotiation, NoAnswer.SILENT)

    def _detach(self) -> None:
        """Forget the transport. The negotiation stays: it may go on over the next one."""
        if self._authentication is not None:
            self._authentication.abandon()
        self._machine = self._transport = self._authentication = self._mechanism_request = None
        self._deadline = inf

    def _fail(self, error: KafkaError) -> None:
        self.reset()
        self._connection.on_handshake_failed(error)

    # -- SASL ----------------------------------------------------------------------------------------------------------

    def _authenticate(self, request_id: object, outcome: ClientMechanism | BaseException) -> None:
        machine, transport = self._machine, self._transport
        if request_id is not self._mechanism_request or machine is None or transport is None:
            return
        self._mechanism_request = None
        if isinstance(outcome, BaseException):
            self._fail(outcome if isinstance(outcome, KafkaError) else KafkaConnectionError(str(outcome)))
            return
        left_s = self._deadline - self._loop.time()
        self._authentication = SaslAuthentication(
            authenticate(outcome, self._settings.software),
            machine,
            transport,
            self._loop,
            left_s,
            self._on_authenticated,
        )
        self._authentication.begin()

    def _on_authenticated(self, outcome: Authenticated | KafkaError) -> None:
        """The authentication has succeeded or failed."""
        self._authentication = None
        self._deadline = inf
        if isinstance(outcome, KafkaError):
            self._fail(outcome)
            return
        self._authenticated = outcome
        self._negotiate_versions()

    def _closed_during_sasl(self, authentication: SaslAuthentication) -> KafkaError:
        """The error for a connection that the broker closed during SASL."""
        error, security = authentication.closed_error(), self._settings.security
        if not authentication.takes_tokens:
            return error
        security.count_token_loss()
        if security.is_proven or security.token_losses < MAX_TOKEN_LOSSES:
            return error
        return SaslAuthenticationFailedError(str(error.args[0]))

    # -- API versions --------------------------------------------------------------------------------------------------

    def _negotiate_versions(self) -> None:
        self._connection.enter_state(ConnectionState.CHECKING_API_VERSIONS)
        if self._negotiation is None:
            versions_dialogue = self._new_dialogue()
            if isinstance(versions_dialogue, NegotiatedVersions):
                self._done(versions_dialogue)
                return
            self._negotiation = ApiVersionsNegotiation(versions_dialogue)
        self._send_probe(self._negotiation)

    def _send_probe(self, negotiation: ApiVersionsNegotiation) -> None:
        machine, transport = self._machine, self._transport
        assert machine is not None and transport is not None
        deadline = self._loop.time() + min(self._settings.api_versions_timeout_s, self._settings.request_timeout_s)
        last = len(negotiation.probe.requests) - 1
        for index, (request, version) in enumerate(negotiation.probe.requests):
            transport.write(machine.send(request, version, deadline, index, skippable=index < last))
        self._connection.wake_by(deadline)

    def _on_versions_data(self, machine: ClientConnection, data: bytes) -> None:
        negotiation = self._negotiation
        if negotiation is None:
            return
        for call, answer in machine.receive(data):
            if isinstance(answer, Response):
                negotiation.note(call.owner, answer)
            else:
                negotiation.note(call.owner, NoAnswer.SILENT if answer is None else NoAnswer.GARBLED)
        if machine.failed is not None:
            log.debug("%s: %s", self._connection.name, machine.failed)
            secured = _tls_fault(machine.failed)
            if secured is not None:
                self._fail(secured)
            else:
                self._probe_ended(negotiation, NoAnswer.GARBLED)
        elif negotiation.is_answered:
            self._probed(negotiation)

    def _probed(self, negotiation: ApiVersionsNegotiation) -> None:
        """All requests of a probe have their outcome: go on, over this transport or a new one."""
        try:
            negotiated = negotiation.advance()
        except KafkaError as error:
            self._fail(error)
            return
        if negotiated is not None:
            if self._transport is None:
                self.reset()
                self._connection.on_handshake_suspect(KafkaConnectionError("closed the connection during ApiVersions"))
            else:
                self._done(negotiated)
        elif self._transport is not None:
            self._send_probe(negotiation)
        else:
            self._connection.reconnect_transport()

    def _probe_ended(self, negotiation: ApiVersionsNegotiation, outcome: NoAnswer) -> None:
        """The transport is of no use for the rest of the probe: end it."""
        machine = self._machine
        self._detach()
        self._connection.abort_transport()
        if machine is not None:
            machine.abandon()
        negotiation.note_rest(outcome)
        self._probed(negotiation)

    def _done(self, negotiated: NegotiatedVersions) -> None:
        authenticated = self._authenticated
        self.reset()
        self._connection.on_handshake_done(negotiated, authenticated)


def _tls_fault(fault: KafkaProtocolError) -> SslAuthenticationError | None:
    """The error for a TLS alert in answer to plaintext; None for any other fault."""
    if SPEAKS_TLS not in fault.text:
        return None
    return SslAuthenticationError(
        "the listener uses TLS and this client does not: set security_protocol to SSL or SASL_SSL"
    )


class ApiVersionsNegotiation:
    """One dialogue of ``core/versions.py`` under way, with the outcomes of its probe. ``probe``: to be sent next, or
    sent."""

    def __init__(self, versions_dialogue: VersionsDialogue) -> None:
        self._dialogue = versions_dialogue
        self.probe: Probe = next(versions_dialogue)
        self._outcomes: list[Outcome | None] = [None] * len(self.probe.requests)

    def note(self, index: int, outcome: Outcome) -> None:
        """The outcome of one request of the probe."""
        self._outcomes[index] = outcome

    def note_rest(self, outcome: NoAnswer) -> None:
        """The outcome of all requests that have none yet."""
        self._outcomes = [outcome if known is None else known for known in self._outcomes]

    @property
    def is_answered(self) -> bool:
        """Whether each request of the probe has its outcome."""
        return None not in self._outcomes

    def advance(self) -> NegotiatedVersions | None:
        """Send the outcomes to the dialogue: its result, or None when there is another probe to send.

        Errors of the dialogue pass through and end it.
        """
        outcomes = tuple(outcome for outcome in self._outcomes if outcome is not None)
        try:
            self.probe = self._dialogue.send(outcomes)
        except StopIteration as end:
            found: NegotiatedVersions = end.value
            return found
        self._outcomes = [None] * len(self.probe.requests)
        return None


PROBE_TIMEOUT_S: Final = 2.0


class ListenerProbe(TransportHandler):
    """Asks a listener, in plaintext, which security protocol it has. ``on_result`` is called once: with the error that
    says what does not fit, or None.

    A broker sends nothing to a client whose ``security_protocol`` does not fit its listener: it closes the connection,
    as a broker in trouble does, and the client would retry for ever. (Seen on 4.3.0: plain bytes at a TLS port are
    answered with an alert, so that can be told; TLS at a plain port, and Metadata at one with SASL, cannot.) So, as
    long as none of a client's connections was ready, ApiVersions and SaslHandshake are sent on one more. The response
    tells a PLAINTEXT listener (ILLEGAL_SASL_STATE) from a SASL_PLAINTEXT one (a list of mechanisms); without one the
    first error stands. No name and no secret is sent. A client that was ready before does not ask: an error that
    nothing retries would be worse than a retry when a proxy closes connections for a broker that is just starting.
    """

    def __init__(
        self,
        network: Network,
        addresses: Sequence[Address],
        options: ConnectionOptions,
        protocol: str,
        on_result: Callable[[AuthenticationError | None], object],
    ) -> None:
        self._protocol = protocol
        self._on_result: Callable[[AuthenticationError | None], object] | None = on_result
        self._machine = ClientConnection(None)
        self._has_versions = False
        self._timer = DeadlineTimer(network.loop, self._on_timeout)
        self._timer.set(network.loop.time() + PROBE_TIMEOUT_S)
        self._transport = network.connect(addresses, self, options)

    def connected(self) -> None:
        for request in (ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")):
            self._transport.write(self._machine.send(request, 0))

    def data_received(self, data: bytes) -> None:
        for _, answer in self._machine.receive(data):
            if isinstance(answer, ApiVersionsResponse):
                self._has_versions = True
            elif isinstance(answer, SaslHandshakeResponse) and self._has_versions:
                wants_none = answer.error_code == IllegalSaslStateError.errno
                self._end("PLAINTEXT" if wants_none else "SASL_PLAINTEXT")
                return
        if self._machine.failed is not None:
            self._end(None)

    def writable(self) -> None:
        return

    def closed(self, error: BaseException | None) -> None:
        self._end(None)

    def _on_timeout(self) -> None:
        self._end(None)

    def _end(self, found: str | None) -> None:
        on_result, self._on_result = self._on_result, None
        if on_result is None:
            return
        self._timer.set(float("inf"))
        self._transport.abort()
        if found is None or found == self._protocol:
            on_result(None)
            return
        kind = SslAuthenticationError if self._protocol.endswith("SSL") else IllegalSaslStateError
        on_result(kind(f"the listener is one of {found}, and this client's security_protocol is {self._protocol}"))


MAX_TOKEN_BYTES: Final = 1_000_000
TOKEN_RETRY_S: Final = 1.0
"""The wait after a token provider has failed during a renewal; a tenth of the session, if that is shorter."""


class SaslAuthentication:
    """Runs one dialogue of ``core/authentication.py`` over ``machine`` and ``transport``: of a new connection, or of
    one that is ready. ``done`` is called once, with the result or the error.

    Its requests are in flight in the machine like any others: the reader of the connection completes their futures.
    ``awaits`` is the request under way; with :attr:`takes_tokens` the bytes received are for :meth:`token_received`.
    """

    def __init__(
        self,
        dialogue: Authenticating,
        machine: ClientConnection,
        transport: Transport,
        loop: Loop,
        timeout_s: float,
        done: Callable[[Authenticated | KafkaError], object],
    ) -> None:
        self.deadline = loop.time() + timeout_s
        self.awaits: type[Request[Any]] | None = None
        self._dialogue = dialogue
        self._machine = machine
        self._transport = transport
        self._timeout_s = timeout_s
        self._done: Callable[[Authenticated | KafkaError], object] | None = done
        self._frames: FrameReader | None = None

    @property
    def takes_tokens(self) -> bool:
        """Frames received are tokens, not responses."""
        return self._frames is not None

    def begin(self) -> None:
        self._advance(None)

    def abandon(self) -> None:
        """The connection has ended: do not call ``done``."""
        self._done = None

    def token_received(self, data: bytes) -> None:
        """Bytes, while :attr:`takes_tokens`. KafkaProtocolError for what is no frame."""
        assert self._frames is not None
        for token in self._frames.feed(data):
            self._advance(token)

    def closed_error(self) -> KafkaError:
        """The error for a connection that the broker closed at this point."""
        return closed_during_sasl(self.awaits)

    def _advance(self, outcome: Any) -> None:
        if self._done is None:
            return
        self._frames = None
        try:
            is_error = isinstance(outcome, BaseException)
            self._run_step(self._dialogue.throw(outcome) if is_error else self._dialogue.send(outcome))
        except StopIteration as end:
            self._end(end.value)
        except KafkaError as error:
            self._end(error)

    def _run_step(self, step: NextSaslRequest | Token) -> None:
        if isinstance(step, Token):
            self.awaits = None
            self._frames = FrameReader(MAX_TOKEN_BYTES)
            self._transport.write(frame(step.data))
            return
        from kafka.client.connection import PendingRequest  # which imports this module

        self.awaits = type(step.request)
        pending = PendingRequest(step.request, self.deadline, self._timeout_s, is_internal=True)
        chunks = self._machine.send(step.request, step.version, self.deadline, pending)
        pending.future.add_both(self._advance)
        self._transport.write(chunks)

    def _end(self, outcome: Authenticated | KafkaError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


class SaslSession:
    """The authentication of one connection that is ready, renewed before its lifetime ends (KIP-368).
    :attr:`is_held`: send nothing now.

        --plan.renew_at--> a mechanism is made (a token may take its time; requests go on)
        --it is there----> held: requests wait, those in flight are completed; SaslHandshake is sent behind them
        --authenticated--> requests go on, in their order, until the next time
        --refused--------> the connection is closed with the error, with which its requests fail
        --plan.quiet_at--> held, also when there is no token yet: the end of the session is near

    Nothing is lost or overtaken: held requests wait in the connection's own queue, and a broker answers in order.
    """

    def __init__(self, connection: BrokerConnection, security: ClientSecurity, loop: Loop, rng: Rng) -> None:
        self.is_held = False
        self._connection = connection
        self._security = security
        self._loop = loop
        self._rng = rng
        self._plan: SaslPlan = NO_RENEWAL
        self._authenticated: Authenticated | None = None
        self._mechanism_request: object | None = None  # identity of the one under way: later ones are dropped
        self._renewal: SaslAuthentication | None = None

    def begin(self, authenticated: Authenticated) -> None:
        """The connection was authenticated just now."""
        self._authenticated = authenticated
        self._plan = plan_renewal(authenticated, self._loop.time(), self._rng.random())
        self._connection.wake_by(self.next_deadline())

    def end(self) -> None:
        """The connection has ended."""
        if self._renewal is not None:
            self._renewal.abandon()
        self._authenticated = self._renewal = self._mechanism_request = None
        self._plan = NO_RENEWAL
        self.is_held = False

    def next_deadline(self) -> float:
        """When :meth:`on_time` is next to be called."""
        if self._renewal is not None:
            return inf  # its requests have their own
        renew_at = inf if self._mechanism_request is not None else self._plan.renew_at
        return renew_at if self.is_held else min(renew_at, self._plan.quiet_at)

    def on_time(self, now: float) -> None:
        """Hold requests, and begin the renewal, when that is due."""
        if self._renewal is not None or self._authenticated is None:
            return
        if now >= self._plan.quiet_at:
            self.is_held = True
        if now >= self._plan.renew_at and self._mechanism_request is None:
            request_id = self._mechanism_request = object()
            self._security.new_mechanism(self._loop).add_both(lambda outcome: self._on_mechanism(request_id, outcome))

    def _on_mechanism(self, request_id: object, outcome: ClientMechanism | BaseException) -> None:
        authenticated = self._authenticated
        if request_id is not self._mechanism_request or authenticated is None:
            return
        self._mechanism_request = None
        if isinstance(outcome, BaseException):
            self._mechanism_failed(outcome, authenticated)
            return
        self.is_held = True
        self._renewal = self._connection.authenticate(sasl_login(outcome, authenticated.versions), self._renewed)
        self._renewal.begin()

    def _mechanism_failed(self, error: BaseException, authenticated: Authenticated) -> None:
        """Retry until the session ends; after that only a new connection can authenticate."""
        now = self._loop.time()
        retry_at = now + min(TOKEN_RETRY_S, authenticated.lifetime_s / 10)
        known = error if isinstance(error, KafkaError) else KafkaError(str(error))
        if not known.retriable or retry_at >= self._plan.ends_at:
            self._connection.session_failed(known)
            return
        log.info("%s: cannot re-authenticate yet, retrying: %s", self._connection.name, known)
        self._plan = self._plan._replace(renew_at=retry_at)
        self._connection.wake_by(self.next_deadline())

    def _renewed(self, outcome: Authenticated | KafkaError) -> None:
        self._renewal = None
        if isinstance(outcome, KafkaError):
            self._connection.session_failed(outcome)
            return
        log.debug("%s: re-authenticated", self._connection.name)
        self.is_held = False
        self.begin(outcome)
        self._connection.session_renewed()

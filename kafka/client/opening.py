"""From a transport that stands to a connection that may be used: who we are, then what the broker speaks.

::

    AUTHENTICATING   with SASL: a mechanism is asked for, then a dialogue of core/authentication.py
    GREETING         a greeting of core/versions.py; the greeting of an old broker may need several transports, each of
                     which is authenticated first

:class:`Opening` holds both for one :class:`~kafka.client.connection.BrokerConnection`, which keeps the state, the
transports and the back-off, and is told how it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Protocol

from kafka.client.authentication import Authentication
from kafka.client.greeting import GreetingRun
from kafka.client.link import LinkSettings
from kafka.core.authentication import Authenticated, authenticate
from kafka.core.connection import ClientConnection
from kafka.core.sasl import ClientMechanism
from kafka.core.states import Link
from kafka.core.versions import Discovery, Greeting, NoAnswer
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    SaslAuthenticationFailedError,
    SslAuthenticationError,
)
from kafka.net.loop import Loop
from kafka.net.transport import Transport
from kafka.wire.frame import SPEAKS_TLS
from kafka.wire.message import Response

log = logging.getLogger(__name__)

MOST_TOKEN_LOSSES = 3
"""The third time that a broker hangs up on a token, and none of the client's connections came about, that means no."""


class OpeningLink(Protocol):
    """What an opening asks of its connection, and tells it."""

    @property
    def name(self) -> str: ...

    def enter(self, state: Link) -> None:
        """The next phase begins."""
        ...

    def opened(self, discovery: Discovery, authenticated: Authenticated | None) -> None:
        """It may be used. ``authenticated``: None without SASL."""
        ...

    def opening_failed(self, error: KafkaError) -> None:
        """It may not."""
        ...

    def opening_suspect(self, error: KafkaError) -> None:
        """It may not, as a server does that is in trouble, or that wants something else."""
        ...

    def drop_transport(self) -> None:
        """The transport serves no longer."""
        ...

    def dial_again(self) -> None:
        """Another transport is needed to go on."""
        ...

    def wake_by(self, when: float) -> None:
        """Call :meth:`Opening.on_time` at this instant, or earlier."""
        ...


class Opening:
    """One connection's way to being ready, again for each time that it connects."""

    def __init__(
        self, link: OpeningLink, settings: LinkSettings, loop: Loop, greeting: Callable[[], Greeting | Discovery]
    ) -> None:
        self._link = link
        self._settings = settings
        self._loop = loop
        self._new_greeting = greeting
        self._machine: ClientConnection | None = None
        self._transport: Transport | None = None
        self._greeting: GreetingRun | None = None
        self._authentication: Authentication | None = None
        self._authenticated: Authenticated | None = None
        self._wanted: object | None = None  # the question for a mechanism that is under way
        self._deadline = inf  # of the authentication, the question for a mechanism included

    def begin(self, machine: ClientConnection, transport: Transport) -> None:
        """A transport stands."""
        self._machine, self._transport = machine, transport
        self._authenticated = None
        security = self._settings.security
        if not security.with_sasl:
            self._greet()
            return
        self._link.enter(Link.AUTHENTICATING)
        self._deadline = self._loop.time() + self._settings.request_timeout_s
        self._link.wake_by(self._deadline)
        question = self._wanted = object()
        security.new_mechanism(self._loop).add_both(lambda outcome: self._authenticate(question, outcome))

    def reset(self) -> None:
        """The connection has ended, or is ready: nothing is left to do."""
        self._detach()
        self._greeting = None

    def next_deadline(self) -> float:
        """When :meth:`on_time` is to be called, beside the deadlines of what is in flight."""
        return self._deadline

    def data_received(self, data: bytes) -> None:
        authentication, machine = self._authentication, self._machine
        if machine is None:
            return
        if authentication is None:
            self._greeted(machine, data)
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
            self._fail(_tls_there(machine.failed) or machine.failed)

    def closed(self) -> None:
        """The broker closed the transport."""
        if self._authentication is not None:
            self._fail(self._hung_up(self._authentication))
        elif self._greeting is not None and self._wanted is None:
            self._probe_ended(self._greeting, NoAnswer.CLOSED)
        else:
            self._fail(KafkaConnectionError("closed the connection before authentication began"))

    def on_time(self, now: float) -> None:
        """Something may be overdue."""
        if now >= self._deadline:
            doing = "the token provider has not answered" if self._wanted is not None else "not authenticated"
            self._fail(KafkaConnectionError(f"{doing} within {self._settings.request_timeout_s:g} s"))
        elif self._greeting is not None and self._machine is not None and self._machine.overdue(now):
            self._probe_ended(self._greeting, NoAnswer.SILENT)

    def _detach(self) -> None:
        """Of no transport any more. The greeting stays: it may go on over the next one."""
        if self._authentication is not None:
            self._authentication.abandon()
        self._machine = self._transport = self._authentication = self._wanted = None
        self._deadline = inf

    def _fail(self, error: KafkaError) -> None:
        self.reset()
        self._link.opening_failed(error)

    # -- who we are ----------------------------------------------------------------------------------------------------

    def _authenticate(self, question: object, outcome: ClientMechanism | BaseException) -> None:
        machine, transport = self._machine, self._transport
        if question is not self._wanted or machine is None or transport is None:
            return
        self._wanted = None
        if isinstance(outcome, BaseException):
            self._fail(outcome if isinstance(outcome, KafkaError) else KafkaConnectionError(str(outcome)))
            return
        left_s = self._deadline - self._loop.time()
        self._authentication = Authentication(
            authenticate(outcome, self._settings.software), machine, transport, self._loop, left_s, self._known
        )
        self._authentication.begin()

    def _known(self, outcome: Authenticated | KafkaError) -> None:
        """The broker knows us, or does not want to."""
        self._authentication = None
        self._deadline = inf
        if isinstance(outcome, KafkaError):
            self._fail(outcome)
            return
        self._authenticated = outcome
        self._greet()

    def _hung_up(self, authentication: Authentication) -> KafkaError:
        """What it means that the broker closed the connection now."""
        error, security = authentication.hung_up(), self._settings.security
        if not authentication.takes_tokens:
            return error
        security.token_losses += 1
        if security.is_proven or security.token_losses < MOST_TOKEN_LOSSES:
            return error
        return SaslAuthenticationFailedError(str(error.args[0]))

    # -- what the broker speaks ----------------------------------------------------------------------------------------

    def _greet(self) -> None:
        self._link.enter(Link.GREETING)
        if self._greeting is None:
            greeting = self._new_greeting()
            if isinstance(greeting, Discovery):
                self._done(greeting)
                return
            self._greeting = GreetingRun(greeting)
        self._send_probe(self._greeting)

    def _send_probe(self, run: GreetingRun) -> None:
        machine, transport = self._machine, self._transport
        assert machine is not None and transport is not None
        deadline = self._loop.time() + min(self._settings.greeting_step_s, self._settings.request_timeout_s)
        last = len(run.probe.requests) - 1
        for index, (request, version) in enumerate(run.probe.requests):
            transport.write(machine.send(request, version, deadline, index, skippable=index < last))
        self._link.wake_by(deadline)

    def _greeted(self, machine: ClientConnection, data: bytes) -> None:
        run = self._greeting
        if run is None:
            return
        for call, answer in machine.receive(data):
            if isinstance(answer, Response):
                run.note(call.owner, answer)
            else:
                run.note(call.owner, NoAnswer.SILENT if answer is None else NoAnswer.GARBLED)
        if machine.failed is not None:
            log.debug("%s: %s", self._link.name, machine.failed)
            secured = _tls_there(machine.failed)
            if secured is not None:
                self._fail(secured)
            else:
                self._probe_ended(run, NoAnswer.GARBLED)
        elif run.is_answered:
            self._probed(run)

    def _probed(self, run: GreetingRun) -> None:
        """All requests of a probe have their outcome: go on, over this transport or a new one."""
        try:
            discovery = run.advance()
        except KafkaError as error:
            self._fail(error)
            return
        if discovery is not None:
            if self._transport is None:
                self.reset()
                self._link.opening_suspect(KafkaConnectionError("closed the connection during the greeting"))
            else:
                self._done(discovery)
        elif self._transport is not None:
            self._send_probe(run)
        else:
            self._link.dial_again()

    def _probe_ended(self, run: GreetingRun, outcome: NoAnswer) -> None:
        """The transport can serve the greeting no longer."""
        machine = self._machine
        self._detach()
        self._link.drop_transport()
        if machine is not None:
            machine.abandon()
        run.note_rest(outcome)
        self._probed(run)

    def _done(self, discovery: Discovery) -> None:
        authenticated = self._authenticated
        self.reset()
        self._link.opened(discovery, authenticated)


def _tls_there(fault: KafkaProtocolError) -> SslAuthenticationError | None:
    """The error for bytes that are TLS where plain ones were awaited."""
    if SPEAKS_TLS not in fault.text:
        return None
    return SslAuthenticationError(
        "it answers with TLS, and this client speaks none: security_protocol is to be SSL, or SASL_SSL"
    )

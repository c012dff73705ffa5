"""Authentication over a connection: a dialogue of ``core/authentication.py`` carried out, and renewed before it ends.

:class:`Authentication` is one dialogue over one transport: of a new connection (``opening.py``), or of one that lives.
:class:`Session` is what a connection has of it afterwards: it renews it (KIP-368)::

    --plan.renew_at--> a mechanism is asked for (a token may take its time; requests go on)
    --it is there----> held: requests wait, those in flight are answered; SaslHandshake goes out behind them
    --authenticated--> requests go on, in their order, until the next time
    --refused--------> the connection ends with the error, and what was in flight or waits fails with it
    --plan.quiet_at--> held, also when there is no token yet: the session's end is near

Nothing is lost or overtaken: what is held waits in the connection's own queue, and a broker answers in order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

from kafka.client.link import Exchange
from kafka.client.security import ClientSecurity
from kafka.core.authentication import (
    NEVER,
    Ask,
    Authenticated,
    Authenticating,
    Plan,
    Token,
    hung_up,
    log_in,
    plan,
)
from kafka.core.connection import ClientConnection
from kafka.core.retry import Rng
from kafka.core.sasl import ClientMechanism
from kafka.errors import KafkaError
from kafka.net.loop import Loop
from kafka.net.transport import Transport
from kafka.wire.frame import FrameReader, frame
from kafka.wire.message import Request

log = logging.getLogger(__name__)

MOST_TOKEN_BYTES: Final = 1_000_000
RETRY_S: Final = 1.0
"""After a token could not be had for a renewal; a tenth of the session, if that is shorter."""


class Authentication:
    """One dialogue, over ``machine`` and ``transport``. ``done`` is called once, with what came of it.

    Its requests are exchanges like any others in the machine: whoever reads the connection completes their futures.
    ``awaits`` is the request under way; with :attr:`takes_tokens` what comes is to be handed to :meth:`token_received`.
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
        """Frames that come are tokens, not answers."""
        return self._frames is not None

    def begin(self) -> None:
        self._go_on(None)

    def abandon(self) -> None:
        """The connection is gone: nobody is to be told."""
        self._done = None

    def token_received(self, data: bytes) -> None:
        """Bytes, while :attr:`takes_tokens`. KafkaProtocolError for what is no frame."""
        assert self._frames is not None
        for token in self._frames.feed(data):
            self._go_on(token)

    def hung_up(self) -> KafkaError:
        """The broker closed the connection: what that means at this point."""
        return hung_up(self.awaits)

    def _go_on(self, outcome: Any) -> None:
        if self._done is None:
            return
        self._frames = None
        try:
            is_error = isinstance(outcome, BaseException)
            self._take(self._dialogue.throw(outcome) if is_error else self._dialogue.send(outcome))
        except StopIteration as end:
            self._end(end.value)
        except KafkaError as error:
            self._end(error)

    def _take(self, step: Ask | Token) -> None:
        if isinstance(step, Token):
            self.awaits = None
            self._frames = FrameReader(MOST_TOKEN_BYTES)
            self._transport.write(frame(step.data))
            return
        self.awaits = type(step.request)
        exchange = Exchange(step.request, self.deadline, self._timeout_s, is_internal=True)
        chunks = self._machine.send(step.request, step.version, self.deadline, exchange)
        exchange.future.add_both(self._go_on)
        self._transport.write(chunks)

    def _end(self, outcome: Authenticated | KafkaError) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcome)


class SessionLink(Protocol):
    """What a session asks of its connection."""

    @property
    def name(self) -> str: ...

    def authenticate(
        self, dialogue: Authenticating, done: Callable[[Authenticated | KafkaError], object]
    ) -> Authentication:
        """Begin a dialogue on the connection as it is, behind what is in flight."""
        ...

    def session_renewed(self) -> None:
        """Requests may go on."""
        ...

    def session_failed(self, error: KafkaError) -> None:
        """The connection is of no use any more."""
        ...

    def wake_by(self, when: float) -> None:
        """Call :meth:`Session.on_time` at this instant, or earlier."""
        ...


class Session:
    """The authentication of one connection, from when it is ready. :attr:`is_held`: send nothing now."""

    def __init__(self, link: SessionLink, security: ClientSecurity, loop: Loop, rng: Rng) -> None:
        self.is_held = False
        self._link = link
        self._security = security
        self._loop = loop
        self._rng = rng
        self._plan: Plan = NEVER
        self._authenticated: Authenticated | None = None
        self._wanted: object | None = None  # the question for a mechanism that is under way
        self._renewal: Authentication | None = None

    def begin(self, authenticated: Authenticated) -> None:
        """It holds from now on."""
        self._authenticated = authenticated
        self._plan = plan(authenticated, self._loop.time(), self._rng.random())
        self._link.wake_by(self.next_deadline())

    def end(self) -> None:
        """The connection has ended."""
        if self._renewal is not None:
            self._renewal.abandon()
        self._authenticated = self._renewal = self._wanted = None
        self._plan = NEVER
        self.is_held = False

    def next_deadline(self) -> float:
        """When :meth:`on_time` is next to be called."""
        if self._renewal is not None:
            return inf  # its requests have their own
        when = inf if self._wanted is not None else self._plan.renew_at
        return when if self.is_held else min(when, self._plan.quiet_at)

    def on_time(self, now: float) -> None:
        """Look whether something is due."""
        if self._renewal is not None or self._authenticated is None:
            return
        if now >= self._plan.quiet_at:
            self.is_held = True
        if now >= self._plan.renew_at and self._wanted is None:
            question = self._wanted = object()
            self._security.new_mechanism(self._loop).add_both(lambda outcome: self._got(question, outcome))

    def _got(self, question: object, outcome: ClientMechanism | BaseException) -> None:
        authenticated = self._authenticated
        if question is not self._wanted or authenticated is None:
            return
        self._wanted = None
        if isinstance(outcome, BaseException):
            self._no_mechanism(outcome, authenticated)
            return
        self.is_held = True
        self._renewal = self._link.authenticate(log_in(outcome, authenticated.versions), self._renewed)
        self._renewal.begin()

    def _no_mechanism(self, error: BaseException, authenticated: Authenticated) -> None:
        """Try again while there is time; behind the session's end a new connection has to."""
        now = self._loop.time()
        retry_at = now + min(RETRY_S, authenticated.lifetime_s / 10)
        known = error if isinstance(error, KafkaError) else KafkaError(str(error))
        if not known.retriable or retry_at >= self._plan.ends_at:
            self._link.session_failed(known)
            return
        log.info("%s: the session is not renewed yet: %s", self._link.name, known)
        self._plan = self._plan._replace(renew_at=retry_at)
        self._link.wake_by(self.next_deadline())

    def _renewed(self, outcome: Authenticated | KafkaError) -> None:
        self._renewal = None
        if isinstance(outcome, KafkaError):
            self._link.session_failed(outcome)
            return
        log.debug("%s: authenticated again", self._link.name)
        self.is_held = False
        self.begin(outcome)
        self._link.session_renewed()

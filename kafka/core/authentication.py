"""SASL from the client's side: the dialogue, and when it has to be repeated.

::

    authenticate(mechanism)     ApiVersions -> which versions there are, then:
    sasl_login(mechanism, versions)
                                SaslHandshake v1 -> SaslAuthenticate ... -> Authenticated        since 1.0 (KIP-152)
                                SaslHandshake v0 -> frames that are tokens ... -> Authenticated  0.10 and 0.11 (KIP-43)

The dialogue yields :class:`NextSaslRequest` (and is sent the response) or :class:`Token` (a frame without a header;
it is sent the bytes of the answer) and raises an AuthenticationError that says whose fault it was. It owns no
connection: ``client/handshake.py`` runs it, for a new connection and again on one that is ready (KIP-368). The
server's side is ``sasl/server.py``; a mechanism is a module of ``sasl``.

A session with a ``session_lifetime_ms`` is renewed in time, see :func:`plan_renewal`.
"""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import Any, Final, NamedTuple

from kafka.core.connection import ApiRanges
from kafka.core.sasl import ClientMechanism, SaslError
from kafka.core.versions import negotiate_versions
from kafka.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    for_code,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka.wire.message import Request, Response

MAX_STEPS: Final = 20
"""Of a mechanism: those here need one to three."""

MIN_RENEWAL: Final = 0.85
MAX_RENEWAL: Final = 0.95
"""Of a session's length, when it is renewed: between the two by chance, so that the connections of many clients that
were made together do not come back together. The same as in Java's client."""

RENEWAL_MARGIN_S: Final = 0.6
"""At least so long before a session's end no request is sent: the session is over when a broker *reads* a request after
its end, which closes the connection, and it reads none while it holds a fetch. SaslHandshake alone may come later. A
third of the session at most."""

HANDSHAKE_INTERVAL_S: Final = 1.0
"""A broker takes no second SaslHandshake within this time after one (measured on 4.3.0). Counted from the end of the
authentication, which is later than where any broker begins to count."""


class NextSaslRequest(NamedTuple):
    """Send the request; the dialogue is sent the response, or an error of the connection is thrown in."""

    request: Request[Any]
    version: int


class Token(NamedTuple):
    """Send the bytes as a frame without a header; the dialogue is sent the frame of the answer."""

    data: bytes

    def __repr__(self) -> str:
        return f"Token(<{len(self.data)} bytes>)"  # a password, perhaps


class SaslVersions(NamedTuple):
    """The versions of the two requests; ``authenticate`` None: tokens without headers."""

    handshake: int
    authenticate: int | None


class Authenticated(NamedTuple):
    """The broker has authenticated us. ``lifetime_s``: of the session; infinity without ``session_lifetime_ms``."""

    versions: SaslVersions
    lifetime_s: float


Authenticating = Generator[NextSaslRequest | Token, Any, Authenticated]


def authenticate(mechanism: ClientMechanism, software: tuple[str, str]) -> Authenticating:
    """The dialogue for a new connection. ``software``: our name and version, for ApiVersions.

    ApiVersions is sent twice over a listener with SASL: here, to find out how SASL is spoken, and after
    authentication, as over any other listener; Java's client does the same. Metadata cannot be sent along with the
    first, since a broker closes the connection on it.
    """
    dialogue = negotiate_versions(software)
    probe = next(dialogue)
    while True:
        ((request, version),) = probe.requests
        answer: Response = yield NextSaslRequest(request, version)
        try:
            probe = dialogue.send((answer,))
        except StopIteration as end:
            return (yield from sasl_login(mechanism, sasl_versions(end.value.ranges)))


def sasl_versions(ranges: ApiRanges) -> SaslVersions:
    """IncompatibleBrokerVersion for a broker without SaslHandshake, which came with 0.10."""
    handshake = ranges.choose(SaslHandshakeRequest)
    if SaslAuthenticateRequest.api_key in ranges and handshake > 0:
        return SaslVersions(handshake, ranges.choose(SaslAuthenticateRequest))
    if ranges.ranges[SaslHandshakeRequest.api_key][0] > 0:
        raise IncompatibleBrokerVersion("the broker has SaslHandshake v1, and no SaslAuthenticate")
    return SaslVersions(0, None)


def sasl_login(mechanism: ClientMechanism, versions: SaslVersions) -> Authenticating:
    """SaslHandshake and the mechanism's own steps.

    Errors: UnsupportedSaslMechanismError (with what the broker has), IllegalSaslStateError (the listener wants no
    SASL), SaslAuthenticationFailedError (refused, or the server has not proved itself), KafkaConnectionError.
    """
    handshake: SaslHandshakeResponse = yield NextSaslRequest(
        SaslHandshakeRequest(mechanism=mechanism.name), versions.handshake
    )
    if handshake.error_code:
        raise _handshake_refused(mechanism.name, handshake)
    lifetime_ms = 0
    token: bytes | None = mechanism.first()
    for _ in range(MAX_STEPS):
        if token is None:
            break
        if versions.authenticate is None:
            answer: bytes = yield Token(token)
        else:
            response: SaslAuthenticateResponse = yield NextSaslRequest(
                SaslAuthenticateRequest(auth_bytes=token), versions.authenticate
            )
            if response.error_code:
                raise _refused(mechanism.name, response)
            answer, lifetime_ms = response.auth_bytes, response.session_lifetime_ms
        try:
            token = mechanism.step(bytes(answer))
        except SaslError as error:
            raise SaslAuthenticationFailedError(f"SASL {mechanism.name}: {error}") from None
    if not mechanism.is_complete:
        raise SaslAuthenticationFailedError(f"SASL {mechanism.name}: the mechanism is not complete")
    return Authenticated(versions, lifetime_ms / 1000 if lifetime_ms > 0 else inf)


def _handshake_refused(name: str, handshake: SaslHandshakeResponse) -> AuthenticationError | Exception:
    error = for_code(handshake.error_code)
    if error is UnsupportedSaslMechanismError:
        offered = ", ".join(sorted(handshake.mechanisms)) or "none"
        return error(f"the broker does not have the SASL mechanism {name} on this listener; it has: {offered}")
    if error is IllegalSaslStateError:
        return error(
            "the broker's listener asks for no authentication: "
            "security_protocol is to be PLAINTEXT there, or SSL with TLS"
        )
    return error("SaslHandshake")


def _refused(name: str, response: SaslAuthenticateResponse) -> Exception:
    error = for_code(response.error_code)
    return error(f"SASL {name}: {response.error_message or 'the broker gives no reason'}")


def closed_during_sasl(awaited: type[Request[Any]] | None) -> KafkaConnectionError:
    """The broker closed the connection while the answer to ``awaited`` (None: to a token) was due."""
    if awaited is None:
        # An old broker ends like this when it does not know the password, and when it is in trouble.
        return KafkaConnectionError(
            "closed the connection during SASL; a broker before 1.0 does so when the name or the password is wrong"
        )
    name = awaited.__name__.removesuffix("Request")
    return KafkaConnectionError(f"closed the connection on {name}, during authentication")


class SaslPlan(NamedTuple):
    """When a session is to be renewed (``renew_at``), from when on no request is sent until that is done
    (``quiet_at``), and its end (``ends_at``), all in monotonic seconds."""

    renew_at: float = inf
    quiet_at: float = inf
    ends_at: float = inf


NO_RENEWAL: Final = SaslPlan()


def plan_renewal(authenticated: Authenticated, now: float, chance: float) -> SaslPlan:
    """The plan for a session that began just now. ``chance``: from 0 to 1.

    A lifetime of 1 s, the shortest that makes sense, gives 0.67 s of work and 0.33 s of quiet: the next handshake has
    to wait for :data:`HANDSHAKE_INTERVAL_S`, and may come after the session's end, when nothing else may.
    """
    lifetime_s = authenticated.lifetime_s
    if lifetime_s == inf:
        return NO_RENEWAL
    margin_s = min(RENEWAL_MARGIN_S, lifetime_s / 3)
    quiet_at = now + lifetime_s - margin_s
    wanted_at = min(now + lifetime_s * (MIN_RENEWAL + (MAX_RENEWAL - MIN_RENEWAL) * chance), quiet_at)
    return SaslPlan(max(wanted_at, now + HANDSHAKE_INTERVAL_S), quiet_at, now + lifetime_s)

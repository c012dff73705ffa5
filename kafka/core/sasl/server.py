"""Which requests a listener with SASL admits: the dialogue around a mechanism, from the server's side.

As measured on Apache Kafka 4.3.0 (KIP-43, KIP-152, KIP-368):

    START       ApiVersions, once     -> passes; when it went well: VERSIONS
                SaslHandshake         -> v0: TOKENS, v1: REQUESTS; unknown mechanism: 33, and the end
                anything else         -> close the connection
    VERSIONS    SaslHandshake alone
    REQUESTS    SaslAuthenticate      -> a step of the mechanism: again REQUESTS, or DONE; refused: 58, and the end
                ApiVersions, SaslHandshake -> ILLEGAL_SASL_STATE (34), and the end; anything else -> the end
    TOKENS      frames that are tokens, without Kafka's headers; refused: the end without a response
    DONE        all passes; with a session lifetime, SaslHandshake begins again (not twice within a second), with the
                same mechanism and user; what comes after the lifetime, and is no SaslHandshake, closes the connection

"The end" comes after ``connection.failed.authentication.delay.ms``, as does the response in front of it: guessing is
to be slow. This machine decides; the broker carries out. A session lifetime counts for old clients, too, though they
are not told (SaslHandshake v0, SaslAuthenticate v0).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kafka.core.sasl.mechanism import SaslError, ServerMechanism
from kafka.errors import IllegalSaslStateError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka.wire.message import Request, Response

REAUTHENTICATION_PAUSE_S: Final = 1.0
"""A second SaslHandshake within this time after one counts as any other request."""


class SaslServerState(enum.Enum):
    """Where the dialogue stands."""

    START = "start"
    VERSIONS = "versions"
    REQUESTS = "requests"
    TOKENS = "tokens"
    DONE = "done"
    ENDED = "ended"


class SaslResult(NamedTuple):
    """What to do about a request that the broker does not answer.

    ``token``: to be sent as a frame without a header. ``is_last``: the connection ends behind it. ``is_delayed``: all
    that only after the delay. Neither response nor token, and last: close the connection.
    """

    response: Response | None = None
    token: bytes | None = None
    is_last: bool = False
    is_delayed: bool = False


CLOSE_NOW: Final = SaslResult(is_last=True)
CLOSE_DELAYED: Final = SaslResult(is_last=True, is_delayed=True)


class SaslServer:
    """One connection's authentication.

    ``mechanisms``: those that are offered; ``begin`` makes the server's side of one. ``lifetime_ms``: Kafka's
    ``connections.max.reauth.ms``, 0 for sessions without an end.
    """

    def __init__(
        self, mechanisms: Sequence[str], begin: Callable[[str], ServerMechanism], lifetime_ms: int = 0
    ) -> None:
        self.user: str | None = None
        """Who is authenticated; None before."""
        self.state = SaslServerState.START
        self.mechanism_name: str | None = None
        self.expires_at: float | None = None
        """Monotonic s."""
        self._mechanisms = tuple(mechanisms)
        self._begin = begin
        self._lifetime_ms = lifetime_ms
        self._mechanism: ServerMechanism | None = None
        self._reauthenticated_at: float | None = None
        self.failure: str | None = None
        """Why it was refused, for the log."""

    @property
    def takes_tokens(self) -> bool:
        """Frames are tokens now, not requests."""
        return self.state is SaslServerState.TOKENS

    def admit(self, request: Request[Any], version: int, now: float) -> SaslResult | None:
        """What to do about a request; None: the broker answers it."""
        state = self.state
        if state is SaslServerState.DONE:
            return self._while_open(request, version, now)
        if state is SaslServerState.REQUESTS:
            return self._while_authenticating(request, version, now)
        if isinstance(request, SaslHandshakeRequest) and state in (SaslServerState.START, SaslServerState.VERSIONS):
            return self._handshake(request, version)
        if isinstance(request, ApiVersionsRequest) and state is SaslServerState.START:
            return None
        return self._end(CLOSE_NOW)

    def admit_unknown(self, is_api_versions: bool, now: float) -> SaslResult | None:
        """The same for a request that cannot be read: of ApiVersions in an unknown version, or of anything else."""
        if self.state is SaslServerState.DONE:
            return self._end(CLOSE_NOW) if self.expires_at is not None and now >= self.expires_at else None
        return None if is_api_versions and self.state is SaslServerState.START else self._end(CLOSE_NOW)

    def answered(self, response: Response | None) -> None:
        """What the broker answered to a request that passed: ApiVersions is had once."""
        if (
            self.state is SaslServerState.START
            and isinstance(response, ApiVersionsResponse)
            and response.error_code == 0
        ):
            self.state = SaslServerState.VERSIONS

    def token(self, data: bytes, now: float) -> SaslResult:
        """A frame without a header, while :attr:`takes_tokens`."""
        try:
            answer = self._step(data, now)
        except SaslError as error:
            self.failure = str(error)
            return self._end(CLOSE_DELAYED)
        return SaslResult(token=answer)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _while_open(self, request: Request[Any], version: int, now: float) -> SaslResult | None:
        is_over = self.expires_at is not None and now >= self.expires_at
        if isinstance(request, SaslHandshakeRequest) and self._lifetime_ms:
            last = self._reauthenticated_at
            if last is None or now - last >= REAUTHENTICATION_PAUSE_S:
                self._reauthenticated_at = now
                return self._handshake_again(request, version)
        if is_over:
            self.failure = "the session is over, and was not renewed"
            return self._end(CLOSE_NOW)
        return None  # SaslHandshake and SaslAuthenticate, too: their handlers say ILLEGAL_SASL_STATE

    def _while_authenticating(self, request: Request[Any], version: int, now: float) -> SaslResult:
        if isinstance(request, SaslAuthenticateRequest):
            return self._authenticate(request, now)
        self.failure = f"{type(request).__name__} in the midst of authentication"
        code = int(IllegalSaslStateError.errno or 0)
        response: Response | None = None
        if isinstance(request, SaslHandshakeRequest):
            response = SaslHandshakeResponse(error_code=code, mechanisms=[])
        elif isinstance(request, ApiVersionsRequest):
            response = ApiVersionsResponse(error_code=code, api_keys=[])
        return self._end(CLOSE_DELAYED._replace(response=response))

    def _handshake(self, request: SaslHandshakeRequest, version: int) -> SaslResult:
        name = request.mechanism
        if name not in self._mechanisms:
            self.failure = "a mechanism that is not enabled"
            code = int(UnsupportedSaslMechanismError.errno or 0)
            response = SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms))
            return self._end(CLOSE_DELAYED._replace(response=response))
        self.mechanism_name = name
        self._mechanism = self._begin(name)
        self.state = SaslServerState.REQUESTS if version else SaslServerState.TOKENS
        return SaslResult(SaslHandshakeResponse(error_code=0, mechanisms=list(self._mechanisms)))

    def _handshake_again(self, request: SaslHandshakeRequest, version: int) -> SaslResult:
        if request.mechanism not in self._mechanisms:
            self.failure = "re-authentication with a mechanism that is not enabled"
            return self._end(CLOSE_NOW)
        before = self.mechanism_name
        verdict = self._handshake(request, version)
        if request.mechanism != before:
            self._mechanism = None  # answered all the same, and refused with the next request
        return verdict

    def _authenticate(self, request: SaslAuthenticateRequest, now: float) -> SaslResult:
        if self._mechanism is None:
            self.failure = "re-authentication with another mechanism"
            return self._end(CLOSE_DELAYED)
        try:
            answer = self._step(request.auth_bytes, now)
        except SaslError as error:
            self.failure = str(error)
            code = int(SaslAuthenticationFailedError.errno or 0)
            response = SaslAuthenticateResponse(error_code=code, error_message=str(error), auth_bytes=b"")
            return self._end(CLOSE_DELAYED._replace(response=response))
        lifetime_ms = self._lifetime_ms if self.state is SaslServerState.DONE else 0
        return SaslResult(
            SaslAuthenticateResponse(
                error_code=0, error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms
            )
        )

    def _step(self, token: bytes, now: float) -> bytes:
        mechanism = self._mechanism
        if mechanism is None:
            raise SaslError("re-authentication with another mechanism")
        answer = mechanism.step(bytes(token))
        if mechanism.is_complete:
            if self.user is not None and mechanism.user != self.user:
                raise SaslError(
                    f"Cannot change principals during re-authentication from User.{self.user}: "
                    f"User.{mechanism.user}"
                )
            self.user = mechanism.user
            self._mechanism = None
            self.state = SaslServerState.DONE
            self.expires_at = now + self._lifetime_ms / 1000 if self._lifetime_ms else None
        return answer

    def _end(self, verdict: SaslResult) -> SaslResult:
        self.state = SaslServerState.ENDED
        self._mechanism = None
        return verdict

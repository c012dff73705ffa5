"""A scripted broker whose listener asks for SASL: ``SaslServer`` in front of :class:`ScriptedBroker`, for client tests.

OAUTHBEARER is here with a list of good tokens; our brokers do not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka.core.sasl import SaslError, ServerMechanism
from kafka.core.sasl.mechanism import PlainServer
from kafka.core.sasl.scram import HASHES, ScramServer, new_credential
from kafka.core.sasl.server import SaslResult, SaslServer
from kafka.net.transport import Network, Transport, TransportHandler
from kafka.protocol.framing import ReceivedRequest, UnknownRequest
from kafka.protocol.sasl import SaslAuthenticateRequest
from kafka.wire.frame import frame
from kafka.wire.message import Response
from test.support.scripted import MODERN, ScriptedBroker, _Peer

SASL_RANGES: Mapping[int, tuple[int, int]] = {**MODERN, 17: (0, 1), 36: (0, 2)}


class OauthBearerServer:
    """Lets in whoever shows one of ``tokens``; ``extensions`` are what was told last."""

    name = "OAUTHBEARER"

    def __init__(self, tokens: Callable[[], set[str]], seen: list[str]) -> None:
        self._tokens = tokens
        self._seen = seen
        self._is_refused = False
        self.is_complete = False
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        if self._is_refused:
            raise SaslError("Authentication failed due to an invalid token")
        text = token.decode()
        self._seen.append(text)
        if text.partition("auth=Bearer ")[2].partition("\x01")[0] in self._tokens():
            self.is_complete, self.user = True, "somebody"
            return b""
        self._is_refused = True
        return b'{"status": "invalid_token"}'


class SecuredBroker(ScriptedBroker):
    """``users``: name -> password, for PLAIN and SCRAM; ``tokens``, for OAUTHBEARER; both may change at any time."""

    def __init__(
        self,
        network: Network,
        *,
        mechanisms: tuple[str, ...] = ("PLAIN", *HASHES, "OAUTHBEARER"),
        lifetime_ms: int = 0,
        **options: Any,
    ) -> None:
        options.setdefault("ranges", SASL_RANGES)
        self.users = {"alice": "alice-secret"}
        self.tokens = {"good"}
        self.shown: list[str] = []
        """What was sent for OAUTHBEARER."""
        self.mechanisms = mechanisms
        self.lifetime_ms = lifetime_ms
        self.authentications = 0
        """Those that went well, renewals among them."""
        self.hung_up_on: list[str] = []
        """Requests that came when they must not."""
        self.holds_authenticate = False
        """SaslAuthenticate is not answered."""
        self.loop = network.loop
        super().__init__(network, **options)

    def mechanism(self, name: str) -> ServerMechanism:
        if name == "PLAIN":
            return PlainServer(self.users.get)
        if name == "OAUTHBEARER":
            return OauthBearerServer(lambda: self.tokens, self.shown)
        return ScramServer(
            name, lambda user: new_credential(name, self.users[user], b"salt") if user in self.users else None, "server"
        )

    def _accept(self, transport: Transport) -> TransportHandler:
        self.accepted += 1
        peer = _SecuredPeer(self, transport)
        self.open.append(peer)
        return peer


class _SecuredPeer(_Peer):
    def __init__(self, broker: SecuredBroker, transport: Transport) -> None:
        super().__init__(broker, transport)
        self._secured = broker
        self._sasl = SaslServer(broker.mechanisms, broker.mechanism, broker.lifetime_ms)

    def data_received(self, data: bytes) -> None:
        if not self._sasl.takes_tokens:
            super().data_received(data)
            return
        for token in self._frames.feed(data):
            self._carry_out(self._sasl.token(token, self._secured.loop.time()), 0, 0)

    def _handle(self, received: ReceivedRequest | UnknownRequest) -> None:
        broker = self._secured
        if isinstance(received, UnknownRequest):
            super()._handle(received)
            return
        before = self._sasl.expires_at
        verdict = self._sasl.admit(received.request, received.version, broker.loop.time())
        if verdict is None:
            super()._handle(received)
            return
        if broker.holds_authenticate and isinstance(received.request, SaslAuthenticateRequest):
            return
        if self._sasl.expires_at != before or (self._sasl.user and self._sasl.state.value == "done"):
            broker.authentications += 1
        if verdict.is_last and verdict.response is None:
            broker.hung_up_on.append(type(received.request).__name__)
        self._carry_out(verdict, received.version, received.correlation_id)

    def answer(self, answer: Any, version: int, correlation_id: int) -> None:
        super().answer(answer, version, correlation_id)
        if isinstance(answer, Response):
            self._sasl.answered(answer)

    def _carry_out(self, verdict: SaslResult, version: int, correlation_id: int) -> None:
        if verdict.token is not None:
            self.transport.write(frame(verdict.token))
        elif verdict.response is not None:
            super().answer(verdict.response, version, correlation_id)
        if verdict.is_last:
            self.transport.close()

"""What does the listener want? Asked without TLS when a server that never let us in hangs up without a word.

A broker says nothing to a client whose ``security_protocol`` does not fit its listener: it closes the connection, as a
server in trouble does, and trying again would go on for ever. So, as long as none of a client's connections has come
about, one more is made, on which ApiVersions and SaslHandshake are asked in the clear. What they are answered tells a
PLAINTEXT listener (ILLEGAL_SASL_STATE) from one of SASL_PLAINTEXT (a list of mechanisms); no answer tells nothing, and
the first error stands. No name and no secret is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kafka.core.connection import ClientConnection
from kafka.errors import AuthenticationError, IllegalSaslStateError, SslAuthenticationError
from kafka.net.loop import DeadlineTimer
from kafka.net.transport import Address, ConnectionOptions, Network, TransportHandler
from kafka.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.sasl import SaslHandshakeRequest, SaslHandshakeResponse

TIMEOUT_S: Final = 2.0


class Inquiry(TransportHandler):
    """One question. ``tell`` is called once: with the error that says what does not fit, or None."""

    def __init__(
        self,
        network: Network,
        addresses: Sequence[Address],
        options: ConnectionOptions,
        protocol: str,
        tell: Callable[[AuthenticationError | None], object],
    ) -> None:
        self._protocol = protocol
        self._tell: Callable[[AuthenticationError | None], object] | None = tell
        self._machine = ClientConnection(None)
        self._has_versions = False
        self._alarm = DeadlineTimer(network.loop, self._give_up)
        self._alarm.set(network.loop.time() + TIMEOUT_S)
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

    def _give_up(self) -> None:
        self._end(None)

    def _end(self, found: str | None) -> None:
        tell, self._tell = self._tell, None
        if tell is None:
            return
        self._alarm.set(float("inf"))
        self._transport.abort()
        if found is None or found == self._protocol:
            tell(None)
            return
        kind = SslAuthenticationError if self._protocol.endswith("SSL") else IllegalSaslStateError
        tell(kind(f"the listener is one of {found}, and this client's security_protocol is {self._protocol}"))

"""SaslHandshake and SaslAuthenticate where they are out of place: ILLEGAL_SASL_STATE (34).

On a listener with SASL they are taken before any handler sees them, by the connection's own
:class:`~kafka.core.sasl.server.SaslServer`: mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, tokens with Kafka's
headers (SaslHandshake v1) and without (v0), sessions with an end (``connections.max.reauth.ms``). What comes here was
sent on a listener without SASL, or by somebody who has been let in already.

Different from Apache Kafka 4.3.0: no GSSAPI, no OAUTHBEARER, no delegation tokens; mechanisms are listed in the order
of the setting; a request in the midst of authentication that is neither ApiVersions nor one of these two gets no
answer before its connection ends, where there it gets one without anything in it; a SCRAM proof of the wrong length is
refused like a wrong one, where there the connection ends without an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import IllegalSaslStateError
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker


@handles(SaslHandshakeRequest, versions=(0, 1))
def sasl_handshake(broker: Broker, call: Call[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error_code(IllegalSaslStateError), mechanisms=[])


@handles(SaslAuthenticateRequest, versions=(0, 2))
def sasl_authenticate(broker: Broker, call: Call[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error_code(IllegalSaslStateError),
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )

"""Carries out what a connection's :class:`~kafka.core.sasl.server.SaslServer` decides: answers, delays, ends.

Every request of a listener with SASL passes through here before any handler sees it; on other listeners none does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafka.broker.reply import Connection, Reply
from kafka.protocol.framing import API_VERSIONS_KEY, ReceivedRequest, UnknownRequest

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.core.sasl.server import SaslResult, SaslServer

log = logging.getLogger(__name__)


def admit(
    broker: Broker, connection: Connection, sasl: SaslServer, received: ReceivedRequest | UnknownRequest, now: float
) -> Reply | None:
    """The answer to a request that is not for the handlers; None: it is for them."""
    if isinstance(received, UnknownRequest):
        verdict = sasl.admit_unknown(received.api_key == API_VERSIONS_KEY, now)
    else:
        verdict = sasl.admit(received.request, received.version, now)
    return None if verdict is None else _carry_out(broker, connection, sasl, verdict, now)


def take_token(broker: Broker, connection: Connection, data: bytes, now: float) -> Reply:
    """Answer a frame that is a token without Kafka's headers (SaslHandshake v0)."""
    sasl = connection.sasl
    assert sasl is not None
    return _carry_out(broker, connection, sasl, sasl.token(data, now), now)


def _carry_out(broker: Broker, connection: Connection, sasl: SaslServer, verdict: SaslResult, now: float) -> Reply:
    if verdict.is_last:
        log.warning(
            "%r: authentication failed: %s", connection, sasl.failure or "a request that is not part of it"
        )
    if not verdict.is_delayed:
        reply = Reply.hanging_up() if verdict.is_last else Reply.of(verdict.response)
        reply.token = verdict.token
        return reply
    due_at = now + broker.config.number("connection.failed.authentication.delay.ms") / 1000
    reply = broker.park(connection, (), due_at, lambda is_last: verdict.response if is_last else None)
    reply.hang_up = verdict.response is None
    reply.and_then = lambda transport: transport.close()
    return reply

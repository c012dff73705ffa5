"""What befell a connection, as errors for people: which node, whose fault, and whether to try again.

What is the user's to put right (a certificate, a password, a setting that does not fit the listener) is an
AuthenticationError, with which nothing tries again; all else is a KafkaConnectionError.
"""

from __future__ import annotations

from contextlib import suppress

from kafka.client.link import Exchange
from kafka.errors import KafkaConnectionError, KafkaError, KafkaProtocolError, SslAuthenticationError
from kafka.net.transport import PeerClosed, TlsError


def ended(name: str, doing: str, error: BaseException | None) -> KafkaError:
    """The end of a transport. ``doing``: "cannot connect", "the connection was lost"."""
    if isinstance(error, TlsError) and error.is_final:
        return SslAuthenticationError(f"{name}: {error}")
    return KafkaConnectionError(f"{name}: {doing}: {reason(error)}")


def reason(error: BaseException | None) -> str:
    """In a few words."""
    if isinstance(error, PeerClosed):
        return "the broker closed it"
    return "closed" if error is None else getattr(error, "strerror", None) or str(error) or type(error).__name__


def named(error: KafkaError, name: str) -> KafkaError:
    """The error with the node in front of its text."""
    if isinstance(error, KafkaProtocolError):
        error.node = error.node or name
        return error
    with suppress(TypeError):
        other = type(error)(f"{name}: {error.args[0] if error.args else ''}")
        other.__cause__ = error.__cause__
        return other
    return error


def fail_all(exchanges: list[Exchange], error: BaseException) -> None:
    """End what was handed to a connection that is gone."""
    for exchange in exchanges:
        if not exchange.future.is_done:
            exchange.future.failure(error if isinstance(error, KafkaError) else KafkaConnectionError(str(error)))

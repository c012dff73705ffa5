"""Tokens for OAUTHBEARER from a user's provider, which may block, and may fail, without harm to the loop.

The provider is called in a thread of its own, for each authentication: a new connection, and a session that is renewed.
It is called once at a time: authentications that begin meanwhile share the token. Keeping a token until it is too old
is the provider's business, since it alone knows how long that is.

    it raises                 KafkaConnectionError, so that the connection is tried again after its back-off: whoever
                              gives out tokens is a server like others, and comes back
    it gives what is no token SaslAuthenticationFailedError: the provider is wrong, and stays so
    it does not come back     the authentication runs out of time; the next one waits for the same call

Source: KIP-255, KIP-342; the provider's shape is kafka-python's (``token()``, ``extensions()``), or any function that
gives a token.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any

from kafka.core.sasl import ClientMechanism
from kafka.core.sasl.oauthbearer import OauthBearerClient
from kafka.errors import KafkaConnectionError, KafkaError, SaslAuthenticationFailedError
from kafka.future import Future
from kafka.net.loop import Loop

log = logging.getLogger(__name__)


class TokenSource:
    """One client's tokens. All methods on the loop's thread."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._waiting: list[Future[ClientMechanism]] | None = None

    def __repr__(self) -> str:
        return f"<TokenSource {type(self._provider).__name__}>"

    def new_mechanism(self, loop: Loop) -> Future[ClientMechanism]:
        """The mechanism with a token that was asked for from now on, or is being asked for."""
        future: Future[ClientMechanism] = Future()
        if self._waiting is not None:
            self._waiting.append(future)
            return future
        self._waiting = [future]
        try:
            threading.Thread(target=self._ask, args=(loop,), name="kafka-token", daemon=True).start()
        except RuntimeError as error:  # no more threads to be had just now
            self._told(KafkaConnectionError(f"the token provider cannot be called: {error}"))
        return future

    def _ask(self, loop: Loop) -> None:
        """In the thread."""
        outcome: tuple[str, dict[str, str]] | KafkaError
        try:
            outcome = _call(self._provider)
        except KafkaError as error:
            outcome = error
        except BaseException as error:  # SystemExit, too: who waits has to hear of it
            # Its class alone: the text of somebody else's error may have the token, or what it is bought with.
            log.warning("the token provider failed: %s", type(error).__name__)
            outcome = KafkaConnectionError(f"the token provider failed: {type(error).__name__}")
            outcome.__cause__ = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(self._told, outcome)

    def _told(self, outcome: tuple[str, dict[str, str]] | KafkaError) -> None:
        waiting, self._waiting = self._waiting or [], None
        for future in waiting:
            if isinstance(outcome, KafkaError):
                future.failure(outcome)
            else:
                future.success(OauthBearerClient(*outcome))


def _call(provider: Any) -> tuple[str, dict[str, str]]:
    """Token and extensions; SaslAuthenticationFailedError for what cannot be sent."""
    token = provider.token() if callable(getattr(provider, "token", None)) else provider()
    extensions = getattr(provider, "extensions", None)
    more = extensions() if callable(extensions) else None
    if isinstance(token, bytes):
        token = token.decode("ascii", "replace")
    if not isinstance(token, str):
        raise SaslAuthenticationFailedError(f"the token provider gave {type(token).__name__}, and a token is a text")
    if more is not None and not isinstance(more, Mapping):
        raise SaslAuthenticationFailedError("the token provider's extensions() gave no mapping of names to texts")
    found = {str(name): str(value) for name, value in (more or {}).items()}
    try:
        OauthBearerClient(token, found)
    except ValueError as error:
        raise SaslAuthenticationFailedError(f"the token provider: {error}") from None
    return token, found

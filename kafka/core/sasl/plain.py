"""PLAIN (RFC 4616): one token with name and password, in the clear, so only where TLS is around it.

::

    authorization id (may be empty) \\0 user \\0 password        all in UTF-8
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from kafka.core.sasl.mechanism import SaslError, check_is_text

NAME = "PLAIN"


class PlainClient:
    """Says who we are. ValueError for a name or password that the token cannot have."""

    name = NAME

    def __init__(self, user: str, password: str, authorization_id: str = "") -> None:
        for what, text in (("user name", user), ("password", password), ("authorization id", authorization_id)):
            if "\0" in text:
                raise ValueError(f"the {what} of SASL PLAIN cannot have a zero character in it")
            check_is_text(what, text)
        if not user or not password:
            raise ValueError("SASL PLAIN needs a user name and a password")
        self._token = "\0".join((authorization_id, user, password)).encode()
        self.is_complete = False

    def first(self) -> bytes:
        return self._token

    def step(self, token: bytes) -> None:
        """The server has nothing to say but that it is well."""
        if token:
            raise SaslError("the server answered SASL PLAIN with a token, which it cannot", is_protocol=True)
        self.is_complete = True


class PlainServer:
    """``password_of`` gives a user's password, or None when there is no such user."""

    name = NAME

    def __init__(self, password_of: Callable[[str], str | None]) -> None:
        self._password_of = password_of
        self.user: str | None = None
        self.is_complete = False

    def step(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0")  # Kafka's Java replaces, too
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}", is_protocol=True)
        authorization_id, user, password = parts
        if not user:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        expected = self._password_of(user)
        known = expected if expected is not None else password + "?"
        if not hmac.compare_digest(known.encode(), password.encode()) or expected is None:
            raise SaslError("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = user
        self.is_complete = True
        return b""

"""SASL mechanisms: what each has, in both roles, and the two with one token, PLAIN and OAUTHBEARER.

Tokens are the bytes of SaslAuthenticate, without any frame around them.

::

    client                                  server
    first()            ---- token ---->     step(token)
    step(token)        <--- token -----        ...
    is_complete                             is_complete, user
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol


class SaslError(Exception):
    """Authentication has failed. The text is for the peer's eyes, too: it says no more than Kafka's brokers say.

    ``is_protocol``: the peer broke the rules of the mechanism; otherwise name or password are wrong.
    """

    def __init__(self, text: str, *, is_protocol: bool = False) -> None:
        super().__init__(text)
        self.is_protocol = is_protocol


def check_is_text(what: str, text: str) -> None:
    """ValueError, which quotes nothing, when it has no UTF-8: ``os.environ`` gives such texts for bytes of any kind."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {what} has characters that are none (lone surrogates)") from None


class ClientMechanism(Protocol):
    """One authentication from the client's side."""

    name: str
    is_complete: bool
    """The server is convinced, and (where the mechanism can do that) has proved itself."""

    def first(self) -> bytes:
        """The token that begins it."""
        ...

    def step(self, token: bytes) -> bytes | None:
        """Answer the server's token; None: nothing more to say. :class:`SaslError`."""
        ...


class ServerMechanism(Protocol):
    """One authentication from the server's side."""

    name: str
    is_complete: bool
    user: str | None
    """Who it is; known when complete."""

    def step(self, token: bytes) -> bytes:
        """Answer the client's token, or raise :class:`SaslError`: then it is over."""
        ...


PLAIN = "PLAIN"


class PlainClient:
    """PLAIN (RFC 4616), the client's side: one token with name and password, in the clear, so only over TLS.

    The token, in UTF-8: authorization id (may be empty), a zero byte, user, a zero byte, password. ValueError for a
    name or password that it cannot have.
    """

    name = PLAIN

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
        """The server's token is empty."""
        if token:
            raise SaslError("the server answered SASL PLAIN with a token, which it cannot", is_protocol=True)
        self.is_complete = True


class PlainServer:
    """PLAIN, the server's side. ``password_of`` gives a user's password, or None when there is no such user."""

    name = PLAIN

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


OAUTHBEARER: Final = "OAUTHBEARER"

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class OauthBearerClient:
    """OAUTHBEARER (RFC 7628, KIP-255), the client's side: sends ``token``, which the caller got from a token provider.

        client first    n,,^A auth=Bearer TOKEN ^A [NAME=VALUE ^A ...] ^A         ^A: the byte 1; without the blanks
        server          (nothing): accepted         {"status": "..."}: refused
        client          ^A, to an error; the server then closes the connection

    ``extensions``: names and values for the server (KIP-342). ValueError: the token or an extension cannot be sent.
    """

    name = OAUTHBEARER

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        if not _TOKEN.fullmatch(token):
            raise ValueError("an OAUTHBEARER token is of the characters of a bearer token, at least one")
        for name, value in (extensions or {}).items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise ValueError(f"the OAUTHBEARER extension {name!r} cannot be sent")
        more = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
        self._first = f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()
        self._refusal: str | None = None
        self.is_complete = False

    def first(self) -> bytes:
        return self._first

    def step(self, token: bytes) -> bytes | None:
        if self._refusal is not None:
            raise SaslError(f"the server refuses the token: {self._refusal}")
        if not token:
            self.is_complete = True
            return None
        self._refusal = _refusal_status(token)
        return b"\x01"  # answered with an error of SaslAuthenticate, or by closing the connection

    @property
    def refusal(self) -> str | None:
        """Why the server refuses the token, once it has."""
        return self._refusal


def _refusal_status(token: bytes) -> str:
    try:
        found = json.loads(token)
        return str(found["status"])
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: thousands of brackets
        raise SaslError("the server's answer to OAUTHBEARER cannot be read", is_protocol=True) from None

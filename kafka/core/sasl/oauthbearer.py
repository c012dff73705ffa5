"""OAUTHBEARER (RFC 7628, KIP-255), the client's side: a token that somebody else has given out.

::

    client first    n,,^A auth=Bearer TOKEN ^A [NAME=VALUE ^A ...] ^A         ^A: the byte 1; without the blanks
    server          (nothing): it is well        {"status": "..."}: it is not
    client          ^A, to an error; the server then ends it

Where the token comes from, and when it is too old, is the caller's business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from kafka.core.sasl.mechanism import SaslError

NAME: Final = "OAUTHBEARER"

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


class OauthBearerClient:
    """Shows ``token``. ``extensions``: names and values for the server (KIP-342). ValueError: it cannot be sent."""

    name = NAME

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
        self._refusal = _status(token)
        return b"\x01"  # the answer to that is the end: an error of SaslAuthenticate, or a closed connection

    @property
    def refusal(self) -> str | None:
        """Why the server refuses the token, once it has said so."""
        return self._refusal


def _status(token: bytes) -> str:
    try:
        found = json.loads(token)
        return str(found["status"])
    except (ValueError, KeyError, TypeError, RecursionError):  # the last: thousands of brackets
        raise SaslError("the server's answer to OAUTHBEARER cannot be read", is_protocol=True) from None

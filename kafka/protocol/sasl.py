"""Authentication before anything else (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, field
from kafka.wire.types import Bytes, Int16, Int64, String


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions=(0, 1)):
    """Choose a mechanism."""

    mechanism: String


class SaslHandshakeResponse(Response, api_key=17, versions=(0, 1)):
    """The mechanisms that the broker has."""

    error_code: Int16
    mechanisms: list[String]


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], api_key=36, versions=(0, 2), flexible=2):
    """A step of the mechanism."""

    auth_bytes: Bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(<{len(self.auth_bytes)} bytes>)"  # a password, perhaps


class SaslAuthenticateResponse(Response, api_key=36, versions=(0, 2), flexible=2):
    """The broker's step, and from version 1 on how long the authentication lasts."""

    error_code: Int16
    error_message: String | None = field(null_since=0)
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)

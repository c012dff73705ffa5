"""Authentication before anything else (KIP-43, KIP-152, KIP-368)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Bytes, Int8, Int16, Int32, Int64, String


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions=(0, 1)):
    """Choose a mechanism."""

    mechanism: String


class SaslHandshakeResponse(Response, api_key=17, versions=(0, 1)):
    """The mechanisms that the broker has."""

    error_code: Int16 = field(default=0)
    mechanisms: list[String]


class SaslAuthenticateRequest(Request["SaslAuthenticateResponse"], api_key=36, versions=(0, 2), flexible=2):
    """A step of the mechanism."""

    auth_bytes: Bytes

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(<{len(self.auth_bytes)} bytes>)"  # a password, perhaps


class SaslAuthenticateResponse(Response, api_key=36, versions=(0, 2), flexible=2):
    """The broker's step, and from version 1 on how long the authentication lasts."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = field(default=0, since=1, ignorable=True)


# -- SCRAM credentials of users: describe, upsert and delete (KIP-554) --
#
# Mechanisms are numbers here: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512. No password is sent, only its PBKDF2 hash.


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], api_key=50, versions=(0, 0), flexible=0
):
    """Which mechanisms do these users have? None or no names: all users."""

    class UserName(Struct):
        name: String

    users: list[UserName] | None = field(null_since=0)


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions=(0, 0), flexible=0):
    """Mechanisms and iterations, never the credentials."""

    class DescribeUserScramCredentialsResult(Struct):
        class CredentialInfo(Struct):
            mechanism: Int8
            iterations: Int32

        user: String
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)
        credential_infos: list[CredentialInfo]

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(null_since=0)
    results: list[DescribeUserScramCredentialsResult]


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, versions=(0, 0), flexible=0
):
    """Remove credentials, and put new ones in the place of old."""

    class ScramCredentialDeletion(Struct):
        name: String
        mechanism: Int8

    class ScramCredentialUpsertion(Struct):
        name: String
        mechanism: Int8
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

        def __repr__(self) -> str:
            return f"ScramCredentialUpsertion({self.name!r}, {self.mechanism}, {self.iterations}, ...)"  # no secrets

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


class AlterUserScramCredentialsResponse(Response, api_key=51, versions=(0, 0), flexible=0):
    """What came of it, by user."""

    class AlterUserScramCredentialsResult(Struct):
        user: String
        error_code: Int16 = field(default=0)
        error_message: String | None = field(null_since=0)

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult]

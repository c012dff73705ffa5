"""SCRAM users of the broker: who there is, making and removing them (KIP-554).

Mechanisms are numbers here: 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512. No password goes over the wire, only what PBKDF2
made of it.
"""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Bytes, Int8, Int16, Int32, String


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
        error_code: Int16
        error_message: String | None = field(null_since=0)
        credential_infos: list[CredentialInfo]

    throttle_time_ms: Int32
    error_code: Int16
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
        error_code: Int16
        error_message: String | None = field(null_since=0)

    throttle_time_ms: Int32
    results: list[AlterUserScramCredentialsResult]

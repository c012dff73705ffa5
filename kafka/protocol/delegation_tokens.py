"""Tokens with which others act for a user (KIP-48)."""

from __future__ import annotations

from kafka.wire.message import Request, Response, Struct, field
from kafka.wire.types import Bytes, Int16, Int32, Int64, String


class CreateDelegationTokenRequest(Request["CreateDelegationTokenResponse"], api_key=38, versions=(0, 3), flexible=2):
    """Ask for a token with which others may act for the requester (KIP-48). Times in ms."""

    class CreatableRenewers(Struct):
        principal_type: String
        principal_name: String

    owner_principal_type: String | None = field(default="", since=3, null_since=3)
    owner_principal_name: String | None = field(default="", since=3, null_since=3)
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, api_key=38, versions=(0, 3), flexible=2):
    """The token and its secret."""

    error_code: Int16 = field(default=0)
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = field(default="", since=3)
    token_requester_principal_name: String = field(default="", since=3)
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32 = field(default=0)


class RenewDelegationTokenRequest(Request["RenewDelegationTokenResponse"], api_key=39, versions=(0, 2), flexible=2):
    """Let a token live longer."""

    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, api_key=39, versions=(0, 2), flexible=2):
    """When it ends now."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


class ExpireDelegationTokenRequest(Request["ExpireDelegationTokenResponse"], api_key=40, versions=(0, 2), flexible=2):
    """Let a token end sooner; a negative period: now."""

    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, api_key=40, versions=(0, 2), flexible=2):
    """When it ends now."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32 = field(default=0)


class DescribeDelegationTokenRequest(
    Request["DescribeDelegationTokenResponse"], api_key=41, versions=(0, 3), flexible=2
):
    """Ask for the tokens of owners; None: of all."""

    class DescribeDelegationTokenOwner(Struct):
        principal_type: String
        principal_name: String

    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = field(null_since=0)


class DescribeDelegationTokenResponse(Response, api_key=41, versions=(0, 3), flexible=2):
    """Tokens with their secrets."""

    class DescribedDelegationTokenRenewer(Struct):
        principal_type: String
        principal_name: String

    class DescribedDelegationToken(Struct):
        principal_type: String
        principal_name: String
        token_requester_principal_type: String = field(default="", since=3)
        token_requester_principal_name: String = field(default="", since=3)
        issue_timestamp: Int64
        expiry_timestamp: Int64
        max_timestamp: Int64
        token_id: String
        hmac: Bytes
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]

    error_code: Int16 = field(default=0)
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: Int32 = field(default=0)

"""Create-, Renew-, Expire- and DescribeDelegationToken: refused as an Apache Kafka 4.3.0 refuses them to whoever has
not authenticated himself, with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64).

Different from Apache Kafka 4.3.0: authenticated users get the same answer, as there is no
``delegation.token.secret.key`` that could be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code
from kafka.broker.registry import Call, handles
from kafka.errors import DelegationTokenRequestNotAllowedError
from kafka.protocol.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker

_REFUSED: Final = error_code(DelegationTokenRequestNotAllowedError)
_UNKNOWN: Final = -1
_NOBODY: Final = "ANONYMOUS"


@handles(CreateDelegationTokenRequest, versions=(0, 3))
def create_token(broker: Broker, call: Call[CreateDelegationTokenRequest]) -> CreateDelegationTokenResponse:
    kind, name = call.request.owner_principal_type, call.request.owner_principal_name
    is_owned = call.version >= 3 and bool(name)
    code = _REFUSED
    if is_owned and kind is None:
        code, is_owned = _UNKNOWN, False
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=(kind or "") if is_owned else "User",
        principal_name=(name or "") if is_owned else _NOBODY,
        token_requester_principal_type="User" if call.version >= 3 else "",
        token_requester_principal_name=_NOBODY if call.version >= 3 else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


@handles(RenewDelegationTokenRequest, versions=(0, 2))
def renew_token(broker: Broker, call: Call[RenewDelegationTokenRequest]) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=-1, throttle_time_ms=0)


@handles(ExpireDelegationTokenRequest, versions=(0, 2))
def expire_token(broker: Broker, call: Call[ExpireDelegationTokenRequest]) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=-1, throttle_time_ms=0)


@handles(DescribeDelegationTokenRequest, versions=(0, 3))
def describe_tokens(broker: Broker, call: Call[DescribeDelegationTokenRequest]) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_REFUSED, tokens=[], throttle_time_ms=0)

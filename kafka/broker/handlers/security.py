"""Security: SASL, the users of SCRAM (KIP-554), ACLs and delegation tokens.

On a listener with SASL, SaslHandshake and SaslAuthenticate are taken before any handler sees them, by the connection's
own :class:`~kafka.core.sasl.server.SaslServer`: mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512, tokens with Kafka's
headers (SaslHandshake v1) and without (v0), sessions that expire (``connections.max.reauth.ms``). What reaches the
handlers was sent on a listener without SASL, or by a client that has authenticated already: ILLEGAL_SASL_STATE (34).

A request to alter SCRAM credentials may name a user once, whatever the mechanisms; a user's deletions are checked
first, and the first error stands for all. Keys are stored, never passwords, and never returned.

There is no authorizer: every client may do everything, and requests about ACLs get SECURITY_DISABLED (54); a filter or
an entry with an UNKNOWN (0) in it ends the connection. Delegation tokens are refused as to an unauthenticated client:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (64).

Different from Apache Kafka 4.3.0: no GSSAPI, no OAUTHBEARER; mechanisms are listed in the order of the setting; a
request during authentication that is neither ApiVersions nor one of SASL's gets no answer before its connection ends,
where there it gets an empty one; a SCRAM proof of the wrong length is refused like a wrong one, where there the
connection ends without an answer; results about SCRAM users are in the order of the request, there in that of a hash
table; no authorizer can be configured; there is no ``delegation.token.secret.key``, so authenticated users get no
tokens either.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka.broker.error_responses import answer_each, error_code, error_text, failed, without_frames
from kafka.broker.registry import RequestContext, handles
from kafka.broker.responses import PendingResponse
from kafka.core.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_SHA_256, SCRAM_SHA_512, credential_of
from kafka.errors import (
    BrokerResponseError,
    DelegationTokenRequestNotAllowedError,
    DuplicateResourceError,
    IllegalSaslStateError,
    ResourceNotFoundError,
    SecurityDisabledError,
    UnacceptableCredentialError,
    UnknownError,
    UnsupportedSaslMechanismError,
)
from kafka.protocol.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
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
from kafka.protocol.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.broker.listener_security import Credentials

_NO_AUTHORIZER: Final = SecurityDisabledError("No Authorizer is configured.")


def _has_unknown(wanted: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> bool:
    return 0 in (
        wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type
    )  # fmt: skip


@handles(DescribeAclsRequest)
def describe_acls(broker: Broker, call: RequestContext[DescribeAclsRequest]) -> DescribeAclsResponse | PendingResponse:
    if _has_unknown(call.request):
        return PendingResponse.hanging_up()
    raise SecurityDisabledError("No Authorizer is configured on the broker")


@handles(CreateAclsRequest)
def create_acls(broker: Broker, call: RequestContext[CreateAclsRequest]) -> CreateAclsResponse | PendingResponse:
    for one in call.request.creations:
        if 0 in (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type):
            return PendingResponse.hanging_up()
    return CreateAclsResponse(
        results=[failed(CreateAclsResponse.AclCreationResult, _NO_AUTHORIZER) for _ in call.request.creations]
    )


@handles(DeleteAclsRequest)
def delete_acls(broker: Broker, call: RequestContext[DeleteAclsRequest]) -> DeleteAclsResponse | PendingResponse:
    if any(_has_unknown(one) for one in call.request.filters):
        return PendingResponse.hanging_up()
    return DeleteAclsResponse(
        filter_results=[failed(DeleteAclsResponse.DeleteAclsFilterResult, _NO_AUTHORIZER) for _ in call.request.filters]
    )


# -- SASL -------------------------------------------------------------------------------------------------------------


@handles(SaslHandshakeRequest)
def sasl_handshake(broker: Broker, call: RequestContext[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    raise IllegalSaslStateError("")


@handles(SaslAuthenticateRequest)
def sasl_authenticate(broker: Broker, call: RequestContext[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    raise IllegalSaslStateError("SaslAuthenticate request received after successful authentication")


# -- SCRAM credentials ------------------------------------------------------------------------------------------------


MECHANISMS: Final = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_DescribeScramResult = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    broker: Broker, call: RequestContext[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations of each user; no user named: of all. One that the request names twice is refused."""
    wanted = [user.name for user in call.request.users or ()]
    counts = Counter(wanted)

    def describe(name: str) -> _DescribeScramResult:
        if counts[name] > 1:
            raise DuplicateResourceError(
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        stored = broker.credentials.scram(name)
        if not stored:
            raise ResourceNotFoundError(f"Attempt to describe a user credential that does not exist: {name}")
        return _DescribeScramResult(
            user=name,
            error_message="",
            credential_infos=[
                _DescribeScramResult.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=credential.iterations)
                for mechanism, credential in stored.items()
            ],
        )

    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=answer_each(
            dict.fromkeys(wanted or broker.credentials.scram_users()),
            describe,
            lambda name, error: failed(_DescribeScramResult, error, user=name),
        ),
    )


@handles(AlterUserScramCredentialsRequest)
def alter_user_scram_credentials(
    broker: Broker, call: RequestContext[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    errors: dict[str, BrokerResponseError] = {}
    good: dict[str, _Deletion | _Upsertion] = {}
    changes: list[_Deletion | _Upsertion] = [*call.request.deletions, *call.request.upsertions]
    for change in changes:
        if change.name in errors:
            continue
        try:
            _check_scram_change(broker.credentials, change, change.name in good)
            good[change.name] = change
        except BrokerResponseError as error:
            errors[change.name] = without_frames(error)
            good.pop(change.name, None)
    for change in list(good.values()):
        if isinstance(change, _Upsertion) and not change.salted_password:
            errors[change.name] = UnknownError("")  # as measured: no key can be made of it
            del good[change.name]
            continue
        mechanism = MECHANISMS[change.mechanism]
        if isinstance(change, _Deletion):
            broker.credentials.remove(change.name, mechanism)
        else:
            salt, salted = bytes(change.salt), bytes(change.salted_password)
            broker.credentials.put(change.name, mechanism, credential_of(mechanism, salted, salt, change.iterations))
    if good:
        broker.flush_metadata()
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=name,
                error_code=error_code(errors.get(name)),
                error_message=(error_text(errors[name]) or None) if name in errors else None,
            )
            for name in dict.fromkeys(change.name for change in changes)
        ],
    )


def _check_scram_change(credentials: Credentials, change: _Deletion | _Upsertion, is_second: bool) -> None:
    if is_second:
        raise DuplicateResourceError("A user credential cannot be altered twice in the same request")
    if not change.name:
        raise UnacceptableCredentialError("Username must not be empty")
    if change.mechanism not in MECHANISMS:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    if isinstance(change, _Deletion):
        if MECHANISMS[change.mechanism] not in credentials.scram(change.name):
            raise ResourceNotFoundError("Attempt to delete a user credential that does not exist")
        return
    if change.iterations < MIN_ITERATIONS:
        raise UnacceptableCredentialError("Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise UnacceptableCredentialError("Too many iterations")


# -- delegation tokens ------------------------------------------------------------------------------------------------


_TOKENS_NOT_ALLOWED: Final = error_code(DelegationTokenRequestNotAllowedError)
_UNKNOWN_SERVER_ERROR: Final = -1
_ANONYMOUS: Final = "ANONYMOUS"


@handles(CreateDelegationTokenRequest)
def create_token(broker: Broker, call: RequestContext[CreateDelegationTokenRequest]) -> CreateDelegationTokenResponse:
    kind, name = call.request.owner_principal_type, call.request.owner_principal_name
    is_owned = call.version >= 3 and bool(name)
    code = _TOKENS_NOT_ALLOWED
    if is_owned and kind is None:
        code, is_owned = _UNKNOWN_SERVER_ERROR, False
    return failed(
        CreateDelegationTokenResponse,
        code,
        principal_type=(kind or "") if is_owned else "User",
        principal_name=(name or "") if is_owned else _ANONYMOUS,
        token_requester_principal_type="User" if call.version >= 3 else "",
        token_requester_principal_name=_ANONYMOUS if call.version >= 3 else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


@handles(RenewDelegationTokenRequest)
def renew_token(broker: Broker, call: RequestContext[RenewDelegationTokenRequest]) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_TOKENS_NOT_ALLOWED, expiry_timestamp_ms=-1)


@handles(ExpireDelegationTokenRequest)
def expire_token(broker: Broker, call: RequestContext[ExpireDelegationTokenRequest]) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_TOKENS_NOT_ALLOWED, expiry_timestamp_ms=-1)


@handles(DescribeDelegationTokenRequest)
def describe_tokens(
    broker: Broker, call: RequestContext[DescribeDelegationTokenRequest]
) -> DescribeDelegationTokenResponse:
    raise DelegationTokenRequestNotAllowedError("")

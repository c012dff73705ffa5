"""DescribeUserScramCredentials, AlterUserScramCredentials (KIP-554): the users of SCRAM.

A user may be named once in a request, whatever the mechanisms; of what is said of one, deletions come first, and the
first error stands for all. What is kept are keys, never passwords, and nobody is told them again.

Different from Apache Kafka 4.3.0: results are in the order of the request, there in that of a hash table.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka.broker.codes import error_code, error_text
from kafka.broker.registry import Call, handles
from kafka.core.sasl.scram import MAX_ITERATIONS, MIN_ITERATIONS, SCRAM_SHA_256, SCRAM_SHA_512, credential_of
from kafka.errors import (
    BrokerResponseError,
    DuplicateResourceError,
    ResourceNotFoundError,
    UnacceptableCredentialError,
    UnknownError,
    UnsupportedSaslMechanismError,
)
from kafka.protocol.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from kafka.broker.broker import Broker
    from kafka.broker.credentials import Credentials

MECHANISMS: Final = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
NUMBERS: Final = {name: number for number, name in MECHANISMS.items()}

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


@handles(DescribeUserScramCredentialsRequest, versions=(0, 0))
def describe_user_scram_credentials(
    broker: Broker, call: Call[DescribeUserScramCredentialsRequest]
) -> DescribeUserScramCredentialsResponse:
    wanted = [user.name for user in call.request.users or ()]
    counts = Counter(wanted)
    names = dict.fromkeys(wanted or broker.credentials.scram_users())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=0,
        error_message="",
        results=[_describe(broker.credentials, name, counts[name]) for name in names],
    )


def _describe(credentials: Credentials, name: str, times: int) -> _Result:
    code, text, kept = 0, "", credentials.scram(name)
    if times > 1:
        code = error_code(DuplicateResourceError)
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        kept = {}
    elif not kept:
        code = error_code(ResourceNotFoundError)
        text = f"Attempt to describe a user credential that does not exist: {name}"
    return _Result(
        user=name,
        error_code=code,
        error_message=text,
        credential_infos=[
            _Result.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=credential.iterations)
            for mechanism, credential in kept.items()
        ],
    )


@handles(AlterUserScramCredentialsRequest, versions=(0, 0))
def alter_user_scram_credentials(
    broker: Broker, call: Call[AlterUserScramCredentialsRequest]
) -> AlterUserScramCredentialsResponse:
    errors: dict[str, BrokerResponseError] = {}
    good: dict[str, _Deletion | _Upsertion] = {}
    changes: list[_Deletion | _Upsertion] = [*call.request.deletions, *call.request.upsertions]
    for change in changes:
        if change.name in errors:
            continue
        try:
            _check(broker.credentials, change, change.name in good)
            good[change.name] = change
        except BrokerResponseError as error:
            errors[change.name] = error.with_traceback(None)
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
            broker.credentials.put(
                change.name, mechanism, credential_of(mechanism, salted, salt, change.iterations)
            )
    if good:
        broker.sync_metadata()
    names = dict.fromkeys(change.name for change in changes)
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult(
                user=name,
                error_code=error_code(errors[name]) if name in errors else 0,
                error_message=(error_text(errors[name]) or None) if name in errors else None,
            )
            for name in names
        ],
    )


def _check(credentials: Credentials, change: _Deletion | _Upsertion, is_second: bool) -> None:
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

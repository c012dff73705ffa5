"""Dialogues about access rules (KIP-140, KIP-290). Any broker takes them.

A broker knows of a change a moment after it was answered, since it comes from the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from kafka.core.admin.acl_values import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from kafka.core.admin.answers import ANSWER_LOST, error_of, raise_first, raise_transient, since
from kafka.core.admin.values import known
from kafka.core.dialogue import ByVersion, Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import BrokerResponseError, IllegalArgumentError, KafkaError, KafkaProtocolError
from kafka.protocol.acls import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

T = TypeVar("T")
A = TypeVar("A")

_PATTERNS_SINCE: Final = 1
_USERS_SINCE: Final = 3
_RELEASES: Final = {0: "0.11", _PATTERNS_SINCE: "2.0", _USERS_SINCE: "3.3"}
"""Version of the three APIs -> the release of brokers that has it."""


def describe_acls(acl_filter: ACLFilter, *, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[list[ACL]]:
    """The rules that the filter matches. Raises the broker's error: SecurityDisabledError where rules are not asked
    for by anybody, ClusterAuthorizationFailedError."""
    (wanted,) = _checked([acl_filter], ACLFilter, "acl_filter")
    pattern = wanted.resource_pattern

    def build(version: int) -> DescribeAclsRequest:
        return DescribeAclsRequest(
            resource_type_filter=pattern.resource_type,
            resource_name_filter=pattern.resource_name,
            pattern_type_filter=_pattern_type(pattern, version),
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        )

    least = _least_version([wanted])

    def attempt() -> Dialogue[DescribeAclsResponse]:
        answer = yield from send(AnyNode(), ByVersion(DescribeAclsRequest, build), min_version=least)
        raise_transient([(answer.error_code, answer.error_message, "describe_acls")])
        return answer

    answer = yield from since(
        _RELEASES[least], retrying(attempt, what="describing ACLs", backoff=backoff, timeout_s=timeout_s)
    )
    raise_first([(answer.error_code, answer.error_message, "describe_acls")])
    return [
        _acl(each, resource.resource_type, resource.resource_name, resource.pattern_type)
        for resource in answer.resources
        for each in resource.acls
    ]


def create_acls(
    acls: Iterable[ACL], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[list[tuple[ACL, BrokerResponseError]]]:
    """Make rules: each with its error, NoError where it went well. One that is there already is no error."""
    wanted = _checked(acls, ACL, "acls")
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource_pattern.resource_type,
                resource_name=acl.resource_pattern.resource_name,
                resource_pattern_type=acl.resource_pattern.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in wanted
        ]
    )
    least = _least_version(wanted)

    def attempt() -> Dialogue[CreateAclsResponse]:
        answer = yield from send(AnyNode(), request, min_version=least)
        raise_transient((result.error_code, result.error_message, "create_acls") for result in answer.results)
        return answer

    answer = yield from since(
        _RELEASES[least], retrying(attempt, what="creating ACLs", backoff=backoff, timeout_s=timeout_s)
    )
    return [(acl, error_of(result.error_code, result.error_message)) for acl, result in _paired(wanted, answer.results)]


def delete_acls(
    acl_filters: Iterable[ACLFilter], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[list[tuple[ACLFilter, list[ACL], BrokerResponseError]]]:
    """Remove every rule that a filter matches: for each filter, what has been removed, and the filter's error or the
    first of a rule that could not be removed; else NoError.

    Who asks again is not told what was removed before: KafkaConnectionError or RequestTimedOutError where the answer
    was lost, after which the rules may have been removed.
    """
    wanted = _checked(acl_filters, ACLFilter, "acl_filters")

    def build(version: int) -> DeleteAclsRequest:
        return DeleteAclsRequest(
            filters=[
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=each.resource_pattern.resource_type,
                    resource_name_filter=each.resource_pattern.resource_name,
                    pattern_type_filter=_pattern_type(each.resource_pattern, version),
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission_type,
                )
                for each in wanted
            ]
        )

    least = _least_version(wanted)

    def attempt() -> Dialogue[DeleteAclsResponse | KafkaError]:
        try:
            answer = yield from send(AnyNode(), ByVersion(DeleteAclsRequest, build), min_version=least)
        except ANSWER_LOST as error:
            return error
        raise_transient((result.error_code, result.error_message, "delete_acls") for result in answer.filter_results)
        return answer

    answer = yield from since(
        _RELEASES[least], retrying(attempt, what="deleting ACLs", backoff=backoff, timeout_s=timeout_s)
    )
    if isinstance(answer, KafkaError):
        why = answer.args[0] if answer.args else answer
        raise type(answer)(f"{why}; the rules may have been removed: describe_acls tells what is left") from answer
    found = []
    for each, result in _paired(wanted, answer.filter_results):
        removed = [
            _acl(match, match.resource_type, match.resource_name, match.pattern_type)
            for match in result.matching_acls
            if not match.error_code
        ]
        parts: list[Any] = [result, *result.matching_acls]
        failed = next((part for part in parts if part.error_code), result)
        found.append((each, removed, error_of(failed.error_code, failed.error_message)))
    return found


def _checked(given: Iterable[A], kind: type[A], name: str) -> list[A]:
    """Only such as may be sent: a broker hangs up on UNKNOWN."""
    if not isinstance(given, Iterable):
        raise IllegalArgumentError(f"{name}: a list is expected, not {type(given).__name__}")
    wanted = list(given)
    for each in wanted:
        if not isinstance(each, kind):
            raise IllegalArgumentError(f"{name}: {each!r} is not of the class {kind.__name__}")
        assert isinstance(each, ACLFilter)
        pattern = each.resource_pattern
        if not all((each.operation, each.permission_type, pattern.resource_type, pattern.pattern_type)):
            raise IllegalArgumentError(f"{name}: {each!r} has UNKNOWN in it, which no broker takes")
    return wanted


def _least_version(wanted: Sequence[ACLFilter]) -> int:
    """The lowest version that can say what is wanted."""
    patterns = [each.resource_pattern for each in wanted]
    if any(pattern.resource_type is ResourceType.USER for pattern in patterns):
        return _USERS_SINCE
    newer = (ACLResourcePatternType.MATCH, ACLResourcePatternType.PREFIXED)
    return _PATTERNS_SINCE if any(pattern.pattern_type in newer for pattern in patterns) else 0


def _pattern_type(pattern: ResourcePatternFilter, version: int) -> ACLResourcePatternType:
    """Before KIP-290 all names are literal, so that is what ANY finds."""
    return pattern.pattern_type if version >= _PATTERNS_SINCE else ACLResourcePatternType.LITERAL


def _acl(told: Any, resource_type: int, resource_name: str, pattern_type: int) -> ACL:
    return ACL(
        told.principal,
        told.host,
        known(ACLOperation, told.operation),
        known(ACLPermissionType, told.permission_type),
        ResourcePattern(known(ResourceType, resource_type), resource_name, known(ACLResourcePatternType, pattern_type)),
    )


def _paired(wanted: Sequence[A], results: Sequence[T]) -> list[tuple[A, T]]:
    try:
        return list(zip(wanted, results, strict=True))
    except ValueError:
        raise KafkaProtocolError(f"the broker answered {len(results)} of {len(wanted)} entries") from None

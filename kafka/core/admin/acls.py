"""Dialogues about access rules (KIP-140, KIP-290). Any broker takes them.

A broker knows of a change a moment after it was answered, since it comes from the controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from kafka.core.admin.responses import (
    RESPONSE_LOST,
    AdminApi,
    in_all,
    in_each,
    raise_transient,
    request_api,
    requiring_release,
    result_of,
)
from kafka.core.admin.values import known
from kafka.core.connection import ByVersion
from kafka.core.dialogue import Dialogue, send
from kafka.core.retry import Backoff, retrying
from kafka.core.routing import AnyNode
from kafka.errors import BrokerResponseError, IllegalArgumentError, KafkaError, KafkaProtocolError
from kafka.protocol.acls import CreateAclsRequest, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest

# Access rules (ACLs) as users hand them in and get them back. Numbers are Kafka's (``org.apache.kafka.common.acl``).
#
#     ACL         who, from where, may or may not do what, with which resources: ``ResourcePattern``
#     ACLFilter   which rules are meant: the same with ANY and None in it, and a ``ResourcePatternFilter``
#
# A number that this client does not know is UNKNOWN in answers; no request may have it.


E = TypeVar("E", bound=IntEnum)


class ResourceType(IntEnum):
    """What a rule is about. ANY is for filters alone. USER: since 3.3."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """What is done. ANY is for filters alone; ALL stands for all the others. TWO_PHASE_COMMIT: KIP-939."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ACLPermissionType(IntEnum):
    """Whether it is allowed. ANY is for filters alone. DENY is stronger than ALLOW."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """How a name is meant (KIP-290, 2.0). LITERAL: that name, and ``*`` is all; PREFIXED: what begins with it. For
    filters alone, ANY: however it is written, MATCH: every pattern that the name falls under."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class _Value:
    """Equal when all that it was made of is; a filter and a rule may be."""

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def __repr__(self) -> str:
        shown = (
            f"{name}={value.name if isinstance(value, IntEnum) else repr(value)}" for name, value in vars(self).items()
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class ResourcePatternFilter(_Value):
    """Which resources are meant; the name None: any."""

    def __init__(
        self, resource_type: ResourceType, resource_name: str | None, pattern_type: ACLResourcePatternType
    ) -> None:
        self.resource_type = _kind(ResourceType, "resource_type", resource_type)
        self.resource_name = _text_or_none("resource_name", resource_name)
        self.pattern_type = _kind(ACLResourcePatternType, "pattern_type", pattern_type)


class ResourcePattern(ResourcePatternFilter):
    """The resources of a rule. The cluster's name is ``kafka-cluster``."""

    resource_name: str

    def __init__(
        self,
        resource_type: ResourceType,
        resource_name: str,
        pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL,
    ) -> None:
        super().__init__(resource_type, _text("resource_name", resource_name), pattern_type)
        _refuse("resource_type", resource_type, ResourceType.ANY)
        _refuse("pattern_type", pattern_type, ACLResourcePatternType.ANY, ACLResourcePatternType.MATCH)


class ACLFilter(_Value):
    """Which rules are meant. ``principal`` ("User:alice") and ``host`` (an address, not a name): None for any."""

    def __init__(
        self,
        principal: str | None,
        host: str | None,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePatternFilter,
    ) -> None:
        self.principal = _text_or_none("principal", principal)
        self.host = _text_or_none("host", host)
        self.operation = _kind(ACLOperation, "operation", operation)
        self.permission_type = _kind(ACLPermissionType, "permission_type", permission_type)
        if not isinstance(resource_pattern, ResourcePatternFilter):
            raise IllegalArgumentError(f"resource_pattern={resource_pattern!r}: not a ResourcePatternFilter")
        self.resource_pattern = resource_pattern


class ACL(ACLFilter):
    """One rule. ``principal``: ``User:alice``, or ``User:*`` for all users; ``host``: an address, or ``*``."""

    principal: str
    host: str
    resource_pattern: ResourcePattern

    def __init__(
        self,
        principal: str,
        host: str,
        operation: ACLOperation,
        permission_type: ACLPermissionType,
        resource_pattern: ResourcePattern,
    ) -> None:
        super().__init__(
            _text("principal", principal), _text("host", host), operation, permission_type, resource_pattern
        )
        _refuse("operation", operation, ACLOperation.ANY)
        _refuse("permission_type", permission_type, ACLPermissionType.ANY)
        if not isinstance(resource_pattern, ResourcePattern):
            raise IllegalArgumentError(f"resource_pattern={resource_pattern!r}: a rule needs a ResourcePattern")


def _kind(kind: type[E], name: str, given: Any) -> E:
    if not isinstance(given, kind):
        raise IllegalArgumentError(f"{name}={given!r}: not a member of {kind.__name__}")
    return given


def _refuse(name: str, given: IntEnum, *forbidden: IntEnum) -> None:
    if given in forbidden:
        raise IllegalArgumentError(f"{name}={given.name} is for filters alone")


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str):
        raise IllegalArgumentError(f"{name}={given!r}: not a text")
    return given


def _text_or_none(name: str, given: Any) -> str | None:
    return None if given is None else _text(name, given)


T = TypeVar("T")
A = TypeVar("A")

_PATTERNS_SINCE: Final = 1
_USERS_SINCE: Final = 3
_DESCRIBE: Final = AdminApi("describing ACLs", in_all("describe_acls"), AnyNode())
_CREATE: Final = AdminApi("creating ACLs", in_each("results", "create_acls"), AnyNode())
_DELETE: Final = AdminApi("deleting ACLs", in_each("filter_results", "delete_acls"), AnyNode())
_RELEASES: Final = {0: "0.11", _PATTERNS_SINCE: "2.0", _USERS_SINCE: "3.3"}
"""Version of the three APIs -> the release of brokers that has it."""


def describe_acls(acl_filter: ACLFilter, *, backoff: Backoff, timeout_s: float = 30.0) -> Dialogue[list[ACL]]:
    """The rules that the filter matches. Raises the broker's error: SecurityDisabledError where rules are not asked
    for by anybody, ClusterAuthorizationFailedError."""
    (wanted,) = _checked_acls([acl_filter], ACLFilter, "acl_filter")

    def build(version: int) -> DescribeAclsRequest:
        return DescribeAclsRequest(**_filter_fields(wanted, version))

    least = _least_version([wanted])
    api = _DESCRIBE._replace(release=_RELEASES[least])
    request = ByVersion(DescribeAclsRequest, build)
    answer = yield from request_api(api, request, backoff, timeout_s, min_version=least)
    return [
        _acl(each, resource.resource_type, resource.resource_name, resource.pattern_type)
        for resource in answer.resources
        for each in resource.acls
    ]


def create_acls(
    acls: Iterable[ACL], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[list[tuple[ACL, BrokerResponseError]]]:
    """Make rules: each with its error, NoError where it went well. One that is there already is no error."""
    wanted = _checked_acls(acls, ACL, "acls")
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
    api = _CREATE._replace(release=_RELEASES[least])
    answer = yield from request_api(api, request, backoff, timeout_s, raise_errors=False, min_version=least)
    return [
        (acl, result_of(result.error_code, result.error_message))
        for acl, result in _with_results(wanted, answer.results)
    ]


def delete_acls(
    acl_filters: Iterable[ACLFilter], *, backoff: Backoff, timeout_s: float = 30.0
) -> Dialogue[list[tuple[ACLFilter, list[ACL], BrokerResponseError]]]:
    """Remove every rule that a filter matches: for each filter, what has been removed, and the filter's error or the
    first of a rule that could not be removed; else NoError.

    A repeated request does not return what was removed before: KafkaConnectionError or RequestTimedOutError where the
    answer was lost, after which the rules may have been removed.
    """
    wanted = _checked_acls(acl_filters, ACLFilter, "acl_filters")

    def build(version: int) -> DeleteAclsRequest:
        filters = [DeleteAclsRequest.DeleteAclsFilter(**_filter_fields(each, version)) for each in wanted]
        return DeleteAclsRequest(filters=filters)

    least = _least_version(wanted)

    def attempt() -> Dialogue[DeleteAclsResponse | KafkaError]:
        try:
            answer = yield from send(AnyNode(), ByVersion(DeleteAclsRequest, build), min_version=least)
        except RESPONSE_LOST as error:
            return error
        raise_transient(_DELETE.entries(answer))
        return answer

    answer = yield from requiring_release(
        _RELEASES[least], retrying(attempt, what=_DELETE.what, backoff=backoff, timeout_s=timeout_s)
    )
    if isinstance(answer, KafkaError):
        why = answer.args[0] if answer.args else answer
        raise type(answer)(f"{why}; the rules may have been removed: describe_acls tells what is left") from answer
    found = []
    for each, result in _with_results(wanted, answer.filter_results):
        removed = [
            _acl(match, match.resource_type, match.resource_name, match.pattern_type)
            for match in result.matching_acls
            if not match.error_code
        ]
        parts: list[Any] = [result, *result.matching_acls]
        failed = next((part for part in parts if part.error_code), result)
        found.append((each, removed, result_of(failed.error_code, failed.error_message)))
    return found


def _checked_acls(given: Iterable[A], kind: type[A], name: str) -> list[A]:
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


def _filter_fields(wanted: ACLFilter, version: int) -> dict[str, Any]:
    """The fields of DescribeAcls, and of each filter in DeleteAcls. Before KIP-290 all names are literal, so that is
    what ANY finds."""
    pattern = wanted.resource_pattern
    return {
        "resource_type_filter": pattern.resource_type,
        "resource_name_filter": pattern.resource_name,
        "pattern_type_filter": pattern.pattern_type if version >= _PATTERNS_SINCE else ACLResourcePatternType.LITERAL,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _acl(told: Any, resource_type: int, resource_name: str, pattern_type: int) -> ACL:
    return ACL(
        told.principal,
        told.host,
        known(ACLOperation, told.operation),
        known(ACLPermissionType, told.permission_type),
        ResourcePattern(known(ResourceType, resource_type), resource_name, known(ACLResourcePatternType, pattern_type)),
    )


def _with_results(wanted: Sequence[A], results: Sequence[T]) -> list[tuple[A, T]]:
    try:
        return list(zip(wanted, results, strict=True))
    except ValueError:
        raise KafkaProtocolError(f"the broker answered {len(results)} of {len(wanted)} entries") from None

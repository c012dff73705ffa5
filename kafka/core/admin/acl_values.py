"""Access rules (ACLs) as users hand them in and get them back. Numbers are Kafka's (``org.apache.kafka.common.acl``).

    ACL         who, from where, may or may not do what, with which resources: ``ResourcePattern``
    ACLFilter   which rules are meant: the same with ANY and None in it, and a ``ResourcePatternFilter``

A number that this client does not know is UNKNOWN in answers; no request may have it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from kafka.errors import IllegalArgumentError

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

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: ACLResourcePatternType

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

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter

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
    """One rule. ``principal``: ``User:alice``, or ``User:*`` for everybody; ``host``: an address, or ``*``."""

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

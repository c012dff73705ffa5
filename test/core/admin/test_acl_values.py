"""The numbers of access rules are on the wire: those of ``org.apache.kafka.common.acl`` and ``...common.resource``."""

from __future__ import annotations

from enum import IntEnum

import pytest

from kafka.core.admin.acls import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType


@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        (
            ResourceType,
            {
                "UNKNOWN": 0, "ANY": 1, "TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5,
                "DELEGATION_TOKEN": 6, "USER": 7,
            },
        ),
        (
            ACLOperation,
            {
                "UNKNOWN": 0, "ANY": 1, "ALL": 2, "READ": 3, "WRITE": 4, "CREATE": 5, "DELETE": 6, "ALTER": 7,
                "DESCRIBE": 8, "CLUSTER_ACTION": 9, "DESCRIBE_CONFIGS": 10, "ALTER_CONFIGS": 11,
                "IDEMPOTENT_WRITE": 12, "CREATE_TOKENS": 13, "DESCRIBE_TOKENS": 14, "TWO_PHASE_COMMIT": 15,
            },
        ),
        (ACLPermissionType, {"UNKNOWN": 0, "ANY": 1, "DENY": 2, "ALLOW": 3}),
        (ACLResourcePatternType, {"UNKNOWN": 0, "ANY": 1, "MATCH": 2, "LITERAL": 3, "PREFIXED": 4}),
    ],
)  # fmt: skip
def test_members_have_javas_codes(kind: type[IntEnum], numbers: dict[str, int]) -> None:
    assert {member.name: member.value for member in kind} == numbers

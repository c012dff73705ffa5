"""Who may do what: there is no authorizer, so everybody may do all that a kind of resource knows.

The sets are bit fields of Kafka's ``AclOperation`` numbers (KIP-430), as Apache Kafka answers without an authorizer.
"""

from __future__ import annotations

from typing import Final

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

NOT_ASKED: Final = -(2**31)
"""The answer to a client that did not ask."""


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS: Final = _bits(
    READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS
)
ALL_CLUSTER_OPERATIONS: Final = _bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
ALL_GROUP_OPERATIONS: Final = _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)

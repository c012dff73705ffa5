"""Messages as dictionaries, and authorized operations by their names."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from kafka.wire.message import Struct
from kafka.wire.types import ZERO_UUID

_NO_OPERATIONS: Final = -2_147_483_648
OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS",
)  # fmt: skip
"""The bits of ``authorized_operations``, from the lowest (KIP-430)."""


def operations_of(bits: int) -> list[str] | None:
    """Names of what may be done; None when that was not asked for."""
    if bits == _NO_OPERATIONS:
        return None
    return [name for number, name in enumerate(OPERATIONS) if number > 2 and bits >> number & 1]


def to_dict(message: Struct) -> dict[str, Any]:
    """A structure as ``{field: value}``, all the way down. Ids are texts, and None where there is none."""
    return {name: _plain(getattr(message, name)) for name in message.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_dict(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, UUID):
        return None if value == ZERO_UUID else str(value)
    return value

"""Messages as what ``json`` takes, and back: a response that a test made is handed to a broker in another process.

::

    {"struct": "FetchResponse.PartitionData", "fields": {"error_code": 0, "records": {"bytes": "AAA="}, ...}}

Fields with their default are left out. Only classes of the module of the expected message are made: what comes over a
pipe names no others.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

from kafka.errors import IllegalArgumentError
from kafka.wire.message import Message, Struct

M = TypeVar("M", bound=Message)


def to_plain(value: Struct) -> dict[str, Any]:
    """A structure as dictionaries, lists, texts and numbers."""
    return {
        "struct": type(value).__qualname__,
        "fields": {name: _to_plain(getattr(value, name)) for name in value.fields},
    }


def from_plain(expected: type[M], plain: Mapping[str, Any]) -> M:
    """The message that :func:`to_plain` was asked of; IllegalArgumentError when it is another one."""
    made = _struct(expected, plain)
    if not isinstance(made, expected):
        raise IllegalArgumentError(f"{type(made).__name__} is no {expected.__name__}")
    return made


def _to_plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return to_plain(value)
    if isinstance(value, list):
        if value and isinstance(value[0], (bytes, bytearray, memoryview)):
            return {"bytes": base64.b64encode(b"".join(value)).decode()}
        return [_to_plain(each) for each in value]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, UUID):
        return {"uuid": str(value)}
    return value


def _struct(root: type[Message], plain: Mapping[str, Any]) -> Struct:
    found: Any = sys.modules[root.__module__]
    for part in str(plain["struct"]).split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, Struct) and found.__module__ == root.__module__):
        raise IllegalArgumentError(f"{plain['struct']} is no structure of {root.__name__}")
    return found(**{name: _value(root, value) for name, value in plain["fields"].items()})


def _value(root: type[Message], plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(root, each) for each in plain]
    if isinstance(plain, dict):
        if "struct" in plain:
            return _struct(root, plain)
        if "bytes" in plain:
            return base64.b64decode(plain["bytes"])
        if "uuid" in plain:
            return UUID(plain["uuid"])
    return plain

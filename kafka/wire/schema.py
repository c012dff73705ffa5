"""What a message class's body says, with its types looked up: the codec, the documentation and the tests read this.

To add a primitive type: ``types.py``, the tables here, and for one of variable size ``_sized`` in ``source.py``, twice.
"""

from __future__ import annotations

import types
import typing
from typing import Any, Final, NamedTuple
from uuid import UUID

from kafka.wire.message import FieldSpec, Struct
from kafka.wire.types import WireType

FIXED: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "float64": ("d", 8),
}
"""Types of fixed size that ``struct`` packs: format character and bytes."""

IMPLICIT_DEFAULTS: Final[dict[str, Any]] = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "uint16": 0, "float64": 0.0,
    "string": "", "bytes": b"", "records": None, "uuid": UUID(int=0),
}  # fmt: skip

class FieldType(NamedTuple):
    """A field's type, taken apart. ``kind``: a primitive's name, or "struct"; ``cls``: the structure."""

    kind: str
    cls: type[Struct] | None
    array: bool


class Field(NamedTuple):
    """A line of a schema with its type."""

    name: str
    spec: FieldSpec
    type: FieldType

    @property
    def implicit(self) -> Any:
        """The default: the schema's, or the one that the protocol implies (0, "", empty)."""
        if not self.spec.required:
            return self.spec.initial()
        if self.type.array:
            return []
        if self.type.cls is not None:
            below = fields_of(self.type.cls)
            return self.type.cls(**{each.name: each.implicit for each in below if each.spec.required})
        return IMPLICIT_DEFAULTS[self.type.kind]


_fields: dict[type[Struct], list[Field]] = {}


def fields_of(cls: type[Struct]) -> list[Field]:
    """The lines of a class with their types, in wire order. Types are looked up on the first call."""
    found = _fields.get(cls)
    if found is None:
        hints = typing.get_type_hints(cls, include_extras=True)
        found = [Field(name, spec, _field_type(hints[name])) for name, spec in cls.fields.items()]
        _fields[cls] = found
    return found


def _field_type(annotation: Any) -> FieldType:
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(parts) == 1:
            return _field_type(parts[0])
    if origin is list:
        inner = _field_type(typing.get_args(annotation)[0])
        return FieldType(inner.kind, inner.cls, True)
    metadata = getattr(annotation, "__metadata__", ())
    if metadata and isinstance(metadata[0], WireType):
        return FieldType(metadata[0].name, None, False)
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return FieldType("struct", annotation, False)
    raise TypeError(f"{annotation!r} is no type of the protocol")

"""One version of a message, flattened for comparison: Kafka's JSON on one side, our class on the other.

A view is a list of :class:`Line`, in wire order, tagged fields last by tag; a structure's lines hang below its own.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kafka.wire.message import Message, Struct, fields_of

MAX_VERSION = 32767
NOTHING = object()


class Line(NamedTuple):
    """A field as one version has it. ``default`` is what an absent value means; ``tag`` is None in line."""

    name: str
    type: str
    nullable: bool
    default: Any
    tag: int | None
    ignorable: bool
    below: tuple[Line, ...] = ()


def snake(name: str) -> str:
    """Kafka's spelling of a field as ours: ``TopicId`` -> ``topic_id``."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def parse_range(text: str | None) -> tuple[int, int] | None:
    """``"0+"``, ``"3-5"``, ``"2"`` or ``"none"`` as first and last version."""
    if text in (None, "none"):
        return None
    assert text is not None
    if text.endswith("+"):
        return int(text[:-1]), MAX_VERSION
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _within(text: str | None, version: int) -> bool:
    found = parse_range(text)
    return found is not None and found[0] <= version <= found[1]


def _schema_default(text: Any, kind: str, array: bool, nullable: bool) -> Any:
    """A JSON default as the Python value that our classes would hold."""
    # The text ``"null"`` is the default null. A JSON ``null`` means that there is no default: such a field is written
    # even when it is null.
    if text is not None and str(text) == "null":
        return None
    if array:
        return ()
    if kind == "bool":
        return str(text).lower() == "true"
    if kind in ("int8", "int16", "int32", "int64", "uint16"):
        return int(str(text), 0) if text not in (None, "") else 0
    if kind == "float64":
        return float(text) if text not in (None, "") else 0.0
    if kind == "string":
        return text or ""
    if kind == "bytes":
        return b""
    return NOTHING  # uuid, records, structures: the implied one, which the protocol has only one of


def schema_view(schema: dict[str, Any], version: int) -> tuple[Line, ...]:
    """What Kafka's schema says of ``version``."""
    commons = {each["name"]: each["fields"] for each in schema.get("commonStructs", ())}
    flexible = _within(schema["flexibleVersions"], version)

    def walk(fields: list[dict[str, Any]]) -> tuple[Line, ...]:
        lines = []
        for each in fields:
            if not _within(each["versions"], version):
                continue
            kind, array = each["type"].removeprefix("[]"), each["type"].startswith("[]")
            structure = kind[0].isupper()
            below = walk(each.get("fields") or commons.get(kind, [])) if structure else ()
            tag = each["tag"] if "tag" in each and flexible and _within(each["taggedVersions"], version) else None
            nullable = _within(each.get("nullableVersions"), version)
            default = _schema_default(each.get("default"), "struct" if structure else kind, array, nullable)
            ignorable = str(each.get("ignorable", False)).lower() == "true"
            name = each["type"]
            lines.append(Line(snake(each["name"]), name, nullable, default, tag, ignorable, below))
        return _in_wire_order(lines)

    return walk(schema["fields"])


def class_view(cls: type[Message], version: int) -> tuple[Line, ...]:
    """What our class says of ``version``."""
    flexible = cls.flexible(version)

    def walk(struct: type[Struct]) -> tuple[Line, ...]:
        lines = []
        for each in fields_of(struct):
            spec = each.spec
            if not spec.present(version):
                continue
            name = each.type.cls.__name__ if each.type.cls is not None else each.type.kind
            below = walk(each.type.cls) if each.type.cls is not None else ()
            default = each.implicit
            if default is not None:
                if each.type.array:
                    default = tuple(default)
                elif each.type.cls is not None or each.type.kind in ("uuid", "records"):
                    default = NOTHING
            elif each.type.kind == "records" and spec.required:
                default = NOTHING
            tag = spec.tag if flexible and spec.tagged(version) else None
            type_name = ("[]" if each.type.array else "") + name
            lines.append(Line(each.name, type_name, spec.nullable(version), default, tag, spec.ignorable, below))
        return _in_wire_order(lines)

    return walk(cls)


def without_names(lines: tuple[Line, ...]) -> tuple[Any, ...]:
    """Only what stands on the wire: types, nullability, tags, in order."""
    return tuple(
        (_bare_type(line), line.nullable, line.tag, without_names(line.below))
        for line in lines
    )


def _bare_type(line: Line) -> str:
    return ("[]" if line.type.startswith("[]") else "") + "struct" if line.below else line.type


def _in_wire_order(lines: list[Line]) -> tuple[Line, ...]:
    return (*(line for line in lines if line.tag is None), *sorted((x for x in lines if x.tag is not None), key=_tag))


def _tag(line: Line) -> int:
    assert line.tag is not None
    return line.tag

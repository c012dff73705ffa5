"""Messages as classes: the class body is the schema.

::

    class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 13), flexible=9):
        class MetadataRequestTopic(Struct):
            topic_id: Uuid = field(default=ZERO_UUID, since=10)
            name: String | None = field(default="", null_since=10)

        topics: list[MetadataRequestTopic] | None = field(default_factory=list, null_since=1)

A message knows neither its version nor its header nor its correlation id; ``codec.py`` encodes and decodes it
for a version. At import only names are collected; types are resolved (:func:`fields_of`), and the constructor and the
codecs compiled, when a class is first used: 300 standard-library dataclasses would cost 117 ms at import, 300 of these
classes cost 15 ms.

Nested structures are defined directly in the message's class and refer to one another by their full name
(``list[ProduceRequest.PartitionProduceData]``).
"""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from kafka.wire.types import WireType

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_settings: Any) -> Any:  # Python 3.10 has none; only type checkers look at it
        return lambda cls: cls

MAX_VERSION: Final = 32767
_MISSING: Final[Any] = object()


class FieldSpec:
    """The properties of a field besides its type.

    ``since``, ``until``: the versions that have it, both inclusive. ``null_since``: from when None is allowed (None:
    never). ``tag``: it is a tagged field, from version ``tag_since`` on (KIP-482). ``ignorable``: a value other
    than the default is omitted where the version lacks the field; else that is an error.
    ``flexible`` False: lengths are not compact even in flexible versions (one header field needs this).
    """

    __slots__ = ("default", "flexible", "ignorable", "name", "null_since", "since", "tag", "tag_since", "until")

    def __init__(
        self,
        default: Any,
        since: int,
        until: int,
        null_since: int | None,
        tag: int | None,
        tag_since: int,
        ignorable: bool,
        flexible: bool,
    ) -> None:
        # Set when the class body has been read: the call that makes the spec does not know its field's name.
        self.name = ""
        self.default = default
        self.since = since
        self.until = until
        self.null_since = null_since
        self.tag = tag
        self.tag_since = tag_since
        self.ignorable = ignorable
        self.flexible = flexible

    @property
    def required(self) -> bool:
        """Whether the constructor requires it."""
        return self.default is _MISSING

    def nullable(self, version: int) -> bool:
        return self.null_since is not None and version >= self.null_since

    def tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since

    def present(self, version: int) -> bool:
        return self.since <= version <= self.until

    def initial(self) -> Any:
        """A fresh default value."""
        if self.default is _MISSING:
            raise TypeError(f"{self.name} has no default")
        return self.default() if callable(self.default) else self.default


def field(
    *,
    default: Any = _MISSING,
    default_factory: Any = _MISSING,
    since: int = 0,
    until: int = MAX_VERSION,
    null_since: int | None = None,
    tag: int | None = None,
    tag_since: int = 0,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """A field of a schema; see :class:`FieldSpec`. ``default_factory`` is for lists and structures."""
    initial = default if default_factory is _MISSING else default_factory
    return FieldSpec(initial, since, until, null_since, tag, tag_since, ignorable, flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Collects the fields of a class body: a slot and a :class:`FieldSpec` for each annotation."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **settings: Any) -> StructMeta:
        specs: dict[str, FieldSpec] = {}
        for attribute, annotation in namespace.get("__annotations__", {}).items():
            if "ClassVar" in str(annotation):
                continue
            spec = namespace.pop(attribute, None)
            spec = spec if isinstance(spec, FieldSpec) else field()
            spec.name = attribute
            specs[attribute] = spec
        namespace["__slots__"] = (*namespace.get("__slots__", ()), *specs)
        namespace["fields"] = specs
        return super().__new__(mcs, name, bases, namespace, **settings)


class Struct(metaclass=StructMeta):
    """A structure of fields. ``unknown_tags``: tagged fields that the schema lacks, as bytes by tag, or None."""

    __slots__ = ("unknown_tags",)

    fields: ClassVar[dict[str, FieldSpec]]
    unknown_tags: ClassVar[Any]  # a slot, declared so that it is not a field

    def __init__(self, **values: Any) -> None:
        from kafka.wire.codec import compile_constructor

        compile_constructor(type(self))
        self.__init__(**values)  # type: ignore[misc]  # now the compiled one

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.unknown_tags or None) == (other.unknown_tags or None) and all(
            _comparable(getattr(self, name)) == _comparable(getattr(other, name)) for name in self.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{name}={_short(getattr(self, name))}" for name in self.fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A structure with versions: an API's request or response, or a header."""

    api_key: ClassVar[int] = -1
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = MAX_VERSION
    is_counted: ClassVar[bool] = False
    """Whether its reader bounds the number of its elements instead of their memory: the messages that brokers read."""

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: tuple[int, int] | None = None, flexible: int | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if versions is not None:
            cls.api_key = api_key
            cls.min_version, cls.max_version = versions
            cls.flexible_since = MAX_VERSION if flexible is None else flexible

    @classmethod
    def flexible(cls, version: int) -> bool:
        """Whether this version has compact lengths and tagged fields (KIP-482)."""
        return version >= cls.flexible_since


class Response(Message):
    """A broker's response."""


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """A client's request; ``Request["FooResponse"]`` names the type of its response."""

    is_counted = True

    @classmethod
    def response_type(cls) -> type[R]:
        """The class of the response."""
        import sys

        name = cls.__orig_bases__[0].__args__[0]  # type: ignore[attr-defined]
        name = getattr(name, "__forward_arg__", name)
        return getattr(sys.modules[cls.__module__], name) if isinstance(name, str) else name  # type: ignore[no-any-return]


def _comparable(value: Any) -> Any:
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, list) and value and isinstance(value[0], (bytes, bytearray, memoryview)):
        return b"".join(value)
    return value


def _short(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(value)


FIXED: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "float64": ("d", 8),
}
"""Types of fixed size that ``struct`` packs: format character and bytes. To add a primitive type: ``types.py``, these
two tables, and for one of variable size both ``_sized`` methods in ``codec.py``."""

IMPLICIT_DEFAULTS: Final[dict[str, Any]] = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "uint16": 0, "float64": 0.0,
    "string": "", "bytes": b"", "records": None, "uuid": UUID(int=0),
}  # fmt: skip

class FieldType(NamedTuple):
    """A field's type. ``kind``: a primitive's name, or "struct"; ``cls``: the structure."""

    kind: str
    cls: type[Struct] | None
    array: bool


class Field(NamedTuple):
    """A field of a schema with its type."""

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
            nested = fields_of(self.type.cls)
            return self.type.cls(**{each.name: each.implicit for each in nested if each.spec.required})
        return IMPLICIT_DEFAULTS[self.type.kind]


_fields: dict[type[Struct], list[Field]] = {}


def fields_of(cls: type[Struct]) -> list[Field]:
    """The fields of a class with their types, in wire order. Types are resolved on the first call."""
    fields = _fields.get(cls)
    if fields is None:
        hints = typing.get_type_hints(cls, include_extras=True)
        fields = [Field(name, spec, _field_type(hints[name])) for name, spec in cls.fields.items()]
        _fields[cls] = fields
    return fields


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
    raise TypeError(f"{annotation!r} is not a type of the protocol")

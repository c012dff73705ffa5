"""Messages as classes: the class body is the schema.

::

    class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 13), flexible=9):
        class MetadataRequestTopic(Struct):
            topic_id: Uuid = field(default=ZERO_UUID, since=10)
            name: String | None = field(default="", null_since=10)

        topics: list[MetadataRequestTopic] | None = field(default_factory=list, null_since=1)

A message knows neither its version nor its header nor its correlation id; ``codec.py`` turns it into bytes and back for
a version. Classes are light on purpose (300 standard-library dataclasses cost 117 ms at import, 300 of these 15 ms): at
import only names are collected. Types are looked at, and the constructor
and the codecs compiled, when a class is first used.

Nested structures stand directly in the message's class and refer to one another by their full name
(``list[ProduceRequest.PartitionProduceData]``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_settings: Any) -> Any:  # Python 3.10 has none; only type checkers look at it
        return lambda cls: cls

MAX_VERSION: Final = 32767
_MISSING: Final[Any] = object()


class FieldSpec:
    """What a field's line says beside its type.

    ``since``, ``until``: the versions that have it, both inclusive. ``null_since``: from when None is allowed (None:
    never). ``tag``: it travels as a tagged field, from version ``tag_since`` on (KIP-482). ``ignorable``: a value other
    than the default is left out in silence where the version lacks the field; else that is an error.
    ``flexible`` False: lengths stay in the old form even in flexible versions (one header field needs this).
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
        """The constructor must be given it."""
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
    """A line of a schema; see :class:`FieldSpec`. ``default_factory`` is for lists and structures."""
    chosen = default if default_factory is _MISSING else default_factory
    return FieldSpec(chosen, since, until, null_since, tag, tag_since, ignorable, flexible)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class StructMeta(type):
    """Collects the lines of a class body: a slot and a :class:`FieldSpec` for each annotation."""

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
    """A structure of fields. ``unknown_tags``: tagged fields that the schema lacks, kept as bytes by tag, or None."""

    __slots__ = ("unknown_tags",)

    fields: ClassVar[dict[str, FieldSpec]]
    unknown_tags: ClassVar[Any]  # a slot, declared so that it is no field

    def __init__(self, **values: Any) -> None:
        from kafka.wire.codec import compile_constructor

        compile_constructor(type(self))
        self.__init__(**values)  # type: ignore[misc]  # now the compiled one

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.unknown_tags or None) == (other.unknown_tags or None) and all(
            _plain(getattr(self, name)) == _plain(getattr(other, name)) for name in self.fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = [f"{name}={_short(getattr(self, name))}" for name in self.fields]
        if self.unknown_tags:
            shown.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A structure that is an API's request or response, or a header: it has versions."""

    api_key: ClassVar[int] = -1
    min_version: ClassVar[int] = 0
    max_version: ClassVar[int] = 0
    flexible_since: ClassVar[int] = MAX_VERSION
    is_counted: ClassVar[bool] = False
    """Whether its reader bounds the number of its elements, and not their memory: of what brokers read."""

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
    """What a broker answers."""


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """What a client asks; ``Request["FooResponse"]`` names the type of the answer."""

    is_counted = True

    @classmethod
    def response_type(cls) -> type[R]:
        """The class of the answer."""
        import sys

        name = cls.__orig_bases__[0].__args__[0]  # type: ignore[attr-defined]
        name = getattr(name, "__forward_arg__", name)
        return getattr(sys.modules[cls.__module__], name) if isinstance(name, str) else name  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    if isinstance(value, memoryview):
        return value.tobytes()
    if isinstance(value, list) and value and isinstance(value[0], (bytes, bytearray, memoryview)):
        return b"".join(value)
    return value


def _short(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(value)

"""Turns messages into bytes and back: one straight-line function for each (class, version), compiled on first use.

The only place in the package that calls ``exec``. What is run is made from class bodies of ours alone; nothing that
came over a network or from a user gets into the source text.

Whatever is wrong with the bytes comes out as :class:`kafka.errors.KafkaProtocolError` with the position, and nothing
else does; whatever is wrong with the values to be written, as :class:`kafka.errors.IllegalArgumentError` or
:class:`kafka.errors.UnsupportedFieldError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar
from uuid import UUID

from kafka.errors import IllegalArgumentError, KafkaProtocolError, UnsupportedFieldError
from kafka.wire import message as _message
from kafka.wire.message import Message, Struct
from kafka.wire.primitives import corrupt, read_uvarint, uvarint
from kafka.wire.source import ReaderSource, Source, WriterSource
from kafka.wire.types import BytesLike

M = TypeVar("M", bound=Struct)

Reader = Callable[[Any, int, int], tuple[Any, int]]
Writer = Callable[[Any, list[Any]], None]

_READ_FAULTS: Final = (struct.error, IndexError, UnicodeDecodeError, MemoryError)
_WRITE_FAULTS: Final = (struct.error, AttributeError, TypeError, ValueError)


# -- what users of this module call -----------------------------------------------------------------------------------


def encode(message: Struct, version: int) -> bytes:
    """The bytes of ``message`` in ``version``, without header or length; twice the same for the same message.

    Raises UnsupportedFieldError when a field is set that the version lacks and that may not be left out, and
    IllegalArgumentError when a value does not fit its type.
    """
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Struct, version: int) -> list[BytesLike]:
    """Like :func:`encode`, as the list of byte strings that make it up: large ones are the caller's own objects."""
    out: list[BytesLike] = []
    writer_for(type(message), version)(message, out)
    return out


def decode(cls: type[M], data: bytes | memoryview, version: int) -> M:
    """The message that ``data`` holds in ``version``: all of it, or KafkaProtocolError."""
    message, position = decode_from(cls, data, 0, version)
    if position != len(data):
        left = len(data) - position
        raise KafkaProtocolError(f"{left} bytes behind the end of {_title(cls, version)}", offset=position)
    return message


def decode_from(cls: type[M], data: bytes | memoryview, position: int, version: int) -> tuple[M, int]:
    """The message at ``position`` and the position behind it."""
    return reader_for(cls, version)(data, position, len(data))


def writer_for(cls: type[Struct], version: int) -> Writer:
    """The compiled writer ``(message, chunks) -> None`` of a class and version."""
    found = _writers.get((cls, version))
    if found is None:
        found = _writers[cls, version] = _compile(WriterSource(cls, version), cls, version)
    return found


def reader_for(cls: type[Struct], version: int) -> Reader:
    """The compiled reader ``(data, position, end) -> (message, position)`` of a class and version."""
    found = _readers.get((cls, version))
    if found is None:
        found = _readers[cls, version] = _compile(ReaderSource(cls, version), cls, version)
    return found


_writers: dict[tuple[type[Struct], int], Writer] = {}
_readers: dict[tuple[type[Struct], int], Reader] = {}


# -- compilation ------------------------------------------------------------------------------------------------------

_HELPERS: Final[dict[str, Any]] = {
    "corrupt": corrupt,
    "read_uvarint": read_uvarint,
    "uvarint": uvarint,
    "view": memoryview,
    "pack_many": struct.pack,
    "unpack_many": struct.unpack_from,
    "new": object.__new__,
}


def _helper(function: Callable[..., Any]) -> Callable[..., Any]:
    _HELPERS[function.__name__.strip("_")] = function
    return function


@_helper
@lru_cache(maxsize=1024)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)  # the same few come in every answer, and making one costs as much as all else around it


@_helper
def _flat(data: BytesLike) -> BytesLike:
    """So that its length is in bytes."""
    return data.cast("B") if isinstance(data, memoryview) and len(data) != data.nbytes else data


@_helper
def _too_long(length: int) -> None:
    raise ValueError(f"a string of {length} bytes is longer than 32767")


@_helper
def _unsupported(name: str, attribute: str, version: int) -> None:
    raise UnsupportedFieldError(f"{name} version {version} has no {attribute}, and it is set")


@_helper
def _write_tags(append: Callable[[bytes], None], known: dict[int, bytes], unknown: dict[int, bytes] | None) -> None:
    fields = {**unknown, **known} if unknown else known
    append(uvarint(len(fields)))
    for tag in sorted(fields):
        data = fields[tag]
        append(uvarint(tag) + uvarint(len(data)))
        append(data)


def _compile(source: Source, cls: type[Struct], version: int) -> Any:
    """Runs the source's text and gives the function that it defines. IllegalArgumentError for a version that the
    message does not have; the function itself turns the errors of decoding and encoding into those that the module
    promises."""
    if issubclass(cls, Message) and not cls.min_version <= version <= cls.max_version:
        raise IllegalArgumentError(
            f"{cls.__name__} has versions {cls.min_version} to {cls.max_version}, not {version}"
        )
    reading = source.kind == "read"
    source.body()
    arguments = "d, p, n" if reading else "m, out"
    fault = "read_fault(error, p)" if reading else "write_fault(error)"
    text = "\n".join(
        [f"def {source.kind}({arguments}):", "    try:", *source.lines, f"    except FAULTS as error: {fault}"]
    )
    title = _title(cls, version)

    def read_fault(error: Exception, position: int) -> None:
        raise KafkaProtocolError(f"{title} cannot be read: {error}", offset=position) from None

    def write_fault(error: Exception) -> None:
        if isinstance(error, (UnsupportedFieldError, IllegalArgumentError)):
            raise error
        raise IllegalArgumentError(f"{title} cannot be written: {error}") from error

    names = {**_HELPERS, **source.names, "read_fault": read_fault, "write_fault": write_fault}
    names["FAULTS"] = _READ_FAULTS if reading else _WRITE_FAULTS
    exec(compile(text, f"<{source.kind} {title}>", "exec"), names)
    return names[source.kind]


def compile_constructor(cls: type[Struct]) -> None:
    """Give a class the ``__init__`` that its schema says: keywords only, defaults filled in."""
    parameters: list[str] = []
    body: list[str] = ["self.unknown_tags = None"]
    names: dict[str, Any] = {"MISSING": _message._MISSING}
    for name, spec in cls.fields.items():
        if spec.required:
            parameters.append(name)
            body.append(f"self.{name} = {name}")
        elif callable(spec.default):
            names[f"make_{name}"] = spec.default
            parameters.append(f"{name}=MISSING")
            body.append(f"self.{name} = make_{name}() if {name} is MISSING else {name}")
        else:
            names[f"default_{name}"] = spec.default
            parameters.append(f"{name}=default_{name}")
            body.append(f"self.{name} = {name}")
    star = "*, " if parameters else ""
    text = f"def __init__(self, {star}{', '.join(parameters)}):\n    " + "\n    ".join(body)
    exec(compile(text, f"<constructor of {cls.__qualname__}>", "exec"), names)
    cls.__init__ = names["__init__"]  # type: ignore[method-assign]


def _title(cls: type, version: int) -> str:
    return f"{cls.__qualname__} version {version}"

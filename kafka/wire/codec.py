"""Encodes and decodes messages: one straight-line function for each (class, version), compiled on first use.

The only module in the package that calls ``exec``. The compiled source is made from our own class bodies: field names,
versions and the types of ``types.py``. Nothing from a network or a user gets into it.

A reader looks like this (``d``: data, ``p``: position, ``n``: end)::

    m = new(c1)
    m.throttle_time_ms, m.controller_id, = unpack_from_ii(d, p); p += 8
    ...
    return m, p

and a writer appends byte strings to the list ``out`` through ``a``. Nested structures are inlined, so a message is one
function. Neighbouring fields of fixed size share one call of ``struct``.

The size of what a reader makes from a few bytes is bounded before it is made: of a request by a count
(:data:`MAX_ELEMENTS`), of all other messages by memory (:class:`Cost`). ``left`` is the rest of either budget.

Invalid bytes raise :class:`kafka.errors.KafkaProtocolError` with the position, and no other error; values that cannot
be encoded raise :class:`kafka.errors.IllegalArgumentError` or :class:`kafka.errors.UnsupportedFieldError`.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, Final, NoReturn, TypeVar
from uuid import UUID

from kafka.errors import IllegalArgumentError, KafkaProtocolError, UnsupportedFieldError
from kafka.wire import message as _message
from kafka.wire.message import FIXED, Field, Message, Struct, fields_of
from kafka.wire.types import BytesLike

M = TypeVar("M", bound=Struct)

Reader = Callable[[Any, int, int], tuple[Any, int]]
Writer = Callable[[Any, list[Any]], None]

_READ_ERRORS: Final = (struct.error, IndexError, UnicodeDecodeError, MemoryError)
_WRITE_ERRORS: Final = (struct.error, AttributeError, TypeError, ValueError)


def encode(message: Struct, version: int) -> bytes:
    """The bytes of ``message`` in ``version``, without header or length; always the same for the same message.

    Raises UnsupportedFieldError when a field is set that the version lacks and that is not ignorable, and
    IllegalArgumentError when a value does not fit its type.
    """
    return b"".join(encode_chunks(message, version))


def encode_chunks(message: Struct, version: int) -> list[BytesLike]:
    """Like :func:`encode`, as a list of byte strings: large ones are the caller's own objects, not copies."""
    out: list[BytesLike] = []
    writer_for(type(message), version)(message, out)
    return out


def decode(cls: type[M], data: bytes | memoryview, version: int) -> M:
    """The message that all of ``data`` is in ``version``; KafkaProtocolError otherwise."""
    message, position = decode_from(cls, data, 0, version)
    if position != len(data):
        left = len(data) - position
        raise KafkaProtocolError(f"{left} bytes after the end of {_title(cls, version)}", offset=position)
    return message


def decode_from(
    cls: type[M], data: bytes | memoryview, position: int, version: int, *, null_is_empty: bool = False
) -> tuple[M, int]:
    """The message at ``position`` and the position after it. ``null_is_empty``: read a null array, text or bytes as
    empty where the version has no null, instead of refusing the message."""
    reader = _tolerant_reader_for(cls, version) if null_is_empty else reader_for(cls, version)
    return reader(data, position, len(data))


def writer_for(cls: type[Struct], version: int) -> Writer:
    """The compiled writer ``(message, chunks) -> None`` of a class and version."""
    writer = _writers.get((cls, version))
    if writer is None:
        writer = _writers[cls, version] = _compile(WriterSource(cls, version), cls, version)
    return writer


def reader_for(cls: type[Struct], version: int) -> Reader:
    """The compiled reader ``(data, position, end) -> (message, position)`` of a class and version."""
    reader = _readers.get((cls, version))
    if reader is None:
        reader = _readers[cls, version] = _compile(ReaderSource(cls, version), cls, version)
    return reader


@cache
def _tolerant_reader_for(cls: type[Struct], version: int) -> Reader:
    reader: Reader = _compile(TolerantReaderSource(cls, version), cls, version)
    return reader


_writers: dict[tuple[type[Struct], int], Writer] = {}
_readers: dict[tuple[type[Struct], int], Reader] = {}


# -- unsigned varints ------------------------------------------------------------------------------------------------
#
# Seven bits a byte, the lowest first, and the top bit set on all but the last byte; at most five bytes for 32 bits
# (protocol guide, "UNSIGNED_VARINT"; KIP-482). The signed varints of record fields are in ``kafka/records``.

_TABLE_SIZE: Final = 2048


def _encode(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


_TABLE: Final = tuple(map(_encode, range(_TABLE_SIZE)))


def uvarint(n: int) -> bytes:
    """``n`` (0 to 2**32 - 1) as an unsigned varint."""
    return _TABLE[n] if n < _TABLE_SIZE else _encode(n)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """The unsigned varint at ``position``, and the position after it; IndexError when the data ends within it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                corrupt("a varint above 32 bits", position)
            return value, position
        shift += 7
        if shift == 35:
            corrupt("a varint of more than five bytes", position)


def corrupt(text: str, position: int) -> NoReturn:
    """Raise the protocol error for invalid bytes at ``position``."""
    raise KafkaProtocolError(text, offset=position)


# -- the memory that a message may take ------------------------------------------------------------------------------
#
# A few bytes can make an object of a hundred, so the length of a frame alone does not bound the memory of its message.
# A reader allows BYTES_PER_BYTE bytes of memory for each byte of the frame, and SPARE_BYTES once. The memory that an
# element takes beyond its own share is its *excess*; the reader adds up the excesses of all elements before it makes
# them, and refuses the message when they exceed the spare bytes. Texts and byte strings need no check of their own:
# each of their bytes stays within its share.
#
#     excess = most bytes in memory of an element with nothing in it - BYTES_PER_BYTE * its least bytes on the wire
#
# Most elements of the protocol have no excess: a partition of Metadata takes 430 bytes in memory for 18. The sums are
# literals in the compiled readers. The sizes are those of 64-bit CPython, rounded up.

BYTES_PER_BYTE: Final = 28
"""Memory allowed for each byte of a frame."""
SPARE_BYTES: Final = 56 << 20
"""Memory allowed for a message beyond that."""

POINTER_BYTES: Final = 10
"""An element's pointer in a list, which over-allocates when it grows."""
LIST_BYTES: Final = 64
NUMBER_BYTES: Final = 32
TEXT_BYTES: Final = 8
"""A str has a header of 50 bytes, and the empty one is shared: with two letters it takes 64."""
UUID_BYTES: Final = 144
VIEW_BYTES: Final = 208
TAGS_BYTES: Final = 256
"""The dictionary of a structure's unknown tagged fields."""
TAG_BYTES: Final = 160
"""An entry of that dictionary, with its number, while the dictionary grows."""


class Cost:
    """Least bytes on the wire and most bytes in memory of the elements of arrays, in one version of a message."""

    def __init__(self, cls: type[Struct], version: int) -> None:
        self._version = version
        self._flexible = issubclass(cls, Message) and cls.flexible(version)

    def element(self, each: Field) -> tuple[int, int]:
        """(least bytes on the wire, excess in memory) of an element of this array."""
        kind, cls, _ = each.type
        if cls is not None:
            wire, held = self._struct(cls)
        elif kind in FIXED:
            wire, held = FIXED[kind][1], POINTER_BYTES + NUMBER_BYTES  # first in a tuple, then in a list
        else:
            wire, held = self._plain(kind, self._flexible and each.spec.flexible)
        return wire, max(held + POINTER_BYTES - BYTES_PER_BYTE * wire, 0)

    def _struct(self, cls: type[Struct]) -> tuple[int, int]:
        wire, held = (1 if self._flexible else 0), size_of(cls)
        for each in fields_of(cls):
            spec = each.spec
            if not spec.present(self._version) or self._flexible and spec.tagged(self._version):
                held += _default_bytes(each)
                continue
            more_wire, more_held = self._field(each)
            wire += more_wire
            held += more_held
        return wire, held

    def _field(self, each: Field) -> tuple[int, int]:
        kind, cls, array = each.type
        compact = self._flexible and each.spec.flexible
        if array:
            return (1 if compact else 4), LIST_BYTES
        if cls is None:
            return self._plain(kind, compact)
        wire, held = self._struct(cls)
        if not each.spec.nullable(self._version):
            return wire, held
        return (1, 0) if held < BYTES_PER_BYTE * wire else (wire + 1, held)  # the more expensive of null and not null

    def _plain(self, kind: str, compact: bool) -> tuple[int, int]:
        if kind in FIXED:
            return FIXED[kind][1], 0 if kind == "bool" else NUMBER_BYTES
        if kind == "uuid":
            return 16, UUID_BYTES
        held = {"string": TEXT_BYTES, "bytes": 0, "records": VIEW_BYTES}[kind]
        return (1 if compact else 2 if kind == "string" else 4), held


def size_of(cls: type[Struct]) -> int:
    """Bytes of an object of the class, without those that its fields refer to."""
    return (sys.getsizeof(object.__new__(cls)) + 15) // 16 * 16


def _default_bytes(each: Field) -> int:
    """Bytes of the default that a reader makes where the field is not on the wire (``ReaderSource._default``)."""
    spec, kind = each.spec, each.type
    if kind.array:
        return LIST_BYTES if spec.required or spec.default is list else 0
    made = kind.cls if spec.required else spec.default
    if not isinstance(made, type) or not issubclass(made, Struct):
        made = type(made()) if callable(made) else None
    if made is None or not issubclass(made, Struct):
        return 0
    return size_of(made) + sum(map(_default_bytes, fields_of(made)))


# -- the source text of readers and writers ----------------------------------------------------------------------------

MAX_ELEMENTS: Final = 1 << 15
"""The most elements of a request, all its arrays and tagged fields together. :data:`ELEMENT_BYTES` bytes of its
texts and byte strings count as one (its records do not count). Each UUID in an element counts as one, too: making it
takes as long as the rest of the element. The limit bounds the time in which a broker's loop reads the request."""

ELEMENT_BYTES: Final = 512

MAX_STRING_BYTES: Final = 32_767
"""The most that a length of two bytes can hold; the limit is the same for compact lengths, as in Kafka's own codecs."""


class Source:
    """The lines of a function that is being generated, and the objects that they refer to by name."""

    kind = ""

    def __init__(self, cls: type[Struct], version: int) -> None:
        self.cls = cls
        self.version = version
        self.lines: list[str] = []
        self.indent = 2
        self.names: dict[str, Any] = {}
        self._counter = 0
        self.flexible = issubclass(cls, Message) and cls.flexible(version)

    def add(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    def fresh(self, stem: str) -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def bind(self, value: Any, stem: str) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def packer(self, formats: str, method: str) -> str:
        name = f"{method}_{formats.replace('?', 'B_')}"
        self.names.setdefault(name, getattr(struct.Struct(">" + formats), method))
        return name

    def split(self, cls: type[Struct]) -> tuple[list[Field], list[Field], list[Field]]:
        """The fields of a structure in this version: in line, tagged, absent."""
        present = [f for f in fields_of(cls) if f.spec.present(self.version)]
        absent = [f for f in fields_of(cls) if not f.spec.present(self.version)]
        tagged = [f for f in present if self.is_tagged(f)]
        plain = [f for f in present if f not in tagged]
        return plain, tagged, absent

    def is_tagged(self, each: Field) -> bool:
        """Whether this version has the field as a tagged one. A null structure is 0 there, and -1 in line (seen
        in ConsumerGroupMemberMetadataValue)."""
        return self.flexible and each.spec.tagged(self.version)

    def groups(self, plain: list[Field]) -> Iterator[list[Field]]:
        """Runs of neighbouring fields of fixed size together, every other field alone."""
        run: list[Field] = []
        for each in plain:
            if each.type.kind in FIXED and not each.type.array:
                run.append(each)
                continue
            if run:
                yield run
                run = []
            yield [each]
        if run:
            yield run

    def body(self) -> None:
        raise NotImplementedError


class WriterSource(Source):
    kind = "write"

    def body(self) -> None:
        self.add("a = out.append")
        self._struct("m", self.cls)

    def _struct(self, m: str, cls: type[Struct]) -> None:
        plain, tagged, absent = self.split(cls)
        for each in absent:
            if not each.spec.ignorable:
                self._refuse_if_set(m, each)
        for run in self.groups(plain):
            first = run[0]
            if first.type.kind in FIXED and not first.type.array:
                formats = "".join(FIXED[f.type.kind][0] for f in run)
                self.add(f"a({self.packer(formats, 'pack')}({', '.join(f'{m}.{f.name}' for f in run)}))")
            else:
                self._value(f"{m}.{first.name}", first, self.flexible and first.spec.flexible)
        if self.flexible:
            self._tags(m, tagged)

    def _refuse_if_set(self, m: str, each: Field) -> None:
        value = f"{m}.{each.name}"
        is_empty_unset = each.type.array and each.spec.default is not None  # an empty list as well as None
        test = value if is_empty_unset else self._differs(value, each.implicit)
        self.add(f"if {test}: unsupported({self.cls.__qualname__!r}, {each.name!r}, {self.version})")

    def _value(self, value: str, each: Field, compact: bool) -> None:
        """Write a field of variable size: null where this version allows it, then an array, a structure, or bytes with
        their length. Null is a length of -1 (0 in compact form, KIP-482) in as many bytes as the length has; of a
        structure it is one byte, which is 1 before a structure that is not null."""
        kind, cls, array = each.type
        nullable = each.spec.nullable(self.version)
        v = self.fresh("v")
        self.add(f"{v} = {value}")
        if nullable:
            null = b"\x00" if compact else b"\xff\xff\xff\xff"
            if not array:
                if kind == "struct":
                    null = b"\x00" if self.is_tagged(each) else b"\xff"
                elif kind == "string" and not compact:
                    null = b"\xff\xff"
            self.add(f"if {v} is None: a({null!r})")
            self.add("else:")
            self.indent += 1
            if kind == "struct" and not array:
                self.add(r"a(b'\x01')")
        if array:
            self._array(v, kind, cls, compact)
        elif cls is not None:
            self._struct(v, cls)
        else:
            self._sized(v, kind, compact)
        if nullable:
            self.indent -= 1

    def _length(self, expression: str, compact: bool, formats: str) -> None:
        self.add(f"a(uvarint({expression} + 1))" if compact else f"a({self.packer(formats, 'pack')}({expression}))")

    def _sized(self, v: str, kind: str, compact: bool) -> None:
        """Write a value that is not null: a UUID as its 16 bytes, all others after their length. Records may be a list
        or tuple of pieces, which are appended to ``out`` without being joined."""
        if kind == "uuid":
            self.add(f"a({v}.bytes)")
        elif kind == "string":
            b = self.fresh("b")
            self.add(f"{b} = {v}.encode()")
            if compact:
                self.add(f"if len({b}) > 32767: too_long(len({b}))")
            self._length(f"len({b})", compact, "h")
            self.add(f"a({b})")
        elif kind == "bytes":
            self._length(f"len({v})", compact, "i")
            self.add(f"a({v})")
        else:
            self.add(f"if isinstance({v}, (list, tuple)):")
            self.indent += 1
            b = self.fresh("b")
            self.add(f"{b} = [flat(piece) for piece in {v}]")
            self._length(f"sum(map(len, {b}))", compact, "i")
            self.add(f"out.extend({b})")
            self.indent -= 1
            self.add("else:")
            self.indent += 1
            b = self.fresh("b")
            self.add(f"{b} = flat({v})")
            self._length(f"len({b})", compact, "i")
            self.add(f"a({b})")
            self.indent -= 1

    def _array(self, v: str, kind: str, cls: type[Struct] | None, compact: bool) -> None:
        self._length(f"len({v})", compact, "i")
        if kind in FIXED:
            self.add(f"a(pack_many('>%d{FIXED[kind][0]}' % len({v}), *{v}))")
            return
        item = self.fresh("e")
        self.add(f"for {item} in {v}:")
        self.indent += 1
        if cls is not None:
            before = len(self.lines)
            self._struct(item, cls)
            if len(self.lines) == before:
                self.add("pass")
        else:
            self._sized(item, kind, compact)
        self.indent -= 1

    def _tags(self, m: str, tagged: list[Field]) -> None:
        """Write the tagged fields (KIP-482) whose values differ from their defaults, and the unknown ones that were
        decoded. Each value is first written to an ``out`` of its own: its size precedes it, and ``write_tags`` orders
        all by their tags."""
        t = self.fresh("t")
        if not tagged:
            self.add(f"if {m}.unknown_tags: write_tags(a, {{}}, {m}.unknown_tags)")
            self.add("else: a(b'\\x00')")
            return
        self.add(f"{t} = {{}}")
        for each in tagged:
            value = f"{m}.{each.name}"
            default = each.implicit
            if each.type.array and not default and default is not None:
                test = f"{value} is None or len({value})" if each.spec.nullable(self.version) else f"len({value})"
            elif default is None:
                test = f"{value} is not None"
            else:
                test = self._differs(value, default)
            self.add(f"if {test}:")
            self.indent += 1
            outer = self.fresh("o")
            self.add(f"{outer} = out, a; out = []; a = out.append")
            if each.type.kind in FIXED and not each.type.array:
                self.add(f"a({self.packer(FIXED[each.type.kind][0], 'pack')}({value}))")
            else:
                self._value(value, each, True)
            self.add(f"{t}[{each.spec.tag}] = b''.join(out); out, a = {outer}")
            self.indent -= 1
        self.add(f"if {t} or {m}.unknown_tags: write_tags(a, {t}, {m}.unknown_tags)")
        self.add("else: a(b'\\x00')")

    def _differs(self, value: str, default: Any) -> str:
        """Whether a field has another value than its default. Of a structure, field by field: each partition of a fetch
        has three such fields, and hardly ever is anything in them."""
        if not isinstance(default, Struct):
            return f"{value} != {self.bind(default, 'default')}"
        v = self.fresh("v")
        self.add(f"{v} = {value}")
        fields = [f"{v}.{name} != {self.bind(getattr(default, name), 'default')}" for name in default.fields]
        return " or ".join([f"{v} is None", f"{v}.unknown_tags", *fields])


def _is_plain(value: Struct) -> bool:
    """Whether there is nothing in the structure that could be changed."""
    return all(isinstance(getattr(value, name), (int, float, str, UUID)) for name in value.fields)


class ReaderSource(Source):
    kind = "read"
    null_is_empty = False

    def body(self) -> None:
        self._counts = issubclass(self.cls, Message) and self.cls.is_counted
        self._cost = Cost(self.cls, self.version)
        self._has_records = False
        self.add(f"left = {MAX_ELEMENTS * ELEMENT_BYTES if self._counts else SPARE_BYTES}")
        begin = len(self.lines)
        self._struct("m", self.cls)
        if self._has_records:
            self.lines.insert(begin, "        whole = view(d)")  # once: each view of bytes is two objects
        self.add("return m, p")

    def _struct(self, m: str, cls: type[Struct]) -> None:
        plain, tagged, absent = self.split(cls)
        self.add(f"{m} = new({self.bind(cls, 'c')})")
        for each in (*absent, *tagged):
            self._default(m, each)
        for run in self.groups(plain):
            first = run[0]
            if first.type.kind in FIXED and not first.type.array:
                formats = "".join(FIXED[f.type.kind][0] for f in run)
                size = sum(FIXED[f.type.kind][1] for f in run)
                targets = "".join(f"{m}.{f.name}, " for f in run)
                self.add(f"{targets}= {self.packer(formats, 'unpack_from')}(d, p); p += {size}")
            else:
                self._value(f"{m}.{first.name}", first, self.flexible and first.spec.flexible)
        if self.flexible:
            self._tags(m, tagged)
        else:
            self.add(f"{m}.unknown_tags = None")

    def _default(self, m: str, each: Field) -> None:
        spec, kind = each.spec, each.type
        if each.type.array and (spec.required or spec.default is list):
            self.add(f"{m}.{each.name} = []")
        elif not spec.required and callable(spec.default):
            self._made(f"{m}.{each.name}", spec.default)
        elif spec.required and kind.cls is not None:
            self.add(f"{m}.{each.name} = {self.bind(kind.cls, 'c')}()")
        else:
            self.add(f"{m}.{each.name} = {self.bind(each.implicit, 'default')}")

    def _made(self, target: str, make: Callable[[], Any]) -> None:
        """A mutable default, new for each message. A structure of plain values is inlined, without a call."""
        sample = make()
        if not isinstance(sample, Struct) or not _is_plain(sample):
            self.add(f"{target} = {self.bind(make, 'make')}()")
            return
        x = self.fresh("x")
        self.add(f"{target} = {x} = new({self.bind(type(sample), 'c')}); {x}.unknown_tags = None")
        for name in sample.fields:
            self.add(f"{x}.{name} = {self.bind(getattr(sample, name), 'default')}")

    def _read_length(self, k: str, compact: bool, formats: str) -> None:
        """Leaves the length in ``k``: -1 for null."""
        if compact:
            self.add(f"{k} = d[p]; p += 1")
            self.add(f"if {k} > 127: {k}, p = read_uvarint(d, p - 1)")
            self.add(f"{k} -= 1")
        else:
            size = 2 if formats == "h" else 4
            self.add(f"{k}, = {self.packer(formats, 'unpack_from')}(d, p); p += {size}")

    def _value(self, target: str, each: Field, compact: bool) -> None:
        """Read a field of variable size. A length of -1 is null, which is refused where this version of the field does
        not allow it; any length below -1 is refused."""
        kind, cls, array = each.type
        nullable = each.spec.nullable(self.version)
        if cls is not None and not array:
            self._nested(target, cls, nullable, 1 if self.is_tagged(each) else 0)
            return
        if kind == "uuid" and not array:
            self._uuid(target)
            return
        k = self.fresh("k")
        self._read_length(k, compact, "h" if kind == "string" and not array else "i")
        if self.null_is_empty and not nullable:
            self.add(f"if {k} == -1: {k} = 0")
        self.add(f"if {k} < 0:")
        self.indent += 1
        if nullable:
            self.add(f"if {k} < -1: corrupt('a length below -1 in {each.name}', p)")
            self.add(f"{target} = None")
        else:
            self.add(f"corrupt('null where {each.name} may not be null', p)")
        self.indent -= 1
        self.add("else:")
        self.indent += 1
        if array:
            self._array(target, k, each, compact)
        else:
            self._sized(target, k, kind, each.name)
        self.indent -= 1

    def _nested(self, target: str, cls: type[Struct], nullable: bool, least: int) -> None:
        if nullable:
            k = self.fresh("k")
            self.add(f"{k}, = {self.packer('b', 'unpack_from')}(d, p); p += 1")
            self.add(f"if {k} < {least}: {target} = None")
            self.add("else:")
            self.indent += 1
        x = self.fresh("x")
        self._struct(x, cls)
        self.add(f"{target} = {x}")
        if nullable:
            self.indent -= 1

    def _uuid(self, target: str) -> None:
        self.add("if p + 16 > n: corrupt('the end of the data in a uuid', n)")
        self.add(f"{target} = uuid(bytes(d[p:p + 16])); p += 16")

    def _sized(self, target: str, k: str, kind: str, name: str) -> None:
        q = self.fresh("q")
        self.add(f"{q} = p + {k}")
        self.add(f"if {q} > n: corrupt('the end of the data in {name}', n)")
        if self._counts and kind != "records":
            self._charge(k)
        if kind == "string":
            self.add(f"if {k} > {MAX_STRING_BYTES}: corrupt('{name} is longer than a string may be', p)")
            self.add(f"{target} = str(d[p:{q}], 'utf-8'); p = {q}")
        elif kind == "bytes":
            self.add(f"{target} = bytes(d[p:{q}]); p = {q}")
        else:
            self._has_records = True
            self.add(f"{target} = whole[p:{q}]; p = {q}")

    def _array(self, target: str, k: str, each: Field, compact: bool) -> None:
        """Read ``k`` elements. Before any of them is made, the count is checked against the remaining bytes (each
        element takes at least ``least``) and charged to ``left``: a short message must not make a long list. Numbers
        are unpacked by one call of ``struct``."""
        kind, cls, _ = each.type
        name = each.name
        least, excess = self._cost.element(each)
        size = f"{k} * {least}" if least > 1 else k
        self.add(f"if {size} > n - p: corrupt('more elements in {name} than bytes', p)")
        charge = ELEMENT_BYTES * (1 + self._uuids(each)) if self._counts else excess
        if charge:
            self._charge(f"{k} * {charge}")
        if kind in FIXED:
            character, _ = FIXED[kind]
            self.add(f"{target} = list(unpack_many('>%d{character}' % {k}, d, p)); p += {size}")
            return
        items = self.fresh("l")
        self.add(f"{items} = []")
        self.add(f"for _ in range({k}):")
        self.indent += 1
        x = self.fresh("x")
        if cls is not None:
            self._struct(x, cls)
        elif kind == "uuid":
            self._uuid(x)
        else:
            j = self.fresh("k")
            self._read_length(j, compact, "h" if kind == "string" else "i")
            if self.null_is_empty:
                self.add(f"if {j} == -1: {j} = 0")
            self.add(f"if {j} < 0: corrupt('null in {name}', p)")
            self._sized(x, j, kind, name)
        self.add(f"{items}.append({x})")
        self.indent -= 1
        self.add(f"{target} = {items}")

    def _uuids(self, each: Field) -> int:
        """The number of UUIDs in one such value, without those in nested arrays and tagged fields, which are counted
        there."""
        kind, cls, _ = each.type
        if cls is None:
            return 1 if kind == "uuid" else 0
        plain, _, _ = self.split(cls)
        return sum([self._uuids(one) for one in plain if not one.type.array])

    def _charge(self, amount: str) -> None:
        """Charge ``amount`` to the message's budget; refuse the message when that is exhausted."""
        if self._counts:
            text = (
                f"more than {MAX_ELEMENTS} elements in one request ({ELEMENT_BYTES} bytes of text count as one, and so "
                "does a UUID in an element)"
            )
        else:
            text = f"so many small elements that the message would take more than {BYTES_PER_BYTE} times its bytes"
        self.add(f"left -= {amount}")
        self.add(f"if left < 0: corrupt('{text}', p)")

    def _tags(self, m: str, tagged: list[Field]) -> None:
        """Read the tagged fields (KIP-482): known ones into their attributes, others as bytes into ``unknown_tags``.
        A size beyond the data, or one that differs from the field's bytes, makes the message corrupt."""
        count, unknown = self.fresh("k"), self.fresh("u")
        self._read_length(count, True, "")
        if self._counts:
            self.add(f"if {count} >= 0:")
            self.indent += 1
            self._charge(f"({count} + 1) * {ELEMENT_BYTES}")
            self.indent -= 1
        self.add(f"{unknown} = None")
        self.add(f"for _ in range({count} + 1):")
        self.indent += 1
        tag, size, q = self.fresh("t"), self.fresh("k"), self.fresh("q")
        self.add(f"{tag}, p = read_uvarint(d, p)")
        self.add(f"{size}, p = read_uvarint(d, p)")
        self.add(f"{q} = p + {size}")
        self.add(f"if {q} > n: corrupt('the end of the data in a tagged field', n)")
        word = "if"
        for each in tagged:
            self.add(f"{word} {tag} == {each.spec.tag}:")
            word = "elif"
            self.indent += 1
            target = f"{m}.{each.name}"
            if each.type.kind in FIXED and not each.type.array:
                character, fixed_size = FIXED[each.type.kind]
                self.add(f"{target}, = {self.packer(character, 'unpack_from')}(d, p); p += {fixed_size}")
            else:
                self._value(target, each, True)
            self.add(f"if p != {q}: corrupt('a tagged field of another size than it says: {each.name}', p)")
            self.indent -= 1
        if tagged:
            self.add("else:")
            self.indent += 1
        self.add(f"if {unknown} is None: {unknown} = {{}}{'' if self._counts else f'; left -= {TAGS_BYTES}'}")
        self._charge(size if self._counts else str(TAG_BYTES))
        self.add(f"{unknown}[{tag}] = bytes(d[p:{q}]); p = {q}")
        if tagged:
            self.indent -= 1
        self.indent -= 1
        self.add(f"{m}.unknown_tags = {unknown}")


class TolerantReaderSource(ReaderSource):
    """Reads a length of -1 as 0 where null is not allowed."""

    null_is_empty = True


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
    return UUID(bytes=data)  # the same few come in every response, and making one costs as much as all else around it


@_helper
def _flat(data: BytesLike) -> BytesLike:
    """A view whose length is in bytes."""
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
    handler = "read_error(error, p)" if reading else "write_error(error)"
    text = "\n".join(
        [f"def {source.kind}({arguments}):", "    try:", *source.lines, f"    except ERRORS as error: {handler}"]
    )
    title = _title(cls, version)

    def read_error(error: Exception, position: int) -> None:
        raise KafkaProtocolError(f"{title} cannot be read: {error}", offset=position) from None

    def write_error(error: Exception) -> None:
        if isinstance(error, (UnsupportedFieldError, IllegalArgumentError)):
            raise error
        raise IllegalArgumentError(f"{title} cannot be written: {error}") from error

    names = {**_HELPERS, **source.names, "read_error": read_error, "write_error": write_error}
    names["ERRORS"] = _READ_ERRORS if reading else _WRITE_ERRORS
    exec(compile(text, f"<{source.kind} {title}>", "exec"), names)
    return names[source.kind]


def compile_constructor(cls: type[Struct]) -> None:
    """Give a class the ``__init__`` of its schema: keywords only, with the defaults."""
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

"""Writes the source text of a reader or writer for one (class, version); ``codec.py`` compiles it.

A reader looks like this (``d``: data, ``p``: position, ``n``: end)::

    m = new(c1)
    m.throttle_time_ms, m.controller_id, = unpack_from_ii(d, p); p += 8
    ...
    return m, p

and a writer appends byte strings to the list ``out`` through ``a``. Structures are written out in place, so that a
message is one function. Neighbouring fields of fixed size share one call of ``struct``. The text is made of field
names, versions and the types of ``types.py`` alone.

What a reader makes of few bytes is bounded before it is made: of a request by a count (:data:`MAX_ELEMENTS`), of all
else by memory (``cost.py``). ``left`` is what is left of either.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from kafka.wire import cost
from kafka.wire.message import Message, Struct
from kafka.wire.schema import FIXED, Field, fields_of

MAX_ELEMENTS: Final = 1 << 15
"""Of a request: elements of all its arrays and its tagged fields together. :data:`ELEMENT_BYTES` bytes of its texts and
byte strings count as one (its records do not count), and so does each UUID in an element: to make it takes as long as
all else of it. It bounds the time that a broker's loop takes to read the request."""

ELEMENT_BYTES: Final = 512

MAX_STRING_BYTES: Final = 32_767
"""Lengths of two bytes can say no more, and compact ones must not (as in Kafka's own codecs)."""


class Source:
    """Lines of a function in the making, and the objects that they refer to by name."""

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
        """Whether a field travels as a tagged one. A structure that is null is 0 there, and -1 in line (seen
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
        says_nothing = each.type.array and each.spec.default is not None  # an empty list as well as None
        test = value if says_nothing else self._differs(value, each.implicit)
        self.add(f"if {test}: unsupported({self.cls.__qualname__!r}, {each.name!r}, {self.version})")

    def _value(self, value: str, each: Field, compact: bool) -> None:
        """Writes one field that is not of fixed size: null where this version allows it, then an array, a structure,
        or bytes with their length. Null is a length of -1 (0 in compact form, KIP-482) in as many bytes as the length
        has; of a structure it is one byte, which is 1 in front of a structure that is not null."""
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
        """Writes one value that is not null: a UUID as its 16 bytes, all else behind its length. Records may be given
        in pieces (a list or tuple), which go to ``out`` without being joined."""
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
        """Writes the tagged fields (KIP-482) whose values differ from their defaults, and the unknown ones that were
        decoded. Each value is first written to an ``out`` of its own: its size precedes it, and ``write_tags`` puts
        all in order of their tags."""
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

    def body(self) -> None:
        self._counts = issubclass(self.cls, Message) and self.cls.is_counted
        self._cost = cost.Cost(self.cls, self.version)
        self._has_records = False
        self.add(f"left = {MAX_ELEMENTS * ELEMENT_BYTES if self._counts else cost.SPARE_BYTES}")
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
        """A default that is made anew each time. A structure of plain values is made here, without a call."""
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
        """Reads one field that is not of fixed size. A negative length is null, which is refused where this version of
        the field does not allow it; so is any length below -1."""
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
            self._take(k)
        if kind == "string":
            self.add(f"if {k} > {MAX_STRING_BYTES}: corrupt('{name} is longer than a string may be', p)")
            self.add(f"{target} = str(d[p:{q}], 'utf-8'); p = {q}")
        elif kind == "bytes":
            self.add(f"{target} = bytes(d[p:{q}]); p = {q}")
        else:
            self._has_records = True
            self.add(f"{target} = whole[p:{q}]; p = {q}")

    def _array(self, target: str, k: str, each: Field, compact: bool) -> None:
        """Reads ``k`` elements. Before any of them is made, the count is checked against the bytes that are left (each
        element takes at least ``least``) and charged to ``left``: a short message may not make a long list. Numbers
        are unpacked by one call of ``struct``."""
        kind, cls, _ = each.type
        name = each.name
        least, excess = self._cost.element(each)
        size = f"{k} * {least}" if least > 1 else k
        self.add(f"if {size} > n - p: corrupt('more elements in {name} than bytes', p)")
        charge = ELEMENT_BYTES * (1 + self._uuids(each)) if self._counts else excess
        if charge:
            self._take(f"{k} * {charge}")
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
            self.add(f"if {j} < 0: corrupt('null in {name}', p)")
            self._sized(x, j, kind, name)
        self.add(f"{items}.append({x})")
        self.indent -= 1
        self.add(f"{target} = {items}")

    def _uuids(self, each: Field) -> int:
        """How many there are in one such value, but for those in arrays below it and in tagged fields, which count
        themselves."""
        kind, cls, _ = each.type
        if cls is None:
            return 1 if kind == "uuid" else 0
        plain, _, _ = self.split(cls)
        return sum([self._uuids(one) for one in plain if not one.type.array])

    def _take(self, amount: str) -> None:
        """Take from what is left, or refuse the message."""
        if self._counts:
            text = (
                f"more than {MAX_ELEMENTS} elements in one request ({ELEMENT_BYTES} bytes of text count as one, and so "
                "does a UUID in an element)"
            )
        else:
            text = f"so many small elements that the message would take more than {cost.BYTES_PER_BYTE} times its bytes"
        self.add(f"left -= {amount}")
        self.add(f"if left < 0: corrupt('{text}', p)")

    def _tags(self, m: str, tagged: list[Field]) -> None:
        """Reads the tagged fields (KIP-482): known ones into their attributes, others as bytes into ``unknown_tags``.
        A size that reaches behind the data, or that differs from what the field took, makes the message corrupt."""
        count, unknown = self.fresh("k"), self.fresh("u")
        self._read_length(count, True, "")
        if self._counts:
            self.add(f"if {count} >= 0:")
            self.indent += 1
            self._take(f"({count} + 1) * {ELEMENT_BYTES}")
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
        self.add(f"if {unknown} is None: {unknown} = {{}}{'' if self._counts else f'; left -= {cost.TAGS_BYTES}'}")
        self._take(size if self._counts else str(cost.TAG_BYTES))
        self.add(f"{unknown}[{tag}] = bytes(d[p:{q}]); p = {q}")
        if tagged:
            self.indent -= 1
        self.indent -= 1
        self.add(f"{m}.unknown_tags = {unknown}")

"""What an element of an array takes at the least on the wire, and at the most in memory: how readers bound a message.

A few bytes can make an object of a hundred, so the length of a frame alone does not bound what its message takes. A
reader allows :data:`BYTES_PER_BYTE` bytes of memory for each byte of the frame, and :data:`SPARE_BYTES` once. What an
element takes beyond its own share is its *excess*; the reader adds up the excesses of all elements before it makes
them, and refuses the message when they are more than the spare bytes. Texts and byte strings need no look of their own:
of what they add to an element in which they are empty, each byte stays within its share.

::

    excess = most bytes in memory of an element with nothing in it - BYTES_PER_BYTE * its least bytes on the wire

Most elements of the protocol have none: a partition of Metadata takes 430 bytes for 18. ``source.py`` writes the sums
into the readers; what is known here is looked up once for each reader that is compiled. The sizes are those of 64-bit
CPython, rounded up.
"""

from __future__ import annotations

import sys
from typing import Final

from kafka.wire.message import Message, Struct
from kafka.wire.schema import FIXED, Field, fields_of

BYTES_PER_BYTE: Final = 28
"""Memory that each byte of a frame may take."""
SPARE_BYTES: Final = 56 << 20
"""Memory that all of a message may take beyond that."""

POINTER_BYTES: Final = 10
"""An element's place in a list, which has some room left when it grows."""
LIST_BYTES: Final = 64
NUMBER_BYTES: Final = 32
TEXT_BYTES: Final = 8
"""A text has a header of 50, and an empty one is the same object everywhere: with two letters it takes 64."""
UUID_BYTES: Final = 144
VIEW_BYTES: Final = 208
TAGS_BYTES: Final = 256
"""The dictionary of a structure's unknown tagged fields."""
TAG_BYTES: Final = 160
"""An entry of it, with its number, while it grows."""


class Cost:
    """Of the elements of arrays in one version of a message."""

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
        return (1, 0) if held < BYTES_PER_BYTE * wire else (wire + 1, held)  # the dearer of null and not

    def _plain(self, kind: str, compact: bool) -> tuple[int, int]:
        if kind in FIXED:
            return FIXED[kind][1], 0 if kind == "bool" else NUMBER_BYTES
        if kind == "uuid":
            return 16, UUID_BYTES
        held = {"string": TEXT_BYTES, "bytes": 0, "records": VIEW_BYTES}[kind]
        return (1 if compact else 2 if kind == "string" else 4), held


def size_of(cls: type[Struct]) -> int:
    """Bytes of an object of the class, without what its fields refer to."""
    return (sys.getsizeof(object.__new__(cls)) + 15) // 16 * 16


def _default_bytes(each: Field) -> int:
    """Of what a reader makes anew where the field is not on the wire (``ReaderSource._default``)."""
    spec, kind = each.spec, each.type
    if kind.array:
        return LIST_BYTES if spec.required or spec.default is list else 0
    made = kind.cls if spec.required else spec.default
    if not isinstance(made, type) or not issubclass(made, Struct):
        made = type(made()) if callable(made) else None
    if made is None or not issubclass(made, Struct):
        return 0
    return size_of(made) + sum(map(_default_bytes, fields_of(made)))

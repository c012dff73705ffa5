"""The protocol's primitive types as annotations.

A message class declares ``partition_index: Int32``: to a type checker that is an ``int``, and the codec reads the wire
type from the annotation. The names are those of the protocol guide (section "Protocol Primitive Types"). To add one,
add it here, to ``FIXED`` and ``IMPLICIT_DEFAULTS`` in ``message.py``, and if its size varies to both ``_sized`` in
``codec.py``.

========== ==================== ==================================================================================
name       in Python            on the wire
========== ==================== ==================================================================================
Boolean    bool                 1 byte, 0 or 1
Int8..64   int                  big-endian two's complement
Uint16     int                  big-endian
Float64    float                IEEE 754, big-endian
Uuid       uuid.UUID            16 bytes, most significant first
String     str                  int16 length (flexible: unsigned varint of length + 1), UTF-8
Bytes      bytes                int32 length (flexible: unsigned varint of length + 1)
Records    bytes-like or a list like Bytes; decoded without a copy as a memoryview of the frame; a list of chunks is
           of such chunks       written one after another
list[T]    list                 int32 count (flexible: unsigned varint of count + 1), the elements
========== ==================== ==================================================================================

``None`` is a length of -1 (flexible: 0), and for a nested structure a byte of -1 before it (else 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeAlias
from uuid import UUID


class WireType:
    """The protocol's name of a type, in the annotation of its Python type."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


BytesLike: TypeAlias = bytes | bytearray | memoryview
"""What a socket can send."""

Boolean = Annotated[bool, WireType("bool")]
Int8 = Annotated[int, WireType("int8")]
Int16 = Annotated[int, WireType("int16")]
Int32 = Annotated[int, WireType("int32")]
Int64 = Annotated[int, WireType("int64")]
Uint16 = Annotated[int, WireType("uint16")]
Float64 = Annotated[float, WireType("float64")]
Uuid = Annotated[UUID, WireType("uuid")]
String = Annotated[str, WireType("string")]
Bytes = Annotated[bytes, WireType("bytes")]
Records = Annotated[BytesLike | Sequence[BytesLike], WireType("records")]

ZERO_UUID: Final = UUID(int=0)
"""The id for "none" (of a topic that is referred to by its name, for example)."""

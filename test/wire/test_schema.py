"""A field's type, taken apart."""

from __future__ import annotations

from typing import Any

import pytest

from kafka.wire.message import FieldType, Struct, field, fields_of
from kafka.wire.types import Int8, Int32, Records, String


class Inner(Struct):
    number: Int8


class Outer(Struct):
    plain: Int32
    nullable: String | None = field(default=None, null_since=0)
    records: Records | None = field(default=None, null_since=0)
    array: list[Int32]
    inner: Inner
    inners: list[Inner] | None = field(default=None, null_since=0)


def test_each_annotation_says_kind_structure_and_array() -> None:
    assert [(each.name, each.type) for each in fields_of(Outer)] == [
        ("plain", FieldType("int32", None, False)),
        ("nullable", FieldType("string", None, False)),
        ("records", FieldType("records", None, False)),
        ("array", FieldType("int32", None, True)),
        ("inner", FieldType("struct", Inner, False)),
        ("inners", FieldType("struct", Inner, True)),
    ]
    assert fields_of(Outer) is fields_of(Outer)


class Count(Struct):
    x: int


class Mixed(Struct):
    x: Int8 | String | None


class Table(Struct):
    x: dict[str, int]


@pytest.mark.parametrize("cls", [Count, Mixed, Table])
def test_an_annotation_that_is_no_type_of_the_protocol_is_refused(cls: Any) -> None:
    with pytest.raises(TypeError, match="not a type of the protocol"):
        fields_of(cls)

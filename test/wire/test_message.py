"""What a class body says: versions, fields, equality, the type of the answer."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kafka.protocol.registry import RequestHeader, ResponseHeader
from kafka.wire.codec import encode
from kafka.wire.message import FieldType, Message, Request, Response, Struct, field, fields_of
from kafka.wire.types import ZERO_UUID, Bytes, Int8, Int32, Records, String


class Pair(Struct):
    kind: ClassVar[str] = "pair"
    first: Int8
    second: Int8 = field(default=7)
    third: list[Int8] = field(default_factory=list)


class Pong(Response, api_key=900, versions=(0, 0)):
    pass


class Ping(Request["Pong"], api_key=900, versions=(0, 0)):
    pass


class PingByClass(Request[Pong], api_key=900, versions=(0, 0)):
    pass


class Blob(Message, versions=(0, 0)):
    data: Records
    more: Bytes = field(default=b"")


def test_the_fields_are_the_annotated_lines_and_nothing_else() -> None:
    assert list(Pair.fields) == ["first", "second", "third"]
    assert [spec.required for spec in Pair.fields.values()] == [True, False, False]
    assert Pair.kind == "pair"


def test_a_fields_default_is_given_and_a_made_one_is_made_each_time() -> None:
    assert Pair.fields["second"].initial() == 7
    made = Pair.fields["third"].initial()
    assert made == []
    assert made is not Pair.fields["third"].initial()
    with pytest.raises(TypeError, match="first has no default"):
        Pair.fields["first"].initial()


def test_the_constructor_fills_in_defaults_and_takes_keywords_only() -> None:
    pair = Pair(first=1)
    assert (pair.first, pair.second, pair.third, pair.unknown_tags) == (1, 7, [], None)
    assert (Pair(first=1, second=2, third=[3]).second, Pair(first=1, third=[3]).third) == (2, [3])
    with pytest.raises(TypeError):
        Pair(1)  # type: ignore[misc]
    assert Ping() == Ping()


def test_messages_are_equal_when_all_that_they_say_is() -> None:
    one = Pair(first=1)
    assert one == Pair(first=1)
    assert one != Pair(first=2)
    assert one != Pair(first=1, third=[1])
    assert Ping() != PingByClass()
    tagged, empty = Pair(first=1), Pair(first=1)
    tagged.unknown_tags = {5: b"x"}  # type: ignore[misc]
    empty.unknown_tags = {}  # type: ignore[misc]
    assert tagged != one
    assert one != tagged
    assert empty == one
    assert one == empty


@pytest.mark.parametrize("data", [b"abc", bytearray(b"abc"), memoryview(b"abc"), [b"abc"], [b"a", memoryview(b"bc")]])
def test_records_are_equal_by_their_bytes_in_whatever_buffers_they_are(data: Any) -> None:
    assert Blob(data=data) == Blob(data=b"abc")
    assert Blob(data=b"abc") == Blob(data=data)
    assert Blob(data=data) != Blob(data=b"abd")
    assert Blob(data=[]) != Blob(data=data)


@pytest.mark.parametrize(
    "data",
    [
        memoryview(b"abcdefgh").cast("I"),
        memoryview(b"abcdefgh").cast("B", [2, 4]),
        [b"ab", memoryview(b"cdefgh").cast("H")],
    ],
)
def test_records_have_their_length_in_bytes_whatever_the_items_of_their_buffer(data: Any) -> None:
    assert encode(Blob(data=data, more=b""), 0) == encode(Blob(data=b"abcdefgh", more=b""), 0)


def test_long_bytes_are_shown_by_their_number() -> None:
    shown = repr(Blob(data=b"x" * 32, more=b"y" * 33))
    assert shown == f"Blob(data={b'x' * 32!r}, more=<33 bytes>)"
    tagged = Pair(first=1)
    tagged.unknown_tags = {5: b"x"}  # type: ignore[misc]
    assert repr(tagged) == "Pair(first=1, second=7, third=[], unknown_tags={5: b'x'})"


def test_a_header_has_no_api_key_which_is_minus_one_as_in_java() -> None:
    """``ApiMessage.apiKey()``: "The API key of this message, or -1 if there is none"."""
    assert RequestHeader.api_key == ResponseHeader.api_key == Message.api_key == -1


def test_a_message_that_says_no_versions_has_the_first_one_alone_and_that_is_not_flexible() -> None:
    class Plain(Message):
        name: String

    assert (Plain.min_version, Plain.max_version, Plain.flexible(0)) == (0, 0, False)


def test_a_message_is_flexible_from_its_version_on() -> None:
    class Later(Message, api_key=3, versions=(1, 4), flexible=3):
        pass

    assert (Later.api_key, Later.min_version, Later.max_version) == (3, 1, 4)
    assert [Later.flexible(version) for version in (1, 2, 3, 4)] == [False, False, True, True]
    assert not Ping.flexible(0)


def test_a_field_is_there_from_its_first_version_to_its_last() -> None:
    some = field(since=2, until=3, null_since=3, tag=0, tag_since=3)
    assert [some.present(version) for version in range(5)] == [False, False, True, True, False]
    assert [some.nullable(version) for version in range(5)] == [False, False, False, True, True]
    assert [some.tagged(version) for version in range(5)] == [False, False, False, True, True]
    every = field()
    assert all(every.present(version) for version in (0, 1, 50))
    assert not any(check(version) for check in (every.nullable, every.tagged) for version in (0, 1, 50))
    assert (every.ignorable, every.flexible) == (False, True)
    assert field(tag=0).tagged(0)


@pytest.mark.parametrize("request_type", [Ping, PingByClass])
def test_a_request_knows_the_type_of_its_answer_by_name_or_by_class(request_type: type[Request[Pong]]) -> None:
    assert request_type.response_type() is Pong


def test_the_id_of_nothing_is_all_zeros() -> None:
    """``Uuid.ZERO_UUID`` in Java."""
    assert str(ZERO_UUID) == "00000000-0000-0000-0000-000000000000"


# -- types of fields ---------------------------------------------------------------------------------------------------


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

"""Tests of ``kafka.tasks.format.annotations``, over the whole way: written by one codec, read by another."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union

import pytest

from kafka.tasks.errors import BadRecord, NotSerialisable
from kafka.tasks.format.annotations import TaskTypes
from kafka.tasks.format.payload import PayloadCodec, encode_call

if TYPE_CHECKING:
    from elsewhere import Hidden

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = ("blue", 2)


class Side(str, enum.Enum):
    LEFT = "left"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass(frozen=True)
class Address:
    city: str
    since: date | None = None


@dataclasses.dataclass
class Person:
    name: str
    color: Color
    homes: list[Address] = dataclasses.field(default_factory=list)
    parent: Person | None = None
    letters: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a person needs a name")
        self.letters = len(self.name)


@dataclasses.dataclass(eq=False)
class Unequal:
    amount: Decimal


class Pair(NamedTuple):
    left: Color
    right: int


class Box(Generic[T]):
    pass


UserId = NewType("UserId", int)
Favourite = NewType("Favourite", Color)

ADA = Person("Ada", Color.BLUE, [Address("London", date(1833, 6, 5))], Person("Byron", Color.RED))


def codec_of(function: Callable[..., Any]) -> PayloadCodec:
    return PayloadCodec(TaskTypes(inspect.signature(function), function))


def arrived(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Arguments after the way; two codecs, as in two processes."""
    return codec_of(function).decode_call(codec_of(function).encode_call("f", args, kwargs))


def annotated(hint: Any) -> Callable[..., Any]:
    def f(x):  # type: ignore[no-untyped-def]
        return x

    f.__annotations__ = {"x": hint, "return": hint}
    return f


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Color, Color.RED),
        (Color, Color.BLUE),
        (Side, Side.LEFT),
        (Rights, Rights.READ | Rights.WRITE),
        ("Color", Color.RED),
        (Color | None, None),
        (Optional[Color], Color.RED),  # noqa: UP045
        (Union[Color, None, int], 7),  # noqa: UP007
        ("Color | None", Color.RED),
        (int | Color, 5),
        (int | Color, Color.RED),
        (Color | Address, Address("Paris")),
        (Address | Color | None, Color.BLUE),
        (Annotated[Color, "why"], Color.RED),
        (Favourite, Color.RED),
        (Address, Address("Paris", date(2026, 1, 2))),
        (Person, ADA),
        (list[Color], [Color.RED, Color.BLUE]),
        ("list[Address]", [Address("Paris")]),
        (Sequence[Color], (Color.RED,)),
        (Iterable[Color], {Color.RED}),
        (frozenset[Color], frozenset({Color.BLUE})),
        (set[Pair], {Pair(Color.RED, 1)}),
        (tuple[Color, ...], (Color.RED, Color.RED)),
        (tuple[int, Color], (1, Color.RED)),
        (dict[str, Address], {"home": Address("Paris")}),
        (dict[Color, int], {Color.RED: 1}),
        (dict[Side, Color], {Side.LEFT: Color.RED}),
        (Mapping[str, list[Color | None]], {"a": [None, Color.RED]}),
        (Pair, Pair(Color.RED, 3)),
        (list[Pair | None], [None, Pair(Color.BLUE, 3)]),
    ],
    ids=str,
)
def test_a_value_is_restored_by_its_annotation(hint: Any, value: Any) -> None:
    f = annotated(hint)
    for given in (arrived(f, value)[0][0], arrived(f, x=value)[1]["x"]):
        assert (type(given), given) == (type(value), value)
    writer, reader = codec_of(f), codec_of(f)
    given = reader.decode_value(writer.encode_value("f", value))
    assert (type(given), given) == (type(value), value)


def test_every_kind_of_parameter_has_its_annotation() -> None:
    def f(a: Color, /, b: Color, *rest: Color, c: Color, d: Color = None, **more: Color) -> None:  # type: ignore[assignment]
        raise AssertionError

    red = Color.RED
    assert arrived(f, red, red, red, red, c=red, d=red, e=red) == ([red] * 4, {"c": red, "d": red, "e": red})
    assert arrived(f, red, b=red, c=red, d=None, a=red) == ([red], {"b": red, "c": red, "d": None, "a": red})


def test_a_dataclass_without_equality_is_compared_by_its_fields() -> None:
    (given,), _ = arrived(annotated(Unequal), Unequal(Decimal("1.10")))
    assert type(given) is Unequal
    assert repr(given.amount) == "Decimal('1.10')"


def test_a_task_without_such_annotations_pays_nothing() -> None:
    def plain(a: int, b: list[str], c: Any, d: date | None, e: dict[str, int], f: UserId, g=1) -> Box[int]:  # type: ignore[no-untyped-def]
        raise AssertionError

    types = TaskTypes(inspect.signature(plain), plain)
    assert (types.may_restore_arguments, types.may_restore_result) == (False, False)
    types = TaskTypes(inspect.signature(annotated(Color)), annotated(Color))
    assert (types.may_restore_arguments, types.may_restore_result) == (True, True)


def test_a_name_that_is_defined_later_is_found_at_the_first_use() -> None:
    f = annotated("Later")
    writer, reader = codec_of(f), codec_of(f)
    globals()["Later"] = Color
    try:
        data = writer.encode_call("f", (Color.RED,), {})
        assert reader.decode_call(data) == ([Color.RED], {})
    finally:
        del globals()["Later"]


@pytest.mark.parametrize("kind", ["partial", "wrapped", "object", "awaitable", "bound", "class"])
def test_functions_of_any_form_have_annotations(kind: str) -> None:
    def plain(x: Color, y: int = 0) -> Color:
        return x

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    class Callback:
        def __call__(self, x: Color) -> Color:
            return x

        def method(self, x: Color) -> Color:
            return x

    class Made:
        def __init__(self, x: Color) -> None: ...

    def awaitable(x: Color) -> Awaitable[Color]:
        raise AssertionError

    f: Any = {
        "partial": functools.partial(plain, y=1),
        "wrapped": wrapped,
        "object": Callback(),
        "awaitable": awaitable,
        "bound": Callback().method,
        "class": Made,
    }[kind]
    assert arrived(f, Color.RED) == ([Color.RED], {})
    if kind == "class":
        return
    assert codec_of(f).decode_value(codec_of(f).encode_value("f", Color.RED)) is Color.RED


def unannotated(x):  # type: ignore[no-untyped-def]
    return x


def hidden(x: Hidden) -> Hidden:
    return x


@pytest.mark.parametrize(
    ("function", "value", "reason"),
    [
        (unannotated, Color.RED, r"<Color.RED: 'red'> would arrive as 'red': annotate the parameter, .*Color, or"),
        (unannotated, [Address("Paris")], r"would arrive as \[\{'city': 'Paris', 'since': None\}\]: annotate"),
        (hidden, Color.RED, r"its annotation cannot be evaluated \(name 'Hidden' is not defined\); import"),
        (annotated(Color), "red", r"'red' would arrive as <Color.RED: 'red'>: its annotation is .*Color; change one"),
        (annotated(Color), "puce", "'puce' is no .*Color: 'puce' is not a valid .*Color"),
        (annotated(Color), None, "None is no .*Color"),
        (annotated(Color | str), "red", "'red' would arrive as <Color.RED: 'red'>"),
        (annotated(Address), {"city": "Paris"}, "would arrive as Address"),
        (annotated(Address), {"town": "Paris"}, "Address has no field 'town'"),
        (annotated(Address), "Paris", "the fields of a Address are needed"),
        (annotated(list[Color]), "red", "a list, tuple or set is needed"),
        (annotated(dict[str, Color]), ["red"], "a dict is needed"),
        (annotated(tuple[Color, int]), (Color.RED,), "a tuple of 2 values is needed"),
        (annotated(Literal[Color.RED]), Color.RED, "would arrive as 'red'"),
        (annotated(dict[str, int]), {"a": Color.RED}, "would arrive as"),
        (annotated(set[Address]), {Address("Paris")}, "unhashable"),
    ],
)
def test_what_would_arrive_otherwise_is_refused_at_the_call(function: Any, value: Any, reason: str) -> None:
    with pytest.raises(NotSerialisable, match=reason) as caught:
        codec_of(function).encode_call("mail.send", (value,), {})
    text = str(caught.value)
    assert "of task mail.send cannot be sent as JSON: " in text
    assert "\n" not in text


def test_what_cannot_be_read_again_is_refused_also_without_the_task_and_in_a_result() -> None:
    with pytest.raises(NotSerialisable, match="an argument of task f cannot be sent as JSON: .*unhashable"):
        encode_call("f", ({Address("Paris")},), {})
    with pytest.raises(NotSerialisable, match="the result of task f cannot be stored as JSON: unhashable"):
        codec_of(annotated(set[Address])).encode_value("f", {Address("Paris")})


def test_the_argument_that_would_arrive_otherwise_is_named() -> None:
    def f(a: Color, *rest: Color, **more: Color) -> None:
        raise AssertionError

    for args, kwargs, label in (
        ((Color.RED, 1), {}, r"argument 2 \(rest\) of task f"),
        (("x",), {}, r"argument 1 \(a\) of task f"),
        ((Color.RED,), {"b": "y"}, "argument 'b' of task f"),
    ):
        with pytest.raises(NotSerialisable, match=label):
            codec_of(f).encode_call("f", args, kwargs)


def test_a_result_that_would_arrive_otherwise_is_refused() -> None:
    codec = codec_of(annotated(Color))
    with pytest.raises(NotSerialisable, match=r"the result of task f cannot be stored as JSON: 'red' would arrive as"):
        codec.encode_value("f", "red")
    with pytest.raises(NotSerialisable, match="5 is no .*Color"):
        codec.encode_value("f", 5)
    with pytest.raises(NotSerialisable, match="annotate the return type"):
        codec_of(unannotated).encode_value("f", Color.RED)


@pytest.mark.parametrize(
    ("hint", "body", "reason"),
    [
        (Color, b'"puce"', r"argument 1 \(x\): 'puce' is no .*Color"),
        (Address, b'{"city":"Paris","zip":1}', "Address has no field 'zip'"),
        (Address, b"{}", "missing 1 required positional argument: 'city'"),
        (Person, b'{"name":"","color":"red"}', "a person needs a name"),
        (Pair, b"[1,2]", "1 is not a valid"),
        (Pair, b"[1]", "a tuple of 2 values is needed"),
    ],
)
def test_what_an_annotation_cannot_be_made_of_is_a_bad_record(hint: Any, body: bytes, reason: str) -> None:
    with pytest.raises(BadRecord, match=reason) as caught:
        codec_of(annotated(hint)).decode_call(b'{"args":[%b],"kwargs":{}}' % body)
    assert caught.value.cause == "bad-payload"
    with pytest.raises(BadRecord, match="the result is not what the task's annotation says"):
        codec_of(annotated(hint)).decode_value(body)


def test_plain_json_of_other_languages_becomes_what_the_annotation_says() -> None:
    data = b'{"args":[{"name":"Ada","color":"red","homes":[{"city":"London"}]}],"kwargs":{}}'
    assert codec_of(annotated(Person)).decode_call(data) == ([Person("Ada", Color.RED, [Address("London")])], {})


def test_without_the_task_values_are_sent_the_same_way() -> None:
    data = encode_call("f", (ADA, Color.BLUE), {"side": Side.LEFT})

    def f(person: Person, color: Color, side: Side) -> None:
        raise AssertionError

    assert codec_of(f).decode_call(data) == ([ADA, Color.BLUE], {"side": Side.LEFT})


def test_pydantic_models_are_restored() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Order(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(strict=True)
        number: int
        when: date
        price: Decimal
        tags: set[str] = pydantic.Field(alias="labels", default_factory=set)
        color: Color = Color.RED

    order = Order(number=1, when=date(2026, 1, 2), price=Decimal("1.10"), labels={"a"})
    restored = ((Order, order), (list[Order], [order]), (Order | None, None), (dict[str, Order], {"a": order}))
    for hint, value in restored:
        assert arrived(annotated(hint), value) == ([value], {})
    with pytest.raises(NotSerialisable, match="annotate the parameter, for example with .*Order"):
        codec_of(unannotated).encode_call("f", (order,), {})
    with pytest.raises(BadRecord, match="1 validation error|validation errors"):
        codec_of(annotated(Order)).decode_call(b'{"args":[{"number":"x"}],"kwargs":{}}')

"""Tests of ``kafka.tasks.format.plain_values``: the marked objects, as other languages see them."""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import struct
from collections import Counter, OrderedDict, namedtuple
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from kafka.tasks.format.plain_values import PlainForm, from_plain
from kafka.tasks.format.serializers import json_bytes, json_value

PARIS = ZoneInfo("Europe/Paris")
CET = timezone(timedelta(hours=1))


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    when: date


FORMS: list[tuple[Any, str]] = [
    (datetime(2026, 1, 2, 3, 4, 5, 6), '{"$type":"datetime","value":"2026-01-02T03:04:05.000006"}'),
    (datetime(2026, 1, 2, tzinfo=timezone.utc), '{"$type":"datetime","value":"2026-01-02T00:00:00+00:00"}'),
    (datetime(2026, 1, 2, tzinfo=CET), '{"$type":"datetime","value":"2026-01-02T00:00:00+01:00"}'),
    (datetime(2026, 1, 2, tzinfo=PARIS), '{"$type":"datetime","value":"2026-01-02T00:00:00+01:00[Europe/Paris]"}'),
    (
        datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1),
        '{"$type":"datetime","value":"2026-10-25T02:30:00+01:00[Europe/Paris][fold=1]"}',
    ),
    (datetime(2026, 10, 25, 2, 30, fold=1), '{"$type":"datetime","value":"2026-10-25T02:30:00[fold=1]"}'),
    (date(2026, 1, 2), '{"$type":"date","value":"2026-01-02"}'),
    (time(3, 4), '{"$type":"time","value":"03:04:00"}'),
    (time(3, 4, tzinfo=PARIS), '{"$type":"time","value":"03:04:00[Europe/Paris]"}'),
    (time(3, 4, tzinfo=CET, fold=1), '{"$type":"time","value":"03:04:00+01:00[fold=1]"}'),
    (timedelta(days=-1, microseconds=1), '{"$type":"timedelta","value":-86399999999}'),
    (timedelta.max, '{"$type":"timedelta","value":86399999999999999999}'),
    (UUID(int=1), '{"$type":"uuid","value":"00000000-0000-0000-0000-000000000001"}'),
    (Decimal("-1.50"), '{"$type":"decimal","value":"-1.50"}'),
    (Decimal("1E+3"), '{"$type":"decimal","value":"1E+3"}'),
    (b"\x00\xff", '{"$type":"bytes","value":"AP8="}'),
    ((1, (2,)), '{"$type":"tuple","value":[1,{"$type":"tuple","value":[2]}]}'),
    ({1}, '{"$type":"set","value":[1]}'),
    (frozenset({"a"}), '{"$type":"frozenset","value":["a"]}'),
    ({1: "a", None: "b"}, '{"$type":"dict","value":[[1,"a"],[null,"b"]]}'),
    ({"a": {(1, 2): []}}, '{"a":{"$type":"dict","value":[[{"$type":"tuple","value":[1,2]},[]]]}}'),
    ({"$type": "date", "value": "x"}, '{"$type":"dict","value":[["$type","date"],["value","x"]]}'),
    ({"$type": "date"}, '{"$type":"date"}'),
    ({"$type": 1, "value": 2, "more": 3}, '{"$type":1,"value":2,"more":3}'),
]


def written(value: Any) -> str:
    return json_bytes(PlainForm().of(value)).decode()


@pytest.mark.parametrize(("value", "text"), FORMS, ids=[text for _, text in FORMS])
def test_a_value_is_written_so_and_read_again(value: Any, text: str) -> None:
    assert written(value) == text
    again = json_value(text.encode())
    assert (type(again), repr(again)) == (type(value), repr(value))


def test_plain_values_are_not_copied() -> None:
    for value in ([1, "a", None], {"a": 1, "b": 2.5}):
        assert PlainForm().of(value) is value


def test_a_format_with_bytes_of_its_own_gets_them() -> None:
    assert PlainForm(has_bytes=True).of({"a": [b"x"]}) == {"a": [b"x"]}


@pytest.mark.parametrize(
    ("value", "text", "by_value"),
    [
        (Color.RED, '"red"', [Color]),
        ({Color.RED: [Color.RED]}, '{"$type":"dict","value":[["red",["red"]]]}', [Color, Color]),
        (Level.HIGH, "3", []),
        (Point(1, date(2026, 1, 2)), '{"x":1,"when":{"$type":"date","value":"2026-01-02"}}', [Point]),
    ],
)
def test_what_an_annotation_restores_is_written_by_its_value(value: Any, text: str, by_value: list[type]) -> None:
    form = PlainForm()
    assert json_bytes(form.of(value)).decode() == text
    assert form.by_value == by_value


class Text(str):
    __slots__ = ()


class Stamp(datetime):
    """As pandas' Timestamp, more than a datetime where it has nanoseconds."""

    nanoseconds = 0

    def __eq__(self, other: object) -> bool:
        return datetime.__eq__(self, other) and not self.nanoseconds

    __hash__ = datetime.__hash__


@pytest.mark.parametrize(
    ("value", "base"),
    [
        (Text("a"), "a"),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aab"), {"a": 2, "b": 1}),
        (namedtuple("Pair", "a b")(1, b"2"), (1, b"2")),  # noqa: PYI024
        (Stamp(2026, 1, 2), datetime(2026, 1, 2)),
    ],
)
def test_a_subclass_arrives_as_its_base(value: Any, base: Any) -> None:
    again = json_value(written(value).encode())
    assert (type(again), again) == (type(base), base)


def test_a_subclass_that_is_more_than_its_base_is_refused() -> None:
    stamp = Stamp(2026, 1, 2)
    stamp.nanoseconds = 5
    with pytest.raises(TypeError, match=r"does not equal a datetime\.datetime, which a .*Stamp is sent as"):
        written(stamp)


class OwnZone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta | None:
        return None if dt is None else timedelta(hours=1)

    def __repr__(self) -> str:
        return "OwnZone()"


class FixedZone(tzinfo):
    def utcoffset(self, dt: datetime | None) -> timedelta:
        return timedelta(hours=1)


def test_a_zone_that_cannot_be_named_is_refused_and_a_fixed_one_keeps_its_offset() -> None:
    with pytest.raises(TypeError, match=r"the time zone OwnZone\(\) is a .*OwnZone, not a zoneinfo.ZoneInfo"):
        written(datetime(2026, 1, 2, tzinfo=OwnZone()))
    again = json_value(written(datetime(2026, 1, 2, tzinfo=FixedZone())).encode())
    assert again == datetime(2026, 1, 2, tzinfo=CET)


def test_an_offset_with_a_fraction_of_a_second_is_refused() -> None:
    """``fromisoformat`` drops one that is smaller than a second."""
    with pytest.raises(ValueError, match="fraction of a second"):
        written(datetime(2026, 1, 2, tzinfo=timezone(timedelta(microseconds=1))))


def test_a_zone_from_a_file_has_no_name_and_is_refused() -> None:
    no_rules = b"TZif" + bytes(16) + struct.pack(">6l", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", 0, 0, 0) + b"UTC\0"
    with pytest.raises(ValueError, match=r"has no name: make it with ZoneInfo\(name\)"):
        written(datetime(2026, 1, 2, tzinfo=ZoneInfo.from_file(io.BytesIO(no_rules))))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)),
        ("2026-10-25T02:30:00+01:00[Europe/Paris]", datetime(2026, 10, 25, 2, 30, tzinfo=PARIS, fold=1)),
        ("2026-10-25T02:30:00+02:00[Europe/Paris]", datetime(2026, 10, 25, 2, 30, tzinfo=PARIS)),
        ("2026-10-25T02:30:00[Europe/Paris]", datetime(2026, 10, 25, 2, 30, tzinfo=PARIS)),
        # The zone's rules were others where it was written: the instant stays.
        ("2026-07-01T12:00:00+05:00[Europe/Paris]", datetime(2026, 7, 1, 9, 0, tzinfo=PARIS)),
    ],
)
def test_what_other_writers_say_of_a_time_is_read(text: str, value: datetime) -> None:
    again = from_plain({"$type": "datetime", "value": text})
    assert (repr(again), again.utcoffset()) == (repr(value), value.utcoffset())


@pytest.mark.parametrize(
    "marked",
    [
        {"$type": "os.system", "value": "x"},
        {"$type": ["date"], "value": "x"},
        {"$type": "date", "value": 5},
        {"$type": "date", "value": "tomorrow"},
        {"$type": "datetime", "value": "2026-01-02T00:00:00[Europe/Nowhere]"},
        {"$type": "datetime", "value": "2026-01-02T00:00:00[../../etc/passwd]"},
        {"$type": "datetime", "value": "2026-01-02T00:00:00[Europe/Paris"},
        {"$type": "datetime", "value": "2026-01-02T00:00:00[Europe]"},
        {"$type": "timedelta", "value": 10**30},
        {"$type": "timedelta", "value": "1 s"},
        {"$type": "uuid", "value": "1"},
        {"$type": "decimal", "value": "one"},
        {"$type": "decimal", "value": 1.5},
        {"$type": "bytes", "value": "A"},
        {"$type": "bytes", "value": "A P8="},
        {"$type": "set", "value": [[1]]},
        {"$type": "set", "value": "ab"},
        {"$type": "dict", "value": [[1, 2, 3]]},
        {"$type": "dict", "value": [[{}, 1]]},
    ],
    ids=json.dumps,
)
def test_a_mark_that_is_none_of_the_table_raises(marked: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, ArithmeticError, OSError)):
        from_plain(marked)


def test_depth_is_limited_also_where_python_does_not_limit_it() -> None:
    loop: list[Any] = []
    loop.append(loop)
    around: dict[str, Any] = {}
    around["a"] = (around,)
    pairs: dict[int, Any] = {}
    pairs[1] = pairs
    for value in (loop, around, pairs):
        with pytest.raises(RecursionError):
            PlainForm().of(value)

"""Cron expressions: five fields, or six with seconds first, and the walk over the wall-clock times that match.

Pure: no clock and no time zone. A *wall second* is what a clock on a wall shows, as seconds since that clock showed
1970-01-01 00:00:00. Which instant that is in a zone, ``times.py`` says. The syntax is that of crontab(5) of Vixie cron,
with what other programs have made common::

    field           allowed                    besides ``*``, lists ``1,15``, ranges ``1-5``, steps ``*/15 1-30/5 5/15``
    second          0-59                       only with six fields; 0 with five
    minute          0-59
    hour            0-23
    day-of-month    1-31                       ``L`` (the last day of the month), ``?`` (the same as ``*``)
    month           1-12, JAN-DEC
    day-of-week     0-7 (0 and 7: Sunday),     ``MON#2`` (the second Monday of the month), ``5L`` (the last Friday),
                    SUN-SAT                    ``?``

``5/15`` begins at 5 and ends with the field. Names may stand wherever a number may, in any case. As in crontab(5), when
day-of-month and day-of-week both restrict (neither begins with ``*`` or is ``?``), a day has to match only one of them.

An expression is expanded when it is made: the matching minutes of a day, and for each of the 28 shapes of a month (the
weekday that it begins with, and its length) the matching days. So a search goes over months and not over minutes.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import MAXYEAR, MINYEAR, date
from typing import NamedTuple

from kafka.errors import IllegalArgumentError

DAY_S = 86_400

MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(NamedTuple):
    """What one field may have; the first of ``names`` stands for ``low``."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    other: str = ""

    def allowed(self) -> str:
        names = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{names}, *, lists (1,2), ranges (1-5), steps (*/2){self.other}"


_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day-of-month", 1, 31, (), ", L (the last day), ?"),
    _Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    _Field(
        "day-of-week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
        ", MON#2 (the second Monday), 5L (the last Friday), ?",
    ),
)  # fmt: skip

_VALUE = "[0-9]{1,9}|[A-Z]{3}"
_RANGE = re.compile(rf"(?:\*|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]{{1,9}}))?")
_NTH_WEEKDAY = re.compile(rf"(?P<day>{_VALUE})(?:#(?P<week>[1-5])|(?P<last>L))")

_LAST = -1
"""Among the days of a month, its last day; among the weeks of a month, its last seven days."""
_EVERY_WEEK = (1, 2, 3, 4, 5)

_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = date.min.toordinal(), date.max.toordinal()


@dataclass(frozen=True)
class CronExpression:
    """One expression, equal to another of the same text. IllegalArgumentError for one that cannot be read, or that
    never matches (``0 0 30 2 *``); its message names the field, the part and what is allowed there."""

    text: str
    every_hour: bool = field(init=False, repr=False, compare=False)
    """The hour field runs over all hours (``*``, ``*/2``, ``0-23``) and does not name some: see ``times.py``."""
    _seconds: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _minutes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Of a day: 0 to 1439."""
    _months: frozenset[int] = field(init=False, repr=False, compare=False)
    _days: dict[tuple[int, int], tuple[int, ...]] = field(init=False, repr=False, compare=False)
    """(Weekday of the month's first day, Monday being 0; length of the month) -> the days that match, if any."""

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise IllegalArgumentError(f"a cron expression is a text such as '0 3 * * *', not {self.text!r}")
        text = " ".join(self.text.split())
        for name, value in (("text", text), *_Parser(text).expanded().items()):
            object.__setattr__(self, name, value)

    def next_after(self, wall_s: int) -> int | None:
        """The first matching wall second after ``wall_s``; None when there is none before the year 10000."""
        day, second = divmod(wall_s + 1, DAY_S)
        found = self._second_from(second)
        ordinal = self._day_from(_EPOCH + day)
        if found is None or ordinal != _EPOCH + day:
            found = self._minutes[0] * 60 + self._seconds[0]
            if ordinal == _EPOCH + day:
                ordinal = self._day_from(ordinal + 1)
        return None if ordinal is None else (ordinal - _EPOCH) * DAY_S + found

    def last_at(self, wall_s: int) -> int | None:
        """The last matching wall second up to and with ``wall_s``; None when there is none since the year 1."""
        day, second = divmod(wall_s, DAY_S)
        found = self._second_to(second)
        ordinal = self._day_to(_EPOCH + day)
        if found is None or ordinal != _EPOCH + day:
            found = self._minutes[-1] * 60 + self._seconds[-1]
            if ordinal == _EPOCH + day:
                ordinal = self._day_to(ordinal - 1)
        return None if ordinal is None else (ordinal - _EPOCH) * DAY_S + found

    # -- within a day: seconds since midnight --------------------------------------------------------------------------

    def _second_from(self, second: int) -> int | None:
        minute, rest = divmod(second, 60)
        at = bisect_left(self._minutes, minute)
        if at < len(self._minutes) and self._minutes[at] == minute:
            inner = bisect_left(self._seconds, rest)
            if inner < len(self._seconds):
                return minute * 60 + self._seconds[inner]
            at += 1
        return self._minutes[at] * 60 + self._seconds[0] if at < len(self._minutes) else None

    def _second_to(self, second: int) -> int | None:
        minute, rest = divmod(second, 60)
        at = bisect_right(self._minutes, minute) - 1
        if at >= 0 and self._minutes[at] == minute:
            inner = bisect_right(self._seconds, rest) - 1
            if inner >= 0:
                return minute * 60 + self._seconds[inner]
            at -= 1
        return self._minutes[at] * 60 + self._seconds[-1] if at >= 0 else None

    # -- over the days: ordinals of ``datetime.date`` ------------------------------------------------------------------

    def _day_from(self, ordinal: int) -> int | None:
        if ordinal > _LAST_DAY:
            return None
        start = date.fromordinal(max(ordinal, _FIRST_DAY))
        year, month, day = start.year, start.month, start.day
        while year <= MAXYEAR:
            if month in self._months:
                days = self._days[_shape(year, month)]
                at = bisect_left(days, day)
                if at < len(days):
                    return date(year, month, days[at]).toordinal()
            year, month, day = (year, month + 1, 1) if month < 12 else (year + 1, 1, 1)
        return None

    def _day_to(self, ordinal: int) -> int | None:
        if ordinal < _FIRST_DAY:
            return None
        start = date.fromordinal(min(ordinal, _LAST_DAY))
        year, month, day = start.year, start.month, start.day
        while year >= MINYEAR:
            if month in self._months:
                days = self._days[_shape(year, month)]
                at = bisect_right(days, day)
                if at:
                    return date(year, month, days[at - 1]).toordinal()
            year, month, day = (year, month - 1, 31) if month > 1 else (year - 1, 12, 31)
        return None


class _Parser:
    """Reads the fields of one expression, and knows how to say what is wrong with it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def expanded(self) -> dict[str, object]:
        """The attributes of the expression."""
        fields = self._fields()
        second, minute, hour, day, month, weekday = (
            list(self._elements(text, each)) for text, each in zip(fields, _FIELDS, strict=True)
        )
        day_text, weekday_text = fields[3], fields[5]
        either = not (day_text.startswith("*") or weekday_text.startswith("*"))
        days = {
            (first, length): tuple(_matching_days(first, length, _union(day), _weekdays(weekday), either))
            for first in range(7)
            for length in (28, 29, 30, 31)
        }
        months = _union(month)
        lengths = {length for each in months for length in (_MONTH_DAYS[each - 1], 29 if each == 2 else 0)}
        if not any(days[first, length] for first in range(7) for length in lengths - {0}):
            raise IllegalArgumentError(
                f"cron expression {self._shown()} never fires: no month {fields[4]} has a day-of-month {day_text}"
            )
        hours, minutes = sorted(_union(hour)), sorted(_union(minute))
        return {
            "every_hour": any(each.first == 0 and each.last == 23 for each in hour),
            "_seconds": tuple(sorted(_union(second))),
            "_minutes": tuple(60 * each + inner for each in hours for inner in minutes),
            "_months": months,
            "_days": days,
        }

    def _fields(self) -> list[str]:
        """The texts of the six fields, in upper case, ``*`` for ``?``."""
        macro = MACROS.get(self._text.lower())
        if macro is None and self._text.startswith("@"):
            raise IllegalArgumentError(f"cron expression {self._shown()} is unknown; known are {', '.join(MACROS)}")
        texts = (macro or self._text).upper().split(" ")
        if len(texts) not in (5, 6):
            raise IllegalArgumentError(
                f"cron expression {self._shown()} has {len(self._text.split())} fields; five are needed (minute hour "
                f"day-of-month month day-of-week), or six with seconds first"
            )
        if len(texts) == 5:
            texts.insert(0, "0")
        return ["*" if text == "?" and each.other else text for text, each in zip(texts, _FIELDS, strict=True)]

    def _elements(self, text: str, of: _Field) -> Iterator[_Element]:
        for part in text.split(","):
            if of.name == "day-of-month" and part == "L":
                yield _Element(_LAST, _LAST)
            elif of.name == "day-of-week" and (nth := _NTH_WEEKDAY.fullmatch(part)):
                day = self._value(nth["day"], of, part)
                yield _Element(day, day, 1, (_LAST if nth["last"] else int(nth["week"]),))
            else:
                yield self._range(part, of)

    def _range(self, part: str, of: _Field) -> _Element:
        match = _RANGE.fullmatch(part)
        if match is None:
            raise self._wrong(of, part, "cannot be read")
        step = 1 if match["step"] is None else int(match["step"])
        if not 1 <= step <= of.high:
            raise self._wrong(of, part, f"has a step that is not 1-{of.high}")
        if match["first"] is None:
            return _Element(of.low, of.high, step)
        first = self._value(match["first"], of, part)
        if match["last"] is None:
            return _Element(first, first if match["step"] is None else of.high, step)
        last = self._value(match["last"], of, part)
        if last == 0 < first and of.names:  # FRI-SUN
            last = 7
        if last < first:
            raise self._wrong(of, part, "is a range that ends before it begins")
        return _Element(first, last, step)

    def _value(self, text: str, of: _Field, part: str) -> int:
        if text.isdigit():
            value = int(text)
        elif text in of.names:
            value = of.low + of.names.index(text)
        else:
            raise self._wrong(of, part, "has an unknown name")
        if not of.low <= value <= of.high:
            raise self._wrong(of, part, f"is not in {of.low}-{of.high}")
        return value

    def _wrong(self, of: _Field, part: str, why: str) -> IllegalArgumentError:
        return IllegalArgumentError(
            f"cron expression {self._shown()}: {of.name} {part[:40]!r} {why}; allowed: {of.allowed()}"
        )

    def _shown(self) -> str:
        return repr(self._text if len(self._text) <= 80 else self._text[:77] + "...")


class _Element(NamedTuple):
    """One element of a field's list; ``weeks`` only counts for weekdays."""

    first: int
    last: int
    step: int = 1
    weeks: tuple[int, ...] = _EVERY_WEEK


def _union(elements: list[_Element]) -> frozenset[int]:
    return frozenset(value for each in elements for value in range(each.first, each.last + 1, each.step))


def _weekdays(elements: list[_Element]) -> frozenset[tuple[int, int]]:
    """(Weekday, Monday being 0; week of the month)."""
    return frozenset(
        ((value - 1) % 7, week)
        for each in elements
        for value in range(each.first, each.last + 1, each.step)
        for week in each.weeks
    )


def _matching_days(
    first: int, length: int, days: frozenset[int], weekdays: frozenset[tuple[int, int]], either: bool
) -> Iterator[int]:
    for day in range(1, length + 1):
        weekday = (first + day - 1) % 7
        in_days = day in days or (day == length and _LAST in days)
        in_weekdays = (weekday, (day + 6) // 7) in weekdays or (day > length - 7 and (weekday, _LAST) in weekdays)
        if (in_days or in_weekdays) if either else (in_days and in_weekdays):
            yield day


def _shape(year: int, month: int) -> tuple[int, int]:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return date(year, month, 1).weekday(), _MONTH_DAYS[month - 1] + leap

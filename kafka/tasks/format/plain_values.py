"""Values that JSON does not have, as objects that it has, and back.

What JSON carries unchanged (None, booleans, numbers, texts, lists, dicts with str keys) stays as it is. Any other value
of a closed set of types is an object of two members, which every language can read and write::

    {"$type": "datetime", "value": "2026-10-25T02:30:00+01:00[Europe/Paris]"}

    $type      value
    datetime   text of ISO 8601 with the offset, if it has a time zone; then in brackets the zone's name, if it has one,
               and [fold=1] for the second of two equal local times (the suffixes are those of RFC 9557)
    date       text of ISO 8601
    time       as datetime; a time with a named zone has no offset
    timedelta  integer, microseconds
    uuid       text with hyphens
    decimal    text
    bytes      text, base64
    tuple      list
    set        list, in no order
    frozenset  list, in no order
    dict       list of [key, value] pairs: a dict with other keys than texts, or one that looks like such an object

Enumerations, dataclasses and pydantic models are written by their value (a dict of the fields, for the latter two) and
have no mark: :mod:`kafka.tasks.format.annotations` makes them anew, from what a function's annotations say. No class is
ever looked up by a name that was read. An instance of a subclass (``OrderedDict``, ``numpy.float64``, a named tuple)
arrives as its base type, if it equals that.

A new type is one more row of ``_WRITERS`` and of ``_READERS``.
"""

from __future__ import annotations

import base64
import dataclasses
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from typing import Any, Final
from uuid import UUID

TYPE: Final = "$type"
VALUE: Final = "value"

MOST_DEPTH: Final = 500
"""Lists, dicts and the like within one another; JSON itself takes somewhat less than a thousand."""

SCALARS: Final = frozenset({str, int, float, bool, type(None)})
"""Types that are plain whatever their value is."""

_BASES: Final = frozenset({str, int, float, dict, list, tuple, set, frozenset})
_MICROSECOND: Final = timedelta(microseconds=1)
_SUFFIXES: Final = re.compile(r"([^\[]*)(?:\[([^\]=]+)\])?(\[fold=1\])?")


class PlainForm:
    """How the values of one call or result become plain. ``has_bytes``: the format has bytes of its own.

    ``by_value`` collects the types that were written by their value: only an annotation restores them.
    """

    __slots__ = ("_depth", "_has_bytes", "by_value")

    def __init__(self, has_bytes: bool = False) -> None:
        self._has_bytes = has_bytes
        self._depth = 0
        self.by_value: list[type] = []

    def of(self, value: Any) -> Any:
        """``value`` as plain data: itself where that is possible. Raises an ``Exception`` where it cannot be."""
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is list:
            for inner in value:
                if type(inner) not in SCALARS:
                    return self._of_items(value)
            return value
        if kind is dict:
            return self._of_dict(value)
        if kind is tuple or kind is set or kind is frozenset:
            return {TYPE: kind.__name__, VALUE: self._of_items(value)}
        if kind is bytes and self._has_bytes:
            return value
        writer = _WRITERS.get(kind)
        if writer is not None:
            return {TYPE: kind.__name__.lower(), VALUE: writer(value)}
        return self._of_object(value)

    def _of_items(self, values: Any) -> list[Any]:
        self._descend()
        items = [self.of(inner) for inner in values]
        self._depth -= 1
        return items

    def _descend(self) -> None:
        self._depth += 1
        if self._depth > MOST_DEPTH:  # compiled functions call one another without Python's own limit
            raise RecursionError

    def _of_dict(self, value: dict[Any, Any]) -> Any:
        is_plain = True
        for key, inner in value.items():
            if not isinstance(key, str):
                return self._of_pairs(value)
            if type(inner) not in SCALARS:
                is_plain = False
        if TYPE in value and is_marked(value):
            return self._of_pairs(value)
        if is_plain:
            return value
        self._descend()
        members = {key: self.of(inner) for key, inner in value.items()}
        self._depth -= 1
        return members

    def _of_pairs(self, value: dict[Any, Any]) -> dict[str, Any]:
        self._descend()
        pairs = [[self.of(key), self.of(inner)] for key, inner in value.items()]
        self._depth -= 1
        return {TYPE: "dict", VALUE: pairs}

    def _of_object(self, value: Any) -> Any:
        kind: type = type(value)
        if isinstance(value, Enum):
            if not isinstance(value, (str, int, float)):  # these arrive as equal values without an annotation
                self.by_value.append(kind)
            return self.of(value.value)
        if dataclasses.is_dataclass(kind):
            self.by_value.append(kind)
            return self.of({field.name: getattr(value, field.name) for field in dataclasses.fields(kind) if field.init})
        if is_model(kind):
            self.by_value.append(kind)
            return self.of(value.model_dump(mode="json", by_alias=True, round_trip=True))
        for base in kind.__mro__[1:]:
            if base in _BASES:
                return self.of(base(value))
            writer = _WRITERS.get(base)
            if writer is not None:
                plain = {TYPE: base.__name__.lower(), VALUE: writer(value)}
                is_equal = from_plain(plain) == value
                if not is_equal:
                    raise TypeError(f"{value!r} does not equal a {_name_of(base)}, which a {_name_of(kind)} is sent as")
                return plain
        raise TypeError(f"an object of type {_name_of(kind)} cannot be serialised")


def is_marked(value: dict[Any, Any]) -> bool:
    """Whether a dict is read as a value of the table."""
    return len(value) == 2 and TYPE in value and VALUE in value


def is_model(kind: type) -> bool:
    """Whether a class is a pydantic model; without importing pydantic."""
    return hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump")


def from_plain(value: dict[str, Any]) -> Any:
    """The value of one object that was read, after its members: for a decoder's ``object_hook``. Raises an
    ``Exception`` for a mark that is none of the table's."""
    if not is_marked(value):
        return value
    name, inner = value[TYPE], value[VALUE]
    if type(name) is not str or name not in _READERS:
        raise ValueError(f"unknown {TYPE} {str(name)[:40]!r}; known are {', '.join(sorted(_READERS))}")
    kind, reader = _READERS[name]
    if type(inner) is not kind:
        raise ValueError(f"the value of a {name} must be of type {kind.__name__}, not {type(inner).__name__}")
    return reader(inner)


def _name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# -- writing ----------------------------------------------------------------------------------------------------------


def _write_datetime(value: datetime) -> str:
    return datetime.isoformat(value) + _suffixes_of(value.tzinfo, value.fold)


def _write_time(value: time) -> str:
    return time.isoformat(value) + _suffixes_of(value.tzinfo, value.fold)


def _suffixes_of(zone: tzinfo | None, fold: int) -> str:
    name = "" if zone is None else _zone_name(zone)
    return name + ("[fold=1]" if fold else "")


def _zone_name(zone: tzinfo) -> str:
    if type(zone) is not timezone:
        from zoneinfo import ZoneInfo  # loaded already where there is one

        if isinstance(zone, ZoneInfo):
            key = getattr(zone, "key", None)  # None where it was made of a file
            if not key:
                raise ValueError(f"the time zone {zone!r} has no name: make it with ZoneInfo(name)")
            return f"[{key}]"
    offset = zone.utcoffset(None)
    if offset is None:
        raise TypeError(
            f"the time zone {zone!r} is a {_name_of(type(zone))}, not a zoneinfo.ZoneInfo or datetime.timezone"
        )
    if offset.microseconds:  # Python reads +00:00:00.5 as UTC
        raise ValueError(f"the time zone {zone!r} has an offset with a fraction of a second")
    return ""


def _write_date(value: date) -> str:
    return date.isoformat(value)


def _write_timedelta(value: timedelta) -> int:
    return value // _MICROSECOND


def _write_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


_WRITERS: Final[dict[type, Callable[[Any], Any]]] = {
    datetime: _write_datetime,
    date: _write_date,
    time: _write_time,
    timedelta: _write_timedelta,
    UUID: str,
    Decimal: str,
    bytes: _write_bytes,
}


# -- reading ----------------------------------------------------------------------------------------------------------


def _read_datetime(text: str) -> datetime:
    iso, key, fold = _parts_of(text)
    value = datetime.fromisoformat(iso).replace(fold=fold)
    if key is None:
        return value
    from zoneinfo import ZoneInfo

    zone = ZoneInfo(key)
    for fold in (value.fold, 1 - value.fold):  # other writers need not say which
        local = value.replace(tzinfo=zone, fold=fold)
        if value.tzinfo is None or local.utcoffset() == value.utcoffset():
            return local
    return value.astimezone(zone)  # the zone's rules differ here: it stays the same instant


def _read_time(text: str) -> time:
    iso, key, fold = _parts_of(text)
    value = time.fromisoformat(iso).replace(fold=fold)
    if key is None:
        return value
    from zoneinfo import ZoneInfo

    return value.replace(tzinfo=ZoneInfo(key))


def _parts_of(text: str) -> tuple[str, str | None, int]:
    match = _SUFFIXES.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid time {text[:60]!r}")
    iso: str = match[1]
    if iso.endswith(("Z", "z")):  # which Python reads from 3.11 on
        iso = iso[:-1] + "+00:00"
    return iso, match[2], 1 if match[3] else 0


def _read_timedelta(value: int) -> timedelta:
    return timedelta(microseconds=value)


def _read_bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_READERS: Final[dict[str, tuple[type, Callable[[Any], Any]]]] = {
    "datetime": (str, _read_datetime),
    "date": (str, date.fromisoformat),
    "time": (str, _read_time),
    "timedelta": (int, _read_timedelta),
    "uuid": (str, UUID),
    "decimal": (str, Decimal),
    "bytes": (str, _read_bytes),
    "tuple": (list, tuple),
    "set": (list, set),
    "frozenset": (list, frozenset),
    "dict": (list, dict),
}

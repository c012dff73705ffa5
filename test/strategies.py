"""Every hypothesis strategy of the tests, so that what one test learns to make, all can."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from hypothesis import strategies as st

from kafka.protocol.registry import REGISTRY
from kafka.tasks.format.records import StateRecord
from kafka.tasks.states import JobState
from kafka.wire.message import Field, Message, Struct, fields_of

_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def text(max_size: int = 12) -> st.SearchStrategy[str]:
    """Text that UTF-8 can carry: no lone surrogates."""
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size)


def primitive(kind: str) -> st.SearchStrategy[Any]:
    """Values of a primitive type of the protocol."""
    if kind in _INTEGERS:
        bits = _INTEGERS[kind]
        return st.integers(-(2**bits), 2**bits - 1)
    return {
        "bool": st.booleans(),
        "uint16": st.integers(0, 2**16 - 1),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16).map(lambda b: uuid.UUID(bytes=b)),
        "string": text(),
        "bytes": st.binary(max_size=24),
        "records": st.binary(max_size=24),
    }[kind]


def _values(each: Field, version: int, flexible: bool) -> st.SearchStrategy[Any]:
    if each.type.cls is not None:
        one: st.SearchStrategy[Any] = structs(each.type.cls, version, flexible)
    else:
        one = primitive(each.type.kind)
    values = st.lists(one, max_size=3) if each.type.array else one
    return st.none() | values if each.spec.nullable(version) else values


def structs(cls: type[Struct], version: int, flexible: bool) -> st.SearchStrategy[Any]:
    """Structures with all fields that ``version`` has set to anything, and the others at their defaults.

    In flexible versions there may also be tagged fields that the schema does not know.
    """
    chosen = {f.name: _values(f, version, flexible) for f in fields_of(cls) if f.spec.present(version)}
    known = {f.spec.tag for f in fields_of(cls) if f.spec.tag is not None}
    tags: st.SearchStrategy[dict[int, bytes] | None] = st.none()
    if flexible:
        numbers = st.integers(0, 5000).filter(lambda tag: tag not in known)
        tags = st.dictionaries(numbers, st.binary(max_size=8), max_size=2).map(lambda found: found or None)

    def build(values: dict[str, Any], unknown_tags: dict[int, bytes] | None) -> Struct:
        made = cls(**values)
        made.unknown_tags = unknown_tags  # type: ignore[misc]  # a slot that the class declares as no field
        return made

    return st.builds(build, st.fixed_dictionaries(chosen), tags)


def messages(cls: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Messages of one class and version."""
    return structs(cls, version, cls.flexible(version))


def message_classes() -> list[tuple[type[Message], int]]:
    """Every (class, version) of the registry."""
    return [
        (cls, version)
        for api in REGISTRY.values()
        for cls in (api.request, api.response)
        for version in range(cls.min_version, cls.max_version + 1)
    ]


def splits(data: bytes) -> st.SearchStrategy[list[bytes]]:
    """Ways to cut ``data`` into pieces, empty ones included."""

    def cut(points: list[int]) -> list[bytes]:
        edges = [0, *sorted(points), len(data)]
        return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]

    return st.lists(st.integers(0, len(data)), max_size=12).map(cut)


def job_states() -> st.SearchStrategy[JobState]:
    """What a state record can say."""
    return st.sampled_from([state for state in JobState if state not in (JobState.UNKNOWN, JobState.PENDING)])


def state_records(job_id: str, time_ms: int, topic_offsets: int = 1000) -> st.SearchStrategy[StateRecord]:
    """State records of one job, read from either topic, around the time ``time_ms`` at which the results topic closes
    for it."""
    return st.builds(
        StateRecord,
        st.just(job_id),
        job_states(),
        st.integers(1, 3),
        st.integers(1, 3),
        st.binary(max_size=20),
        st.integers(time_ms - 2, time_ms + 2),
        st.booleans(),
        st.integers(0, topic_offsets - 1),
        st.none() | st.just("application/vnd.msgpack"),
        st.none() | st.integers(0, 10**18 - 1),
    )


def task_values() -> st.SearchStrategy[Any]:
    """Nested values that arguments and results may have without an annotation."""
    offsets = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    zones = st.none() | st.timezones() | offsets
    keys = (
        st.text() | st.integers() | st.none() | st.booleans() | st.binary() | st.dates() | st.uuids()
        | st.tuples(st.integers(), st.text())
    )  # fmt: skip
    leaves = (
        keys
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.decimals(allow_nan=False)
        | st.timedeltas()
        | st.datetimes(timezones=zones)
        | st.times(timezones=zones)
    )
    return st.recursive(
        leaves | st.sets(keys, max_size=3) | st.frozensets(keys, max_size=3),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.lists(inner, max_size=4).map(tuple)
            | st.dictionaries(st.text() | st.just("$type"), inner, max_size=4)
            | st.dictionaries(keys, inner, max_size=4)
            | st.fixed_dictionaries({"$type": inner, "value": inner})
        ),
        max_leaves=12,
    )


class CronText(NamedTuple):
    """A cron expression, and what it matches: made together, so that nothing has to read the text."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """Monday is 0."""
    either: bool
    """Both day fields restrict, and one is enough (crontab(5))."""

    def matches(self, local: datetime) -> bool:
        in_days, in_weekdays = local.day in self.days, local.weekday() in self.weekdays
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and ((in_days or in_weekdays) if self.either else (in_days and in_weekdays))
        )


def _cron_field(low: int, high: int) -> st.SearchStrategy[tuple[str, frozenset[int]]]:
    """The text of one field, and its values."""
    value, step = st.integers(low, high), st.integers(1, high)
    pair = st.tuples(value, value).map(sorted)
    element = st.one_of(
        value.map(lambda v: (f"{v}", {v})),
        st.just(("*", set(range(low, high + 1)))),
        step.map(lambda s: (f"*/{s}", set(range(low, high + 1, s)))),
        pair.map(lambda p: (f"{p[0]}-{p[1]}", set(range(p[0], p[1] + 1)))),
        st.tuples(pair, step).map(lambda t: (f"{t[0][0]}-{t[0][1]}/{t[1]}", set(range(t[0][0], t[0][1] + 1, t[1])))),
        st.tuples(value, step).map(lambda t: (f"{t[0]}/{t[1]}", set(range(t[0], high + 1, t[1])))),
    )
    return st.lists(element, min_size=1, max_size=3).map(
        lambda parts: (",".join(text for text, _ in parts), frozenset().union(*(values for _, values in parts)))
    )


def _often(field: st.SearchStrategy[tuple[str, frozenset[int]]], low: int, high: int) -> Any:
    """``field``, and ``*`` in three of four cases: what restricts everything hardly ever fires."""
    every = st.just(("*", frozenset(range(low, high + 1))))
    return st.one_of(every, every, every, field)


def cron_texts() -> st.SearchStrategy[CronText]:
    """Expressions of five fields, without those that never fire (31 April)."""

    def made(minute: Any, hour: Any, day: Any, month: Any, weekday: Any) -> CronText:
        fields = (minute, hour, day, month, weekday)
        either = not (day[0].startswith("*") or weekday[0].startswith("*"))
        weekdays = frozenset((value - 1) % 7 for value in weekday[1])
        text = " ".join(each[0] for each in fields)
        return CronText(text, minute[1], hour[1], day[1], month[1], weekdays, either)

    def fires(cron: CronText) -> bool:
        longest = max(31 if month in (1, 3, 5, 7, 8, 10, 12) else 29 if month == 2 else 30 for month in cron.months)
        return cron.either or min(cron.days) <= longest

    return st.builds(
        made,
        _cron_field(0, 59),
        st.one_of(_cron_field(0, 23), st.just(("*", frozenset(range(24))))),
        _often(_cron_field(1, 31), 1, 31),
        _often(_cron_field(1, 12), 1, 12),
        _often(_cron_field(0, 7), 0, 7),
    ).filter(fires)

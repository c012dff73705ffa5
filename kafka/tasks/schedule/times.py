"""The times of a periodic job, its *slots*: :class:`CronTimes` and :class:`IntervalTimes`.

Pure: instants come in as milliseconds since the epoch (UTC), and no clock is read. Slots are whole milliseconds, those
of a cron expression whole seconds. A new kind of times is a class with ``next_after``, ``last_at`` and ``spec``, and a
row in ``_KINDS``.

When clocks change
------------------

An expression that names its hours (``30 2 * * *``, ``*/10 1-3 * * *``) runs at *times of day*: a slot is the first
instant at which the local clock reaches or passes a matching time. One whose hour field runs over all hours (``*``,
``*/2``, ``0/2``, ``0-23``) runs *as time passes*: a slot is every instant at which the local clock shows a matching
time. This is the rule of Vixie cron (cron(8), "Daylight Saving Time and other time changes"); its wildcard jobs are
here those with such hours, whatever their minutes. Slots at the same instant are one slot.

==================  ================================  ==============================  ================================
the local clock     for example                       hours are named                 the hour field runs over all
==================  ================================  ==============================  ================================
skips an hour       Europe/Paris 2026-03-29, from     ``30 2 * * *``: once, at the    ``30 * * * *``: every hour: at
                    02:00 to 03:00 (01:00 UTC)        first instant after the gap,    00:30 UTC (01:30) and 01:30 UTC
                                                      03:00 (01:00 UTC)               (03:30)
shows an hour       Europe/Paris 2026-10-25, from     ``30 2 * * *``: once, the       ``30 * * * *``: every hour: at
twice               03:00 to 02:00 (01:00 UTC)        first time, at 00:30 UTC        00:30 UTC and 01:30 UTC
skips half an hour  Australia/Lord_Howe 2026-10-04,   ``15 2 * * *``: once, at        ``0 * * * *``: at 01:00 and then
                    from 02:00 to 02:30               02:30                           at 03:00, 90 minutes later
shows half an hour  Australia/Lord_Howe 2026-04-05,   ``45 1 * * *``: once, the       ``45 * * * *``: at both of 01:45,
twice               from 02:00 to 01:30               first time                      30 minutes apart
skips a day         Pacific/Apia 2011-12-30           ``0 12 30 12 *``: once, at      ``0 * 30 12 *``: not in 2011
                                                      2011-12-31 00:00
==================  ================================  ==============================  ================================

So ``0 */2 * * *`` runs when the clock shows an even hour: in Paris not on 2026-03-29 at 02:00, which is no time of that
day, and on 2026-10-25 at both of 02:00. For the same distance always, take an interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, TypeAlias

from kafka.errors import IllegalArgumentError
from kafka.tasks.schedule.cron import DAY_S, CronExpression

SHORTEST_INTERVAL_S = 1
LONGEST_INTERVAL_S = 36_525 * DAY_S
"""A hundred years."""

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=timezone.utc)
_FIRST_S, _LAST_S = -62_135_424_000, 253_402_127_999
"""Instants that are dates in every zone: two days within the years 1 and 9999."""


# -- cron --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CronTimes:
    """The slots of a cron expression (``cron.py``) in a time zone: a name of the tz database.

    IllegalArgumentError for an expression that cannot be read or never fires, and for an unknown zone.
    """

    text: str
    tz: str = "UTC"
    _cron: CronExpression = field(init=False, repr=False, compare=False)
    _clock: _LocalClock | None = field(init=False, repr=False, compare=False)
    """None for UTC, which needs no tz database."""

    def __post_init__(self) -> None:
        cron = CronExpression(self.text)
        clock = None if self.tz == "UTC" else _LocalClock(_zone(self.tz))
        for name, value in (("text", cron.text), ("_cron", cron), ("_clock", clock)):
            object.__setattr__(self, name, value)

    def next_after(self, ms: int) -> int | None:
        """The first slot after that instant; None when there is none before the year 10000."""
        after_s = max(ms // 1000, _FIRST_S)
        if after_s >= _LAST_S:
            return None
        if self._clock is None:
            found = self._cron.next_after(after_s)
        elif self._cron.every_hour:
            found = _next_shown(self._cron, self._clock, after_s)
        else:
            wall_s = self._cron.next_after(self._clock.furthest_shown(after_s))
            found = None if wall_s is None else self._clock.reaches(wall_s)
        return None if found is None or found > _LAST_S else found * 1000

    def last_at(self, ms: int) -> int | None:
        """The last slot up to and with that instant; None when there is none since the year 1."""
        until_s = min(ms // 1000, _LAST_S)
        if until_s <= _FIRST_S:
            return None
        if self._clock is None:
            found = self._cron.last_at(until_s)
        elif self._cron.every_hour:
            found = _last_shown(self._cron, self._clock, until_s)
        else:
            wall_s = self._cron.last_at(self._clock.furthest_shown(until_s))
            found = None if wall_s is None else self._clock.reaches(wall_s)
        return None if found is None or found < _FIRST_S else found * 1000

    def spec(self) -> dict[str, Any]:
        """What :func:`times_of` restores it from, of JSON's types."""
        return {"cron": self.text, "tz": self.tz}


class _LocalClock:
    """The clock of a zone: instants (seconds since the epoch) to what it shows (wall seconds), and back.

    Python's zones do not say when their clocks change, so changes are found by comparing offsets and halving, at most
    a day at a time. In the tz database (2026) two changes of a zone are never within three days.
    """

    __slots__ = ("_zone",)

    def __init__(self, zone: tzinfo) -> None:
        self._zone = zone

    def offset(self, at_s: int) -> int:
        """Seconds that the clock is ahead of UTC at an instant."""
        return _seconds(datetime.fromtimestamp(at_s, self._zone).utcoffset())

    def furthest_shown(self, at_s: int) -> int:
        """The latest time that the clock has shown up to an instant: later than what it shows when it was put back and
        shows that hour again."""
        local = datetime.fromtimestamp(at_s, self._zone)
        wall_s = at_s + _seconds(local.utcoffset())
        if not local.fold:
            return wall_s
        before = _seconds(local.replace(fold=0).utcoffset())
        return self.change(wall_s - before, at_s) + before - 1

    def reaches(self, wall_s: int) -> int:
        """The first instant at which the clock shows ``wall_s`` or, where it skips that, a later time."""
        local = (_EPOCH + timedelta(seconds=wall_s)).replace(tzinfo=self._zone)
        before, after = _seconds(local.utcoffset()), _seconds(local.replace(fold=1).utcoffset())
        # In a gap, the offset before it leads to an instant after it, and the one after it to one before it (PEP 495).
        return wall_s - before if before >= after else self.change(wall_s - after, wall_s - before)

    def change(self, low_s: int, high_s: int) -> int:
        """The first instant in (``low_s``, ``high_s``] with another offset than at ``low_s``, given that it has one at
        ``high_s``."""
        offset = self.offset(low_s)
        while high_s - low_s > 1:
            middle = (low_s + high_s) // 2
            if self.offset(middle) == offset:
                low_s = middle
            else:
                high_s = middle
        return high_s


# The two walks below take the clock's offset as it is, find the matching time by it, and look for a change of the clock
# on the way, a day at a time. Days without a matching time are left out: a slot shows one, and offsets are less than a
# day. The clock is not put back by more than a day either, so a time that was passed does not come again later.


def _next_shown(cron: CronExpression, clock: _LocalClock, at_s: int) -> int | None:
    """The first instant after ``at_s`` at which the clock shows a matching time."""
    wall_s = at_s + clock.offset(at_s)
    while True:
        offset = clock.offset(at_s)
        match_s = cron.next_after(wall_s)
        if match_s is None or match_s - offset > _LAST_S:
            return None
        slot_s = match_s - offset
        day_s = min(slot_s, at_s + DAY_S)
        if clock.offset(day_s) != offset:
            at_s = clock.change(at_s, day_s)
            wall_s = at_s + clock.offset(at_s) - 1  # what it shows at the change may match
        elif slot_s == day_s:
            return slot_s
        else:
            at_s = max(day_s, slot_s - 2 * DAY_S)
            wall_s = at_s + clock.offset(at_s)


def _last_shown(cron: CronExpression, clock: _LocalClock, at_s: int) -> int | None:
    """The last instant up to ``at_s`` at which the clock shows a matching time."""
    while True:
        offset = clock.offset(at_s)
        match_s = cron.last_at(at_s + offset)
        if match_s is None or match_s - offset < _FIRST_S:
            return None
        slot_s = match_s - offset
        day_s = max(slot_s, at_s - DAY_S)
        if clock.offset(day_s) != offset:
            at_s = clock.change(day_s, at_s) - 1
        elif slot_s == day_s:
            return slot_s
        else:
            at_s = min(day_s, slot_s + 2 * DAY_S)


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * DAY_S + offset.seconds


def _zone(name: object) -> tzinfo:
    from zoneinfo import ZoneInfo  # takes longer than all other imports here; most entries are in UTC

    if not isinstance(name, str):
        raise IllegalArgumentError(f"tz must be the name of a time zone such as 'Europe/Paris', not {name!r}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not there; not a name; a folder
        raise IllegalArgumentError(
            f"unknown time zone {name[:80]!r}: use a name of the tz database such as 'Europe/Paris'; where the system "
            f"has no zones, `pip install tzdata` brings them"
        ) from None


# -- intervals ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalTimes:
    """Slots at ``anchor_ms`` (since the epoch) plus or minus every multiple of ``every_s``, which is kept in whole
    milliseconds. Users' values come through :func:`interval_times`.

    IllegalArgumentError unless ``every_s`` is from a second to a hundred years.
    """

    every_s: float
    anchor_ms: int = 0
    _every_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        every, anchor = self.every_s, self.anchor_ms
        if (
            isinstance(every, bool)
            or not isinstance(every, (int, float))
            or not SHORTEST_INTERVAL_S <= every <= LONGEST_INTERVAL_S
        ):
            raise IllegalArgumentError(
                f"every must be {SHORTEST_INTERVAL_S} to {LONGEST_INTERVAL_S} seconds (a hundred years), not {every!r}"
            )
        if isinstance(anchor, bool) or not isinstance(anchor, int):
            raise IllegalArgumentError(f"anchor_ms must be whole milliseconds since the epoch, not {anchor!r}")
        every_ms = round(every * 1000)
        object.__setattr__(self, "_every_ms", every_ms)
        object.__setattr__(self, "every_s", every_ms / 1000 if every_ms % 1000 else every_ms // 1000)

    def next_after(self, ms: int) -> int:
        """The first slot after that instant."""
        return ms + self._every_ms - (ms - self.anchor_ms) % self._every_ms

    def last_at(self, ms: int) -> int:
        """The last slot up to and with that instant."""
        return ms - (ms - self.anchor_ms) % self._every_ms

    def spec(self) -> dict[str, Any]:
        """What :func:`times_of` restores it from, of JSON's types."""
        return {"every_s": self.every_s, "anchor_ms": self.anchor_ms}


def interval_times(every: float | timedelta, anchor: datetime | None = None, *, now_ms: int) -> IntervalTimes:
    """An interval from what a user wrote: ``every`` seconds or a timedelta; ``anchor`` an instant that has passed, to
    which the slots are aligned (None: the epoch).

    IllegalArgumentError for an ``every`` outside of a second to a hundred years, an anchor without a time zone, and one
    later than ``now_ms``.
    """
    times = IntervalTimes(every.total_seconds() if isinstance(every, timedelta) else every)
    if anchor is None:
        return times
    if not isinstance(anchor, datetime) or anchor.utcoffset() is None:
        raise IllegalArgumentError(f"anchor must be a datetime with a time zone, not {anchor!r}")
    anchor_ms = (anchor - _EPOCH_UTC) // timedelta(milliseconds=1)
    if anchor_ms > now_ms:
        raise IllegalArgumentError(
            f"anchor {anchor.isoformat()} is after its first slot: slots are aligned to the anchor in both directions, "
            f"so the first one comes within {times.every_s:g} s; use an anchor that has passed"
        )
    return IntervalTimes(times.every_s, anchor_ms)


# -- both --------------------------------------------------------------------------------------------------------------

Times: TypeAlias = CronTimes | IntervalTimes

_KINDS: dict[frozenset[str], Callable[..., Times]] = {
    frozenset({"cron", "tz"}): lambda cron, tz: CronTimes(cron, tz),
    frozenset({"every_s", "anchor_ms"}): IntervalTimes,
}
"""The names in a spec -> what makes the times from them. A spec with any other name comes from a later version, and
would give other slots than meant."""


def times_of(spec: object) -> Times:
    """The times whose ``spec()`` this is; IllegalArgumentError when it cannot be read."""
    kind = _KINDS.get(frozenset(spec)) if isinstance(spec, dict) else None
    if kind is None or not isinstance(spec, dict):
        names = " or ".join(str(sorted(each)) for each in _KINDS)
        raise IllegalArgumentError(f"times must be a mapping with {names}, not {repr(spec)[:120]}")
    return kind(**spec)


def latest(times: Times, after_ms: int, until_ms: int) -> int | None:
    """The last slot in (``after_ms``, ``until_ms``], None when there is none: found from the end, however many there
    are."""
    found = times.last_at(until_ms)
    return found if found is not None and found > after_ms else None


def slots(times: Times, after_ms: int, until_ms: int) -> Iterator[int]:
    """The slots in (``after_ms``, ``until_ms``], in order; each is computed when it is asked for."""
    found = times.next_after(after_ms)
    while found is not None and found <= until_ms:
        yield found
        found = times.next_after(found)

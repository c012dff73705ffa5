"""Tests of ``kafka.tasks.schedule.times``: slots, above all where clocks change.

When they change is from the tz database (``zdump -v``), what follows from cron(8) of Vixie cron, "Daylight Saving Time
and other time changes", and from the table in the module. Two walks over every minute, which know only Python's own
zones, check the rest.
"""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka.errors import IllegalArgumentError
from kafka.tasks.schedule.cron import CronExpression
from kafka.tasks.schedule.times import CronTimes, IntervalTimes, Times, interval_times, latest, slots, times_of
from test.strategies import CronText, cron_texts

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NOW = 1_795_780_800_000
"""2026-11-27 12:00 UTC."""


def ms(text: str) -> int:
    """An ISO time as milliseconds since the epoch; of UTC unless it says otherwise."""
    at = datetime.fromisoformat(text)
    return int((at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp() * 1000)


def utc(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")


# -- where clocks change -----------------------------------------------------------------------------------------------

PARIS, NEW_YORK, LORD_HOWE, APIA = "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"

# Zone, expression, from and until in UTC, the slots in UTC.
CHANGES: list[tuple[str, str, str, str, list[str]]] = [
    # Europe/Paris: 2026-03-29 and 2027-03-28, 01:00 UTC: 02:00 -> 03:00, from +1 to +2
    (PARIS, "30 2 * * *", "2026-03-27 12:00", "2026-03-30 12:00",
     ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"]),
    (PARIS, "30 2 * * *", "2027-03-26 12:00", "2027-03-29 12:00",
     ["2027-03-27 01:30", "2027-03-28 01:00", "2027-03-29 00:30"]),
    (PARIS, "0 2,3 * * *", "2026-03-29 00:00", "2026-03-29 12:00", ["2026-03-29 01:00"]),  # one instant: one slot
    (PARIS, "*/20 2 * * *", "2026-03-29 00:00", "2026-03-29 12:00", ["2026-03-29 01:00"]),
    (PARIS, "15,45 1-3 * * *", "2026-03-29 00:00", "2026-03-29 12:00",
     ["2026-03-29 00:15", "2026-03-29 00:45", "2026-03-29 01:00", "2026-03-29 01:15", "2026-03-29 01:45"]),
    (PARIS, "*/30 * * * *", "2026-03-29 00:00", "2026-03-29 02:00",
     ["2026-03-29 00:30", "2026-03-29 01:00", "2026-03-29 01:30", "2026-03-29 02:00"]),
    (PARIS, "0 */2 * * *", "2026-03-28 22:00", "2026-03-29 04:30", ["2026-03-28 23:00", "2026-03-29 02:00",
                                                                   "2026-03-29 04:00"]),
    # 2026-10-25 and 2027-10-31, 01:00 UTC: 03:00 -> 02:00, from +2 to +1
    (PARIS, "30 2 * * *", "2026-10-23 12:00", "2026-10-26 12:00",
     ["2026-10-24 00:30", "2026-10-25 00:30", "2026-10-26 01:30"]),
    (PARIS, "30 2 * * *", "2027-10-29 12:00", "2027-11-01 12:00",
     ["2027-10-30 00:30", "2027-10-31 00:30", "2027-11-01 01:30"]),
    (PARIS, "0 2,3 * * *", "2026-10-24 12:00", "2026-10-25 12:00", ["2026-10-25 00:00", "2026-10-25 02:00"]),
    (PARIS, "*/30 2 * * *", "2026-10-24 12:00", "2026-10-25 12:00", ["2026-10-25 00:00", "2026-10-25 00:30"]),
    (PARIS, "*/30 * * * *", "2026-10-24 23:30", "2026-10-25 02:00",
     ["2026-10-25 00:00", "2026-10-25 00:30", "2026-10-25 01:00", "2026-10-25 01:30", "2026-10-25 02:00"]),
    (PARIS, "0 */2 * * *", "2026-10-24 22:30", "2026-10-25 04:00",
     ["2026-10-25 00:00", "2026-10-25 01:00", "2026-10-25 03:00"]),
    # America/New_York: 2026-03-08 and 2027-03-14, 07:00 UTC: 02:00 -> 03:00, from -5 to -4
    (NEW_YORK, "30 2 * * *", "2026-03-07 00:00", "2026-03-09 12:00",
     ["2026-03-07 07:30", "2026-03-08 07:00", "2026-03-09 06:30"]),
    (NEW_YORK, "30 2 * * *", "2027-03-13 00:00", "2027-03-15 12:00",
     ["2027-03-13 07:30", "2027-03-14 07:00", "2027-03-15 06:30"]),
    (NEW_YORK, "0 * * * *", "2026-03-08 05:30", "2026-03-08 08:30",
     ["2026-03-08 06:00", "2026-03-08 07:00", "2026-03-08 08:00"]),
    # 2026-11-01 and 2027-11-07, 06:00 UTC: 02:00 -> 01:00, from -4 to -5
    (NEW_YORK, "30 1 * * *", "2026-10-31 00:00", "2026-11-02 12:00",
     ["2026-10-31 05:30", "2026-11-01 05:30", "2026-11-02 06:30"]),
    (NEW_YORK, "30 1 * * *", "2027-11-06 00:00", "2027-11-08 12:00",
     ["2027-11-06 05:30", "2027-11-07 05:30", "2027-11-08 06:30"]),
    (NEW_YORK, "0 2 * * *", "2026-11-01 00:00", "2026-11-01 12:00", ["2026-11-01 07:00"]),
    (NEW_YORK, "30 * * * *", "2026-11-01 05:00", "2026-11-01 07:45",
     ["2026-11-01 05:30", "2026-11-01 06:30", "2026-11-01 07:30"]),
    # Australia/Lord_Howe: 2026-10-03 and 2027-10-02, 15:30 UTC: 02:00 -> 02:30, from +10:30 to +11
    (LORD_HOWE, "15 2 * * *", "2026-10-02 12:00", "2026-10-04 18:00",
     ["2026-10-02 15:45", "2026-10-03 15:30", "2026-10-04 15:15"]),
    (LORD_HOWE, "0,15,30,45 2 * * *", "2027-10-02 12:00", "2027-10-02 18:00",
     ["2027-10-02 15:30", "2027-10-02 15:45"]),
    (LORD_HOWE, "0 * * * *", "2026-10-03 14:00", "2026-10-03 17:30",
     ["2026-10-03 14:30", "2026-10-03 16:00", "2026-10-03 17:00"]),
    # 2026-04-04 and 2027-04-03, 15:00 UTC: 02:00 -> 01:30, from +11 to +10:30
    (LORD_HOWE, "45 1 * * *", "2026-04-03 12:00", "2026-04-05 18:00",
     ["2026-04-03 14:45", "2026-04-04 14:45", "2026-04-05 15:15"]),
    (LORD_HOWE, "*/15 1 * * *", "2027-04-03 12:00", "2027-04-03 18:00",
     ["2027-04-03 14:00", "2027-04-03 14:15", "2027-04-03 14:30", "2027-04-03 14:45"]),
    (LORD_HOWE, "45 * * * *", "2026-04-04 14:00", "2026-04-04 16:30",
     ["2026-04-04 14:45", "2026-04-04 15:15", "2026-04-04 16:15"]),
    # Pacific/Apia: 2011-12-30 10:00 UTC: from the end of the 29th to the 31st, from -10 to +14
    (APIA, "0 12 * * *", "2011-12-28 12:00", "2011-12-31 12:00",
     ["2011-12-28 22:00", "2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00"]),
    (APIA, "0 12 30 12 *", "2010-12-01 00:00", "2013-01-01 00:00",
     ["2010-12-30 22:00", "2011-12-30 10:00", "2012-12-29 22:00"]),
    (APIA, "0 * 30 12 *", "2011-12-01 00:00", "2012-01-10 00:00", []),
    (APIA, "0 0 * * *", "2011-12-29 00:00", "2012-01-01 00:00",
     ["2011-12-29 10:00", "2011-12-30 10:00", "2011-12-31 10:00"]),
    (APIA, "0 */12 * * *", "2011-12-29 00:00", "2011-12-31 00:00",
     ["2011-12-29 10:00", "2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00"]),
    # America/Sao_Paulo changed at midnight: 2018-11-04 03:00 UTC: 00:00 -> 01:00; 2018-02-18 02:00 UTC: 00:00 -> 23:00
    ("America/Sao_Paulo", "@daily", "2018-11-03 00:00", "2018-11-05 12:00",
     ["2018-11-03 03:00", "2018-11-04 03:00", "2018-11-05 02:00"]),
    ("America/Sao_Paulo", "@daily", "2018-02-17 00:00", "2018-02-19 12:00",
     ["2018-02-17 02:00", "2018-02-18 03:00", "2018-02-19 03:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("tz", "text", "start", "end", "expected"), CHANGES)
def test_slots_where_a_clock_changes(tz: str, text: str, start: str, end: str, expected: list[str]) -> None:
    times = CronTimes(text, tz)
    assert [utc(each) for each in slots(times, ms(start), ms(end))] == expected
    assert latest(times, ms(start), ms(end)) == (ms(expected[-1]) if expected else None)
    assert [latest(times, ms(start), ms(each) - 1) for each in expected] == [
        None, *(ms(each) for each in expected[:-1])
    ][: len(expected)]  # fmt: skip


# -- against walks over every minute -----------------------------------------------------------------------------------


def minutes_after(after_ms: int, until_ms: int) -> Iterator[int]:
    """The whole minutes in (``after_ms``, ``until_ms``]."""
    return iter(range((after_ms // MINUTE_MS + 1) * MINUTE_MS, until_ms + 1, MINUTE_MS))


def local(at_ms: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, zone).replace(tzinfo=None, fold=0)


def walked(cron: CronText, hours_named: bool, zone: ZoneInfo, after_ms: int, until_ms: int) -> list[int]:
    """The slots by the rule, minute by minute: of hours that are named, where the clock reaches or passes a time that
    matches; else where it shows one. Two days ahead, the furthest time that the clock has shown is known."""
    if not hours_named:
        return [at for at in minutes_after(after_ms, until_ms) if cron.matches(local(at, zone))]
    found, furthest = [], local(after_ms - 2 * DAY_MS, zone).replace(second=0, microsecond=0)
    for at in minutes_after(after_ms - 2 * DAY_MS, until_ms):
        is_slot = False
        while furthest < local(at, zone):
            furthest += timedelta(minutes=1)
            is_slot = is_slot or cron.matches(furthest)
        if is_slot and at > after_ms:
            found.append(at)
    return found


INSTANTS = st.integers(ms("1990-01-01"), ms("2050-01-01"))


@settings(max_examples=60)
@given(cron=cron_texts(), start=INSTANTS)
def test_the_next_slot_in_utc_is_the_first_minute_that_matches(cron: CronText, start: int) -> None:
    end, epoch = start + 4 * DAY_MS, datetime(1970, 1, 1)
    matching = (at for at in minutes_after(start, end) if cron.matches(epoch + timedelta(milliseconds=at)))
    first = next(matching, None)
    found = CronTimes(cron.text).next_after(start)
    assert found == first if first is not None else found is not None and found > end


CHANGED = [  # from zdump -v
    (PARIS, "2026-03-29 01:00"), (PARIS, "2026-10-25 01:00"), (NEW_YORK, "2027-03-14 07:00"),
    (NEW_YORK, "2027-11-07 06:00"), (LORD_HOWE, "2026-10-03 15:30"), (LORD_HOWE, "2026-04-04 15:00"),
    (APIA, "2011-12-30 10:00"), ("America/Sao_Paulo", "2018-11-04 03:00"), ("America/Sao_Paulo", "2018-02-18 02:00"),
    ("Africa/Casablanca", "2026-02-15 02:00"), ("Africa/Casablanca", "2026-03-22 02:00"),
    ("Asia/Pyongyang", "2015-08-14 15:00"), ("Asia/Pyongyang", "2018-05-04 15:00"),
    ("America/Caracas", "2007-12-09 07:00"), ("Antarctica/Troll", "2026-03-29 01:00"),
    ("Antarctica/Troll", "2026-10-25 01:00"), ("Pacific/Kwajalein", "1993-08-21 12:00"),
]  # fmt: skip


def hours_named(cron: CronText) -> bool:
    """Neither ``*``, nor all hours as a range or from 0 on, with or without a step."""
    parts = cron.text.split()[1].split(",")
    return not any(part.startswith(("*", "0-23", "0/")) for part in parts)


@settings(max_examples=150)
@given(cron=cron_texts(), change=st.sampled_from(CHANGED), before=st.integers(0, 2 * DAY_MS))
def test_slots_around_a_change_are_those_of_a_walk_over_minutes(
    cron: CronText, change: tuple[str, str], before: int
) -> None:
    tz, at = change
    start, end = ms(at) - before, ms(at) + 30 * HOUR_MS
    times = CronTimes(cron.text, tz)
    expected = walked(cron, hours_named(cron), ZoneInfo(tz), start, end)
    assert list(slots(times, start, end)) == expected
    assert latest(times, start, end) == (expected[-1] if expected else None)
    middle = (start + end) // 2
    assert latest(times, start, middle) == max((each for each in expected if each <= middle), default=None)


ZONES = [
    "UTC", PARIS, NEW_YORK, LORD_HOWE, APIA, "Asia/Kolkata", "Asia/Kathmandu", "Africa/Casablanca", "Asia/Gaza",
    "Pacific/Chatham", "America/St_Johns", "Antarctica/Troll", "Africa/Cairo", "Asia/Tehran", "Africa/Monrovia",
]  # fmt: skip


@settings(max_examples=100)
@given(cron=cron_texts(), tz=st.sampled_from(ZONES), start=st.integers(ms("1890-01-01"), ms("2150-01-01")))
def test_slots_increase_and_are_found_from_both_sides(cron: CronText, tz: str, start: int) -> None:
    times = CronTimes(cron.text, tz)
    found = list(itertools.islice(slots(times, start, ms("2400-01-01")), 50))
    assert found == sorted(set(found))
    assert found[0] > start
    assert [times.next_after(each - 1) for each in found] == found
    assert [times.last_at(each) for each in found] == found
    assert [times.last_at(each - 1) for each in found[1:]] == found[:-1]
    assert latest(times, start, found[0] - 1) is None


# -- cron --------------------------------------------------------------------------------------------------------------


def test_a_slot_is_after_the_instant_that_is_given() -> None:
    times = CronTimes("0 12 * * *")
    assert times.next_after(NOW) == NOW + DAY_MS
    assert times.next_after(NOW - 1) == NOW
    assert times.last_at(NOW) == NOW == times.last_at(NOW + 1)
    assert times.last_at(NOW - 1) == NOW - DAY_MS
    assert latest(times, NOW, NOW + DAY_MS - 1) is None
    assert latest(times, NOW - 1, NOW) == NOW


def test_seconds_are_slots_of_their_own() -> None:
    assert list(slots(CronTimes("*/20 * * * * *", PARIS), NOW, NOW + MINUTE_MS)) == [
        NOW + 20_000, NOW + 40_000, NOW + 60_000
    ]  # fmt: skip


@pytest.mark.parametrize("tz", ["UTC", PARIS])
def test_there_are_no_slots_outside_of_the_calendar(tz: str) -> None:
    for text in ("0 12 * * *", "0 * * * *"):
        times = CronTimes(text, tz)
        assert times.next_after(10**17) is None
        assert times.last_at(-(10**17)) is None
        first, last = times.next_after(-(10**17)), times.last_at(10**17)
        assert first is not None and last is not None
        assert first // DAY_MS == (ms("0001-01-03") + 1) // DAY_MS
        assert last // DAY_MS == ms("9999-12-29") // DAY_MS
        assert times.next_after(last) is None


@pytest.mark.parametrize(
    "tz", ["Europe/Pariss", "Europe", "", "../etc/passwd", "/etc/localtime", "a\0b", "\ud800", "x" * 999]
)
def test_an_unknown_zone_is_refused_with_the_way_to_get_zones(tz: str) -> None:
    with pytest.raises(IllegalArgumentError, match="pip install tzdata") as caught:
        CronTimes("* * * * *", tz)
    assert repr(tz[:80]) in str(caught.value)


@pytest.mark.parametrize("tz", [None, 5, timezone.utc])
def test_a_zone_is_given_by_its_name(tz: object) -> None:
    with pytest.raises(IllegalArgumentError, match="tz must be the name of a time zone"):
        CronTimes("* * * * *", tz)  # type: ignore[arg-type]


def test_utc_needs_no_tz_database() -> None:
    code = "import sys; from kafka.tasks.schedule.times import CronTimes; CronTimes('* * * * *').next_after(0); "
    code += "assert 'zoneinfo' not in sys.modules; CronTimes('* * * * *', 'Europe/Paris'); sys.modules['zoneinfo']"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (CronTimes("* * * * * *", PARIS), "2026-11-27 12:00"),
        (CronTimes("0 2 * * *", PARIS), "2026-11-27 01:00"),
        (CronTimes("* * 1 1 *", PARIS), "2026-01-01 22:59"),
        (CronTimes("0 0 29 2 *"), "2024-02-29 00:00"),
        (IntervalTimes(1), "2026-11-27 12:00"),
    ],
)
def test_the_latest_of_ten_years_is_found_without_a_walk(
    monkeypatch: pytest.MonkeyPatch, times: Times, expected: str
) -> None:
    calls: list[int] = []
    original = CronExpression.last_at

    def counted(cron: CronExpression, wall_s: int) -> int | None:
        calls.append(wall_s)
        return original(cron, wall_s)

    monkeypatch.setattr(CronExpression, "last_at", counted)
    monkeypatch.setattr(CronExpression, "next_after", None)
    assert latest(times, NOW - 3652 * DAY_MS, NOW) == ms(expected)
    assert len(calls) <= 5


def test_slots_are_computed_as_they_are_asked_for() -> None:
    for times in (CronTimes("* * * * * *", PARIS), IntervalTimes(1)):
        assert next(slots(times, 0, 10**15)) == 1000


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_intervals_are_aligned_to_the_anchor_in_both_directions() -> None:
    times = IntervalTimes(60, NOW + 7)
    assert list(slots(times, NOW - 2 * MINUTE_MS, NOW + MINUTE_MS + 7)) == [
        NOW - 2 * MINUTE_MS + 7, NOW - MINUTE_MS + 7, NOW + 7, NOW + MINUTE_MS + 7
    ]  # fmt: skip
    assert [times.last_at(NOW + 6), times.last_at(NOW + 7)] == [NOW - MINUTE_MS + 7, NOW + 7]
    assert IntervalTimes(3600).next_after(NOW) == NOW + HOUR_MS
    assert latest(times, NOW + 7, NOW + MINUTE_MS + 6) is None


@given(every_ms=st.integers(1000, 10**9), anchor=st.integers(-(10**13), 10**13), at=st.integers(-(10**13), 10**13))
def test_an_instant_lies_between_two_neighbouring_slots(every_ms: int, anchor: int, at: int) -> None:
    times = IntervalTimes(every_ms / 1000, anchor)
    before, after = times.last_at(at), times.next_after(at)
    assert before <= at < after == before + every_ms
    assert (after - anchor) % every_ms == 0


def test_an_interval_from_what_a_user_writes() -> None:
    anchor = datetime(2026, 11, 27, 7, 30, 0, 123_999, timezone(timedelta(hours=1)))
    assert interval_times(timedelta(hours=1), anchor, now_ms=NOW) == IntervalTimes(3600, ms("2026-11-27 06:30") + 123)
    assert interval_times(1.5, now_ms=NOW) == IntervalTimes(1.5, 0)
    at_now = datetime.fromtimestamp(NOW // 1000, timezone.utc)
    assert interval_times(60, at_now, now_ms=NOW) == IntervalTimes(60.0, NOW)


@pytest.mark.parametrize(
    "every", [0, -5, 0.999, timedelta(0), timedelta(days=36_526), float("nan"), float("inf"), True, "60", None]
)
def test_an_interval_is_a_second_to_a_hundred_years(every: float) -> None:
    with pytest.raises(IllegalArgumentError, match=r"every must be 1 to 3155760000 seconds \(a hundred years\), not "):
        interval_times(every, datetime(2050, 1, 1, tzinfo=timezone.utc), now_ms=NOW)
    assert interval_times(timedelta(days=36_525), now_ms=NOW).every_s == 3_155_760_000


@pytest.mark.parametrize("anchor", [datetime(2026, 1, 1), 5, "2026-01-01"])
def test_an_anchor_has_a_time_zone(anchor: datetime) -> None:
    with pytest.raises(IllegalArgumentError, match="anchor must be a datetime with a time zone, not "):
        interval_times(60, anchor, now_ms=NOW)


def test_an_anchor_in_the_future_is_refused() -> None:
    anchor = datetime.fromtimestamp(NOW // 1000 + 1, timezone.utc)
    with pytest.raises(IllegalArgumentError, match=r"anchor 2026-11-27T12:00:01\+00:00 is after its first slot: "):
        interval_times(60, anchor, now_ms=NOW)


# -- both --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("times", "spec"),
    [
        (CronTimes(" 0  3 * * *"), {"cron": "0 3 * * *", "tz": "UTC"}),
        (CronTimes("@daily", PARIS), {"cron": "@daily", "tz": "Europe/Paris"}),
        (IntervalTimes(60.0, 5), {"every_s": 60, "anchor_ms": 5}),
        (IntervalTimes(1.5), {"every_s": 1.5, "anchor_ms": 0}),
        (IntervalTimes(10 / 3), {"every_s": 3.333, "anchor_ms": 0}),
    ],
)
def test_times_come_back_from_their_spec(times: Times, spec: dict[str, object]) -> None:
    assert times.spec() == spec
    for restored in (times_of(json.loads(json.dumps(times.spec()))), pickle.loads(pickle.dumps(times))):
        assert restored == times
        assert hash(restored) == hash(times)
        assert restored.spec() == spec
        assert restored.next_after(NOW) == times.next_after(NOW)
    assert times != IntervalTimes(60.0, 6) and times != CronTimes("0 3 * * *", PARIS)


@pytest.mark.parametrize(
    "spec",
    [
        None, 5, "0 3 * * *", [], {}, {"cron": "0 3 * * *"}, {"tz": "UTC"}, {"cron": "0 3 * * *", "tz": "Mars"},
        {"cron": "0 25 * * *", "tz": "UTC"}, {"cron": 5, "tz": "UTC"}, {"cron": "0 3 * * *", "tz": None},
        {"cron": "0 3 * * *", "tz": "UTC", "until": 5}, {"every_s": 60}, {"every_s": 0, "anchor_ms": 0},
        {"every_s": "60", "anchor_ms": 0}, {"every_s": 60, "anchor_ms": 0.5}, {"every_s": 60, "anchor_ms": True},
        {1: 2}, {"cron": "0 3 * * *", "tz": ["UTC"]}, {"every_s": 60, "anchor_ms": None},
    ],
)  # fmt: skip
def test_an_unreadable_spec_is_refused(spec: object) -> None:
    with pytest.raises(IllegalArgumentError):
        times_of(spec)

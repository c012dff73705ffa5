"""Tests of ``kafka.tasks.schedule.cron``: which times an expression matches, and why one is refused."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from kafka.errors import IllegalArgumentError
from kafka.tasks.schedule.cron import MACROS, CronExpression

EPOCH = datetime(1970, 1, 1)


def wall(text: str) -> int:
    """``2026-11-27 12:00``, perhaps with seconds, as wall seconds."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(seconds=1)


def walk(expression: str, start: str, count: int) -> list[str]:
    """The matches after ``start``, without seconds when those are 0."""
    cron, at, found = CronExpression(expression), wall(start), []
    for _ in range(count):
        following = cron.next_after(at)
        assert following is not None
        at = following
        found.append(str(EPOCH + timedelta(seconds=at)).removesuffix(":00"))
    return found


# Calendars: cal(1). 2026-01-01 is a Thursday, 2026-11-27 a Friday; 2028 is a leap year, 2100 is not.
ROWS: list[tuple[str, str, list[str]]] = [
    # crontab(5): fields, lists, ranges, steps
    ("* * * * *", "2026-11-27 12:00", ["2026-11-27 12:01", "2026-11-27 12:02"]),
    ("*/15 * * * *", "2026-11-27 23:31", ["2026-11-27 23:45", "2026-11-28 00:00", "2026-11-28 00:15"]),
    ("1-30/10 3 * * *", "2026-11-27 03:01", ["2026-11-27 03:11", "2026-11-27 03:21", "2026-11-28 03:01"]),
    ("23 0-23/2 * * *", "2026-11-27 00:30", ["2026-11-27 02:23", "2026-11-27 04:23"]),  # its example
    ("5,35 8 * * *", "2026-11-27 08:05", ["2026-11-27 08:35", "2026-11-28 08:05"]),
    ("5 4 * * sun", "2026-11-27 12:00", ["2026-11-29 04:05", "2026-12-06 04:05"]),  # its example
    ("0 22 * * 1-5", "2026-11-27 22:00", ["2026-11-30 22:00", "2026-12-01 22:00"]),  # its example
    ("0 0 1 */3 *", "2026-11-27 12:00", ["2027-01-01 00:00", "2027-04-01 00:00"]),
    ("0 0 31 * *", "2026-11-27 12:00", ["2026-12-31 00:00", "2027-01-31 00:00", "2027-03-31 00:00"]),
    ("0 0 29 2 *", "2026-11-27 12:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
    ("0 0 29 2 *", "2096-02-29 00:00", ["2104-02-29 00:00"]),
    # crontab(5): either day field is enough when both restrict: "30 4 1,15 * 5"
    ("30 4 1,15 * 5", "2026-11-27 12:00", ["2026-12-01 04:30", "2026-12-04 04:30", "2026-12-11 04:30",
                                           "2026-12-15 04:30"]),
    # ... and both are needed when one begins with *: odd days that are Mondays
    ("0 0 */2 * 1", "2026-11-27 12:00", ["2026-12-07 00:00", "2026-12-21 00:00"]),
    ("0 0 13 * */7", "2026-11-27 12:00", ["2026-12-13 00:00", "2027-06-13 00:00"]),
    # Sunday is 0 and 7
    ("0 0 * * 0", "2026-11-27 12:00", ["2026-11-29 00:00"]),
    ("0 0 * * 7", "2026-11-27 12:00", ["2026-11-29 00:00"]),
    ("0 0 * * 5-7", "2026-11-27 12:00", ["2026-11-28 00:00", "2026-11-29 00:00", "2026-12-04 00:00"]),
    ("0 0 * * Fri-Sun", "2026-11-27 12:00", ["2026-11-28 00:00", "2026-11-29 00:00", "2026-12-04 00:00"]),
    ("0 0 * * sun-tue", "2026-11-27 12:00", ["2026-11-29 00:00", "2026-11-30 00:00", "2026-12-01 00:00",
                                             "2026-12-06 00:00"]),
    ("0 0 1 jan-JUN/5,Oct *", "2026-11-27 12:00", ["2027-01-01 00:00", "2027-06-01 00:00", "2027-10-01 00:00"]),
    # Quartz (CronTrigger tutorial): seconds first, N/step, ?, L, #, 5L with crontab's numbers
    ("*/20 59 23 31 12 *", "2026-12-31 23:59:19", ["2026-12-31 23:59:20", "2026-12-31 23:59:40", "2027-12-31 23:59"]),
    ("30 0 12 * * ?", "2026-11-27 12:00:30", ["2026-11-28 12:00:30"]),
    ("5/15 9 * * *", "2026-11-27 12:00", ["2026-11-28 09:05", "2026-11-28 09:20", "2026-11-28 09:35",
                                          "2026-11-28 09:50", "2026-11-29 09:05"]),
    ("0 0 ? * MON", "2026-11-27 12:00", ["2026-11-30 00:00", "2026-12-07 00:00"]),
    ("0 0 15 * ?", "2026-11-27 12:00", ["2026-12-15 00:00"]),
    ("0 0 L * *", "2027-12-27 12:00", ["2027-12-31 00:00", "2028-01-31 00:00", "2028-02-29 00:00"]),
    ("0 0 1,L 2 *", "2026-11-27 12:00", ["2027-02-01 00:00", "2027-02-28 00:00"]),
    ("0 0 * * MON#2", "2026-11-27 12:00", ["2026-12-14 00:00", "2027-01-11 00:00"]),
    ("0 0 * * 4#5", "2026-11-27 12:00", ["2026-12-31 00:00", "2027-04-29 00:00"]),
    ("0 0 * 2 mon#5", "2026-11-27 12:00", ["2044-02-29 00:00"]),
    ("0 0 * * 5L", "2026-11-26 12:00", ["2026-11-27 00:00", "2026-12-25 00:00", "2027-01-29 00:00"]),
    ("0 0 * * 0L,7#1", "2026-11-27 12:00", ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-27 00:00"]),
    # crontab(5), extensions
    ("@yearly", "2026-11-27 12:00", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ("@Annually", "2026-11-27 12:00", ["2027-01-01 00:00"]),
    ("@monthly", "2026-11-27 12:00", ["2026-12-01 00:00"]),
    ("@weekly", "2026-11-27 12:00", ["2026-11-29 00:00"]),
    ("@daily", "2026-11-27 12:00", ["2026-11-28 00:00"]),
    ("@midnight", "2026-11-27 12:00", ["2026-11-28 00:00"]),
    ("@hourly", "2026-11-27 12:00", ["2026-11-27 13:00"]),
    ("  0   3 *\t* * ", "2026-11-27 12:00", ["2026-11-28 03:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "start", "expected"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_an_expression_matches_what_its_source_says(text: str, start: str, expected: list[str]) -> None:
    assert walk(text, start, len(expected)) == expected


@pytest.mark.parametrize(("text", "start", "expected"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_the_walk_back_finds_the_same(text: str, start: str, expected: list[str]) -> None:
    cron, ends = CronExpression(text), [wall(each) for each in expected]
    assert [cron.last_at(end) for end in ends] == ends
    assert [cron.last_at(end - 1) for end in ends[1:]] == ends[:-1]
    assert (cron.last_at(ends[0] - 1) or 0) <= wall(start)


MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def test_every_name_stands_for_its_number() -> None:
    for number, name in enumerate(MONTHS, 1):
        assert walk(f"0 0 2 {name} *", "2026-01-01 00:00", 1) == [f"2026-{number:02}-02 00:00"]
    for day, name in enumerate(WEEKDAYS, 1):  # 2026-02-01 is a Sunday
        assert walk(f"0 0 * 2 {name}", "2026-01-01 00:00", 1) == [f"2026-02-{day:02} 00:00"]


CHARACTERS = "allowed: 0-59, *, lists (1,2), ranges (1-5), steps (*/2)"
WRONG = [
    ("60 * * * *", f"minute '60' is not in 0-59; {CHARACTERS}"),
    ("61 0 0 1 1 *", f"second '61' is not in 0-59; {CHARACTERS}"),
    ("* 24 * * *", "hour '24' is not in 0-23; allowed: 0-23, "),
    ("* * 0 * *", "day-of-month '0' is not in 1-31; allowed: 1-31, "),
    ("* * 1-32 * *", "day-of-month '1-32' is not in 1-31; allowed: 1-31, "),
    ("* * * 13 *", "month '13' is not in 1-12; allowed: 1-12 or JAN-DEC, "),
    ("* * * * 8", "day-of-week '8' is not in 0-7; allowed: 0-7 or SUN-SAT, "),
    ("* * * FOO *", "month 'FOO' has an unknown name; allowed: 1-12 or JAN-DEC"),
    ("* * * * JAN", "day-of-week 'JAN' has an unknown name; allowed: 0-7 or SUN-SAT"),
    ("MON * * * *", "minute 'MON' has an unknown name"),
    ("1, * * * *", "minute '' cannot be read"),
    ("a * * * *", "minute 'A' cannot be read"),
    ("-1 * * * *", "minute '-1' cannot be read"),
    ("*-5 * * * *", "minute '*-5' cannot be read"),
    ("1--5 * * * *", "minute '1--5' cannot be read"),
    ("*/ * * * *", "minute '*/' cannot be read"),
    ("*/0 * * * *", "minute '*/0' has a step that is not 1-59"),
    ("*/60 * * * *", "minute '*/60' has a step that is not 1-59"),
    ("0 */24 * * *", "hour '*/24' has a step that is not 1-23"),
    ("0 22-2 * * *", "hour '22-2' is a range that ends before it begins"),
    ("* * * * SAT-MON", "day-of-week 'SAT-MON' is a range that ends before it begins"),
    ("? * * * *", "minute '?' cannot be read"),
    ("* * ?/2 * *", "day-of-month '?/2' cannot be read"),
    ("* * 15W * *", "day-of-month '15W' cannot be read"),
    ("* L * * *", "hour 'L' cannot be read"),
    ("* * * * MON#6", "day-of-week 'MON#6' cannot be read"),
    ("* * * * MON#0", "day-of-week 'MON#0' cannot be read"),
    ("* * * * L", "day-of-week 'L' cannot be read"),
    ("\u0661 * * * *", "minute '\u0661' cannot be read"),  # a digit, but not one of ASCII
    ("9" * 5000 + " * * * *", "minute '9999999999999999999999999999999999999999' cannot be read"),
    ("* * * *", "has 4 fields; five are needed (minute hour day-of-month month day-of-week), or six with seconds"),
    ("* * * * * * *", "has 7 fields; five are needed"),
    ("", "has 0 fields; five are needed"),
    ("@reboot", "'@reboot' is unknown; known are @yearly, @annually, @monthly, "),
    ("0 0 30 2 *", "never fires: no month 2 has a day-of-month 30"),
    ("0 0 31 4,jun,9,11 ?", "never fires: no month 4,JUN,9,11 has a day-of-month 31"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[row[0][:20] for row in WRONG])
def test_a_wrong_expression_is_refused_in_one_line_that_names_the_part(text: str, message: str) -> None:
    with pytest.raises(IllegalArgumentError) as caught:
        CronExpression(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("value", [None, 5, b"* * * * *", ["*"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(IllegalArgumentError, match="a cron expression is a text"):
        CronExpression(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["0 0 29 2 *", "0 0 30 1,2 *", "0 0 30 2 MON", "0 0 31 12 *", "0 0 L 2 *", "0 0 * 2 SUN#5"]
)
def test_an_expression_that_fires_seldom_is_accepted(text: str) -> None:
    assert CronExpression(text).next_after(0) is not None


HOURS = [
    ("* * * * *", True), ("0 */2 * * *", True), ("0 0/2 * * *", True), ("0 0-23 * * *", True), ("@hourly", True),
    ("0 0-23/6 * * *", True), ("0 3,* * * *", True), ("* 3 * * *", False), ("0 0,12 * * *", False), ("@daily", False),
    ("0 1/2 * * *", False), ("0 0-22 * * *", False), ("0 9-17/2 * * *", False), ("* * 3 * * *", False),
]  # fmt: skip


@pytest.mark.parametrize(("text", "every_hour"), HOURS)
def test_hours_are_named_unless_the_field_runs_over_all(text: str, every_hour: bool) -> None:
    assert CronExpression(text).every_hour is every_hour


def test_equal_texts_are_equal_expressions() -> None:
    assert CronExpression("0 3 * * *") == CronExpression(" 0  3 * * * ") != CronExpression("0 4 * * *")
    assert len({CronExpression("0 3 * * *"), CronExpression("0 3 * * *")}) == 1
    with pytest.raises(AttributeError):
        CronExpression("0 3 * * *").text = "0 4 * * *"  # type: ignore[misc]


def test_the_walk_ends_with_the_calendar() -> None:
    cron = CronExpression("0 0 1 1 *")
    assert cron.next_after(wall("9998-06-01 00:00")) == wall("9999-01-01 00:00")
    assert cron.next_after(wall("9999-01-01 00:00")) is None
    assert cron.last_at(wall("0001-01-01 00:00")) == wall("0001-01-01 00:00")
    assert cron.last_at(wall("0001-01-01 00:00") - 1) is None
    assert CronExpression("* * * * *").next_after(wall("9999-12-31 23:59")) is None


def test_a_macro_is_what_crontab_says_it_is() -> None:
    assert all(CronExpression(text) for text in (*MACROS, *MACROS.values()))

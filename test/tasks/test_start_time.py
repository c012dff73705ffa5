"""Tests of ``kafka.tasks.start_time``."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.clock import ManualClock
from kafka.tasks.format.job_id import BrokerTimeEstimate
from kafka.tasks.start_time import StartTime, as_datetime, instant_ms, start_time

CENTURY_S = 100 * 365.25 * 86_400


class NoOffset(tzinfo):
    """A time zone that does not know its offset: Python takes a datetime with it for a naive one."""

    def utcoffset(self, when: datetime | None) -> timedelta | None:
        return None

    def dst(self, when: datetime | None) -> timedelta | None:
        return None

    def tzname(self, when: datetime | None) -> str | None:
        return None


@pytest.fixture
def clock() -> BrokerTimeEstimate:
    """Its time is known to lie between 1,000,000,990 and 1,000,002,010."""
    estimate = BrokerTimeEstimate(ManualClock().time)
    local_ms = estimate.local_ms()
    ahead = 1_000_001_500 - local_ms
    estimate.observe(local_ms - 509, local_ms + 509, local_ms + ahead)
    assert (estimate.earliest_ms(), estimate.latest_ms()) == (1_000_000_990, 1_000_002_010)
    return estimate


@pytest.mark.parametrize(("delay_s", "ms"), [(30.0, 30_000), (1.1, 1100), (0.0001, 1), (1.0001, 1001), (1e9, 10**12)])
def test_a_delay_counts_from_the_latest_time_that_it_may_be(
    clock: BrokerTimeEstimate, delay_s: float, ms: int
) -> None:
    assert StartTime(delay_s).due_ms(clock) == 1_000_002_010 + ms


def test_a_time_is_taken_as_it_is_and_is_over_only_when_that_is_certain(clock: BrokerTimeEstimate) -> None:
    assert StartTime(None, 1_000_060_000).due_ms(clock) == 1_000_060_000
    assert StartTime(None, 1_000_000_991).due_ms(clock) == 1_000_000_991
    for over_ms in (1_000_000_990, 0, -62_135_596_800_000):
        assert StartTime(None, over_ms).due_ms(clock) is None


def test_a_job_that_would_expire_before_it_starts_is_refused(clock: BrokerTimeEstimate) -> None:
    now_ms = clock.now_ms()
    for start in (StartTime(10.0), StartTime(None, now_ms + 10_000)):
        assert start.due_ms(clock, 12.0) is not None
        for expires_s in (10.0, 9.0, 0.001):
            with pytest.raises(IllegalArgumentError, match="would expire before it starts: it expires") as caught:
                start.due_ms(clock, expires_s)
            assert "\n" not in str(caught.value)
    assert StartTime(None, now_ms - 10_000).due_ms(clock, 0.001) is None


def test_more_than_a_century_ahead_is_a_mistake(clock: BrokerTimeEstimate) -> None:
    far = clock.now_ms() + int(CENTURY_S * 1000)
    assert StartTime(None, far).due_ms(clock) == far
    with pytest.raises(IllegalArgumentError, match=r"^.*2070-01-1.* is more than a century ahead"):
        StartTime(None, far + 1).due_ms(clock)


PARIS_SUMMER = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("when", "ms"),
    [
        (datetime(1970, 1, 1, tzinfo=timezone.utc), 0),
        (datetime(2026, 7, 1, 14, 0, tzinfo=PARIS_SUMMER), 1_782_907_200_000),  # date -d 2026-07-01T12:00Z +%s
        (datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=timezone.utc), 1_001),
        (datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=timezone.utc), 1_001),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=timezone.utc), 0),
        (datetime(1, 1, 1, tzinfo=timezone.utc), -62_135_596_800_000),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=23))), -62_135_596_800_000 - 23 * 3_600_000),
    ],
)
def test_an_aware_datetime_is_ms_since_the_epoch_and_never_earlier(when: datetime, ms: int) -> None:
    assert instant_ms("eta", when) == ms


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 7, 1), r"eta needs a timezone, for example datetime.now\(timezone.utc\)"),
        (datetime(2026, 7, 1, tzinfo=NoOffset()), "eta needs a timezone"),
        (30, "eta must be a datetime with a timezone.*not 30"),
        (datetime(2026, 7, 1).date(), "eta must be a datetime"),
        ("2026-07-01T12:00:00Z", "eta must be a datetime"),
        (timedelta(seconds=5), "eta must be a datetime"),
        (True, "eta must be a datetime"),
    ],
)
def test_what_is_no_instant_is_one_clear_line(value: Any, text: str) -> None:
    with pytest.raises(IllegalArgumentError, match=text) as caught:
        instant_ms("eta", value)
    assert "\n" not in str(caught.value)


def test_a_start_time_is_of_one_of_both() -> None:
    assert start_time(None, None) is None
    assert start_time(3.0, None) == StartTime(3.0)
    assert start_time(None, 0) == StartTime(None, 0)


def test_ms_become_a_datetime_in_utc() -> None:
    assert as_datetime(1_782_907_200_123) == datetime(2026, 7, 1, 12, 0, 0, 123_000, timezone.utc)
    assert as_datetime(10**18).year == 9999

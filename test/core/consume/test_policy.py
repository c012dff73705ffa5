from __future__ import annotations

import pytest

from kafka.core.consume.positions import OffsetResetStrategy
from kafka.validation import offset_reset
from test.core.consume.rig import A, Rig

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def timestamp_of(setting: str) -> int | None:
    return OffsetResetStrategy(offset_reset(setting), lambda: NOW_MS).timestamp()


@pytest.mark.parametrize(
    ("setting", "timestamp"),
    [
        ("latest", -1),  # the protocol guide's ListOffsets: -1 is the end, -2 the start
        ("largest", -1),
        ("earliest", -2),
        ("smallest", -2),
        ("none", None),
        ("by_duration:PT1H", NOW_MS - HOUR_MS),
        ("by_duration:P1DT2H3M4.005S", NOW_MS - 26 * HOUR_MS - 3 * 60_000 - 4_005),
        ("by_duration:pt90m", NOW_MS - 90 * 60_000),
        ("by_duration:P1DT-1H", NOW_MS - 23 * HOUR_MS),
        ("by_duration:-PT-5S", NOW_MS - 5_000),
        ("by_duration:PT0S", NOW_MS),
        ("by_duration:P99999D", 0),
    ],
)
def test_each_policy_has_a_timestamp_to_look_for(setting: str, timestamp: int | None) -> None:
    assert timestamp_of(setting) == timestamp


@pytest.mark.parametrize(
    "setting",
    ["", "newest", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:PT-1H",
     "by_duration:P1Y", "by_duration:P1W", "by_duration:1h", "by_duration:PT1H ", "by_duration:PT.5S", "LATEST", 5],
)  # fmt: skip
def test_what_is_no_policy_is_refused(setting: object) -> None:
    with pytest.raises(ValueError, match="text|by_duration"):
        offset_reset(setting)


def test_a_duration_counts_from_when_it_is_needed() -> None:
    now_ms = NOW_MS
    rig = Rig(A, reset_policy=offset_reset("by_duration:PT1H"), wall_ms=lambda: now_ms)
    assert rig.find().timestamps == {A: NOW_MS - HOUR_MS}
    now_ms += 60_000
    rig.seek_all(5)
    rig.answer(rig.fetch(), p0=1)
    assert rig.find().timestamps == {A: NOW_MS - HOUR_MS + 60_000}

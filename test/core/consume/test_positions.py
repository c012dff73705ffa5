"""Fetch positions, and the offset reset policy."""

from __future__ import annotations

from math import inf

import pytest

from kafka.core.consume.partition import OffsetResetStrategy, PartitionPosition, PositionChanges
from kafka.errors import MessageSizeTooLargeError
from kafka.validation import offset_reset
from test.core.consume.rig import A, Rig
from test.core.consume.test_partition import batch


def test_of_a_new_position_nothing_is_known() -> None:
    changes = PositionChanges()
    position = PartitionPosition(A, changes)
    assert (position.position, position.fetch_offset, position.reset_to, position.leader) == (None,) * 4
    assert (position.leader_epoch, position.fetch_epoch, position.distrusted_epoch) == (-1, -1, -1)
    assert (position.last_stable_offset, position.log_start_offset, position.highwater) == (-1, -1, None)
    assert [position.is_awaiting, position.is_resetting, position.is_validating, position.is_paused] == [False] * 4
    assert (position.failures, position.retry_at, position.recheck_at) == (0, 0.0, inf)
    assert (position.generation, position.buffered_bytes, changes.buffered_bytes) == (0, 0, 0)
    assert not position.is_ready


@pytest.mark.parametrize("epoch", [0, 4])
def test_the_epoch_of_a_position_is_that_of_the_last_batch_and_0_is_one(epoch: int) -> None:
    rig = Rig(A)
    rig.seek_all()
    rig.answer(rig.fetch(), p0=batch(0, b"a", leader_epoch=epoch))
    position = rig.fetcher.positions[A]
    assert (position.leader_epoch, position.fetch_epoch) == (-1, epoch)
    rig.read()
    assert position.leader_epoch == epoch


def test_what_has_no_whole_batch_is_buffered_for_the_reader_to_meet_its_fault() -> None:
    """A broker before 0.10.1 cuts the first batch."""
    rig = Rig(A)
    rig.seek_all()
    assert rig.answer(rig.fetch(), p0=batch(0, b"a")[:-1])
    position = rig.fetcher.positions[A]
    assert (position.fetch_offset, position.fetch_epoch) == (0, -1)
    with pytest.raises(MessageSizeTooLargeError):
        position.buffered[0].read(10, rig.fetcher.options)


# -- the offset reset policy -------------------------------------------------------------------------------------------


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

"""Tests of ``kafka.log_limit``."""

from __future__ import annotations

import logging

import pytest

from kafka.log_limit import MOST_KINDS, LimitedLog
from kafka.net.clock import ManualClock


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.clock = ManualClock()
        self.limited = LimitedLog(logging.getLogger("kafka.limited"), most=2, every_s=10.0, clock=self.clock.monotonic)
        self._caplog = caplog

    def lines(self) -> list[str]:
        """What was written since the last look."""
        found = [record.getMessage() for record in self._caplog.records if record.name == "kafka.limited"]
        self._caplog.clear()
        return found


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level(logging.INFO, "kafka.limited")
    return Bench(caplog)


def test_lines_of_a_kind_beyond_the_limit_are_counted_and_the_next_one_has_the_count(bench: Bench) -> None:
    for number in range(1000):
        bench.limited.warning("a", "record %d", number)
    assert bench.lines() == ["record 0", "record 1"]
    bench.clock.advance(10.0)
    for number in range(3):
        bench.limited.warning("a", "record %d", number)
    assert bench.lines() == ["record 0 (998 more lines like this one were left out before it)", "record 1"]


def test_a_flush_reports_what_was_left_out_once(bench: Bench) -> None:
    for number in range(5):
        bench.limited.warning("a", "record %d", number)
    bench.lines()
    bench.limited.flush()
    assert bench.lines() == ["suppressed 3 similar lines, the last was: record 4"]
    bench.limited.flush()
    assert bench.lines() == []
    bench.clock.advance(10.0)
    bench.limited.warning("a", "record %d", 7)
    assert bench.lines() == ["record 7"]


def test_each_kind_has_a_limit_of_its_own(bench: Bench) -> None:
    for kind in ("a", "b"):
        for _ in range(3):
            bench.limited.warning(kind, "of kind %s", kind)
    assert bench.lines() == ["of kind a"] * 2 + ["of kind b"] * 2


def test_kinds_without_end_share_one_limit(bench: Bench) -> None:
    for kind in range(MOST_KINDS * 10):
        bench.limited.warning(kind, "of kind %d", kind)
    assert len(bench.lines()) == MOST_KINDS + 2


def test_a_level_that_nobody_reads_costs_nothing_and_uses_up_no_limit(bench: Bench) -> None:
    for _ in range(5):
        bench.limited.write(logging.DEBUG, "a", "detail")
    bench.limited.write(logging.INFO, "a", "seen")
    bench.limited.flush()
    assert bench.lines() == ["seen"]

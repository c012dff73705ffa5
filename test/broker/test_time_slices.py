"""Batches are read at once if they are small, else in slices when it is their turn, and within bounds."""

from __future__ import annotations

import pytest

from kafka.broker.time_slices import MAX_INFLATED_BYTES, SLICE_RECORDS, TimeSliceBudget, read_batch
from kafka.records import GZIP, parse_header
from kafka.records.compression import InflationLimitError, inflation_bound
from test.records import fuzz


class Batch:
    def __init__(self, slices: int) -> None:
        self.left = slices

    def read(self, limit: int) -> bool:
        assert limit == SLICE_RECORDS
        self.left -= 1
        return self.left > 0


def yields(records: int, slices: int, inflated_bytes: int = 0) -> tuple[list[bool], list[int]]:
    """What reading a batch with these yields, and how large it was allowed to become each time it was opened."""
    header = parse_header(fuzz.v2_around(GZIP, b"", records))
    assert header is not None
    bounds: list[int] = []

    def open_batch(most: int) -> Batch:
        bounds.append(most - inflation_bound(header.length, 0))
        if inflated_bytes > most:
            raise InflationLimitError("too large")
        return Batch(slices)

    return list(read_batch(header, open_batch)), bounds


def test_a_small_batch_is_read_at_once() -> None:
    assert yields(SLICE_RECORDS, 1) == ([], [1 << 20])


def test_a_batch_of_many_records_waits_for_its_turn_before_it_is_inflated() -> None:
    assert yields(SLICE_RECORDS + 1, 3) == ([False, True, True], [MAX_INFLATED_BYTES])


def test_a_batch_that_inflates_beyond_a_mebibyte_waits_for_its_turn() -> None:
    assert yields(10, 1, 2 << 20) == ([False], [1 << 20, MAX_INFLATED_BYTES])


def test_a_batch_that_takes_longer_than_its_records_say_waits_for_its_turn_and_is_begun_anew() -> None:
    assert yields(10, 3) == ([False, True, True], [1 << 20, MAX_INFLATED_BYTES])


def test_a_batch_that_inflates_above_the_bound_is_an_error() -> None:
    with pytest.raises(InflationLimitError):
        yields(10, 1, 2 * MAX_INFLATED_BYTES)


def test_bytes_and_records_add_up_to_slices() -> None:
    budget = TimeSliceBudget()
    assert [budget.spend(1 << 20) for _ in range(4)] == [False, True, False, True]
    assert [budget.spend(0, 8_192) for _ in range(4)] == [False, True, False, True]

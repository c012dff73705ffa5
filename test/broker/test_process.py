"""What the limit of open files leaves for whom: every part has its share, and too little is an error with a number."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.broker.log.files import MAX_OPEN_FILES
from kafka.broker.log.flushing import SLICE_FILES
from kafka.broker.process import (
    LEAST,
    MOMENTARY,
    OWN,
    DescriptorLimitError,
    DescriptorPlan,
    open_descriptors,
    plan_descriptors,
)


@given(limit=st.integers(0, 1 << 21), taken=st.integers(0, 2000))
def test_all_parts_together_fit_the_limit(limit: int, taken: int) -> None:
    try:
        plan = plan_descriptors(limit, taken)
    except DescriptorLimitError:
        assert limit < taken + OWN + MOMENTARY + 3 * LEAST
        return
    assert plan.connections is not None
    assert taken + OWN + MOMENTARY + plan.log_files + plan.sync_files + plan.connections == limit
    assert LEAST <= plan.log_files <= MAX_OPEN_FILES
    assert LEAST <= plan.sync_files <= SLICE_FILES
    assert plan.connections >= LEAST


def test_most_of_a_usual_limit_is_for_connections() -> None:
    assert plan_descriptors(20_000, 10) == DescriptorPlan(MAX_OPEN_FILES, SLICE_FILES, 20_000 - 10 - 24 - 512 - 32)


def test_without_a_limit_nothing_is_shared_out() -> None:
    assert plan_descriptors(None, 10) == DescriptorPlan(MAX_OPEN_FILES, SLICE_FILES, None)


def test_a_limit_that_is_too_low_names_the_lowest_that_will_do() -> None:
    with pytest.raises(DescriptorLimitError, match=r"is 30 and 10 are open: .* at least 46; raise it with ulimit -n"):
        plan_descriptors(30, 10)
    assert plan_descriptors(46, 10) == DescriptorPlan(LEAST, LEAST, LEAST)


def test_open_descriptors_are_counted() -> None:
    before = open_descriptors()
    reader, writer = os.pipe()
    assert open_descriptors() == before + 2
    os.close(reader)
    os.close(writer)

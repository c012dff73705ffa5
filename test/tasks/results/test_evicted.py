"""Tests of ``kafka.tasks.results.evicted``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.format.job_id import make_id
from kafka.tasks.results import evicted
from kafka.tasks.results.evicted import BITMAP_BYTES, EvictedIds
from test.support.seeds import rng

T = 1_700_000_000_000

ids = st.builds(make_id, st.integers(T, T + 9), st.just(5), st.binary(min_size=8, max_size=8))


@given(st.lists(ids, max_size=30), st.lists(ids, max_size=10), st.integers(1, 8))
def test_no_id_that_was_added_is_denied_however_often_it_is_cleared(
    added: list[str], others: list[str], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evicted, "MOST_ADDED", most)
        found = EvictedIds()
        for job_id in added:
            found.add(job_id)
        assert all(job_id in found for job_id in added)
        if not added:
            assert not any(job_id in found for job_id in others)
        later = make_id(T + 10, 5, b"\1" * 5 + bytes(3))
        assert (later in found) is any(job_id.endswith("000000") for job_id in added[-(len(added) % most or most) :])


def test_after_200_000_evictions_few_ids_are_taken_for_evicted_ones() -> None:
    assert (BITMAP_BYTES, evicted.MOST_ADDED) == (2 * 1024 * 1024, BITMAP_BYTES)
    random = rng("evicted")
    found = EvictedIds()
    assert found.byte_count == 0
    for _ in range(200_000):
        found.add(make_id(T, 5, random.randbytes(8)))
    assert found.byte_count == BITMAP_BYTES
    taken = sum(make_id(T, 5, random.randbytes(8)) in found for _ in range(20_000))
    assert 0 < taken < 20_000 / 60

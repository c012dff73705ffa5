"""Tests of ``kafka.tasks.results.view``."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, supersedes
from kafka.tasks.results.evicted import BITMAP_BYTES
from kafka.tasks.results.view import ENTRY_BYTES, MOST_VIEW_BYTES, Certainty, KnownState, ResultView, most_view_bytes
from kafka.tasks.states import READY, JobState
from test.strategies import job_states

T = 1_700_000_000_000
S = JobState
IDS = [make_id(T, 5, bytes([n] * 8)) for n in range(6)]
ID = IDS[0]
OTHER = make_id(T, 6, b"\1" * 8)


def is_own(job_id: str) -> bool:
    return job_id[12:16] == "0005"


def view(capacity: int = 100_000, most_bytes: int = 1 << 20) -> ResultView:
    return ResultView(is_own, capacity, most_bytes)


def held(view: ResultView, job_ids: Iterable[str] = IDS) -> list[bool]:
    return [view.get(job_id).record is not None for job_id in job_ids]


def test_the_first_terminal_record_wins_and_later_ones_are_counted() -> None:
    made = view()
    assert not made.apply(StateRecord(ID, S.STARTED))
    assert made.apply(StateRecord(ID, S.SUCCESS, value=b"1", offset=1))
    assert not made.apply(StateRecord(ID, S.FAILURE, attempt=2, offset=2))
    assert not made.apply(StateRecord(ID, S.STARTED, attempt=3, offset=3))
    assert made.get(ID) == (StateRecord(ID, S.SUCCESS, value=b"1", offset=1), Certainty.COMPLETE)
    assert made.ignored == 1


def test_a_view_says_which_records_made_a_job_final_and_counts_what_came_second() -> None:
    # record, from the late topic -> final by it, terminal records ignored so far
    steps = [
        ((S.STARTED, 2), False, False, 0),
        ((S.RETRY, 1), False, False, 0),
        ((S.RETRY, 2), False, False, 0),
        ((S.FAILURE, 1), True, True, 0),
        ((S.REVOKED, 1), True, False, 1),
        ((S.SUCCESS, 1), False, True, 2),
        ((S.FAILURE, 1), False, False, 3),
        ((S.FAILURE, 1), True, False, 4),
    ]
    made = view()
    found = []
    for offset, (fields, late, _, _) in enumerate(steps):
        is_final = made.apply(StateRecord(ID, *fields, in_late=late, offset=offset))
        found.append((is_final, made.ignored))
    assert found == [(is_final, ignored) for _, _, is_final, ignored in steps]
    assert view().apply(StateRecord(ID, S.REVOKED)), "the first that is seen of it"


def test_a_client_s_own_jobs_are_known_without_a_record_and_others_are_not() -> None:
    made = view()
    assert made.get(ID) == (None, Certainty.COMPLETE)
    assert made.get(OTHER) == (None, Certainty.PARTIAL)
    assert [made.wants(ID), made.wants(OTHER)] == [True, False]
    made.apply(StateRecord(OTHER, S.SUCCESS))
    assert made.get(OTHER).certainty is Certainty.PARTIAL, "there may be an earlier one"
    assert made.wants(OTHER)


def test_a_later_record_of_an_evicted_job_is_not_certain() -> None:
    made = view(capacity=2)
    for offset, job_id in enumerate(IDS[:3]):
        made.apply(StateRecord(job_id, S.SUCCESS, offset=offset))
    assert (held(made)[:3], made.evicted) == ([False, True, True], 1)
    assert made.get(ID) == (None, Certainty.PARTIAL)
    made.apply(StateRecord(ID, S.FAILURE, 2, offset=3))
    assert made.get(ID) == (StateRecord(ID, S.FAILURE, 2, offset=3), Certainty.PARTIAL)
    made.settle(StateRecord(ID, S.SUCCESS))
    assert made.get(ID) == (StateRecord(ID, S.SUCCESS), Certainty.SETTLED)
    assert not made.apply(StateRecord(ID, S.FAILURE, 3, offset=4))
    assert made.get(IDS[3]) == (None, Certainty.COMPLETE), "no record of it was evicted"


def test_a_zombie_after_200_000_evictions_is_never_taken_for_certain() -> None:
    made = view(capacity=1000)
    ids = [make_id(T + n // 20, 5, os.urandom(8)) for n in range(201_000)]
    for offset, job_id in enumerate(ids):
        made.apply(StateRecord(job_id, S.SUCCESS, offset=offset))
    assert (len(made), made.evicted) == (1000, 200_000)
    for number in range(0, 200_000, 1000):
        zombie = StateRecord(ids[number], S.FAILURE, 2, offset=len(ids) + number)
        made.apply(zombie)
        assert made.get(ids[number]) == (zombie, Certainty.PARTIAL)


def test_what_was_looked_up_pushes_out_nothing() -> None:
    for made in (view(capacity=2), view(most_bytes=2 * ENTRY_BYTES)):
        for job_id in IDS[:3]:
            made.apply(StateRecord(job_id, S.SUCCESS))
        made.settle(StateRecord(ID, S.SUCCESS))
        assert (held(made)[:3], made.evicted) == ([False, True, True], 1)
        assert made.get(ID) == (None, Certainty.PARTIAL)
        made.settle(StateRecord(IDS[1], S.FAILURE))
        assert made.get(IDS[1]) == (StateRecord(IDS[1], S.FAILURE), Certainty.SETTLED)
    made = view(capacity=3)
    made.settle(StateRecord(OTHER, S.SUCCESS))
    assert made.get(OTHER).certainty is Certainty.SETTLED, "there is room"


def test_what_was_looked_up_is_complete_unless_something_was_evicted_meanwhile() -> None:
    made = view(capacity=3)
    started = StateRecord(OTHER, S.STARTED)
    made.complete(OTHER, started, made.evicted)
    assert made.get(OTHER) == (started, Certainty.COMPLETE)
    retry = StateRecord(OTHER, S.RETRY, offset=5)
    made.apply(retry)
    made.complete(OTHER, started, made.evicted)
    assert made.get(OTHER) == (retry, Certainty.COMPLETE), "newer than what was looked up"
    before = made.evicted
    for job_id in IDS[:3]:
        made.apply(StateRecord(job_id, S.SUCCESS))
    made.complete(OTHER, None, before)
    assert made.get(OTHER) == (None, Certainty.PARTIAL)
    made.complete(OTHER, None, made.evicted)
    assert made.get(OTHER) == (None, Certainty.COMPLETE), "it has no record, and the next is its first"
    assert made.wants(OTHER)
    made.apply(StateRecord(OTHER, S.SUCCESS))
    assert made.get(OTHER).certainty is Certainty.COMPLETE


def test_a_terminal_record_of_the_late_topic_is_settled_once_results_is_read_far_enough() -> None:
    success = StateRecord(ID, S.SUCCESS, time_ms=T + 70_000, in_late=True)
    assert not KnownState(success, Certainty.COMPLETE).is_settled(T + 65_000)
    assert KnownState(success, Certainty.COMPLETE).is_settled(T + 65_001)
    assert KnownState(success, Certainty.SETTLED).is_settled(0)
    assert not KnownState(success, Certainty.PARTIAL).is_settled(T + 99_000)
    assert KnownState(success._replace(in_late=False), Certainty.COMPLETE).is_settled(0)
    assert not KnownState(StateRecord(ID, S.RETRY), Certainty.COMPLETE).is_settled(T + 99_000)
    assert not KnownState(None, Certainty.COMPLETE).is_settled(T + 99_000)


def test_of_a_partition_that_is_tailed_no_more_only_settled_states_are_kept() -> None:
    made = view()
    more = [make_id(T, 6, bytes([n] * 8)) for n in range(4)]
    empty = made.byte_count
    made.apply(StateRecord(more[0], S.SUCCESS))
    made.complete(more[1], None, 0)
    made.apply(StateRecord(more[1], S.SUCCESS, value=b"x" * 100))
    made.settle(StateRecord(more[2], S.FAILURE))
    made.complete(more[3], StateRecord(more[3], S.STARTED), 0)
    made.apply(StateRecord(ID, S.STARTED))
    made.drop_partition(6, 0)
    assert held(made, [*more, ID]) == [False, True, True, False, True]
    assert made.byte_count - empty == 3 * ENTRY_BYTES + 100
    assert [made.get(more[0]).certainty, made.get(more[3]).certainty] == [Certainty.PARTIAL] * 2


def test_a_view_keeps_no_more_than_fits_and_the_latest_in_any_case() -> None:
    made = view(most_bytes=2 * ENTRY_BYTES + 1000)
    for job_id in IDS[:3]:
        made.apply(StateRecord(job_id, S.STARTED, value=b"x" * 400))
    assert held(made)[:4] == [False, True, True, False]
    assert made.apply(StateRecord(IDS[2], S.SUCCESS, value=b"x" * 601))
    assert held(made)[:4] == [False, False, True, False]
    made.apply(StateRecord(IDS[3], S.SUCCESS, value=b"x" * 5000))
    assert held(made)[:4] == [False, False, False, True]
    assert made.evicted == 3


@pytest.mark.parametrize(("count", "size"), [(21_000, 10), (22_000, 10), (22_000, 1000)])
def test_a_view_takes_no_more_memory_than_it_says_and_hardly_less(count: int, size: int) -> None:
    made = view(most_bytes=MOST_VIEW_BYTES)
    keys = [make_id(T + n, 5, os.urandom(8)).encode() for n in range(count)]
    tracemalloc.start()
    try:
        for offset, key in enumerate(keys):
            job_id = key.decode()
            made.apply(StateRecord(job_id, S.SUCCESS, 1, 1, bytes(size), T + 1 + offset, offset=1000 + offset))
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert made.evicted == 0
    assert taken < made.byte_count < taken * 1.15


def test_thousands_of_results_of_1_mb_take_64_mb_at_most() -> None:
    assert MOST_VIEW_BYTES == 67_108_864 == most_view_bytes(100) == most_view_bytes(100_000)
    made = ResultView(is_own)
    tracemalloc.start()
    try:
        for number in range(3000):
            job_id = make_id(T + number, 5, os.urandom(8))
            made.apply(StateRecord(job_id, S.SUCCESS, value=bytes(1_000_000)))
            assert made.byte_count <= MOST_VIEW_BYTES
        taken, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 60_000_000 < taken <= MOST_VIEW_BYTES
    assert peak <= MOST_VIEW_BYTES + 2_000_000, "and never more than the one that has just come"
    assert made.get(job_id).record is not None


def test_an_app_that_asks_for_more_jobs_keeps_them_all() -> None:
    assert most_view_bytes(200_000) == MOST_VIEW_BYTES + 47_800_000
    made = ResultView(is_own, 200_000)
    for number in range(200_000):
        made.apply(StateRecord(make_id(T + number, 5, number.to_bytes(8, "big")), S.SUCCESS, value=b"null"))
    assert (len(made), made.evicted) == (200_000, 0)
    assert MOST_VIEW_BYTES < made.byte_count < most_view_bytes(200_000)


def test_the_memory_of_evicted_jobs_counts() -> None:
    made = view(capacity=1)
    for job_id in IDS:
        made.apply(StateRecord(job_id, S.SUCCESS))
    assert made.byte_count == ENTRY_BYTES + BITMAP_BYTES


@given(
    st.lists(
        st.tuples(st.sampled_from(IDS), job_states(), st.integers(1, 2), st.booleans(), st.sampled_from([0, 300, 900])),
        max_size=40,
    ),
    st.integers(1, 4),
)
def test_a_view_is_the_best_record_of_each_of_the_latest_jobs(
    steps: list[tuple[str, JobState, int, bool, int]], capacity: int
) -> None:
    most_bytes = 1500 + ENTRY_BYTES
    made = ResultView(lambda _: True, capacity, most_bytes)
    model: dict[str, StateRecord] = {}
    evicted: set[str] = set()
    for offset, (job_id, state, attempt, late, size) in enumerate(steps):
        record = StateRecord(job_id, state, attempt, 1, bytes(size), T, late, offset)
        old = model.get(job_id)
        is_better = supersedes(old, record)
        assert made.apply(record) is (is_better and state in READY)
        if is_better:
            model[job_id] = record
        while len(model) > capacity or (
            sum(ENTRY_BYTES + len(each.value) for each in model.values()) > most_bytes and len(model) > 1
        ):
            oldest = next(iter(model))
            del model[oldest]
            evicted.add(oldest)
        assert {each: made.get(each).record for each in IDS} == {each: model.get(each) for each in IDS}
        assert all(made.get(each).certainty is Certainty.PARTIAL for each in evicted - model.keys())
        assert all(made.get(each).certainty is Certainty.COMPLETE for each in IDS if each not in evicted)
        assert len(made) == len(model)

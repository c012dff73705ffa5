"""Tests of ``kafka.tasks.results.scan``: what a look-up leaves behind for the next ones."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.structs import TopicPartition
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, supersedes
from kafka.tasks.results import scan
from kafka.tasks.results.scan import ResultsScan
from kafka.tasks.results.view import ENTRY_BYTES
from kafka.tasks.states import READY, JobState
from test.strategies import job_states

T: Final = 1_700_000_000_000
PLACE: Final = TopicPartition("shop.results", 5)
IDS: Final = [make_id(T + number, 5, bytes([number]) * 8) for number in range(4)]
S = JobState


def state(
    job_id: str, offset: int, job_state: JobState = S.SUCCESS, time_ms: int = T, value: bytes = b""
) -> StateRecord:
    return StateRecord(job_id, job_state, value=value, time_ms=time_ms, offset=offset)


def scan_of(*states: StateRecord | None, since_ms: int = T) -> ResultsScan:
    made = ResultsScan(PLACE, since_ms, 0)
    for offset, each in enumerate(states):
        made.take(offset, each)
    return made


def test_a_result_that_was_passed_is_at_hand_and_others_are_behind() -> None:
    done, passed, _, other = IDS
    made = scan_of(state(done, 0), None, state(passed, 2, S.RETRY), state(passed, 3))
    assert made.result_of(PLACE, done) == state(done, 0)
    assert made.result_of(PLACE, passed) is None, "its first record is not its end: a look-up decides"
    assert made.result_of(PLACE, other) is None
    assert [made.start_of(PLACE, job_id, 0, 9) for job_id in (done, passed, other)] == [0, 2, 4]


def test_the_second_end_of_a_job_is_none() -> None:
    made = scan_of(state(IDS[0], 0), state(IDS[0], 1, S.FAILURE))
    assert made.result_of(PLACE, IDS[0]) == state(IDS[0], 0)


def test_an_end_that_does_not_count_is_none() -> None:
    """It was appended a minute after the job's time: there is a copy in the late topic."""
    made = scan_of(state(IDS[0], 0, time_ms=T + 60_001))
    assert made.result_of(PLACE, IDS[0]) is None
    assert made.start_of(PLACE, IDS[0], 0, 9) == 0


def test_of_an_earlier_job_and_of_another_partition_nothing_is_known() -> None:
    made = scan_of(state(IDS[0], 0), state(IDS[1], 1), since_ms=T + 1)
    elsewhere = TopicPartition("shop.results", 4)
    assert made.result_of(PLACE, IDS[1]) is not None
    for place, job_id in ((PLACE, IDS[0]), (elsewhere, IDS[1])):
        assert made.result_of(place, job_id) is None
        assert made.start_of(place, job_id, 0, 9) is None
    assert made.start_of(elsewhere, IDS[2], 0, 9) is None


def test_a_job_whose_minute_begins_behind_the_position_gets_a_scan_of_its_own() -> None:
    made = scan_of(state(IDS[0], 0), state(IDS[1], 1))
    assert [made.start_of(PLACE, IDS[2], offset, 9) for offset in (1, 2, 3)] == [2, 2, None]
    assert [made.start_of(PLACE, IDS[1], offset, 9) for offset in (1, 2)] == [1, None]


def test_of_a_topic_that_was_deleted_and_created_again_nothing_is_known() -> None:
    """Its log ends before the end that was seen, or begins before the beginning for that time."""
    for offset, end in ((1, 2), (0, 9)):
        made = ResultsScan(PLACE, T, 1)
        made.take(1, state(IDS[0], 1))
        assert made.start_of(PLACE, IDS[1], 1, 3) == 2
        assert made.start_of(PLACE, IDS[1], offset, end) is None


def test_the_latest_results_are_kept_in_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_KEPT_BYTES", 2 * (ENTRY_BYTES + 100))
    log = [state(job_id, offset, value=bytes(100)) for offset, job_id in enumerate(IDS)]
    made = scan_of(*log)

    def kept() -> list[bool]:
        return [made.result_of(PLACE, job_id) is not None for job_id in IDS]

    assert kept() == [False, False, True, True]
    assert made.start_of(PLACE, IDS[0], 0, 9) == 0, "it was passed all the same"
    for each in log[:2]:  # and is read again
        made.take(each.offset, each)
    assert kept() == [True, True, False, False]
    made.take(1, log[1])
    assert kept() == [True, True, False, False]


def test_a_second_record_that_is_read_again_is_none() -> None:
    log = [state(IDS[0], 0, S.RETRY), state(IDS[0], 1)]
    made = scan_of(*log)
    for each in log:
        made.take(each.offset, each)
    assert made.result_of(PLACE, IDS[0]) is None


def test_a_scan_that_has_passed_many_jobs_goes_on_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_PASSED", 3)
    made = scan_of(state(IDS[0], 0), state(IDS[1], 1))
    assert made.start_of(PLACE, IDS[3], 0, 9) == 2
    made.take(2, state(IDS[2], 2))
    assert made.start_of(PLACE, IDS[3], 0, 9) is None
    assert made.start_of(PLACE, IDS[1], 0, 9) == 1
    assert made.result_of(PLACE, IDS[2]) is not None


@given(st.lists(st.tuples(st.sampled_from(IDS), job_states(), st.sampled_from([0, 70_000])), max_size=12), st.data())
def test_what_is_at_hand_is_what_the_whole_log_says(
    records: list[tuple[str, JobState, int]], data: st.DataObject
) -> None:
    log = [state(job_id, n, job_state, T + late_ms) for n, (job_id, job_state, late_ms) in enumerate(records)]
    position = data.draw(st.integers(0, len(log)))
    made = scan_of(*log[:position])
    for job_id in IDS:
        best: StateRecord | None = None
        for each in log:
            if each.id == job_id and supersedes(best, each):
                best = each
        found = made.result_of(PLACE, job_id)
        assert found is None or found == best
        assert found is None or found.state in READY
        start = made.start_of(PLACE, job_id, 0, len(log))
        assert start is not None
        assert all(each.offset >= start for each in log if each.id == job_id)



def test_a_scan_that_has_passed_many_jobs_remembers_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look-up reads two minutes: of a job that has not ended, all jobs of these."""
    monkeypatch.setattr(scan, "MOST_PASSED", 2)
    made = scan_of(*(state(job_id, offset) for offset, job_id in enumerate(IDS)), None)
    assert len(made._first_offsets) == 2
    assert [made.start_of(PLACE, job_id, 0, 9) for job_id in IDS] == [0, 1, None, None]
    assert [made.result_of(PLACE, job_id) is None for job_id in IDS] == [False, False, True, True]


def test_jobs_before_the_first_one_take_no_room() -> None:
    """A scan begins a minute before, and says nothing of the jobs of that minute."""
    made = scan_of(*(state(job_id, offset) for offset, job_id in enumerate(IDS)), since_ms=T + 2)
    assert list(made._first_offsets) == IDS[2:]

"""Tests of ``kafka.tasks.results.lookup``."""

from __future__ import annotations

from typing import Any

from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, supersedes
from kafka.tasks.results.lookup import FetchEndOffset, FetchOffsetAt, ReadStates, look_up
from kafka.tasks.states import READY, JobState

T = 1_700_000_000_000
ID = make_id(T, 5, b"\1" * 8)
S = JobState


class Log:
    """Two partitions as lists of (append time, record), answering what a look-up wants."""

    def __init__(self) -> None:
        self.topics: dict[bool, list[StateRecord]] = {False: [], True: []}
        self.wants: list[Any] = []
        self.between: StateRecord | None = None

    def answer(self, want: Any) -> Any:
        self.wants.append(want)
        log = self.topics[want.late]
        if isinstance(want, FetchEndOffset):
            end = len(log)
            if self.between is not None:
                log.append(self.between)
                self.between = None
            return end
        if isinstance(want, FetchOffsetAt):
            return next((i for i, record in enumerate(log) if record.time_ms >= want.time_ms), -1)
        assert isinstance(want, ReadStates)
        found: StateRecord | None = None
        for record in log[want.offset : want.until]:
            if want.until_ms is not None and record.time_ms > want.until_ms:
                break
            if record.id == want.job_id and supersedes(found, record):
                found = record
                if record.state in READY:
                    break
        return found


def run(log: Log, job_id: str = ID) -> StateRecord | None:
    dialogue = look_up(job_id)
    try:
        want = next(dialogue)
        while True:
            want = dialogue.send(log.answer(want))
    except StopIteration as end:
        found: StateRecord | None = end.value
        return found


def test_a_result_is_found_from_the_bare_id() -> None:
    log = Log()
    log.topics[False] = [
        StateRecord(make_id(T, 5, b"\2" * 8), S.SUCCESS, time_ms=T - 90_000),
        StateRecord(ID, S.RETRY, time_ms=T + 10),
        StateRecord(ID, S.SUCCESS, attempt=2, value=b"42", time_ms=T + 20),
        StateRecord(ID, S.FAILURE, attempt=3, time_ms=T + 30, offset=3),
    ]
    found = run(log)
    assert found is not None
    assert (found.state, found.value) == (S.SUCCESS, b"42")
    assert {want.partition for want in log.wants} == {5}
    assert FetchOffsetAt(False, 5, T - 60_000) in log.wants
    assert not any(want.late for want in log.wants)


def test_a_late_result_is_found_after_a_scan_of_two_minutes() -> None:
    log = Log()
    log.topics[False] = [StateRecord(ID, S.STARTED, time_ms=T + 5)]
    log.topics[True] = [StateRecord(ID, S.SUCCESS, value=b"1", time_ms=T + 3_600_000, in_late=True)]
    found = run(log)
    assert found is not None
    assert found.value == b"1"
    assert [w for w in log.wants if isinstance(w, ReadStates)][0].until_ms == T + 65_000


def test_a_job_without_records_is_not_found_and_nothing_is_read() -> None:
    log = Log()
    assert run(log) is None
    assert not any(isinstance(want, ReadStates) for want in log.wants)


def test_an_id_of_the_first_minute_of_all_times_asks_for_no_negative_one() -> None:
    dialogue = look_up("0" * 32)
    next(dialogue)
    assert dialogue.send(7) == FetchOffsetAt(False, 0, 0)


def test_the_end_is_taken_before_the_look_up_by_time() -> None:
    log = Log()
    run(log)
    assert [type(want) for want in log.wants[:2]] == [FetchEndOffset, FetchOffsetAt]


def test_a_look_up_reads_what_is_between_the_offset_of_its_time_and_the_end() -> None:
    # end, first offset at the time -> whether records are read
    expected = {(0, -1): False, (3, -1): False, (3, 0): True, (3, 2): True, (3, 3): False, (3, 4): False}
    found = {}
    for end, start in expected:
        dialogue = look_up(ID)
        assert next(dialogue) == FetchEndOffset(False, 5)
        assert dialogue.send(end) == FetchOffsetAt(False, 5, T - 60_000)
        want = dialogue.send(start)
        found[end, start] = want == ReadStates(False, 5, ID, start, end, T + 65_000)
        assert found[end, start] or want == FetchEndOffset(True, 5)
    assert found == expected


def test_a_record_of_results_that_does_not_count_hides_no_other() -> None:
    log = Log()
    log.topics[False] = [
        StateRecord(ID, S.FAILURE, time_ms=T + 60_001),
        StateRecord(ID, S.SUCCESS, time_ms=T + 59_999, offset=1),  # its leader's clock is behind the last one's
    ]
    assert run(log) == log.topics[False][1]
    log.topics[True] = [StateRecord(ID, S.REVOKED, time_ms=T + 60_002, in_late=True)]
    log.topics[False].pop()
    assert run(log) == log.topics[True][0]

"""Tests of ``kafka.tasks.results.lookup``."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import StateRecord, supersedes
from kafka.tasks.results.lookup import FetchEndOffset, FetchOffsetAt, ReadStates, is_pointer, look_up
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
            if record.id != want.job_id:
                continue
            if supersedes(found, record):
                found = record
                if record.state in READY:
                    break
            if want.to_pointer and is_pointer(record):
                return record
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


# -- jobs that wait in between -----------------------------------------------------------------------------------------

HOUR = 3_600_000


def late(state: JobState, time_ms: int, offset: int, **fields: Any) -> StateRecord:
    return StateRecord(ID, state, time_ms=time_ms, in_late=True, offset=offset, **fields)


def other(time_ms: int) -> StateRecord:
    return StateRecord(make_id(T, 5, b"\2" * 8), S.SUCCESS, time_ms=time_ms, in_late=True)


def reads(log: Log) -> list[tuple[bool, int]]:
    return [(want.late, want.offset) for want in log.wants if isinstance(want, ReadStates)]


def test_the_late_topic_is_read_from_the_time_on_for_which_the_next_attempt_was_announced() -> None:
    log = Log()
    log.topics[False] = [StateRecord(ID, S.RETRY, time_ms=T + 10, due_ms=T + HOUR)]
    log.topics[True] = [
        other(T + 70_000),
        other(T + HOUR - 5_001),
        late(S.RETRY, T + HOUR, 2, attempt=2, due_ms=T + 5 * HOUR),
        other(T + 2 * HOUR),
        late(S.SCHEDULED, T + 5 * HOUR, 4, attempt=3, due_ms=T + 9 * HOUR),
        other(T + 6 * HOUR),
        late(S.SUCCESS, T + 9 * HOUR, 6, attempt=3, value=b"42"),
    ]
    assert run(log) == log.topics[True][6]
    assert reads(log) == [(False, 0), (True, 2), (True, 4), (True, 6)]
    assert FetchOffsetAt(True, 5, T + HOUR - 5_000) in log.wants


def test_a_job_whose_time_has_not_come_is_where_its_last_record_says() -> None:
    log = Log()
    log.topics[False] = [StateRecord(ID, S.RETRY, time_ms=T + 10, due_ms=T + HOUR)]
    log.topics[True] = [other(T + 70_000)]
    assert run(log) == log.topics[False][0]
    assert reads(log) == [(False, 0)]


def test_a_wait_that_is_over_soon_is_read_over() -> None:
    log = Log()
    log.topics[True] = [
        late(S.RETRY, T + 70_000, 0, due_ms=T + 80_000),
        late(S.SUCCESS, T + 80_001, 1, attempt=2),
    ]
    assert run(log) == log.topics[True][1]
    assert reads(log) == [(True, 0)]


def test_a_job_that_was_sent_early_is_read_from_that_time_on_in_both_topics() -> None:
    sent = T - 2 * HOUR
    log = Log()
    log.topics[False] = [
        StateRecord(ID, S.RETRY, time_ms=sent + 1, due_ms=T + 3 * HOUR, offset=0),
        StateRecord(ID, S.QUEUED, time_ms=T, due_ms=sent, offset=1),
    ]
    log.topics[True] = [late(S.SUCCESS, T + 3 * HOUR, 0, attempt=2)]
    assert run(log) == log.topics[True][0]
    asked = [(want.late, want.time_ms) for want in log.wants if isinstance(want, FetchOffsetAt)]
    assert asked == [(False, T - 60_000), (False, sent - 5_000), (True, T + 3 * HOUR - 5_000)]
    log.wants.clear()
    log.topics[False][0] = StateRecord(ID, S.STARTED, time_ms=sent + 1, offset=0)
    run(log)
    assert FetchOffsetAt(True, 5, T - 60_000) in log.wants, "the late topic has nothing of it before"
    log.topics[False][0] = StateRecord(ID, S.FAILURE, time_ms=sent + 1, offset=0)
    assert run(log) == log.topics[False][0]


def test_a_later_attempt_that_was_sent_early_is_found_too() -> None:
    log = Log()
    log.topics[False] = [StateRecord(ID, S.RETRY, time_ms=T + 10, due_ms=T + 9 * HOUR)]
    log.topics[True] = [
        late(S.STARTED, T + HOUR, 0, attempt=2),
        late(S.SUCCESS, T + HOUR + 1, 1, attempt=2),
        late(S.QUEUED, T + 9 * HOUR, 2, due_ms=T + HOUR),
    ]
    assert run(log) == log.topics[True][1]


def test_the_owner_s_word_on_when_it_was_sent_leads_there_at_once() -> None:
    log = Log()
    log.topics[False] = [StateRecord(ID, S.SUCCESS, time_ms=T - HOUR)]
    dialogue = look_up(ID, T - HOUR)
    assert next(dialogue) == FetchEndOffset(False, 5)
    assert dialogue.send(1) == FetchOffsetAt(False, 5, T - HOUR - 5_000)
    assert dialogue.send(0) == ReadStates(False, 5, ID, 0, 1, T + 65_000, True)


times = st.integers(0, 10).map(lambda tenths: T + tenths * 60_000)


@given(st.lists(st.tuples(times, times, st.sampled_from((S.RETRY, S.SCHEDULED, S.QUEUED))), max_size=8))
def test_a_look_up_ends_however_records_point_at_each_other(records: list[tuple[int, int, JobState]]) -> None:
    log = Log()
    for offset, (time_ms, due_ms, state) in enumerate(sorted(records)):
        log.topics[True].append(late(state, time_ms, offset, due_ms=due_ms))
    run(log)
    assert len(reads(log)) <= (len(records) + 1) ** 2 + 1

"""Tests of ``kafka.tasks.format.records``."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import (
    StateRecord,
    _parse_headers,
    decode,
    encode,
    error_value,
    is_late,
    reason_value,
    shortened,
)
from kafka.tasks.results.lookup import FetchEndOffset, FetchOffsetAt, ReadStates, look_up
from kafka.tasks.results.view import ResultView, supersedes
from kafka.tasks.rules.outcome import ErrorInfo
from kafka.tasks.states import READY, JobState

T = 1_700_000_000_000
ID = make_id(T, 5, b"\1" * 8)
S = JobState

records = st.builds(
    StateRecord,
    st.just(ID),
    st.sampled_from([s for s in JobState if s is not S.UNKNOWN]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.binary(max_size=20),
    st.just(7),
)


@given(records)
def test_a_state_survives_the_way_through_a_record(record: StateRecord) -> None:
    key, value, headers = encode(record)
    assert decode(key, value, headers, 7) == record


def test_records_of_other_kinds_are_passed_over() -> None:
    assert decode(b"clock", b"", []) is None
    assert decode(ID.encode(), b"", [("state", b"PROGRESS")]) is None
    assert decode(ID.encode(), b"", [("state", b"UNKNOWN")]) is None
    assert decode(ID.encode(), b"", [("state", None)]) is None


@pytest.mark.parametrize(
    ("key", "headers"),
    [(b"42", []), (None, []), (b"\xff" * 32, []), (ID.encode(), [("attempt", b"x")])],
)
def test_a_damaged_state_is_a_bad_record(key: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    with pytest.raises(BadRecord):
        decode(key, b"", [("state", b"SUCCESS"), *headers])


def test_details_of_a_failure_and_of_a_revocation_can_be_read() -> None:
    failure = StateRecord(ID, S.FAILURE, value=error_value(ErrorInfo("OSError", "disk", "Trace"), "host", 9))
    assert failure.detail() == {"type": "OSError", "text": "disk", "traceback": "Trace", "host": "host", "time": 9}
    assert StateRecord(ID, S.REVOKED, value=reason_value("expired", "h")).detail()["reason"] == "expired"
    assert StateRecord(ID, S.FAILURE, value=b"[").detail() == {}
    assert StateRecord(ID, S.SUCCESS, value=b'{"type": 1}').detail() == {}


def test_the_first_terminal_record_wins_and_later_ones_are_counted() -> None:
    view = ResultView()
    assert not view.apply(StateRecord(ID, S.STARTED))
    assert view.apply(StateRecord(ID, S.SUCCESS, value=b"1"))
    assert not view.apply(StateRecord(ID, S.FAILURE, attempt=2))
    assert not view.apply(StateRecord(ID, S.STARTED, attempt=3))
    found = view.get(ID)
    assert found is not None
    assert (found.state, found.value) == (S.SUCCESS, b"1")
    assert view.ignored == 1


def test_others_order_by_attempt_and_delivery_then_by_the_log() -> None:
    view = ResultView()
    for state, attempt, delivery in ((S.RETRY, 2, 1), (S.STARTED, 1, 3), (S.STARTED, 2, 2), (S.RETRY, 2, 2)):
        view.apply(StateRecord(ID, state, attempt, delivery))
    found = view.get(ID)
    assert found is not None
    assert (found.state, found.attempt, found.delivery) == (S.RETRY, 2, 2)


def test_a_terminal_record_of_results_goes_before_one_of_the_late_topic() -> None:
    for order in itertools.permutations([(S.SUCCESS, False), (S.FAILURE, True)]):
        view = ResultView()
        for state, late in order:
            view.apply(StateRecord(ID, state), late)
        found = view.get(ID)
        assert found is not None
        assert found.state is S.SUCCESS
        assert view.ignored == 1


@given(st.lists(records, max_size=12))
def test_a_final_state_never_changes(log: list[StateRecord]) -> None:
    view = ResultView()
    final: StateRecord | None = None
    for record in log:
        view.apply(record)
        if final is None and record.state in READY:
            final = record
        if final is not None:
            assert view.get(ID) == final
    terminal = sum(record.state in READY for record in log)
    assert view.ignored == max(0, terminal - 1)


def test_a_view_forgets_the_oldest_jobs_and_says_how_many() -> None:
    view = ResultView(capacity=2)
    ids = [make_id(T, 5, bytes([n] * 8)) for n in range(3)]
    for job_id in ids:
        view.apply(StateRecord(job_id, S.SUCCESS))
    assert [view.get(job_id) is None for job_id in ids] == [True, False, False]
    assert view.evicted == 1


def test_a_view_keeps_no_more_large_values_than_fit_and_the_latest_in_any_case() -> None:
    view = ResultView(most_bytes=1000)
    ids = [make_id(T, 5, bytes([n] * 8)) for n in range(4)]
    for job_id in ids[:3]:
        view.apply(StateRecord(job_id, S.STARTED, value=b"x" * 400))
    assert [view.get(job_id) is None for job_id in ids] == [True, False, False, True]
    assert view.apply(StateRecord(ids[2], S.SUCCESS, value=b"x" * 601))
    assert [view.get(job_id) is None for job_id in ids] == [True, True, False, True]
    view.apply(StateRecord(ids[3], S.SUCCESS, value=b"x" * 5000))
    assert [view.get(job_id) is None for job_id in ids] == [True, True, True, False]
    assert view.evicted == 3
    for job_id in ids[:2]:
        view.apply(StateRecord(job_id, S.SUCCESS, value=b"x" * 500))
    assert [view.get(job_id) is None for job_id in ids] == [False, False, True, True]


@pytest.mark.parametrize("name", ["state", "attempt", "delivery"])
def test_no_header_of_a_state_record_is_remembered_however_large_it_is(name: str) -> None:
    headers: dict[str, bytes | None] = {"state": b"SUCCESS", "attempt": b"1", "delivery": b"1"}
    headers[name] = b"1" * 1_000_000
    before = _parse_headers.cache_info().currsize
    with pytest.raises(BadRecord) as caught:
        decode(ID.encode(), b"", list(headers.items()))
    assert len(caught.value.text) < 600
    assert _parse_headers.cache_info().currsize == before
    with pytest.raises(BadRecord) as caught:
        decode(b"x" * 1_000_000, b"", [("state", b"SUCCESS")])
    assert len(caught.value.text) < 600


def test_a_job_that_ends_after_a_minute_belongs_to_the_late_topic() -> None:
    assert not is_late(ID, T + 60_000)
    assert is_late(ID, T + 60_001)


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
        found = []
        for record in log[want.offset : want.until]:
            if want.until_ms is not None and record.time_ms > want.until_ms:
                break
            if record.id == want.job_id:
                found.append(record)
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
        StateRecord(ID, S.FAILURE, attempt=3, time_ms=T + 30),
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
    log.topics[True] = [StateRecord(ID, S.SUCCESS, value=b"1", time_ms=T + 3_600_000)]
    found = run(log)
    assert found is not None
    assert found.value == b"1"
    assert [w for w in log.wants if isinstance(w, ReadStates)][0].until_ms == T + 60_000


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


def test_better_prefers_any_terminal_record_to_none() -> None:
    assert supersedes(None, StateRecord(ID, S.QUEUED))
    assert supersedes(StateRecord(ID, S.RETRY, 9, 9), StateRecord(ID, S.FAILURE, 1, 1))


def test_which_of_two_records_holds() -> None:
    # task-queue.md "Topics of an app": the first terminal one in log order; others by (attempt, delivery), then log.
    # old, new (state, attempt, delivery), both from one topic -> whether the new one takes the place
    expected = {
        ((S.SUCCESS, 1, 1), (S.FAILURE, 2, 2), True): False,
        ((S.REVOKED, 1, 1), (S.SUCCESS, 2, 2), True): False,
        ((S.FAILURE, 1, 1), (S.RETRY, 2, 2), True): False,
        ((S.SUCCESS, 1, 1), (S.FAILURE, 1, 1), False): True,
        ((S.SUCCESS, 1, 1), (S.RETRY, 2, 2), False): False,
        ((S.RETRY, 2, 2), (S.REVOKED, 1, 1), True): True,
        ((S.RETRY, 2, 2), (S.STARTED, 1, 3), True): False,
        ((S.RETRY, 2, 2), (S.STARTED, 2, 1), True): False,
        ((S.RETRY, 2, 2), (S.QUEUED, 2, 2), True): True,
        ((S.QUEUED, 2, 2), (S.RETRY, 2, 3), True): True,
        ((S.QUEUED, 2, 2), (S.RETRY, 3, 1), False): True,
    }
    found = {
        (old, new, same): supersedes(StateRecord(ID, *old), StateRecord(ID, *new), same_topic=same)
        for old, new, same in expected
    }
    assert found == expected
    assert not supersedes(StateRecord(ID, S.SUCCESS), StateRecord(ID, S.FAILURE)), "one topic, unless it is said"


def test_headers_that_are_missing_say_the_first_run() -> None:
    assert decode(ID.encode(), None, [("state", b"SUCCESS")]) == StateRecord(ID, S.SUCCESS, 1, 1, b"", 0)
    assert StateRecord(ID, S.SUCCESS) == (ID, S.SUCCESS, 1, 1, b"", 0)
    assert StateRecord(ID, S.FAILURE).detail() == {}
    assert StateRecord(ID, S.FAILURE, value=b"[1]").detail() == {}


def test_values_are_short_json_in_utf_8() -> None:
    assert reason_value("nö", "h") == '{"reason":"nö","host":"h"}'.encode()
    value = error_value(ErrorInfo("T" * 200, "ü" * 201, "Trace"), "h", 10**201)
    assert json.loads(shortened(value)) == {
        "type": "T" * 200, "text": "ü" * 200 + "...", "traceback": "", "host": "h", "time": 10**201,
    }  # fmt: skip


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
    view = ResultView()
    found = [(view.apply(StateRecord(ID, *record), late), view.ignored) for record, late, _, _ in steps]
    assert found == [(final, ignored) for _, _, final, ignored in steps]
    assert (view.evicted, view.get(make_id(T, 5, b"\2" * 8))) == (0, None)
    assert ResultView().apply(StateRecord(ID, S.REVOKED)), "the first that is seen of it"
    default = ResultView()
    default.apply(StateRecord(ID, S.SUCCESS), late=True)
    assert default.apply(StateRecord(ID, S.FAILURE)), "from the results topic, unless it is said"


def test_a_look_up_reads_what_is_between_the_offset_of_its_time_and_the_end() -> None:
    # end, first offset at the time -> whether records are read
    expected = {(0, -1): False, (3, -1): False, (3, 0): True, (3, 2): True, (3, 3): False, (3, 4): False}
    found = {}
    for end, start in expected:
        dialogue = look_up(ID)
        assert next(dialogue) == FetchEndOffset(False, 5)
        assert dialogue.send(end) == FetchOffsetAt(False, 5, T - 60_000)
        want = dialogue.send(start)
        found[end, start] = want == ReadStates(False, 5, ID, start, end, T + 60_000)
        assert found[end, start] or want == FetchEndOffset(True, 5)
    assert found == expected

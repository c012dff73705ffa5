"""Tests of ``kafka.tasks.format.records``."""

from __future__ import annotations

import itertools
import json
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.errors import BadRecord
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import (
    StateRecord,
    decode,
    encode,
    error_value,
    is_late,
    reason_value,
    shortened,
    supersedes,
)
from kafka.tasks.rules.outcome import ErrorInfo
from kafka.tasks.states import READY, JobState
from test.strategies import state_records

T = 1_700_000_000_000
ID = make_id(T, 5, b"\1" * 8)
CLOSED_MS = T + 60_000
S = JobState


@given(state_records(ID, T))
def test_a_state_survives_the_way_through_a_record(record: StateRecord) -> None:
    key, value, headers = encode(record)
    assert decode(key, value, headers, record.time_ms, record.in_late, record.offset) == record


def test_records_of_other_kinds_are_passed_over() -> None:
    assert decode(b"clock", b"", []) is None
    assert decode(ID.encode(), b"", [("state", b"PROGRESS")]) is None
    assert decode(ID.encode(), b"", [("state", b"UNKNOWN")]) is None
    assert decode(ID.encode(), b"", [("state", b"PENDING")]) is None
    assert decode(ID.encode(), b"", [("state", None)]) is None


@pytest.mark.parametrize(
    ("key", "headers"),
    [
        (b"42", []),
        (None, []),
        (b"\xff" * 32, []),
        (ID.encode(), [("attempt", b"x")]),
        (ID.encode(), [("content-type", b"x" * 201)]),
    ],
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


@pytest.mark.parametrize("name", ["state", "attempt", "delivery"])
def test_a_long_header_of_a_state_record_is_refused_in_short(name: str) -> None:
    headers: dict[str, bytes | None] = {"state": b"SUCCESS", "attempt": b"1", "delivery": b"1"}
    headers[name] = b"1" * 1_000_000
    with pytest.raises(BadRecord) as caught:
        decode(ID.encode(), b"", list(headers.items()))
    assert len(caught.value.text) < 600
    with pytest.raises(BadRecord) as caught:
        decode(b"x" * 1_000_000, b"", [("state", b"SUCCESS")])
    assert len(caught.value.text) < 600


def test_a_job_that_ends_after_a_minute_belongs_to_the_late_topic() -> None:
    assert not is_late(ID, T + 60_000)
    assert is_late(ID, T + 60_001)


def test_headers_that_are_missing_say_the_first_run() -> None:
    assert decode(ID.encode(), None, [("state", b"SUCCESS")]) == StateRecord(ID, S.SUCCESS, 1, 1, b"", 0, False, 0)
    assert StateRecord(ID, S.SUCCESS) == (ID, S.SUCCESS, 1, 1, b"", 0, False, 0, None, None)
    assert StateRecord(ID, S.FAILURE).detail() == {}
    assert StateRecord(ID, S.FAILURE, value=b"[1]").detail() == {}


def test_values_are_short_json_in_utf_8() -> None:
    assert reason_value("nö", "h") == '{"reason":"nö","host":"h"}'.encode()
    value = error_value(ErrorInfo("T" * 200, "ü" * 201, "Trace"), "h", 10**201)
    assert json.loads(shortened(value)) == {
        "type": "T" * 200, "text": "ü" * 200 + "...", "traceback": "", "host": "h", "time": 10**201,
    }  # fmt: skip


def test_which_of_two_records_holds() -> None:
    # task-queue.md "Topics of an app": the first terminal one in log order; others by (attempt, delivery), then log.
    # old, new: state, attempt, delivery, appended ms after the topic closes for the job, late, offset -> the new holds
    expected = {
        ((S.SUCCESS, 1, 1, -9, False, 0), (S.FAILURE, 2, 2, -9, False, 1)): False,
        ((S.FAILURE, 2, 2, -9, False, 1), (S.SUCCESS, 1, 1, -9, False, 0)): True,
        ((S.REVOKED, 1, 1, 9, True, 3), (S.SUCCESS, 2, 2, 9, True, 4)): False,
        ((S.FAILURE, 1, 1, -9, False, 0), (S.RETRY, 2, 2, -9, False, 1)): False,
        ((S.SUCCESS, 1, 1, 9, True, 0), (S.FAILURE, 1, 1, -9, False, 7)): True,
        ((S.FAILURE, 1, 1, -9, False, 7), (S.SUCCESS, 1, 1, 9, True, 0)): False,
        ((S.SUCCESS, 1, 1, 9, True, 0), (S.RETRY, 2, 2, -9, False, 7)): False,
        ((S.RETRY, 2, 2, -9, False, 0), (S.REVOKED, 1, 1, -9, False, 1)): True,
        ((S.RETRY, 2, 2, -9, False, 0), (S.STARTED, 1, 3, -9, False, 1)): False,
        ((S.RETRY, 2, 2, -9, False, 0), (S.STARTED, 2, 1, -9, False, 1)): False,
        ((S.RETRY, 2, 2, -9, False, 0), (S.QUEUED, 2, 2, -9, False, 1)): True,
        ((S.RETRY, 2, 2, -9, False, 5), (S.QUEUED, 2, 2, 9, True, 1)): True,
        ((S.QUEUED, 2, 2, 9, True, 1), (S.RETRY, 2, 2, -9, False, 5)): False,
        ((S.QUEUED, 2, 2, -9, False, 0), (S.RETRY, 2, 3, -9, False, 1)): True,
        ((S.QUEUED, 2, 9, -9, False, 0), (S.RETRY, 3, 1, -9, False, 1)): True,
        ((S.QUEUED, 1, 1, -9, False, 0), (S.SUCCESS, 9, 9, 1, False, 1)): False,
        ((S.QUEUED, 1, 1, -9, False, 0), (S.SUCCESS, 1, 1, 0, False, 1)): True,
        ((S.QUEUED, 1, 1, -9, False, 0), (S.SUCCESS, 1, 1, 1, True, 1)): True,
    }

    def record(state: JobState, attempt: int, delivery: int, after_ms: int, late: bool, offset: int) -> StateRecord:
        return StateRecord(ID, state, attempt, delivery, b"", CLOSED_MS + after_ms, late, offset)

    assert {(old, new): supersedes(record(*old), record(*new)) for old, new in expected} == expected


def test_a_record_that_results_took_too_late_never_holds() -> None:
    assert not supersedes(None, StateRecord(ID, S.SUCCESS, time_ms=CLOSED_MS + 1))
    assert supersedes(None, StateRecord(ID, S.SUCCESS, time_ms=CLOSED_MS))
    assert supersedes(None, StateRecord(ID, S.SUCCESS, time_ms=CLOSED_MS + 1, in_late=True))


@given(st.lists(state_records(ID, CLOSED_MS, 10), max_size=4, unique_by=lambda record: (record.in_late, record.offset)))
def test_which_record_holds_does_not_depend_on_the_order_in_which_they_are_read(records: list[StateRecord]) -> None:
    results = sorted((each for each in records if not each.in_late and each.time_ms <= CLOSED_MS), key=_offset)
    late = sorted((each for each in records if each.in_late), key=_offset)
    terminal = [each for each in results + late if each.state in READY]
    expected = terminal[0] if terminal else None
    if not terminal:
        for each in results + late:
            if expected is None or (each.attempt, each.delivery) >= (expected.attempt, expected.delivery):
                expected = each
    for order in itertools.permutations(records):
        assert reduce(_better, order, None) == expected


def _offset(record: StateRecord) -> int:
    return record.offset


def _better(old: StateRecord | None, new: StateRecord) -> StateRecord | None:
    return new if supersedes(old, new) else old

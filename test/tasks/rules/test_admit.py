"""Tests of ``kafka.tasks.rules.admit``: the reasons for which a leased job does not run, and their order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka.tasks.format.envelope import Envelope
from kafka.tasks.rules.admit import admit, crashes_of, unmet_needs
from kafka.tasks.rules.decide import JobHistory, JobPolicy
from kafka.tasks.rules.outcome import (
    ErrorInfo,
    JobExpired,
    NotDue,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)

NOW = 1_000_000
LACKS = "no such task"
UNKNOWN = UnknownTask("f", LACKS)
THREE_CRASHES = WorkerCrashed(ErrorInfo("WorkerLost", "3 workers died while they ran this job"))

ROWS: list[tuple[str, JobHistory, bool, bool, Outcome | None]] = [
    # history, whether this worker can run it, whether it comes from the suspects -> why it does not run
    ("first delivery", JobHistory(), True, False, None),
    ("suspect", JobHistory(), True, True, None),
    ("has crashed", JobHistory(crashes=2), True, False, None),
    # task-queue.md "Delivery": a count of 2 or more is a suspicion, and only on the suspect topic a crash
    ("delivered before", JobHistory(deliveries=2), True, False, SuspectedCrash()),
    ("delivered before, has crashed", JobHistory(deliveries=2, crashes=1), True, False, SuspectedCrash()),
    ("suspect again", JobHistory(deliveries=2, crashes=1), True, True, None),
    ("crash limit", JobHistory(crashes=3), True, False, THREE_CRASHES),
    ("crash limit, delivered before", JobHistory(deliveries=2, crashes=3), True, False, THREE_CRASHES),
    ("crash limit of a suspect", JobHistory(deliveries=4, crashes=3), True, True, THREE_CRASHES),
    # other workers could not distinguish excused deliveries from crashes, so the record starts anew
    ("excused", JobHistory(deliveries=4, crashes=2, excused=1), True, True, NotStarted()),
    ("excused, crash limit", JobHistory(deliveries=4, crashes=3, excused=1), True, True, THREE_CRASHES),
    # task-queue.md "Topics": a job that this worker cannot run goes to another one, but no suspicion is lost on the way
    ("unknown", JobHistory(), False, False, UNKNOWN),
    ("unknown, delivered before", JobHistory(deliveries=3), False, False, SuspectedCrash()),
    ("unknown suspect", JobHistory(deliveries=3, crashes=2), False, True, UNKNOWN),
    ("unknown, crash limit", JobHistory(crashes=3), False, False, UNKNOWN),
    ("unknown, excused", JobHistory(deliveries=3, crashes=1, excused=1), False, True, UNKNOWN),
    ("expires now", JobHistory(expires_ms=NOW), True, False, JobExpired()),
    ("expires later", JobHistory(expires_ms=NOW + 1), True, False, None),
    ("expired, unknown", JobHistory(expires_ms=NOW), False, False, JobExpired()),
    ("expired, not due", JobHistory(expires_ms=NOW, due_ms=NOW + 9), True, False, JobExpired()),
    ("expired, at the limit", JobHistory(deliveries=3, crashes=3, expires_ms=NOW), True, True, JobExpired()),
    ("due now", JobHistory(due_ms=NOW), True, False, None),
    ("due later", JobHistory(due_ms=NOW + 1), True, False, NotDue(NOW + 1)),
    ("due later, suspect", JobHistory(due_ms=NOW + 1), True, True, NotDue(NOW + 1)),
    ("due later, unknown", JobHistory(due_ms=NOW + 1), False, False, NotDue(NOW + 1)),
    ("due later, at the limit", JobHistory(due_ms=NOW + 1, crashes=3), True, False, NotDue(NOW + 1)),
    # no worker has started it, so it is no suspect
    ("due later, delivered before", JobHistory(due_ms=NOW + 1, deliveries=2), True, False, NotDue(NOW + 1)),
    ("due now, delivered before", JobHistory(due_ms=NOW, deliveries=2), True, False, SuspectedCrash()),
    ("due now, unknown", JobHistory(due_ms=NOW), False, False, UNKNOWN),
    # its time is that of the next look of a worker that cannot run it
    ("waits for a worker, is here", JobHistory(due_ms=NOW + 9, unknown=1, unknown_since_ms=5), True, False, None),
    ("waits for a worker, is not here", JobHistory(due_ms=NOW + 9, unknown=1, unknown_since_ms=5), False, False,
     NotDue(NOW + 9)),
    ("waits for a worker, next look", JobHistory(due_ms=NOW, unknown=1, unknown_since_ms=5), False, False, UNKNOWN),
    ("waits for a worker, delivered before",
     JobHistory(due_ms=NOW + 9, unknown=1, unknown_since_ms=5, deliveries=2), True, False, SuspectedCrash()),
]  # fmt: skip


def test_a_leased_job_runs_unless_there_is_a_reason() -> None:
    found = {
        name: admit("f", history, JobPolicy(), lacks=None if can_run else LACKS, suspect=suspect, now_ms=NOW)
        for name, history, can_run, suspect, _ in ROWS
    }
    assert found == {row[0]: row[4] for row in ROWS}
    assert len(found) == len(ROWS)


def test_the_crash_limit_is_that_of_the_policy() -> None:
    for limit, crashes, is_over in ((1, 0, False), (1, 1, True), (5, 4, False), (5, 5, True)):
        policy = JobPolicy(crash_limit=limit)
        found = admit("f", JobHistory(crashes=crashes), policy, lacks=None, suspect=False, now_ms=NOW)
        assert isinstance(found, WorkerCrashed) is is_over


@pytest.mark.parametrize(
    ("recorded", "deliveries", "suspect", "excused", "expected"),
    [(1, 4, False, 0, 1), (1, 1, True, 0, 1), (1, 3, True, 0, 3), (0, 3, True, 0, 2), (1, 3, True, 2, 1)],
)
def test_only_deliveries_on_the_suspect_topic_are_crashes(
    recorded: int, deliveries: int, suspect: bool, excused: int, expected: int
) -> None:
    assert crashes_of(recorded, deliveries, suspect, excused) == expected


def test_deliveries_are_crashes_unless_they_are_excused() -> None:
    assert crashes_of(1, 3, True) == 3


TIMES = st.none() | st.integers(NOW - 2, NOW + 2)
HISTORIES = st.builds(
    JobHistory,
    crashes=st.integers(0, 4),
    deliveries=st.integers(1, 5),
    expires_ms=TIMES,
    unknown_since_ms=st.none() | st.just(5),
    due_ms=TIMES,
    excused=st.integers(0, 2),
)


@given(HISTORIES, st.booleans(), st.booleans())
def test_what_runs_may_run_and_what_is_not_due_does_not(history: JobHistory, can_run: bool, suspect: bool) -> None:
    lacks = None if can_run else LACKS
    found = admit("f", history, JobPolicy(), lacks=lacks, suspect=suspect, now_ms=NOW)
    is_expired = history.expires_ms is not None and history.expires_ms <= NOW
    assert isinstance(found, JobExpired) is is_expired
    if found is None:
        assert can_run
        assert history.crashes < 3
        assert suspect or history.deliveries == 1
        assert history.due_ms is None or history.due_ms <= NOW or history.unknown_since_ms is not None
    elif isinstance(found, NotDue):
        assert found.due_ms == history.due_ms
        assert found.due_ms > NOW
    elif isinstance(found, SuspectedCrash):
        assert history.deliveries > 1
        assert not suspect
    elif isinstance(found, UnknownTask):
        assert not can_run


@pytest.mark.parametrize(
    ("fields", "accepted", "reason"),
    [
        ({}, set(), None),
        ({"content_type": "application/json"}, {"json"}, None),
        ({"content_type": "application/x-python-serialize"}, {"json", "pickle"}, None),
        (
            {"content_type": "application/x-python-serialize"},
            {"json", "msgpack"},
            "the content type application/x-python-serialize (pickle) is not in accept_content",
        ),
        ({"content_type": "application/xml"}, {"json"}, "unknown content type 'application/xml'"),
        ({"needs": ("telepathy", "x")}, {"json"}, "this release does not understand telepathy, x, which the job needs"),
    ],
)
def test_what_a_job_needs_and_a_worker_lacks_is_said(
    fields: dict[str, Any], accepted: set[str], reason: str | None
) -> None:
    envelope = Envelope("1" * 32, "f", b"", **fields)
    assert unmet_needs(envelope, frozenset(accepted)) == reason

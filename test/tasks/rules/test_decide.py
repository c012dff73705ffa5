"""Tests of ``kafka.tasks.rules.decide``: every cell of its table."""

from __future__ import annotations

import itertools

import pytest

from kafka.tasks.rules.decide import UNKNOWN_DELAYS_S, JobDecision, JobHistory, JobPolicy, MoveTarget, decide
from kafka.tasks.rules.outcome import (
    LOST_CAUSES,
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    LockLost,
    NotDue,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState

NOW = 1_000_000
DELAY = 4_000
"""The back-off that each row is decided with; only a failed attempt may look at it."""
FAULT = ErrorInfo("OSError", "disk")
DEAD, DUE, BACK, SUSPECT = MoveTarget.DEAD, MoveTarget.DUE, MoveTarget.BACK, MoveTarget.SUSPECT
SCHEDULE = MoveTarget.SCHEDULE
FAILURE, RETRY, REVOKED, SCHEDULED = JobState.FAILURE, JobState.RETRY, JobState.REVOKED, JobState.SCHEDULED
FIVE = JobPolicy(max_attempts=5)
DAY_MS = 86_400_000

RAN = JobHistory(attempt=2, crashes=1)
WAITED = JobHistory(attempt=2, crashes=1, unknown=3, unknown_since_ms=NOW - 9, due_ms=NOW - 1)
"""A job that waited for a worker that can run it."""

ROWS: list[tuple[str, Outcome, JobHistory, JobPolicy, JobDecision]] = [
    # docs/tasks.rst "What happens then" and task-queue.md "Retry and failure", unless a row names another source
    ("returned", JobSucceeded(b"1"), JobHistory(), JobPolicy(), JobDecision(state=JobState.SUCCESS)),
    ("store_result=False", JobSucceeded(b""), JobHistory(), JobPolicy(store_result=False), JobDecision()),
    ("no retry=", AttemptFailed(FAULT), RAN, JobPolicy(), JobDecision(DEAD, FAILURE, 2, 1, cause="error")),
    ("no retry=, expired", AttemptFailed(FAULT), JobHistory(expires_ms=NOW), JobPolicy(),
     JobDecision(DEAD, FAILURE, cause="error")),
    ("not in on=", AttemptFailed(FAULT, False), RAN, FIVE,
     JobDecision(DEAD, FAILURE, 2, 1, cause="error-not-listed")),
    ("not in on=, used up", AttemptFailed(FAULT, False), JobHistory(5), FIVE,
     JobDecision(DEAD, FAILURE, 5, cause="error-not-listed")),
    ("used up", AttemptFailed(FAULT), JobHistory(5, expires_ms=NOW), FIVE,
     JobDecision(DEAD, FAILURE, 5, cause="attempts")),
    ("expired", AttemptFailed(FAULT), JobHistory(expires_ms=NOW), FIVE,
     JobDecision(DEAD, FAILURE, cause="expired")),
    ("attempts left", AttemptFailed(FAULT), JobHistory(4, 1), FIVE,
     JobDecision(SCHEDULE, RETRY, 5, 1, due_ms=NOW + DELAY)),
    ("expires before the next attempt", AttemptFailed(FAULT), JobHistory(expires_ms=NOW + DELAY), FIVE,
     JobDecision(DEAD, FAILURE, 1, cause="expired")),
    ("expires after the next attempt", AttemptFailed(FAULT), JobHistory(expires_ms=NOW + DELAY + 1), FIVE,
     JobDecision(SCHEDULE, RETRY, 2, due_ms=NOW + DELAY)),
    ("waited for a worker, then failed", AttemptFailed(FAULT), WAITED, FIVE,
     JobDecision(SCHEDULE, RETRY, 3, 1, due_ms=NOW + DELAY)),
    # task-queue.md "A task may return or raise": RetryAt is an attempt, and its policy may be none at all
    ("RetryAt, no retry=", JobRetried(NOW + 7000), JobHistory(9, 1), JobPolicy(),
     JobDecision(SCHEDULE, RETRY, 10, 1, due_ms=NOW + 7000)),
    ("RetryAt, attempts left", JobRetried(NOW + 7000), WAITED, FIVE,
     JobDecision(SCHEDULE, RETRY, 3, 1, due_ms=NOW + 7000)),
    ("RetryAt, used up", JobRetried(NOW + 7000), JobHistory(5, 1), FIVE,
     JobDecision(DEAD, FAILURE, 5, 1, cause="attempts")),
    ("RetryAt, expired", JobRetried(NOW + 7000), JobHistory(2, expires_ms=NOW), FIVE,
     JobDecision(DEAD, FAILURE, 2, cause="expired")),
    ("RetryAt, expired, no retry=", JobRetried(NOW + 7000), JobHistory(2, expires_ms=NOW), JobPolicy(),
     JobDecision(DEAD, FAILURE, 2, cause="expired")),
    ("RetryAt, expires before it", JobRetried(NOW + 7000), JobHistory(expires_ms=NOW + 7000), FIVE,
     JobDecision(DEAD, FAILURE, 1, cause="expired")),
    ("RetryAt, past", JobRetried(NOW - 5), JobHistory(2), FIVE, JobDecision(DUE, RETRY, 3)),
    ("RetryAt, now", JobRetried(NOW), JobHistory(2), FIVE, JobDecision(DUE, RETRY, 3)),
    # no number of attempts ends it: it does not come back at once without end
    ("RetryAt, past, no retry=", JobRetried(NOW - 5), JobHistory(2), JobPolicy(),
     JobDecision(SCHEDULE, RETRY, 3, due_ms=NOW + 1000)),
    ("Snooze(0)", JobSnoozed(0), JobHistory(2), FIVE, JobDecision(SCHEDULE, SCHEDULED, 2, due_ms=NOW + 1000)),
    ("RetryAt, not yet expired", JobRetried(NOW + 7000), JobHistory(expires_ms=NOW + 7001), FIVE,
     JobDecision(SCHEDULE, RETRY, 2, due_ms=NOW + 7000)),
    # Snooze is no attempt, so no number of attempts ends it; one that expires meanwhile is found when it is due
    ("Snooze", JobSnoozed(7000), RAN, FIVE, JobDecision(SCHEDULE, SCHEDULED, 2, 1, due_ms=NOW + 7000)),
    ("Snooze in the last attempt", JobSnoozed(7000), JobHistory(5, 1, expires_ms=NOW), FIVE,
     JobDecision(SCHEDULE, SCHEDULED, 5, 1, due_ms=NOW + 7000)),
    ("Snooze after a wait for a worker", JobSnoozed(7000), WAITED, FIVE,
     JobDecision(SCHEDULE, SCHEDULED, 2, 1, due_ms=NOW + 7000)),
    ("Cancel", JobCancelled("no"), RAN, FIVE, JobDecision(state=REVOKED, attempt=2, cause="cancelled")),
    ("expires", JobExpired(), RAN, FIVE, JobDecision(state=REVOKED, attempt=2, cause="expired")),
    ("workers died", WorkerCrashed(FAULT), JobHistory(2, 3), FIVE,
     JobDecision(DEAD, FAILURE, 2, 3, cause="crashes")),
    ("second child", ChildLost("exit"), RAN, FIVE, JobDecision(DUE, RETRY, 2, 2)),
    ("second child after a wait for a worker", ChildLost("exit"), WAITED, FIVE, JobDecision(DUE, RETRY, 2, 2)),
    ("third child", ChildLost("exit"), JobHistory(2, 2), FIVE,
     JobDecision(DEAD, FAILURE, 2, 3, cause="lost-exit")),
    ("above the limit", ChildLost("exit"), JobHistory(2, 3), FIVE,
     JobDecision(DEAD, FAILURE, 2, 4, cause="lost-exit")),
    ("crash_limit", ChildLost("memory"), JobHistory(), JobPolicy(crash_limit=1),
     JobDecision(DEAD, FAILURE, crashes=1, cause="lost-memory")),
    # task-queue.md "Delivery": what a clean stop gives back is marked, and raises no suspicion
    ("own stop", ChildLost("stopped", counts=False), JobHistory(2, 9), FIVE, JobDecision(BACK, None, 2, 9, clean=1)),
    ("given back", NotStarted(), RAN, FIVE, JobDecision(BACK, None, 2, 1, clean=1)),
    ("given back as it is", NotStarted(), WAITED, FIVE,
     JobDecision(BACK, None, 2, 1, clean=1, unknown=3, unknown_since_ms=NOW - 9, due_ms=NOW - 1)),
    # a time before which it does not start is the schedule's affair; otherwise it is as it was
    ("not due", NotDue(NOW + 5), JobHistory(2, 1, due_ms=NOW + 5), FIVE,
     JobDecision(SCHEDULE, None, 2, 1, due_ms=NOW + 5)),
    ("not due, unknown", NotDue(NOW + 5), JobHistory(2, 1, unknown=3, unknown_since_ms=NOW - 9, due_ms=NOW + 5), FIVE,
     JobDecision(SCHEDULE, None, 2, 1, unknown=3, unknown_since_ms=NOW - 9, due_ms=NOW + 5)),
    # task-queue.md "Delivery": a count of 2 or more is only a suspicion
    ("suspicion", SuspectedCrash(), JobHistory(2, 1, deliveries=2), FIVE, JobDecision(SUSPECT, None, 2, 1)),
    ("suspicion, as it is", SuspectedCrash(), WAITED, FIVE,
     JobDecision(SUSPECT, None, 2, 1, unknown=3, unknown_since_ms=NOW - 9, due_ms=NOW - 1)),
    # task-queue.md "Topics": re-enqueued with growing delays until `unknown_ttl` (one day)
    ("unknown, first", UnknownTask("f"), JobHistory(2, 1), FIVE,
     JobDecision(SCHEDULE, None, 2, 1, unknown=1, unknown_since_ms=NOW, due_ms=NOW + 1000)),
    ("unknown, again", UnknownTask("f"), JobHistory(2, 1, unknown=1, unknown_since_ms=5, due_ms=6), FIVE,
     JobDecision(SCHEDULE, None, 2, 1, unknown=2, unknown_since_ms=5, due_ms=NOW + 2000)),
    ("unknown, of a release without a time", UnknownTask("f"), JobHistory(unknown=2), FIVE,
     JobDecision(SCHEDULE, unknown=3, unknown_since_ms=NOW, due_ms=NOW + 4000)),
    ("unknown, last moment", UnknownTask("f"), JobHistory(2, 1, unknown=9, unknown_since_ms=NOW - 499),
     JobPolicy(unknown_ttl_ms=500), JobDecision(SCHEDULE, None, 2, 1, unknown=10, unknown_since_ms=NOW - 499,
     due_ms=NOW + 60_000)),
    ("unknown for longer", UnknownTask("f"), JobHistory(2, 1, unknown=9, unknown_since_ms=NOW - 500),
     JobPolicy(unknown_ttl_ms=500), JobDecision(DEAD, FAILURE, 2, 1, cause="unknown-task")),
    ("unknown, no wait allowed", UnknownTask("f"), JobHistory(), JobPolicy(unknown_ttl_ms=0),
     JobDecision(DEAD, FAILURE, cause="unknown-task")),
    ("no job", InvalidRecord("bad-id", "x"), JobHistory(), JobPolicy(), JobDecision(DEAD, FAILURE, cause="bad-id")),
]  # fmt: skip


def test_each_row_of_the_table_holds() -> None:
    found = {row[0]: decide(row[1], row[2], row[3], NOW, DELAY) for row in ROWS}
    assert found == {row[0]: row[4] for row in ROWS}
    assert len(found) == len(ROWS)
    # A run that ended since its lock was lost has nothing to decide: it writes nothing (task-queue.md, "Topics").
    assert {type(row[1]).__name__ for row in ROWS} == set(str(Outcome).split(" | ")) - {LockLost.__name__}


def test_what_is_left_out_is_the_first_run_of_a_task_without_a_policy() -> None:
    assert JobPolicy() == JobPolicy(max_attempts=None, crash_limit=3, store_result=True, unknown_ttl_ms=DAY_MS)
    assert JobHistory() == JobHistory(
        attempt=1, crashes=0, deliveries=1, expires_ms=None, unknown=0, unknown_since_ms=None, due_ms=None, excused=0
    )
    assert JobDecision() == JobDecision(
        MoveTarget.NOWHERE, None, attempt=1, crashes=0, clean=0, cause="", unknown=0, unknown_since_ms=None, due_ms=None
    )


def test_histories_policies_and_decisions_are_values_that_cannot_be_changed() -> None:
    changeable: list[object] = []
    for each in (RAN, FIVE, *(row[4] for row in ROWS)):
        try:
            hash(each)
        except TypeError:
            changeable.append(each)
        if hasattr(each, "__dict__"):
            changeable.append(each)
    assert changeable == []


def test_a_retry_without_a_back_off_may_start_at_once() -> None:
    assert decide(AttemptFailed(FAULT), RAN, FIVE, NOW) == JobDecision(DUE, RETRY, 3, 1)
    assert decide(AttemptFailed(FAULT), RAN, FIVE, NOW, 1) == JobDecision(SCHEDULE, RETRY, 3, 1, due_ms=NOW + 1)


def every_decision() -> list[tuple[Outcome, JobHistory, JobPolicy, JobDecision]]:
    outcomes: list[Outcome] = [row[1] for row in ROWS]
    histories = [
        JobHistory(attempt, crashes, 1, expires, unknown, since, due)
        for attempt, crashes, expires, (unknown, since, due) in itertools.product(
            (1, 5, 6), (0, 2, 3), (None, NOW, NOW + 1), ((0, None, None), (7, NOW - 9, NOW + 9))
        )
    ]
    policies = [JobPolicy(attempts, store_result=store) for attempts in (None, 1, 5) for store in (True, False)]
    return [
        (outcome, history, policy, decide(outcome, history, policy, NOW, DELAY))
        for outcome, history, policy in itertools.product(outcomes, histories, policies)
    ]


def test_whatever_the_history_a_decision_keeps_these_promises() -> None:
    cases = every_decision()
    assert len(cases) > 10_000
    for outcome, history, policy, decision in cases:
        is_moved = decision.move is not MoveTarget.NOWHERE
        if not is_moved and decision.state is None:  # no job is accepted without a trace
            assert isinstance(outcome, JobSucceeded)
            assert not policy.store_result
        if decision.move is DEAD:
            assert decision.cause
            assert decision.state is FAILURE
        else:
            assert decision.state is not FAILURE
        if is_moved:  # no move forgets how far the job has come
            assert decision.attempt >= history.attempt
            assert decision.crashes >= history.crashes
        if decision.attempt > history.attempt:
            assert isinstance(outcome, AttemptFailed | JobRetried)
            assert policy.max_attempts is None or decision.attempt <= policy.max_attempts
        assert (decision.move is SCHEDULE) is (decision.due_ms is not None) or decision.move in (BACK, SUSPECT)
        if decision.clean:  # what is given back is as it was
            assert decision == JobDecision(
                BACK, None, history.attempt, history.crashes, 1, "", history.unknown, history.unknown_since_ms,
                history.due_ms,
            )  # fmt: skip


@pytest.mark.parametrize("outcome", [AttemptFailed(FAULT), JobRetried(NOW + 1)])
def test_all_attempts_are_counted_the_first_included(outcome: Outcome) -> None:
    attempt, runs = 1, 0
    while True:
        runs += 1
        decision = decide(outcome, JobHistory(attempt), JobPolicy(max_attempts=3), NOW)
        if decision.move is MoveTarget.DEAD:
            break
        attempt = decision.attempt
    assert runs == 3


@pytest.mark.parametrize("cause", sorted(LOST_CAUSES))
def test_a_child_that_dies_is_a_crash_and_no_attempt_and_its_job_is_dead_at_the_limit(cause: str) -> None:
    crashes, runs = 0, 0
    while True:
        runs += 1
        decision = decide(ChildLost(cause), JobHistory(attempt=2, crashes=crashes), FIVE, NOW)
        assert (decision.attempt, decision.crashes) == (2, crashes + 1)
        crashes = decision.crashes
        if decision.move is MoveTarget.DEAD:
            break
    assert (runs, decision.cause) == (3, f"lost-{cause}")


def test_an_unknown_task_is_looked_at_less_often_each_time_for_a_day() -> None:
    assert UNKNOWN_DELAYS_S == (1, 2, 4, 8, 15, 30, 60)
    now_ms, waits = NOW, []
    history = JobHistory()
    while (decision := decide(UnknownTask("f"), history, JobPolicy(), now_ms)).move is SCHEDULE:
        assert decision.due_ms is not None
        waits.append((decision.due_ms - now_ms) / 1000)
        now_ms = decision.due_ms
        history = JobHistory(unknown=decision.unknown, unknown_since_ms=decision.unknown_since_ms, due_ms=now_ms)
    assert waits[:9] == [1, 2, 4, 8, 15, 30, 60, 60, 60]
    assert set(waits[9:]) == {60}
    assert decision.cause == "unknown-task"
    assert DAY_MS <= now_ms - NOW < DAY_MS + 60_000

"""Tests of ``kafka.tasks.rules.outcome``: every cell of its table."""

from __future__ import annotations

import itertools

import pytest

from kafka.tasks.rules.admit import admit, crashes_of
from kafka.tasks.rules.decide import JobDecision, JobHistory, JobPolicy, LeaseVerdict, MoveTarget, decide
from kafka.tasks.rules.outcome import (
    LOST_CAUSES,
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobSucceeded,
    LockLost,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState

NOW = 1_000_000
FAULT = ErrorInfo("OSError", "disk")
ACCEPT, RELEASE, DROP = LeaseVerdict.ACCEPT, LeaseVerdict.RELEASE, LeaseVerdict.DROP
DEAD, FAILURE = MoveTarget.DEAD, JobState.FAILURE
FIVE = JobPolicy(max_attempts=5)
THREE_CRASHES = WorkerCrashed(ErrorInfo("WorkerLost", "3 workers died while they ran this job"))

RAN = JobHistory(attempt=2, crashes=1)

ROWS: list[tuple[str, Outcome, JobHistory, JobPolicy, JobDecision]] = [
    # docs/tasks.rst "What happens then" and task-queue.md "Retry and failure", unless a row names another source
    ("returned", JobSucceeded(b"1"), JobHistory(), JobPolicy(), JobDecision(ACCEPT, state=JobState.SUCCESS)),
    ("store_result=False", JobSucceeded(b""), JobHistory(), JobPolicy(store_result=False), JobDecision(ACCEPT)),
    ("no retry=", AttemptFailed(FAULT), RAN, JobPolicy(), JobDecision(ACCEPT, DEAD, FAILURE, 2, 1, cause="error")),
    ("not in on=", AttemptFailed(FAULT, False), RAN, FIVE, JobDecision(ACCEPT, DEAD, FAILURE, 2, 1,
    cause="error-not-listed")),
    ("used up", AttemptFailed(FAULT), JobHistory(5), FIVE, JobDecision(ACCEPT, DEAD, FAILURE, 5, cause="attempts")),
    ("expired", AttemptFailed(FAULT), JobHistory(expires_ms=NOW), FIVE, JobDecision(ACCEPT, DEAD, FAILURE,
    cause="expired")),
    ("attempts left", AttemptFailed(FAULT), JobHistory(4, 1), FIVE, JobDecision(ACCEPT, MoveTarget.QUEUE,
    JobState.RETRY, 5, 1)),
    ("not yet expired", AttemptFailed(FAULT), JobHistory(expires_ms=NOW + 1), FIVE,
     JobDecision(ACCEPT, MoveTarget.QUEUE, JobState.RETRY, 2)),
    ("Cancel", JobCancelled("no"), RAN, FIVE, JobDecision(ACCEPT, state=JobState.REVOKED, attempt=2,
    cause="cancelled")),
    ("expires", JobExpired(), RAN, FIVE, JobDecision(ACCEPT, state=JobState.REVOKED, attempt=2, cause="expired")),
    ("two workers died", WorkerCrashed(FAULT), JobHistory(2, 2), FIVE, JobDecision(ACCEPT, MoveTarget.SUSPECT, None,
    2, 2)),
    ("three workers died", WorkerCrashed(FAULT), JobHistory(2, 3), FIVE,
     JobDecision(ACCEPT, DEAD, FAILURE, 2, 3, cause="crashes")),
    ("second child", ChildLost("exit"), RAN, FIVE, JobDecision(ACCEPT, MoveTarget.QUEUE, JobState.RETRY, 2, 2)),
    ("third child", ChildLost("exit"), JobHistory(2, 2), FIVE, JobDecision(ACCEPT, DEAD, FAILURE, 2, 3,
    cause="lost-exit")),
    ("crash_limit", ChildLost("memory"), JobHistory(), JobPolicy(crash_limit=1),
     JobDecision(ACCEPT, DEAD, FAILURE, crashes=1, cause="lost-memory")),
    # task-queue.md "Delivery": what a clean stop gives back is marked, and raises no suspicion
    ("own stop", ChildLost("stopped", counts=False), JobHistory(2, 9), FIVE, JobDecision(ACCEPT, MoveTarget.SAME,
    None, 2, 9, clean=1)),
    ("given back", NotStarted(), RAN, FIVE, JobDecision(ACCEPT, MoveTarget.SAME, None, 2, 1, clean=1)),
    # task-queue.md "Delivery": a count of 2 or more is only a suspicion
    ("suspicion", SuspectedCrash(), JobHistory(2, 1, deliveries=2), FIVE, JobDecision(ACCEPT, MoveTarget.SUSPECT,
    None, 2, 1)),
    # docs/tasks.rst "no worker knows its task"; task-queue.md "Delivery": the fifth delivery is the last, so not spent
    ("unknown, first", UnknownTask("f"), JobHistory(2, 1), FIVE, JobDecision(RELEASE, attempt=2, hold_s=1.0)),
    ("unknown, third", UnknownTask("f"), JobHistory(2, deliveries=3), FIVE, JobDecision(RELEASE, attempt=2,
    hold_s=4.0)),
    ("unknown, last but one", UnknownTask("f"), JobHistory(2, 1, deliveries=4), FIVE,
     JobDecision(ACCEPT, DEAD, FAILURE, 2, 1, cause="unknown-task")),
    # differs from "handed on": a release on the suspect topic would be counted as a crash there
    ("unknown suspect", UnknownTask("f", True), JobHistory(2, 1, deliveries=3, unknown=2), FIVE,
     JobDecision(ACCEPT, MoveTarget.SAME, None, 2, 1, hold_s=4.0, unknown=1)),
    ("unknown suspect, at once", UnknownTask("f", True), JobHistory(2, 1, deliveries=4), FIVE,
     JobDecision(ACCEPT, MoveTarget.SAME, None, 2, 1, unknown=1)),
    ("unknown suspect, spared", UnknownTask("f", True), JobHistory(2, 1, deliveries=2, excused=1), FIVE,
     JobDecision(ACCEPT, MoveTarget.SAME, None, 2, 1, unknown=1)),
    ("unknown suspect, fourth", UnknownTask("f", True), JobHistory(2, 1, unknown=3), FIVE,
     JobDecision(ACCEPT, DEAD, FAILURE, 2, 1, cause="unknown-task")),
    ("no job", InvalidRecord("bad-id", "x"), JobHistory(), JobPolicy(), JobDecision(ACCEPT, DEAD, FAILURE,
    cause="bad-id")),
    # task-queue.md "Topics of an app": a worker whose lock is gone produces no terminal record
    ("lock lost", LockLost(), RAN, FIVE, JobDecision(DROP)),
]  # fmt: skip


def test_each_row_of_the_table_holds() -> None:
    found = {row[0]: decide(row[1], row[2], row[3], NOW) for row in ROWS}
    assert found == {row[0]: row[4] for row in ROWS}
    assert len(found) == len(ROWS)
    assert {type(row[1]).__name__ for row in ROWS} == set(str(Outcome).split(" | "))


def test_by_default_it_is_the_first_run_of_a_task_without_a_policy() -> None:
    assert JobPolicy() == JobPolicy(max_attempts=None, crash_limit=3, delivery_limit=5, store_result=True)
    assert JobHistory() == JobHistory(attempt=1, crashes=0, deliveries=1, expires_ms=None, unknown=0, excused=0)
    assert JobDecision(DROP) == JobDecision(DROP, MoveTarget.NOWHERE, None, 1, 0, 0, "", 0.0, 0)
    assert AttemptFailed(FAULT) == AttemptFailed(FAULT, listed=True, kill_signal=None, handlers_called=True)
    assert UnknownTask("f") == UnknownTask("f", suspect=False)
    assert ChildLost("exit") == ChildLost("exit", counts=True)


def test_outcomes_and_decisions_are_values_that_cannot_be_changed() -> None:
    changeable: list[object] = []
    for each in (FAULT, RAN, FIVE, *(row[1] for row in ROWS), *(row[4] for row in ROWS)):
        try:
            hash(each)
        except TypeError:
            changeable.append(each)
        if hasattr(each, "__dict__"):
            changeable.append(each)
    assert changeable == []


def test_the_causes_of_a_lost_job_are_known_by_these_texts() -> None:
    assert LOST_CAUSES == {
        "time": "killed at its time limit",
        "memory": "killed at its memory limit",
        "oom": "killed by the kernel's OOM killer",
        "signal": "killed by a signal that the worker did not send",
        "exit": "the task ended its process",
        "channel": "its channel was closed or damaged",
        "frozen": "its process was stopped",
        "stopped": "the worker is stopping",
    }
    assert ChildLost(
        "exit", exit_code=3, rss_bytes=1 << 20, peak_rss_bytes=2 << 20, cpu_s=1.5, detail="x"
    ).error_info().text == (
        "the job's process ended: the task ended its process; exit code 3; last RSS 1 MiB; peak RSS 2 MiB; "
        "1.5 s of CPU time; x"
    )
    assert ChildLost("exit").error_info().text == "the job's process ended: the task ended its process"


def every_decision() -> list[tuple[Outcome, JobHistory, JobPolicy, JobDecision]]:
    outcomes: list[Outcome] = [row[1] for row in ROWS]
    standings = [
        JobHistory(attempt, crashes, deliveries, expires)
        for attempt, crashes, deliveries, expires in itertools.product(
            (1, 2, 5, 6), (0, 2, 3, 4), (1, 3, 4, 5, 9), (None, NOW, NOW + 1)
        )
    ]
    policies = [JobPolicy(attempts, store_result=store) for attempts in (None, 1, 5) for store in (True, False)]
    return [
        (outcome, history, policy, decide(outcome, history, policy, NOW))
        for outcome, history, policy in itertools.product(outcomes, standings, policies)
    ]


def test_no_job_is_accepted_without_a_trace() -> None:
    for outcome, _, policy, decision in every_decision():
        if decision.verdict is ACCEPT and decision.move is MoveTarget.NOWHERE and decision.state is None:
            assert isinstance(outcome, JobSucceeded)
            assert not policy.store_result


def test_no_job_is_rejected_and_none_that_ran_is_released() -> None:
    for outcome, _, _, decision in every_decision():
        assert decision.verdict is not LeaseVerdict.REJECT
        assert decision.verdict is not RELEASE or isinstance(outcome, UnknownTask)


def test_what_is_dead_has_a_cause_and_a_failure() -> None:
    for _, _, _, decision in every_decision():
        if decision.move is MoveTarget.DEAD:
            assert decision.cause
            assert decision.state is JobState.FAILURE


def test_all_attempts_are_counted_the_first_included() -> None:
    attempt, runs = 1, 0
    while True:
        runs += 1
        decision = decide(AttemptFailed(FAULT), JobHistory(attempt), JobPolicy(max_attempts=3), NOW)
        if decision.move is MoveTarget.DEAD:
            break
        attempt = decision.attempt
    assert runs == 3


def test_a_retry_keeps_the_crash_count_and_a_clean_return_keeps_both() -> None:
    retried = decide(AttemptFailed(FAULT), JobHistory(attempt=2, crashes=1), FIVE, NOW)
    assert (retried.attempt, retried.crashes) == (3, 1)
    returned = decide(NotStarted(), JobHistory(attempt=2, crashes=1), FIVE, NOW)
    assert (returned.attempt, returned.crashes, returned.clean) == (2, 1, 1)


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


def test_a_death_that_is_not_the_jobs_gives_it_back_as_it_was() -> None:
    decision = decide(ChildLost("stopped", 15, counts=False), JobHistory(attempt=2, crashes=2), FIVE, NOW)
    assert (decision.move, decision.attempt, decision.crashes, decision.clean) == (MoveTarget.SAME, 2, 2, 1)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (ChildLost("signal", 11), ["signal 11 (SIGSEGV)", "worker did not send"]),
        (ChildLost("exit", exit_code=0), ["exit code 0", "ended its process"]),
        (ChildLost("memory", 9, rss_bytes=512 << 20), ["memory limit", "SIGKILL", "512 MiB"]),
        (ChildLost("oom", 9, None, 1 << 30, "3 kills in its cgroup"), ["OOM killer", "1024 MiB", "3 kills in its"]),
        (ChildLost("signal", 9, rss_bytes=50 << 20, peak_rss_bytes=900 << 20), ["last RSS 50 MiB; peak RSS 900 MiB"]),
        (ChildLost("signal", 9, peak_rss_bytes=900 << 20), ["(SIGKILL); peak RSS 900 MiB"]),
        (ChildLost("time", 9), ["time limit"]),
        (ChildLost("new cause", 200), ["new cause", "signal 200 (unknown)"]),
    ],
)
def test_a_lost_job_says_signal_exit_code_memory_and_cause(lost: ChildLost, words: list[str]) -> None:
    error_info = lost.error_info()
    assert error_info.type == "WorkerLost"
    assert [word for word in words if word not in error_info.text] == []


def test_a_peak_that_is_no_more_than_what_was_seen_is_not_reported() -> None:
    assert "peak" not in ChildLost("oom", 9, rss_bytes=900 << 20, peak_rss_bytes=(900 << 20) + 4096).error_info().text


def test_an_unknown_task_is_held_longer_each_time() -> None:
    holds = [decide(UnknownTask("f"), JobHistory(deliveries=n), JobPolicy(), NOW).hold_s for n in (1, 2, 3)]
    assert holds == [1, 2, 4]
    suspect = UnknownTask("f", True)
    holds = [decide(suspect, JobHistory(unknown=n, deliveries=3), JobPolicy(), NOW).hold_s for n in (0, 1, 2)]
    assert holds == [1, 2, 4]
    for last in (JobHistory(deliveries=4), JobHistory(deliveries=2, excused=1)):
        decision = decide(suspect, last, JobPolicy(), NOW)
        assert (decision.hold_s, decision.move) == (0, MoveTarget.SAME), (
            "written anew before the broker's limit is reached"
        )


def test_a_suspect_of_an_unknown_task_keeps_its_crashes() -> None:
    decision = decide(UnknownTask("f", True), JobHistory(attempt=2, crashes=2, unknown=1), JobPolicy(), NOW)
    assert (decision.attempt, decision.crashes, decision.clean, decision.unknown) == (2, 2, 0, 1)


@pytest.mark.parametrize(
    ("history", "known", "suspect", "expected"),
    [
        (JobHistory(), True, False, None),
        (JobHistory(), True, True, None),
        (JobHistory(deliveries=2), True, False, SuspectedCrash()),
        (JobHistory(deliveries=2, crashes=1), True, True, None),
        (JobHistory(deliveries=4, crashes=3), True, True, THREE_CRASHES),
        (JobHistory(crashes=2), True, False, None),
        (JobHistory(), False, False, UnknownTask("f")),
        (JobHistory(deliveries=3), False, False, UnknownTask("f")),
        (JobHistory(deliveries=3), False, True, UnknownTask("f", True)),
        (JobHistory(deliveries=4, crashes=2, excused=1), True, True, NotStarted()),
        (JobHistory(deliveries=4, crashes=3, excused=1), True, True, THREE_CRASHES),
        (JobHistory(expires_ms=NOW), True, False, JobExpired()),
        (JobHistory(expires_ms=NOW), False, False, JobExpired()),
        (JobHistory(expires_ms=NOW + 1), True, False, None),
    ],
)
def test_a_leased_job_runs_unless_there_is_a_reason(
    history: JobHistory, known: bool, suspect: bool, expected: Outcome | None
) -> None:
    assert admit("f", history, JobPolicy(), known=known, suspect=suspect, now_ms=NOW) == expected


def test_only_deliveries_on_the_suspect_topic_are_crashes() -> None:
    assert crashes_of(1, deliveries=4, suspect=False) == 1
    assert crashes_of(1, deliveries=1, suspect=True) == 1
    assert crashes_of(1, deliveries=3, suspect=True) == 3
    assert crashes_of(1, deliveries=3, suspect=True, excused=2) == 1

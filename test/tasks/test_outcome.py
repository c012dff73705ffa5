"""Tests of ``kafka.tasks.outcome``: every cell of its table."""

from __future__ import annotations

import itertools

import pytest

from kafka.tasks.outcome import (
    LOST_CAUSES,
    Cancelled,
    Crashed,
    Decision,
    Expired,
    Failed,
    Fault,
    LockLost,
    Lost,
    Move,
    NoJob,
    NotStarted,
    Outcome,
    Policy,
    Standing,
    Succeeded,
    Suspicious,
    Unknown,
    Verdict,
    admit,
    crashes_of,
    decide,
)
from kafka.tasks.states import JobState

NOW = 1_000_000
FAULT = Fault("OSError", "disk")
ACCEPT, RELEASE, DROP = Verdict.ACCEPT, Verdict.RELEASE, Verdict.DROP
FIVE = Policy(max_attempts=5)
THREE_CRASHES = Crashed(Fault("WorkerLost", "3 workers died while they ran this job"))

TABLE: list[tuple[Outcome, Standing, Policy, Verdict, Move, JobState | None, str]] = [
    (Succeeded(b"1"), Standing(), Policy(), ACCEPT, Move.NOWHERE, JobState.SUCCESS, ""),
    (Succeeded(b""), Standing(), Policy(store_result=False), ACCEPT, Move.NOWHERE, None, ""),
    (Failed(FAULT), Standing(), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "error"),
    (Failed(FAULT, False), Standing(), FIVE, ACCEPT, Move.DEAD, JobState.FAILURE, "error-not-listed"),
    (Failed(FAULT), Standing(attempt=5), FIVE, ACCEPT, Move.DEAD, JobState.FAILURE, "attempts"),
    (Failed(FAULT), Standing(expires_ms=NOW), FIVE, ACCEPT, Move.DEAD, JobState.FAILURE, "expired"),
    (Failed(FAULT), Standing(attempt=4), FIVE, ACCEPT, Move.QUEUE, JobState.RETRY, ""),
    (Failed(FAULT), Standing(expires_ms=NOW + 1), FIVE, ACCEPT, Move.QUEUE, JobState.RETRY, ""),
    (Cancelled("no"), Standing(), FIVE, ACCEPT, Move.NOWHERE, JobState.REVOKED, "cancelled"),
    (Expired(), Standing(), FIVE, ACCEPT, Move.NOWHERE, JobState.REVOKED, "expired"),
    (Crashed(FAULT), Standing(crashes=2), Policy(), ACCEPT, Move.SUSPECT, None, ""),
    (Crashed(FAULT), Standing(crashes=3), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "crashes"),
    (Lost("exit"), Standing(crashes=1), Policy(), ACCEPT, Move.QUEUE, JobState.RETRY, ""),
    (Lost("exit"), Standing(crashes=2), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "lost-exit"),
    (Lost("memory"), Standing(), Policy(crash_limit=1), ACCEPT, Move.DEAD, JobState.FAILURE, "lost-memory"),
    (Lost("stopped", counts=False), Standing(crashes=9), Policy(), ACCEPT, Move.SAME, None, ""),
    (Suspicious(), Standing(deliveries=2), Policy(), ACCEPT, Move.SUSPECT, None, ""),
    (NotStarted(), Standing(), Policy(), ACCEPT, Move.SAME, None, ""),
    (Unknown("f"), Standing(deliveries=3), Policy(), RELEASE, Move.NOWHERE, None, ""),
    (Unknown("f"), Standing(deliveries=4), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "unknown-task"),
    (Unknown("f", True), Standing(deliveries=3, unknown=2), Policy(), ACCEPT, Move.SAME, None, ""),
    (Unknown("f", True), Standing(unknown=3), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "unknown-task"),
    (NoJob("bad-id", "x"), Standing(), Policy(), ACCEPT, Move.DEAD, JobState.FAILURE, "bad-id"),
    (LockLost(), Standing(), FIVE, DROP, Move.NOWHERE, None, ""),
]


@pytest.mark.parametrize(("outcome", "standing", "policy", "verdict", "move", "state", "cause"), TABLE)
def test_each_row_of_the_table_holds(
    outcome: Outcome,
    standing: Standing,
    policy: Policy,
    verdict: Verdict,
    move: Move,
    state: JobState | None,
    cause: str,
) -> None:
    decision = decide(outcome, standing, policy, NOW)
    assert (decision.verdict, decision.move, decision.state, decision.cause) == (verdict, move, state, cause)


def every_decision() -> list[tuple[Outcome, Standing, Policy, Decision]]:
    outcomes: list[Outcome] = [row[0] for row in TABLE]
    standings = [
        Standing(attempt, crashes, deliveries, expires)
        for attempt, crashes, deliveries, expires in itertools.product(
            (1, 2, 5, 6), (0, 2, 3, 4), (1, 3, 4, 5, 9), (None, NOW, NOW + 1)
        )
    ]
    policies = [Policy(attempts, store_result=store) for attempts in (None, 1, 5) for store in (True, False)]
    return [
        (outcome, standing, policy, decide(outcome, standing, policy, NOW))
        for outcome, standing, policy in itertools.product(outcomes, standings, policies)
    ]


def test_no_job_is_accepted_without_a_trace() -> None:
    for outcome, _, policy, decision in every_decision():
        if decision.verdict is ACCEPT and decision.move is Move.NOWHERE and decision.state is None:
            assert isinstance(outcome, Succeeded)
            assert not policy.store_result


def test_no_job_is_rejected_and_none_that_ran_is_released() -> None:
    for outcome, _, _, decision in every_decision():
        assert decision.verdict is not Verdict.REJECT
        assert decision.verdict is not RELEASE or isinstance(outcome, Unknown)


def test_what_is_dead_has_a_cause_and_a_failure() -> None:
    for _, _, _, decision in every_decision():
        if decision.move is Move.DEAD:
            assert decision.cause
            assert decision.state is JobState.FAILURE


def test_all_attempts_are_counted_the_first_included() -> None:
    attempt, runs = 1, 0
    while True:
        runs += 1
        decision = decide(Failed(FAULT), Standing(attempt), Policy(max_attempts=3), NOW)
        if decision.move is Move.DEAD:
            break
        attempt = decision.attempt
    assert runs == 3


def test_a_retry_keeps_the_crash_count_and_a_clean_return_keeps_both() -> None:
    retried = decide(Failed(FAULT), Standing(attempt=2, crashes=1), FIVE, NOW)
    assert (retried.attempt, retried.crashes) == (3, 1)
    returned = decide(NotStarted(), Standing(attempt=2, crashes=1), FIVE, NOW)
    assert (returned.attempt, returned.crashes, returned.clean) == (2, 1, 1)


@pytest.mark.parametrize("cause", sorted(LOST_CAUSES))
def test_a_child_that_dies_is_a_crash_and_no_attempt_and_its_job_is_dead_at_the_limit(cause: str) -> None:
    crashes, runs = 0, 0
    while True:
        runs += 1
        decision = decide(Lost(cause), Standing(attempt=2, crashes=crashes), FIVE, NOW)
        assert (decision.attempt, decision.crashes) == (2, crashes + 1)
        crashes = decision.crashes
        if decision.move is Move.DEAD:
            break
    assert (runs, decision.cause) == (3, f"lost-{cause}")


def test_a_death_that_is_not_the_jobs_gives_it_back_as_it_was() -> None:
    decision = decide(Lost("stopped", 15, counts=False), Standing(attempt=2, crashes=2), FIVE, NOW)
    assert (decision.move, decision.attempt, decision.crashes, decision.clean) == (Move.SAME, 2, 2, 1)


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (Lost("signal", 11), ["signal 11 (SIGSEGV)", "nobody here sent"]),
        (Lost("exit", exit_code=0), ["exit code 0", "ended its process"]),
        (Lost("memory", 9, rss_bytes=512 << 20), ["memory limit", "SIGKILL", "512 MiB"]),
        (Lost("oom", 9, None, 1 << 30, "3 kills in its cgroup"), ["out of memory", "1024 MiB", "3 kills in its"]),
        (Lost("signal", 9, rss_bytes=50 << 20, peak_rss_bytes=900 << 20), ["last seen with 50 MiB; peak 900 MiB"]),
        (Lost("signal", 9, peak_rss_bytes=900 << 20), ["(SIGKILL); peak 900 MiB"]),
        (Lost("time", 9), ["time limit"]),
        (Lost("new cause", 200), ["new cause", "signal 200 (unknown)"]),
    ],
)
def test_a_lost_job_says_signal_exit_code_memory_and_cause(lost: Lost, words: list[str]) -> None:
    fault = lost.fault()
    assert fault.type == "WorkerLost"
    assert [word for word in words if word not in fault.text] == []


def test_a_peak_that_is_no_more_than_what_was_seen_is_not_told() -> None:
    assert "peak" not in Lost("oom", 9, rss_bytes=900 << 20, peak_rss_bytes=(900 << 20) + 4096).fault().text


def test_an_unknown_task_is_held_longer_each_time() -> None:
    holds = [decide(Unknown("f"), Standing(deliveries=n), Policy(), NOW).hold_s for n in (1, 2, 3)]
    assert holds == [1, 2, 4]
    suspect = Unknown("f", True)
    holds = [decide(suspect, Standing(unknown=n, deliveries=3), Policy(), NOW).hold_s for n in (0, 1, 2)]
    assert holds == [1, 2, 4]
    for last in (Standing(deliveries=4), Standing(deliveries=2, spared=1)):
        decision = decide(suspect, last, Policy(), NOW)
        assert (decision.hold_s, decision.move) == (0, Move.SAME), "written anew before the broker's limit is reached"


def test_a_suspect_of_an_unknown_task_keeps_its_crashes() -> None:
    decision = decide(Unknown("f", True), Standing(attempt=2, crashes=2, unknown=1), Policy(), NOW)
    assert (decision.attempt, decision.crashes, decision.clean, decision.unknown) == (2, 2, 0, 1)


@pytest.mark.parametrize(
    ("standing", "known", "suspect", "expected"),
    [
        (Standing(), True, False, None),
        (Standing(), True, True, None),
        (Standing(deliveries=2), True, False, Suspicious()),
        (Standing(deliveries=2, crashes=1), True, True, None),
        (Standing(deliveries=4, crashes=3), True, True, THREE_CRASHES),
        (Standing(crashes=2), True, False, None),
        (Standing(), False, False, Unknown("f")),
        (Standing(deliveries=3), False, False, Unknown("f")),
        (Standing(deliveries=3), False, True, Unknown("f", True)),
        (Standing(deliveries=4, crashes=2, spared=1), True, True, NotStarted()),
        (Standing(deliveries=4, crashes=3, spared=1), True, True, THREE_CRASHES),
        (Standing(expires_ms=NOW), True, False, Expired()),
        (Standing(expires_ms=NOW), False, False, Expired()),
        (Standing(expires_ms=NOW + 1), True, False, None),
    ],
)
def test_a_leased_job_runs_unless_there_is_a_reason(
    standing: Standing, known: bool, suspect: bool, expected: Outcome | None
) -> None:
    assert admit("f", standing, Policy(), known=known, suspect=suspect, now_ms=NOW) == expected


def test_only_deliveries_on_the_suspect_topic_are_crashes() -> None:
    assert crashes_of(1, deliveries=4, suspect=False) == 1
    assert crashes_of(1, deliveries=1, suspect=True) == 1
    assert crashes_of(1, deliveries=3, suspect=True) == 3
    assert crashes_of(1, deliveries=3, suspect=True, spared=2) == 1

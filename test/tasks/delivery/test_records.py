"""Tests of ``kafka.tasks.delivery.records``: what is written for each decision, and where."""

from __future__ import annotations

import json

import pytest

from kafka.tasks.delivery.base import JobLease, JobSource, OutgoingRecord, RecordKind, SourceKind
from kafka.tasks.delivery.records import (
    StateRecords,
    is_result,
    late_copy,
    outcome_error,
    result_too_large,
    without_payload,
    without_traceback,
)
from kafka.tasks.format.commands import PUT, Command, decode_command
from kafka.tasks.format.envelope import MOST_HEADERS, DeadLetter, Envelope, Header, dead_letter_of, decode
from kafka.tasks.format.job_id import time_of
from kafka.tasks.format.topics import TopicNames
from kafka.tasks.rules.decide import JobHistory, JobPolicy, decide
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    InvalidRecord,
    JobCancelled,
    JobExpired,
    JobRetried,
    JobSnoozed,
    JobSucceeded,
    NotDue,
    NotStarted,
    Outcome,
    SuspectedCrash,
    UnknownTask,
    WorkerCrashed,
)
from kafka.tasks.states import JobState
from test.tasks.fakes import a_job

NAMES = TopicNames("shop")
MAKER = StateRecords(NAMES, "host1", 4)
MAIN = JobSource("mail", "shop.mail")
DUE = JobSource("mail", "shop.mail.due", SourceKind.DUE)
SUSPECTS = JobSource("mail", "shop.mail.suspect", SourceKind.SUSPECT)
FAULT = ErrorInfo("OSError", "disk", "Trace")
TWICE = JobPolicy(max_attempts=2)


def a_lease(envelope: Envelope, source: JobSource = MAIN) -> JobLease:
    return JobLease(source, envelope.value, envelope.headers(), 3, 2, 77, key=envelope.key)


def records_of(
    outcome: Outcome,
    envelope: Envelope,
    source: JobSource = MAIN,
    policy: JobPolicy = TWICE,
    after_ms: int = 0,
    delay_ms: int = 0,
) -> list[OutgoingRecord]:
    """What is written when a job ends so, so long after its enqueue."""
    now_ms = time_of(envelope.id) + after_ms
    history = JobHistory(
        envelope.attempt, envelope.crashes, 3, envelope.expires_ms, envelope.unknown, envelope.unknown_since_ms,
        envelope.due_ms,
    )  # fmt: skip
    decision = decide(outcome, history, policy, now_ms, delay_ms)
    return MAKER.for_decision(decision, outcome, envelope, a_lease(envelope, source), now_ms)


def job_of(record: OutgoingRecord) -> Envelope:
    """The job in a record."""
    return decode(record.value, record.headers or [], record.key)


def command_of(record: OutgoingRecord) -> tuple[Command, Envelope]:
    """The command in a record, and the job in that."""
    command = decode_command(record.key, record.value, record.headers or [])
    assert command is not None
    assert command.job is not None
    return command, decode(command.job.value, command.job.headers, command.job.key)


def death_of(record: OutgoingRecord) -> DeadLetter:
    death = dead_letter_of(record.headers or [])
    assert death is not None
    return death


def detail_of(record: OutgoingRecord) -> dict[str, object]:
    """The value of a state record."""
    found = json.loads(record.value or b"")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("source", [MAIN, DUE, SUSPECTS])
def test_what_each_outcome_writes_and_where(source: JobSource) -> None:
    job, dead = RecordKind.JOB, (RecordKind.DEAD, "shop.mail.dead")
    state, due, suspect = (RecordKind.STATE, "shop.results"), (job, "shop.mail.due"), (job, "shop.mail.suspect")
    back = suspect if source is SUSPECTS else due
    schedule = (RecordKind.COMMAND, "shop.commands")
    rows: list[tuple[Outcome, list[tuple[RecordKind, str]]]] = [
        (JobSucceeded(b"1"), [state]),
        (AttemptFailed(FAULT), [due, state]),
        (AttemptFailed(FAULT, listed=False), [dead, state]),
        (JobRetried(5), [due, state]),
        (JobRetried(10**17), [schedule, state]),
        (JobSnoozed(5), [schedule, state]),
        (JobCancelled("no"), [state]),
        (JobExpired(), [state]),
        (WorkerCrashed(FAULT), [dead, state]),
        (ChildLost("exit"), [due, state]),
        (ChildLost("stopped", counts=False), [back]),
        (SuspectedCrash(), [suspect]),
        (NotStarted(), [back]),
        (NotDue(10**17), [schedule]),
        (UnknownTask("f"), [schedule]),
        (InvalidRecord("no-job", "x"), [dead, state]),
    ]
    found = [(outcome, [(r.kind, r.topic) for r in records_of(outcome, a_job("f"), source)]) for outcome, _ in rows]
    assert found == rows


def test_a_result_that_is_not_stored_writes_nothing() -> None:
    assert records_of(JobSucceeded(b""), a_job("f"), policy=JobPolicy(store_result=False)) == []


def test_a_state_record_has_the_id_as_its_key_and_is_in_the_ids_partition() -> None:
    envelope = a_job("f", partition=6, attempt=2, key=b"customer 7")
    (record,) = records_of(JobSucceeded(b"42"), envelope)
    assert record == OutgoingRecord(
        RecordKind.STATE, "shop.results", b"42", envelope.id.encode(),
        [("state", b"SUCCESS"), ("attempt", b"2"), ("delivery", b"3")], 6,
    )  # fmt: skip
    assert MAKER.state(envelope, JobState.STARTED, 3, b"", time_of(envelope.id)) == OutgoingRecord(
        RecordKind.STATE, "shop.results", b"", envelope.id.encode(),
        [("state", b"STARTED"), ("attempt", b"2"), ("delivery", b"3")], 6,
    )  # fmt: skip


@pytest.mark.parametrize(("after_ms", "topic"), [(60_000, "shop.results"), (60_001, "shop.results.late")])
def test_a_state_record_later_than_a_minute_after_the_enqueue_is_in_the_late_topic(after_ms: int, topic: str) -> None:
    (record,) = records_of(JobSucceeded(b""), a_job("f"), after_ms=after_ms)
    assert record.topic == topic


def test_a_moved_job_keeps_all_that_it_had_and_says_how_far_it_has_come() -> None:
    own = {
        "expires_ms": 10**17, "timeout": 9.0, "soft_timeout": 5.0, "store_result": False, "content_type": "text/plain",
        "needs": ("rust",), "run": "daily@1", "origin": "a" * 32, "parent": "b" * 32, "root": "c" * 32,
        "extra": (("traceparent", b"00-1"), ("x", None)), "key": b"customer 7",
    }  # fmt: skip
    came = a_job("f", 1, attempt=1, crashes=1, clean=2, unknown=3, unknown_since_ms=5, due_ms=6, **own)
    # outcome -> attempt, crashes, clean, unknown, unknown since, due
    rows: list[tuple[Outcome, tuple[int, int, int, int, int | None, int | None]]] = [
        (AttemptFailed(FAULT), (2, 1, 2, 0, None, None)),
        (AttemptFailed(FAULT, listed=False), (1, 1, 2, 3, 5, None)),  # dead: as it was, and it may start at once
        (ChildLost("exit"), (1, 2, 2, 0, None, None)),
        (SuspectedCrash(), (1, 1, 2, 3, 5, 6)),
        (NotStarted(), (1, 1, 3, 3, 5, 6)),
    ]
    for outcome, (attempt, crashes, clean, unknown, since, due) in rows:
        record = records_of(outcome, came)[0]
        headers = [header for header in record.headers or [] if not header[0].startswith("dead-")]
        assert decode(record.value, headers, record.key) == Envelope(
            came.id, "f", came.value, attempt=attempt, crashes=crashes, clean=clean, unknown=unknown,
            unknown_since_ms=since, due_ms=due, **own,
        )  # fmt: skip
        assert (record.key, record.partition) == (b"customer 7", None)


def test_a_job_for_later_is_put_into_the_schedule_with_all_that_it_had() -> None:
    own = {
        "expires_ms": 10**17, "timeout": 9.0, "content_type": "text/plain", "origin": "a" * 32,
        "extra": (("traceparent", b"00-1"), ("x", None)), "key": b"customer 7",
    }  # fmt: skip
    now_ms = 1_700_000_000_000
    came = Envelope(
        f"{now_ms:012x}" + "0001" + "0" * 15 + "6", "f", b"[]", crashes=1, clean=2, unknown=3,
        unknown_since_ms=now_ms - 9, generation=4, due_ms=6, **own,
    )  # fmt: skip
    # outcome -> its time, attempt, unknown, unknown since
    rows: list[tuple[Outcome, tuple[int, int, int, int | None]]] = [
        (AttemptFailed(FAULT), (now_ms + 4, 2, 0, None)),
        (JobRetried(now_ms + 9000), (now_ms + 9000, 2, 0, None)),
        (JobSnoozed(7000), (now_ms + 7000, 1, 0, None)),
        (NotDue(now_ms + 8), (now_ms + 8, 1, 3, now_ms - 9)),
        (UnknownTask("f"), (now_ms + 8000, 1, 4, now_ms - 9)),
    ]
    for outcome, (due_ms, attempt, unknown, since) in rows:
        record = records_of(outcome, came, delay_ms=4)[0]
        assert (record.kind, record.topic, record.key) == (RecordKind.COMMAND, "shop.commands", came.id.encode())
        assert record.partition == 2  # kafka.tasks.format.commands: by the last random bits of the id; 6 of 4
        command, job = command_of(record)
        assert (command.kind, command.due_ms, command.generation, command.expires_ms) == (PUT, due_ms, 5, 10**17)
        assert command.job is not None
        assert command.job.queue == "mail"
        assert job == Envelope(
            came.id, "f", b"[]", attempt=attempt, crashes=1, clean=2, unknown=unknown, unknown_since_ms=since,
            generation=5, **own,
        )  # fmt: skip


def test_what_waits_in_the_schedule_says_so_and_until_when() -> None:
    """Readers look for what follows from that time on; what does not wait says no time."""
    envelope = a_job("f", attempt=1)
    now_ms = time_of(envelope.id)
    rows: list[tuple[Outcome, int, list[Header]]] = [
        (JobSnoozed(7000), 0, [("state", b"SCHEDULED"), ("attempt", b"1"), ("due", b"%d" % (now_ms + 7000))]),
        (AttemptFailed(FAULT), 9, [("state", b"RETRY"), ("attempt", b"1"), ("due", b"%d" % (now_ms + 9))]),
        (AttemptFailed(FAULT), 0, [("state", b"RETRY"), ("attempt", b"1")]),
        (ChildLost("exit"), 0, [("state", b"RETRY"), ("attempt", b"1")]),
    ]
    for outcome, delay_ms, expected in rows:
        state = records_of(outcome, envelope, delay_ms=delay_ms)[-1]
        headers = [header for header in state.headers or [] if header[0] != "delivery"]
        assert (state.kind, state.key, headers) == (RecordKind.STATE, envelope.id.encode(), expected)
    assert records_of(JobSnoozed(7000), envelope)[-1].value == b""


def test_a_dead_job_keeps_its_headers_and_gets_its_cause() -> None:
    envelope = a_job("f", attempt=2, extra=(("x", b"1"),), key=b"k")
    dead, state = records_of(AttemptFailed(FAULT), envelope, after_ms=5)
    assert job_of(dead) == envelope
    assert death_of(dead) == DeadLetter(
        "attempts", "OSError", "disk", "Trace", "host1", time_of(envelope.id) + 5, "shop.mail:2:77"
    )
    assert dict(state.headers or [])["state"] == b"FAILURE"
    assert detail_of(state) == {
        "type": "OSError", "text": "disk", "traceback": "Trace", "host": "host1", "time": time_of(envelope.id) + 5
    }  # fmt: skip


def test_a_job_whose_child_died_too_often_says_of_what() -> None:
    outcome = ChildLost("memory", 9, None, 600 << 20, "above 512 MiB", peak_rss_bytes=800 << 20)
    dead, state = records_of(outcome, a_job("f", crashes=2))
    death = death_of(dead)
    assert (death.cause, death.type) == ("lost-memory", "WorkerLost")
    assert "signal 9 (SIGKILL); last RSS 600 MiB; peak RSS 800 MiB; above 512 MiB" in death.text
    assert job_of(dead).crashes == 3
    assert dict(state.headers or [])["state"] == b"FAILURE"
    assert detail_of(state)["text"] == death.text


def test_what_a_reader_sees_of_a_job_that_does_not_succeed() -> None:
    rows: list[tuple[Outcome, str, dict[str, object]]] = [
        (AttemptFailed(FAULT), "RETRY", {"type": "OSError", "text": "disk", "traceback": "Trace"}),
        (JobRetried(5, "rate limit"), "RETRY", {"type": "RetryAt", "text": "rate limit"}),
        (ChildLost("exit"), "RETRY",
         {"type": "WorkerLost", "text": "the job's process ended: the task ended its process"}),
        (JobCancelled("no stock"), "REVOKED", {"reason": "no stock", "host": "host1"}),
        (JobExpired(), "REVOKED", {"reason": "expired before it started", "host": "host1"}),
        (WorkerCrashed(FAULT), "FAILURE", {"type": "OSError", "host": "host1"}),
    ]  # fmt: skip
    for outcome, state, expected in rows:
        record = records_of(outcome, a_job("f"))[-1]
        assert dict(record.headers or [])["state"] == state.encode()
        assert expected.items() <= detail_of(record).items()


def test_what_went_wrong_by_outcome() -> None:
    rows: list[tuple[Outcome, ErrorInfo]] = [
        (AttemptFailed(FAULT), FAULT),
        (WorkerCrashed(FAULT), FAULT),
        (ChildLost("time"), ErrorInfo("WorkerLost", "the job's process ended: killed at its time limit")),
        (UnknownTask("a.b", "it is new"),
         ErrorInfo("UnknownTask", "no worker that received the job could run the task 'a.b': it is new")),
        (JobRetried(5, "rate limit"), ErrorInfo("RetryAt", "rate limit")),
        (InvalidRecord("no-job", "what is this"), ErrorInfo("BadRecord", "what is this")),
        (NotStarted(), ErrorInfo("NotStarted")),
    ]  # fmt: skip
    assert [(outcome, outcome_error(outcome)) for outcome, _ in rows] == rows


def test_what_is_no_job_goes_to_the_dead_topic_as_it_was() -> None:
    lease = JobLease(MAIN, None, [("x", b"1"), ("dead-cause", b"older")], 1, 0, 3, key=b"k")
    (record,) = MAKER.no_job(lease, InvalidRecord("no-job", "what is this"), 5)
    assert (record.kind, record.topic, record.value, record.key) == (RecordKind.DEAD, "shop.mail.dead", None, b"k")
    assert death_of(record) == DeadLetter("no-job", "BadRecord", "what is this", "", "host1", 5, "shop.mail:0:3")
    assert [header for header in record.headers or [] if header[0] in ("x", "dead-cause")] == [
        ("x", b"1"), ("dead-cause", b"no-job")
    ]  # fmt: skip


@pytest.mark.parametrize(("count", "kept"), [(MOST_HEADERS, MOST_HEADERS), (MOST_HEADERS + 1, 0)])
def test_what_has_more_headers_than_a_job_is_dead_without_them(count: int, kept: int) -> None:
    lease = JobLease(MAIN, b"", [("x", b"1")] * count, 1)
    (record,) = MAKER.no_job(lease, InvalidRecord("too-many-headers", "x"), 5)
    assert [name for name, _ in record.headers or []].count("x") == kept
    assert death_of(record).cause == "too-many-headers"


def test_only_the_state_of_a_success_has_a_result_in_it() -> None:
    (success,) = records_of(JobSucceeded(b"1"), a_job("f"))
    retried, retry = records_of(AttemptFailed(FAULT), a_job("f"))
    (revoked,) = records_of(JobExpired(), a_job("f"))
    (moved,) = records_of(NotStarted(), a_job("f", extra=(("state", b"SUCCESS"),)))
    assert [is_result(each) for each in (success, late_copy(success, NAMES))] == [True, True]
    assert [is_result(each) for each in (retried, retry, revoked, moved)] == [False] * 4


def test_a_late_copy_differs_in_its_topic_alone() -> None:
    (record,) = records_of(JobSucceeded(b"1"), a_job("f", partition=3))
    assert late_copy(record, NAMES) == record._replace(topic="shop.results.late")


def test_a_state_without_its_traceback_still_says_what_went_wrong() -> None:
    state = records_of(AttemptFailed(ErrorInfo("OSError", "d" * 900, "Trace" * 900)), a_job("f"))[1]
    shorter = without_traceback(state)
    assert shorter._replace(value=state.value) == state
    assert detail_of(shorter) == {**detail_of(state), "text": "d" * 200 + "...", "traceback": ""}


def test_what_is_no_job_may_be_recorded_without_what_it_held() -> None:
    lease = JobLease(MAIN, b"x" * 900, [("x", b"1")], 1, 0, 3, key=b"k")
    (found,) = MAKER.no_job(lease, InvalidRecord("no-job", "what is this"), 5)
    record = without_payload(found)
    assert (record.kind, record.topic, record.value, record.key) == (RecordKind.DEAD, "shop.mail.dead", None, None)
    assert death_of(record).origin == "shop.mail:0:3"
    assert all(name.startswith("dead-") for name, _ in record.headers or [])


def test_a_result_that_is_too_large_is_an_error_that_no_attempt_mends() -> None:
    (record,) = records_of(JobSucceeded(b"x" * 5002), a_job("f"))
    outcome = result_too_large(a_job("f"), record)
    assert (outcome.listed, outcome.error_info.type) == (False, "PayloadTooLarge")
    assert outcome.error_info.text.startswith(
        "the result of task f is 5002 bytes, more than the topic shop.results accepts"
    )

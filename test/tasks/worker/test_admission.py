"""Tests of ``kafka.tasks.worker.admission``: which leased jobs run, within which limits, and how the others leave.

The rules are those of docs/tasks.rst ("What happens then", "When a worker dies"); the numbers of the log are ours.
"""

from __future__ import annotations

import logging
import random
from typing import Any

import pytest

from kafka.tasks import App, Retry, expo
from kafka.tasks.delivery.base import Ending, JobLease, JobSource, SourceKind
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.format.commands import JOB_KEY
from kafka.tasks.format.envelope import Envelope, Header
from kafka.tasks.format.envelope import decode as decode_job
from kafka.tasks.format.job_id import make_id
from kafka.tasks.format.records import decode as decode_state
from kafka.tasks.options import WorkerOptions
from kafka.tasks.pools.runner import Job
from kafka.tasks.rules.outcome import (
    AttemptFailed,
    ChildLost,
    ErrorInfo,
    JobCancelled,
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
from kafka.tasks.worker.admission import FALLBACK_BACKOFF_S, AdmissionPolicy

NOW = 1_700_000_000_000
QUEUE, DUE, SUSPECT = (
    JobSource("q", "shop.q"), JobSource("q", "shop.q.due", SourceKind.DUE),
    JobSource("q", "shop.q.suspect", SourceKind.SUSPECT),
)  # fmt: skip
ERROR = AttemptFailed(ErrorInfo("OSError", "disk"))
UNKNOWN = UnknownTask("plain", "it is new")
CAUSED = ("attempt", "crashes", "clean", "unknown")


def an_app() -> App:
    app = App("shop", bootstrap_servers="fake://")

    @app.task(name="plain")
    def plain() -> None: ...

    @app.task(name="again", retry=Retry(max_attempts=2))
    def again() -> None: ...

    @app.task(name="later", retry=Retry(max_attempts=4, backoff=expo(first=4, factor=2), jitter=False))
    def later() -> None: ...

    @app.task(name="quiet", store_result=False)
    def quiet() -> None: ...

    @app.task(name="limited", soft_timeout=5, timeout=9)
    def limited() -> None: ...

    return app


class Bench:
    """The policy with the tasks of an app; its ids may name the results partitions 0 to 7."""

    def __init__(self, **numbers: Any) -> None:
        self.app = an_app()
        self.admission = AdmissionPolicy(
            self.app.tasks, StateRecords(self.app.names, "h", 4), 8, WorkerOptions(**numbers), random.Random(0)
        )

    def lease(
        self, name: str = "plain", source: JobSource = QUEUE, deliveries: int = 1, excused: int = 0, partition: int = 0,
        **fields: Any,
    ) -> JobLease:  # fmt: skip
        job = Envelope(make_id(NOW, partition, b"\1" * 8), name, b"[]", **fields)
        lease = JobLease(source, job.value, job.headers(), deliveries, key=job.key)
        lease.excused = excused
        return lease

    def admit(self, name: str = "plain", source: JobSource = QUEUE, **fields: Any) -> Job | Ending:
        return self.admission.admit(self.lease(name, source, **fields), NOW)

    def end(self, outcome: Outcome, name: str = "plain", source: JobSource = QUEUE, **fields: Any) -> Ending:
        lease = self.lease(name, source, **fields)
        job = decode_job(lease.value, lease.headers, lease.key)
        return self.admission.end(lease, job, outcome, fields.get("crashes", 0), NOW)


def written(ending: Ending) -> list[str]:
    """The records of an ending: a state, or a topic with the headers that tell how far the job has come."""
    found = []
    for record in ending.records:
        headers = record.headers or []
        state = decode_state(record.key, record.value, headers)
        count = [f"{name}={raw.decode()}" for name, raw in headers if raw and name in CAUSED]
        cause = [raw.decode() for name, raw in headers if raw and name == "dead-cause"]
        due = [f"in {int(raw) - NOW} ms" for name, raw in headers if raw and name == "due"]
        found.append(state.state.name if state else " ".join([record.topic, *cause, *count, *due]))
    return found


def outcome_of(found: Job | Ending) -> object:
    """What becomes of a lease, as far as the worker goes by it."""
    if isinstance(found, Job):
        return "runs"
    marks = [name for name in ("is_move", "is_dead", "is_last") if getattr(found, name)]
    return [*written(found), *marks]


def test_which_leased_jobs_run_and_how_the_others_leave() -> None:
    # the lease -> "runs", or the records that end it and what the worker goes by
    dead = ["FAILURE", "is_dead", "is_last"]
    rows: list[tuple[dict[str, Any], object]] = [
        ({}, "runs"),
        ({"attempt": 3, "clean": 2}, "runs"),
        ({"source": DUE, "due_ms": NOW}, "runs"),
        ({"expires_ms": NOW + 1}, "runs"),
        ({"expires_ms": NOW}, ["REVOKED", "is_last"]),
        ({"deliveries": 2}, ["shop.q.suspect", "is_move"]),
        ({"deliveries": 2, "crashes": 1}, ["shop.q.suspect crashes=1", "is_move"]),
        ({"source": DUE, "deliveries": 2}, ["shop.q.suspect", "is_move"]),
        ({"crashes": 2}, "runs"),
        ({"crashes": 3}, ["shop.q.dead crashes crashes=3", *dead]),
        ({"source": SUSPECT, "deliveries": 3}, "runs"),
        ({"source": SUSPECT, "deliveries": 4}, ["shop.q.dead crashes crashes=3", *dead]),
        ({"source": SUSPECT, "deliveries": 4, "excused": 1}, ["shop.q.suspect crashes=2 clean=1", "is_move"]),
        ({"source": SUSPECT, "expires_ms": NOW}, ["REVOKED", "is_last"]),
        # not due: the schedule has it until then
        ({"source": DUE, "due_ms": NOW + 7}, ["shop.commands in 7 ms"]),
        ({"source": SUSPECT, "due_ms": NOW + 7, "crashes": 2}, ["shop.commands crashes=2 in 7 ms"]),
        ({"name": "new", "source": DUE, "due_ms": NOW + 7}, ["shop.commands in 7 ms"]),
        ({"source": DUE, "due_ms": NOW + 7, "deliveries": 2}, ["shop.commands in 7 ms"]),
        ({"source": DUE, "due_ms": NOW + 7, "expires_ms": NOW}, ["REVOKED", "is_last"]),
        # what this worker cannot run waits in the schedule, and starts at once where it can run
        ({"name": "new"}, ["shop.commands unknown=1 in 1000 ms"]),
        ({"name": "new", "deliveries": 3}, ["shop.q.suspect", "is_move"]),
        ({"name": "new", "source": DUE, "unknown": 2, "unknown_since_ms": NOW - 3000},
         ["shop.commands unknown=3 in 4000 ms"]),
        ({"name": "new", "source": DUE, "unknown": 9, "unknown_since_ms": NOW - 86_400_000},
         ["shop.q.dead unknown-task unknown=9", *dead]),
        ({"name": "new", "source": SUSPECT, "deliveries": 2, "crashes": 1},
         ["shop.commands crashes=2 unknown=1 in 1000 ms"]),
        ({"name": "new", "source": SUSPECT, "deliveries": 2, "excused": 1},
         ["shop.commands unknown=1 in 1000 ms"]),
        ({"source": DUE, "unknown": 2, "unknown_since_ms": NOW - 3000, "due_ms": NOW + 9}, "runs"),
        ({"needs": ("rust",)}, ["shop.commands unknown=1 in 1000 ms"]),
        ({"name": "new", "needs": ("rust",)}, ["shop.commands unknown=1 in 1000 ms"]),
        # docs of kafka.tasks.hooks: no topic can have a job of the hidden task
        ({"name": "kafka.tasks.error_handler"}, ["shop.q.dead bad-name", "FAILURE", "is_dead"]),
        ({"partition": 7}, "runs"),
        ({"partition": 8}, ["shop.q.dead bad-id", "is_dead"]),
        ({"name": "a\nb"}, ["shop.q.dead bad-name", "FAILURE", "is_dead"]),
    ]  # fmt: skip
    found = [(row, outcome_of(Bench().admit(**row))) for row, _ in rows]
    assert found == rows


def test_the_hidden_task_is_for_no_topic_even_where_the_worker_has_it() -> None:
    bench = Bench()
    bench.admission = AdmissionPolicy(
        {"kafka.tasks.error_handler": bench.app.tasks["plain"]}, StateRecords(bench.app.names, "h", 4), 8,
        WorkerOptions(), random.Random(0),
    )  # fmt: skip
    assert outcome_of(bench.admit("kafka.tasks.error_handler")) == ["shop.q.dead bad-name", "FAILURE", "is_dead"]


def test_how_long_a_job_waits_for_a_worker_is_a_setting() -> None:
    lease = {"name": "new", "source": DUE, "unknown": 9}
    dead = ["shop.q.dead unknown-task unknown=9", "FAILURE", "is_dead", "is_last"]
    for since_ms, expected in ((NOW - 59_999, ["shop.commands unknown=10 in 60000 ms"]), (NOW - 60_000, dead)):
        assert outcome_of(Bench(unknown_ttl_s=60).admit(**lease, unknown_since_ms=since_ms)) == expected


def test_every_move_of_a_job_keeps_its_key_and_the_headers_of_others() -> None:
    others = (("traceparent", b"00-1"), ("tenant", b"\xff"), ("empty", None), ("traceparent", b"00-2"))
    # outcome -> where the job goes
    rows: list[tuple[Outcome, str]] = [
        (ERROR, "shop.q.due"),
        (JobRetried(NOW + 5), "shop.commands"),
        (JobSnoozed(5), "shop.commands"),
        (ChildLost("exit"), "shop.q.due"),
        (NotStarted(), "shop.q.due"),
        (NotDue(NOW + 5), "shop.commands"),
        (UNKNOWN, "shop.commands"),
        (SuspectedCrash(), "shop.q.suspect"),
        (AttemptFailed(ErrorInfo("E"), listed=False), "shop.q.dead"),
        (WorkerCrashed(ErrorInfo("E")), "shop.q.dead"),
    ]
    for outcome, topic in rows:
        for key in (b"customer 7", b"", None):
            ending = Bench().end(outcome, "again", key=key, extra=others)
            record = ending.records[0]
            its_key = dict(record.headers or []).get(JOB_KEY) if topic == "shop.commands" else record.key
            assert (record.topic, its_key, record.value) == (topic, key, b"[]")
            assert tuple(each for each in record.headers or [] if each in others) == others
    job = Bench().admit(key=b"customer 7", extra=others)
    assert isinstance(job, Job)
    assert (job.envelope.key, job.envelope.extra) == (b"customer 7", others)


def test_a_record_that_is_no_job_keeps_its_key() -> None:
    found = Bench().admission.admit(JobLease(QUEUE, b"x", [("y", b"1")], 1, key=b"k"), NOW)
    assert isinstance(found, Ending)
    (record,) = found.records
    assert (record.topic, record.key, record.value) == ("shop.q.dead", b"k", b"x")
    assert ("y", b"1") in (record.headers or [])


def test_the_next_attempt_is_due_after_the_back_off_of_the_policy() -> None:
    # attempt, outcome -> where it goes; only an error of the task is followed by its back-off
    rows: list[tuple[int, Outcome, list[str]]] = [
        (1, ERROR, ["shop.commands attempt=2 in 4000 ms", "RETRY"]),
        (2, ERROR, ["shop.commands attempt=3 in 8000 ms", "RETRY"]),
        (3, ERROR, ["shop.commands attempt=4 in 16000 ms", "RETRY"]),
        (2, JobRetried(NOW + 5), ["shop.commands attempt=3 in 5 ms", "RETRY"]),
        (4, JobRetried(NOW + 5), ["shop.q.dead attempts attempt=4", "FAILURE", "is_dead", "is_last"]),
        (4, JobSnoozed(5000), ["shop.commands attempt=4 in 5000 ms", "SCHEDULED"]),
        (2, ChildLost("exit"), ["shop.q.due attempt=2 crashes=1", "RETRY"]),
        (2, NotStarted(), ["shop.q.due attempt=2 clean=1"]),
    ]
    found = [(n, outcome, outcome_of(Bench().end(outcome, "later", attempt=n))) for n, outcome, _ in rows]
    assert found == rows
    assert outcome_of(Bench().end(ERROR, "later", attempt=2, source=SUSPECT)) == [
        "shop.commands attempt=3 in 8000 ms", "RETRY"
    ]  # fmt: skip


def test_jitter_takes_up_to_a_half_of_the_back_off_by_the_generator_that_is_given() -> None:
    app = App("shop", bootstrap_servers="fake://")
    app.task(name="later", retry=Retry(backoff=expo(first=8)))(lambda: None)

    def waits(seed: int) -> list[str]:
        bench = Bench()
        options = WorkerOptions()
        bench.admission = AdmissionPolicy(app.tasks, StateRecords(app.names, "h", 4), 8, options, random.Random(seed))
        return [written(bench.end(ERROR, "later"))[0] for _ in range(50)]

    found = [int(text.split()[-2]) for text in waits(1)]
    assert 4000 <= min(found) < 4500
    assert 7500 < max(found) <= 8000
    assert waits(1) == waits(1) != waits(2)


def test_a_back_off_that_raises_is_logged_and_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    waits = iter([1.0] * 4)
    bench = Bench()
    retry = Retry(max_attempts=5, backoff=lambda attempt: next(waits), jitter=False)
    bench.app.task(name="broken", retry=retry)(lambda: None)
    bench.admission = AdmissionPolicy(
        bench.app.tasks, StateRecords(bench.app.names, "h", 4), 8, WorkerOptions(), random.Random(0)
    )
    assert outcome_of(bench.end(ERROR, "broken")) == ["shop.commands attempt=2 in 60000 ms", "RETRY"]
    assert FALLBACK_BACKOFF_S == 60
    assert "the back-off of task broken failed, retrying after 60 s" in caplog.text


def test_a_job_that_runs_has_its_crashes_and_the_nearest_limits() -> None:
    # the record -> soft limit, hard limit, crashes behind it; limits of call, task and worker in this order
    rows: list[tuple[dict[str, Any], tuple[float | None, float | None, int]]] = [
        ({"name": "plain"}, (20.0, 30.0, 0)),
        ({"name": "limited"}, (5.0, 9.0, 0)),
        ({"name": "limited", "timeout": 8.0}, (5.0, 8.0, 0)),
        ({"name": "limited", "soft_timeout": 6.0}, (6.0, 9.0, 0)),
        ({"name": "limited", "soft_timeout": 1.0, "timeout": 2.0}, (1.0, 2.0, 0)),
        ({"name": "limited"}, (5.0, 9.0, 0)),
        ({"name": "plain", "source": SUSPECT, "deliveries": 2, "crashes": 1}, (20.0, 30.0, 2)),
        ({"name": "plain", "timeout": 40.0, "crashes": 1}, (20.0, 40.0, 1)),
    ]
    bench = Bench(soft_timeout_s=20.0, timeout_s=30.0)
    for row, expected in rows:
        job = bench.admit(**row)
        assert isinstance(job, Job)
        assert (job.soft_s, job.hard_s, job.crashes) == expected
        assert job.task.name == row["name"]


def test_how_a_job_that_ran_leaves() -> None:
    dead = ["FAILURE", "is_dead", "is_last"]
    rows: list[tuple[Outcome, dict[str, Any], object]] = [
        (JobSucceeded(b"1"), {}, ["SUCCESS", "is_last"]),
        (JobSucceeded(b"1"), {"name": "quiet"}, ["is_last"]),
        (JobSucceeded(b"1"), {"name": "quiet", "store_result": True}, ["SUCCESS", "is_last"]),
        (JobSucceeded(b"1"), {"store_result": False}, ["is_last"]),
        (JobCancelled("no"), {}, ["REVOKED", "is_last"]),
        (ERROR, {}, ["shop.q.dead error", *dead]),
        (ERROR, {"name": "again"}, ["shop.q.due attempt=2", "RETRY"]),
        (ERROR, {"name": "again", "source": SUSPECT}, ["shop.q.due attempt=2", "RETRY"]),
        (ERROR, {"name": "again", "attempt": 2}, ["shop.q.dead attempts attempt=2", *dead]),
        (ERROR, {"name": "again", "expires_ms": NOW}, ["shop.q.dead expired", *dead]),
        (ChildLost("signal", 9), {}, ["shop.q.due crashes=1", "RETRY"]),
        (ChildLost("signal", 9), {"crashes": 2}, ["shop.q.dead lost-signal crashes=3", *dead]),
        (WorkerCrashed(ErrorInfo("WorkerLost")), {"crashes": 3}, ["shop.q.dead crashes crashes=3", *dead]),
        (NotStarted(), {}, ["shop.q.due clean=1"]),
        (NotStarted(), {"source": DUE}, ["shop.q.due clean=1"]),
        (NotStarted(), {"source": SUSPECT, "crashes": 2}, ["shop.q.suspect crashes=2 clean=1", "is_move"]),
        (ChildLost("stopped", counts=False), {"source": SUSPECT}, ["shop.q.suspect clean=1", "is_move"]),
    ]  # fmt: skip
    found = [(outcome, row, outcome_of(Bench().end(outcome, **row))) for outcome, row, _ in rows]
    assert found == rows


def test_the_crash_limit_is_that_of_the_app() -> None:
    lost = ChildLost("exit")
    assert outcome_of(Bench(crash_limit=2).end(lost, crashes=1)) == [
        "shop.q.dead lost-exit crashes=2", "FAILURE", "is_dead", "is_last"
    ]  # fmt: skip
    assert outcome_of(Bench(crash_limit=5).end(lost, crashes=3)) == ["shop.q.due crashes=4", "RETRY"]


def test_a_record_that_is_no_job_is_dead_and_the_job_whose_id_it_has_fails() -> None:
    job_id, elsewhere = make_id(NOW, 0, b"\1" * 8).encode(), make_id(NOW, 60000, b"\1" * 8).encode()
    name = ("name", b"f")
    rows: list[tuple[bytes | None, list[Header], list[str]]] = [
        (b"x", [("id", b"42")], ["shop.q.dead no-job"]),
        (b"x", [("id", None), name], ["shop.q.dead bad-header"]),
        (b"x", [("id", elsewhere), name], ["shop.q.dead bad-id"]),
        (b"x", [("id", job_id), ("id", job_id)], ["shop.q.dead no-job"]),
        (b"x", [("id", job_id)], ["shop.q.dead no-job", "FAILURE"]),
        (b"x", [("id", job_id), ("name", b"")], ["shop.q.dead no-job", "FAILURE"]),
        (b"x", [("id", job_id), ("name", b"a\nb")], ["shop.q.dead bad-name", "FAILURE"]),
        (b"x", [("id", job_id), ("name", b"\xff")], ["shop.q.dead bad-header", "FAILURE"]),
        (b"x", [("attempt", b"0"), ("id", job_id), name], ["shop.q.dead bad-header attempt=0", "FAILURE"]),
        (None, [("id", job_id), name], ["shop.q.dead no-payload", "FAILURE"]),
    ]
    for value, headers, wanted in rows:
        found = Bench().admission.admit(JobLease(QUEUE, value, headers, 1), NOW)
        assert outcome_of(found) == [*wanted, "is_dead"], headers


# -- what the log says ------------------------------------------------------------------------------------------------


def new_log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines since the last call."""
    found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return found


def test_the_log_has_jobs_that_failed_for_good_or_were_lost_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks.worker.admission")
    job_id = make_id(NOW, 0, b"\1" * 8)
    bench = Bench()
    for outcome in (JobSucceeded(b"1"), JobCancelled("no"), NotStarted(), JobSnoozed(5)):
        bench.end(outcome)
    bench.end(ERROR, "again")
    bench.end(ERROR, "later")
    bench.end(JobRetried(NOW + 1500, "429"))
    assert new_log_lines(caplog) == []
    bench.end(ERROR)
    assert new_log_lines(caplog) == [
        f"WARNING plain {job_id} failed permanently (OSError: disk) and moves to the dead topic shop.q.dead; "
        "cause error"
    ]
    bench.end(ChildLost("frozen"), "again", attempt=2)
    assert new_log_lines(caplog) == [
        f"WARNING again {job_id} will be retried after crash 1 of 3 "
        "(WorkerLost: the job's process ended: its process was stopped)"
    ]


def test_an_error_is_cut_where_it_is_longer_than_the_log_takes(caplog: pytest.LogCaptureFixture) -> None:
    # first line of the error, its traceback -> the same in the log
    rows = [
        (("x" * 500, ""), ("x" * 500, [])),
        (("x" * 501, ""), ("x" * 500 + "...", [])),
        (("x\nmore", ""), ("x...", [])),
        (("x", "\n".join("y" * 300 for _ in range(20))), ("x", ["y" * 300] * 20)),
        (("x", "y" * 501), ("x", ["y" * 500 + "..."])),
        (("x", "\n".join(str(n) for n in range(21))),
         ("x", ["... 1 line omitted, the dead topic has all of them ...", *(str(n) for n in range(1, 21))])),
    ]  # fmt: skip
    for (text, trace), (first, lines) in rows:
        Bench().end(AttemptFailed(ErrorInfo("E", text, trace)))
        (found,) = new_log_lines(caplog)
        assert found.partition(" permanently ")[2].splitlines() == [
            f"(E: {first}) and moves to the dead topic shop.q.dead; cause error", *lines
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "lease", "why", "hours"),
    [
        ({}, {"name": "new"}, "none of its 5 tasks has that name", "24"),
        ({"unknown_ttl_s": 5400}, {"name": "new"}, "none of its 5 tasks has that name", "1.5"),
        ({}, {"name": "new", "needs": ("rust",)}, "none of its 5 tasks has that name", "24"),
        ({}, {"needs": ("rust", "gpu")}, "this release does not understand rust, gpu, which the job needs", "24"),
    ],
)
def test_a_job_that_cannot_run_here_is_reported_with_why_and_for_how_long_it_waits(
    caplog: pytest.LogCaptureFixture, options: dict[str, Any], lease: dict[str, Any], why: str, hours: str
) -> None:
    Bench(**options).admit(**lease)
    job_id = make_id(NOW, 0, b"\1" * 8)
    assert new_log_lines(caplog) == [
        f"WARNING cannot run task {lease.get('name', 'plain')!r}: {why}; job {job_id} waits for a worker that can, and "
        f"fails after {hours} h if there is none; import the module that defines the task in the app's module, or "
        "deploy it to this worker"
    ]


def test_a_task_that_is_unknown_since_a_function_defines_it_has_another_remedy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.admit("shop.make.<locals>.inner")
    (line,) = new_log_lines(caplog)
    assert line.endswith(
        "if there is none; it is defined inside a function: define it at the top level of a module that the app's "
        "module imports, or call that function there"
    )


def test_each_unknown_task_is_reported_once_and_only_the_first_hundred(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for number in (*range(102), *range(102)):
        bench.admit(f"new{number}")
    reported = [line.partition("cannot run task '")[2].partition("'")[0] for line in new_log_lines(caplog)]
    assert reported == [f"new{number}" for number in range(100)]


def test_what_has_so_many_headers_that_they_are_left_out_is_no_job_and_dead_without_them() -> None:
    bench = Bench()
    lease = bench.lease()
    lease.headers, lease.headers_left_out = [], 100_000
    for found in (
        bench.admission.admit(lease, NOW),
        bench.admission.admit(JobLease(QUEUE, b"", [("", None)] * 1000, 1), NOW),
    ):
        assert isinstance(found, Ending)
        (record,) = found.records
        assert record.topic == "shop.q.dead"
        assert record.headers is not None
        assert all(name.startswith("dead-") for name, _ in record.headers)
        assert dict(record.headers)["dead-cause"] == b"too-many-headers"

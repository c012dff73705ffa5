"""Tests of ``kafka.tasks.worker.admission``: which leased jobs run, within which limits, and how the others leave.

The rules are those of docs/tasks.rst ("What happens then", "When a worker dies"); the numbers of the log are ours.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from kafka.tasks import App, Retry
from kafka.tasks.delivery.base import JobLease, JobSource
from kafka.tasks.delivery.records import StateRecords
from kafka.tasks.delivery.settlement import Settlement
from kafka.tasks.errors import BadRecord
from kafka.tasks.format.envelope import Envelope
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
    JobSucceeded,
    NotStarted,
    Outcome,
    WorkerCrashed,
)
from kafka.tasks.worker.admission import AdmissionHold, AdmissionPolicy

NOW = 1_700_000_000_000
QUEUE, SUSPECT = JobSource("q", "shop.q"), JobSource("q", "shop.q.suspect", True)
ERROR = AttemptFailed(ErrorInfo("OSError", "disk"))


def an_app() -> App:
    app = App("shop", bootstrap_servers="fake://")

    @app.task(name="plain")
    def plain() -> None: ...

    @app.task(name="again", retry=Retry(max_attempts=2))
    def again() -> None: ...

    @app.task(name="quiet", store_result=False)
    def quiet() -> None: ...

    @app.task(name="limited", soft_timeout=5, timeout=9)
    def limited() -> None: ...

    return app


class Bench:
    """A clerk with the tasks of an app; its ids may name the results partitions 0 to 7."""

    def __init__(self, **numbers: Any) -> None:
        app = an_app()
        self.delivery: Any = SimpleNamespace(lock_s=30.0, delivery_limit=5)
        self.admission = AdmissionPolicy(
            app.tasks, StateRecords(app.names, "h"), self.delivery, 8, WorkerOptions(**numbers)
        )

    def lease(
        self, name: str = "plain", source: JobSource = QUEUE, deliveries: int = 1, excused: int = 0, partition: int = 0,
        **fields: Any,
    ) -> JobLease:  # fmt: skip
        job = Envelope(make_id(NOW, partition, b"\1" * 8), name, b"[]", **fields)
        lease = JobLease(source, job.value, job.headers(), deliveries)
        lease.excused = excused
        return lease

    def admit(self, name: str = "plain", source: JobSource = QUEUE, **fields: Any) -> Job | Settlement | AdmissionHold:
        return self.admission.admit(self.lease(name, source, **fields), NOW)

    def end(
        self, outcome: Outcome, name: str = "plain", source: JobSource = QUEUE, **fields: Any
    ) -> Job | Settlement | AdmissionHold:
        lease = self.lease(name, source, **fields)
        return self.admission.end(lease, decode_job(lease.value, lease.headers), outcome, fields.get("crashes", 0), NOW)


def written(settlement: Settlement) -> list[str]:
    """The records of an ending: a state, or a topic with the headers that tell how far the job has come."""
    found = []
    for record in settlement.records:
        headers = record.headers or []
        state = decode_state(record.key, record.value, headers)
        count = [f"{name}={raw.decode()}" for name, raw in headers if raw and name in ("attempt", "crashes", "unknown")]
        cause = [raw.decode() for name, raw in headers if raw and name == "dead-cause"]
        found.append(state.state.name if state else " ".join([record.topic, *cause, *count]))
    return found


def outcome_of(found: Job | Settlement | AdmissionHold | None) -> object:
    """What becomes of a lease, as far as the worker goes by it."""
    if isinstance(found, Job):
        return "runs"
    if isinstance(found, AdmissionHold):
        return found.seconds
    if found is None:
        return "released"
    marks = [name for name in ("is_move", "is_dead", "is_last") if getattr(found, name)]
    return [*written(found), *marks]


def test_which_leased_jobs_run_and_how_the_others_leave() -> None:
    # the lease -> "runs", seconds for which it is held, or the records that end it and what the worker goes by
    rows: list[tuple[dict[str, Any], object]] = [
        ({}, "runs"),
        ({"attempt": 3, "clean": 2}, "runs"),
        ({"expires_ms": NOW + 1}, "runs"),
        ({"expires_ms": NOW}, ["REVOKED", "is_last"]),
        ({"deliveries": 2}, ["shop.q.suspect", "is_move"]),
        ({"deliveries": 2, "crashes": 1}, ["shop.q.suspect crashes=1", "is_move"]),
        ({"crashes": 2}, "runs"),
        ({"crashes": 3}, ["shop.q.dead crashes crashes=3", "FAILURE", "is_dead", "is_last"]),
        ({"source": SUSPECT, "deliveries": 3}, "runs"),
        ({"source": SUSPECT, "deliveries": 4},
         ["shop.q.dead crashes crashes=3", "FAILURE", "is_dead", "is_last"]),
        ({"source": SUSPECT, "deliveries": 4, "excused": 1}, ["shop.q.suspect crashes=2", "is_move"]),
        ({"source": SUSPECT, "expires_ms": NOW}, ["REVOKED", "is_last"]),
        ({"name": "new"}, 1.0),
        ({"name": "new", "deliveries": 3}, 4.0),
        ({"name": "new", "deliveries": 4}, ["shop.q.dead unknown-task", "FAILURE", "is_dead", "is_last"]),
        ({"name": "new", "source": SUSPECT, "unknown": 1}, 2.0),
        ({"name": "new", "source": SUSPECT, "deliveries": 2, "excused": 1, "unknown": 1},
         ["shop.q.suspect unknown=2", "is_move"]),
        # docs of kafka.tasks.hooks: the hidden task is one that no topic knows
        ({"name": "kafka.tasks.error_handler"}, 1.0),
        ({"partition": 7}, "runs"),
        ({"partition": 8}, ["shop.q.dead bad-id", "is_dead"]),
    ]  # fmt: skip
    found = [(row, outcome_of(Bench().admit(**row))) for row, _ in rows]
    assert found == rows


def test_the_hidden_task_is_unknown_to_topics_even_where_the_worker_has_it() -> None:
    bench = Bench()
    bench.admission = AdmissionPolicy(
        {"kafka.tasks.error_handler": an_app().tasks["plain"]}, StateRecords(an_app().names, "h"), bench.delivery, 8,
        WorkerOptions(),
    )  # fmt: skip
    assert outcome_of(bench.admit("kafka.tasks.error_handler")) == 1.0


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
        (ERROR, {"name": "again"}, ["shop.q attempt=2", "RETRY"]),
        (ERROR, {"name": "again", "source": SUSPECT}, ["shop.q attempt=2", "RETRY"]),
        (ERROR, {"name": "again", "attempt": 2}, ["shop.q.dead attempts attempt=2", *dead]),
        (ERROR, {"name": "again", "expires_ms": NOW}, ["shop.q.dead expired", *dead]),
        (ChildLost("signal", 9), {}, ["shop.q crashes=1", "RETRY"]),
        (ChildLost("signal", 9), {"crashes": 2}, ["shop.q.dead lost-signal crashes=3", *dead]),
        (WorkerCrashed(ErrorInfo("WorkerLost")), {"crashes": 1}, ["shop.q.suspect crashes=1", "is_move"]),
        (NotStarted(), {}, ["shop.q"]),
        (NotStarted(), {"source": SUSPECT, "crashes": 2, "unknown": 1}, ["shop.q.suspect crashes=2 unknown=1",
                                                                         "is_move"]),
    ]  # fmt: skip
    found = [(outcome, row, outcome_of(Bench().end(outcome, **row))) for outcome, row, _ in rows]
    assert found == rows


def test_the_crash_limit_is_that_of_the_app() -> None:
    lost = ChildLost("exit")
    assert outcome_of(Bench(crash_limit=2).end(lost, crashes=1)) == [
        "shop.q.dead lost-exit crashes=2", "FAILURE", "is_dead", "is_last"
    ]  # fmt: skip
    assert outcome_of(Bench(crash_limit=5).end(lost, crashes=3)) == ["shop.q crashes=4", "RETRY"]


def test_a_limit_of_deliveries_that_the_broker_changes_holds_from_then_on() -> None:
    bench = Bench()
    assert outcome_of(bench.admit("new", deliveries=3)) == 4.0
    bench.delivery.delivery_limit = 10
    assert [outcome_of(bench.admit("new", deliveries=n)) for n in (4, 8)] == [8.0, 128.0]
    bench.delivery.delivery_limit = 4
    assert outcome_of(bench.admit("new", deliveries=3)) == ["shop.q.dead unknown-task", "FAILURE", "is_dead", "is_last"]


def test_a_held_lease_is_released_but_a_suspect_is_written_anew() -> None:
    # the lease, whether its time has come -> what ends it; before its time it does not count as a hand-out
    rows: list[tuple[dict[str, Any], bool, object]] = [
        ({}, True, "released"),
        ({}, False, "released"),
        ({"source": SUSPECT, "crashes": 1}, True, ["shop.q.suspect crashes=1 unknown=1", "is_move"]),
        ({"source": SUSPECT, "crashes": 1}, False, ["shop.q.suspect crashes=1", "is_move"]),
        ({"source": SUSPECT, "unknown": 2}, False, ["shop.q.suspect unknown=2", "is_move"]),
        ({"source": SUSPECT, "deliveries": 3, "excused": 1}, True, ["shop.q.suspect crashes=1 unknown=1", "is_move"]),
        ({"source": SUSPECT, "deliveries": 9, "crashes": 1}, True, ["shop.q.suspect crashes=9 unknown=1", "is_move"]),
        ({"source": SUSPECT, "unknown": 3}, True, ["shop.q.dead unknown-task", "FAILURE", "is_dead", "is_last"]),
    ]
    found = []
    for row, is_due, _ in rows:
        bench = Bench()
        found.append((row, is_due, outcome_of(bench.admission.end_hold(bench.lease("new", **row), is_due, NOW))))
    assert found == rows


def test_a_record_that_is_no_job_is_dead_and_no_job_has_ended() -> None:
    found = Bench().admission.admit(JobLease(QUEUE, b"x", [("id", b"42")], 1), NOW)
    assert outcome_of(found) == ["shop.q.dead no-job", "is_dead"]
    with pytest.raises(BadRecord):
        decode_job(b"x", [("id", b"42")])


# -- what the log says ------------------------------------------------------------------------------------------------


def new_log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines since the last call."""
    found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return found


def test_the_log_has_runs_that_failed_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.tasks.worker.admission")
    job_id = make_id(NOW, 0, b"\1" * 8)
    bench = Bench()
    for outcome in (JobSucceeded(b"1"), JobCancelled("no"), NotStarted()):
        bench.end(outcome)
    assert new_log_lines(caplog) == []
    bench.end(ERROR, "again")
    assert new_log_lines(caplog) == [f"INFO again {job_id} will be retried after attempt 1 of 2 (OSError: disk)"]
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
    caplog.set_level(logging.WARNING, "kafka.tasks.worker.admission")
    bench.end(ERROR, "again")
    bench.end(ChildLost("frozen"))
    assert [line.partition(" ")[0] for line in new_log_lines(caplog)] == ["WARNING"]


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
    ("lock_s", "lease", "seconds"),
    [
        (30.0, {}, 7),  # 1, 2 and 4 s
        (30.0, {"deliveries": 2}, 6),
        (30.0, {"deliveries": 3}, 4),
        (9.0, {}, 6),  # nothing is held for longer than a third of its lock: 1, 2 and 3 s
        (30.0, {"source": SUSPECT}, 7),
        (30.0, {"source": SUSPECT, "unknown": 1}, 6),
    ],
)
def test_an_unknown_task_is_reported_with_how_long_its_jobs_wait(
    caplog: pytest.LogCaptureFixture, lock_s: float, lease: dict[str, Any], seconds: int
) -> None:
    bench = Bench()
    bench.delivery.lock_s = lock_s
    bench.admit("new", **lease)
    (line,) = new_log_lines(caplog)
    assert f"fails in about {seconds} s if there is none; import the module" in line


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
    told_of = [line.partition("unknown task '")[2].partition("'")[0] for line in new_log_lines(caplog)]
    assert told_of == [f"new{number}" for number in range(100)]


def test_what_has_so_many_headers_that_they_are_left_out_is_no_job_and_dead_without_them() -> None:
    bench = Bench()
    lease = bench.lease()
    lease.headers, lease.headers_left_out = [], 100_000
    for found in (
        bench.admission.admit(lease, NOW),
        bench.admission.admit(JobLease(QUEUE, b"", [("", None)] * 1000, 1), NOW),
    ):
        assert isinstance(found, Settlement)
        (record,) = found.records
        assert record.topic == "shop.q.dead"
        assert record.headers is not None
        assert all(name.startswith("dead-") for name, _ in record.headers)
        assert dict(record.headers)["dead-cause"] == b"too-many-headers"

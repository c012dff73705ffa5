"""Tests of ``kafka.tasks.health.queue_lengths``: the brokers' backlog, shared out by what workers hold; and of what a
worker says that it holds."""

from __future__ import annotations

from types import SimpleNamespace

from kafka.tasks.backends.base import QueueBacklog
from kafka.tasks.delivery.base import JobLease, JobSource, SourceKind
from kafka.tasks.health.queue_lengths import queue_lengths
from kafka.tasks.health.snapshot import QueueJobs, WorkerSnapshot
from kafka.tasks.worker.leases import BUFFERED, FINISHED, FINISHING, RUNNING, Leases


def test_what_no_worker_runs_is_available() -> None:
    workers = [
        WorkerSnapshot("web:1", queue_jobs=(QueueJobs("mail", 3), QueueJobs("low", 1))),
        WorkerSnapshot("web:2", queue_jobs=(QueueJobs("mail", 2),)),
        WorkerSnapshot("web:3"),
    ]
    backlogs = [QueueBacklog("low", 1, 0), QueueBacklog("mail", 100, 7), QueueBacklog("new", 5, 0)]
    found = queue_lengths(backlogs, workers, {"mail", "one of another app"})
    assert [tuple(each) for each in found] == [
        ("low", 0, 1, 0, False), ("mail", 95, 5, 7, True), ("new", 5, 0, 0, False),
    ]  # fmt: skip


def test_a_snapshot_that_is_older_than_the_backlog_does_not_make_less_than_nothing_available() -> None:
    workers = [WorkerSnapshot("web:1", queue_jobs=(QueueJobs("mail", 8), QueueJobs("of-another-release", 9)))]
    assert queue_lengths([QueueBacklog("mail", 5, 0)], workers) == [("mail", 0, 8, 0, False)]


def a_lease(leases: Leases, source: JobSource, stage: int | None = None) -> JobLease:
    lease = JobLease(source, b"{ }", [], 1)
    lease.job = SimpleNamespace(cancel=lambda: None)
    leases.add([lease], 0.0, 30.0)
    if stage is not None:
        leases.set_stage(lease, stage)
    return lease


def test_a_worker_runs_what_is_with_its_pool_or_being_settled_from_all_topics_of_a_queue() -> None:
    leases = Leases()
    main, suspects = JobSource("a", "shop.a"), JobSource("a", "shop.a.suspect", SourceKind.SUSPECT)
    due, other = JobSource("a", "shop.a.due", SourceKind.DUE), JobSource("b", "shop.b")
    for source, stage in ((main, None), (main, BUFFERED), (main, RUNNING), (suspects, RUNNING), (due, FINISHING)):
        a_lease(leases, source, stage)
    leases.hand_off(a_lease(leases, main, RUNNING), 60.0)
    a_lease(leases, other)
    a_lease(leases, other, FINISHED)
    leases.mark_lost(a_lease(leases, other, RUNNING), True)
    assert leases.count_by_queue() == {"a": 4, "b": 0}

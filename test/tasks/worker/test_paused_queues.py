"""A worker leases nothing from a paused queue, and everything else goes on."""

from __future__ import annotations

import pytest

from kafka.tasks.delivery.base import JobSource, SourceKind
from test.tasks.fakes import pass_time
from test.tasks.worker.test_worker import SUSPECT, Bench, Process

MAIL = "shop.mail"
MAIL_DUE = JobSource("mail", "shop.mail.due", SourceKind.DUE)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def queues_of(process: Process) -> set[str]:
    return {job.lease.source.queue for job in process.manual.jobs}


def test_nothing_is_leased_from_a_paused_queue_until_it_is_resumed(bench: Bench) -> None:
    process = Process(bench, concurrency=4, queues=("default", "mail"))
    process.worker.paused(frozenset({"mail"}))
    for n in range(10):
        bench.put("note", n)
        bench.put("note", n, topic=MAIL)
    bench.settle()
    assert queues_of(process) == {"default"}
    pass_time(bench.loop, bench.clock, 60.0)
    assert queues_of(process) == {"default"}
    assert len(bench.queues.waiting(MAIL)) == 10
    assert all(record.deliveries == 0 for record in bench.queues.topics[MAIL])
    process.worker.paused(frozenset())
    while process.manual.jobs and queues_of(process) == {"default"}:
        process.end()
    assert queues_of(process) == {"default", "mail"}


def test_a_pause_from_before_the_start_holds(bench: Bench) -> None:
    bench.put("note", 1, topic=MAIL)
    process = Process(bench, queues=("mail",), paused=frozenset({"mail"}))
    bench.settle()
    assert process.manual.jobs == []
    process.worker.paused(frozenset())
    bench.settle()
    assert queues_of(process) == {"mail"}


def test_suspects_of_a_paused_queue_wait_too(bench: Bench) -> None:
    process = Process(bench)
    process.worker.paused(frozenset({"default"}))
    bench.put("note", 1, topic=SUSPECT)
    bench.settle()
    assert process.manual.jobs == []
    process.worker.paused(frozenset())
    bench.settle()
    assert len(process.manual.jobs) == 1


def test_what_was_leased_before_the_pause_runs(bench: Bench) -> None:
    jobs = bench.put_many(3)
    process = Process(bench, concurrency=2)
    bench.settle()
    process.worker.paused(frozenset({"default"}))
    process.end()
    process.end()
    assert process.manual.jobs == []
    assert [bench.final(job.id) is not None for job in jobs] == [True, True, False]
    assert process.worker.statistics()["held"] == 0


def test_a_pause_during_the_stop_changes_nothing(bench: Bench) -> None:
    process = Process(bench)
    bench.settle()
    process.worker.stop()
    bench.settle()
    process.worker.paused(frozenset({"default"}))
    process.worker.paused(frozenset())
    bench.put("note", 1)
    bench.settle()
    assert (process.left, process.manual.jobs) == (1, [])

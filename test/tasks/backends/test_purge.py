"""The jobs of a queue that have not ended, on a broker: how many there are, and what deleting them leaves."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kafka.tasks import App, JobState, UnknownQueue
from kafka.tasks.backends.base import QueuePurge
from kafka.tasks.delivery.consumer_group import delivery
from kafka.testing import EmbeddedBroker, running_worker
from test.support.waiting import until

SOON_S = 20.0
numbers = itertools.count()


@pytest.fixture
def app(broker: EmbeddedBroker) -> Iterator[App]:
    made = App(f"shop{next(numbers)}", bootstrap_servers=broker.bootstrap, partitions=2, queues=["mail"])
    yield made
    made.close()


def purge(app: App) -> closing[QueuePurge]:
    return closing(app.backend().purge("mail"))


def test_jobs_that_no_worker_has_seen_are_counted_and_deleted(app: App, broker: EmbeddedBroker) -> None:
    for _ in range(5):
        app.send("mail.send", queue="mail")
    app.flush(SOON_S)
    with purge(app) as found:
        app.send("mail.send", queue="mail")
        app.flush(SOON_S)
        assert found.jobs == 5
        found.delete()
    with purge(app) as left:
        assert left.jobs == 1, "the job that was enqueued after the count"
    assert len(broker.records(app.names.queue("mail"), at_least=1)) == 1


def test_a_running_job_ends_and_those_behind_it_never_run(app: App, broker: EmbeddedBroker) -> None:
    begun, may_end, runs = threading.Event(), threading.Event(), []

    @app.task(name="mail.send", queue="mail")
    def send(number: int) -> int:
        runs.append(number)
        begun.set()
        assert may_end.wait(SOON_S)
        return number

    with running_worker(app, broker=broker) as worker:
        first = send.delay(0)
        assert begun.wait(SOON_S)
        others = [send.delay(number) for number in (1, 2, 3)]
        app.flush(SOON_S)
        with purge(app) as found:
            assert found.jobs == 4, "the running one has not ended"
            found.delete()
        may_end.set()
        assert first.result(SOON_S) == 0
        assert send.delay(4).result(SOON_S) == 4
        worker.drain()
        assert runs[0] == 0 and runs[-1] == 4
        assert worker.counts["locks_lost"] == 0
        ran = set(runs) - {0, 4}
        assert len(ran) <= 1, "a worker may hold one more job than it runs"
        assert {job.status() for number, job in enumerate(others, 1) if number not in ran} == {JobState.QUEUED}
        with purge(app) as left:
            assert left.jobs == 0


def test_due_jobs_and_suspects_count_too(app: App, broker: EmbeddedBroker) -> None:
    app.send("mail.send", queue="mail")
    app.flush(SOON_S)
    backend = app.backend()
    backend.send(app.names.suspect("mail"), b"{}", [])
    backend.send(app.names.due("mail"), b"{}", [])
    app.flush(SOON_S)
    with purge(app) as found:
        assert found.jobs == 3
        found.delete()
    with purge(app) as left:
        assert left.jobs == 0


def test_jobs_that_wait_for_a_consumer_group_are_counted_and_deleted(broker: EmbeddedBroker) -> None:
    name = f"shop{next(numbers)}"
    app = App(name, bootstrap_servers=broker.bootstrap, partitions=1, queues=["mail"], delivery="group")
    runs: list[int] = []
    app.task(name="mail.send", queue="mail")(runs.append)
    with closing(app):
        with running_worker(app, broker=broker):
            assert app.send("mail.send", (0,), queue="mail").wait(SOON_S)
        for number in (1, 2, 3):
            app.send("mail.send", (number,), queue="mail")
        app.flush(SOON_S)
        with purge(app) as found:
            assert found.jobs == 3
            found.delete()
        with purge(app) as left:
            assert left.jobs == 0
        with running_worker(app, broker=broker):
            assert app.send("mail.send", (4,), queue="mail").wait(SOON_S)
    assert runs == [0, 4]


def test_jobs_that_a_member_of_a_consumer_group_has_fetched_are_dropped(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(delivery, "SWEEP_S", 0.1)
    name = f"shop{next(numbers)}"
    app = App(name, bootstrap_servers=broker.bootstrap, partitions=1, queues=["mail"], delivery="group")
    begun, may_end, runs = threading.Event(), threading.Event(), list[int]()

    @app.task(name="mail.send", queue="mail")
    def send(number: int) -> None:
        runs.append(number)
        begun.set()
        assert may_end.wait(SOON_S)

    with closing(app), app.batch(SOON_S):
        for number in range(3_000):
            send.delay(number)
    app = App(name, bootstrap_servers=broker.bootstrap, partitions=1, queues=["mail"], delivery="group")
    app.tasks[send.name] = send
    with caplog.at_level(logging.INFO, delivery.__name__), closing(app), running_worker(app, broker=broker) as worker:
        assert begun.wait(SOON_S)
        with purge(app) as found:
            assert found.jobs == 3_000
            found.delete()
        until(lambda: "deleted before the start" in caplog.text)
        may_end.set()
        last = app.send(send.name, (3_000,), queue="mail")
        assert last.wait(SOON_S)
        worker.drain()
    held = len(runs) - 1
    assert runs == [*range(held), 3_000]
    assert held <= 3, "a worker may hold some more jobs than it runs"


def test_a_missing_queue_is_named_with_the_nearest_one(app: App) -> None:
    app.send("mail.send", queue="mail")
    app.flush(SOON_S)
    with pytest.raises(UnknownQueue, match=rf"no topic {app.name}\.mial; did you mean '{app.name}\.mail'"):
        app.backend().purge("mial")

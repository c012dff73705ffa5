"""Brokers and workers for a block."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from kafka.errors import IllegalStateError, KafkaTimeoutError, UnknownTopicOrPartitionError
from kafka.tasks import App, JobFailed, Retry, UnknownQueue
from kafka.testing import EmbeddedBroker, embedded_broker, running_worker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with embedded_broker() as broker:
        yield broker


@pytest.fixture
def delivery() -> str:
    return "auto"


@pytest.fixture
def app(broker: EmbeddedBroker, delivery: str) -> Iterator[App]:
    name = f"app-{uuid.uuid4().hex[:8]}"
    app = App(name, bootstrap_servers=broker.bootstrap, partitions=2, delivery=delivery)
    yield app
    app.close(timeout=0)


each_delivery = pytest.mark.parametrize("delivery", ["share", "group"])


def test_a_topic_is_made_filled_and_read(broker: EmbeddedBroker) -> None:
    name = broker.create_topic("filled", 2, retention_ms=1000_000)
    assert name == "filled"
    assert broker.fill(name, [b"a", "b", b"c"], partition=1) == 3
    assert [(record.partition, record.value) for record in broker.records(name)] == [(1, b"a"), (1, b"b"), (1, b"c")]
    assert broker.records(broker.create_topic("empty")) == []
    with pytest.raises(UnknownTopicOrPartitionError):
        broker.records("nowhere")


@pytest.mark.parametrize("pool", ["inline", "threads"])
def test_a_worker_runs_while_the_block_does(broker: EmbeddedBroker, app: App, pool: str) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    with running_worker(app, pool=pool) as worker:
        job = double.delay(21)
        assert job.result(30) == 42
        assert worker.counts["done"] == 1
    assert double.delay(1).wait(0.1) is False, "nobody works any more"
    assert job.result(1) == 42, "the app of the test is open still"


@each_delivery
def test_draining_waits_for_retries_and_for_what_jobs_enqueue(broker: EmbeddedBroker, app: App) -> None:
    ran: list[str] = []

    @app.task(retry=Retry(max_attempts=3))
    def fails_twice() -> None:
        ran.append("fails")
        if ran.count("fails") < 3:
            raise ValueError("not yet")

    @app.task
    def enqueues() -> None:
        ran.append("enqueues")
        fails_twice.delay()

    with running_worker(app, broker=broker, concurrency=2) as worker:
        enqueues.delay()
        worker.drain()
        assert sorted(ran) == ["enqueues", "fails", "fails", "fails"]
        worker.drain(1)


@each_delivery
def test_draining_in_vain_says_what_is_left(broker: EmbeddedBroker, app: App) -> None:
    gate = threading.Event()

    @app.task
    def waits() -> None:
        gate.wait(30)

    with running_worker(app, broker=broker) as worker:
        waits.delay()
        app.flush(30)
        try:
            with pytest.raises(KafkaTimeoutError, match=f"{app.name}.default.*there are records left"):
                worker.drain(0.2)
        finally:
            gate.set()
        worker.drain()


def test_draining_waits_for_an_ordered_queue_beside_another(broker: EmbeddedBroker, app: App) -> None:
    gate, ran = threading.Event(), list[int]()
    ledger = app.queue("ledger", ordered=True)

    @app.task(queue=ledger)
    def append(number: int) -> None:
        assert number != 1 or gate.wait(30)
        ran.append(number)

    @app.task
    def other() -> None: ...

    with running_worker(app, broker=broker, concurrency=3) as worker:
        other.delay()
        for number in range(3):
            append.using(key="user").delay(number)
        with pytest.raises(KafkaTimeoutError, match=f"{app.name}.ledger.group: there are records left"):
            worker.drain(0.2)
        gate.set()
        worker.drain()
        assert ran == [0, 1, 2]
        worker.drain(1)


def test_a_failure_is_the_jobs_and_not_the_workers(broker: EmbeddedBroker, app: App) -> None:
    @app.task
    def breaks() -> None:
        raise ValueError("no")

    with running_worker(app) as worker:
        with pytest.raises(JobFailed, match="no"):
            breaks.delay().result(30)
        with pytest.raises(IllegalStateError, match="needs running_worker"):
            worker.drain()


def test_a_worker_that_cannot_start_says_why(app: App) -> None:
    with pytest.raises(UnknownQueue), running_worker(app, ["nope"]):
        pytest.fail("it runs")


def test_draining_without_a_broker_says_what_to_wait_for() -> None:
    app = App("shop", bootstrap_servers="memory://drain")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with running_worker(app) as worker:
        assert add.delay(1, 2).result(30) == 3
        with pytest.raises(IllegalStateError, match="with memory://, wait for the handles"):
            worker.drain()

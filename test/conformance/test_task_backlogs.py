"""The lengths of queues: jobs that wait before there is a group, run, are settled behind others, or are dead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kafka.tasks import App, Directory, QueueDelivery, QueueLength, Seen, WorkerSnapshot
from kafka.tasks.health.snapshot import QueueJobs
from test.conformance.test_tasks import Service
from test.support.either_broker import every_way
from test.support.waiting import WITHIN_S, eventually


class Queue:
    """An app whose jobs run until the test lets them end, and the question."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.first_has_begun, self.gate = threading.Event(), threading.Event()

        @app.task(name="wait")
        def wait(number: int) -> None:
            if number == 0:
                self.first_has_begun.set()
                assert self.gate.wait(WITHIN_S)

        @app.task(name="fail")
        def fail() -> None:
            raise ValueError("no")

        self.directory = Directory(app)

    def length(self, *workers: WorkerSnapshot) -> QueueLength:
        (found,) = self.directory.queue_lengths([Seen(worker, 0.0) for worker in workers])
        return found


@pytest.fixture
def queue(bootstrap: str, delivery: str, unique: Callable[[str], str]) -> Iterator[Queue]:
    app = App(unique("shop"), bootstrap_servers=bootstrap, partitions=1, delivery=delivery)
    queue = Queue(app)
    yield queue
    queue.gate.set()
    queue.directory.close()
    app.close()


@every_way
def test_a_queue_is_as_long_as_its_jobs_that_have_not_ended(queue: Queue, delivery: str) -> None:
    assert queue.length() == ("default", 0, 0, 0, False), "there are no topics yet"
    wait = queue.app.tasks["wait"]
    jobs = [wait.delay(number) for number in range(30)]
    queue.app.flush(WITHIN_S)
    assert queue.length() == ("default", 30, 0, 0, False), "no worker has ever been there"
    assert queue.directory.deliveries() == [QueueDelivery("default")]
    service = Service(queue.app)
    try:
        assert queue.first_has_begun.wait(WITHIN_S)
        for job in jobs[1:]:
            assert job.wait(WITHIN_S)
        assert service.worker is not None
        protocol = None if delivery == "share" else service.worker._delivery.protocol  # type: ignore[attr-defined]
        assert queue.directory.deliveries() == [QueueDelivery("default", delivery, protocol, "Stable")]
        held = service.worker.count_by_queue
        eventually(lambda: held().get("default"), 1)
        busy = WorkerSnapshot("web:1", queue_jobs=(QueueJobs("default", 1),))
        eventually(lambda: queue.length(busy), ("default", 0, 1, 0, False))
        assert queue.length() == ("default", 1, 0, 0, False), "29 jobs behind the running one have ended"
        queue.gate.set()
        eventually(queue.length, ("default", 0, 0, 0, False))
        queue.app.tasks["fail"].delay().wait(WITHIN_S)
        # The dead record of a consumer group's worker is written in a transaction, whose marker has an offset, too.
        eventually(queue.length, ("default", 0, 0, 1 if delivery == "share" else 2, False))
    finally:
        queue.gate.set()
        service.stop()
    assert queue.directory.deliveries() == [QueueDelivery("default", delivery, protocol, "Empty")]

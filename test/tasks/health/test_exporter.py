"""Tests of ``kafka.tasks.health.exporter``: the lengths of queues for Prometheus, over a network in memory."""

from __future__ import annotations

import urllib.request

import pytest

from kafka.errors import IllegalArgumentError
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.tasks import QueueExporter, QueueLength, Seen, WorkerSnapshot
from test.net.recorder import Recorder

pytest.importorskip("prometheus_client", reason="needs the extra metrics")

SOON_S = 30.0


class World:
    """An exporter at ``web:9101``, on simulated time."""

    def __init__(self) -> None:
        self.loop = Loop.simulated(ManualClock())
        self.network = MemoryNetwork(self.loop, "web")
        self.exporter = QueueExporter("web:9101", self.loop, self.network)

    def get(self, path: str) -> tuple[int, str]:
        """Status and body."""
        recorder = Recorder()
        client = self.network.host("prometheus")
        transport = client.connect(client.resolve("web", 9101).value, recorder)
        transport.write(f"GET {path} HTTP/1.1\r\nHost: web\r\n\r\n".encode())
        while not recorder.is_closed:
            assert self.loop.run_once(0, advance=False)
        head, _, body = recorder.data.decode().partition("\r\n\r\n")
        return int(head.split(" ")[1]), body


def numbers(body: str) -> dict[str, float]:
    """The samples of the app's families."""
    lines = [line.rpartition(" ") for line in body.splitlines() if line.startswith("kafka_tasks_")]
    return {name: float(value) for name, _, value in lines}


def test_each_queue_has_its_jobs_by_state_and_the_app_its_workers() -> None:
    world = World()
    workers = [
        Seen(WorkerSnapshot("web:1"), 1.0), Seen(WorkerSnapshot("web:2"), 1.0),
        Seen(WorkerSnapshot("web:3", reasons=("pool: no child is up yet",)), 1.0), Seen(WorkerSnapshot("web:4"), 30.0),
    ]  # fmt: skip
    world.exporter.update([QueueLength("mail", 90, 5, 7)], workers)
    status, body = world.get("/metrics")
    assert status == 200
    assert numbers(body) == {
        'kafka_tasks_queue_jobs{queue="mail",state="available"}': 90,
        'kafka_tasks_queue_jobs{queue="mail",state="running"}': 5,
        'kafka_tasks_queue_dead_jobs{queue="mail"}': 7,
        'kafka_tasks_queue_paused{queue="mail"}': 0,
        'kafka_tasks_workers{state="ready"}': 2,
        'kafka_tasks_workers{state="unready"}': 1,
        'kafka_tasks_workers{state="silent"}': 1,
    }
    world.exporter.update([QueueLength("mail", 0, 0, 7, True)], [])
    found = numbers(world.get("/metrics")[1])
    assert found['kafka_tasks_queue_paused{queue="mail"}'] == 1
    assert found['kafka_tasks_queue_jobs{queue="mail",state="available"}'] == 0
    assert found['kafka_tasks_workers{state="ready"}'] == 0


def test_numbers_that_are_not_known_are_no_numbers() -> None:
    world = World()
    assert world.get("/metrics") == (503, "nothing was read yet\n")
    world.exporter.update([QueueLength("mail", 90, 5, 7)], [])
    assert world.get("/metrics")[0] == 200
    world.exporter.fail("no brokers")
    assert world.get("/metrics") == (503, "no brokers\n")
    assert world.get("/healthz") == (200, "ok\n")
    assert world.get("/readyz") == (404, "here are /healthz, /metrics\n")


def test_it_answers_in_a_thread_of_its_own_until_it_is_closed() -> None:
    exporter = QueueExporter("0")
    exporter.update([QueueLength("mail", 1, 0, 0, 0)], [])
    url = f"http://{exporter.address}/metrics"
    with urllib.request.urlopen(url, timeout=SOON_S) as answer:
        assert 'state="available"} 1.0' in answer.read().decode()
    with pytest.raises(OSError, match="in use by another process"):
        QueueExporter(str(exporter.address))
    exporter.close()
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=SOON_S)


def test_a_place_that_is_none_is_refused() -> None:
    with pytest.raises(IllegalArgumentError, match="--health-port is PORT"):
        QueueExporter("nowhere")

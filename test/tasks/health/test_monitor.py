"""Tests of ``kafka.tasks.health.monitor`` and ``metrics``: one worker watched, over a network in memory."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from kafka import __version__
from kafka.errors import GroupAuthorizationFailedError
from kafka.future import Future
from kafka.net.clock import ManualClock
from kafka.net.loop import Loop
from kafka.net.memory import MemoryNetwork
from kafka.net.transport import ConnectFailed
from kafka.tasks.backends.base import BacklogCallback, QueueBacklog, ScheduleSnapshot, WorkerBackend
from kafka.tasks.delivery.base import BrokerContact, JobSource, MetadataUse
from kafka.tasks.health.job_metrics import JobMetrics
from kafka.tasks.health.monitor import BACKLOG_S, FIRST_PUBLISH_S, LEAVE_S, PATHS, PUBLISH_S, Monitor
from kafka.tasks.health.snapshot import QueueJobs, RunningJob, from_json
from kafka.tasks.pools.base import ChildSnapshot, Pool
from kafka.tasks.pools.runner import Job
from kafka.tasks.worker.worker import WorkerStage
from test.net.recorder import Recorder
from test.tasks.fakes import a_job

MAIL = JobSource("mail", "shop.mail")


class AWorker:
    """What a monitor reads of a worker."""

    def __init__(self, pool: Any, delivery: ADelivery) -> None:
        self.stage = WorkerStage.WORKING
        self.pool: Pool = pool
        self.contacts = delivery.contacts
        self.metadata_use = delivery.metadata_use
        self.jobs: list[Job] = []
        self.held = {"mail": 3}

    def count_by_queue(self) -> dict[str, int]:
        return self.held

    def statistics(self) -> dict[str, int]:
        return {"leased": 9, "done": 5, "failed": 3, "dead": 1, "held": 4, "pool_busy": 1, "pool_soft_limits": 2}

    def running(self) -> list[Job]:
        return self.jobs


class APool:
    """And of a pool."""

    concurrency = 2
    busy = 1

    def __init__(self) -> None:
        self.ready = True
        self.degraded: str | None = None
        self.states: list[ChildSnapshot] = []

    def children(self) -> list[ChildSnapshot]:
        return self.states

    def lost_by_cause(self) -> Mapping[str, int]:
        return {"oom": 1}


class ADelivery:
    """And of a delivery."""

    def __init__(self, clock: ManualClock) -> None:
        self.at: float | None = clock.monotonic()

    def contacts(self) -> list[BrokerContact]:
        return [BrokerContact(MAIL, self.at, 5.0)]

    def metadata_use(self) -> list[MetadataUse]:
        return [MetadataUse("mail", 2, 3_104)]


class ABoard:
    """What is posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, bytes | None]] = []
        self.closed: list[float] = []

    def publish(self, worker_id: str, text: bytes | None) -> None:
        self.posted.append((worker_id, text))

    def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)


class AMember:
    """A member of the schedule's group with two partitions."""

    def start(self) -> None: ...

    def close(self) -> Future[None]:
        raise NotImplementedError

    def snapshot(self) -> ScheduleSnapshot:
        return ScheduleSnapshot((1, 5), running=2, jobs=1_000, moved=7, late_s=0.25)


class World:
    """A monitor at ``worker:9100``, on simulated time."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.loop = Loop.simulated(self.clock)
        self.network = MemoryNetwork(self.loop, "worker")
        self.pool, self.snapshots, self.delivery = APool(), ABoard(), ADelivery(self.clock)
        self.worker = AWorker(self.pool, self.delivery)
        self.connect_error: str | None = None
        self.measuring: list[BacklogCallback] = []
        self.schedule: AMember | None = None
        self.jobs = JobMetrics(lambda: int(self.clock.time() * 1000))
        self.monitor = Monitor("shop", ["default", "mail"], "prefork", self.loop, self.jobs)

    def start(self) -> World:
        backend = WorkerBackend(
            lambda events: NotImplemented,
            8,
            4,
            snapshots=self.snapshots,
            connect_error=lambda: self.connect_error,
            measure_backlogs=self.measuring.append,
            schedule=self.schedule,
        )
        self.monitor.start(self.worker, backend)
        return self

    def listen(self) -> World:
        self.monitor.listen("worker:9100", self.network)
        return self

    def get(self, path: str, *headers: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        recorder = Recorder()
        client = self.network.host("probe")
        transport = client.connect(client.resolve("worker", 9100).value, recorder)
        lines = [f"GET {path} HTTP/1.1", "Host: worker", *headers, "", ""]
        transport.write("\r\n".join(lines).encode())
        while not recorder.is_closed:
            assert self.loop.run_once(0, advance=False)
        if isinstance(recorder.error, ConnectFailed):
            raise recorder.error
        head, _, body = recorder.data.decode().partition("\r\n\r\n")
        content_type = next(line for line in head.split("\r\n") if line.startswith("Content-Type: "))
        return int(head.split(" ")[1]), content_type.removeprefix("Content-Type: "), body

    def pass_time(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            self.loop.run_once(end - self.clock.monotonic())


@pytest.fixture
def world() -> World:
    return World()


# -- probes ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_starts_is_alive_and_not_ready(world: World) -> None:
    world.listen()
    assert world.get("/healthz")[::2] == (200, "ok: STARTING\n")
    assert world.get("/readyz")[::2] == (503, "starting: the worker has not connected yet\n")
    assert world.get("/metrics")[0] == 200


def test_a_worker_that_can_run_jobs_is_ready(world: World) -> None:
    world.listen().start()
    assert world.get("/readyz")[::2] == (200, "ready\n")
    assert world.get("/healthz")[::2] == (200, "ok: WORKING\n")


def test_a_worker_that_stops_is_alive_until_it_has_left_and_not_ready(world: World) -> None:
    world.listen().start()
    world.worker.stage = WorkerStage.DRAINING
    assert world.get("/readyz")[::2] == (503, "stopping: DRAINING\n")
    assert world.get("/healthz")[::2] == (200, "ok: DRAINING\n")


def test_a_degraded_pool_says_why(world: World) -> None:
    world.listen().start()
    world.pool.ready, world.pool.degraded = False, "5 children did not come up: importing shop.tasks failed"
    assert world.get("/readyz")[::2] == (503, "pool: 5 children did not come up: importing shop.tasks failed\n")
    world.pool.ready, world.pool.degraded = True, None
    assert world.get("/readyz")[0] == 200


def test_silent_brokers_make_it_unready_and_their_answer_ready_again(world: World) -> None:
    world.listen().start()
    world.pass_time(10.1)
    assert world.get("/readyz")[::2] == (
        503, "brokers: no answer for the group shop.mail for 10.1 s (one is due every 5 s)\n"
    )  # fmt: skip
    world.delivery.at = world.clock.monotonic()
    assert world.get("/readyz")[0] == 200


def test_other_paths_are_404_with_those_that_there_are(world: World) -> None:
    world.listen()
    for path in ("/", "/readyz/", "/READYZ", "*"):
        assert world.get(path)[::2] == (404, "here are /healthz, /readyz, /metrics\n")
    assert tuple(PATHS) == ("/healthz", "/readyz", "/metrics")


def test_after_closing_nobody_listens(world: World) -> None:
    world.listen().start()
    world.monitor.close()
    with pytest.raises(ConnectFailed):
        world.get("/healthz")


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_prometheus_reads_the_worker_as_it_is(world: World) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra metrics")
    world.listen().start()
    world.pool.states = [
        ChildSnapshot(20, 1, "busy", "j1", "mail.send", 3.5, 40_000_000, 4, 0.5),
        ChildSnapshot(21, 2, "idle", rss_bytes=30_000_000),
    ]
    status, content_type, body = world.get("/metrics")
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(body)
        for sample in family.samples
    }
    who = ("shop", "default,mail", "prefork", __version__, world.monitor.worker_id, world.monitor.snapshot().host)
    assert samples[("kafka_tasks_worker_info", *sorted(who))] == 1
    expected: dict[tuple[str, ...], float] = {
        ("kafka_tasks_ready",): 1,
        ("kafka_tasks_stage", "WORKING"): 1,
        ("kafka_tasks_uptime_seconds",): 0,
        ("kafka_tasks_broker_contact_age_seconds",): 0,
        ("kafka_tasks_slots",): 2,
        ("kafka_tasks_jobs_in_pool",): 1,
        ("kafka_tasks_jobs_held",): 4,
        ("kafka_tasks_jobs_total", "leased"): 9,
        ("kafka_tasks_jobs_total", "done"): 5,
        ("kafka_tasks_jobs_failed_total",): 3,
        ("kafka_tasks_jobs_dead_total",): 1,
        ("kafka_tasks_pool_events_total", "soft_limits"): 2,
        ("kafka_tasks_jobs_lost_total", "oom"): 1,
        ("kafka_tasks_children", "busy"): 1,
        ("kafka_tasks_children", "idle"): 1,
        ("kafka_tasks_children_rss_bytes",): 70_000_000,
        ("kafka_tasks_oldest_job_seconds",): 3.5,
        ("kafka_tasks_queue_held_jobs", "default", "running"): 0,
        ("kafka_tasks_queue_held_jobs", "mail", "running"): 3,
        ("kafka_tasks_queue_full_partitions", "mail"): 2,
        ("kafka_tasks_queue_metadata_characters", "mail"): 3_104,
    }
    ours = {name: value for name, value in samples.items() if name[0].startswith("kafka_") and "info" not in name[0]}
    assert ours == expected
    assert sys.platform != "linux" or ("process_open_fds",) in samples


def test_a_scrape_reads_the_numbers_of_its_time(world: World) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.listen().start()
    assert "kafka_tasks_ready 1.0\n" in world.get("/metrics")[2]
    world.worker.stage = WorkerStage.DRAINING
    assert "kafka_tasks_ready 0.0\n" in world.get("/metrics")[2]


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
        ("text/html", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=x.y", ""),
        ("application/openmetrics-text; version=\xc3\xa4", ""),
        ("application/openmetrics-text; version=1.0.0; escaping=x", "application/openmetrics-text; version=1.0.0"),
        ("text/plain; version=1.0.0; escaping=\t", "text/plain; version="),
        (",;=;,version;;", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_the_one_that_is_asked_for_and_nonsense_gets_one_that_can_be_read(
    world: World, accept: str, content_type: str
) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.listen().start()
    status, found, body = world.get("/metrics", f"Accept: {accept}")
    assert status == 200
    assert found.startswith(content_type)
    assert "kafka_tasks_slots 2.0\n" in body


def test_without_the_extra_probes_are_answered_and_metrics_name_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with caplog.at_level(logging.WARNING, "kafka.tasks.health"):
        world.listen().start()
    assert "pip install 'kafka-taskloop[metrics]'" in caplog.text
    status, _, body = world.get("/metrics")
    assert status == 501
    assert "pip install 'kafka-taskloop[metrics]'" in body
    assert world.get("/readyz")[0] == 200


# -- the schedule ------------------------------------------------------------------------------------------------------


def test_an_owner_of_the_schedule_says_what_it_has_and_others_have_no_such_numbers(world: World) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.listen().start()
    assert "kafka_tasks_schedule_" not in "".join(
        line for line in world.get("/metrics")[2].splitlines() if not line.startswith("#")
    )
    world.schedule = AMember()
    world.start()
    text = world.get("/metrics")[2]
    for line in ("partitions 2.0", "jobs 1000.0", "jobs_moved_total 7.0", "late_seconds 0.25"):
        assert f"\nkafka_tasks_schedule_{line}\n" in text


# -- lengths of queues -------------------------------------------------------------------------------------------------


def test_the_brokers_backlog_is_asked_for_every_few_seconds_one_question_at_a_time(world: World) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.listen().start()
    assert "kafka_tasks_queue_unfinished_jobs{" not in world.get("/metrics")[2]
    world.pass_time(FIRST_PUBLISH_S * 1.2)
    assert len(world.measuring) == 1
    world.pass_time(10 * BACKLOG_S)
    assert len(world.measuring) == 1, "the answer has not come"
    world.measuring.pop()([QueueBacklog("mail", 4000, 2)])
    text = world.get("/metrics")[2]
    assert 'kafka_tasks_queue_unfinished_jobs{queue="mail"} 4000.0\n' in text
    assert 'kafka_tasks_queue_dead_jobs{queue="mail"} 2.0\n' in text
    world.pass_time(BACKLOG_S * 0.79)
    assert not world.measuring
    world.pass_time(BACKLOG_S * 0.42)
    assert len(world.measuring) == 1


def test_a_backlog_that_cannot_be_read_is_left_out_and_logged_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.listen().start()
    world.pass_time(FIRST_PUBLISH_S * 1.2)
    world.measuring.pop()([QueueBacklog("mail", 4000, 2)])
    with caplog.at_level(logging.WARNING, "kafka.tasks.health"):
        for _ in range(3):
            world.pass_time(BACKLOG_S * 1.2)
            world.measuring.pop()(GroupAuthorizationFailedError("shop.mail"))
    assert "kafka_tasks_queue_unfinished_jobs{" not in world.get("/metrics")[2]
    (line,) = [line for line in caplog.messages if line.startswith("the lengths of the queues are not in /metrics")]
    assert "shop.mail" in line
    world.pass_time(BACKLOG_S * 1.2)
    world.measuring.pop()([QueueBacklog("mail", 1, 2)])
    assert 'kafka_tasks_queue_unfinished_jobs{queue="mail"} 1.0\n' in world.get("/metrics")[2]


def test_the_brokers_are_not_asked_without_metrics_or_after_the_worker_has_left(world: World) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    world.start()
    world.pass_time(5 * BACKLOG_S)
    assert not world.measuring
    other = World().listen().start()
    other.pass_time(FIRST_PUBLISH_S * 1.2)
    other.monitor.close()
    other.measuring.pop()([])
    other.pass_time(5 * BACKLOG_S)
    assert not other.measuring


# -- outages -----------------------------------------------------------------------------------------------------------


def test_a_worker_without_brokers_says_so_and_when_that_is_over(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.start()
    world.connect_error = "Connection refused"
    with caplog.at_level(logging.WARNING, "kafka.tasks.health"):
        world.pass_time(28.0)
        world.connect_error, world.delivery.at = None, world.clock.monotonic()
        world.pass_time(1.0)
    assert "no broker reachable, no jobs are leased until one is (last error: Connection refused)" in caplog.text
    assert "broker reachable again after 2" in caplog.text
    assert len(caplog.records) == 2
    world.monitor.close()
    caplog.clear()
    world.connect_error = "Connection refused"
    world.pass_time(28.0)
    assert not caplog.records, "a worker that has left looks no more"


# -- snapshots ---------------------------------------------------------------------------------------------------------


def test_the_snapshot_says_what_there_is_to_say(world: World) -> None:
    world.start()
    world.pool.states = [ChildSnapshot(20, 1, "busy", "j1", "mail.send", 3.5, 40_000_000, 4, 0.5)]
    world.pass_time(2.0)
    found = world.monitor.snapshot()
    assert (found.app, found.queues, found.pool, found.pid) == ("shop", ("default", "mail"), "prefork", os.getpid())
    assert (found.stage, found.reasons, found.concurrency, found.busy, found.held) == ("WORKING", (), 2, 1, 4)
    assert (found.uptime_s, found.contact_age_s) == (2.0, 2.0)
    assert found.counts == {"leased": 9, "done": 5, "failed": 3, "dead": 1}
    assert found.pool_counts == {"busy": 1, "soft_limits": 2}
    assert found.lost == {"oom": 1}
    assert found.queue_jobs == (QueueJobs("default", 0), QueueJobs("mail", 3, 2, 3_104))
    assert [child.pid for child in found.children] == [20]
    assert found.running == (RunningJob("j1", "mail.send", 3.5, 40_000_000, 20),)
    assert found.rss_bytes is None or found.rss_bytes > 1_000_000


def test_where_there_are_no_children_the_jobs_that_have_begun_are_the_running_ones(world: World) -> None:
    world.start()
    lease: Any = None
    task: Any = None
    begun, waiting = (Job(lease, a_job("mail.send"), task) for _ in range(2))
    begun.on_started(world.clock.monotonic())
    world.worker.jobs = [begun, waiting]
    world.pass_time(1.5)
    assert world.monitor.snapshot().running == (RunningJob(begun.envelope.id, "mail.send", 1.5),)


def test_snapshots_are_posted_soon_and_then_every_few_seconds(world: World) -> None:
    world.start()
    assert not world.snapshots.posted
    world.pass_time(FIRST_PUBLISH_S)
    assert len(world.snapshots.posted) == 1
    world.pass_time(3 * PUBLISH_S)
    assert len(world.snapshots.posted) == 4
    worker_id, text = world.snapshots.posted[-1]
    assert text is not None
    assert worker_id == world.monitor.worker_id
    found = from_json(text)
    assert dataclasses.replace(found, rss_bytes=None) == dataclasses.replace(world.monitor.snapshot(), rss_bytes=None)


def test_a_worker_that_leaves_says_so(world: World) -> None:
    world.start()
    world.pass_time(FIRST_PUBLISH_S)
    world.monitor.close()
    assert world.snapshots.posted[-1] == (world.monitor.worker_id, None)
    assert world.snapshots.closed == [LEAVE_S]
    world.pass_time(3 * PUBLISH_S)
    assert len(world.snapshots.posted) == 2
    world.monitor.close()
    assert world.snapshots.closed == [LEAVE_S]


def test_a_worker_that_leaves_before_its_first_snapshot_publishes_nothing(world: World) -> None:
    world.start()
    world.monitor.close()
    assert not world.snapshots.posted
    assert world.snapshots.closed == [LEAVE_S]


def test_one_that_never_came_to_work_can_be_closed(world: World) -> None:
    world.monitor.close()
    world.listen()
    world.monitor.close()


def test_two_workers_of_one_process_are_distinguished(world: World) -> None:
    assert world.monitor.worker_id != World().monitor.worker_id
